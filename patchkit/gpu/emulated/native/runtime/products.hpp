// Matrix products and triangular systems on the CPU, in place of the GPU's BLAS library.
//
// Matrices are column-major. Factors are read as f32 (f64 as f64), sums are computed in f32 (in f64 for f64 results),
// alpha and beta are applied to the sum, and the result is rounded once, to nearest even, to its type. For a compute
// type of f16 this is more precise than the GPU's library: rocBLAS accumulates in the compute type ("HPA is active iff
// sizeof(compute type) > sizeof(input type)", tensile_host.cpp; its kernels of that type for gfx110x are solutions with
// HighPrecisionAccumulate: false that use matrix instructions, Logic/asm_full/navi31/navi31_Cijk_*_HB.yaml; read at
// b520bc83f of 2024-10), so sums that overflow or lose small terms there do not do so here. The order of summation does
// not depend on the number of threads; the CPU level decides whether multiply and add are fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace patchkit {

// Complex numbers are two of the type, real part first.
enum class number : uint8_t { f16, bf16, f32, f64, i8, i32, complex_f32, complex_f64 };

size_t bytes_of(number type);
const char * name_of(number type);

bool is_complex(number type);

// The number at that address; for complex numbers the real part.
double value_at(number type, const void * place);

// Rounds once, to nearest even; integers wrap around. For complex numbers this is the real part, and the imaginary part
// is unchanged.
void put_value(number type, void * place, double value);

// SIMD level of the CPU: all are compiled, and the best available one is used.
enum class cpu_level : uint8_t { plain, avx2, avx512 };

cpu_level best_cpu_level();

struct matrix {
    number type;
    bool is_transposed; // it is stored as its transpose
    int64_t leading;    // elements between columns
};

// C = alpha op(A) op(B) + beta C, where op(A) has m rows and k columns. A and B are not read if alpha or k is zero, C
// is not if beta is zero.
struct product {
    int64_t m, n, k;
    matrix a, b, c;
    double alpha, beta;
};

// The matrices of one element of a batch.
struct factors {
    const void * a;
    const void * b;
    void * c;
};

// Whether the types are supported: f64 only with f64, and neither integers nor complex numbers.
bool can_multiply(const product & wanted);

// Elements of a batch must not write what others read.
void multiply(const product & wanted, const std::vector<factors> & batch, unsigned threads,
              cpu_level level = best_cpu_level());

// X op(A) = alpha B, or op(A) X = alpha B with A on the left, in f32 or f64; A is triangular, X replaces B, which has m
// rows and n columns. A is not read if alpha is zero.
struct triangular_system {
    bool is_left, is_upper, is_transposed, has_unit_diagonal;
    int64_t m, n;
    int64_t leading_a, leading_b;
    double alpha;
    number type = number::f32;
};

struct sides {
    const void * a;
    void * b;
};

void solve(const triangular_system & wanted, const std::vector<sides> & batch, unsigned threads,
           cpu_level level = best_cpu_level());

} // namespace patchkit
