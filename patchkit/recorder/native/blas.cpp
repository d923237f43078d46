// hipBLAS as far as the HIP backend calls it: matrix products become lines of the log.
//
// Declared here by binary interface, not through hipblas.h: the header gives the enums of the same calls
// different names in versions 1 to 3 (hipblasDatatype_t, then hipDataType behind _v2, then hipDataType).

#include "recorder.hpp"

#include <cstdlib>

namespace {

using handle_t = void *;
using word = int; // an enum of the interface

int record(const char * call, int m, int n, int k, int batch) {
    patchkit::log_line("{\"blas\":" + patchkit::quoted(call) + ",\"m\":" + std::to_string(m) + ",\"n\":" +
                       std::to_string(n) + ",\"k\":" + std::to_string(k) + ",\"batch\":" + std::to_string(batch) + "}");
    return 0; // HIPBLAS_STATUS_SUCCESS
}

} // namespace

extern "C" {

int hipblasCreate(handle_t * handle) {
    *handle = std::malloc(1);
    return 0;
}

int hipblasDestroy(handle_t handle) {
    std::free(handle);
    return 0;
}

int hipblasSetStream(handle_t, void *) { return 0; }
int hipblasSetMathMode(handle_t, word) { return 0; }

int hipblasSgemm(handle_t, word, word, int m, int n, int k, const void *, const void *, int, const void *, int,
                 const void *, void *, int) {
    return record("hipblasSgemm", m, n, k, 1);
}

int hipblasSgemmBatched(handle_t, word, word, int m, int n, int k, const void *, const void *, int, const void *, int,
                        const void *, void *, int, int batch) {
    return record("hipblasSgemmBatched", m, n, k, batch);
}

int hipblasSgemmStridedBatched(handle_t, word, word, int m, int n, int k, const void *, const void *, int, long long,
                               const void *, int, long long, const void *, void *, int, long long, int batch) {
    return record("hipblasSgemmStridedBatched", m, n, k, batch);
}

int hipblasGemmEx(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int, const void *, word,
                  int, const void *, void *, word, int, word, word) {
    return record("hipblasGemmEx", m, n, k, 1);
}

int hipblasGemmBatchedEx(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int,
                         const void *, word, int, const void *, void *, word, int, int batch, word, word) {
    return record("hipblasGemmBatchedEx", m, n, k, batch);
}

int hipblasGemmStridedBatchedEx(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int,
                                long long, const void *, word, int, long long, const void *, void *, word, int,
                                long long, int batch, word, word) {
    return record("hipblasGemmStridedBatchedEx", m, n, k, batch);
}

int hipblasStrsmBatched(handle_t, word, word, word, word, int m, int n, const void *, void *, int, void *, int,
                        int batch) {
    return record("hipblasStrsmBatched", m, n, m, batch);
}

// The names of the same calls when a program is built with HIPBLAS_V2.
int hipblasGemmEx_v2(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int, const void *,
                     word, int, const void *, void *, word, int, word, word) {
    return record("hipblasGemmEx", m, n, k, 1);
}

int hipblasGemmBatchedEx_v2(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int,
                            const void *, word, int, const void *, void *, word, int, int batch, word, word) {
    return record("hipblasGemmBatchedEx", m, n, k, batch);
}

int hipblasGemmStridedBatchedEx_v2(handle_t, word, word, int m, int n, int k, const void *, const void *, word, int,
                                   long long, const void *, word, int, long long, const void *, void *, word, int,
                                   long long, int batch, word, word) {
    return record("hipblasGemmStridedBatchedEx", m, n, k, batch);
}

} // extern "C"
