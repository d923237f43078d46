#include "algebra.hpp"

#include "settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace patchkit {

complex elements::get(int64_t at) const {
    const std::byte * place = base + at * int64_t(bytes_of(type));
    switch (type) {
        case number::complex_f32: return {value_at(type, place), value_at(type, place + sizeof(float))};
        case number::complex_f64: return {value_at(type, place), value_at(type, place + sizeof(double))};
        default: return value_at(type, place);
    }
}

void elements::set(int64_t at, complex value) const {
    std::byte * place = base + at * int64_t(bytes_of(type));
    put_value(type, place, value.real());
    if (is_complex(type)) {
        put_value(type, place + bytes_of(type) / 2, value.imag());
    }
}

strided vector_at(number type, void * place, int64_t size, int64_t step) {
    const int64_t first = step < 0 && size > 1 ? (1 - size) * step : 0;
    return {{type, static_cast<std::byte *>(place) + first * int64_t(bytes_of(type))}, size, step};
}

int64_t layout::first_row(int64_t column) const {
    const int64_t first = stored == triangle::lower ? column : 0;
    return as == form::band ? std::max(first, column - above) : first;
}

int64_t layout::end_row(int64_t column) const {
    const int64_t end = stored == triangle::upper ? std::min(column + 1, rows) : rows;
    return as == form::band ? std::min(end, column + below + 1) : end;
}

int64_t layout::offset(int64_t row, int64_t column) const {
    switch (as) {
        case form::full: return row + column * leading;
        case form::band: return above + row - column + column * leading;
        case form::packed:
            return stored == triangle::upper ? row + column * (column + 1) / 2
                                             : row + column * (2 * rows - column - 1) / 2;
    }
    return 0;
}

uint64_t layout::extent() const {
    constexpr uint64_t all = std::numeric_limits<uint64_t>::max();
    uint64_t result;
    if (rows == 0 || columns == 0) {
        return 0;
    }
    if (as == form::packed) {
        return __builtin_mul_overflow(uint64_t(rows), uint64_t(rows) + 1, &result) ? all : result / 2;
    }
    const uint64_t last = uint64_t(as == form::band ? below + above + 1 : rows);
    return __builtin_mul_overflow(uint64_t(columns - 1), uint64_t(leading), &result) ||
                   __builtin_add_overflow(result, last, &result)
               ? all
               : result;
}

namespace {

// Every routine is instantiated twice: with real numbers only, it takes a quarter of the time.
template <typename T> struct of_type;

template <> struct of_type<double> {
    static double get(const elements & from, int64_t at) {
        // Fast path for the two most common types.
        if (from.type == number::f32) {
            return double(reinterpret_cast<const float *>(from.base)[at]);
        }
        if (from.type == number::f64) {
            return reinterpret_cast<const double *>(from.base)[at];
        }
        return value_at(from.type, from.base + at * int64_t(bytes_of(from.type)));
    }
    static void set(const elements & to, int64_t at, double value) {
        if (to.type == number::f32) {
            reinterpret_cast<float *>(to.base)[at] = float(value);
        } else if (to.type == number::f64) {
            reinterpret_cast<double *>(to.base)[at] = value;
        } else {
            put_value(to.type, to.base + at * int64_t(bytes_of(to.type)), value);
        }
    }
    static double from(complex value) { return value.real(); }
};

template <> struct of_type<complex> {
    static complex get(const elements & from, int64_t at) { return from.get(at); }
    static void set(const elements & to, int64_t at, complex value) { to.set(at, value); }
    static complex from(complex value) { return value; }
};

template <typename T> T get(const elements & from, int64_t at) { return of_type<T>::get(from, at); }
template <typename T> T get(const strided & from, int64_t i) { return get<T>(from.in, i * from.step); }
template <typename T> T get(const placed & from, int64_t row, int64_t column) {
    return get<T>(from.in, from.as.offset(row, column));
}
template <typename T> void set(const strided & to, int64_t i, T value) {
    of_type<T>::set(to.in, i * to.step, value);
}
template <typename T> void set(const placed & to, int64_t row, int64_t column, T value) {
    of_type<T>::set(to.in, to.as.offset(row, column), value);
}
template <typename T> T as(complex value) { return of_type<T>::from(value); }

double conjugate(double value) { return value; }
complex conjugate(const complex & value) { return std::conj(value); }
template <typename T> T conjugate_if(bool wanted, const T & value) { return wanted ? conjugate(value) : value; }

// The absolute value in asum and amax.
double size_of(double value) { return std::abs(value); }
double size_of(const complex & value) { return std::abs(value.real()) + std::abs(value.imag()); }

template <typename T> std::vector<T> values_of(const strided & x) {
    std::vector<T> result(size_t(x.size));
    for (int64_t i = 0; i < x.size; ++i) {
        result[size_t(i)] = get<T>(x, i);
    }
    return result;
}

template <typename T> void write(const strided & x, const std::vector<T> & values) {
    for (int64_t i = 0; i < x.size; ++i) {
        set<T>(x, i, values[size_t(i)]);
    }
}

// Calls `todo` with the type used for computing with these numbers.
template <typename Do> auto in_type_of(number type, Do todo) {
    return is_complex(type) ? todo(complex()) : todo(double());
}

} // namespace

// ---- Level 1.

void add_scaled(complex alpha, const strided & x, const strided & y) {
    in_type_of(y.in.type, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t i = 0; i < y.size; ++i) {
            set<T>(y, i, get<T>(y, i) + as<T>(alpha) * get<T>(x, i));
        }
    });
}

void scale(complex alpha, const strided & x) {
    in_type_of(x.in.type, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t i = 0; i < x.size; ++i) {
            set<T>(x, i, as<T>(alpha) * get<T>(x, i));
        }
    });
}

void copy(const strided & x, const strided & y) {
    for (int64_t i = 0; i < y.size; ++i) {
        y.in.set(i * y.step, x.in.get(i * x.step));
    }
}

void exchange(const strided & x, const strided & y) {
    for (int64_t i = 0; i < y.size; ++i) {
        const complex before = x.in.get(i * x.step);
        x.in.set(i * x.step, y.in.get(i * y.step));
        y.in.set(i * y.step, before);
    }
}

complex dot(const strided & x, const strided & y, bool is_conjugated) {
    return in_type_of(x.in.type, [&](auto zero) {
        using T = decltype(zero);
        // Independent sums, because additions of a single one would wait for each other.
        constexpr int64_t side_by_side = 8;
        std::array<T, side_by_side> sums{};
        for (int64_t i = 0; i < x.size; ++i) {
            sums[size_t(i % side_by_side)] += conjugate_if(is_conjugated, get<T>(x, i)) * get<T>(y, i);
        }
        return complex(std::accumulate(sums.begin(), sums.end(), T(0)));
    });
}

// Scaled by the largest element, so that no square overflows or underflows.
double norm(const strided & x) {
    double largest = 0;
    for (int64_t i = 0; i < x.size; ++i) {
        const complex value = x.in.get(i * x.step);
        const double size   = std::max(std::abs(value.real()), std::abs(value.imag()));
        if (std::isnan(value.real()) || std::isnan(value.imag())) {
            return std::numeric_limits<double>::quiet_NaN();
        }
        largest = std::max(largest, size);
    }
    if (largest == 0 || std::isinf(largest)) {
        return largest;
    }
    double sum = 0;
    for (int64_t i = 0; i < x.size; ++i) {
        sum += std::norm(x.in.get(i * x.step) / largest);
    }
    return largest * std::sqrt(sum);
}

double sum_of_sizes(const strided & x) {
    return in_type_of(x.in.type, [&](auto zero) {
        using T    = decltype(zero);
        double sum = 0;
        for (int64_t i = 0; i < x.size; ++i) {
            sum += size_of(get<T>(x, i));
        }
        return sum;
    });
}

int64_t find_extreme(const strided & x, bool is_largest) {
    return in_type_of(x.in.type, [&](auto zero) {
        using T        = decltype(zero);
        int64_t found  = x.size > 0 ? 1 : 0;
        double extreme = std::numeric_limits<double>::quiet_NaN();
        for (int64_t i = 0; i < x.size; ++i) {
            const double size = size_of(get<T>(x, i));
            if (std::isnan(size)) {
                continue;
            }
            if (std::isnan(extreme) || (is_largest ? size > extreme : size < extreme)) {
                extreme = size;
                found   = i + 1;
            }
        }
        return found;
    });
}

void rotate(const strided & x, const strided & y, double c, complex s) {
    for (int64_t i = 0; i < x.size; ++i) {
        const complex a = x.in.get(i * x.step), b = y.in.get(i * y.step);
        x.in.set(i * x.step, c * a + s * b);
        y.in.set(i * y.step, c * b - std::conj(s) * a);
    }
}

void rotate_modified(const strided & x, const strided & y, const double (&param)[5]) {
    const double flag = param[0];
    if (flag == -2) {
        return;
    }
    const double h11 = flag == 0 ? 1 : param[1], h22 = flag == 0 ? 1 : param[4];
    const double h21 = flag == 1 ? -1 : param[2], h12 = flag == 1 ? 1 : param[3];
    for (int64_t i = 0; i < x.size; ++i) {
        const double a = get<double>(x, i), b = get<double>(y, i);
        set<double>(x, i, h11 * a + h12 * b);
        set<double>(y, i, h21 * a + h22 * b);
    }
}

rotation rotation_of(complex a, complex b, bool is_real) {
    if (is_real) {
        const double x = a.real(), y = b.real();
        if (y == 0) {
            return {x, 0, 1, 0};
        }
        if (x == 0) {
            return {y, 1, 0, 1};
        }
        const double sign = std::abs(x) > std::abs(y) ? std::copysign(1.0, x) : std::copysign(1.0, y);
        const double r = sign * std::hypot(x, y), c = x / r, s = y / r;
        const double z = std::abs(x) > std::abs(y) ? s : c != 0 ? 1 / c : 1;
        return {r, z, c, s};
    }
    if (std::abs(a) == 0) {
        return {b, b, 0, 1};
    }
    const double size   = std::hypot(std::abs(a), std::abs(b));
    const complex angle = a / std::abs(a);
    return {angle * size, b, std::abs(a) / size, angle * std::conj(b) / size};
}

// As in BLAS (Lawson, Hanson, Kincaid and Krogh, ACM TOMS 5, 1979): factors are kept between 2^-24 and 2^24.
modified_rotation modified_rotation_of(double d1, double d2, double x1, double y1) {
    constexpr double most = 4096.0 * 4096, few = 1 / most, step = 4096;
    double h11 = 0, h12 = 0, h21 = 0, h22 = 0, flag = 0;
    const double p2 = d2 * y1;
    if (d1 < 0) {
        return {0, 0, 0, {-1, 0, 0, 0, 0}};
    }
    if (p2 == 0) {
        return {d1, d2, x1, {-2, 0, 0, 0, 0}};
    }
    const double p1 = d1 * x1, q1 = p1 * x1, q2 = p2 * y1;
    if (std::abs(q1) > std::abs(q2)) {
        h21            = -y1 / x1;
        h12            = p2 / p1;
        const double u = 1 - h12 * h21;
        if (u <= 0) {
            return {0, 0, 0, {-1, 0, 0, 0, 0}};
        }
        d1 /= u, d2 /= u, x1 *= u;
        h11 = h22 = 1;
    } else {
        if (q2 < 0) {
            return {0, 0, 0, {-1, 0, 0, 0, 0}};
        }
        flag           = 1;
        h11            = p1 / p2;
        h22            = x1 / y1;
        const double u = 1 + h11 * h22, before = d1;
        d1 = d2 / u, d2 = before / u, x1 = y1 * u;
        h12 = 1, h21 = -1;
    }
    while (d1 != 0 && (d1 <= few || d1 >= most)) {
        flag           = -1;
        const double f = d1 <= few ? step : 1 / step;
        d1 *= f * f, x1 /= f, h11 /= f, h12 /= f;
    }
    while (d2 != 0 && (std::abs(d2) <= few || std::abs(d2) >= most)) {
        flag           = -1;
        const double f = std::abs(d2) <= few ? step : 1 / step;
        d2 *= f * f, h21 /= f, h22 /= f;
    }
    if (flag == 0) {
        return {d1, d2, x1, {0, 0, h21, h12, 0}};
    }
    return flag == 1 ? modified_rotation{d1, d2, x1, {1, h11, 0, 0, h22}}
                     : modified_rotation{d1, d2, x1, {-1, h11, h21, h12, h22}};
}

// ---- Level 2.

void multiply_vector(complex alpha, const placed & a, taken op, mirrored mirror, const strided & x, complex beta,
                     const strided & y) {
    in_type_of(y.in.type, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> sums(size_t(y.size));
        if (alpha != 0.0) {
            const std::vector<T> factors = values_of<T>(x);
            const bool is_conjugated     = op == taken::conjugated;
            for (int64_t j = 0; j < a.as.columns; ++j) {
                for (int64_t i = a.as.first_row(j); i < a.as.end_row(j); ++i) {
                    T value = get<T>(a, i, j);
                    if (mirror == mirrored::hermitian && i == j) {
                        value = as<T>(complex(value).real());
                    }
                    if (op == taken::none) {
                        sums[size_t(i)] += value * factors[size_t(j)];
                    } else {
                        sums[size_t(j)] += conjugate_if(is_conjugated, value) * factors[size_t(i)];
                    }
                    if (mirror != mirrored::no && i != j) {
                        sums[size_t(j)] += conjugate_if(mirror == mirrored::hermitian, value) * factors[size_t(i)];
                    }
                }
            }
        }
        for (int64_t i = 0; i < y.size; ++i) {
            const T scaled = as<T>(alpha) * sums[size_t(i)];
            set<T>(y, i, beta == 0.0 ? scaled : scaled + as<T>(beta) * get<T>(y, i));
        }
    });
}

void add_outer(complex alpha, const strided & x, const strided & y, bool is_conjugated, const placed & a) {
    in_type_of(a.in.type, [&](auto zero) {
        using T                    = decltype(zero);
        const std::vector<T> left  = values_of<T>(x), right = values_of<T>(y);
        for (int64_t j = 0; j < a.as.columns; ++j) {
            const T factor = as<T>(alpha) * conjugate_if(is_conjugated, right[size_t(j)]);
            for (int64_t i = a.as.first_row(j); i < a.as.end_row(j); ++i) {
                T value = get<T>(a, i, j) + left[size_t(i)] * factor;
                if (is_conjugated && i == j && a.as.stored != triangle::none) {
                    value = as<T>(complex(value).real());
                }
                set<T>(a, i, j, value);
            }
        }
    });
}

void add_outer_twice(complex alpha, const strided & x, const strided & y, mirrored mirror, const placed & a) {
    in_type_of(a.in.type, [&](auto zero) {
        using T                     = decltype(zero);
        const std::vector<T> left   = values_of<T>(x), right = values_of<T>(y);
        const bool is_hermitian     = mirror == mirrored::hermitian;
        const T first               = as<T>(alpha), second = conjugate_if(is_hermitian, first);
        for (int64_t j = 0; j < a.as.columns; ++j) {
            const T of_y = first * conjugate_if(is_hermitian, right[size_t(j)]);
            const T of_x = second * conjugate_if(is_hermitian, left[size_t(j)]);
            for (int64_t i = a.as.first_row(j); i < a.as.end_row(j); ++i) {
                T value = get<T>(a, i, j) + left[size_t(i)] * of_y + right[size_t(i)] * of_x;
                if (is_hermitian && i == j) {
                    value = as<T>(complex(value).real());
                }
                set<T>(a, i, j, value);
            }
        }
    });
}

void multiply_triangle(const placed & a, taken op, bool has_unit_diagonal, const strided & x) {
    in_type_of(x.in.type, [&](auto zero) {
        using T                      = decltype(zero);
        const std::vector<T> factors = values_of<T>(x);
        std::vector<T> sums(factors.size());
        for (int64_t j = 0; j < a.as.columns; ++j) {
            for (int64_t i = a.as.first_row(j); i < a.as.end_row(j); ++i) {
                const T value = i == j && has_unit_diagonal ? T(1) : get<T>(a, i, j);
                if (op == taken::none) {
                    sums[size_t(i)] += value * factors[size_t(j)];
                } else {
                    sums[size_t(j)] += conjugate_if(op == taken::conjugated, value) * factors[size_t(i)];
                }
            }
        }
        write(x, sums);
    });
}

namespace {

// In place: by columns of A, or by rows of its transpose.
template <typename T> void solve_in(const placed & a, taken op, bool has_unit_diagonal, std::vector<T> & x) {
    const int64_t n       = a.as.columns;
    const bool is_lower   = a.as.stored == triangle::lower;
    const bool is_forward = is_lower == (op == taken::none);
    for (int64_t step = 0; step < n; ++step) {
        const int64_t j     = is_forward ? step : n - 1 - step;
        const int64_t begin = is_lower ? j + 1 : a.as.first_row(j), end = is_lower ? a.as.end_row(j) : j;
        const bool is_conjugated = op == taken::conjugated;
        if (op == taken::none) {
            if (!has_unit_diagonal) {
                x[size_t(j)] /= get<T>(a, j, j);
            }
            for (int64_t i = begin; i < end; ++i) {
                x[size_t(i)] -= get<T>(a, i, j) * x[size_t(j)];
            }
            continue;
        }
        for (int64_t i = begin; i < end; ++i) {
            x[size_t(j)] -= conjugate_if(is_conjugated, get<T>(a, i, j)) * x[size_t(i)];
        }
        if (!has_unit_diagonal) {
            x[size_t(j)] /= conjugate_if(is_conjugated, get<T>(a, j, j));
        }
    }
}

} // namespace

void solve_triangle(const placed & a, taken op, bool has_unit_diagonal, const strided & x) {
    in_type_of(x.in.type, [&](auto zero) {
        using T               = decltype(zero);
        std::vector<T> values = values_of<T>(x);
        solve_in(a, op, has_unit_diagonal, values);
        write(x, values);
    });
}

// ---- Level 3.

dense read(const placed & a, taken op, mirrored mirror, bool has_unit_diagonal) {
    const bool is_turned = op != taken::none;
    dense result         = {is_turned ? a.as.columns : a.as.rows, is_turned ? a.as.rows : a.as.columns, {}};
    result.values.resize(size_t(result.rows * result.columns));
    for (int64_t j = 0; j < a.as.columns; ++j) {
        for (int64_t i = a.as.first_row(j); i < a.as.end_row(j); ++i) {
            complex value = i == j && has_unit_diagonal ? complex(1) : get<complex>(a, i, j);
            if (i == j && mirror == mirrored::hermitian) {
                value = value.real();
            }
            if (mirror != mirrored::no) {
                result.at(j, i) = conjugate_if(mirror == mirrored::hermitian, value);
            }
            value                                       = conjugate_if(op == taken::conjugated, value);
            result.at(is_turned ? j : i, is_turned ? i : j) = value;
        }
    }
    return result;
}

namespace {

enum class half { real, imaginary };

std::vector<double> part_of(const dense & from, half which) {
    std::vector<double> result(from.values.size());
    for (size_t i = 0; i < result.size(); ++i) {
        result[i] = which == half::real ? from.values[i].real() : from.values[i].imag();
    }
    return result;
}

bool is_real(const dense & a) {
    return std::all_of(a.values.begin(), a.values.end(), [](const complex & one) { return one.imag() == 0; });
}

// C += alpha A B.
void multiply_halves(const dense & shape_a, const std::vector<double> & a, const dense & shape_b,
                     const std::vector<double> & b, double alpha, std::vector<double> & c) {
    const product wanted = {shape_a.rows,
                            shape_b.columns,
                            shape_a.columns,
                            {number::f64, false, std::max<int64_t>(shape_a.rows, 1)},
                            {number::f64, false, std::max<int64_t>(shape_b.rows, 1)},
                            {number::f64, false, std::max<int64_t>(shape_a.rows, 1)},
                            alpha,
                            1};
    multiply(wanted, {{a.data(), b.data(), c.data()}}, number_of_threads());
}

} // namespace

// Real and imaginary parts separately.
dense multiply(const dense & a, const dense & b) {
    dense result = {a.rows, b.columns, {}};
    result.values.resize(size_t(a.rows * b.columns));
    const bool has_imaginary_a = !is_real(a), has_imaginary_b = !is_real(b);
    const std::vector<double> real_a = part_of(a, half::real), real_b = part_of(b, half::real);
    std::vector<double> real(result.values.size()), imaginary(result.values.size());
    multiply_halves(a, real_a, b, real_b, 1, real);
    const std::vector<double> imaginary_a = has_imaginary_a ? part_of(a, half::imaginary) : std::vector<double>();
    const std::vector<double> imaginary_b = has_imaginary_b ? part_of(b, half::imaginary) : std::vector<double>();
    if (has_imaginary_a) {
        multiply_halves(a, imaginary_a, b, real_b, 1, imaginary);
    }
    if (has_imaginary_b) {
        multiply_halves(a, real_a, b, imaginary_b, 1, imaginary);
    }
    if (has_imaginary_a && has_imaginary_b) {
        multiply_halves(a, imaginary_a, b, imaginary_b, -1, real);
    }
    for (size_t i = 0; i < result.values.size(); ++i) {
        result.values[i] = {real[i], imaginary[i]};
    }
    return result;
}

void write_sum(complex alpha, const dense & product, complex beta, const placed & c, bool has_real_diagonal) {
    in_type_of(c.in.type, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t j = 0; j < c.as.columns; ++j) {
            for (int64_t i = c.as.first_row(j); i < c.as.end_row(j); ++i) {
                T value = alpha == 0.0 ? T(0) : as<T>(alpha * product.at(i, j));
                if (beta != 0.0) {
                    T before = get<T>(c, i, j);
                    if (has_real_diagonal && i == j) {
                        before = as<T>(complex(before).real());
                    }
                    value += as<T>(beta) * before;
                }
                if (has_real_diagonal && i == j) {
                    value = as<T>(complex(value).real());
                }
                set<T>(c, i, j, value);
            }
        }
    });
}

void solve_triangle(const placed & a, taken op, bool has_unit_diagonal, bool is_left, dense & b) {
    // X op(A) = B is op(A)^T X^T = B^T.
    const int64_t sides = is_left ? b.columns : b.rows;
    for (int64_t side = 0; side < sides; ++side) {
        std::vector<complex> x(size_t(is_left ? b.rows : b.columns));
        for (int64_t i = 0; i < int64_t(x.size()); ++i) {
            x[size_t(i)] = is_left ? b.at(i, side) : b.at(side, i);
        }
        if (is_left) {
            solve_in(a, op, has_unit_diagonal, x);
        } else if (op == taken::conjugated) {
            // conj(A) x = b is A conj(x) = conj(b).
            std::transform(x.begin(), x.end(), x.begin(), [](const complex & one) { return std::conj(one); });
            solve_in(a, taken::none, has_unit_diagonal, x);
            std::transform(x.begin(), x.end(), x.begin(), [](const complex & one) { return std::conj(one); });
        } else {
            solve_in(a, op == taken::none ? taken::transposed : taken::none, has_unit_diagonal, x);
        }
        for (int64_t i = 0; i < int64_t(x.size()); ++i) {
            (is_left ? b.at(i, side) : b.at(side, i)) = x[size_t(i)];
        }
    }
}

void add_matrices(complex alpha, const placed & a, taken op_a, complex beta, const placed & b, taken op_b,
                  const placed & c) {
    in_type_of(c.in.type, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> sums(size_t(c.as.rows * c.as.columns));
        const auto add = [&](complex factor, const placed & from, taken op) {
            for (int64_t j = 0; factor != 0.0 && j < c.as.columns; ++j) {
                for (int64_t i = 0; i < c.as.rows; ++i) {
                    const T value = op == taken::none ? get<T>(from, i, j) : get<T>(from, j, i);
                    sums[size_t(i + j * c.as.rows)] +=
                        as<T>(factor) * conjugate_if(op == taken::conjugated, value);
                }
            }
        };
        add(alpha, a, op_a);
        add(beta, b, op_b);
        for (int64_t j = 0; j < c.as.columns; ++j) {
            for (int64_t i = 0; i < c.as.rows; ++i) {
                set<T>(c, i, j, sums[size_t(i + j * c.as.rows)]);
            }
        }
    });
}

// ---- Factorisations.

int64_t factorise(dense & a, std::vector<int> * exchanged) {
    const int64_t n = std::min(a.rows, a.columns);
    int64_t failed  = 0;
    if (exchanged != nullptr) {
        exchanged->assign(size_t(n), 0);
    }
    for (int64_t j = 0; j < n; ++j) {
        int64_t pivot = j;
        for (int64_t i = j + 1; exchanged != nullptr && i < a.rows; ++i) {
            pivot = size_of(a.at(i, j)) > size_of(a.at(pivot, j)) ? i : pivot;
        }
        if (exchanged != nullptr) {
            (*exchanged)[size_t(j)] = int(pivot + 1);
        }
        if (a.at(pivot, j) == 0.0) {
            failed = failed == 0 ? j + 1 : failed;
            continue;
        }
        for (int64_t c = 0; pivot != j && c < a.columns; ++c) {
            std::swap(a.at(j, c), a.at(pivot, c));
        }
        for (int64_t i = j + 1; i < a.rows; ++i) {
            a.at(i, j) /= a.at(j, j);
        }
        for (int64_t c = j + 1; c < a.columns; ++c) {
            const complex factor = a.at(j, c);
            for (int64_t i = j + 1; i < a.rows; ++i) {
                a.at(i, c) -= a.at(i, j) * factor;
            }
        }
    }
    return failed;
}

void exchange_rows(dense & b, const std::vector<int> & exchanged, bool is_back) {
    for (size_t step = 0; step < exchanged.size(); ++step) {
        const size_t i      = is_back ? exchanged.size() - 1 - step : step;
        const int64_t other = exchanged[i] - 1;
        for (int64_t c = 0; other != int64_t(i) && other >= 0 && other < b.rows && c < b.columns; ++c) {
            std::swap(b.at(int64_t(i), c), b.at(other, c));
        }
    }
}

// The vector of reflection j is 1 at row j, followed by what is stored below the diagonal (LAPACK's geqrf).
std::vector<complex> reflect(dense & a) {
    const int64_t n = std::min(a.rows, a.columns);
    std::vector<complex> factors(size_t(n), 0.0);
    for (int64_t j = 0; j < n; ++j) {
        double below = 0;
        for (int64_t i = j + 1; i < a.rows; ++i) {
            below += std::norm(a.at(i, j));
        }
        const complex head = a.at(j, j);
        if (below == 0 && head.imag() == 0) {
            continue;
        }
        const double size  = -std::copysign(std::sqrt(std::norm(head) + below), head.real());
        const complex tau  = {(size - head.real()) / size, -head.imag() / size};
        factors[size_t(j)] = tau;
        for (int64_t i = j + 1; i < a.rows; ++i) {
            a.at(i, j) /= head - size;
        }
        a.at(j, j) = size;
        for (int64_t c = j + 1; c < a.columns; ++c) {
            complex sum = a.at(j, c);
            for (int64_t i = j + 1; i < a.rows; ++i) {
                sum += std::conj(a.at(i, j)) * a.at(i, c);
            }
            sum *= std::conj(tau);
            a.at(j, c) -= sum;
            for (int64_t i = j + 1; i < a.rows; ++i) {
                a.at(i, c) -= a.at(i, j) * sum;
            }
        }
    }
    return factors;
}

void apply_reflections(const dense & a, const std::vector<complex> & factors, bool is_adjoint, dense & b) {
    for (size_t step = 0; step < factors.size(); ++step) {
        const size_t which = is_adjoint ? step : factors.size() - 1 - step;
        const int64_t j    = int64_t(which);
        const complex tau  = conjugate_if(is_adjoint, factors[which]);
        for (int64_t c = 0; c < b.columns; ++c) {
            complex sum = b.at(j, c);
            for (int64_t i = j + 1; i < a.rows; ++i) {
                sum += std::conj(a.at(i, j)) * b.at(i, c);
            }
            sum *= tau;
            b.at(j, c) -= sum;
            for (int64_t i = j + 1; i < a.rows; ++i) {
                b.at(i, c) -= a.at(i, j) * sum;
            }
        }
    }
}

} // namespace patchkit
