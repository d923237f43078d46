// hipBLAS as far as the HIP backend calls it: matrix products become lines of the log.
//
// Declared here by binary interface, not through hipblas.h: the header gives the enums of the same calls
// different names in versions 1 to 3 (hipblasDatatype_t, then hipDataType behind _v2, then hipDataType).
//
// What is refused, and with what, is as in hipBLAS over rocBLAS (hipblasConvertStatus; rocblas_gemm_arg_check,
// rocblas_gemm_ex_arg_check, rocblas_trsm_arg_check; read at 27cf7beb and b520bc83f of 2024-10). It looks at no
// matrix: those pointers are the device's.

#include "handles.hpp"
#include "recorder.hpp"

#include <cstring>

namespace {

using handle_t = void *;
using word = int; // an enum of the interface

// hipblasStatus_t (hipblas-common.h)
constexpr int success           = 0;
constexpr int not_initialized   = 1;
constexpr int invalid_value     = 3;
constexpr int handle_is_nullptr = 9;

patchkit::handle_table & handles() {
    static auto * table = new patchkit::handle_table;
    return *table;
}

// Bytes of alpha and beta: hipblasDatatype_t of version 1 and 2, hipblasComputeType_t since.
size_t scalar_bytes(word compute) {
    constexpr word r_16f = 150, r_64f = 152, compute_16f = 0, compute_16f_pedantic = 1, compute_64f = 7,
                   compute_64f_pedantic = 8;
    switch (compute) {
        case r_16f: case compute_16f: case compute_16f_pedantic: return 2;
        case r_64f: case compute_64f: case compute_64f_pedantic: return 8;
        default: return 4;
    }
}

bool is_zero(const void * scalar, size_t bytes) {
    unsigned char value[8] = {};
    std::memcpy(value, scalar, bytes);
    value[bytes - 1] &= 0x7f; // minus zero is zero
    return std::memcmp(value, "\0\0\0\0\0\0\0\0", bytes) == 0;
}

struct product {
    const char * call;
    int m, n, k, batch;
    const void * alpha;
    const void * a;
    const void * b;
    const void * beta;
    const void * c;
    size_t scalar_bytes;
};

int record(const product & p) {
    patchkit::log_line("{\"blas\":" + patchkit::quoted(p.call) + ",\"m\":" + std::to_string(p.m) + ",\"n\":" +
                       std::to_string(p.n) + ",\"k\":" + std::to_string(p.k) + ",\"batch\":" +
                       std::to_string(p.batch) + "}");
    return success;
}

// Without anything to compute no pointer is looked at; without k, or with a zero alpha, A and B are not read.
bool has_its_pointers(const product & p) {
    if (p.m == 0 || p.n == 0 || p.batch == 0) {
        return true;
    }
    if (p.c == nullptr || !patchkit::is_mapped(p.beta, p.scalar_bytes)) {
        return false;
    }
    if (p.k == 0) {
        return true;
    }
    if (!patchkit::is_mapped(p.alpha, p.scalar_bytes)) {
        return false;
    }
    return (p.a != nullptr && p.b != nullptr) || is_zero(p.alpha, p.scalar_bytes);
}

int multiply(handle_t handle, const product & p) {
    if (!handles().has(handle)) {
        return not_initialized;
    }
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0 || !has_its_pointers(p)) {
        return invalid_value;
    }
    return record(p);
}

} // namespace

extern "C" {

int hipblasCreate(handle_t * handle) {
    if (handle == nullptr) {
        return handle_is_nullptr;
    }
    *handle = handles().make();
    return success;
}

int hipblasDestroy(handle_t handle) { return handles().drop(handle) ? success : not_initialized; }

int hipblasSetStream(handle_t handle, void * stream) {
    if (!handles().has(handle)) {
        return not_initialized;
    }
    return patchkit::is_stream(stream) ? success : invalid_value;
}

int hipblasSetMathMode(handle_t handle, word) { return handles().has(handle) ? success : not_initialized; }

int hipblasSgemm(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a, int,
                 const void * b, int, const void * beta, void * c, int) {
    return multiply(handle, {"hipblasSgemm", m, n, k, 1, alpha, a, b, beta, c, sizeof(float)});
}

int hipblasSgemmBatched(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a, int,
                        const void * b, int, const void * beta, void * c, int, int batch) {
    return multiply(handle, {"hipblasSgemmBatched", m, n, k, batch, alpha, a, b, beta, c, sizeof(float)});
}

int hipblasSgemmStridedBatched(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a,
                               int, long long, const void * b, int, long long, const void * beta, void * c, int,
                               long long, int batch) {
    return multiply(handle, {"hipblasSgemmStridedBatched", m, n, k, batch, alpha, a, b, beta, c, sizeof(float)});
}

int hipblasGemmEx(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a, word, int,
                  const void * b, word, int, const void * beta, void * c, word, int, word compute, word) {
    return multiply(handle, {"hipblasGemmEx", m, n, k, 1, alpha, a, b, beta, c, scalar_bytes(compute)});
}

int hipblasGemmBatchedEx(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a, word,
                         int, const void * b, word, int, const void * beta, void * c, word, int, int batch,
                         word compute, word) {
    return multiply(handle, {"hipblasGemmBatchedEx", m, n, k, batch, alpha, a, b, beta, c, scalar_bytes(compute)});
}

int hipblasGemmStridedBatchedEx(handle_t handle, word, word, int m, int n, int k, const void * alpha, const void * a,
                                word, int, long long, const void * b, word, int, long long, const void * beta,
                                void * c, word, int, long long, int batch, word compute, word) {
    return multiply(handle,
                    {"hipblasGemmStridedBatchedEx", m, n, k, batch, alpha, a, b, beta, c, scalar_bytes(compute)});
}

// Solves in place: B is what a product calls C, and there is no second factor and no beta.
int hipblasStrsmBatched(handle_t handle, word, word, word, word, int m, int n, const void * alpha, void * a, int,
                        void * b, int, int batch) {
    return multiply(handle, {"hipblasStrsmBatched", m, n, m, batch, alpha, a, b, alpha, b, sizeof(float)});
}

// The names of the same calls when a program is built with HIPBLAS_V2.
int hipblasGemmEx_v2(handle_t handle, word trans_a, word trans_b, int m, int n, int k, const void * alpha,
                     const void * a, word type_a, int ld_a, const void * b, word type_b, int ld_b, const void * beta,
                     void * c, word type_c, int ld_c, word compute, word algorithm) {
    return hipblasGemmEx(handle, trans_a, trans_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c, type_c,
                         ld_c, compute, algorithm);
}

int hipblasGemmBatchedEx_v2(handle_t handle, word trans_a, word trans_b, int m, int n, int k, const void * alpha,
                            const void * a, word type_a, int ld_a, const void * b, word type_b, int ld_b,
                            const void * beta, void * c, word type_c, int ld_c, int batch, word compute,
                            word algorithm) {
    return hipblasGemmBatchedEx(handle, trans_a, trans_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c,
                                type_c, ld_c, batch, compute, algorithm);
}

int hipblasGemmStridedBatchedEx_v2(handle_t handle, word trans_a, word trans_b, int m, int n, int k,
                                   const void * alpha, const void * a, word type_a, int ld_a, long long stride_a,
                                   const void * b, word type_b, int ld_b, long long stride_b, const void * beta,
                                   void * c, word type_c, int ld_c, long long stride_c, int batch, word compute,
                                   word algorithm) {
    return hipblasGemmStridedBatchedEx(handle, trans_a, trans_b, m, n, k, alpha, a, type_a, ld_a, stride_a, b, type_b,
                                       ld_b, stride_b, beta, c, type_c, ld_c, stride_c, batch, compute, algorithm);
}

} // extern "C"
