// hipBLAS: general matrix products, with types from the call's name or from arguments.

#include "blas_calls.hpp"
#include "settings.hpp"

#include <algorithm>

namespace patchkit::blas {

namespace {

constexpr word gemm_default = 160; // hipblasGemmAlgo_t

// Types of the matrices, and of alpha and beta.
struct types {
    number a, b, c, compute;
};

struct gemm {
    word op_a, op_b;
    int64_t m, n, k;
    const void * alpha;
    matrix a, b;
    const void * beta;
    matrix c;
};

// As supported by rocblas_gemm_ex.
bool is_supported(const types & given) {
    const auto is = [&given](number in, number out, number compute) {
        return given.a == in && given.b == in && given.c == out && given.compute == compute;
    };
    return is(number::f64, number::f64, number::f64) || is(number::f32, number::f32, number::f32) ||
           is(number::f16, number::f16, number::f16) || is(number::f16, number::f16, number::f32) ||
           is(number::f16, number::f32, number::f32) || is(number::bf16, number::bf16, number::f32) ||
           is(number::bf16, number::f32, number::f32) || is(number::i8, number::i32, number::i32) ||
           is(number::complex_f32, number::complex_f32, number::complex_f32) ||
           is(number::complex_f64, number::complex_f64, number::complex_f64);
}

layout stored_as(word op, int64_t rows, int64_t columns, int64_t leading) {
    return is_transposed(op) ? layout{columns, rows, leading} : layout{rows, columns, leading};
}

std::string as_json(const types & given) {
    const auto is = [](const char * what, number type) {
        return std::string("\"") + what + "\":\"" + name_of(type) + "\"";
    };
    const number sums = given.c == number::f64 || given.c == number::complex_f32 ? number::f64
                        : given.c == number::i32 || given.c == number::complex_f64 ? given.c
                                                                                   : number::f32;
    return is("a", given.a) + "," + is("b", given.b) + "," + is("c", given.c) + "," + is("compute", given.compute) +
           "," + is("sums", sums);
}

placed seen(number type, const layout & as, void * at) { return {{type, static_cast<std::byte *>(at)}, as}; }

// Integers and complex numbers are computed in f64, in which sums of i8 products are exact.
void multiply_in_f64(const gemm & p, const types & given, const layout & as_a, const layout & as_b, const layout & as_c,
                     const std::vector<void *> & at, complex alpha, complex beta) {
    dense product = {p.m, p.n, {}};
    if (alpha != 0.0 && p.k != 0) {
        product = patchkit::multiply(read(seen(given.a, as_a, at[0]), taken_of(p.op_a)),
                                     read(seen(given.b, as_b, at[1]), taken_of(p.op_b)));
    }
    write_sum(p.k == 0 ? 0 : alpha, product, beta, seen(given.c, as_c, at[2]));
}

int multiply_with(const form & of, const gemm & p, const types & given) {
    task call(of);
    const int64_t rows_a = is_transposed(p.op_a) ? p.k : p.m, rows_b = is_transposed(p.op_b) ? p.n : p.k;
    call.need(p.m >= 0 && p.n >= 0 && p.k >= 0);
    call.need(p.a.leading >= rows_a && p.b.leading >= rows_b && p.c.leading >= p.m);
    const bool is_nothing = p.m == 0 || p.n == 0 || of.batch == 0;
    const layout as_a = stored_as(p.op_a, p.m, p.k, p.a.leading), as_b = stored_as(p.op_b, p.k, p.n, p.b.leading),
                 as_c = {p.m, p.n, p.c.leading};
    // If there is nothing to compute, no pointer is accessed; with k = 0 neither alpha, A nor B.
    if (!is_nothing) {
        call.scalar("beta", p.beta, given.compute);
        call.need(p.c.at.address != nullptr);
        if (p.k != 0) {
            call.scalar("alpha", p.alpha, given.compute);
        }
        call.add("A", p.a.at, given.a, p.k == 0 ? layout{} : as_a, use::reads, p.k == 0 ? std::vector<int>() : std::vector<int>{1});
        call.add("B", p.b.at, given.b, p.k == 0 ? layout{} : as_b, use::reads, p.k == 0 ? std::vector<int>() : std::vector<int>{1});
        call.add("C", p.c.at, given.c, as_c, use::writes);
    }
    return call.run_together(
        p.m, p.n, p.k, as_json(given), [=](const task::all_places & all, const std::vector<complex> & scalars) {
            if (is_nothing) {
                return;
            }
            const complex beta = scalars[0], alpha = p.k == 0 ? 0.0 : scalars[1];
            const product wanted = {p.m,
                                    p.n,
                                    p.k,
                                    {given.a, is_transposed(p.op_a), p.a.leading},
                                    {given.b, is_transposed(p.op_b), p.b.leading},
                                    {given.c, false, p.c.leading},
                                    alpha.real(),
                                    beta.real()};
            std::vector<factors> batch;
            for (const std::vector<void *> & at : all) {
                if (can_multiply(wanted)) {
                    batch.push_back({at[0], at[1], at[2]});
                } else {
                    multiply_in_f64(p, given, as_a, as_b, as_c, at, alpha, beta);
                }
            }
            patchkit::multiply(wanted, batch, number_of_threads());
        });
}

int multiply_checked(const form & of, const gemm & p, const types & given) {
    if (find_library(of.handle) == nullptr) {
        return not_initialized;
    }
    return is_operation(p.op_a) && is_operation(p.op_b) ? multiply_with(of, p, given) : invalid_enum;
}

template <number type>
int gemm_of(const form & of, word op_a, word op_b, int64_t m, int64_t n, int64_t k, const void * alpha, const matrix & a,
            const matrix & b, const void * beta, const matrix & c) {
    return multiply_checked(of, {op_a, op_b, m, n, k, alpha, a, b, beta, c}, {type, type, type, type});
}

struct named_types {
    word a, b, c, compute;
};

std::string text_of(const named_types & named) {
    const auto compute = compute_type_of(named.compute);
    return name_of_type(named.a) + " times " + name_of_type(named.b) + " to " + name_of_type(named.c) +
           ", computed as " + (compute ? name_of(*compute) : "type " + std::to_string(named.compute));
}

int multiply_named(const form & of, const gemm & p, const named_types & named, word algorithm) {
    if (find_library(of.handle) == nullptr) {
        return not_initialized;
    }
    if (!is_operation(p.op_a) || !is_operation(p.op_b) || algorithm != gemm_default) {
        return invalid_enum;
    }
    const auto a = type_of(named.a), b = type_of(named.b), c = type_of(named.c);
    auto compute = compute_type_of(named.compute);
    // hipblasComputeType_t does not distinguish complex numbers; the matrices do.
    if (compute && c && is_complex(*c) && *compute == (*c == number::complex_f32 ? number::f32 : number::f64)) {
        compute = c;
    }
    if (!a || !b || !c || !compute || !is_supported({*a, *b, *c, *compute})) {
        return refuse(of.call, text_of(named));
    }
    return multiply_with(of, p, {*a, *b, *c, *compute});
}

} // namespace

extern "C" {

#define PARAMETERS_GEMM(V, M, P, I)                                                                                   \
    , word op_a, word op_b, I m, I n, I k, const void *alpha M(a, I) M(b, I), const void *beta M(c, I)
#define ARGUMENTS_GEMM(V, M, P) , op_a, op_b, m, n, k, alpha M(a) M(b), beta M(c)
FORMS(hipblasHgemm, GEMM, gemm_of<number::f16>)
FORMS(hipblasSgemm, GEMM, gemm_of<number::f32>)
FORMS(hipblasDgemm, GEMM, gemm_of<number::f64>)
COMPLEX_FORMS(hipblasCgemm, GEMM, gemm_of<number::complex_f32>)
COMPLEX_FORMS(hipblasZgemm, GEMM, gemm_of<number::complex_f64>)

// Types follow their matrices, strides follow the leading dimensions. FLAGS are additional parameters of some names.
#define GEMM_EX(name, list, many, I, FLAGS)                                                                           \
    int name(handle_t handle, word op_a, word op_b, I m, I n, I k, const void * alpha, const void * a, word type_a,   \
             I ld_a, const void * b, word type_b, I ld_b, const void * beta, void * c, word type_c, I ld_c,           \
             word compute, word algorithm FLAGS) {                                                                    \
        return multiply_named({#name, handle, 1},                                                                     \
                              {op_a, op_b, m, n, k, alpha, {"A", {a}, ld_a}, {"B", {b}, ld_b}, beta,                  \
                               {"C", {c}, ld_c}},                                                                     \
                              {type_a, type_b, type_c, compute}, algorithm);                                          \
    }                                                                                                                 \
    int list(handle_t handle, word op_a, word op_b, I m, I n, I k, const void * alpha, const void * a, word type_a,   \
             I ld_a, const void * b, word type_b, I ld_b, const void * beta, void * c, word type_c, I ld_c, I batch,  \
             word compute, word algorithm FLAGS) {                                                                    \
        return multiply_named({#list, handle, batch},                                                                 \
                              {op_a, op_b, m, n, k, alpha, {"A", {a, 0, true}, ld_a}, {"B", {b, 0, true}, ld_b},      \
                               beta, {"C", {c, 0, true}, ld_c}},                                                      \
                              {type_a, type_b, type_c, compute}, algorithm);                                          \
    }                                                                                                                 \
    int many(handle_t handle, word op_a, word op_b, I m, I n, I k, const void * alpha, const void * a, word type_a,   \
             I ld_a, long long stride_a, const void * b, word type_b, I ld_b, long long stride_b, const void * beta,  \
             void * c, word type_c, I ld_c, long long stride_c, I batch, word compute, word algorithm FLAGS) {        \
        return multiply_named({#many, handle, batch},                                                                 \
                              {op_a, op_b, m, n, k, alpha, {"A", {a, stride_a}, ld_a}, {"B", {b, stride_b}, ld_b},    \
                               beta, {"C", {c, stride_c}, ld_c}},                                                     \
                              {type_a, type_b, type_c, compute}, algorithm);                                          \
    }
#define NO_FLAGS
#define WITH_FLAGS , word /*flags*/
#define GEMM_EX_FORMS(end, I)                                                                                         \
    GEMM_EX(hipblasGemmEx##end, hipblasGemmBatchedEx##end, hipblasGemmStridedBatchedEx##end, I, NO_FLAGS)             \
    GEMM_EX(hipblasGemmExWithFlags##end, hipblasGemmBatchedExWithFlags##end,                                          \
            hipblasGemmStridedBatchedExWithFlags##end, I, WITH_FLAGS)
GEMM_EX_FORMS(, int)
GEMM_EX_FORMS(_v2, int)
GEMM_EX_FORMS(_64, int64_t)
GEMM_EX_FORMS(_v2_64, int64_t)

} // extern "C"

} // namespace patchkit::blas
