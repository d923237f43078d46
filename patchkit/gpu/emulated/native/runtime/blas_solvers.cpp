// hipBLAS solvers: factorisations, and systems of equations. Host results are available when the call returns: the
// number of an invalid argument, if there is one.

#include "blas_calls.hpp"

#include <algorithm>
#include <initializer_list>

namespace patchkit::blas {

namespace {

placed seen(number type, const layout & as, void * at) { return {{type, static_cast<std::byte *>(at)}, as}; }

layout full(int64_t rows, int64_t columns, int64_t leading, triangle stored = triangle::none) {
    return {rows, columns, leading, layout::form::full, stored};
}

layout list_of(int64_t size) { return {size, 1, std::max<int64_t>(size, 1)}; }

bool has_rows(const matrix & a, int64_t rows) { return a.leading >= std::max<int64_t>(rows, 1); }

// The negative number of the first invalid argument, as in the host's `info`; 0 if there is none. The handle is not
// counted, as LAPACK has none (hipBLAS's tests of geqrf expect this).
struct argument {
    int position;
    bool is_right;
};

// Positions of arguments that differ between forms: leading dimensions, and the batch size.
struct positions {
    int leading, leading_b, batch;
};

int first_wrong(std::initializer_list<argument> all) {
    for (const argument & one : all) {
        if (!one.is_right) {
            return -one.position;
        }
    }
    return 0;
}

void put(void * to, int64_t value) { *static_cast<int *>(to) = int(value); }

// A = P L U. `pivots` may be null: then no rows are exchanged.
template <number type>
int getrf(const form & of, int64_t n, const matrix & a, const operand & pivots, const operand & info) {
    task call(of);
    call.need(n >= 0 && has_rows(a, n));
    if (call.is_refused()) {
        return call.status();
    }
    const layout as_a     = full(n, n, a.leading);
    const bool has_pivots = pivots.address != nullptr;
    call.add("a", a.at, type, as_a, use::writes);
    call.add("info", info, number::i32, list_of(1), use::writes);
    if (has_pivots) {
        call.add("pivots", pivots, number::i32, list_of(n), use::writes);
    }
    return call.run(n, n, n, type, [=](const task::place & at) {
        if (n == 0) {
            put(at.at[1], 0);
            return;
        }
        dense factors = read(seen(type, as_a, at.at[0]));
        std::vector<int> exchanged;
        put(at.at[1], factorise(factors, has_pivots ? &exchanged : nullptr));
        write_sum(1, factors, 0, seen(type, as_a, at.at[0]));
        if (has_pivots) {
            std::copy(exchanged.begin(), exchanged.end(), static_cast<int *>(at.at[2]));
        }
    });
}

// Solves op(A) X = B with the factors of A.
void solve_by_factors(const placed & lower, const placed & upper, taken op, const std::vector<int> & exchanged, dense & b) {
    if (op == taken::none) {
        exchange_rows(b, exchanged, false);
        solve_triangle(lower, op, true, true, b);
        solve_triangle(upper, op, false, true, b);
    } else {
        solve_triangle(upper, op, false, true, b);
        solve_triangle(lower, op, true, true, b);
        exchange_rows(b, exchanged, true);
    }
}

std::vector<int> pivots_at(const void * place, int64_t n) {
    const auto * first = static_cast<const int *>(place);
    return place == nullptr ? std::vector<int>() : std::vector<int>(first, first + n);
}

template <number type>
int getrs(const form & of, word op, int64_t n, int64_t columns, const matrix & a, const operand & pivots,
          const matrix & b, int * info, const positions & at_place) {
    task call(of);
    if (info == nullptr || call.status() == not_initialized) {
        call.need(info != nullptr);
        return call.status();
    }
    *info = first_wrong({{1, is_operation(op)}, {2, n >= 0}, {3, columns >= 0}, {at_place.leading, has_rows(a, n)},
                         {at_place.leading_b, has_rows(b, n)}, {at_place.batch, of.batch >= 0}});
    call.need(*info == 0);
    if (call.is_refused() || n == 0 || columns == 0) {
        return call.status();
    }
    const layout as_a     = full(n, n, a.leading), as_b = full(n, columns, b.leading);
    const bool has_pivots = pivots.address != nullptr;
    call.add("a", a.at, type, as_a, use::reads);
    call.add("b", b.at, type, as_b, use::writes);
    if (has_pivots) {
        call.add("pivots", pivots, number::i32, list_of(n), use::reads);
    }
    return call.run(n, columns, n, type, [=](const task::place & at) {
        dense found = read(seen(type, as_b, at.at[1]));
        solve_by_factors(seen(type, full(n, n, a.leading, triangle::lower), at.at[0]),
                         seen(type, full(n, n, a.leading, triangle::upper), at.at[0]), taken_of(op),
                         pivots_at(has_pivots ? at.at[2] : nullptr, n), found);
        write_sum(1, found, 0, seen(type, as_b, at.at[1]));
    });
}

// The inverse, from the factors; for a singular matrix only the number of its first zero pivot is written.
template <number type>
int getri(const form & of, int64_t n, const matrix & a, const operand & pivots, const matrix & inverse, const operand & info) {
    task call(of);
    call.need(n >= 0 && has_rows(a, n) && has_rows(inverse, n));
    if (call.is_refused() || n == 0) {
        return call.status();
    }
    const layout as_a     = full(n, n, a.leading), as_inverse = full(n, n, inverse.leading);
    const bool has_pivots = pivots.address != nullptr;
    call.add("a", a.at, type, as_a, use::reads);
    call.add("inverse", inverse.at, type, as_inverse, use::writes);
    call.add("info", info, number::i32, list_of(1), use::writes);
    if (has_pivots) {
        call.add("pivots", pivots, number::i32, list_of(n), use::reads);
    }
    return call.run(n, n, n, type, [=](const task::place & at) {
        const placed upper = seen(type, full(n, n, a.leading, triangle::upper), at.at[0]);
        dense rights       = {n, n, std::vector<complex>(size_t(n * n))};
        for (int64_t i = 0; i < n; ++i) {
            if (upper.in.get(upper.as.offset(i, i)) == 0.0) {
                put(at.at[2], i + 1);
                return;
            }
            rights.at(i, i) = 1;
        }
        put(at.at[2], 0);
        solve_by_factors(seen(type, full(n, n, a.leading, triangle::lower), at.at[0]), upper, taken::none,
                         pivots_at(has_pivots ? at.at[3] : nullptr, n), rights);
        write_sum(1, rights, 0, seen(type, as_inverse, at.at[1]));
    });
}

// A = Q R, with the factors of the reflections.
template <number type>
int geqrf(const form & of, int64_t m, int64_t n, const matrix & a, const operand & factors, int * info, int batch_at) {
    task call(of);
    if (info == nullptr || call.status() == not_initialized) {
        call.need(info != nullptr);
        return call.status();
    }
    *info = first_wrong({{1, m >= 0}, {2, n >= 0}, {4, has_rows(a, m)}, {batch_at, of.batch >= 0}});
    call.need(*info == 0);
    if (call.is_refused() || m == 0 || n == 0) {
        return call.status();
    }
    const layout as_a = full(m, n, a.leading), as_factors = list_of(std::min(m, n));
    call.add("a", a.at, type, as_a, use::writes);
    call.add("factors", factors, type, as_factors, use::writes);
    return call.run(m, n, n, type, [=](const task::place & at) {
        dense reflected               = read(seen(type, as_a, at.at[0]));
        const std::vector<complex> by = reflect(reflected);
        write_sum(1, reflected, 0, seen(type, as_a, at.at[0]));
        const elements to = {type, static_cast<std::byte *>(at.at[1])};
        for (size_t i = 0; i < by.size(); ++i) {
            to.set(int64_t(i), by[i]);
        }
    });
}

// Solves R X = upper rows of B, or R^H X. Returns the number of the first zero of R, or 0.
int64_t solve_upper(const dense & r, int64_t n, bool is_adjoint, dense & b) {
    for (int64_t i = 0; i < n; ++i) {
        if (r.at(i, i) == 0.0) {
            return i + 1;
        }
    }
    for (int64_t column = 0; column < b.columns; ++column) {
        for (int64_t step = 0; step < n; ++step) {
            const int64_t i = is_adjoint ? step : n - 1 - step;
            complex sum     = b.at(i, column);
            for (int64_t k = is_adjoint ? 0 : i + 1; k < (is_adjoint ? i : n); ++k) {
                sum -= (is_adjoint ? std::conj(r.at(k, i)) : r.at(i, k)) * b.at(k, column);
            }
            b.at(i, column) = sum / (is_adjoint ? std::conj(r.at(i, i)) : r.at(i, i));
        }
    }
    return 0;
}

// Least-squares solution of op(A) X = B, or the minimum-norm one. X replaces B; A is unchanged, whereas LAPACK stores
// its factors there.
template <number type>
int gels(const form & of, word op, int64_t m, int64_t n, int64_t columns, const matrix & a, const matrix & b, int * info,
         const operand & failed, const positions & at_place) {
    task call(of);
    if (info == nullptr || call.status() == not_initialized) {
        call.need(info != nullptr);
        return call.status();
    }
    const int64_t longest = std::max(m, n);
    *info = first_wrong({{1, is_operation(op) && !(op == op_t && is_complex(type))}, {2, m >= 0}, {3, n >= 0},
                         {4, columns >= 0}, {at_place.leading, has_rows(a, m)},
                         {at_place.leading_b, has_rows(b, longest)}, {at_place.batch, of.batch >= 0}});
    call.need(*info == 0);
    if (call.is_refused() || m == 0 || n == 0 || columns == 0) {
        return call.status();
    }
    const layout as_a = full(m, n, a.leading), as_b = full(longest, columns, b.leading);
    call.add("a", a.at, type, as_a, use::reads);
    call.add("b", b.at, type, as_b, use::writes);
    call.add("failed", failed, number::i32, list_of(1), use::writes);
    return call.run(m, columns, n, type, [=](const task::place & at) {
        const int64_t rows = op == op_n ? m : n, unknowns = op == op_n ? n : m;
        const bool is_tall = rows >= unknowns;
        // The factorisation uses op(A) or its adjoint, whichever has more rows.
        const bool is_taken = (op != op_n) == is_tall;
        dense reflected     = read(seen(type, as_a, at.at[0]), is_taken ? taken::conjugated : taken::none);
        const std::vector<complex> by = reflect(reflected);
        dense found = read(seen(type, as_b, at.at[1]));
        const int64_t least = std::min(rows, unknowns);
        if (is_tall) {
            dense held = {rows, columns, {}};
            for (int64_t c = 0; c < columns; ++c) {
                for (int64_t i = 0; i < rows; ++i) {
                    held.values.push_back(found.at(i, c));
                }
            }
            apply_reflections(reflected, by, true, held);
            const int64_t zero = solve_upper(reflected, least, false, held);
            put(at.at[2], zero);
            if (zero != 0) {
                return;
            }
            for (int64_t c = 0; c < columns; ++c) {
                std::copy_n(&held.at(0, c), rows, &found.at(0, c));
            }
        } else {
            dense held = {unknowns, columns, std::vector<complex>(size_t(unknowns * columns))};
            for (int64_t c = 0; c < columns; ++c) {
                std::copy_n(&found.at(0, c), rows, &held.at(0, c));
            }
            const int64_t zero = solve_upper(reflected, least, true, held);
            put(at.at[2], zero);
            if (zero != 0) {
                return;
            }
            apply_reflections(reflected, by, false, held);
            for (int64_t c = 0; c < columns; ++c) {
                std::copy_n(&held.at(0, c), unknowns, &found.at(0, c));
            }
        }
        write_sum(1, found, 0, seen(type, as_b, at.at[1]));
    });
}

} // namespace

extern "C" {

// Plain, batched with lists, and batched with strides. For matrices in a list, pivots are stored contiguously.
#define SOLVERS_OF(letter, end, type)                                                                                 \
    int hipblas##letter##getrf##end(handle_t handle, int n, void * a, int leading, int * pivots, int * info) {        \
        return getrf<type>({"hipblas" #letter "getrf", handle, 1}, n, {"a", {a}, leading}, {pivots}, {info});         \
    }                                                                                                                 \
    int hipblas##letter##getrfBatched##end(handle_t handle, int n, void * a, int leading, int * pivots, int * info,   \
                                      int batch) {                                                                    \
        return getrf<type>({"hipblas" #letter "getrfBatched", handle, batch}, n, {"a", {a, 0, true}, leading},        \
                           {pivots, n}, {info, 1});                                                                   \
    }                                                                                                                 \
    int hipblas##letter##getrfStridedBatched##end(handle_t handle, int n, void * a, int leading, long long stride,    \
                                             int * pivots, long long stride_pivots, int * info, int batch) {          \
        return getrf<type>({"hipblas" #letter "getrfStridedBatched", handle, batch}, n, {"a", {a, stride}, leading},  \
                           {pivots, stride_pivots}, {info, 1});                                                       \
    }                                                                                                                 \
    int hipblas##letter##getrs##end(handle_t handle, word op, int n, int columns, void * a, int leading,              \
                               const int * pivots, void * b, int leading_b, int * info) {                             \
        return getrs<type>({"hipblas" #letter "getrs", handle, 1}, op, n, columns, {"a", {a}, leading}, {pivots},     \
                           {"b", {b}, leading_b}, info, {5, 8, 0});                                                   \
    }                                                                                                                 \
    int hipblas##letter##getrsBatched##end(handle_t handle, word op, int n, int columns, void * a, int leading,       \
                                      const int * pivots, void * b, int leading_b, int * info, int batch) {           \
        return getrs<type>({"hipblas" #letter "getrsBatched", handle, batch}, op, n, columns,                         \
                           {"a", {a, 0, true}, leading}, {pivots, n}, {"b", {b, 0, true}, leading_b}, info, {5, 8, 10}); \
    }                                                                                                                 \
    int hipblas##letter##getrsStridedBatched##end(handle_t handle, word op, int n, int columns, void * a, int leading, \
                                             long long stride, const int * pivots, long long stride_pivots, void * b, \
                                             int leading_b, long long stride_b, int * info, int batch) {              \
        return getrs<type>({"hipblas" #letter "getrsStridedBatched", handle, batch}, op, n, columns,                  \
                           {"a", {a, stride}, leading}, {pivots, stride_pivots}, {"b", {b, stride_b}, leading_b},     \
                           info, {5, 10, 13});                                                                        \
    }                                                                                                                 \
    int hipblas##letter##getriBatched##end(handle_t handle, int n, void * a, int leading, int * pivots, void * inverse, \
                                      int leading_inverse, int * info, int batch) {                                   \
        return getri<type>({"hipblas" #letter "getriBatched", handle, batch}, n, {"a", {a, 0, true}, leading},        \
                           {pivots, n}, {"inverse", {inverse, 0, true}, leading_inverse}, {info, 1});                 \
    }                                                                                                                 \
    int hipblas##letter##geqrf##end(handle_t handle, int m, int n, void * a, int leading, void * factors, int * info) { \
        return geqrf<type>({"hipblas" #letter "geqrf", handle, 1}, m, n, {"a", {a}, leading}, {factors}, info, 0);    \
    }                                                                                                                 \
    int hipblas##letter##geqrfBatched##end(handle_t handle, int m, int n, void * a, int leading, void * factors,      \
                                      int * info, int batch) {                                                        \
        return geqrf<type>({"hipblas" #letter "geqrfBatched", handle, batch}, m, n, {"a", {a, 0, true}, leading},     \
                           {factors, 0, true}, info, 7);                                                              \
    }                                                                                                                 \
    int hipblas##letter##geqrfStridedBatched##end(handle_t handle, int m, int n, void * a, int leading, long long stride, \
                                             void * factors, long long stride_factors, int * info, int batch) {       \
        return geqrf<type>({"hipblas" #letter "geqrfStridedBatched", handle, batch}, m, n,                            \
                           {"a", {a, stride}, leading}, {factors, stride_factors}, info, 9);                          \
    }                                                                                                                 \
    int hipblas##letter##gels##end(handle_t handle, word op, int m, int n, int columns, void * a, int leading, void * b, \
                              int leading_b, int * info, int * failed) {                                              \
        return gels<type>({"hipblas" #letter "gels", handle, 1}, op, m, n, columns, {"a", {a}, leading},              \
                          {"b", {b}, leading_b}, info, {failed}, {6, 8, 0});                                          \
    }                                                                                                                 \
    int hipblas##letter##gelsBatched##end(handle_t handle, word op, int m, int n, int columns, void * a, int leading, \
                                     void * b, int leading_b, int * info, int * failed, int batch) {                  \
        return gels<type>({"hipblas" #letter "gelsBatched", handle, batch}, op, m, n, columns,                        \
                          {"a", {a, 0, true}, leading}, {"b", {b, 0, true}, leading_b}, info, {failed, 1}, {6, 8, 11}); \
    }                                                                                                                 \
    int hipblas##letter##gelsStridedBatched##end(handle_t handle, word op, int m, int n, int columns, void * a,       \
                                            int leading, long long stride, void * b, int leading_b,                   \
                                            long long stride_b, int * info, int * failed, int batch) {                \
        return gels<type>({"hipblas" #letter "gelsStridedBatched", handle, batch}, op, m, n, columns,                 \
                          {"a", {a, stride}, leading}, {"b", {b, stride_b}, leading_b}, info, {failed, 1}, {6, 9, 13}); \
    }

SOLVERS_OF(S, , number::f32)
SOLVERS_OF(D, , number::f64)
SOLVERS_OF(C, , number::complex_f32)
SOLVERS_OF(Z, , number::complex_f64)
SOLVERS_OF(C, _v2, number::complex_f32)
SOLVERS_OF(Z, _v2, number::complex_f64)

} // extern "C"

} // namespace patchkit::blas
