// Compiler vectors. Users compile the emulator with the SDK's clang, tests with any C++ compiler; clang builtins that
// the compiler lacks are implemented here element by element.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace patchkit::gpu {

#ifdef __clang__
template <class T, int n> using vector_of = T __attribute__((ext_vector_type(n)));
#else
template <class T, int n> struct vector_type {
    typedef T type __attribute__((vector_size(n * sizeof(T))));
};
template <class T, int n> using vector_of = typename vector_type<T, n>::type;
#endif

template <class V> using element_of = std::remove_cvref_t<decltype(std::declval<V &>()[0])>;
template <class V> constexpr int size_of = int(sizeof(V) / sizeof(element_of<V>));

// A vector with the same value in each element.
template <class V> constexpr V splat(element_of<V> value) {
#ifdef __clang__
    return V(value);
#else
    V result{};
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = value;
    }
    return result;
#endif
}

// Halves of a vector, and concatenation of two.
template <class V> using half_vector = vector_of<element_of<V>, size_of<V> / 2>;
template <class V> half_vector<V> first_half(const V & whole) {
    return std::bit_cast<std::array<half_vector<V>, 2>>(whole)[0];
}
template <class V> half_vector<V> second_half(const V & whole) {
    return std::bit_cast<std::array<half_vector<V>, 2>>(whole)[1];
}
template <class V> V from_halves(const half_vector<V> & first, const half_vector<V> & second) {
    return std::bit_cast<V>(std::array<half_vector<V>, 2>{first, second});
}

template <class V> half_vector<V> even_elements(const V & whole) {
#ifdef __clang__
    return whole.even;
#else
    half_vector<V> result;
    for (int n = 0; n < size_of<V> / 2; ++n) {
        result[n] = whole[2 * n];
    }
    return result;
#endif
}
template <class V> half_vector<V> odd_elements(const V & whole) {
#ifdef __clang__
    return whole.odd;
#else
    half_vector<V> result;
    for (int n = 0; n < size_of<V> / 2; ++n) {
        result[n] = whole[2 * n + 1];
    }
    return result;
#endif
}

// ---- Functions with the names and semantics of clang's builtins, which are used if available.

#if !__has_builtin(__builtin_bitreverse32)
constexpr uint32_t __builtin_bitreverse32(uint32_t bits) {
    uint32_t result = 0;
    for (size_t n = 0; n < 8 * sizeof(bits); ++n, bits >>= 1) {
        result = result << 1 | (bits & 1);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_bitreverse64)
constexpr uint64_t __builtin_bitreverse64(uint64_t bits) {
    uint64_t result = 0;
    for (size_t n = 0; n < 8 * sizeof(bits); ++n, bits >>= 1) {
        result = result << 1 | (bits & 1);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_abs)
template <class V> V __builtin_elementwise_abs(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::abs(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_floor)
template <class V> V __builtin_elementwise_floor(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::floor(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_ceil)
template <class V> V __builtin_elementwise_ceil(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::ceil(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_trunc)
template <class V> V __builtin_elementwise_trunc(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::trunc(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_roundeven)
template <class V> V __builtin_elementwise_roundeven(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = element_of<V>(__builtin_roundeven(a[n]));
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_sqrt)
template <class V> V __builtin_elementwise_sqrt(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::sqrt(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_popcount)
template <class V> V __builtin_elementwise_popcount(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::popcount(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_bitreverse)
template <class V> V __builtin_elementwise_bitreverse(const V & a) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = __builtin_bitreverse32(a[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_copysign)
template <class V> V __builtin_elementwise_copysign(const V & a, const V & sign) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::copysign(a[n], sign[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_fma)
template <class V> V __builtin_elementwise_fma(const V & a, const V & b, const V & c) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        result[n] = std::fma(a[n], b[n], c[n]);
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_elementwise_add_sat)
template <class V> V __builtin_elementwise_add_sat(const V & a, const V & b) {
    V result;
    for (int n = 0; n < size_of<V>; ++n) {
        element_of<V> sum;
        const bool is_over = __builtin_add_overflow(a[n], b[n], &sum);
        result[n] = is_over ? (sum < 0 ? std::numeric_limits<element_of<V>>::max() : std::numeric_limits<element_of<V>>::min())
                            : sum;
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_reduce_or)
template <class V> element_of<V> __builtin_reduce_or(const V & a) {
    element_of<V> result = a[0];
    for (int n = 1; n < size_of<V>; ++n) {
        result |= a[n];
    }
    return result;
}
#endif
#if !__has_builtin(__builtin_reduce_and)
template <class V> element_of<V> __builtin_reduce_and(const V & a) {
    element_of<V> result = a[0];
    for (int n = 1; n < size_of<V>; ++n) {
        result &= a[n];
    }
    return result;
}
#endif

} // namespace patchkit::gpu
