// The little of HIP that the stub runtime uses, so that its answers can be tested with a C++ compiler alone.
//
// Names, values and argument lists are the interface's own. What a program compiled for a real runtime would
// need besides (the layout of the device properties, most attributes) is left out: stub and test share this file.
// Where there is a HIP SDK, the same test runs against the SDK's header, and both must answer alike.
#pragma once

#include <cstddef>
#include <cstdint>

#define HIP_VERSION 60443484

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
    hipErrorUnsupportedLimit         = 215,
    hipErrorPeerAccessUnsupported    = 217,
    hipErrorFileNotFound             = 301,
    hipErrorInvalidHandle            = 400,
    hipErrorIllegalState             = 401,
    hipErrorNotFound                 = 500,
    hipErrorNotReady                 = 600,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled     = 705,
    hipErrorContextIsDestroyed       = 709,
    hipErrorHostMemoryAlreadyRegistered = 712,
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
    hipDeviceAttributeCanMapHostMemory               = 3,
    hipDeviceAttributeConcurrentKernels              = 8,
    hipDeviceAttributeConcurrentManagedAccess        = 9,
    hipDeviceAttributeCooperativeLaunch              = 10,
    hipDeviceAttributeHostNativeAtomicSupported      = 15,
    hipDeviceAttributeIntegrated                     = 16,
    hipDeviceAttributeComputeCapabilityMajor         = 23,
    hipDeviceAttributeManagedMemory                  = 24,
    hipDeviceAttributeMaxBlockDimX                   = 26,
    hipDeviceAttributeMaxBlockDimY                   = 27,
    hipDeviceAttributeMaxBlockDimZ                   = 28,
    hipDeviceAttributeMaxGridDimX                    = 29,
    hipDeviceAttributeMaxGridDimY                    = 30,
    hipDeviceAttributeMaxGridDimZ                    = 31,
    hipDeviceAttributeMaxTexture1DWidth              = 39,
    hipDeviceAttributeMaxTexture2DWidth              = 43,
    hipDeviceAttributeMaxTexture2DHeight             = 44,
    hipDeviceAttributeMaxTexture3DWidth              = 49,
    hipDeviceAttributeMaxTexture3DHeight             = 50,
    hipDeviceAttributeMaxTexture3DDepth              = 51,
    hipDeviceAttributeMaxThreadsPerBlock             = 56,
    hipDeviceAttributeMaxThreadsPerMultiProcessor    = 57,
    hipDeviceAttributeComputeCapabilityMinor         = 61,
    hipDeviceAttributeMultiprocessorCount            = 63,
    hipDeviceAttributePciBusId                       = 67,
    hipDeviceAttributeMaxRegistersPerBlock           = 71,
    hipDeviceAttributeMaxRegistersPerMultiprocessor  = 72,
    hipDeviceAttributeMaxSharedMemoryPerBlock        = 74,
    hipDeviceAttributeSharedMemPerBlockOptin         = 75,
    hipDeviceAttributeSharedMemPerMultiprocessor     = 76,
    hipDeviceAttributeStreamPrioritiesSupported      = 78,
    hipDeviceAttributeTextureAlignment               = 81,
    hipDeviceAttributeTexturePitchAlignment          = 82,
    hipDeviceAttributeUnifiedAddressing              = 85,
    hipDeviceAttributeWarpSize                       = 87,
    hipDeviceAttributeMemoryPoolsSupported           = 88,
    hipDeviceAttributeHostRegisterSupported          = 90,
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002,
    hipDeviceAttributeImageSupport                   = 10014,
};

enum hipMemoryType {
    hipMemoryTypeUnregistered = 0,
    hipMemoryTypeHost         = 1,
    hipMemoryTypeDevice       = 2,
    hipMemoryTypeManaged      = 3,
};

enum hipMemcpyKind {
    hipMemcpyHostToDevice       = 1,
    hipMemcpyDeviceToHost       = 2,
    hipMemcpyDeviceToDevice     = 3,
    hipMemcpyDefault            = 4,
    hipMemcpyDeviceToDeviceNoCU = 1024,
};

enum hipMemoryAdvise {
    hipMemAdviseSetReadMostly   = 1,
    hipMemAdviseUnsetReadMostly = 2,
    hipMemAdviseSetCoarseGrain  = 100,
};

enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum hipFunction_attribute {
    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK         = 0,
    HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES             = 1,
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES              = 3,
    HIP_FUNC_ATTRIBUTE_NUM_REGS                      = 4,
    HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
enum hipFuncCache_t { hipFuncCachePreferNone = 0 };
enum hipSharedMemConfig { hipSharedMemBankSizeFourByte = 1 };
enum hipLimit_t { hipLimitStackSize = 0, hipLimitMallocHeapSize = 2 };
enum hipDeviceP2PAttr { hipDevP2PAttrAccessSupported = 1 };
enum hipJitOption { hipJitOptionMaxRegisters = 0 };
enum hipMemPoolAttr {
    hipMemPoolReuseFollowEventDependencies = 1,
    hipMemPoolAttrReleaseThreshold         = 4,
    hipMemPoolAttrUsedMemHigh              = 8,
};
enum hipStreamCaptureMode { hipStreamCaptureModeGlobal = 0, hipStreamCaptureModeRelaxed = 2 };
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

typedef struct ihipModule_t * hipModule_t;
typedef struct ihipModuleSymbol_t * hipFunction_t;
typedef struct ihipMemPoolHandle_t * hipMemPool_t;
typedef void * hipDeviceptr_t;
typedef void (*hipHostFn_t)(void *);
typedef void (*hipStreamCallback_t)(hipStream_t, hipError_t, void *);

#define hipStreamLegacy ((hipStream_t) 1)
#define hipStreamPerThread ((hipStream_t) 2)
#define hipStreamDefault 0x00
#define hipStreamNonBlocking 0x01
#define hipEventDefault 0x0
#define hipEventDisableTiming 0x2
#define hipOccupancyDefault 0x00
#define hipOccupancyDisableCachingOverride 0x01
#define hipGraphInstantiateFlagAutoFreeOnLaunch 1
#define hipGraphInstantiateFlagUseNodePriority 8
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *) 1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *) 2)
#define HIP_LAUNCH_PARAM_END ((void *) 3)
#define hipCpuDeviceId (-1)
#define hipInvalidDeviceId (-2)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
struct hipKernelNodeParams {
    dim3 blockDim;
    void ** extra;
    void * func;
    dim3 gridDim;
    void ** kernelParams;
    unsigned int sharedMemBytes;
};
struct hipMemsetParams {
    void * dst;
    unsigned int elementSize;
    size_t height;
    size_t pitch;
    unsigned int value;
    size_t width;
};
struct hipHostNodeParams {
    hipHostFn_t fn;
    void * userData;
};
struct hipPitchedPtr {
    void * ptr;
    size_t pitch, xsize, ysize;
};
struct hipExtent {
    size_t width, height, depth;
};

struct hipPos {
    size_t x, y, z;
};

// Arrays, textures and surfaces.
using hipArray_t         = struct hipArray *;
using hipArray_const_t   = const hipArray *;
using hipTextureObject_t = struct hip_texture *;
using hipSurfaceObject_t = struct hip_surface *;
#define hipArrayLayered 0x01
#define hipArraySurfaceLoadStore 0x02
#define HIP_TEXTURE_OBJECT_SIZE_DWORD 20

enum hipChannelFormatKind {
    hipChannelFormatKindSigned   = 0,
    hipChannelFormatKindUnsigned = 1,
    hipChannelFormatKindFloat    = 2,
    hipChannelFormatKindNone     = 3,
};
enum hipArray_Format {
    HIP_AD_FORMAT_UNSIGNED_INT8  = 1,
    HIP_AD_FORMAT_UNSIGNED_INT16 = 2,
    HIP_AD_FORMAT_UNSIGNED_INT32 = 3,
    HIP_AD_FORMAT_SIGNED_INT8    = 8,
    HIP_AD_FORMAT_SIGNED_INT16   = 9,
    HIP_AD_FORMAT_SIGNED_INT32   = 10,
    HIP_AD_FORMAT_HALF           = 16,
    HIP_AD_FORMAT_FLOAT          = 32,
};
enum hipResourceType {
    hipResourceTypeArray          = 0,
    hipResourceTypeMipmappedArray = 1,
    hipResourceTypeLinear         = 2,
    hipResourceTypePitch2D        = 3,
};
enum hipTextureAddressMode {
    hipAddressModeWrap   = 0,
    hipAddressModeClamp  = 1,
    hipAddressModeMirror = 2,
    hipAddressModeBorder = 3,
};
enum hipTextureFilterMode { hipFilterModePoint = 0, hipFilterModeLinear = 1 };
enum hipTextureReadMode { hipReadModeElementType = 0, hipReadModeNormalizedFloat = 1 };

struct hipChannelFormatDesc {
    int x, y, z, w;
    hipChannelFormatKind f;
};
struct HIP_ARRAY_DESCRIPTOR {
    size_t Width, Height;
    hipArray_Format Format;
    unsigned NumChannels;
};
struct HIP_ARRAY3D_DESCRIPTOR {
    size_t Width, Height, Depth;
    hipArray_Format Format;
    unsigned NumChannels, Flags;
};
struct hipResourceViewDesc;
struct hipResourceDesc {
    hipResourceType resType;
    union {
        struct {
            hipArray_t array;
        } array;
        struct {
            void * devPtr;
            hipChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void * devPtr;
            hipChannelFormatDesc desc;
            size_t width, height, pitchInBytes;
        } pitch2D;
    } res;
};
struct hipTextureDesc {
    hipTextureAddressMode addressMode[3];
    hipTextureFilterMode filterMode;
    hipTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
};
struct hipMemcpy3DParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    hipMemcpyKind kind;
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
    int regsPerBlock, regsPerMultiprocessor;
    int integrated, canMapHostMemory, unifiedAddressing, managedMemory, concurrentKernels;
    int concurrentManagedAccess, hostNativeAtomicSupported;
    int memoryPoolsSupported, streamPrioritiesSupported, hostRegisterSupported;
    size_t textureAlignment, texturePitchAlignment;
    int maxTexture1D;
    int maxTexture2D[2];
    int maxTexture3D[3];
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

struct hipUUID {
    char bytes[16];
};

struct hipMemPoolProps {
    unsigned char reserved[88];
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

hipError_t hipDeviceGetP2PAttribute(int *, hipDeviceP2PAttr, int, int);
hipError_t hipChooseDeviceR0600(int *, const hipDeviceProp_t *);
hipError_t hipDriverGetVersion(int *);
hipError_t hipRuntimeGetVersion(int *);
hipError_t hipDeviceGetName(char *, int, hipDevice_t);
hipError_t hipDeviceTotalMem(size_t *, hipDevice_t);
hipError_t hipDeviceComputeCapability(int *, int *, hipDevice_t);
hipError_t hipDeviceGetUuid(hipUUID *, hipDevice_t);
hipError_t hipDeviceGetByPCIBusId(int *, const char *);
hipError_t hipGetDeviceFlags(unsigned *);
hipError_t hipDeviceSetCacheConfig(hipFuncCache_t);
hipError_t hipDeviceGetCacheConfig(hipFuncCache_t *);
hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig);
hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig *);
hipError_t hipDeviceGetLimit(size_t *, hipLimit_t);
hipError_t hipDeviceSetLimit(hipLimit_t, size_t);
hipError_t hipDeviceGetStreamPriorityRange(int *, int *);

hipError_t hipHostAlloc(void **, size_t, unsigned);
hipError_t hipMallocHost(void **, size_t);
hipError_t hipMemAllocHost(void **, size_t);
hipError_t hipMallocPitch(void **, size_t *, size_t, size_t);
hipError_t hipMemAllocPitch(hipDeviceptr_t *, size_t *, size_t, size_t, unsigned int);
hipError_t hipMalloc3D(hipPitchedPtr *, hipExtent);
hipError_t hipMallocArray(hipArray_t *, const hipChannelFormatDesc *, size_t, size_t, unsigned);
hipError_t hipMalloc3DArray(hipArray_t *, const hipChannelFormatDesc *, hipExtent, unsigned);
hipError_t hipArrayCreate(hipArray_t *, const HIP_ARRAY_DESCRIPTOR *);
hipError_t hipArray3DCreate(hipArray_t *, const HIP_ARRAY3D_DESCRIPTOR *);
hipError_t hipFreeArray(hipArray_t);
hipError_t hipArrayDestroy(hipArray_t);
hipError_t hipArrayGetInfo(hipChannelFormatDesc *, hipExtent *, unsigned *, hipArray_t);
hipError_t hipGetChannelDesc(hipChannelFormatDesc *, hipArray_const_t);
hipChannelFormatDesc hipCreateChannelDesc(int, int, int, int, hipChannelFormatKind);
hipError_t hipMemcpy2DToArray(hipArray_t, size_t, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DToArrayAsync(hipArray_t, size_t, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind,
                                   hipStream_t);
hipError_t hipMemcpy2DFromArray(void *, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DFromArrayAsync(void *, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind,
                                     hipStream_t);
hipError_t hipMemcpyToArray(hipArray_t, size_t, size_t, const void *, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromArray(void *, hipArray_const_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyHtoA(hipArray_t, size_t, const void *, size_t);
hipError_t hipMemcpyAtoH(void *, hipArray_t, size_t, size_t);
hipError_t hipMemcpy3D(const hipMemcpy3DParms *);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *, hipStream_t);
hipError_t hipCreateTextureObject(hipTextureObject_t *, const hipResourceDesc *, const hipTextureDesc *,
                                  const hipResourceViewDesc *);
hipError_t hipDestroyTextureObject(hipTextureObject_t);
hipError_t hipGetTextureObjectResourceDesc(hipResourceDesc *, hipTextureObject_t);
hipError_t hipGetTextureObjectTextureDesc(hipTextureDesc *, hipTextureObject_t);
hipError_t hipCreateSurfaceObject(hipSurfaceObject_t *, const hipResourceDesc *);
hipError_t hipDestroySurfaceObject(hipSurfaceObject_t);
hipError_t hipFreeHost(void *);
hipError_t hipHostGetFlags(unsigned *, void *);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *, size_t *, hipDeviceptr_t);
hipError_t hipMemPtrGetInfo(void *, size_t *);
hipError_t hipMemPrefetchAsync(const void *, size_t, int, hipStream_t);
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *, int);
hipError_t hipDeviceGetMemPool(hipMemPool_t *, int);
hipError_t hipDeviceSetMemPool(int, hipMemPool_t);
hipError_t hipMemPoolCreate(hipMemPool_t *, const hipMemPoolProps *);
hipError_t hipMemPoolDestroy(hipMemPool_t);
hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t);
hipError_t hipMemPoolSetAttribute(hipMemPool_t, hipMemPoolAttr, void *);
hipError_t hipMemPoolGetAttribute(hipMemPool_t, hipMemPoolAttr, void *);
hipError_t hipMallocFromPoolAsync(void **, size_t, hipMemPool_t, hipStream_t);
hipError_t hipMemsetD8(hipDeviceptr_t, unsigned char, size_t);
hipError_t hipMemsetD8Async(hipDeviceptr_t, unsigned char, size_t, hipStream_t);
hipError_t hipMemsetD16(hipDeviceptr_t, unsigned short, size_t);
hipError_t hipMemsetD16Async(hipDeviceptr_t, unsigned short, size_t, hipStream_t);
hipError_t hipMemsetD32(hipDeviceptr_t, int, size_t);
hipError_t hipMemsetD32Async(hipDeviceptr_t, int, size_t, hipStream_t);
hipError_t hipMemset2D(void *, size_t, int, size_t, size_t);
hipError_t hipMemset2DAsync(void *, size_t, int, size_t, size_t, hipStream_t);
hipError_t hipMemcpyWithStream(void *, const void *, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyHtoD(hipDeviceptr_t, void *, size_t);
hipError_t hipMemcpyDtoH(void *, hipDeviceptr_t, size_t);
hipError_t hipMemcpyDtoD(hipDeviceptr_t, hipDeviceptr_t, size_t);
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t, void *, size_t, hipStream_t);
hipError_t hipMemcpyDtoHAsync(void *, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipGetSymbolAddress(void **, const void *);
hipError_t hipGetSymbolSize(size_t *, const void *);
hipError_t hipMemcpyToSymbol(const void *, const void *, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyFromSymbol(void *, const void *, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromSymbolAsync(void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t);

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
hipError_t hipStreamGetFlags(hipStream_t, unsigned *);
hipError_t hipStreamGetPriority(hipStream_t, int *);
int hipGetStreamDeviceId(hipStream_t);
hipError_t hipStreamGetDevice(hipStream_t, hipDevice_t *);
hipError_t hipStreamGetCaptureInfo(hipStream_t, hipStreamCaptureStatus *, unsigned long long *);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t, hipStreamCaptureStatus *, unsigned long long *, hipGraph_t *,
                                      const hipGraphNode_t **, size_t *);
hipError_t hipGraphDebugDotPrint(hipGraph_t, const char *, unsigned);
typedef struct hipIpcMemHandle_st {
    char reserved[64];
} hipIpcMemHandle_t;
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *, void *);
hipError_t hipIpcOpenMemHandle(void **, hipIpcMemHandle_t, unsigned);
hipError_t hipIpcCloseMemHandle(void *);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *, hipGraph_t, unsigned long long);
hipError_t hipGraphUpload(hipGraphExec_t, hipStream_t);
hipError_t hipGraphGetNodes(hipGraph_t, hipGraphNode_t *, size_t *);
hipError_t hipGraphGetRootNodes(hipGraph_t, hipGraphNode_t *, size_t *);
hipError_t hipGraphCreate(hipGraph_t *, unsigned int);
hipError_t hipGraphAddEmptyNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t);
hipError_t hipGraphAddKernelNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t,
                                 const hipKernelNodeParams *);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, void *, const void *,
                                   size_t, hipMemcpyKind);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t,
                                 const hipMemsetParams *);
hipError_t hipGraphAddHostNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t,
                               const hipHostNodeParams *);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, hipGraph_t);
hipError_t hipGraphAddDependencies(hipGraph_t, const hipGraphNode_t *, const hipGraphNode_t *, size_t);
hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t, const hipKernelNodeParams *);
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hipKernelNodeParams *);
hipError_t hipEventRecordWithFlags(hipEvent_t, hipStream_t, unsigned);
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
hipError_t hipExtGetLastError();
hipError_t hipDrvGetErrorName(hipError_t, const char **);
hipError_t hipDrvGetErrorString(hipError_t, const char **);
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
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, const void *, int, size_t, unsigned);
hipError_t hipOccupancyMaxPotentialBlockSize(int *, int *, const void *, size_t, int);
hipError_t hipExtLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t, hipEvent_t, hipEvent_t, int);
hipError_t hipFuncSetCacheConfig(const void *, hipFuncCache_t);
hipError_t hipFuncSetSharedMemConfig(const void *, hipSharedMemConfig);
hipError_t hipFuncGetAttribute(int *, hipFunction_attribute, hipFunction_t);
hipError_t hipGetFuncBySymbol(hipFunction_t *, const void *);
hipError_t hipModuleLoad(hipModule_t *, const char *);
hipError_t hipModuleLoadData(hipModule_t *, const void *);
hipError_t hipModuleLoadDataEx(hipModule_t *, const void *, unsigned, hipJitOption *, void **);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t *, hipModule_t, const char *);
hipError_t hipModuleGetGlobal(hipDeviceptr_t *, size_t *, hipModule_t, const char *);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 hipStream_t, void **, void **);
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, hipStream_t, void **);
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *, hipFunction_t, int, size_t);
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, hipFunction_t, int, size_t, unsigned);
hipError_t hipModuleOccupancyMaxPotentialBlockSize(int *, int *, hipFunction_t, size_t, int);
hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *, int *, hipFunction_t, size_t, int, unsigned);

// For programs compiled with a default stream per thread.
hipError_t hipMemcpy_spt(void *, const void *, size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync_spt(void *, const void *, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemset_spt(void *, int, size_t);
hipError_t hipMemsetAsync_spt(void *, int, size_t, hipStream_t);
hipError_t hipMemcpyToSymbol_spt(const void *, const void *, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyToSymbolAsync_spt(const void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyFromSymbol_spt(void *, const void *, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromSymbolAsync_spt(void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipLaunchKernel_spt(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipLaunchCooperativeKernel_spt(const void *, dim3, dim3, void **, uint32_t, hipStream_t);
hipError_t hipStreamQuery_spt(hipStream_t);
hipError_t hipStreamSynchronize_spt(hipStream_t);
hipError_t hipStreamGetFlags_spt(hipStream_t, unsigned *);
hipError_t hipStreamGetPriority_spt(hipStream_t, int *);
hipError_t hipStreamWaitEvent_spt(hipStream_t, hipEvent_t, unsigned);
hipError_t hipEventRecord_spt(hipEvent_t, hipStream_t);
hipError_t hipStreamAddCallback_spt(hipStream_t, hipStreamCallback_t, void *, unsigned);
hipError_t hipLaunchHostFunc_spt(hipStream_t, hipHostFn_t, void *);
hipError_t hipStreamBeginCapture_spt(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture_spt(hipStream_t, hipGraph_t *);
hipError_t hipStreamIsCapturing_spt(hipStream_t, hipStreamCaptureStatus *);
hipError_t hipStreamGetCaptureInfo_spt(hipStream_t, hipStreamCaptureStatus *, unsigned long long *);
hipError_t hipGraphLaunch_spt(hipGraphExec_t, hipStream_t);

} // extern "C"
