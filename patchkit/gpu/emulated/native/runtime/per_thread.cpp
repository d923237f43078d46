// Calls of programs compiled for a per-thread default stream (hipcc's -fgpu-default-stream=per-thread,
// amd_hip_runtime_pt_api.h): the null stream is that of the thread.

#include <hip/hip_runtime_api.h>

namespace {

hipStream_t of_thread(hipStream_t stream) { return stream == nullptr ? hipStreamPerThread : stream; }

} // namespace

extern "C" {

hipError_t hipMemcpyAsync_spt(void * to, const void * from, size_t size, hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpyAsync(to, from, size, kind, of_thread(stream));
}

hipError_t hipMemsetAsync_spt(void * pointer, int value, size_t size, hipStream_t stream) {
    return hipMemsetAsync(pointer, value, size, of_thread(stream));
}

hipError_t hipMemcpyToSymbol_spt(const void * symbol, const void * from, size_t size, size_t offset,
                                 hipMemcpyKind kind) {
    const hipError_t error = hipMemcpyToSymbolAsync(symbol, from, size, offset, kind, hipStreamPerThread);
    return error == hipSuccess ? hipStreamSynchronize(hipStreamPerThread) : error;
}

hipError_t hipMemcpyToSymbolAsync_spt(const void * symbol, const void * from, size_t size, size_t offset,
                                      hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpyToSymbolAsync(symbol, from, size, offset, kind, of_thread(stream));
}

hipError_t hipMemcpyFromSymbol_spt(void * to, const void * symbol, size_t size, size_t offset, hipMemcpyKind kind) {
    const hipError_t error = hipMemcpyFromSymbolAsync(to, symbol, size, offset, kind, hipStreamPerThread);
    return error == hipSuccess ? hipStreamSynchronize(hipStreamPerThread) : error;
}

hipError_t hipMemcpyFromSymbolAsync_spt(void * to, const void * symbol, size_t size, size_t offset,
                                        hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpyFromSymbolAsync(to, symbol, size, offset, kind, of_thread(stream));
}

hipError_t hipLaunchKernel_spt(const void * function, dim3 grid, dim3 block, void ** args, size_t lds,
                               hipStream_t stream) {
    return hipLaunchKernel(function, grid, block, args, lds, of_thread(stream));
}

hipError_t hipLaunchCooperativeKernel_spt(const void * function, dim3 grid, dim3 block, void ** params,
                                          uint32_t lds, hipStream_t stream) {
    return hipLaunchCooperativeKernel(function, grid, block, params, lds, of_thread(stream));
}

hipError_t hipStreamQuery_spt(hipStream_t stream) { return hipStreamQuery(of_thread(stream)); }
hipError_t hipStreamSynchronize_spt(hipStream_t stream) { return hipStreamSynchronize(of_thread(stream)); }

hipError_t hipStreamGetFlags_spt(hipStream_t stream, unsigned int * flags) {
    return hipStreamGetFlags(of_thread(stream), flags);
}

hipError_t hipStreamGetPriority_spt(hipStream_t stream, int * priority) {
    return hipStreamGetPriority(of_thread(stream), priority);
}

hipError_t hipStreamWaitEvent_spt(hipStream_t stream, hipEvent_t event, unsigned int flags) {
    return hipStreamWaitEvent(of_thread(stream), event, flags);
}

hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream) {
    return hipEventRecord(event, of_thread(stream));
}

hipError_t hipStreamAddCallback_spt(hipStream_t stream, hipStreamCallback_t function, void * data,
                                    unsigned int flags) {
    return hipStreamAddCallback(of_thread(stream), function, data, flags);
}

hipError_t hipLaunchHostFunc_spt(hipStream_t stream, hipHostFn_t function, void * data) {
    return hipLaunchHostFunc(of_thread(stream), function, data);
}

hipError_t hipStreamBeginCapture_spt(hipStream_t stream, hipStreamCaptureMode mode) {
    return hipStreamBeginCapture(of_thread(stream), mode);
}

hipError_t hipStreamEndCapture_spt(hipStream_t stream, hipGraph_t * graph) {
    return hipStreamEndCapture(of_thread(stream), graph);
}

hipError_t hipStreamIsCapturing_spt(hipStream_t stream, hipStreamCaptureStatus * status) {
    return hipStreamIsCapturing(of_thread(stream), status);
}

hipError_t hipStreamGetCaptureInfo_spt(hipStream_t stream, hipStreamCaptureStatus * status, unsigned long long * id) {
    return hipStreamGetCaptureInfo(of_thread(stream), status, id);
}

hipError_t hipGraphLaunch_spt(hipGraphExec_t executable, hipStream_t stream) {
    return hipGraphLaunch(executable, of_thread(stream));
}

} // extern "C"
