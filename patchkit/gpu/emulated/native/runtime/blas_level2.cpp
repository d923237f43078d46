// hipBLAS, level 2: matrix-vector operations.

#include "blas_calls.hpp"

#include <algorithm>

namespace patchkit::blas {

namespace {

using form_of_matrix = layout::form;

strided seen(const vector & x, number type, int64_t n, void * at) { return vector_at(type, at, n, x.step); }
placed seen(number type, const layout & as, void * at) { return {{type, static_cast<std::byte *>(at)}, as}; }

layout full(int64_t rows, int64_t columns, int64_t leading, triangle stored = triangle::none) {
    return {rows, columns, leading, form_of_matrix::full, stored};
}

layout packed(int64_t n, word fill) { return {n, n, 0, form_of_matrix::packed, triangle_of(fill)}; }

// A triangular band is stored like a band with zero diagonals on the other side.
layout band(int64_t n, int64_t k, int64_t leading, word fill) {
    const bool is_upper = fill == fill_upper;
    return {n, n, leading, form_of_matrix::band, triangle_of(fill), is_upper ? 0 : k, is_upper ? k : 0};
}

// Common parameters of these calls, besides operands.
struct sums {
    const void * alpha;
    const void * beta;
};

// y = alpha op(A) x + beta y.
template <number type>
int multiplied(task & call, const layout & as, word op, mirrored mirror, const matrix & a, const vector & x,
               const vector & y, const sums & by) {
    const bool is_turned = op != op_n;
    const int64_t width = is_turned ? as.rows : as.columns, height = is_turned ? as.columns : as.rows;
    call.need(x.step != 0 && y.step != 0);
    if (call.is_refused() || as.rows == 0 || as.columns == 0) {
        return call.status();
    }
    const int alpha = call.scalar("alpha", by.alpha, type), beta = call.scalar("beta", by.beta, type);
    call.add(a.name, a.at, type, as, use::reads, {alpha});
    call.add(x, type, width, use::reads, {alpha});
    call.add(y, type, height, use::writes);
    return call.run(height, 1, width, type, [=](const task::place & at) {
        multiply_vector(at.scalars[size_t(alpha)], seen(type, as, at.at[0]), taken_of(op), mirror,
                        seen(x, type, width, at.at[1]), at.scalars[size_t(beta)], seen(y, type, height, at.at[2]));
    });
}

template <number type>
int gemv(const form & of, word op, int64_t m, int64_t n, const void * alpha, const matrix & a, const vector & x,
         const void * beta, const vector & y) {
    task call(of);
    call.need(is_operation(op), invalid_enum);
    call.need(m >= 0 && n >= 0 && a.leading >= std::max<int64_t>(m, 1));
    return multiplied<type>(call, full(m, n, a.leading), op, mirrored::no, a, x, y, {alpha, beta});
}

template <number type>
int gbmv(const form & of, word op, int64_t m, int64_t n, int64_t below, int64_t above, const void * alpha,
         const matrix & a, const vector & x, const void * beta, const vector & y) {
    task call(of);
    call.need(is_operation(op), invalid_enum);
    call.need(m >= 0 && n >= 0 && below >= 0 && above >= 0 && a.leading >= below + above + 1);
    const layout as = {m, n, a.leading, form_of_matrix::band, triangle::none, below, above};
    return multiplied<type>(call, as, op, mirrored::no, a, x, y, {alpha, beta});
}

template <number type, mirrored mirror>
int full_mirrored(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x,
                  const void * beta, const vector & y) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && a.leading >= std::max<int64_t>(n, 1));
    return multiplied<type>(call, full(n, n, a.leading, triangle_of(fill)), op_n, mirror, a, x, y, {alpha, beta});
}

template <number type, mirrored mirror>
int band_mirrored(const form & of, word fill, int64_t n, int64_t k, const void * alpha, const matrix & a,
                  const vector & x, const void * beta, const vector & y) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && k >= 0 && a.leading >= k + 1);
    return multiplied<type>(call, band(n, k, a.leading, fill), op_n, mirror, a, x, y, {alpha, beta});
}

template <number type, mirrored mirror>
int packed_mirrored(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x,
                    const void * beta, const vector & y) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0);
    return multiplied<type>(call, packed(n, fill), op_n, mirror, a, x, y, {alpha, beta});
}

template <number type> int symv(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return full_mirrored<type, mirrored::symmetric>(of, fill, n, alpha, a, x, beta, y);
}
template <number type> int hemv(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return full_mirrored<type, mirrored::hermitian>(of, fill, n, alpha, a, x, beta, y);
}
template <number type> int sbmv(const form & of, word fill, int64_t n, int64_t k, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return band_mirrored<type, mirrored::symmetric>(of, fill, n, k, alpha, a, x, beta, y);
}
template <number type> int hbmv(const form & of, word fill, int64_t n, int64_t k, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return band_mirrored<type, mirrored::hermitian>(of, fill, n, k, alpha, a, x, beta, y);
}
template <number type> int spmv(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return packed_mirrored<type, mirrored::symmetric>(of, fill, n, alpha, a, x, beta, y);
}
template <number type> int hpmv(const form & of, word fill, int64_t n, const void * alpha, const matrix & a, const vector & x, const void * beta, const vector & y) {
    return packed_mirrored<type, mirrored::hermitian>(of, fill, n, alpha, a, x, beta, y);
}

// A += alpha x y^T, optionally with conjugated y. `scalar` is the type of alpha.
template <number type>
int outer(task & call, const layout & as, const void * alpha, number of_alpha, const vector & x, const vector & y,
          bool is_conjugated, const matrix & a) {
    call.need(x.step != 0 && y.step != 0);
    if (call.is_refused() || as.rows == 0 || as.columns == 0) {
        return call.status();
    }
    const int factor = call.scalar("alpha", alpha, of_alpha);
    call.add(x, type, as.rows, use::reads, {factor});
    call.add(y, type, as.columns, use::reads, {factor});
    call.add(a.name, a.at, type, as, use::writes, {factor});
    return call.run(as.rows, as.columns, 1, type, [=](const task::place & at) {
        if (at.scalars[0] != 0.0) {
            add_outer(at.scalars[0], seen(x, type, as.rows, at.at[0]), seen(y, type, as.columns, at.at[1]),
                      is_conjugated, seen(type, as, at.at[2]));
        }
    });
}

template <number type, bool is_conjugated>
int general_outer(const form & of, int64_t m, int64_t n, const void * alpha, const vector & x, const vector & y,
                  const matrix & a) {
    task call(of);
    call.need(m >= 0 && n >= 0 && a.leading >= std::max<int64_t>(m, 1));
    return outer<type>(call, full(m, n, a.leading), alpha, type, x, y, is_conjugated, a);
}

template <number type> int ger(const form & of, int64_t m, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return general_outer<type, false>(of, m, n, alpha, x, y, a);
}
template <number type> int gerc(const form & of, int64_t m, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return general_outer<type, true>(of, m, n, alpha, x, y, a);
}

constexpr number real_of(number type) { return type == number::complex_f32 ? number::f32 : number::f64; }

// Rank-1 update with one vector: alpha is real if Hermitian.
template <number type, bool is_hermitian>
int square(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const matrix & a, bool is_packed) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && (is_packed || a.leading >= std::max<int64_t>(n, 1)));
    const layout as = is_packed ? packed(n, fill) : full(n, n, a.leading, triangle_of(fill));
    return outer<type>(call, as, alpha, is_hermitian ? real_of(type) : type, x, x, is_hermitian, a);
}

template <number type> int syr(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const matrix & a) {
    return square<type, false>(of, fill, n, alpha, x, a, false);
}
template <number type> int her(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const matrix & a) {
    return square<type, true>(of, fill, n, alpha, x, a, false);
}
template <number type> int spr(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const matrix & a) {
    return square<type, false>(of, fill, n, alpha, x, a, true);
}
template <number type> int hpr(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const matrix & a) {
    return square<type, true>(of, fill, n, alpha, x, a, true);
}

template <number type, mirrored mirror>
int twice(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a,
          bool is_packed) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && x.step != 0 && y.step != 0 && (is_packed || a.leading >= std::max<int64_t>(n, 1)));
    if (call.is_refused() || n == 0) {
        return call.status();
    }
    const layout as  = is_packed ? packed(n, fill) : full(n, n, a.leading, triangle_of(fill));
    const int factor = call.scalar("alpha", alpha, type);
    call.add(x, type, n, use::reads, {factor});
    call.add(y, type, n, use::reads, {factor});
    call.add(a.name, a.at, type, as, use::writes, {factor});
    return call.run(n, n, 2, type, [=](const task::place & at) {
        if (at.scalars[0] != 0.0) {
            add_outer_twice(at.scalars[0], seen(x, type, n, at.at[0]), seen(y, type, n, at.at[1]), mirror,
                            seen(type, as, at.at[2]));
        }
    });
}

template <number type> int syr2(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return twice<type, mirrored::symmetric>(of, fill, n, alpha, x, y, a, false);
}
template <number type> int her2(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return twice<type, mirrored::hermitian>(of, fill, n, alpha, x, y, a, false);
}
template <number type> int spr2(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return twice<type, mirrored::symmetric>(of, fill, n, alpha, x, y, a, true);
}
template <number type> int hpr2(const form & of, word fill, int64_t n, const void * alpha, const vector & x, const vector & y, const matrix & a) {
    return twice<type, mirrored::hermitian>(of, fill, n, alpha, x, y, a, true);
}

// x = op(A) x, or x replaced by the solution of op(A) x = b.
using triangular = void (*)(const placed &, taken, bool, const strided &);

template <number type>
int with_triangle(task & call, const layout & as, word op, word diagonal, const matrix & a, const vector & x,
                  triangular routine) {
    call.need(is_operation(op) && is_diagonal(diagonal), invalid_enum);
    call.need(x.step != 0);
    if (call.is_refused() || as.rows == 0) {
        return call.status();
    }
    call.add(a.name, a.at, type, as, use::reads);
    call.add(x, type, as.rows, use::writes);
    return call.run(as.rows, 1, as.rows, type, [=](const task::place & at) {
        routine(seen(type, as, at.at[0]), taken_of(op), diagonal == diag_unit, seen(x, type, as.rows, at.at[1]));
    });
}

template <number type>
int full_triangle(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x,
                  triangular routine) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && a.leading >= std::max<int64_t>(n, 1));
    return with_triangle<type>(call, full(n, n, a.leading, triangle_of(fill)), op, diagonal, a, x, routine);
}

template <number type>
int band_triangle(const form & of, word fill, word op, word diagonal, int64_t n, int64_t k, const matrix & a,
                  const vector & x, triangular routine) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0 && k >= 0 && a.leading >= k + 1);
    return with_triangle<type>(call, band(n, k, a.leading, fill), op, diagonal, a, x, routine);
}

template <number type>
int packed_triangle(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x,
                    triangular routine) {
    task call(of);
    call.need(is_fill(fill), invalid_enum);
    call.need(n >= 0);
    return with_triangle<type>(call, packed(n, fill), op, diagonal, a, x, routine);
}

template <number type> int trmv(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x) {
    return full_triangle<type>(of, fill, op, diagonal, n, a, x, multiply_triangle);
}
template <number type> int trsv(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x) {
    return full_triangle<type>(of, fill, op, diagonal, n, a, x, solve_triangle);
}
template <number type> int tbmv(const form & of, word fill, word op, word diagonal, int64_t n, int64_t k, const matrix & a, const vector & x) {
    return band_triangle<type>(of, fill, op, diagonal, n, k, a, x, multiply_triangle);
}
template <number type> int tbsv(const form & of, word fill, word op, word diagonal, int64_t n, int64_t k, const matrix & a, const vector & x) {
    return band_triangle<type>(of, fill, op, diagonal, n, k, a, x, solve_triangle);
}
template <number type> int tpmv(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x) {
    return packed_triangle<type>(of, fill, op, diagonal, n, a, x, multiply_triangle);
}
template <number type> int tpsv(const form & of, word fill, word op, word diagonal, int64_t n, const matrix & a, const vector & x) {
    return packed_triangle<type>(of, fill, op, diagonal, n, a, x, solve_triangle);
}

} // namespace

extern "C" {

#define PARAMETERS_GEMV(V, M, P, I) , word op, I m, I n, const void *alpha M(a, I) V(x, I), const void *beta V(y, I)
#define ARGUMENTS_GEMV(V, M, P) , op, m, n, alpha M(a) V(x), beta V(y)
ALL_TYPES(GEMV, gemv)

#define PARAMETERS_GBMV(V, M, P, I)                                                                                   \
    , word op, I m, I n, I below, I above, const void *alpha M(a, I) V(x, I), const void *beta V(y, I)
#define ARGUMENTS_GBMV(V, M, P) , op, m, n, below, above, alpha M(a) V(x), beta V(y)
ALL_TYPES(GBMV, gbmv)

#define PARAMETERS_SYMV(V, M, P, I) , word fill, I n, const void *alpha M(a, I) V(x, I), const void *beta V(y, I)
#define ARGUMENTS_SYMV(V, M, P) , fill, n, alpha M(a) V(x), beta V(y)
ALL_TYPES(SYMV, symv)
COMPLEX_FORMS(hipblasChemv, SYMV, hemv<number::complex_f32>)
COMPLEX_FORMS(hipblasZhemv, SYMV, hemv<number::complex_f64>)

#define PARAMETERS_SBMV(V, M, P, I) , word fill, I n, I k, const void *alpha M(a, I) V(x, I), const void *beta V(y, I)
#define ARGUMENTS_SBMV(V, M, P) , fill, n, k, alpha M(a) V(x), beta V(y)
REAL_TYPES(SBMV, sbmv)
COMPLEX_FORMS(hipblasChbmv, SBMV, hbmv<number::complex_f32>)
COMPLEX_FORMS(hipblasZhbmv, SBMV, hbmv<number::complex_f64>)

#define PARAMETERS_SPMV(V, M, P, I) , word fill, I n, const void *alpha P(a, I) V(x, I), const void *beta V(y, I)
#define ARGUMENTS_SPMV(V, M, P) , fill, n, alpha P(a) V(x), beta V(y)
REAL_TYPES(SPMV, spmv)
COMPLEX_FORMS(hipblasChpmv, SPMV, hpmv<number::complex_f32>)
COMPLEX_FORMS(hipblasZhpmv, SPMV, hpmv<number::complex_f64>)

#define PARAMETERS_GER(V, M, P, I) , I m, I n, const void *alpha V(x, I) V(y, I) M(a, I)
#define ARGUMENTS_GER(V, M, P) , m, n, alpha V(x) V(y) M(a)
REAL_TYPES(GER, ger)
COMPLEX_FORMS(hipblasCgeru, GER, ger<number::complex_f32>)
COMPLEX_FORMS(hipblasZgeru, GER, ger<number::complex_f64>)
COMPLEX_FORMS(hipblasCgerc, GER, gerc<number::complex_f32>)
COMPLEX_FORMS(hipblasZgerc, GER, gerc<number::complex_f64>)

#define PARAMETERS_SYR(V, M, P, I) , word fill, I n, const void *alpha V(x, I) M(a, I)
#define ARGUMENTS_SYR(V, M, P) , fill, n, alpha V(x) M(a)
ALL_TYPES(SYR, syr)
COMPLEX_FORMS(hipblasCher, SYR, her<number::complex_f32>)
COMPLEX_FORMS(hipblasZher, SYR, her<number::complex_f64>)

#define PARAMETERS_SPR(V, M, P, I) , word fill, I n, const void *alpha V(x, I) P(a, I)
#define ARGUMENTS_SPR(V, M, P) , fill, n, alpha V(x) P(a)
ALL_TYPES(SPR, spr)
COMPLEX_FORMS(hipblasChpr, SPR, hpr<number::complex_f32>)
COMPLEX_FORMS(hipblasZhpr, SPR, hpr<number::complex_f64>)

#define PARAMETERS_SYR2(V, M, P, I) , word fill, I n, const void *alpha V(x, I) V(y, I) M(a, I)
#define ARGUMENTS_SYR2(V, M, P) , fill, n, alpha V(x) V(y) M(a)
ALL_TYPES(SYR2, syr2)
COMPLEX_FORMS(hipblasCher2, SYR2, her2<number::complex_f32>)
COMPLEX_FORMS(hipblasZher2, SYR2, her2<number::complex_f64>)

#define PARAMETERS_SPR2(V, M, P, I) , word fill, I n, const void *alpha V(x, I) V(y, I) P(a, I)
#define ARGUMENTS_SPR2(V, M, P) , fill, n, alpha V(x) V(y) P(a)
REAL_TYPES(SPR2, spr2)
COMPLEX_FORMS(hipblasChpr2, SPR2, hpr2<number::complex_f32>)
COMPLEX_FORMS(hipblasZhpr2, SPR2, hpr2<number::complex_f64>)

#define PARAMETERS_TRMV(V, M, P, I) , word fill, word op, word diagonal, I n M(a, I) V(x, I)
#define ARGUMENTS_TRMV(V, M, P) , fill, op, diagonal, n M(a) V(x)
ALL_TYPES(TRMV, trmv)
ALL_TYPES(TRMV, trsv)

#define PARAMETERS_TBMV(V, M, P, I) , word fill, word op, word diagonal, I n, I k M(a, I) V(x, I)
#define ARGUMENTS_TBMV(V, M, P) , fill, op, diagonal, n, k M(a) V(x)
ALL_TYPES(TBMV, tbmv)
ALL_TYPES(TBMV, tbsv)

#define PARAMETERS_TPMV(V, M, P, I) , word fill, word op, word diagonal, I n P(a, I) V(x, I)
#define ARGUMENTS_TPMV(V, M, P) , fill, op, diagonal, n P(a) V(x)
ALL_TYPES(TPMV, tpmv)
ALL_TYPES(TPMV, tpsv)

} // extern "C"

} // namespace patchkit::blas
