// hipBLAS, level 1: vector operations.

#include "blas_calls.hpp"

namespace patchkit::blas {

namespace {

using patchkit::number;

// The real type of absolute values.
constexpr number real_of(number type) {
    return type == number::complex_f32 ? number::f32 : type == number::complex_f64 ? number::f64 : type;
}

strided seen(const vector & x, number type, int64_t n, void * at) { return vector_at(type, at, n, x.step); }

// Whether a vector call has nothing to do.
bool is_nothing(const task & call, const form & of, int64_t n) { return !call.is_refused() && (n <= 0 || of.batch == 0); }

int add_scaled_of(const form & of, int64_t n, const void * alpha, number of_alpha, const vector & x, number of_x,
                  const vector & y, number of_y) {
    task call(of);
    if (is_nothing(call, of, n)) {
        return success;
    }
    const int factor = call.scalar("alpha", alpha, of_alpha);
    call.add(x, of_x, n, use::reads, {factor});
    call.add(y, of_y, n, use::writes, {factor});
    return call.run(n, 1, 1, of_y, [=](const task::place & at) {
        if (at.scalars[0] != 0.0) {
            patchkit::add_scaled(at.scalars[0], seen(x, of_x, n, at.at[0]), seen(y, of_y, n, at.at[1]));
        }
    });
}

template <number type>
int axpy(const form & of, int64_t n, const void * alpha, const vector & x, const vector & y) {
    return add_scaled_of(of, n, alpha, type, x, type, y, type);
}

int scale_of(const form & of, int64_t n, const void * alpha, number of_alpha, const vector & x, number of_x) {
    task call(of);
    if (is_nothing(call, of, n) || (!call.is_refused() && x.step <= 0)) {
        return success;
    }
    call.scalar("alpha", alpha, of_alpha);
    call.add(x, of_x, n, use::writes);
    return call.run(n, 1, 1, of_x, [=](const task::place & at) {
        patchkit::scale(at.scalars[0], seen(x, of_x, n, at.at[0]));
    });
}

template <number type> int scal(const form & of, int64_t n, const void * alpha, const vector & x) {
    return scale_of(of, n, alpha, type, x, type);
}

// With a real factor.
template <number type> int scal_by_real(const form & of, int64_t n, const void * alpha, const vector & x) {
    return scale_of(of, n, alpha, real_of(type), x, type);
}

template <number type> int copy(const form & of, int64_t n, const vector & x, const vector & y) {
    task call(of);
    if (is_nothing(call, of, n)) {
        return success;
    }
    call.add(x, type, n, use::reads);
    call.add(y, type, n, use::writes);
    return call.run(n, 1, 1, type, [=](const task::place & at) {
        patchkit::copy(seen(x, type, n, at.at[0]), seen(y, type, n, at.at[1]));
    });
}

template <number type> int swap(const form & of, int64_t n, const vector & x, const vector & y) {
    task call(of);
    if (is_nothing(call, of, n)) {
        return success;
    }
    call.add(x, type, n, use::writes);
    call.add(y, type, n, use::writes);
    return call.run(n, 1, 1, type, [=](const task::place & at) {
        patchkit::exchange(seen(x, type, n, at.at[0]), seen(y, type, n, at.at[1]));
    });
}

// One number per vector of the batch; zero for empty vectors.
template <typename Sum>
int reduce(const form & of, int64_t n, const vector & x, number of_x, const vector * y, number of_y, void * result,
           number of_result, Sum sum) {
    task call(of);
    const bool is_empty = n <= 0 || (y == nullptr && x.step <= 0);
    const int64_t size  = is_empty ? 0 : n;
    call.add_numbers("result", {result, 1, false}, of_result, 1, use::writes);
    call.add(x, of_x, size, use::reads);
    if (y != nullptr) {
        call.add(*y, of_y, size, use::reads);
    }
    const vector second = y == nullptr ? vector{} : *y;
    const bool has_two  = y != nullptr;
    return call.run(size, 1, 1, of_x, [=](const task::place & at) {
        complex found = 0;
        if (size != 0) {
            found = sum(seen(x, of_x, n, at.at[1]),
                        has_two ? seen(second, of_y, n, at.at[2]) : strided{{of_y, nullptr}, 0, 1});
        }
        elements{of_result, static_cast<std::byte *>(at.at[0])}.set(0, found);
    });
}

int dot_of(const form & of, int64_t n, const vector & x, number of_x, const vector & y, number of_y, bool is_conjugated,
           void * result, number of_result) {
    return reduce(of, n, x, of_x, &y, of_y, result, of_result, [is_conjugated](const strided & a, const strided & b) {
        return patchkit::dot(a, b, is_conjugated);
    });
}

template <number type> int dot(const form & of, int64_t n, const vector & x, const vector & y, void * result) {
    return dot_of(of, n, x, type, y, type, false, result, type);
}

template <number type>
int dot_conjugated(const form & of, int64_t n, const vector & x, const vector & y, void * result) {
    return dot_of(of, n, x, type, y, type, true, result, type);
}

int norm_of(const form & of, int64_t n, const vector & x, number of_x, void * result, number of_result) {
    return reduce(of, n, x, of_x, nullptr, of_x, result, of_result,
                  [](const strided & a, const strided &) { return complex(patchkit::norm(a)); });
}

template <number type> int nrm2(const form & of, int64_t n, const vector & x, void * result) {
    return norm_of(of, n, x, type, result, real_of(type));
}

template <number type> int asum(const form & of, int64_t n, const vector & x, void * result) {
    return reduce(of, n, x, type, nullptr, type, result, real_of(type),
                  [](const strided & a, const strided &) { return complex(patchkit::sum_of_sizes(a)); });
}

// Indices have the type of sizes: 64-bit ones are written as two halves.
template <number type> int extreme(const form & of, int64_t n, const vector & x, void * result, bool is_largest, int words) {
    task call(of);
    const int64_t size = n <= 0 || x.step <= 0 ? 0 : n;
    call.add_numbers("result", {result, words, false}, number::i32, words, use::writes);
    call.add(x, type, size, use::reads);
    return call.run(size, 1, 1, type, [=](const task::place & at) {
        const int64_t found = size == 0 ? 0 : find_extreme(seen(x, type, n, at.at[1]), is_largest);
        const elements to   = {number::i32, static_cast<std::byte *>(at.at[0])};
        to.set(0, double(int32_t(found)));
        if (words == 2) {
            to.set(1, double(int32_t(found >> 32)));
        }
    });
}

template <number type> int largest(const form & of, int64_t n, const vector & x, void * result, int words) {
    return extreme<type>(of, n, x, result, true, words);
}

template <number type> int smallest(const form & of, int64_t n, const vector & x, void * result, int words) {
    return extreme<type>(of, n, x, result, false, words);
}

int rotate_of(const form & of, int64_t n, const vector & x, number of_x, const vector & y, number of_y, const void * c,
              number of_c, const void * s, number of_s) {
    task call(of);
    if (is_nothing(call, of, n)) {
        return success;
    }
    call.scalar("c", c, of_c);
    call.scalar("s", s, of_s);
    call.add(x, of_x, n, use::writes);
    call.add(y, of_y, n, use::writes);
    return call.run(n, 1, 1, of_x, [=](const task::place & at) {
        patchkit::rotate(seen(x, of_x, n, at.at[0]), seen(y, of_y, n, at.at[1]), at.scalars[0].real(), at.scalars[1]);
    });
}

template <number type>
int rot(const form & of, int64_t n, const vector & x, const vector & y, const void * c, const void * s) {
    return rotate_of(of, n, x, type, y, type, c, real_of(type), s, type);
}

template <number type>
int rot_by_real(const form & of, int64_t n, const vector & x, const vector & y, const void * c, const void * s) {
    return rotate_of(of, n, x, type, y, type, c, real_of(type), s, real_of(type));
}

elements number_at(number type, void * place) { return {type, static_cast<std::byte *>(place)}; }

template <number type> int rotg(const form & of, const matrix & a, const matrix & b, const matrix & c, const matrix & s) {
    task call(of);
    call.add_numbers("a", a.at, type, 1, use::writes);
    call.add_numbers("b", b.at, type, 1, use::writes);
    call.add_numbers("c", c.at, real_of(type), 1, use::writes);
    call.add_numbers("s", s.at, type, 1, use::writes);
    return call.run(1, 1, 1, type, [](const task::place & at) {
        const elements a = number_at(type, at.at[0]), b = number_at(type, at.at[1]);
        const rotation made = rotation_of(a.get(0), b.get(0), !is_complex(type));
        a.set(0, made.a);
        b.set(0, made.b);
        number_at(real_of(type), at.at[2]).set(0, made.c);
        number_at(type, at.at[3]).set(0, made.s);
    });
}

template <number type> int rotm(const form & of, int64_t n, const vector & x, const vector & y, const matrix & param) {
    task call(of);
    if (is_nothing(call, of, n)) {
        return success;
    }
    call.add_numbers("param", param.at, type, 5, use::reads);
    call.add(x, type, n, use::writes);
    call.add(y, type, n, use::writes);
    return call.run(n, 1, 1, type, [=](const task::place & at) {
        double values[5];
        for (int i = 0; i < 5; ++i) {
            values[i] = number_at(type, at.at[0]).get(i).real();
        }
        patchkit::rotate_modified(seen(x, type, n, at.at[1]), seen(y, type, n, at.at[2]), values);
    });
}

template <number type>
int rotmg(const form & of, const matrix & d1, const matrix & d2, const matrix & x1, const matrix & y1,
          const matrix & param) {
    task call(of);
    call.add_numbers("d1", d1.at, type, 1, use::writes);
    call.add_numbers("d2", d2.at, type, 1, use::writes);
    call.add_numbers("x1", x1.at, type, 1, use::writes);
    call.add_numbers("y1", y1.at, type, 1, use::reads);
    call.add_numbers("param", param.at, type, 5, use::writes);
    return call.run(1, 1, 1, type, [](const task::place & at) {
        const auto one = [&at](size_t i) { return number_at(type, at.at[i]); };
        const modified_rotation made = modified_rotation_of(one(0).get(0).real(), one(1).get(0).real(),
                                                            one(2).get(0).real(), one(3).get(0).real());
        one(0).set(0, made.d1);
        one(1).set(0, made.d2);
        one(2).set(0, made.x1);
        for (int i = 0; i < 5; ++i) {
            one(4).set(i, made.param[i]);
        }
    });
}

// Types given by the caller. Two vectors and the result have one type, or f16 types are computed in f32
// (rocblas_axpy_ex, rocblas_dot_ex, rocblas_nrm2_ex, rocblas_rot_ex and rocblas_scal_ex).
struct named {
    word first, x, y, result, execution;
};

bool all_known(const named & types) {
    return type_of(types.first) && type_of(types.x) && type_of(types.y) && type_of(types.result) &&
           type_of(types.execution);
}

std::string text_of(const named & types) {
    return name_of_type(types.x) + " and " + name_of_type(types.y) + " with " + name_of_type(types.first) + " to " +
           name_of_type(types.result) + ", computed as " + name_of_type(types.execution);
}

bool go_together(const named & types) {
    if (!all_known(types)) {
        return false;
    }
    const number x = *type_of(types.x), y = *type_of(types.y), execution = *type_of(types.execution);
    const bool is_half = x == number::f16 || x == number::bf16;
    const bool is_as   = execution == x || (is_half && execution == number::f32) || execution == number::f64;
    return x != number::i8 && x != number::i32 && is_complex(x) == is_complex(y) && is_as;
}

int axpy_ex(const form & of, int64_t n, const void * alpha, word of_alpha, const vector & x, word of_x, const vector & y,
            word of_y, word execution) {
    const named types = {of_alpha, of_x, of_y, of_y, execution};
    return go_together(types) ? add_scaled_of(of, n, alpha, *type_of(of_alpha), x, *type_of(of_x), y, *type_of(of_y))
                              : refuse(of.call, text_of(types));
}

int scal_ex(const form & of, int64_t n, const void * alpha, word of_alpha, const vector & x, word of_x, word execution) {
    const named types = {of_alpha, of_x, of_x, of_x, execution};
    return go_together(types) ? scale_of(of, n, alpha, *type_of(of_alpha), x, *type_of(of_x))
                              : refuse(of.call, text_of(types));
}

int dot_ex(const form & of, int64_t n, const vector & x, word of_x, const vector & y, word of_y, bool is_conjugated,
           void * result, word of_result, word execution) {
    const named types = {of_x, of_x, of_y, of_result, execution};
    return go_together(types) ? dot_of(of, n, x, *type_of(of_x), y, *type_of(of_y), is_conjugated, result,
                                       *type_of(of_result))
                              : refuse(of.call, text_of(types));
}

int nrm2_ex(const form & of, int64_t n, const vector & x, word of_x, void * result, word of_result, word execution) {
    const named types = {of_x, of_x, of_x, of_result, execution};
    const bool fits   = all_known(types) && *type_of(of_x) != number::i8 && *type_of(of_x) != number::i32;
    return fits ? norm_of(of, n, x, *type_of(of_x), result, *type_of(of_result)) : refuse(of.call, text_of(types));
}

int rot_ex(const form & of, int64_t n, const vector & x, word of_x, const vector & y, word of_y, const void * c,
           const void * s, word of_cs, word execution) {
    const named types = {of_cs, of_x, of_y, of_y, execution};
    if (!go_together(types)) {
        return refuse(of.call, text_of(types));
    }
    const number cs = *type_of(of_cs);
    return rotate_of(of, n, x, *type_of(of_x), y, *type_of(of_y), c, real_of(cs), s, cs);
}

} // namespace

extern "C" {

#define PARAMETERS_AXPY(V, M, P, I) , I n, const void *alpha V(x, I) V(y, I)
#define ARGUMENTS_AXPY(V, M, P) , n, alpha V(x) V(y)
ALL_TYPES(AXPY, axpy)
FORMS(hipblasHaxpy, AXPY, axpy<number::f16>)

#define PARAMETERS_SCAL(V, M, P, I) , I n, const void *alpha V(x, I)
#define ARGUMENTS_SCAL(V, M, P) , n, alpha V(x)
ALL_TYPES(SCAL, scal)
COMPLEX_FORMS(hipblasCsscal, SCAL, scal_by_real<number::complex_f32>)
COMPLEX_FORMS(hipblasZdscal, SCAL, scal_by_real<number::complex_f64>)

#define PARAMETERS_TWO(V, M, P, I) , I n V(x, I) V(y, I)
#define ARGUMENTS_TWO(V, M, P) , n V(x) V(y)
ALL_TYPES(TWO, copy)
ALL_TYPES(TWO, swap)

RESULT_FORMS(hipblasHdot, TWO, dot<number::f16>)
RESULT_FORMS(hipblasBfdot, TWO, dot<number::bf16>)
RESULT_FORMS(hipblasSdot, TWO, dot<number::f32>)
RESULT_FORMS(hipblasDdot, TWO, dot<number::f64>)
COMPLEX_RESULT_FORMS(hipblasCdotu, TWO, dot<number::complex_f32>)
COMPLEX_RESULT_FORMS(hipblasZdotu, TWO, dot<number::complex_f64>)
COMPLEX_RESULT_FORMS(hipblasCdotc, TWO, dot_conjugated<number::complex_f32>)
COMPLEX_RESULT_FORMS(hipblasZdotc, TWO, dot_conjugated<number::complex_f64>)

#define PARAMETERS_SINGLE(V, M, P, I) , I n V(x, I)
#define ARGUMENTS_SINGLE(V, M, P) , n V(x)
RESULT_FORMS(hipblasSnrm2, SINGLE, nrm2<number::f32>)
RESULT_FORMS(hipblasDnrm2, SINGLE, nrm2<number::f64>)
COMPLEX_RESULT_FORMS(hipblasScnrm2, SINGLE, nrm2<number::complex_f32>)
COMPLEX_RESULT_FORMS(hipblasDznrm2, SINGLE, nrm2<number::complex_f64>)
RESULT_FORMS(hipblasSasum, SINGLE, asum<number::f32>)
RESULT_FORMS(hipblasDasum, SINGLE, asum<number::f64>)
COMPLEX_RESULT_FORMS(hipblasScasum, SINGLE, asum<number::complex_f32>)
COMPLEX_RESULT_FORMS(hipblasDzasum, SINGLE, asum<number::complex_f64>)

// Indices are int, or int64_t in the 64-bit forms.
#define HAND_NUMBER(I) , result, int(sizeof(I) / sizeof(int))
#define EXTREMES(name, type, which) ALL_FORMS(name, PARAMETERS_SINGLE, ARGUMENTS_SINGLE, RESULT_TAIL, HAND_NUMBER, which<type>)
#define COMPLEX_EXTREMES(name, type, which)                                                                           \
    ALL_COMPLEX_FORMS(name, PARAMETERS_SINGLE, ARGUMENTS_SINGLE, RESULT_TAIL, HAND_NUMBER, which<type>)
EXTREMES(hipblasIsamax, number::f32, largest)
EXTREMES(hipblasIdamax, number::f64, largest)
COMPLEX_EXTREMES(hipblasIcamax, number::complex_f32, largest)
COMPLEX_EXTREMES(hipblasIzamax, number::complex_f64, largest)
EXTREMES(hipblasIsamin, number::f32, smallest)
EXTREMES(hipblasIdamin, number::f64, smallest)
COMPLEX_EXTREMES(hipblasIcamin, number::complex_f32, smallest)
COMPLEX_EXTREMES(hipblasIzamin, number::complex_f64, smallest)

#define PARAMETERS_ROT(V, M, P, I) , I n V(x, I) V(y, I), const void *c, const void *s
#define ARGUMENTS_ROT(V, M, P) , n V(x) V(y), c, s
ALL_TYPES(ROT, rot)
COMPLEX_FORMS(hipblasCsrot, ROT, rot_by_real<number::complex_f32>)
COMPLEX_FORMS(hipblasZdrot, ROT, rot_by_real<number::complex_f64>)

#define PARAMETERS_ROTG(V, M, P, I) P(a, I) P(b, I) P(c, I) P(s, I)
#define ARGUMENTS_ROTG(V, M, P) P(a) P(b) P(c) P(s)
ALL_TYPES(ROTG, rotg)

#define PARAMETERS_ROTM(V, M, P, I) , I n V(x, I) V(y, I) P(param, I)
#define ARGUMENTS_ROTM(V, M, P) , n V(x) V(y) P(param)
REAL_TYPES(ROTM, rotm)

#define PARAMETERS_ROTMG(V, M, P, I) P(d1, I) P(d2, I) P(x1, I) P(y1, I) P(param, I)
#define ARGUMENTS_ROTMG(V, M, P) P(d1) P(d2) P(x1) P(y1) P(param)
REAL_TYPES(ROTMG, rotmg)

// Vectors with types given by the caller. Their strides follow their increments.
#define TYPED_ONE(x, I) , const void *x, word of_##x, I step_##x
#define TYPED_STRIDED(x, I) , const void *x, word of_##x, I step_##x, long long stride_##x
#define HAND_TYPED_ONE(x) , vector{#x, {x, 0, false}, step_##x}, of_##x
#define HAND_TYPED_LIST(x) , vector{#x, {x, 0, true}, step_##x}, of_##x
#define HAND_TYPED_STRIDED(x) , vector{#x, {x, stride_##x, false}, step_##x}, of_##x
#define TYPED_CALLS(one, list, many, I, ROUTINE, routine)                                                             \
    int one(handle_t handle, I n HEAD_##ROUTINE(TYPED_ONE, I) TAIL_##ROUTINE, word execution) {                       \
        return routine({#one, handle, 1}, n HAND_HEAD_##ROUTINE(HAND_TYPED_ONE) HAND_TAIL_##ROUTINE, execution);      \
    }                                                                                                                 \
    int list(handle_t handle, I n HEAD_##ROUTINE(TYPED_ONE, I), I batch TAIL_##ROUTINE, word execution) {             \
        return routine({#list, handle, batch}, n HAND_HEAD_##ROUTINE(HAND_TYPED_LIST) HAND_TAIL_##ROUTINE, execution);\
    }                                                                                                                 \
    int many(handle_t handle, I n HEAD_##ROUTINE(TYPED_STRIDED, I), I batch TAIL_##ROUTINE, word execution) {         \
        return routine({#many, handle, batch}, n HAND_HEAD_##ROUTINE(HAND_TYPED_STRIDED) HAND_TAIL_##ROUTINE,         \
                       execution);                                                                                    \
    }
#define TYPED_FORMS(name, ROUTINE, routine)                                                                           \
    TYPED_CALLS(name##Ex, name##BatchedEx, name##StridedBatchedEx, int, ROUTINE, routine)                             \
    TYPED_CALLS(name##Ex_v2, name##BatchedEx_v2, name##StridedBatchedEx_v2, int, ROUTINE, routine)                    \
    TYPED_CALLS(name##Ex_64, name##BatchedEx_64, name##StridedBatchedEx_64, int64_t, ROUTINE, routine)                \
    TYPED_CALLS(name##Ex_v2_64, name##BatchedEx_v2_64, name##StridedBatchedEx_v2_64, int64_t, ROUTINE, routine)

#define HEAD_AXPY(V, I) , const void *alpha, word of_alpha V(x, I) V(y, I)
#define HAND_HEAD_AXPY(V) , alpha, of_alpha V(x) V(y)
#define TAIL_AXPY
#define HAND_TAIL_AXPY
TYPED_FORMS(hipblasAxpy, AXPY, axpy_ex)

#define HEAD_SCAL(V, I) , const void *alpha, word of_alpha V(x, I)
#define HAND_HEAD_SCAL(V) , alpha, of_alpha V(x)
#define TAIL_SCAL
#define HAND_TAIL_SCAL
TYPED_FORMS(hipblasScal, SCAL, scal_ex)

#define HEAD_DOT(V, I) V(x, I) V(y, I)
#define HAND_HEAD_DOT(V) V(x) V(y), false
#define TAIL_DOT , void *result, word of_result
#define HAND_TAIL_DOT , result, of_result
TYPED_FORMS(hipblasDot, DOT, dot_ex)
#define HEAD_DOTC(V, I) V(x, I) V(y, I)
#define HAND_HEAD_DOTC(V) V(x) V(y), true
#define TAIL_DOTC TAIL_DOT
#define HAND_TAIL_DOTC HAND_TAIL_DOT
TYPED_FORMS(hipblasDotc, DOTC, dot_ex)

#define HEAD_NRM2(V, I) V(x, I)
#define HAND_HEAD_NRM2(V) V(x)
#define TAIL_NRM2 , void *result, word of_result
#define HAND_TAIL_NRM2 , result, of_result
TYPED_FORMS(hipblasNrm2, NRM2, nrm2_ex)

#define HEAD_ROT(V, I) V(x, I) V(y, I), const void *c, const void *s, word of_cs
#define HAND_HEAD_ROT(V) V(x) V(y), c, s, of_cs
#define TAIL_ROT
#define HAND_TAIL_ROT
TYPED_FORMS(hipblasRot, ROT, rot_ex)

} // extern "C"

} // namespace patchkit::blas
