// Matrix products and triangular systems on the CPU: what the emulated GPU's BLAS library computes.
//
// Matrices lie column by column, as BLAS has them. Factors are read as f32 (f64 as f64), sums are kept in f32 (in
// f64 where the result is f64), alpha and beta are applied to the sum, and the result is rounded once, to nearest
// even, to its type. For a compute type of f16 that is more than the GPU's library keeps: rocBLAS accumulates in the
// compute type ("HPA is active iff sizeof(compute type) > sizeof(input type)", tensile_host.cpp; its kernels of that
// type for gfx110x are solutions with HighPrecisionAccumulate: false that use matrix instructions,
// Logic/asm_full/navi31/navi31_Cijk_*_HB.yaml; read at b520bc83f of 2024-10), so sums that overflow or lose small
// terms there do not here. The order of a sum does not depend on the number of threads; the CPU's level decides
// whether a product and a sum are rounded together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace patchkit {

// Complex numbers are two of the type, the real part first.
enum class number : uint8_t { f16, bf16, f32, f64, i8, i32, complex_f32, complex_f64 };

size_t bytes_of(number type);
const char * name_of(number type);

bool is_complex(number type);

// The number of that type that lies there, of a complex one the real part.
double value_at(number type, const void * place);

// Rounded once, to nearest even, and so small that an integer has it; of a complex number this is the real part, and
// the other one stays.
void put_value(number type, void * place, double value);

// How wide the CPU computes: each level is compiled, the best that the CPU has is used.
enum class cpu_level : uint8_t { plain, avx2, avx512 };

cpu_level best_cpu_level();

struct matrix {
    number type;
    bool is_transposed; // it is stored as its transpose
    int64_t leading;    // elements from one column to the next
};

// C = alpha op(A) op(B) + beta C, where op(A) has m rows and k columns. A and B are not read when alpha or k is
// zero, C is not when beta is zero.
struct product {
    int64_t m, n, k;
    matrix a, b, c;
    double alpha, beta;
};

// Where the matrices of one product of a batch are.
struct factors {
    const void * a;
    const void * b;
    void * c;
};

// Whether the types go together: f64 only with f64, and neither integers nor complex numbers.
bool can_multiply(const product & wanted);

// Products of a batch must not write what another of them reads.
void multiply(const product & wanted, const std::vector<factors> & batch, unsigned threads,
              cpu_level level = best_cpu_level());

// X op(A) = alpha B, or op(A) X = alpha B with A on the left, in f32 or f64; A is triangular, X takes the place of B, which
// has m rows and n columns. A is not read when alpha is zero.
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
