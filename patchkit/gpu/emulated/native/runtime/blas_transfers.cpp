// hipBLAS: vectors and matrices between the host and the device.

#include "blas_library.hpp"

namespace patchkit::blas {

namespace {

int answer(hipError_t error) {
    return error == hipSuccess ? success : error == hipErrorInvalidValue ? invalid_value : internal_error;
}

// `count` pieces of `width` bytes with a stride.
struct pieces {
    int64_t width, count;
    int64_t apart_from, apart_to;
};

int move(const pieces & what, const void * from, void * to, hipMemcpyKind kind, const hipStream_t * stream) {
    if (what.width == 0 || what.count == 0) {
        return success;
    }
    if (from == nullptr || to == nullptr) {
        return invalid_value;
    }
    const auto width = size_t(what.width), count = size_t(what.count);
    const auto apart_from = size_t(what.apart_from), apart_to = size_t(what.apart_to);
    // A pitch must not be smaller than its contents, except for a single piece.
    const bool is_solid = count == 1 || (apart_from == width && apart_to == width);
    if (is_solid) {
        return answer(stream == nullptr ? hipMemcpy(to, from, width * count, kind)
                                        : hipMemcpyAsync(to, from, width * count, kind, *stream));
    }
    return answer(stream == nullptr
                      ? hipMemcpy2D(to, apart_to, from, apart_from, width, count, kind)
                      : hipMemcpy2DAsync(to, apart_to, from, apart_from, width, count, kind, *stream));
}

int move_vector(int64_t n, int64_t size, const void * from, int64_t step_from, void * to, int64_t step_to,
                hipMemcpyKind kind, const hipStream_t * stream) {
    if (n < 0 || size <= 0 || step_from <= 0 || step_to <= 0) {
        return invalid_value;
    }
    return move({size, n, step_from * size, step_to * size}, from, to, kind, stream);
}

int move_matrix(int64_t rows, int64_t columns, int64_t size, const void * from, int64_t leading_from, void * to,
                int64_t leading_to, hipMemcpyKind kind, const hipStream_t * stream) {
    if (rows < 0 || columns < 0 || size <= 0 || leading_from <= 0 || leading_to <= 0 || leading_from < rows ||
        leading_to < rows) {
        return invalid_value;
    }
    return move({rows * size, columns, leading_from * size, leading_to * size}, from, to, kind, stream);
}

} // namespace

extern "C" {

#define TRANSFERS(end, I)                                                                                             \
    int hipblasSetVector##end(I n, I size, const void * x, I step_x, void * y, I step_y) {                            \
        return move_vector(n, size, x, step_x, y, step_y, hipMemcpyHostToDevice, nullptr);                            \
    }                                                                                                                 \
    int hipblasGetVector##end(I n, I size, const void * x, I step_x, void * y, I step_y) {                            \
        return move_vector(n, size, x, step_x, y, step_y, hipMemcpyDeviceToHost, nullptr);                            \
    }                                                                                                                 \
    int hipblasSetMatrix##end(I rows, I columns, I size, const void * a, I leading_a, void * b, I leading_b) {        \
        return move_matrix(rows, columns, size, a, leading_a, b, leading_b, hipMemcpyHostToDevice, nullptr);          \
    }                                                                                                                 \
    int hipblasGetMatrix##end(I rows, I columns, I size, const void * a, I leading_a, void * b, I leading_b) {        \
        return move_matrix(rows, columns, size, a, leading_a, b, leading_b, hipMemcpyDeviceToHost, nullptr);          \
    }                                                                                                                 \
    int hipblasSetVectorAsync##end(I n, I size, const void * x, I step_x, void * y, I step_y, hipStream_t stream) {   \
        return move_vector(n, size, x, step_x, y, step_y, hipMemcpyHostToDevice, &stream);                            \
    }                                                                                                                 \
    int hipblasGetVectorAsync##end(I n, I size, const void * x, I step_x, void * y, I step_y, hipStream_t stream) {   \
        return move_vector(n, size, x, step_x, y, step_y, hipMemcpyDeviceToHost, &stream);                            \
    }                                                                                                                 \
    int hipblasSetMatrixAsync##end(I rows, I columns, I size, const void * a, I leading_a, void * b, I leading_b,     \
                                   hipStream_t stream) {                                                              \
        return move_matrix(rows, columns, size, a, leading_a, b, leading_b, hipMemcpyHostToDevice, &stream);          \
    }                                                                                                                 \
    int hipblasGetMatrixAsync##end(I rows, I columns, I size, const void * a, I leading_a, void * b, I leading_b,     \
                                   hipStream_t stream) {                                                              \
        return move_matrix(rows, columns, size, a, leading_a, b, leading_b, hipMemcpyDeviceToHost, &stream);          \
    }
TRANSFERS(, int)
TRANSFERS(_64, int64_t)

} // extern "C"

} // namespace patchkit::blas
