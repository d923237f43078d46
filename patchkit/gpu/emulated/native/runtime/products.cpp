// Cache-blocked matrix multiplication: one tile of C at a time, with factors packed into panels that the innermost loop
// reads sequentially (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).

#include "products.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

// Vectors wider than the SIMD level of the enclosing function would be passed in memory or in registers, depending on
// compiler options. So they are passed by reference, and everything is inlined into one function per level.
#define PART __attribute__((always_inline)) inline

namespace patchkit {

namespace {

// A vector of N numbers, with a size in bytes that is a power of two. Both compilers support this form.
template <typename T, int N> struct vector_of {
    typedef T type __attribute__((vector_size(sizeof(T) * N)));
};

template <typename T, int N> using vec = typename vector_of<T, N>::type;

template <typename V> PART void load(V & to, const void * from) { std::memcpy(&to, from, sizeof(V)); }

template <typename To, typename From> PART void same_bits(To & to, const From & from) {
    static_assert(sizeof(To) == sizeof(From));
    std::memcpy(&to, &from, sizeof(To));
}

// Storage types: conversion of N elements to the numbers used for computing, and back.

struct as_f64 {
    using stored = double;
    template <int N> static PART void widen(vec<double, N> & to, const stored * from) { load(to, from); }
    template <int N> static PART void narrow(stored * to, const vec<double, N> & from) {
        std::memcpy(to, &from, sizeof(from));
    }
};

struct as_f32 {
    using stored = float;
    template <int N> static PART void widen(vec<float, N> & to, const stored * from) { load(to, from); }
    template <int N> static PART void narrow(stored * to, const vec<float, N> & from) {
        std::memcpy(to, &from, sizeof(from));
    }
};

struct as_bf16 {
    using stored = uint16_t;

    template <int N> static PART void widen(vec<float, N> & to, const stored * from) {
        vec<uint16_t, N> halves;
        load(halves, from);
        same_bits(to, __builtin_convertvector(halves, vec<uint32_t, N>) << 16);
    }

    template <int N> static PART void narrow(stored * to, const vec<float, N> & from) {
        vec<uint32_t, N> bits;
        same_bits(bits, from);
        const vec<uint32_t, N> rounded = bits + 0x7fff + ((bits >> 16) & 1);
        const vec<uint32_t, N> quiet   = bits | 0x400000;
        const auto is_nan              = (bits & 0x7fffffff) > 0x7f800000;
        const vec<uint16_t, N> halves =
            __builtin_convertvector((is_nan ? quiet : rounded) >> 16, vec<uint16_t, N>);
        std::memcpy(to, &halves, sizeof(halves));
    }
};

struct as_f16 {
    using stored = uint16_t;

    // Denormal f16 are converted by integer operations: no step has a denormal f32, because the program may have set
    // its threads to flush these.
    template <int N> static PART void widen(vec<float, N> & to, const stored * from) {
        constexpr uint32_t exponent_step = (127 - 15) << 23; // the difference of the biases
        vec<uint16_t, N> halves;
        load(halves, from);
        const vec<uint32_t, N> bits      = __builtin_convertvector(halves, vec<uint32_t, N>);
        const vec<uint32_t, N> magnitude = bits & 0x7fff;
        const vec<uint32_t, N> normal    = (magnitude << 13) + exponent_step;
        const vec<uint32_t, N> infinite  = normal + exponent_step;
        vec<int32_t, N> count;
        same_bits(count, magnitude);
        vec<uint32_t, N> small;
        same_bits(small, __builtin_convertvector(count, vec<float, N>) * 0x1p-24f);
        const vec<uint32_t, N> finite = magnitude < 0x400 ? small : normal;
        same_bits(to, (magnitude >= 0x7c00 ? infinite : finite) | ((bits & 0x8000) << 16));
    }

    // Rounds to nearest even: normal results in integers, small ones by adding 0.5, whose last bit is that of f16.
    template <int N> static PART void narrow(stored * to, const vec<float, N> & from) {
        constexpr uint32_t exponent_step = (127 - 15) << 10;
        vec<uint32_t, N> bits;
        same_bits(bits, from);
        const vec<uint32_t, N> magnitude = bits & 0x7fffffff;
        const vec<uint32_t, N> normal    = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13) - exponent_step;
        vec<float, N> shifted;
        same_bits(shifted, magnitude);
        shifted += 0.5f;
        vec<uint32_t, N> small;
        same_bits(small, shifted);
        small -= 0x3f000000; // the bits of 0.5
        vec<uint32_t, N> result = magnitude < 0x38800000 ? small : normal;               // 2^-14
        result                  = magnitude >= 0x477ff000 ? (magnitude & 0) + 0x7c00 : result; // 65520
        result                  = magnitude > 0x7f800000 ? (magnitude & 0) + 0x7e00 : result;  // NaN
        const vec<uint16_t, N> halves =
            __builtin_convertvector(result | ((bits >> 16) & 0x8000), vec<uint16_t, N>);
        std::memcpy(to, &halves, sizeof(halves));
    }
};

// Block sizes per thread: a packed part of A fits into an L2 cache of half a MiB.
constexpr int64_t most_depth   = 256;
constexpr int64_t most_rows    = 240;
constexpr int64_t most_columns = 504;

// Sizes per level: lanes of a vector, and rows and columns of C in the innermost loop, whose sums use most of the
// registers: 24 of 32, or 12 of 16.
template <typename T, int VectorBytes, int Vectors, int Columns> struct shape {
    using number                 = T;
    static constexpr int lanes   = VectorBytes / int(sizeof(T));
    static constexpr int vectors = Vectors;
    static constexpr int rows    = vectors * lanes;
    static constexpr int columns = Columns;
    static_assert(most_rows % rows == 0 && most_columns % columns == 0); // panels fill their memory exactly
};

struct tile {
    int64_t row, column, rows, columns;
};

struct job {
    const product & wanted;
    const factors & at;
    tile covered;
};

// Memory for sums of C and panels of A and B, per thread. It is not cleared, and it is reused: for a small product, new
// memory would cost more than the product.
class workspace {
  public:
    struct parts {
        void *sums, *panels_a, *panels_b;
    };

    parts get(size_t bytes_of_sums, size_t bytes_of_a, size_t bytes_of_b) {
        const size_t sums = whole(bytes_of_sums), a = whole(bytes_of_a), b = whole(bytes_of_b);
        if (sums + a + b > size_) {
            size_ = sums + a + b;
            memory_.reset(new char[size_ + line]);
        }
        char * begin = memory_.get() + (line - uintptr_t(memory_.get()) % line) % line;
        return {begin, begin + sums, begin + sums + a};
    }

  private:
    static constexpr size_t line = 64;
    static size_t whole(size_t bytes) { return (bytes + line - 1) / line * line; }

    size_t size_ = 0;
    std::unique_ptr<char[]> memory_;
};

// Borrows a workspace that is not in use. Workspaces are never destroyed, because threads and destructors may use them
// at any time.
class borrowed_workspace {
  public:
    borrowed_workspace() {
        const std::lock_guard<std::mutex> guard(mutex());
        if (idle().empty()) {
            own_ = std::make_unique<workspace>();
        } else {
            own_ = std::move(idle().back());
            idle().pop_back();
        }
    }

    ~borrowed_workspace() {
        const std::lock_guard<std::mutex> guard(mutex());
        idle().push_back(std::move(own_));
    }

    borrowed_workspace(const borrowed_workspace &)             = delete;
    borrowed_workspace & operator=(const borrowed_workspace &) = delete;

    workspace & operator*() { return *own_; }

  private:
    static std::mutex & mutex() {
        static auto * made = new std::mutex;
        return *made;
    }

    static std::vector<std::unique_ptr<workspace>> & idle() {
        static auto * made = new std::vector<std::unique_ptr<workspace>>;
        return *made;
    }

    std::unique_ptr<workspace> own_;
};

// One matrix factor for packing: `across` is the stride along the panel's width, `along` along k.
struct view {
    const void * origin;
    int64_t across, along;
};

view view_of(const matrix & of, const void * data, bool is_left, int64_t first) {
    const bool width_is_contiguous = is_left != of.is_transposed;
    const int64_t across           = width_is_contiguous ? 1 : of.leading;
    const int64_t along            = width_is_contiguous ? of.leading : 1;
    const char * origin            = static_cast<const char *>(data) + first * across * int64_t(bytes_of(of.type));
    return {origin, across, along};
}

// One panel with memory contiguous across the panel.
template <typename Type, typename T, int Lanes, int Width>
PART void pack_across(T * to, const typename Type::stored * from, int64_t along, int64_t width, int64_t depth) {
    constexpr int lanes = Width % Lanes == 0 ? Lanes : Width & -Width; // a power of two that divides the width
    typename Type::stored edge[Width] = {};
    for (int64_t p = 0; p < depth; ++p, from += along, to += Width) {
        const typename Type::stored * source = from;
        if (width < Width) {
            std::memcpy(edge, from, size_t(width) * sizeof(edge[0]));
            source = edge;
        }
        for (int w = 0; w < Width; w += lanes) {
            vec<T, lanes> numbers;
            Type::template widen<lanes>(numbers, source + w);
            std::memcpy(to + w, &numbers, sizeof(numbers));
        }
    }
}

// One panel with memory contiguous along k.
template <typename Type, typename T, int Lanes, int Width>
PART void pack_along(T * to, const typename Type::stored * from, int64_t across, int64_t width, int64_t depth) {
    if (width < Width) {
        std::memset(to, 0, size_t(depth) * Width * sizeof(T));
    }
    for (int64_t p = 0; p < depth; p += Lanes) {
        const int64_t count = std::min<int64_t>(Lanes, depth - p);
        for (int64_t w = 0; w < width; ++w) {
            const typename Type::stored * source = from + w * across + p;
            typename Type::stored edge[Lanes]    = {};
            if (count < Lanes) {
                std::memcpy(edge, source, size_t(count) * sizeof(edge[0]));
                source = edge;
            }
            vec<T, Lanes> numbers;
            Type::template widen<Lanes>(numbers, source);
            for (int64_t i = 0; i < count; ++i) {
                to[(p + i) * Width + w] = numbers[i];
            }
        }
    }
}

template <typename Type, typename T, int Lanes, int Width>
PART void pack_type(T * to, const view & from, int64_t first, int64_t width, int64_t depth) {
    using stored          = typename Type::stored;
    const stored * origin = static_cast<const stored *>(from.origin) + first * from.along;
    for (int64_t w = 0; w < width; w += Width, to += Width * depth) {
        const int64_t count = std::min<int64_t>(Width, width - w);
        if (from.across == 1) {
            pack_across<Type, T, Lanes, Width>(to, origin + w, from.along, count, depth);
        } else {
            pack_along<Type, T, Lanes, Width>(to, origin + w * from.across, from.across, count, depth);
        }
    }
}

// Panels of Width rows (or columns) from `first` on along k, padded with zeros.
template <int Lanes, int Width>
PART void pack(float * to, number type, const view & from, int64_t first, int64_t width, int64_t depth) {
    switch (type) {
        case number::f16: return pack_type<as_f16, float, Lanes, Width>(to, from, first, width, depth);
        case number::bf16: return pack_type<as_bf16, float, Lanes, Width>(to, from, first, width, depth);
        default: return pack_type<as_f32, float, Lanes, Width>(to, from, first, width, depth);
    }
}

template <int Lanes, int Width>
PART void pack(double * to, number, const view & from, int64_t first, int64_t width, int64_t depth) {
    pack_type<as_f64, double, Lanes, Width>(to, from, first, width, depth);
}

// Adds the product of a panel of A and one of B to `sums`, or stores it there.
template <typename Shape>
PART void multiply_panels(typename Shape::number * sums, int64_t stride, const typename Shape::number * a,
                          const typename Shape::number * b, int64_t depth, bool is_first) {
    using T = typename Shape::number;
    using V = vec<T, Shape::lanes>;
    V c[Shape::columns][Shape::vectors] = {};
    for (int64_t p = 0; p < depth; ++p, a += Shape::rows, b += Shape::columns) {
        V rows[Shape::vectors];
        std::memcpy(rows, a, sizeof(rows));
#pragma GCC unroll 8
        for (int j = 0; j < Shape::columns; ++j) {
#pragma GCC unroll 3
            for (int v = 0; v < Shape::vectors; ++v) {
                c[j][v] += rows[v] * b[j];
            }
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < Shape::columns; ++j, sums += stride) {
        V before[Shape::vectors] = {};
        if (!is_first) {
            std::memcpy(before, sums, sizeof(before));
        }
#pragma GCC unroll 3
        for (int v = 0; v < Shape::vectors; ++v) {
            before[v] += c[j][v];
        }
        std::memcpy(sums, before, sizeof(before));
    }
}

int64_t whole(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// Sums of one tile, column by column with a `stride`; rows are padded to a whole panel.
template <typename T> struct summed {
    const T * sums;
    int64_t stride;
};

template <typename Shape> PART summed<typename Shape::number> sum_up(const job & of, workspace & in) {
    using T              = typename Shape::number;
    const product & p    = of.wanted;
    const int64_t rows   = whole(of.covered.rows, Shape::rows);
    const int64_t depths = std::min(most_depth, p.k);
    const int64_t across = whole(of.covered.columns, Shape::columns);
    const auto parts     = in.get(size_t(rows * across) * sizeof(T), size_t(rows * depths) * sizeof(T),
                                               size_t(across * depths) * sizeof(T));
    T * sums             = static_cast<T *>(parts.sums);
    T * panels_a         = static_cast<T *>(parts.panels_a);
    T * panels_b         = static_cast<T *>(parts.panels_b);
    const view a         = view_of(p.a, of.at.a, true, of.covered.row);
    const view b         = view_of(p.b, of.at.b, false, of.covered.column);
    for (int64_t first = 0; first < p.k; first += most_depth) {
        const int64_t depth = std::min(most_depth, p.k - first);
        pack<Shape::lanes, Shape::rows>(panels_a, p.a.type, a, first, of.covered.rows, depth);
        pack<Shape::lanes, Shape::columns>(panels_b, p.b.type, b, first, of.covered.columns, depth);
        for (int64_t j = 0; j < across; j += Shape::columns) {
            for (int64_t i = 0; i < rows; i += Shape::rows) {
                multiply_panels<Shape>(sums + j * rows + i, rows, panels_a + i * depth, panels_b + j * depth, depth,
                                       first == 0);
            }
        }
    }
    return {sums, rows};
}

// One column of C from its sums, which are padded to a whole vector; without sums, beta C.
template <typename Type, typename T, int Lanes>
PART void finish_column(typename Type::stored * c, const T * sums, int64_t rows, T alpha, T beta) {
    using V = vec<T, Lanes>;
    for (int64_t i = 0; i < rows; i += Lanes) {
        const size_t bytes = size_t(std::min<int64_t>(Lanes, rows - i)) * sizeof(c[0]);
        typename Type::stored edge[Lanes] = {};
        V result                          = {};
        if (sums != nullptr) {
            load(result, sums + i);
            result *= alpha;
        }
        if (beta != 0) {
            std::memcpy(edge, c + i, bytes);
            V before;
            Type::template widen<Lanes>(before, edge);
            result += before * beta;
        }
        Type::template narrow<Lanes>(edge, result);
        std::memcpy(c + i, edge, bytes);
    }
}

template <typename Type, int Lanes, typename T> PART void finish(const job & of, const summed<T> & from) {
    const tile & covered = of.covered;
    auto * c             = static_cast<typename Type::stored *>(of.at.c) + covered.row;
    for (int64_t j = 0; j < covered.columns; ++j) {
        const T * sums = from.sums == nullptr ? nullptr : from.sums + j * from.stride;
        finish_column<Type, T, Lanes>(c + (covered.column + j) * of.wanted.c.leading, sums, covered.rows,
                                      T(of.wanted.alpha), T(of.wanted.beta));
    }
}

template <typename Shape> PART void compute(const job & of, workspace & in) {
    summed<typename Shape::number> from = {nullptr, 0};
    if (of.wanted.k != 0 && of.wanted.alpha != 0) {
        from = sum_up<Shape>(of, in);
    }
    if constexpr (sizeof(typename Shape::number) == sizeof(double)) {
        finish<as_f64, Shape::lanes>(of, from);
    } else {
        switch (of.wanted.c.type) {
            case number::f16: return finish<as_f16, Shape::lanes>(of, from);
            case number::bf16: return finish<as_bf16, Shape::lanes>(of, from);
            default: return finish<as_f32, Shape::lanes>(of, from);
        }
    }
}

// Some right-hand sides of a triangular system, one per lane. Element l of unknown j is at rights[j * to_unknown + l *
// to_side]; the coefficient of unknown i in equation j is at[i * to_i + j * to_j].
template <typename T> struct substitution {
    T * rights;
    int64_t to_unknown, to_side, unknowns, count;
    const T * a;
    int64_t to_i, to_j;
    bool is_forward, has_unit_diagonal;
    T alpha;
};

constexpr int64_t sides_at_once = 32;

template <typename T>
substitution<T> substitution_of(const triangular_system & s, const sides & at, int64_t first, int64_t count) {
    const bool i_is_row   = s.is_left == s.is_transposed;
    const int64_t to_side = s.is_left ? s.leading_b : 1;
    return {
        static_cast<T *>(at.b) + first * to_side,
        s.is_left ? 1 : s.leading_b,
        to_side,
        s.is_left ? s.m : s.n,
        count,
        static_cast<const T *>(at.a),
        i_is_row ? 1 : s.leading_a,
        i_is_row ? s.leading_a : 1,
        i_is_row == s.is_upper,
        s.has_unit_diagonal,
        T(s.alpha),
    };
}

// Computes unknown j from the previous ones.
template <typename T, int Lanes> PART void find_unknown(const substitution<T> & of, T * x, int64_t step) {
    constexpr int vectors = int(sides_at_once) / Lanes;
    const int64_t last    = of.unknowns - 1;
    const int64_t j       = of.is_forward ? step : last - step;
    vec<T, Lanes> sums[vectors];
    std::memcpy(sums, x + j * sides_at_once, sizeof(sums));
    for (int64_t known = 0; known < step; ++known) {
        const int64_t i = of.is_forward ? known : last - known;
        const T a       = of.a[i * of.to_i + j * of.to_j];
        vec<T, Lanes> before[vectors];
        std::memcpy(before, x + i * sides_at_once, sizeof(before));
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            sums[v] -= before[v] * a;
        }
    }
    if (!of.has_unit_diagonal) {
        const T a = of.a[j * of.to_i + j * of.to_j];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            sums[v] /= a;
        }
    }
    std::memcpy(x + j * sides_at_once, sums, sizeof(sums));
}

template <typename T, int Lanes> PART void substitute(const substitution<T> & of, workspace & in) {
    const size_t bytes = size_t(of.unknowns * sides_at_once) * sizeof(T);
    auto * x           = static_cast<T *>(in.get(bytes, 0, 0).sums);
    std::memset(x, 0, bytes);
    if (of.alpha != 0) {
        for (int64_t j = 0; j < of.unknowns; ++j) {
            for (int64_t l = 0; l < of.count; ++l) {
                x[j * sides_at_once + l] = of.alpha * of.rights[j * of.to_unknown + l * of.to_side];
            }
        }
        for (int64_t step = 0; step < of.unknowns; ++step) {
            find_unknown<T, Lanes>(of, x, step);
        }
    }
    for (int64_t j = 0; j < of.unknowns; ++j) {
        for (int64_t l = 0; l < of.count; ++l) {
            of.rights[j * of.to_unknown + l * of.to_side] = x[j * sides_at_once + l];
        }
    }
}

// The functions of each level. Every x86-64 has vectors of 16 bytes and few registers, every arm64 16 bytes and 32
// registers.

template <typename T> void compute_plain(const job & of, workspace & in) {
#if defined(__x86_64__)
    compute<shape<T, 16, 2, 6>>(of, in);
#else
    compute<shape<T, 16, 3, 8>>(of, in);
#endif
}

template <typename T> void substitute_plain(const substitution<T> & of, workspace & in) {
    substitute<T, 16 / int(sizeof(T))>(of, in);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

template <typename T> AVX2 void compute_avx2(const job & of, workspace & in) {
    compute<shape<T, 32, 2, 6>>(of, in);
}

template <typename T> AVX512 void compute_avx512(const job & of, workspace & in) {
    compute<shape<T, 64, 3, 8>>(of, in);
}

template <typename T> AVX2 void substitute_avx2(const substitution<T> & of, workspace & in) {
    substitute<T, 32 / int(sizeof(T))>(of, in);
}

template <typename T> AVX512 void substitute_avx512(const substitution<T> & of, workspace & in) {
    substitute<T, 64 / int(sizeof(T))>(of, in);
}
#endif

using compute_function    = void (*)(const job &, workspace &);
template <typename T> using substitute_function = void (*)(const substitution<T> &, workspace &);

template <typename T> compute_function compute_of([[maybe_unused]] cpu_level level) {
#if defined(__x86_64__)
    switch (level) {
        case cpu_level::avx512: return compute_avx512<T>;
        case cpu_level::avx2: return compute_avx2<T>;
        case cpu_level::plain: break;
    }
#endif
    return compute_plain<T>;
}

template <typename T> substitute_function<T> substitute_of([[maybe_unused]] cpu_level level) {
#if defined(__x86_64__)
    switch (level) {
        case cpu_level::avx512: return substitute_avx512<T>;
        case cpu_level::avx2: return substitute_avx2<T>;
        case cpu_level::plain: break;
    }
#endif
    return substitute_plain<T>;
}

// Calls `work` for every number below `count`.
template <typename Work> void share_out(int64_t count, unsigned threads, const Work & work) {
    std::atomic<int64_t> next = 0;
    const auto run            = [&] {
        borrowed_workspace own;
        for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
            work(i, *own);
        }
    };
    std::vector<std::thread> others;
    try {
        for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) {
            others.emplace_back(run);
        }
    } catch (const std::system_error &) {
        // Thread creation failed: the existing threads do the work.
    }
    run();
    for (std::thread & other : others) {
        other.join();
    }
}

// Starting a thread takes as long as some million operations.
unsigned worth_having(unsigned threads, double operations) {
    constexpr double per_thread = 4e6;
    return unsigned(std::clamp(operations / per_thread, 1.0, double(std::max(threads, 1u))));
}

// Tile size, chosen so that every thread gets some tiles.
tile tile_size(const product & wanted, size_t batch, unsigned threads) {
    tile size             = {0, 0, std::min(most_rows, wanted.m), std::min(most_columns, wanted.n)};
    constexpr int64_t few = 64; // columns from which on packing A pays off
    const auto count      = [&] {
        const int64_t down  = (wanted.m + size.rows - 1) / size.rows;
        const int64_t right = (wanted.n + size.columns - 1) / size.columns;
        return int64_t(batch) * down * right;
    };
    while (threads > 1 && size.columns >= 2 * few && count() < 3 * int64_t(threads)) {
        size.columns /= 2;
    }
    return size;
}

template <typename T>
void solve_in(const triangular_system & wanted, const std::vector<sides> & batch, unsigned threads, cpu_level level) {
    const int64_t unknowns = wanted.is_left ? wanted.m : wanted.n;
    const int64_t rights   = wanted.is_left ? wanted.n : wanted.m;
    if (unknowns == 0 || rights == 0 || batch.empty()) {
        return;
    }
    const int64_t groups    = (rights + sides_at_once - 1) / sides_at_once;
    const double operations = double(unknowns) * double(unknowns) * double(rights) * double(batch.size());
    const auto substitute   = substitute_of<T>(level);
    share_out(int64_t(batch.size()) * groups, worth_having(threads, operations), [&](int64_t i, workspace & own) {
        const int64_t first = i % groups * sides_at_once;
        const int64_t count = std::min(sides_at_once, rights - first);
        substitute(substitution_of<T>(wanted, batch[size_t(i / groups)], first, count), own);
    });
}

} // namespace

size_t bytes_of(number type) {
    switch (type) {
        case number::i8: return 1;
        case number::f16: case number::bf16: return 2;
        case number::f32: case number::i32: return 4;
        case number::f64: case number::complex_f32: return 8;
        case number::complex_f64: return 16;
    }
    return 0;
}

const char * name_of(number type) {
    switch (type) {
        case number::f16: return "f16";
        case number::bf16: return "bf16";
        case number::f32: return "f32";
        case number::f64: return "f64";
        case number::i8: return "i8";
        case number::i32: return "i32";
        case number::complex_f32: return "complex f32";
        case number::complex_f64: return "complex f64";
    }
    return "";
}

bool is_complex(number type) { return type == number::complex_f32 || type == number::complex_f64; }

namespace {

template <typename T> T read(const void * place) {
    T value;
    std::memcpy(&value, place, sizeof(value));
    return value;
}

template <typename T> void write(void * place, T value) { std::memcpy(place, &value, sizeof(value)); }

// Single-lane conversion, as in the functions of products.
template <typename Type> double widened(const void * place) {
    uint16_t halves[4] = {read<uint16_t>(place)};
    vec<float, 4> value;
    Type::template widen<4>(value, halves);
    return double(value[0]);
}

template <typename Type> void narrowed(void * place, double value) {
    uint16_t halves[4];
    const vec<float, 4> wide = {float(value)};
    Type::template narrow<4>(halves, wide);
    write(place, halves[0]);
}

// Integers wrap around, as on the GPU.
int64_t wrapped(double value) {
    constexpr double range = 0x1p32;
    return std::isfinite(value) ? int64_t(std::fmod(value, range)) : 0;
}

} // namespace

double value_at(number type, const void * place) {
    switch (type) {
        case number::f16: return widened<as_f16>(place);
        case number::bf16: return widened<as_bf16>(place);
        case number::f32: case number::complex_f32: return double(read<float>(place));
        case number::f64: case number::complex_f64: return read<double>(place);
        case number::i8: return read<int8_t>(place);
        case number::i32: return read<int32_t>(place);
    }
    return 0;
}

void put_value(number type, void * place, double value) {
    switch (type) {
        case number::f16: return narrowed<as_f16>(place, value);
        case number::bf16: return narrowed<as_bf16>(place, value);
        case number::f32: case number::complex_f32: return write(place, float(value));
        case number::f64: case number::complex_f64: return write(place, value);
        case number::i8: return write(place, int8_t(wrapped(value)));
        case number::i32: return write(place, int32_t(wrapped(value)));
    }
}

cpu_level best_cpu_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return cpu_level::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return cpu_level::avx2;
    }
#endif
    return cpu_level::plain;
}

bool can_multiply(const product & wanted) {
    const auto is_float = [](number type) { return type <= number::f64; };
    if (!is_float(wanted.a.type) || !is_float(wanted.b.type) || !is_float(wanted.c.type)) {
        return false;
    }
    const bool any = wanted.a.type == number::f64 || wanted.b.type == number::f64 || wanted.c.type == number::f64;
    const bool all = wanted.a.type == number::f64 && wanted.b.type == number::f64 && wanted.c.type == number::f64;
    return any == all;
}

void multiply(const product & wanted, const std::vector<factors> & batch, unsigned threads, cpu_level level) {
    if (wanted.m == 0 || wanted.n == 0 || batch.empty()) {
        return;
    }
    const double operations =
        2.0 * double(wanted.m) * double(wanted.n) * double(std::max<int64_t>(wanted.k, 1)) * double(batch.size());
    threads             = worth_having(threads, operations);
    const tile size     = tile_size(wanted, batch.size(), threads);
    const int64_t down  = (wanted.m + size.rows - 1) / size.rows;
    const int64_t right = (wanted.n + size.columns - 1) / size.columns;
    const auto compute  = wanted.c.type == number::f64 ? compute_of<double>(level) : compute_of<float>(level);
    share_out(int64_t(batch.size()) * down * right, threads, [&](int64_t i, workspace & own) {
        const int64_t row    = i % down * size.rows;
        const int64_t column = i / down % right * size.columns;
        const tile covered   = {row, column, std::min(size.rows, wanted.m - row),
                                std::min(size.columns, wanted.n - column)};
        compute({wanted, batch[size_t(i / (down * right))], covered}, own);
    });
}

void solve(const triangular_system & wanted, const std::vector<sides> & batch, unsigned threads, cpu_level level) {
    if (wanted.type == number::f64) {
        solve_in<double>(wanted, batch, threads, level);
    } else {
        solve_in<float>(wanted, batch, threads, level);
    }
}

} // namespace patchkit
