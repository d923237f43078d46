// The little of HIP that the stub runtime uses, so that its answers can be tested with a C++ compiler alone.
//
// Names, values and argument lists are the interface's own. What a program compiled for a real runtime would
// need besides (the layout of the device properties, most attributes) is left out: stub and test share this file.
// Where there is a HIP SDK, the same test runs against the SDK's header, and both must answer alike.
#pragma once

#include <cstddef>

enum hipError_t {
    hipSuccess                       = 0,
    hipErrorInvalidValue             = 1,
    hipErrorOutOfMemory              = 2,
    hipErrorInvalidConfiguration     = 9,
    hipErrorInvalidPitchValue        = 12,
    hipErrorInvalidSymbol            = 13,
    hipErrorInvalidDevicePointer     = 17,
    hipErrorInvalidMemcpyDirection   = 21,
    hipErrorMissingConfiguration     = 52,
    hipErrorInvalidDeviceFunction    = 98,
    hipErrorInvalidDevice            = 101,
    hipErrorInvalidImage             = 200,
    hipErrorNoBinaryForGpu           = 209,
    hipErrorFileNotFound             = 301,
    hipErrorInvalidHandle            = 400,
    hipErrorIllegalState             = 401,
    hipErrorNotFound                 = 500,
    hipErrorNotReady                 = 600,
    hipErrorContextIsDestroyed       = 709,
    hipErrorHostMemoryNotRegistered  = 713,
    hipErrorLaunchFailure            = 719,
    hipErrorCooperativeLaunchTooLarge = 720,
    hipErrorNotSupported             = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorStreamCaptureMerge       = 902,
    hipErrorStreamCaptureUnmatched   = 903,
    hipErrorStreamCaptureUnjoined    = 904,
    hipErrorStreamCaptureIsolation   = 905,
    hipErrorCapturedEvent            = 907,
    hipErrorGraphExecUpdateFailure   = 910,
    hipErrorUnknown                  = 999,
};

enum hipDeviceAttribute_t {
    hipDeviceAttributeCooperativeLaunch       = 10,
    hipDeviceAttributeMaxThreadsPerBlock      = 56,
    hipDeviceAttributeMultiprocessorCount     = 63,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
    hipDeviceAttributeWarpSize                = 87,
};

enum hipMemoryType {
    hipMemoryTypeUnregistered = 0,
    hipMemoryTypeHost         = 1,
    hipMemoryTypeDevice       = 2,
    hipMemoryTypeManaged      = 3,
};

enum hipMemcpyKind { hipMemcpyDefault = 4 };

enum hipMemoryAdvise {
    hipMemAdviseSetReadMostly   = 1,
    hipMemAdviseUnsetReadMostly = 2,
    hipMemAdviseSetCoarseGrain  = 100,
};

enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum hipStreamCaptureMode { hipStreamCaptureModeRelaxed = 2 };
enum hipStreamCaptureStatus {
    hipStreamCaptureStatusNone        = 0,
    hipStreamCaptureStatusActive      = 1,
    hipStreamCaptureStatusInvalidated = 2,
};
enum hipGraphExecUpdateResult {
    hipGraphExecUpdateSuccess              = 0,
    hipGraphExecUpdateErrorTopologyChanged = 2,
};

typedef int hipDevice_t;
typedef struct ihipStream_t * hipStream_t;
typedef struct ihipEvent_t * hipEvent_t;
typedef struct ihipGraph * hipGraph_t;
typedef struct hipGraphNode * hipGraphNode_t;
typedef struct hipGraphExec * hipGraphExec_t;

typedef void (*hipHostFn_t)(void *);
typedef void (*hipStreamCallback_t)(hipStream_t, hipError_t, void *);

#define hipStreamLegacy ((hipStream_t) 1)
#define hipStreamPerThread ((hipStream_t) 2)
#define hipStreamDefault 0x00
#define hipStreamNonBlocking 0x01
#define hipEventDefault 0x0
#define hipEventDisableTiming 0x2
#define hipCpuDeviceId (-1)
#define hipInvalidDeviceId (-2)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct hipDeviceProp_t {
    char name[256];
    char gcnArchName[256];
    int major, minor;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, maxSharedMemoryPerMultiProcessor;
    int warpSize, multiProcessorCount, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int cooperativeLaunch, pciBusID;
};

struct hipPointerAttribute_t {
    hipMemoryType type;
    int device;
    void * devicePointer;
    void * hostPointer;
    int isManaged;
};

struct hipFuncAttributes {
    int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs;
    size_t sharedSizeBytes, localSizeBytes;
};

// Declared, so that a definition with other arguments does not compile.
extern "C" {

hipError_t hipInit(unsigned);
hipError_t hipGetDeviceCount(int *);
hipError_t hipGetDevice(int *);
hipError_t hipSetDevice(int);
hipError_t hipSetDeviceFlags(unsigned);
hipError_t hipDeviceSynchronize();
hipError_t hipDeviceReset();
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t *, int);
hipError_t hipDeviceGet(hipDevice_t *, int);
hipError_t hipDeviceGetAttribute(int *, hipDeviceAttribute_t, int);
hipError_t hipDeviceGetPCIBusId(char *, int, int);
hipError_t hipDeviceCanAccessPeer(int *, int, int);
hipError_t hipDeviceEnablePeerAccess(int, unsigned);
hipError_t hipDeviceDisablePeerAccess(int);

hipError_t hipMemGetInfo(size_t *, size_t *);
hipError_t hipMalloc(void **, size_t);
hipError_t hipMallocManaged(void **, size_t, unsigned);
hipError_t hipHostMalloc(void **, size_t, unsigned);
hipError_t hipExtMallocWithFlags(void **, size_t, unsigned);
hipError_t hipMallocAsync(void **, size_t, hipStream_t);
hipError_t hipFree(void *);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipHostFree(void *);
hipError_t hipHostRegister(void *, size_t, unsigned);
hipError_t hipHostUnregister(void *);
hipError_t hipHostGetDevicePointer(void **, void *, unsigned);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *, const void *);
hipError_t hipMemAdvise(const void *, size_t, hipMemoryAdvise, int);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t);
hipError_t hipMemcpy(void *, const void *, size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync(void *, const void *, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyPeer(void *, int, const void *, int, size_t);
hipError_t hipMemcpyPeerAsync(void *, int, const void *, int, size_t, hipStream_t);
hipError_t hipMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind, hipStream_t);

hipError_t hipStreamCreate(hipStream_t *);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned);
hipError_t hipStreamCreateWithPriority(hipStream_t *, unsigned, int);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned);
hipError_t hipLaunchHostFunc(hipStream_t, hipHostFn_t, void *);
hipError_t hipStreamAddCallback(hipStream_t, hipStreamCallback_t, void *, unsigned);
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus *);
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t *);

hipError_t hipGraphInstantiate(hipGraphExec_t *, hipGraph_t, hipGraphNode_t *, char *, size_t);
hipError_t hipGraphExecUpdate(hipGraphExec_t, hipGraph_t, hipGraphNode_t *, hipGraphExecUpdateResult *);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
hipError_t hipGraphDestroy(hipGraph_t);
hipError_t hipGraphExecDestroy(hipGraphExec_t);

hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventCreateWithFlags(hipEvent_t *, unsigned);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventQuery(hipEvent_t);
hipError_t hipEventElapsedTime(float *, hipEvent_t, hipEvent_t);

hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
const char * hipGetErrorString(hipError_t);
const char * hipGetErrorName(hipError_t);

hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipLaunchCooperativeKernel(const void *, dim3, dim3, void **, unsigned, hipStream_t);
hipError_t hipFuncSetAttribute(const void *, hipFuncAttribute, int);
hipError_t hipFuncGetAttributes(hipFuncAttributes *, const void *);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);

} // extern "C"
