// Every call of the stub runtime with each argument wrong, one at a time, and what it answers: the table.
//
// Facts: the HIP header's @returns (6.4.43484) and, where it names no code that fits, the runtime (clr
// f9f995c6d: hip_memory, hip_stream, hip_event, hip_peer, hip_device*, hip_module, hip_platform, hip_graph,
// hip_mempool, hip_hmm); hipBLAS 27cf7beb over rocBLAS b520bc83f. "crash" below: the real runtime follows the
// bad pointer there, and the stub answers by kind of argument (patchkit/gpu/emulated/native/runtime/answers.hpp).
#include "stub_probe.hpp"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // they are there all the same

#include <cstring>

namespace {

// The SDK's header has templates of the same names.
hipError_t (*const malloc_async)(void **, size_t, hipStream_t) = hipMallocAsync;
hipError_t (*const launch_cooperative)(const void *, dim3, dim3, void **, unsigned, hipStream_t) =
    hipLaunchCooperativeKernel;
hipError_t (*const resident_blocks)(int *, const void *, int, size_t) = hipOccupancyMaxActiveBlocksPerMultiprocessor;
hipError_t (*const resident_blocks_with_flags)(int *, const void *, int, size_t, unsigned) =
    hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
hipError_t (*const best_block)(int *, int *, const void *, size_t, int) = hipOccupancyMaxPotentialBlockSize;
hipError_t (*const malloc_from_pool)(void **, size_t, hipMemPool_t, hipStream_t) = hipMallocFromPoolAsync;
hipError_t (*const launch_with_events)(const void *, dim3, dim3, void **, size_t, hipStream_t, hipEvent_t, hipEvent_t,
                                       int) = hipExtLaunchKernel;
hipError_t (*const symbol_address)(void **, const void *) = hipGetSymbolAddress;
hipError_t (*const symbol_size)(size_t *, const void *) = hipGetSymbolSize;
hipError_t (*const to_symbol)(const void *, const void *, size_t, size_t, hipMemcpyKind) = hipMemcpyToSymbol;
hipError_t (*const to_symbol_async)(const void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t) =
    hipMemcpyToSymbolAsync;
hipError_t (*const from_symbol)(void *, const void *, size_t, size_t, hipMemcpyKind) = hipMemcpyFromSymbol;
hipError_t (*const from_symbol_async)(void *, const void *, size_t, size_t, hipMemcpyKind, hipStream_t) =
    hipMemcpyFromSymbolAsync;

// Arrays of 64 rows of 64 floats, textures and surfaces of them. What their calls answer to wrong arguments was not
// looked up: it is the stub's by kind of argument, as where the runtime crashes.
const hipChannelFormatDesc floats = {32, 0, 0, 0, hipChannelFormatKindFloat};

hipArray_t new_array() {
    hipArray_t made = nullptr;
    (void) hipMallocArray(&made, &floats, 64, 64, hipArraySurfaceLoadStore);
    return made;
}

hipResourceDesc resource_of(hipArray_t array) {
    hipResourceDesc resource = {};
    resource.resType         = hipResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

hipTextureObject_t new_texture() {
    const hipResourceDesc resource = resource_of(new_array());
    const hipTextureDesc how       = {};
    hipTextureObject_t made        = nullptr;
    (void) hipCreateTextureObject(&made, &resource, &how, nullptr);
    return made;
}

hipSurfaceObject_t new_surface() {
    const hipResourceDesc resource = resource_of(new_array());
    hipSurfaceObject_t made        = nullptr;
    (void) hipCreateSurfaceObject(&made, &resource);
    return made;
}

template <typename T = hipArray_t> argument<T> array_argument() {
    const hipArray_t right = new_array();
    const hipArray_t dead  = new_array();
    (void) hipFreeArray(dead);
    return {T(right),
            {
                {"array null", hipErrorInvalidHandle, T(nullptr)},
                {"array freed", hipErrorInvalidHandle, T(dead)},
                {"array made up", hipErrorInvalidHandle, made_up<T>()},
            }};
}

// One that was made, of the two kinds.
template <typename T> argument<T> object(T (*made)(), hipError_t (*drop)(T), int null) {
    const T right = made(); // first: what comes behind a destroyed one may get its place
    const T dead  = made();
    (void) drop(dead);
    return {right,
            {
                {"object null", null, T(nullptr)},
                {"object destroyed", hipErrorInvalidValue, dead},
                {"object made up", hipErrorInvalidValue, made_up<T>()},
            }};
}

template <typename T> argument<const T *> given(const char * name, const T & value) {
    return {new T(value), {{name + std::string(" null"), hipErrorInvalidValue, nullptr}}};
}

void arrays() {
    row(CALL(hipMallocArray), hipSuccess, place<hipArray_t>("handle"), given("format", floats), plain(size_t(64)),
        plain(size_t(64)), plain(0u));
    row(CALL(hipMalloc3DArray), hipSuccess, place<hipArray_t>("handle"), given("format", floats),
        plain(hipExtent{8, 8, 8}), plain(0u));
    row(CALL(hipArrayCreate), hipSuccess, place<hipArray_t>("handle"),
        given("wanted", HIP_ARRAY_DESCRIPTOR{8, 8, HIP_AD_FORMAT_FLOAT, 1}));
    row(CALL(hipArray3DCreate), hipSuccess, place<hipArray_t>("handle"),
        given("wanted", HIP_ARRAY3D_DESCRIPTOR{8, 8, 8, HIP_AD_FORMAT_FLOAT, 1, 0}));
    row(CALL(hipFreeArray), hipSuccess, array_argument());
    row(CALL(hipArrayDestroy), hipSuccess, array_argument());
    row(CALL(hipArrayGetInfo), hipSuccess, place<hipChannelFormatDesc>("format", hipSuccess),
        place<hipExtent>("extent", hipSuccess), place<unsigned>("flags", hipSuccess), array_argument());
    row(CALL(hipGetChannelDesc), hipSuccess, place<hipChannelFormatDesc>("format"), array_argument<hipArray_const_t>());
    row(CALL(hipMemcpy2DToArray), hipSuccess, array_argument(), plain(size_t(0)), plain(size_t(0)),
        memory<const void *>("from"), plain(size_t(16)), plain(size_t(16)), plain(size_t(4)), plain(hipMemcpyDefault));
    row(CALL(hipMemcpy2DToArrayAsync), hipSuccess, array_argument(), plain(size_t(0)), plain(size_t(0)),
        memory<const void *>("from"), plain(size_t(16)), plain(size_t(16)), plain(size_t(4)), plain(hipMemcpyDefault),
        stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpy2DFromArray), hipSuccess, memory("to"), plain(size_t(16)), array_argument<hipArray_const_t>(),
        plain(size_t(0)), plain(size_t(0)), plain(size_t(16)), plain(size_t(4)), plain(hipMemcpyDefault));
    row(CALL(hipMemcpy2DFromArrayAsync), hipSuccess, memory("to"), plain(size_t(16)),
        array_argument<hipArray_const_t>(), plain(size_t(0)), plain(size_t(0)), plain(size_t(16)), plain(size_t(4)),
        plain(hipMemcpyDefault), stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyToArray), hipSuccess, array_argument(), plain(size_t(0)), plain(size_t(0)),
        memory<const void *>("from"), plain(size_t(64)), plain(hipMemcpyDefault));
    row(CALL(hipMemcpyFromArray), hipSuccess, memory("to"), array_argument<hipArray_const_t>(), plain(size_t(0)),
        plain(size_t(0)), plain(size_t(64)), plain(hipMemcpyDefault));
    row(CALL(hipMemcpyHtoA), hipSuccess, array_argument(), plain(size_t(0)), memory<const void *>("from"),
        plain(size_t(64)));
    row(CALL(hipMemcpyAtoH), hipSuccess, memory("to"), array_argument(), plain(size_t(0)), plain(size_t(64)));
    hipMemcpy3DParms volume = {};
    volume.srcArray         = new_array();
    volume.dstPtr           = {allocated(), 16, 16, 4};
    volume.extent           = {4, 4, 1};
    volume.kind             = hipMemcpyDefault;
    row(CALL(hipMemcpy3D), hipSuccess, given("wanted", volume));
    row(CALL(hipMemcpy3DAsync), hipSuccess, given("wanted", volume), stream(hipErrorContextIsDestroyed));
    row(CALL(hipCreateTextureObject), hipSuccess, place<hipTextureObject_t>("object"),
        given("resource", resource_of(new_array())), given("how", hipTextureDesc{}),
        argument<const hipResourceViewDesc *>{nullptr, {}});
    row(CALL(hipDestroyTextureObject), hipSuccess, object(new_texture, hipDestroyTextureObject, hipSuccess));
    row(CALL(hipGetTextureObjectResourceDesc), hipSuccess, place<hipResourceDesc>("resource"),
        object(new_texture, hipDestroyTextureObject, hipErrorInvalidValue));
    row(CALL(hipGetTextureObjectTextureDesc), hipSuccess, place<hipTextureDesc>("how"),
        object(new_texture, hipDestroyTextureObject, hipErrorInvalidValue));
    row(CALL(hipCreateSurfaceObject), hipSuccess, place<hipSurfaceObject_t>("object"),
        given("resource", resource_of(new_array())));
    row(CALL(hipDestroySurfaceObject), hipSuccess, object(new_surface, hipDestroySurfaceObject, hipSuccess));
    holds("hipCreateChannelDesc", "it has what it was given", [] {
        const hipChannelFormatDesc made = hipCreateChannelDesc(8, 8, 0, 0, hipChannelFormatKindUnsigned);
        return made.x == 8 && made.y == 8 && made.z == 0 && made.w == 0 && made.f == hipChannelFormatKindUnsigned;
    });
    holds("hipMemcpyToArray", "rows beyond the end are refused", [] {
        return hipMemcpy2DToArray(new_array(), 0, 61, allocated(), 16, 16, 4, hipMemcpyDefault) == hipErrorInvalidValue;
    });
}

hipError_t only_free(size_t * free) { return hipMemGetInfo(free, nullptr); }

void devices() {
    row(CALL(hipInit), hipSuccess, plain(0u));
    row(CALL(hipGetDeviceCount), hipSuccess, place<int>("count"));
    row(CALL(hipGetDevice), hipSuccess, place<int>("id"));
    row(CALL(hipSetDevice), hipSuccess, device("id"));
    row(CALL(hipSetDeviceFlags), hipSuccess, plain(0u));
    row(CALL(hipDeviceSynchronize), hipSuccess);
    row(CALL(hipDeviceReset), hipSuccess);
    row(CALL(hipGetDevicePropertiesR0600), hipSuccess, place<hipDeviceProp_t>("prop"), device("id"));
    row(CALL(hipDeviceGet), hipSuccess, place<hipDevice_t>("device"), device("ordinal"));
    row(CALL(hipChooseDeviceR0600), hipSuccess, place<int>("id"),
        place_at<const hipDeviceProp_t *>("prop", hipErrorInvalidValue));
    row(CALL(hipDriverGetVersion), hipSuccess, place<int>("version"));
    row(CALL(hipRuntimeGetVersion), hipSuccess, place<int>("version"));
    row(CALL(hipDeviceGetName), hipSuccess, place<char>("name"), plain(64), device("device"));
    row(CALL(hipDeviceTotalMem), hipSuccess, place<size_t>("bytes"), device("device"));
    row(CALL(hipDeviceComputeCapability), hipSuccess, place<int>("major"), place<int>("minor"), device("device"));
    row(CALL(hipDeviceGetUuid), hipSuccess, place<hipUUID>("uuid"), device("device"));
    row(CALL(hipDeviceGetByPCIBusId), hipSuccess, place<int>("device"),
        argument<const char *>{"0000:01:00.0",
                               {
                                   {"id null", hipErrorInvalidValue, nullptr},
                                   {"id of nobody", hipErrorInvalidValue, "0000:02:00.0"},
                               }});
    row(CALL(hipDeviceGetP2PAttribute), hipErrorInvalidDevice, place<int>("value"), plain(hipDevP2PAttrAccessSupported),
        device("from"), device("to"));
    row(CALL(hipGetDeviceFlags), hipSuccess, place<unsigned>("flags"));
    row(CALL(hipDeviceSetCacheConfig), hipSuccess, plain(hipFuncCachePreferNone));
    row(CALL(hipDeviceGetCacheConfig), hipSuccess, place<hipFuncCache_t>("config"));
    row(CALL(hipDeviceSetSharedMemConfig), hipSuccess, plain(hipSharedMemBankSizeFourByte));
    row(CALL(hipDeviceGetSharedMemConfig), hipSuccess, place<hipSharedMemConfig>("config"));
    row(CALL(hipDeviceGetLimit), hipErrorUnsupportedLimit, place<size_t>("value"), plain(hipLimitStackSize));
    row(CALL(hipDeviceSetLimit), hipErrorUnsupportedLimit, plain(hipLimitStackSize), plain(size_t(1024)));
    row(CALL(hipDeviceGetStreamPriorityRange), hipSuccess, place<int>("least", hipSuccess),
        place<int>("greatest", hipSuccess));
    row(CALL(hipDeviceGetAttribute), hipSuccess, place<int>("value"), plain(hipDeviceAttributeWarpSize), device("id"));
    row(CALL(hipDeviceGetPCIBusId), hipSuccess, place<char>("id"), plain(13), device("device"));
    row(CALL(hipDeviceCanAccessPeer), hipSuccess, place<int>("can"), device("id"), device("peer"));
    row(CALL(hipDeviceEnablePeerAccess), hipErrorInvalidDevice, device("peer"), plain(0u));
    row(CALL(hipDeviceDisablePeerAccess), hipErrorInvalidDevice, device("peer"));
    holds("hipDeviceGetPCIBusId", "12 bytes are one too few and end with a zero", [] {
        char id[13] = "xxxxxxxxxxxx";
        return hipDeviceGetPCIBusId(id, 12, 0) == hipErrorInvalidValue && std::strlen(id) == 11 && id[12] == 0;
    });
    holds("hipDeviceGetPCIBusId", "no bytes are written to no place", [] {
        char id[2] = "x";
        return hipDeviceGetPCIBusId(id, 0, 0) == hipErrorInvalidValue && id[0] == 'x';
    });
}

void errors() {
    row(CALL(hipGetLastError), hipSuccess);
    row(CALL(hipPeekAtLastError), hipSuccess);
    row(CALL(hipExtGetLastError), hipSuccess);
    row(CALL(hipDrvGetErrorName), hipSuccess, plain(hipErrorNotReady), place<const char *>("name"));
    row(CALL(hipDrvGetErrorString), hipSuccess, plain(hipErrorNotReady), place<const char *>("text"));
    holds("hipDrvGetErrorName", "an error that nobody knows", [] {
        const char * name = nullptr;
        return hipDrvGetErrorName(hipError_t(12345), &name) == hipErrorInvalidValue &&
               std::strcmp(name, "hipErrorUnknown") == 0;
    });
    row("hipGetErrorName", +[](hipError_t error) { return std::strcmp(hipGetErrorName(error), "hipErrorUnknown"); }, 0,
        plain(hipError_t(12345)));
    row("hipGetErrorString", +[](hipError_t error) { return std::strcmp(hipGetErrorString(error), "unknown error"); },
        0, plain(hipError_t(12345)));
    holds("hipGetErrorName", "a refusal has its name", [] {
        return std::strcmp(hipGetErrorName(hipGetDevice(nullptr)), "hipErrorInvalidValue") == 0;
    });
    holds("hipGetErrorString", "a refusal has a text", [] {
        return std::strstr(hipGetErrorString(hipGetDevice(nullptr)), "invalid argument") != nullptr;
    });
    // The only way in which <<<>>> learns that its launch was refused.
    holds("hipGetLastError", "a refused launch stays to be asked for, once", [] {
        (void) hipLaunchKernel(nullptr, {}, {}, nullptr, 0, nullptr);
        return hipPeekAtLastError() == hipErrorInvalidDeviceFunction &&
               hipGetLastError() == hipErrorInvalidDeviceFunction && hipGetLastError() == hipSuccess;
    });
}

void obtaining() {
    row(CALL(hipMemGetInfo), hipSuccess, place<size_t>("free", hipSuccess), place<size_t>("total", hipSuccess));
    row("hipMemGetInfo", only_free, hipSuccess, place<size_t>("both", hipSuccess));
    holds("hipMemGetInfo", "free alone is what it is with total", [] {
        size_t before = 0, after = 0, free = 0, total = 0;
        (void) only_free(&before);
        (void) allocated();
        (void) only_free(&after);
        (void) hipMemGetInfo(&free, &total);
        return after == before - bytes && after == free && free < total;
    });
    row(CALL(hipMalloc), hipSuccess, place<void *>("pointer"), plain(bytes));
    row(CALL(hipMallocManaged), hipSuccess, place<void *>("pointer"), plain(bytes), plain(1u));
    row(CALL(hipHostMalloc), hipSuccess, place<void *>("pointer"), plain(bytes), plain(0u));
    row(CALL(hipExtMallocWithFlags), hipSuccess, place<void *>("pointer"), plain(bytes), plain(0u));
    row("hipMallocAsync", malloc_async, hipSuccess, place<void *>("pointer"), plain(bytes),
        stream(hipErrorInvalidHandle));
    row(CALL(hipHostAlloc), hipSuccess, place<void *>("pointer"), plain(bytes), plain(0u));
    row(CALL(hipMallocHost), hipSuccess, place<void *>("pointer"), plain(bytes));
    row(CALL(hipMemAllocHost), hipSuccess, place<void *>("pointer"), plain(bytes));
    row(CALL(hipMallocPitch), hipSuccess, place<void *>("pointer"), place<size_t>("pitch"), plain(bytes),
        plain(size_t(2)));
    row(CALL(hipMemAllocPitch), hipSuccess, place<hipDeviceptr_t>("pointer"), place<size_t>("pitch"), plain(bytes),
        plain(size_t(2)), plain(4u));
    row(CALL(hipMalloc3D), hipSuccess, place<hipPitchedPtr>("pitched"), plain(hipExtent{100, 3, 2}));
    holds("hipMalloc3D", "slices lie one behind the other", [] {
        hipPitchedPtr made;
        return hipMalloc3D(&made, {100, 3, 2}) == hipSuccess && made.pitch == 256 && made.xsize == 100 &&
               made.ysize == 3 && hipMemset(made.ptr, 1, 6 * 256) == hipSuccess;
    });
    holds("hipMallocPitch", "rows begin at multiples of 256 bytes", [] {
        void * pointer = nullptr;
        size_t pitch = 0;
        return hipMallocPitch(&pointer, &pitch, 257, 3) == hipSuccess && pitch == 512 &&
               hipMallocPitch(&pointer, &pitch, 16, SIZE_MAX / 64) == hipErrorOutOfMemory &&
               hipMallocPitch(&pointer, &pitch, SIZE_MAX, 1) == hipErrorInvalidValue &&
               hipMallocPitch(&pointer, &pitch, 0, 1) == hipSuccess && pointer == nullptr;
    });
    holds("hipMalloc", "no bytes are null and no error", [] {
        void * pointer = allocated();
        return hipMalloc(&pointer, 0) == hipSuccess && pointer == nullptr;
    });

    row(CALL(hipFree), hipSuccess, freeable("pointer", allocated, hipSuccess, hipErrorInvalidDevicePointer));
    row(CALL(hipHostFree), hipSuccess, freeable("pointer", on_host, hipSuccess, hipErrorInvalidValue));
    row(CALL(hipFreeAsync), hipSuccess, freeable("pointer", allocated, hipErrorInvalidValue, hipErrorInvalidValue),
        stream(hipErrorInvalidHandle));
    row(CALL(hipFreeHost), hipSuccess, freeable("pointer", on_host, hipSuccess, hipErrorInvalidValue));
    // The runtime takes either call for either memory, whatever the header says.
    row("hipFree", hipFree, hipSuccess, freeable("host memory", on_host, hipSuccess, hipErrorInvalidDevicePointer));
    row("hipHostFree", hipHostFree, hipSuccess, freeable("device memory", allocated, hipSuccess, hipErrorInvalidValue));

    using own = argument<void *>;
    void * unregistered = registered();
    (void) hipHostUnregister(unregistered);
    row(CALL(hipHostRegister), hipSuccess,
        own{new char[bytes],
            {
                {"pointer null", hipErrorInvalidValue, nullptr},
                {"pointer made up", hipErrorInvalidValue, made_up<void *>()},
            }},
        plain(bytes), plain(0u));
    row(CALL(hipHostUnregister), hipSuccess,
        own{registered(),
            {
                {"pointer null", hipErrorInvalidValue, nullptr},
                {"pointer made up", hipErrorHostMemoryNotRegistered, made_up<void *>()},
                {"pointer unregistered before", hipErrorHostMemoryNotRegistered, unregistered},
                {"pointer on the device", hipErrorHostMemoryNotRegistered, allocated()},
            }});
    row(CALL(hipHostGetDevicePointer), hipSuccess, place<void *>("device"),
        own{registered(),
            {
                {"host null", hipErrorInvalidValue, nullptr},
                {"host made up", hipErrorInvalidValue, made_up<void *>()},
                {"host that nobody registered", hipErrorInvalidValue, new char[bytes]},
                {"host on the device", hipSuccess, allocated()},
            }},
        plain(0u));
    row(CALL(hipHostGetFlags), hipSuccess, place<unsigned>("flags"),
        own{on_host(),
            {
                {"host null", hipErrorInvalidValue, nullptr},
                {"host made up", hipErrorInvalidValue, made_up<void *>()},
                {"host on the device", hipErrorInvalidValue, allocated()},
            }});
    row(CALL(hipMemGetAddressRange), hipSuccess, place<hipDeviceptr_t>("base"), place<size_t>("size"),
        argument<hipDeviceptr_t>{static_cast<char *>(allocated()) + 5,
                                 {
                                     {"pointer null", hipErrorNotFound, nullptr},
                                     {"pointer made up", hipErrorNotFound, made_up<hipDeviceptr_t>()},
                                 }});
    row(CALL(hipMemPtrGetInfo), hipSuccess,
        own{allocated(),
            {
                {"pointer null", hipErrorInvalidValue, nullptr},
                {"pointer made up", hipErrorInvalidValue, made_up<void *>()},
            }},
        place<size_t>("size"));
    row(CALL(hipPointerGetAttributes), hipSuccess, place<hipPointerAttribute_t>("attributes"),
        argument<const void *>{allocated(),
                               {
                                   {"pointer null", hipErrorInvalidValue, nullptr},
                                   {"pointer made up", hipSuccess, made_up<const void *>()},
                               }});
    holds("hipPointerGetAttributes", "freed memory is nobody's", [] {
        void * pointer = allocated();
        hipPointerAttribute_t before, after;
        (void) hipPointerGetAttributes(&before, pointer);
        (void) hipFree(pointer);
        (void) hipPointerGetAttributes(&after, pointer);
        return before.type == hipMemoryTypeDevice && before.devicePointer == pointer &&
               after.type == hipMemoryTypeUnregistered && after.devicePointer == nullptr;
    });
}

void pooling() {
    row(CALL(hipDeviceGetDefaultMemPool), hipSuccess, place<hipMemPool_t>("pool"), device("device"));
    row(CALL(hipDeviceGetMemPool), hipSuccess, place<hipMemPool_t>("pool"), device("device", hipErrorInvalidValue));
    row(CALL(hipDeviceSetMemPool), hipSuccess, device("device", hipErrorInvalidValue), pool());
    row(CALL(hipMemPoolCreate), hipSuccess, place<hipMemPool_t>("pool"),
        place_at<const hipMemPoolProps *>("properties", hipErrorInvalidValue));
    row(CALL(hipMemPoolDestroy), hipErrorInvalidValue, pool()); // the default one
    row(CALL(hipMemPoolTrimTo), hipSuccess, pool(), plain(size_t(0)));
    row(CALL(hipMemPoolSetAttribute), hipSuccess, pool(), plain(hipMemPoolAttrReleaseThreshold), place<void>("value"));
    row(CALL(hipMemPoolGetAttribute), hipSuccess, pool(), plain(hipMemPoolAttrReleaseThreshold), place<void>("value"));
    row("hipMallocFromPoolAsync", malloc_from_pool, hipSuccess, place<void *>("pointer"), plain(bytes), pool(),
        stream(hipErrorInvalidHandle));
    holds("hipMemPoolDestroy", "a pool of the program, once", [] {
        hipMemPool_t pool = nullptr, current = nullptr;
        const hipMemPoolProps properties = {};
        return hipMemPoolCreate(&pool, &properties) == hipSuccess && hipDeviceSetMemPool(0, pool) == hipSuccess &&
               hipMemPoolDestroy(pool) == hipSuccess && hipMemPoolDestroy(pool) == hipErrorInvalidValue &&
               hipDeviceGetMemPool(&current, 0) == hipSuccess && current != pool;
    });
    holds("hipMemPoolGetAttribute", "what was set", [] {
        hipMemPool_t pool = nullptr;
        uint64_t given = 12345, got = 0;
        return hipDeviceGetDefaultMemPool(&pool, 0) == hipSuccess &&
               hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &given) == hipSuccess &&
               hipMemPoolGetAttribute(pool, hipMemPoolAttrReleaseThreshold, &got) == hipSuccess && got == given;
    });
}

void copying() {
    row(CALL(hipMemPrefetchAsync), hipSuccess,
        argument<const void *>{allocated(),
                               {
                                   {"pointer null", hipErrorInvalidValue, nullptr},
                                   {"pointer made up", hipErrorNotSupported, made_up<const void *>()},
                                   {"pointer 16 bytes before its end", hipErrorInvalidValue,
                                    static_cast<char *>(allocated()) + bytes - 16},
                               }},
        plain(size_t(64)),
        argument<int>{0,
                      {
                          {"device the host", hipSuccess, hipCpuDeviceId},
                          {"device -2", hipErrorInvalidDevice, -2},
                          {"device 1", hipErrorInvalidDevice, 1},
                      }},
        stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemAdvise), hipSuccess, memory<const void *>("pointer"), plain(size_t(64)),
        plain(hipMemAdviseSetCoarseGrain),
        argument<int>{0,
                      {
                          {"device the host", hipSuccess, hipCpuDeviceId},
                          {"device -2", hipErrorInvalidDevice, -2},
                          {"device 1", hipErrorInvalidDevice, 1},
                      }});
    row("hipMemAdvise", hipMemAdvise, hipSuccess, memory<const void *>("pointer to read"), plain(size_t(64)),
        plain(hipMemAdviseSetReadMostly), device("device of no interest", hipSuccess));
    row(CALL(hipMemset), hipSuccess, memory("pointer"), plain(1), plain(size_t(64)));
    row(CALL(hipMemsetAsync), hipSuccess, memory("pointer"), plain(1), plain(size_t(64)),
        stream(hipErrorInvalidHandle)); // crash
    row(CALL(hipMemcpy), hipSuccess, memory("to"), memory<const void *>("from"), plain(size_t(64)),
        plain(hipMemcpyDefault));
    row(CALL(hipMemcpyAsync), hipSuccess, memory("to"), memory<const void *>("from"), plain(size_t(64)),
        plain(hipMemcpyDefault), stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemset_spt), hipSuccess, memory("pointer"), plain(1), plain(size_t(64)));
    row(CALL(hipMemsetAsync_spt), hipSuccess, memory("pointer"), plain(1), plain(size_t(64)),
        stream(hipErrorInvalidHandle));
    row(CALL(hipMemsetD8), hipSuccess, memory("pointer"), plain<unsigned char>(1), plain(size_t(64)));
    row(CALL(hipMemsetD8Async), hipSuccess, memory("pointer"), plain<unsigned char>(1), plain(size_t(64)),
        stream(hipErrorInvalidHandle));
    row(CALL(hipMemsetD16), hipSuccess, memory("pointer"), plain<unsigned short>(1), plain(size_t(32)));
    row(CALL(hipMemsetD16Async), hipSuccess, memory("pointer"), plain<unsigned short>(1), plain(size_t(32)),
        stream(hipErrorInvalidHandle));
    row(CALL(hipMemsetD32), hipSuccess, memory("pointer"), plain(1), plain(size_t(16)));
    row(CALL(hipMemsetD32Async), hipSuccess, memory("pointer"), plain(1), plain(size_t(16)),
        stream(hipErrorInvalidHandle));
    row(CALL(hipMemset2D), hipSuccess, memory("pointer"), plain(size_t(16)), plain(1), plain(size_t(16)),
        plain(size_t(4)));
    row(CALL(hipMemset2DAsync), hipSuccess, memory("pointer"), plain(size_t(16)), plain(1), plain(size_t(16)),
        plain(size_t(4)), stream(hipErrorInvalidHandle));
    holds("hipMemsetD32", "each element, and nothing behind", [] {
        auto * pointer = static_cast<uint32_t *>(allocated());
        return hipMemsetD32(pointer, int(0x80402010), 3) == hipSuccess && pointer[2] == 0x80402010 && pointer[3] == 0 &&
               hipMemsetD16(pointer + 3, 0x1234, 1) == hipSuccess && pointer[3] == 0x1234;
    });
    holds("hipMemset2D", "each row, and nothing between", [] {
        auto * pointer = static_cast<unsigned char *>(allocated());
        return hipMemset2D(pointer, 8, 7, 5, 2) == hipSuccess && pointer[4] == 7 && pointer[5] == 0 &&
               pointer[12] == 7 && pointer[13] == 0 && hipMemset2D(pointer, 4, 7, 5, 2) == hipErrorInvalidValue;
    });
    row(CALL(hipMemcpy_spt), hipSuccess, memory("to"), memory<const void *>("from"), plain(size_t(64)),
        plain(hipMemcpyDefault));
    row(CALL(hipMemcpyAsync_spt), hipSuccess, memory("to"), memory<const void *>("from"), plain(size_t(64)),
        plain(hipMemcpyDefault), stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyWithStream), hipSuccess, memory("to"), memory<const void *>("from"), plain(size_t(64)),
        plain(hipMemcpyDefault), stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyHtoD), hipSuccess, memory("to"), memory("from"), plain(size_t(64)));
    row(CALL(hipMemcpyDtoH), hipSuccess, memory("to"), memory("from"), plain(size_t(64)));
    row(CALL(hipMemcpyDtoD), hipSuccess, memory("to"), memory("from"), plain(size_t(64)));
    row(CALL(hipMemcpyHtoDAsync), hipSuccess, memory("to"), memory("from"), plain(size_t(64)),
        stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyDtoHAsync), hipSuccess, memory("to"), memory("from"), plain(size_t(64)),
        stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyDtoDAsync), hipSuccess, memory("to"), memory("from"), plain(size_t(64)),
        stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpyPeer), hipSuccess, memory("to"), device("to device"), memory<const void *>("from"),
        device("from device"), plain(size_t(64)));
    row(CALL(hipMemcpyPeerAsync), hipSuccess, memory("to"), device("to device"), memory<const void *>("from"),
        device("from device"), plain(size_t(64)), stream(hipErrorContextIsDestroyed));
    row(CALL(hipMemcpy2D), hipSuccess, memory("to"), plain(size_t(16)), memory<const void *>("from"), plain(size_t(16)),
        plain(size_t(16)), plain(size_t(4)), plain(hipMemcpyDefault));
    row(CALL(hipMemcpy2DAsync), hipSuccess, memory("to"), plain(size_t(16)), memory<const void *>("from"),
        plain(size_t(16)), plain(size_t(16)), plain(size_t(4)), plain(hipMemcpyDefault), stream(hipErrorInvalidValue));
    holds("hipMemcpy2D", "rows wider than their pitch are refused", [] {
        return hipMemcpy2D(allocated(), 8, allocated(), 16, 16, 4, hipMemcpyDefault) == hipErrorInvalidPitchValue;
    });
    // Where there is nothing to do, no pointer is looked at.
    holds("hipMemset", "no bytes at null", [] { return hipMemset(nullptr, 1, 0) == hipSuccess; });
    holds("hipMemsetAsync", "no bytes at null", [] { return hipMemsetAsync(nullptr, 1, 0, nullptr) == hipSuccess; });
    holds("hipMemcpy", "no bytes at null", [] {
        return hipMemcpy(nullptr, nullptr, 0, hipMemcpyDefault) == hipSuccess;
    });
    holds("hipMemcpyAsync", "no bytes at null", [] {
        return hipMemcpyAsync(nullptr, nullptr, 0, hipMemcpyDefault, nullptr) == hipSuccess;
    });
    holds("hipMemcpyPeerAsync", "no bytes at null", [] {
        return hipMemcpyPeerAsync(nullptr, 0, nullptr, 0, 0, nullptr) == hipSuccess;
    });
    holds("hipMemcpy2D", "no rows at null", [] {
        return hipMemcpy2D(nullptr, 8, nullptr, 8, 8, 0, hipMemcpyDefault) == hipSuccess;
    });
    holds("hipMemset", "memory of the program is not filled", [] {
        char text[64] = "text";
        return hipMemset(text, 0, 64) == hipErrorInvalidValue && text[0] == 't';
    });
    holds("hipMemset", "memory that the program registered is", [] {
        char text[64] = "text";
        return hipHostRegister(text, 64, 0) == hipSuccess && hipMemset(text, 0, 64) == hipSuccess && text[0] == 0;
    });
    holds("hipMemcpy", "what was registered may be gone", [] {
        const size_t page = 4096;
        void * pages = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void * to = allocated();
        return hipHostRegister(pages, page, 0) == hipSuccess && munmap(pages, page) == 0 &&
               hipMemcpy(to, pages, page, hipMemcpyDefault) == hipErrorInvalidValue;
    });
    holds("hipMemcpy", "from the program and back", [] {
        char there[64] = "text", back[64] = "";
        void * pointer = allocated();
        return hipMemcpy(pointer, there, 64, hipMemcpyDefault) == hipSuccess &&
               hipMemcpy(back, pointer, 64, hipMemcpyDefault) == hipSuccess && std::strcmp(there, back) == 0;
    });
    holds("hipMemcpy", "many pages of the program, the last of them missing", [] {
        const size_t page = 4096, pages = 5000; // more than are asked about at once
        char * from = static_cast<char *>(
            mmap(nullptr, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        void * to = nullptr;
        return hipMalloc(&to, (pages + 1) * page) == hipSuccess && munmap(from + pages * page, page) == 0 &&
               hipMemcpy(to, from, pages * page, hipMemcpyDefault) == hipSuccess &&
               hipMemcpy(to, from, pages * page + 1, hipMemcpyDefault) == hipErrorInvalidValue;
    });
}

// While recording there is no variable of the device.
void symbols() {
    const auto symbol = argument<const void *>{made_up<const void *>(), {{"symbol null", hipErrorInvalidSymbol, nullptr}}};
    const auto any_stream =
        stream(hipErrorInvalidSymbol, hipErrorInvalidSymbol, hipErrorInvalidSymbol, hipErrorInvalidSymbol);
    const auto to_device = argument<hipMemcpyKind>{
        hipMemcpyHostToDevice, {{"kind to the host", hipErrorInvalidMemcpyDirection, hipMemcpyDeviceToHost}}};
    const auto to_host = argument<hipMemcpyKind>{
        hipMemcpyDeviceToHost, {{"kind to the device", hipErrorInvalidMemcpyDirection, hipMemcpyHostToDevice}}};
    const auto from = memory<const void *>("from", hipErrorInvalidSymbol);
    const auto to = memory<void *>("to", hipErrorInvalidSymbol);
    const auto size = plain(size_t(64)), offset = plain(size_t(0));
    row("hipGetSymbolAddress", symbol_address, hipErrorInvalidSymbol, place<void *>("address"), symbol);
    row("hipGetSymbolSize", symbol_size, hipErrorInvalidSymbol, place<size_t>("size"), symbol);
    row("hipMemcpyToSymbol", to_symbol, hipErrorInvalidSymbol, symbol, from, size, offset, to_device);
    row("hipMemcpyToSymbolAsync", to_symbol_async, hipErrorInvalidSymbol, symbol, from, size, offset, to_device,
        any_stream);
    row("hipMemcpyFromSymbol", from_symbol, hipErrorInvalidSymbol, to, symbol, size, offset, to_host);
    row("hipMemcpyFromSymbolAsync", from_symbol_async, hipErrorInvalidSymbol, to, symbol, size, offset, to_host,
        any_stream);
    row(CALL(hipMemcpyToSymbol_spt), hipErrorInvalidSymbol, symbol, from, size, offset, to_device);
    row(CALL(hipMemcpyToSymbolAsync_spt), hipErrorInvalidSymbol, symbol, from, size, offset, to_device, any_stream);
    row(CALL(hipMemcpyFromSymbol_spt), hipErrorInvalidSymbol, to, symbol, size, offset, to_host);
    row(CALL(hipMemcpyFromSymbolAsync_spt), hipErrorInvalidSymbol, to, symbol, size, offset, to_host, any_stream);
}

void streams_and_events() {
    row(CALL(hipStreamGetFlags), hipSuccess, stream(hipErrorContextIsDestroyed, hipErrorInvalidValue, hipSuccess),
        place<unsigned>("flags"));
    row(CALL(hipStreamGetFlags_spt), hipSuccess, stream(hipErrorContextIsDestroyed), place<unsigned>("flags"));
    row(CALL(hipStreamGetPriority), hipSuccess, stream(hipErrorContextIsDestroyed), place<int>("priority"));
    row(CALL(hipStreamGetPriority_spt), hipSuccess, stream(hipErrorContextIsDestroyed), place<int>("priority"));
    row(CALL(hipGetStreamDeviceId), 0, stream(-1));
    row(CALL(hipStreamGetDevice), hipSuccess, stream(hipErrorContextIsDestroyed), place<hipDevice_t>("device"));
    holds("hipStreamGetFlags", "what the stream was made with", [] {
        hipStream_t stream = nullptr;
        unsigned flags = 0;
        int priority = 0;
        return hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, -1) == hipSuccess &&
               hipStreamGetFlags(stream, &flags) == hipSuccess && flags == hipStreamNonBlocking &&
               hipStreamGetPriority(stream, &priority) == hipSuccess && priority == -1;
    });
    row(CALL(hipStreamQuery_spt), hipSuccess, stream(hipErrorInvalidHandle));
    row(CALL(hipStreamSynchronize_spt), hipSuccess, stream(hipErrorInvalidHandle));
    row(CALL(hipStreamWaitEvent_spt), hipSuccess, stream(hipErrorInvalidHandle), event("event", hipErrorInvalidHandle),
        plain(0u));
    row(CALL(hipEventRecord_spt), hipSuccess, event("event", hipErrorInvalidHandle), stream(hipErrorInvalidHandle));
    row(CALL(hipEventRecordWithFlags), hipSuccess, event("event", hipErrorInvalidHandle),
        stream(hipErrorInvalidHandle), plain(0u));
    row(CALL(hipLaunchHostFunc_spt), hipSuccess, stream(hipErrorContextIsDestroyed),
        function_of_host<hipHostFn_t>([](void *) {}), place<void>("data", hipSuccess));
    row(CALL(hipStreamAddCallback_spt), hipSuccess, stream(hipErrorContextIsDestroyed),
        function_of_host<hipStreamCallback_t>([](hipStream_t, hipError_t, void *) {}), place<void>("data", hipSuccess),
        plain(0u));
    row(CALL(hipStreamCreate), hipSuccess, place<hipStream_t>("stream"));
    row(CALL(hipStreamCreateWithFlags), hipSuccess, place<hipStream_t>("stream"), plain(1u));
    row(CALL(hipStreamCreateWithPriority), hipSuccess, place<hipStream_t>("stream"), plain(1u), plain(0));
    row(CALL(hipStreamDestroy), hipSuccess,
        stream(hipErrorInvalidHandle, hipErrorInvalidHandle, hipErrorInvalidHandle, hipErrorInvalidHandle));
    row(CALL(hipStreamQuery), hipSuccess, stream(hipErrorInvalidHandle));
    row(CALL(hipStreamSynchronize), hipSuccess, stream(hipErrorInvalidHandle));
    row(CALL(hipStreamWaitEvent), hipSuccess, stream(hipErrorInvalidHandle), event("event", hipErrorInvalidHandle),
        plain(0u));
    row(CALL(hipLaunchHostFunc), hipSuccess, stream(hipErrorContextIsDestroyed),
        function_of_host<hipHostFn_t>([](void *) {}), place<void>("data", hipSuccess));
    row(CALL(hipStreamAddCallback), hipSuccess, stream(hipErrorContextIsDestroyed),
        function_of_host<hipStreamCallback_t>([](hipStream_t, hipError_t, void *) {}), place<void>("data", hipSuccess),
        argument<unsigned>{0, {{"flags 1", hipErrorInvalidValue, 1u}}});
    row(CALL(hipEventCreate), hipSuccess, place<hipEvent_t>("event"));
    row(CALL(hipEventCreateWithFlags), hipSuccess, place<hipEvent_t>("event"), plain(2u));
    row(CALL(hipEventDestroy), hipSuccess, event("event", hipErrorContextIsDestroyed));
    row(CALL(hipEventRecord), hipSuccess, event("event", hipErrorInvalidHandle), stream(hipErrorInvalidHandle));
    row(CALL(hipEventSynchronize), hipSuccess, event("event", hipErrorInvalidHandle));
    row(CALL(hipEventQuery), hipSuccess, event("event", hipErrorInvalidHandle));
    row(CALL(hipEventElapsedTime), hipSuccess, place<float>("milliseconds"), event("begin", hipErrorInvalidHandle),
        event("end", hipErrorInvalidHandle));
}

void between_processes() {
    row(CALL(hipIpcGetMemHandle), hipErrorNotSupported, place<hipIpcMemHandle_t>("handle"),
        argument<void *>{allocated(), {{"pointer null", hipErrorInvalidValue, nullptr}}});
    row(CALL(hipIpcOpenMemHandle), hipErrorNotSupported, place<void *>("pointer"), plain(hipIpcMemHandle_t{}), plain(0u));
    row(CALL(hipIpcCloseMemHandle), hipErrorInvalidValue,
        argument<void *>{allocated(), {{"pointer null", hipErrorInvalidValue, nullptr}}});
}

void capture() {
    row(CALL(hipStreamGetCaptureInfo), hipSuccess, stream(hipErrorContextIsDestroyed),
        place<hipStreamCaptureStatus>("status"), place<unsigned long long>("id", hipSuccess));
    row(CALL(hipStreamGetCaptureInfo_spt), hipSuccess, stream(hipErrorContextIsDestroyed),
        place<hipStreamCaptureStatus>("status"), place<unsigned long long>("id", hipSuccess));
    row(CALL(hipStreamGetCaptureInfo_v2), hipSuccess, stream(hipErrorContextIsDestroyed),
        place<hipStreamCaptureStatus>("status"), place<unsigned long long>("id", hipSuccess),
        place<hipGraph_t>("graph", hipSuccess), place<const hipGraphNode_t *>("after", hipSuccess),
        place<size_t>("count", hipSuccess));
    row(CALL(hipGraphDebugDotPrint), hipErrorInvalidValue, graph<hipGraph_t>("graph"),
        argument<const char *>{"graph.dot", {{"path null", hipErrorInvalidValue, nullptr}}}, plain(0u));
    row(CALL(hipThreadExchangeStreamCaptureMode), hipSuccess, place<hipStreamCaptureMode>("mode"));
    row(CALL(hipStreamIsCapturing_spt), hipSuccess, stream(hipErrorContextIsDestroyed),
        place<hipStreamCaptureStatus>("status"));
    row(CALL(hipStreamBeginCapture_spt), hipErrorNotSupported,
        stream(hipErrorContextIsDestroyed, hipErrorNotSupported, hipErrorStreamCaptureUnsupported, hipErrorNotSupported),
        plain(hipStreamCaptureModeRelaxed));
    row(CALL(hipStreamEndCapture_spt), hipErrorIllegalState,
        stream(hipErrorContextIsDestroyed, hipErrorIllegalState, -1, hipErrorIllegalState), place<hipGraph_t>("graph"));
    row(CALL(hipGraphInstantiateWithFlags), hipErrorInvalidValue, place<hipGraphExec_t>("exec"),
        graph<hipGraph_t>("graph"), plain(0ull));
    row(CALL(hipGraphUpload), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"),
        stream(hipErrorInvalidValue, hipErrorInvalidValue, -1, hipErrorInvalidValue));
    row(CALL(hipGraphGetNodes), hipErrorInvalidValue, graph<hipGraph_t>("graph"),
        place<hipGraphNode_t>("nodes", hipErrorInvalidValue), place<size_t>("count"));
    row(CALL(hipGraphLaunch_spt), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"),
        stream(hipErrorInvalidValue, hipErrorInvalidValue, -1, hipErrorInvalidValue));
    row(CALL(hipStreamIsCapturing), hipSuccess, stream(hipErrorContextIsDestroyed),
        place<hipStreamCaptureStatus>("status"));
    row(CALL(hipStreamBeginCapture), hipErrorNotSupported,
        stream(hipErrorContextIsDestroyed, hipErrorStreamCaptureUnsupported, -1, hipErrorNotSupported),
        plain(hipStreamCaptureModeRelaxed));
    row(CALL(hipStreamEndCapture), hipErrorIllegalState,
        stream(hipErrorContextIsDestroyed, hipErrorIllegalState, -1, hipErrorIllegalState), place<hipGraph_t>("graph"));
    row(CALL(hipGraphInstantiate), hipErrorInvalidValue, place<hipGraphExec_t>("exec"), graph<hipGraph_t>("graph"),
        place<hipGraphNode_t>("node"), place<char>("log"), plain(size_t(64)));
    row(CALL(hipGraphExecUpdate), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"), graph<hipGraph_t>("graph"),
        place<hipGraphNode_t>("node"), place<hipGraphExecUpdateResult>("result"));
    row(CALL(hipGraphLaunch), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"),
        stream(hipErrorInvalidValue, hipErrorInvalidValue, -1, hipErrorInvalidValue));
    // Of graphs built by hand none has nodes: nothing is captured while recording.
    row(CALL(hipGraphCreate), hipSuccess, place<hipGraph_t>("graph"), plain(0u));
    row(CALL(hipGraphGetRootNodes), hipErrorInvalidValue, graph<hipGraph_t>("graph"),
        place<hipGraphNode_t>("nodes", hipErrorInvalidValue), place<size_t>("count"));
    const auto before = place<const hipGraphNode_t>("after");
    row(CALL(hipGraphAddEmptyNode), hipErrorInvalidValue, place<hipGraphNode_t>("node"), graph<hipGraph_t>("graph"),
        before, plain(size_t(0)));
    row(CALL(hipGraphAddKernelNode), hipErrorInvalidValue, place<hipGraphNode_t>("node"), graph<hipGraph_t>("graph"),
        before, plain(size_t(0)), place<const hipKernelNodeParams>("params"));
    row(CALL(hipGraphAddMemcpyNode1D), hipErrorInvalidValue, place<hipGraphNode_t>("node"),
        graph<hipGraph_t>("graph"), before, plain(size_t(0)), place_at<void *>("to", hipErrorInvalidValue),
        place_at<const void *>("from", hipErrorInvalidValue),
        plain(size_t(0)), plain(hipMemcpyDefault));
    row(CALL(hipGraphAddMemsetNode), hipErrorInvalidValue, place<hipGraphNode_t>("node"), graph<hipGraph_t>("graph"),
        before, plain(size_t(0)), place<const hipMemsetParams>("params"));
    row(CALL(hipGraphAddHostNode), hipErrorInvalidValue, place<hipGraphNode_t>("node"), graph<hipGraph_t>("graph"),
        before, plain(size_t(0)), place<const hipHostNodeParams>("params"));
    row(CALL(hipGraphAddChildGraphNode), hipErrorInvalidValue, place<hipGraphNode_t>("node"),
        graph<hipGraph_t>("graph"), before, plain(size_t(0)), graph<hipGraph_t>("child"));
    row(CALL(hipGraphAddDependencies), hipErrorInvalidValue, graph<hipGraph_t>("graph"), before, before,
        plain(size_t(0)));
    row(CALL(hipGraphKernelNodeSetParams), hipErrorInvalidValue, place_at<hipGraphNode_t>("node", hipErrorInvalidValue),
        place<const hipKernelNodeParams>("params"));
    row(CALL(hipGraphExecKernelNodeSetParams), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"),
        place_at<hipGraphNode_t>("node", hipErrorInvalidValue), place<const hipKernelNodeParams>("params"));
    row(CALL(hipGraphDestroy), hipErrorInvalidValue, graph<hipGraph_t>("graph"));
    row(CALL(hipGraphExecDestroy), hipErrorInvalidValue, graph<hipGraphExec_t>("exec"));
}

argument<void **> modules() {
    void ** live = __hipRegisterFatBinary(&fat_binary);
    void ** gone = __hipRegisterFatBinary(&fat_binary);
    __hipUnregisterFatBinary(gone);
    return {live,
            {
                {"modules null", 0, nullptr},
                {"modules unregistered before", 0, gone},
                {"modules made up", 0, made_up<void **>()},
            }};
}

void launching() {
    row("__hipRegisterFatBinary", +[](const wrapper * data) { return int(__hipRegisterFatBinary(data) == nullptr); }, 0,
        argument<const wrapper *>{&fat_binary,
                                  {
                                      {"data null", 1, nullptr},
                                      {"data without a binary", 0, &empty_binary},
                                      {"data with a cut binary", 0, &cut_binary},
                                  }});
    row(CALL(__hipUnregisterFatBinary), 0, modules());
    row(CALL(__hipRegisterFunction), 0, modules(),
        argument<const void *>{made_up<const void *>(), {{"host null", 0, nullptr}}}, place<char>("device function", 0),
        argument<const char *>{"_Z4kernv", {{"name null", 0, nullptr}}}, plain(0u), place<void>("tid", 0),
        place<void>("bid", 0), place<dim3>("block", 0), place<dim3>("grid", 0), place<int>("wave size", 0));
    holds("__hipRegisterFunction", "without modules nothing is registered", [] {
        static const char host = 0;
        __hipRegisterFunction(nullptr, &host, nullptr, "_Z4kernv", 0, nullptr, nullptr, nullptr, nullptr, nullptr);
        return hipLaunchKernel(&host, {}, {}, nullptr, 0, nullptr) == hipErrorInvalidDeviceFunction;
    });
    row(CALL(__hipRegisterVar), 0, modules(), place<void>("var", 0), place<char>("host", 0), place<char>("device", 0),
        plain(0), plain(size_t(4)), plain(0), plain(0));
    row(CALL(__hipRegisterManagedVar), 0, place<void>("modules", 0), place<void *>("pointer", 0),
        place<void>("init", 0), place_at<const char *>("name", 0), plain(size_t(4)), plain(4u));

    // The stream of a launch is looked at when it is launched.
    row(CALL(__hipPushCallConfiguration), hipSuccess, plain(dim3()), plain(dim3()), plain(size_t(0)),
        stream(hipSuccess));
    row("__hipPopCallConfiguration",
        +[](dim3 * grid, dim3 * block, size_t * lds, hipStream_t * stream) { // crash
            (void) __hipPushCallConfiguration({}, {}, 0, nullptr);
            return __hipPopCallConfiguration(grid, block, lds, stream);
        },
        hipSuccess, place<dim3>("grid"), place<dim3>("block"), place<size_t>("lds"), place<hipStream_t>("stream"));
    holds("__hipPopCallConfiguration", "what was not pushed", [] {
        dim3 grid, block;
        size_t lds;
        hipStream_t stream;
        return __hipPopCallConfiguration(&grid, &block, &lds, &stream) == hipErrorMissingConfiguration;
    });
    // A kernel without parameters takes no arguments, and which has some is not known here.
    row(CALL(hipLaunchKernel), hipSuccess, function(), plain(dim3()), plain(dim3()), place<void *>("args", hipSuccess),
        plain(size_t(0)), stream(hipErrorInvalidValue));
    row("hipLaunchCooperativeKernel", launch_cooperative, hipSuccess, function(), plain(dim3()), plain(dim3()),
        place<void *>("params", hipSuccess), plain(0u), stream(hipErrorContextIsDestroyed));
    row(CALL(hipLaunchKernel_spt), hipSuccess, function(), plain(dim3()), plain(dim3()),
        place<void *>("args", hipSuccess), plain(size_t(0)), stream(hipErrorInvalidValue));
    row(CALL(hipLaunchCooperativeKernel_spt), hipSuccess, function(), plain(dim3()), plain(dim3()),
        place<void *>("params", hipSuccess), plain(0u), stream(hipErrorContextIsDestroyed));
    row("hipExtLaunchKernel", launch_with_events, hipSuccess, function(), plain(dim3()), plain(dim3()),
        place<void *>("args", hipSuccess), plain(size_t(0)), stream(hipErrorInvalidValue),
        event("begin", hipErrorInvalidValue, hipSuccess), event("end", hipErrorInvalidValue, hipSuccess), plain(0));
    row(CALL(hipFuncSetCacheConfig), hipSuccess,
        argument<const void *>{kernel(), {{"function null", hipErrorInvalidDeviceFunction, nullptr}}},
        plain(hipFuncCachePreferNone));
    row(CALL(hipFuncSetSharedMemConfig), hipSuccess,
        argument<const void *>{kernel(), {{"function null", hipErrorInvalidDeviceFunction, nullptr}}},
        plain(hipSharedMemBankSizeFourByte));
    row(CALL(hipFuncSetAttribute), hipSuccess, function(), plain(hipFuncAttributeMaxDynamicSharedMemorySize),
        plain(0));
    row(CALL(hipFuncGetAttributes), hipSuccess, place<hipFuncAttributes>("attributes"), function());
    row("hipOccupancyMaxActiveBlocksPerMultiprocessor", resident_blocks, hipSuccess, place<int>("blocks"), function(),
        plain(64), plain(size_t(0)));

    const auto odd_flags = argument<unsigned>{0, {{"flags 4", hipErrorInvalidValue, 4u}}};
    row("hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", resident_blocks_with_flags, hipSuccess,
        place<int>("blocks"), function(), plain(64), plain(size_t(0)), odd_flags);
    row("hipOccupancyMaxPotentialBlockSize", best_block, hipSuccess, place<int>("grid"), place<int>("block"),
        function(), plain(size_t(0)), plain(0));

    // Modules and functions by handle, of which there are none while recording.
    const auto module = nobodys<hipModule_t>("module", hipErrorInvalidHandle);
    const auto by_handle = nobodys<hipFunction_t>("function", hipErrorInvalidHandle);
    const auto asked_handle = nobodys<hipFunction_t>("function", hipErrorInvalidValue);
    const auto name = argument<const char *>{
        "_Z4kernv", {{"name null", hipErrorInvalidValue, nullptr}, {"name empty", hipErrorInvalidValue, ""}}};
    row(CALL(hipModuleLoad), hipErrorNotSupported, place<hipModule_t>("module"),
        place_at<const char *>("path", hipErrorInvalidValue));
    row(CALL(hipModuleLoadData), hipErrorNotSupported, place<hipModule_t>("module"),
        place_at<const void *>("image", hipErrorInvalidValue));
    row(CALL(hipModuleLoadDataEx), hipErrorNotSupported, place<hipModule_t>("module"),
        place_at<const void *>("image", hipErrorInvalidValue), plain(0u),
        place<hipJitOption>("options", hipErrorNotSupported), place<void *>("values", hipErrorNotSupported));
    row(CALL(hipModuleUnload), hipErrorNotFound, module);
    row(CALL(hipModuleGetFunction), hipErrorNotFound, place<hipFunction_t>("function"), module, name);
    row(CALL(hipModuleGetGlobal), hipErrorNotFound, place<hipDeviceptr_t>("address", hipErrorNotFound),
        place<size_t>("size", hipErrorNotFound), module, name);
    row(CALL(hipGetFuncBySymbol), hipErrorInvalidDeviceFunction,
        place<hipFunction_t>("handle", hipErrorInvalidDeviceFunction), function());
    row(CALL(hipFuncGetAttribute), hipErrorInvalidHandle, place<int>("value"), plain(HIP_FUNC_ATTRIBUTE_NUM_REGS),
        by_handle);
    const auto handles_stream =
        stream(hipErrorInvalidValue, hipErrorInvalidHandle, hipErrorInvalidHandle, hipErrorInvalidHandle);
    const auto params = place<void *>("params", hipErrorInvalidHandle), extra = place<void *>("extra", hipErrorInvalidHandle);
    const auto one = plain(1u);
    row(CALL(hipModuleLaunchKernel), hipErrorInvalidHandle, by_handle, one, one, one, one, one, one, plain(0u),
        handles_stream, params, extra);
    row(CALL(hipModuleLaunchCooperativeKernel), hipErrorInvalidHandle, by_handle, one, one, one, one, one, one,
        plain(0u), handles_stream, params);
    row(CALL(hipExtModuleLaunchKernel), hipErrorInvalidHandle, by_handle, one, one, one, one, one, one,
        plain(size_t(0)), handles_stream, params, extra, event("begin", hipErrorInvalidValue, hipErrorInvalidHandle),
        event("end", hipErrorInvalidValue, hipErrorInvalidHandle), plain(0u));
    row(CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor), hipErrorInvalidHandle, place<int>("blocks"),
        asked_handle, plain(64), plain(size_t(0)));
    row(CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags), hipErrorInvalidHandle,
        place<int>("blocks"), asked_handle, plain(64), plain(size_t(0)), odd_flags);
    row(CALL(hipModuleOccupancyMaxPotentialBlockSize), hipErrorInvalidHandle, place<int>("grid"), place<int>("block"),
        asked_handle, plain(size_t(0)), plain(0));
    row(CALL(hipModuleOccupancyMaxPotentialBlockSizeWithFlags), hipErrorInvalidHandle, place<int>("grid"),
        place<int>("block"), asked_handle, plain(size_t(0)), plain(0), odd_flags);

    // Not the runtime's: the recorder's own.
    row(CALL(patchkit_recorder_mark), 0, place_at<const char *>("text", 0));
}

constexpr int f16 = 150, f32 = 151, f64 = 152; // hipblasDatatype_t
constexpr int n = 111, t = 112, gemm_default = 160;
constexpr int right = 142, upper = 121, non_unit = 131;

using product = int (*)(handle_t, const void *, const void *, const void *, const void *, void *);

#define PRODUCT(name, ...)                                                                                            \
    std::pair<const char *, product>(#name, [](handle_t h, const void * alpha, const void * a, const void * b,        \
                                               const void * beta, void * c) { return name(__VA_ARGS__); })

void products() {
    row(CALL(hipblasCreate), ok, place<handle_t>("handle", handle_is_nullptr));
    row(CALL(hipblasDestroy), ok, handle());
    row(CALL(hipblasSetStream), ok, handle(), stream<void *>(invalid_value));
    row(CALL(hipblasSetMathMode), ok, handle(), plain(0));

    const auto alpha = scalar("alpha"), beta = scalar("beta");
    const auto a = matrix("A"), b = matrix("B");
    const auto c = matrix<void *>("C");
    for (const auto & [name, call] : {
             PRODUCT(hipblasSgemm, h, n, n, 4, 4, 4, alpha, a, 4, b, 4, beta, c, 4),
             PRODUCT(hipblasSgemmBatched, h, n, n, 4, 4, 4, alpha, a, 4, b, 4, beta, c, 4, 4),
             PRODUCT(hipblasSgemmStridedBatched, h, n, n, 4, 4, 4, alpha, a, 4, 16, b, 4, 16, beta, c, 4, 16, 4),
             PRODUCT(hipblasGemmEx, h, n, n, 4, 4, 4, alpha, a, f32, 4, b, f32, 4, beta, c, f32, 4, f32, gemm_default),
             PRODUCT(hipblasGemmEx_v2, h, n, n, 4, 4, 4, alpha, a, f32, 4, b, f32, 4, beta, c, f32, 4, f32, gemm_default),
             PRODUCT(hipblasGemmBatchedEx, h, n, n, 4, 4, 4, alpha, a, f32, 4, b, f32, 4, beta, c, f32, 4, 4, f32,
                     gemm_default),
             PRODUCT(hipblasGemmBatchedEx_v2, h, n, n, 4, 4, 4, alpha, a, f32, 4, b, f32, 4, beta, c, f32, 4, 4, f32,
                     gemm_default),
             PRODUCT(hipblasGemmStridedBatchedEx, h, n, n, 4, 4, 4, alpha, a, f32, 4, 16, b, f32, 4, 16, beta, c, f32,
                     4, 16, 4, f32, gemm_default),
             PRODUCT(hipblasGemmStridedBatchedEx_v2, h, n, n, 4, 4, 4, alpha, a, f32, 4, 16, b, f32, 4, 16, beta, c,
                     f32, 4, 16, 4, f32, gemm_default),
         }) {
        row(name, call, ok, handle(), alpha, a, b, beta, c);
    }
    row("hipblasStrsmBatched",
        +[](handle_t h, const void * alpha, void * a, void * b) {
            return hipblasStrsmBatched(h, right, upper, n, non_unit, 4, 4, alpha, a, 4, b, 4, 4);
        },
        ok, handle(), alpha, matrix<void *>("A"), matrix<void *>("B"));

    // Nothing is read where alpha is zero, and nothing at all where there is nothing to compute.
    const auto any_a = matrix("unread A", ok), any_b = matrix("unread B", ok);
    const auto any_c = matrix<void *>("unread C", ok);
    const auto any_alpha = place_at<const void *>("unread alpha", ok);
    const auto any_beta = place_at<const void *>("unread beta", ok);
    const auto whole = PRODUCT(hipblasSgemm, h, n, n, 4, 4, 4, alpha, a, 4, b, 4, beta, c, 4);
    row("hipblasSgemm", whole.second, ok, handle(), scalar("alpha of zero", -0.0f), any_a, any_b, beta, c);
    const auto no_m = PRODUCT(hipblasSgemm, h, n, n, 0, 4, 4, alpha, a, 4, b, 4, beta, c, 4);
    row("hipblasSgemm", no_m.second, ok, handle(), any_alpha, any_a, any_b, any_beta, any_c);
    const auto no_k = PRODUCT(hipblasSgemm, h, n, n, 4, 4, 0, alpha, a, 4, b, 4, beta, c, 4);
    row("hipblasSgemm", no_k.second, ok, handle(), any_alpha, any_a, any_b, beta, c);
    holds("hipblasSgemm", "a negative size is refused", [] {
        const float one = 1;
        void * c = allocated();
        return hipblasSgemm(new_handle(), n, n, -1, 4, 4, &one, c, 4, c, 4, &one, c, 4) == invalid_value;
    });
    holds("hipblasSgemm", "columns that overlap are refused", [] {
        const auto with = [](int op_a, int op_b, int ld_a, int ld_b, int ld_c) {
            const float one = 1;
            void * c = allocated();
            return hipblasSgemm(new_handle(), op_a, op_b, 3, 4, 5, &one, c, ld_a, c, ld_b, &one, c, ld_c);
        };
        return with(n, n, 3, 5, 3) == ok && with(n, n, 2, 5, 3) == invalid_value &&
               with(n, n, 3, 4, 3) == invalid_value && with(n, n, 3, 5, 2) == invalid_value &&
               with(t, t, 5, 4, 3) == ok && with(t, t, 4, 4, 3) == invalid_value &&
               with(t, t, 5, 3, 3) == invalid_value;
    });
    holds("hipblasSgemm", "an operation that there is not", [] {
        const float one = 1;
        void * c = allocated();
        return hipblasSgemm(new_handle(), n, 0, 4, 4, 4, &one, c, 4, c, 4, &one, c, 4) == invalid_enum;
    });
    holds("hipblasStrsmBatched", "a side, a triangle, an operation, a diagonal that there is not", [] {
        const auto with = [](int side, int fill, int op, int diagonal) {
            const float one = 1;
            void * b = allocated();
            return hipblasStrsmBatched(new_handle(), side, fill, op, diagonal, 4, 4, &one, b, 4, b, 4, 1);
        };
        return with(right, upper, t, non_unit) == ok && with(143, upper, n, non_unit) == invalid_enum &&
               with(right, 123, n, non_unit) == invalid_enum && with(right, upper, 0, non_unit) == invalid_enum &&
               with(right, upper, n, 0) == invalid_enum;
    });
    holds("hipblasGemmEx", "alpha of half or double type, zero and one", [] {
        const auto with_alpha = [](const void * alpha, int type, int compute) {
            const double beta = 0;
            void * c = allocated();
            return hipblasGemmEx(new_handle(), n, n, 4, 4, 4, alpha, nullptr, type, 4, nullptr, type, 4, &beta, c, type,
                                 4, compute, gemm_default);
        };
        const uint16_t halves[] = {0x8000, 0x3c00};
        const double doubles[] = {-0.0, 1.0};
        const int half_types[][2] = {{f16, 150}, {2, 0}}, double_types[][2] = {{f64, 152}, {1, 7}};
        for (int i = 0; i < 2; ++i) {
            const auto [half, as_half] = half_types[i];
            const auto [whole, as_whole] = double_types[i];
            if (with_alpha(&halves[0], half, as_half) != ok || with_alpha(&halves[1], half, as_half) != invalid_value ||
                with_alpha(&doubles[0], whole, as_whole) != ok ||
                with_alpha(&doubles[1], whole, as_whole) != invalid_value) {
                return false;
            }
        }
        return true;
    });
    holds("hipblasGemmEx", "every choice of types that rocBLAS has, and no other", [] {
        constexpr int both[][2] = {{150, 2}, {168, 14}, {151, 0}, {152, 1}, {160, 3}, {162, 10}};
        constexpr int compute[][2] = {{150, 0}, {151, 2}, {152, 7}, {162, 9}};
        const auto is_offered = [](int a, int b, int c, int as) {
            if (a == 4) {
                return b == 4 && c == 5 && as == 3; // integers of 8 bits, which add up to 32
            }
            const bool same = a == b && (a == c || (a < 2 && c == 2)); // 16 bits may become f32
            return same && (a == 0 ? as == 1 || (as == 0 && c == 0) : a == 1 || a == 2 ? as == 1 : a == 3 && as == 2);
        };
        const double scalar = 0;
        void * c_at = allocated();
        const handle_t handle = new_handle();
        for (int of = 0; of < 6 * 6 * 6 * 4 * 2; ++of) {
            const int era = of & 1, a = of / 2 % 6, b = of / 12 % 6, c = of / 72 % 6, as = of / 432;
            const int got = hipblasGemmEx(handle, n, n, 4, 4, 4, &scalar, c_at, both[a][era], 4, c_at, both[b][era], 4,
                                          &scalar, c_at, both[c][era], 4, compute[as][era], gemm_default);
            if (got != (is_offered(a, b, c, as) ? ok : not_supported)) {
                return false;
            }
        }
        return true;
    });
}

} // namespace

int main() {
    devices();
    errors();
    obtaining();
    pooling();
    copying();
    arrays();
    symbols();
    streams_and_events();
    between_processes();
    capture();
    launching();
    products();
    return 0;
}
