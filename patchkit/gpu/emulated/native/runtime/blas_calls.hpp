// Generates all forms of a hipBLAS routine from one description: plain, batched with lists, batched with strides, and
// each of these with 64-bit sizes.
//
// A routine has two macros. PARAMETERS_x(V, M, P, I) are its parameters after the handle, ARGUMENTS_x(V, M, P) the
// arguments that it passes on; V(x) is a vector and its stride, M(a) a matrix and its leading dimension, P(a) a plain
// pointer, I the type of sizes.
#pragma once

#include "blas_library.hpp"

#include <cstdint>

// Plain parameters, in lists, and with strides.
#define ONE_V(x, I) , const void *x, I step_##x
#define ONE_M(a, I) , const void *a, I leading_##a
#define ONE_P(a, I) , const void * a
#define STRIDED_V(x, I) , const void *x, I step_##x, long long stride_##x
#define STRIDED_M(a, I) , const void *a, I leading_##a, long long stride_##a
#define STRIDED_P(a, I) , const void *a, long long stride_##a

// The corresponding arguments.
#define HAND_ONE_V(x) , patchkit::blas::vector{#x, {x, 0, false}, step_##x}
#define HAND_ONE_M(a) , patchkit::blas::matrix{#a, {a, 0, false}, leading_##a}
#define HAND_ONE_P(a) , patchkit::blas::matrix{#a, {a, 0, false}, 0}
#define HAND_LIST_V(x) , patchkit::blas::vector{#x, {x, 0, true}, step_##x}
#define HAND_LIST_M(a) , patchkit::blas::matrix{#a, {a, 0, true}, leading_##a}
#define HAND_LIST_P(a) , patchkit::blas::matrix{#a, {a, 0, true}, 0}
#define HAND_STRIDED_V(x) , patchkit::blas::vector{#x, {x, stride_##x, false}, step_##x}
#define HAND_STRIDED_M(a) , patchkit::blas::matrix{#a, {a, stride_##a, false}, leading_##a}
#define HAND_STRIDED_P(a) , patchkit::blas::matrix{#a, {a, stride_##a, false}, 0}

// TAIL(I) are parameters after the batch size, HAND_TAIL(I) the corresponding arguments.
#define ONE_CALL(name, I, PARAMETERS, ARGUMENTS, TAIL, HAND_TAIL, routine)                                      \
    int name(patchkit::blas::handle_t handle PARAMETERS(ONE_V, ONE_M, ONE_P, I) TAIL(I)) {                            \
        return routine({#name, handle, 1} ARGUMENTS(HAND_ONE_V, HAND_ONE_M, HAND_ONE_P) HAND_TAIL(I));                \
    }
#define LIST_CALL(name, I, PARAMETERS, ARGUMENTS, TAIL, HAND_TAIL, routine)                                           \
    int name(patchkit::blas::handle_t handle PARAMETERS(ONE_V, ONE_M, ONE_P, I), I batch TAIL(I)) {                   \
        return routine({#name, handle, batch} ARGUMENTS(HAND_LIST_V, HAND_LIST_M, HAND_LIST_P) HAND_TAIL(I));         \
    }
#define STRIDED_CALL(name, I, PARAMETERS, ARGUMENTS, TAIL, HAND_TAIL, routine)                                        \
    int name(patchkit::blas::handle_t handle PARAMETERS(STRIDED_V, STRIDED_M, STRIDED_P, I), I batch TAIL(I)) {       \
        return routine({#name, handle, batch}                                                                         \
                           ARGUMENTS(HAND_STRIDED_V, HAND_STRIDED_M, HAND_STRIDED_P) HAND_TAIL(I));                   \
    }

#define ALL_FORMS(name, ...)                                                                                          \
    ONE_CALL(name, int, __VA_ARGS__)                                                                                \
    LIST_CALL(name##Batched, int, __VA_ARGS__)                                                                        \
    STRIDED_CALL(name##StridedBatched, int, __VA_ARGS__)                                                              \
    ONE_CALL(name##_64, int64_t, __VA_ARGS__)                                                                       \
    LIST_CALL(name##Batched_64, int64_t, __VA_ARGS__)                                                                 \
    STRIDED_CALL(name##StridedBatched_64, int64_t, __VA_ARGS__)

// The same for complex numbers, which have another name in programs built with HIPBLAS_V2.
#define ALL_COMPLEX_FORMS(name, ...)                                                                                  \
    ALL_FORMS(name, __VA_ARGS__)                                                                                      \
    ONE_CALL(name##_v2, int, __VA_ARGS__)                                                                           \
    LIST_CALL(name##Batched_v2, int, __VA_ARGS__)                                                                     \
    STRIDED_CALL(name##StridedBatched_v2, int, __VA_ARGS__)                                                           \
    ONE_CALL(name##_v2_64, int64_t, __VA_ARGS__)                                                                    \
    LIST_CALL(name##Batched_v2_64, int64_t, __VA_ARGS__)                                                              \
    STRIDED_CALL(name##StridedBatched_v2_64, int64_t, __VA_ARGS__)

#define NO_TAIL(I)
#define RESULT_TAIL(I) , void * result
#define HAND_RESULT(I) , result

#define FORMS(name, ROUTINE, routine) ALL_FORMS(name, PARAMETERS_##ROUTINE, ARGUMENTS_##ROUTINE, NO_TAIL, NO_TAIL, routine)
#define COMPLEX_FORMS(name, ROUTINE, routine)                                                                         \
    ALL_COMPLEX_FORMS(name, PARAMETERS_##ROUTINE, ARGUMENTS_##ROUTINE, NO_TAIL, NO_TAIL, routine)
#define RESULT_FORMS(name, ROUTINE, routine)                                                                          \
    ALL_FORMS(name, PARAMETERS_##ROUTINE, ARGUMENTS_##ROUTINE, RESULT_TAIL, HAND_RESULT, routine)
#define COMPLEX_RESULT_FORMS(name, ROUTINE, routine)                                                                  \
    ALL_COMPLEX_FORMS(name, PARAMETERS_##ROUTINE, ARGUMENTS_##ROUTINE, RESULT_TAIL, HAND_RESULT, routine)

// A routine for the real types, and for the complex ones.
#define REAL_TYPES(ROUTINE, routine)                                                                                  \
    FORMS(hipblasS##routine, ROUTINE, routine<number::f32>)                                                           \
    FORMS(hipblasD##routine, ROUTINE, routine<number::f64>)
#define ALL_TYPES(ROUTINE, routine)                                                                                   \
    REAL_TYPES(ROUTINE, routine)                                                                                      \
    COMPLEX_FORMS(hipblasC##routine, ROUTINE, routine<number::complex_f32>)                                           \
    COMPLEX_FORMS(hipblasZ##routine, ROUTINE, routine<number::complex_f64>)
