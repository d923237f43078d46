// Vectors and matrices in BLAS layouts, and the sequential implementation of BLAS routines.
//
// Everything is converted to f64, computed in f64, and rounded once to the result's type, so no routine is less exact
// than the GPU's library, whatever its order of summation. Only matrix products of f16, f32 and f64 (products.hpp), and
// large systems in f32, have a faster implementation.
#pragma once

#include "products.hpp"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace patchkit {

using complex = std::complex<double>;

// Numbers of one type, with element 0 at `base`.
struct elements {
    number type;
    std::byte * base;

    complex get(int64_t at) const;
    void set(int64_t at, complex value) const;
};

// A vector of `size` elements with a stride, from its first element; the stride may be negative.
struct strided {
    elements in;
    int64_t size;
    int64_t step;
};

// `place` is the lowest address of a BLAS vector; with a negative stride the first element is at its end.
strided vector_at(number type, void * place, int64_t size, int64_t step);

enum class triangle : uint8_t { none, lower, upper };

// Which elements of a matrix are stored, and where: column-major in full, as a band with a number of diagonals below
// and above the main one, or a packed triangle.
struct layout {
    enum class form : uint8_t { full, band, packed };

    int64_t rows, columns;
    int64_t leading           = 0; // elements between columns, if it is not packed
    form as                   = form::full;
    triangle stored           = triangle::none;
    int64_t below = 0, above  = 0; // diagonals of a band

    int64_t first_row(int64_t column) const;
    int64_t end_row(int64_t column) const;
    int64_t offset(int64_t row, int64_t column) const;

    // Upper bound of the distance from the first to the last element.
    uint64_t extent() const;
};

struct placed {
    elements in;
    layout as;
};

// How a matrix is used: as it is, transposed, or conjugate-transposed.
enum class taken : uint8_t { none, transposed, conjugated };

// What a stored triangle represents.
enum class mirrored : uint8_t { no, symmetric, hermitian };

// ---- Level 1.

void add_scaled(complex alpha, const strided & x, const strided & y); // y += alpha x
void scale(complex alpha, const strided & x);
void copy(const strided & x, const strided & y);
void exchange(const strided & x, const strided & y);
complex dot(const strided & x, const strided & y, bool is_conjugated); // of x
double norm(const strided & x);
double sum_of_sizes(const strided & x);

// The 1-based index of the first element with the largest, or smallest, absolute value; 0 if empty. NaN is ignored.
int64_t find_extreme(const strided & x, bool is_largest);

void rotate(const strided & x, const strided & y, double c, complex s);
void rotate_modified(const strided & x, const strided & y, const double (&param)[5]);

// A rotation that makes b zero. a becomes r, b becomes z for real numbers, as in BLAS.
struct rotation {
    complex a, b;
    double c;
    complex s;
};

rotation rotation_of(complex a, complex b, bool is_real);

struct modified_rotation {
    double d1, d2, x1;
    double param[5];
};

modified_rotation modified_rotation_of(double d1, double d2, double x1, double y1);

// ---- Level 2.

// y = alpha op(A) x + beta y. y is not read when beta is zero.
void multiply_vector(complex alpha, const placed & a, taken op, mirrored as, const strided & x, complex beta,
                     const strided & y);

// A += alpha x y^T, optionally with conjugated y; only the stored part of A.
void add_outer(complex alpha, const strided & x, const strided & y, bool is_conjugated, const placed & a);

// A += alpha x y^T + alpha y x^T; Hermitian: alpha x y^H + conj(alpha) y x^H.
void add_outer_twice(complex alpha, const strided & x, const strided & y, mirrored as, const placed & a);

void multiply_triangle(const placed & a, taken op, bool has_unit_diagonal, const strided & x); // x = op(A) x
void solve_triangle(const placed & a, taken op, bool has_unit_diagonal, const strided & x);    // op(A) x = b

// ---- Level 3. B and C are not read when beta is zero; A and B are not when alpha is.

// A dense column-major matrix.
struct dense {
    int64_t rows, columns;
    std::vector<complex> values;

    complex & at(int64_t row, int64_t column) { return values[size_t(row + column * rows)]; }
    const complex & at(int64_t row, int64_t column) const { return values[size_t(row + column * rows)]; }
};

dense read(const placed & a, taken op = taken::none, mirrored as = mirrored::no,
           bool has_unit_diagonal = false);
dense multiply(const dense & a, const dense & b);

// C = alpha product + beta C, for the stored part of C.
void write_sum(complex alpha, const dense & product, complex beta, const placed & c, bool has_real_diagonal = false);

// op(A) X = B with X replacing B, or X op(A) = B.
void solve_triangle(const placed & a, taken op, bool has_unit_diagonal, bool is_left, dense & b);

// C = alpha op(A) + beta op(B), which may be the same matrix.
void add_matrices(complex alpha, const placed & a, taken op_a, complex beta, const placed & b, taken op_b,
                  const placed & c);

// ---- Factorisations.

// A = P L U in place. `exchanged` gets the 1-based row exchanged with each row; null: no pivoting. Returns the number
// of the first zero pivot, or 0.
int64_t factorise(dense & a, std::vector<int> * exchanged);

// Applies the row exchanges, forwards or backwards.
void exchange_rows(dense & b, const std::vector<int> & exchanged, bool is_back);

// A = Q R in place, by reflections; returns their factors `tau`.
std::vector<complex> reflect(dense & a);

// Q^H B, or Q B.
void apply_reflections(const dense & a, const std::vector<complex> & tau, bool is_adjoint, dense & b);

} // namespace patchkit
