// hipBLAS, level 3, except general products (blas_gemm.cpp): symmetric, triangular and diagonal matrices, and sums of
// matrices.

#include "blas_calls.hpp"
#include "settings.hpp"

#include <algorithm>

namespace patchkit::blas {

namespace {

placed seen(number type, const layout & as, void * at) { return {{type, static_cast<std::byte *>(at)}, as}; }

layout full(int64_t rows, int64_t columns, int64_t leading, triangle stored = triangle::none) {
    return {rows, columns, leading, layout::form::full, stored};
}

// Stored layout of an operand used as `op` with this number of rows and columns.
layout stored_as(word op, int64_t rows, int64_t columns, int64_t leading) {
    return is_transposed(op) ? full(columns, rows, leading) : full(rows, columns, leading);
}

bool has_rows(const matrix & a, int64_t rows) { return a.leading >= std::max<int64_t>(rows, 1); }

constexpr number real_of(number type) {
    return type == number::complex_f32 ? number::f32 : type == number::complex_f64 ? number::f64 : type;
}

// C = alpha A B + beta C with A symmetric, or with B A.
template <number type, mirrored mirror>
int mirrored_product(const form & of, word side, word fill, int64_t m, int64_t n, const void * alpha, const matrix & a,
                     const matrix & b, const void * beta, const matrix & c) {
    task call(of);
    const bool is_left  = side == side_left;
    const int64_t order = is_left ? m : n;
    call.need(is_side(side) && is_fill(fill), invalid_enum);
    call.need(m >= 0 && n >= 0 && has_rows(a, order) && has_rows(b, m) && has_rows(c, m));
    if (call.is_refused() || m == 0 || n == 0) {
        return call.status();
    }
    const layout as_a = full(order, order, a.leading, triangle_of(fill)), as_b = full(m, n, b.leading),
                 as_c = full(m, n, c.leading);
    call.scalar("alpha", alpha, type);
    call.scalar("beta", beta, type);
    call.add("a", a.at, type, as_a, use::reads, {0});
    call.add("b", b.at, type, as_b, use::reads, {0});
    call.add("c", c.at, type, as_c, use::writes);
    return call.run(m, n, order, type, [=](const task::place & at) {
        dense product = {m, n, {}};
        if (at.scalars[0] != 0.0) {
            const dense left = read(seen(type, as_a, at.at[0]), taken::none, mirror),
                        right = read(seen(type, as_b, at.at[1]));
            product = is_left ? multiply(left, right) : multiply(right, left);
        }
        write_sum(at.scalars[0], product, at.scalars[1], seen(type, as_c, at.at[2]));
    });
}

template <number type> int symm(const form & of, word side, word fill, int64_t m, int64_t n, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return mirrored_product<type, mirrored::symmetric>(of, side, fill, m, n, alpha, a, b, beta, c);
}
template <number type> int hemm(const form & of, word side, word fill, int64_t m, int64_t n, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return mirrored_product<type, mirrored::hermitian>(of, side, fill, m, n, alpha, a, b, beta, c);
}

enum class updates { once, twice };

// One triangle of C = alpha op(A) op(B)^T + beta C; rank-2k also adds alpha op(B) op(A)^T. Hermitian updates use
// adjoints and a real beta; alpha is real, too, if A is B.
template <number type, updates how, bool is_hermitian>
int triangle_of_product(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, number of_alpha,
                        const matrix & a, const matrix * b, const void * beta, const matrix & c) {
    task call(of);
    const bool is_turned = is_transposed(op);
    call.need(is_fill(fill) && is_operation(op), invalid_enum);
    call.need(!(is_hermitian ? op == op_t : is_complex(type) && op == op_c), invalid_value);
    call.need(n >= 0 && k >= 0 && has_rows(a, is_turned ? k : n) && has_rows(c, n));
    call.need(b == nullptr || has_rows(*b, is_turned ? k : n));
    if (call.is_refused() || n == 0) {
        return call.status();
    }
    const layout as_a = stored_as(op, n, k, a.leading), as_b = b == nullptr ? as_a : stored_as(op, n, k, b->leading),
                 as_c = full(n, n, c.leading, triangle_of(fill));
    call.scalar("alpha", alpha, of_alpha);
    call.scalar("beta", beta, is_hermitian ? real_of(type) : type);
    call.add("a", a.at, type, as_a, use::reads, {0});
    if (b != nullptr) {
        call.add("b", b->at, type, as_b, use::reads, {0});
    }
    call.add("c", c.at, type, as_c, use::writes);
    const bool has_b  = b != nullptr;
    const taken other = is_hermitian ? taken::conjugated : taken::transposed;
    return call.run(n, n, k, type, [=](const task::place & at) {
        const complex alpha = at.scalars[0];
        const placed to     = seen(type, as_c, at.at[has_b ? 2 : 1]);
        if (alpha == 0.0 || k == 0) {
            const dense nothing = {n, n, std::vector<complex>(size_t(n * n))};
            write_sum(1, nothing, at.scalars[1], to, is_hermitian);
            return;
        }
        const auto product = [&](void * left, const layout & as_left, void * right, const layout & as_right) {
            // op(B)^T of an already transposed B is B as stored.
            const dense first  = read(seen(type, as_left, left), is_turned ? other : taken::none);
            const dense second = read(seen(type, as_right, right), is_turned ? taken::none : other);
            return multiply(first, second);
        };
        void * at_a = at.at[0];
        void * at_b = has_b ? at.at[1] : at_a;
        dense sum   = product(at_a, as_a, at_b, as_b);
        if (how == updates::twice) {
            const dense second = product(at_b, as_b, at_a, as_a);
            for (size_t i = 0; i < sum.values.size(); ++i) {
                sum.values[i] = alpha * sum.values[i] + (is_hermitian ? std::conj(alpha) : alpha) * second.values[i];
            }
        }
        write_sum(how == updates::twice ? complex(1) : alpha, sum, at.scalars[1], to, is_hermitian);
    });
}

template <number type> int syrk(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::once, false>(of, fill, op, n, k, alpha, type, a, nullptr, beta, c);
}
template <number type> int herk(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::once, true>(of, fill, op, n, k, alpha, real_of(type), a, nullptr, beta, c);
}
template <number type> int syr2k(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::twice, false>(of, fill, op, n, k, alpha, type, a, &b, beta, c);
}
template <number type> int her2k(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::twice, true>(of, fill, op, n, k, alpha, type, a, &b, beta, c);
}
template <number type> int syrkx(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::once, false>(of, fill, op, n, k, alpha, type, a, &b, beta, c);
}
template <number type> int herkx(const form & of, word fill, word op, int64_t n, int64_t k, const void * alpha, const matrix & a, const matrix & b, const void * beta, const matrix & c) {
    return triangle_of_product<type, updates::once, true>(of, fill, op, n, k, alpha, type, a, &b, beta, c);
}

// C = alpha op(A) B, or alpha B op(A), with A triangular. C may be B.
template <number type>
int trmm(const form & of, word side, word fill, word op, word diagonal, int64_t m, int64_t n, const void * alpha,
         const matrix & a, const matrix & b, const matrix & c) {
    task call(of);
    const bool is_left  = side == side_left;
    const int64_t order = is_left ? m : n;
    call.need(is_side(side) && is_fill(fill) && is_operation(op) && is_diagonal(diagonal), invalid_enum);
    call.need(m >= 0 && n >= 0 && has_rows(a, order) && has_rows(b, m) && has_rows(c, m));
    if (call.is_refused() || m == 0 || n == 0) {
        return call.status();
    }
    const layout as_a = full(order, order, a.leading, triangle_of(fill)), as_b = full(m, n, b.leading),
                 as_c = full(m, n, c.leading);
    call.scalar("alpha", alpha, type);
    call.add("a", a.at, type, as_a, use::reads, {0});
    call.add("b", b.at, type, as_b, use::reads, {0});
    call.add("c", c.at, type, as_c, use::writes);
    return call.run(m, n, order, type, [=](const task::place & at) {
        dense product = {m, n, {}};
        if (at.scalars[0] != 0.0) {
            const dense left  = read(seen(type, as_a, at.at[0]), taken_of(op), mirrored::no, diagonal == diag_unit);
            const dense right = read(seen(type, as_b, at.at[1]));
            product           = is_left ? multiply(left, right) : multiply(right, left);
        }
        write_sum(at.scalars[0], product, 0, seen(type, as_c, at.at[2]));
    });
}

// Solves op(A) X = alpha B, or X op(A) = alpha B, with X replacing B.
int solve_of(const form & of, number type, word side, word fill, word op, word diagonal, int64_t m, int64_t n,
             const void * alpha, const matrix & a, const matrix & b) {
    task call(of);
    const bool is_left  = side == side_left;
    const int64_t order = is_left ? m : n;
    call.need(is_side(side) && is_fill(fill) && is_operation(op) && is_diagonal(diagonal), invalid_enum);
    call.need(m >= 0 && n >= 0 && a.leading >= order && b.leading >= m);
    if (call.is_refused() || m == 0 || n == 0 || of.batch == 0) {
        return call.status();
    }
    const layout as_a = full(order, order, a.leading, triangle_of(fill)), as_b = full(m, n, b.leading);
    call.scalar("alpha", alpha, type);
    call.add("a", a.at, type, as_a, use::reads, {0});
    call.add("b", b.at, type, as_b, use::writes);
    const std::string name = name_of(type), sums = is_complex(type) ? "complex f64" : name;
    const std::string types = "\"a\":\"" + name + "\",\"b\":\"" + name + "\",\"c\":\"" + name + "\",\"compute\":\"" + name +
                              "\",\"sums\":\"" + sums + "\"";
    return call.run_together(m, n, order, types, [=](const task::all_places & all, const std::vector<complex> & scalars) {
        if (!is_complex(type)) {
            const triangular_system wanted = {is_left, fill == fill_upper, is_transposed(op), diagonal == diag_unit,
                                              m,       n,                  a.leading,         b.leading,
                                              scalars[0].real(), type};
            std::vector<sides> batch;
            for (const std::vector<void *> & at : all) {
                batch.push_back({at[0], at[1]});
            }
            return patchkit::solve(wanted, batch, number_of_threads());
        }
        for (const std::vector<void *> & at : all) {
            const placed to = seen(type, as_b, at[1]);
            dense rights    = {m, n, std::vector<complex>(size_t(m * n))};
            if (scalars[0] != 0.0) {
                rights = read(to);
                for (complex & one : rights.values) {
                    one *= scalars[0];
                }
                solve_triangle(seen(type, as_a, at[0]), taken_of(op), diagonal == diag_unit, is_left, rights);
            }
            write_sum(1, rights, 0, to);
        }
    });
}

template <number type>
int trsm(const form & of, word side, word fill, word op, word diagonal, int64_t m, int64_t n, const void * alpha,
         const matrix & a, const matrix & b) {
    return solve_of(of, type, side, fill, op, diagonal, m, n, alpha, a, b);
}

// The inverse blocks passed in addition to A are only an optimisation, and are not used.
int trsm_ex(const form & of, word side, word fill, word op, word diagonal, int64_t m, int64_t n, const void * alpha,
            const matrix & a, const matrix & b, word compute) {
    const auto type = compute_type_of(compute);
    if (type != number::f32 && type != number::f64 && type != number::complex_f32 && type != number::complex_f64) {
        return refuse(of.call, "systems of type " + std::to_string(compute));
    }
    return solve_of(of, *type, side, fill, op, diagonal, m, n, alpha, a, b);
}

// C = alpha op(A) + beta op(B).
template <number type>
int geam(const form & of, word op_a, word op_b, int64_t m, int64_t n, const void * alpha, const matrix & a,
         const void * beta, const matrix & b, const matrix & c) {
    task call(of);
    call.need(is_operation(op_a) && is_operation(op_b), invalid_enum);
    call.need(m >= 0 && n >= 0 && has_rows(a, is_transposed(op_a) ? n : m) &&
              has_rows(b, is_transposed(op_b) ? n : m) && has_rows(c, m));
    if (call.is_refused() || m == 0 || n == 0) {
        return call.status();
    }
    const layout as_a = stored_as(op_a, m, n, a.leading), as_b = stored_as(op_b, m, n, b.leading),
                 as_c = full(m, n, c.leading);
    call.scalar("alpha", alpha, type);
    call.scalar("beta", beta, type);
    call.add("a", a.at, type, as_a, use::reads, {0});
    call.add("b", b.at, type, as_b, use::reads, {1});
    call.add("c", c.at, type, as_c, use::writes);
    return call.run(m, n, 1, type, [=](const task::place & at) {
        add_matrices(at.scalars[0], seen(type, as_a, at.at[0]), taken_of(op_a), at.scalars[1],
                     seen(type, as_b, at.at[1]), taken_of(op_b), seen(type, as_c, at.at[2]));
    });
}

// C = diag(x) A, or A diag(x).
template <number type>
int dgmm(const form & of, word side, int64_t m, int64_t n, const matrix & a, const vector & x, const matrix & c) {
    task call(of);
    const bool is_left  = side == side_left;
    const int64_t count = is_left ? m : n;
    call.need(is_side(side), invalid_enum);
    call.need(m >= 0 && n >= 0 && has_rows(a, m) && has_rows(c, m));
    if (call.is_refused() || m == 0 || n == 0) {
        return call.status();
    }
    const layout as_a = full(m, n, a.leading), as_c = full(m, n, c.leading);
    call.add("a", a.at, type, as_a, use::reads);
    call.add(x, type, count, use::reads);
    call.add("c", c.at, type, as_c, use::writes);
    return call.run(m, n, 1, type, [=](const task::place & at) {
        const strided factors = vector_at(type, at.at[1], count, x.step);
        const placed from = seen(type, as_a, at.at[0]), to = seen(type, as_c, at.at[2]);
        for (int64_t j = 0; j < n; ++j) {
            for (int64_t i = 0; i < m; ++i) {
                const complex factor = factors.in.get((is_left ? i : j) * factors.step);
                to.in.set(as_c.offset(i, j), factor * from.in.get(as_a.offset(i, j)));
            }
        }
    });
}

// The inverse of a triangle, possibly in place. The other triangle is not read, and becomes zero.
template <number type>
int trtri(const form & of, word fill, word diagonal, int64_t n, const matrix & a, const matrix & inverse) {
    task call(of);
    call.need(is_fill(fill) && is_diagonal(diagonal), invalid_enum);
    call.need(n >= 0 && has_rows(a, n) && has_rows(inverse, n));
    if (call.is_refused() || n == 0) {
        return call.status();
    }
    const layout as_a = full(n, n, a.leading, triangle_of(fill)), as_inverse = full(n, n, inverse.leading);
    call.add("a", a.at, type, as_a, use::reads);
    call.add("inverse", inverse.at, type, as_inverse, use::writes);
    return call.run(n, n, n, type, [=](const task::place & at) {
        dense rights = {n, n, std::vector<complex>(size_t(n * n))};
        for (int64_t i = 0; i < n; ++i) {
            rights.at(i, i) = 1;
        }
        solve_triangle(seen(type, as_a, at.at[0]), taken::none, diagonal == diag_unit, true, rights);
        write_sum(1, rights, 0, seen(type, as_inverse, at.at[1]));
    });
}

} // namespace

extern "C" {

#define PARAMETERS_SYMM(V, M, P, I)                                                                                   \
    , word side, word fill, I m, I n, const void *alpha M(a, I) M(b, I), const void *beta M(c, I)
#define ARGUMENTS_SYMM(V, M, P) , side, fill, m, n, alpha M(a) M(b), beta M(c)
ALL_TYPES(SYMM, symm)
COMPLEX_FORMS(hipblasChemm, SYMM, hemm<number::complex_f32>)
COMPLEX_FORMS(hipblasZhemm, SYMM, hemm<number::complex_f64>)

#define PARAMETERS_SYRK(V, M, P, I)                                                                                   \
    , word fill, word op, I n, I k, const void *alpha M(a, I), const void *beta M(c, I)
#define ARGUMENTS_SYRK(V, M, P) , fill, op, n, k, alpha M(a), beta M(c)
ALL_TYPES(SYRK, syrk)
COMPLEX_FORMS(hipblasCherk, SYRK, herk<number::complex_f32>)
COMPLEX_FORMS(hipblasZherk, SYRK, herk<number::complex_f64>)

#define PARAMETERS_SYR2K(V, M, P, I)                                                                                  \
    , word fill, word op, I n, I k, const void *alpha M(a, I) M(b, I), const void *beta M(c, I)
#define ARGUMENTS_SYR2K(V, M, P) , fill, op, n, k, alpha M(a) M(b), beta M(c)
ALL_TYPES(SYR2K, syr2k)
ALL_TYPES(SYR2K, syrkx)
COMPLEX_FORMS(hipblasCher2k, SYR2K, her2k<number::complex_f32>)
COMPLEX_FORMS(hipblasZher2k, SYR2K, her2k<number::complex_f64>)
COMPLEX_FORMS(hipblasCherkx, SYR2K, herkx<number::complex_f32>)
COMPLEX_FORMS(hipblasZherkx, SYR2K, herkx<number::complex_f64>)

#define PARAMETERS_TRMM(V, M, P, I)                                                                                   \
    , word side, word fill, word op, word diagonal, I m, I n, const void *alpha M(a, I) M(b, I) M(c, I)
#define ARGUMENTS_TRMM(V, M, P) , side, fill, op, diagonal, m, n, alpha M(a) M(b) M(c)
ALL_TYPES(TRMM, trmm)

#define PARAMETERS_TRSM(V, M, P, I)                                                                                   \
    , word side, word fill, word op, word diagonal, I m, I n, const void *alpha M(a, I) M(b, I)
#define ARGUMENTS_TRSM(V, M, P) , side, fill, op, diagonal, m, n, alpha M(a) M(b)
ALL_TYPES(TRSM, trsm)

#define PARAMETERS_GEAM(V, M, P, I)                                                                                   \
    , word op_a, word op_b, I m, I n, const void *alpha M(a, I), const void *beta M(b, I) M(c, I)
#define ARGUMENTS_GEAM(V, M, P) , op_a, op_b, m, n, alpha M(a), beta M(b) M(c)
ALL_TYPES(GEAM, geam)

#define PARAMETERS_DGMM(V, M, P, I) , word side, I m, I n M(a, I) V(x, I) M(c, I)
#define ARGUMENTS_DGMM(V, M, P) , side, m, n M(a) V(x) M(c)
ALL_TYPES(DGMM, dgmm)

#define PARAMETERS_TRTRI(V, M, P, I) , word fill, word diagonal, I n M(a, I) M(inverse, I)
#define ARGUMENTS_TRTRI(V, M, P) , fill, diagonal, n M(a) M(inverse)
ALL_TYPES(TRTRI, trtri)

#define TRSM_EX(end, I)                                                                                               \
    int hipblasTrsmEx##end(handle_t handle, word side, word fill, word op, word diagonal, I m, I n,                   \
                           const void * alpha, void * a, I leading_a, void * b, I leading_b, const void *, I,         \
                           word compute) {                                                                            \
        return trsm_ex({"hipblasTrsmEx", handle, 1}, side, fill, op, diagonal, m, n, alpha, {"a", {a}, leading_a},    \
                       {"b", {b}, leading_b}, compute);                                                               \
    }                                                                                                                 \
    int hipblasTrsmBatchedEx##end(handle_t handle, word side, word fill, word op, word diagonal, I m, I n,            \
                                  const void * alpha, void * a, I leading_a, void * b, I leading_b, I batch,          \
                                  const void *, I, word compute) {                                                    \
        return trsm_ex({"hipblasTrsmBatchedEx", handle, batch}, side, fill, op, diagonal, m, n, alpha,                \
                       {"a", {a, 0, true}, leading_a}, {"b", {b, 0, true}, leading_b}, compute);                      \
    }                                                                                                                 \
    int hipblasTrsmStridedBatchedEx##end(handle_t handle, word side, word fill, word op, word diagonal, I m, I n,     \
                                         const void * alpha, void * a, I leading_a, long long stride_a, void * b,     \
                                         I leading_b, long long stride_b, I batch, const void *, I, long long,        \
                                         word compute) {                                                              \
        return trsm_ex({"hipblasTrsmStridedBatchedEx", handle, batch}, side, fill, op, diagonal, m, n, alpha,         \
                       {"a", {a, stride_a}, leading_a}, {"b", {b, stride_b}, leading_b}, compute);                    \
    }
TRSM_EX(, int)
TRSM_EX(_v2, int)
TRSM_EX(_64, int64_t)
TRSM_EX(_v2_64, int64_t)

} // extern "C"

} // namespace patchkit::blas
