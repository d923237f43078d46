// The solvers of hipBLAS: what they leave solves the system that it was asked of.
#define HIPBLAS_V2
#include <hip/hip_complex.h>
#include <hip/hip_runtime.h>
#include <hipblas/hipblas.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <type_traits>
#include <vector>

namespace {

template <class T> struct calls;
#define CALLS_OF(letter, type)                                                                                        \
    template <> struct calls<type> {                                                                                  \
        static constexpr auto getrf = hipblas##letter##getrf;                                                         \
        static constexpr auto getrf_batched = hipblas##letter##getrfBatched;                                          \
        static constexpr auto getrf_strided = hipblas##letter##getrfStridedBatched;                                   \
        static constexpr auto getrs = hipblas##letter##getrs;                                                         \
        static constexpr auto getrs_batched = hipblas##letter##getrsBatched;                                          \
        static constexpr auto getri_batched = hipblas##letter##getriBatched;                                          \
        static constexpr auto geqrf = hipblas##letter##geqrf;                                                         \
        static constexpr auto geqrf_strided = hipblas##letter##geqrfStridedBatched;                                   \
        static constexpr auto gels = hipblas##letter##gels;                                                           \
    };
CALLS_OF(S, float)
CALLS_OF(D, double)
CALLS_OF(C, hipComplex)
CALLS_OF(Z, hipDoubleComplex)

using number = std::complex<double>;

number wide(float value) { return value; }
number wide(double value) { return value; }
number wide(hipComplex value) { return {double(value.x), double(value.y)}; }
number wide(hipDoubleComplex value) { return {value.x, value.y}; }
void put(float & to, number value) { to = float(value.real()); }
void put(double & to, number value) { to = value.real(); }
void put(hipComplex & to, number value) { to = {float(value.real()), float(value.imag())}; }
void put(hipDoubleComplex & to, number value) { to = {value.real(), value.imag()}; }

int failures = 0;

void expect(bool holds, const char * what) {
    if (!holds) {
        std::printf("wrong: %s\n", what);
        ++failures;
    }
}

// Numbers that are spread, the same each time; none of the matrices is near a singular one.
template <class T> std::vector<T> numbers(int count, unsigned seed) {
    std::vector<T> all(size_t(count), T{});
    for (T & one : all) {
        seed = seed * 1664525u + 1013904223u;
        const double real = double(seed >> 8 & 0xffff) / 32768.0 - 1.0;
        put(one, number(real, double(seed >> 12 & 0xfff) / 2048.0 - 1.0));
    }
    return all;
}

template <class T> struct memory {
    T * on = nullptr;
    size_t count;

    explicit memory(const std::vector<T> & from) : count(from.size()) {
        (void) hipMalloc(&on, count * sizeof(T));
        (void) hipMemcpy(on, from.data(), count * sizeof(T), hipMemcpyHostToDevice);
    }
    ~memory() { (void) hipFree(on); }
    std::vector<T> back() const {
        std::vector<T> all(count);
        (void) hipMemcpy(all.data(), on, count * sizeof(T), hipMemcpyDeviceToHost);
        return all;
    }
};

// The largest element of A X - B, of op(A): column by column, rows apart by `leading`.
template <class T>
double error_of(const std::vector<T> & a, int leading, bool is_adjoint, const T * x, int leading_x, const T * b, int leading_b,
                int rows, int unknowns, int columns) {
    double most = 0;
    for (int c = 0; c < columns; ++c) {
        for (int i = 0; i < rows; ++i) {
            number sum = -wide(b[i + c * leading_b]);
            for (int k = 0; k < unknowns; ++k) {
                const number one = is_adjoint ? std::conj(wide(a[size_t(k + i * leading)])) : wide(a[size_t(i + k * leading)]);
                sum += one * wide(x[k + c * leading_x]);
            }
            most = std::fmax(most, std::abs(sum));
        }
    }
    return most;
}

template <class T> void systems(hipblasHandle_t handle, double bound, const char * name) {
    constexpr int n = 5, leading = 6, columns = 3, batch = 3;
    const auto a = numbers<T>(leading * n * batch, 7), b = numbers<T>(leading * columns * batch, 9);
    for (const auto op : {HIPBLAS_OP_N, HIPBLAS_OP_C}) {
        memory<T> factors(a), found(b);
        memory<int> pivots{std::vector<int>(n)}, info(std::vector<int>(1, 9));
        int told = 9;
        expect(calls<T>::getrf(handle, n, factors.on, leading, pivots.on, info.on) == HIPBLAS_STATUS_SUCCESS, name);
        expect(calls<T>::getrs(handle, op, n, columns, factors.on, leading, pivots.on, found.on, leading, &told) == HIPBLAS_STATUS_SUCCESS, name);
        const auto x = found.back();
        expect(told == 0 && info.back()[0] == 0, name);
        expect(error_of(a, leading, op != HIPBLAS_OP_N, x.data(), leading, b.data(), leading, n, n, columns) < bound, name);
    }
    // In lists: solved, and inverted.
    memory<T> factors(a), found(b), inverse(std::vector<T>(size_t(n * n * batch)));
    std::vector<T *> places, rights, inverses;
    for (int one = 0; one < batch; ++one) {
        places.push_back(factors.on + one * leading * n);
        rights.push_back(found.on + one * leading * columns);
        inverses.push_back(inverse.on + one * n * n);
    }
    memory<T *> list(places), list_b(rights), list_inverse(inverses);
    memory<int> pivots(std::vector<int>(n * batch)), info(std::vector<int>(batch, 9));
    int told = 9;
    expect(calls<T>::getrf_batched(handle, n, list.on, leading, pivots.on, info.on, batch) == HIPBLAS_STATUS_SUCCESS, name);
    expect(calls<T>::getrs_batched(handle, HIPBLAS_OP_N, n, columns, list.on, leading, pivots.on, list_b.on, leading, &told, batch) == HIPBLAS_STATUS_SUCCESS, name);
    expect(calls<T>::getri_batched(handle, n, list.on, leading, pivots.on, list_inverse.on, n, info.on, batch) == HIPBLAS_STATUS_SUCCESS, name);
    const auto x = found.back(), inverted = inverse.back();
    std::vector<T> identity(size_t(n * n), T{});
    for (int i = 0; i < n; ++i) {
        put(identity[size_t(i * (n + 1))], 1.0);
    }
    for (int one = 0; one < batch; ++one) {
        const std::vector<T> own(a.begin() + one * leading * n, a.begin() + (one + 1) * leading * n);
        expect(error_of(own, leading, false, x.data() + one * leading * columns, leading, b.data() + one * leading * columns, leading, n, n, columns) < bound, name);
        expect(error_of(own, leading, false, inverted.data() + one * n * n, n, identity.data(), n, n, n, n) < bound, name);
    }
    // With strides, and without pivots: L U is the matrix again.
    auto even = a;
    for (int one = 0; one < batch; ++one) {
        for (int i = 0; i < n; ++i) {
            put(even[size_t(one * leading * n + i * (leading + 1))], 8.0);
        }
    }
    memory<T> plain(even);
    expect(calls<T>::getrf_strided(handle, n, plain.on, leading, leading * n, nullptr, 0, info.on, batch) == HIPBLAS_STATUS_SUCCESS, name);
    const auto lu = plain.back();
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
            number sum = 0;
            for (int k = 0; k <= std::min(i, j); ++k) {
                sum += (k == i ? number(1) : wide(lu[size_t(i + k * leading)])) * wide(lu[size_t(k + j * leading)]);
            }
            expect(std::abs(sum - wide(even[size_t(i + j * leading)])) < bound, name);
        }
    }
    // A matrix of zeros has no first pivot.
    memory<T> zeros(std::vector<T>(size_t(leading * n), T{}));
    expect(calls<T>::getrf(handle, n, zeros.on, leading, pivots.on, info.on) == HIPBLAS_STATUS_SUCCESS && info.back()[0] == 1, name);
    expect(calls<T>::getrs(handle, HIPBLAS_OP_N, n, columns, factors.on, n - 1, pivots.on, found.on, leading, &told) == HIPBLAS_STATUS_INVALID_VALUE && told == -5, name);
}

template <class T> void squares(hipblasHandle_t handle, double bound, const char * name) {
    constexpr int leading = 7, columns = 2;
    for (const int m : {6, 3}) {
        constexpr bool is_real = std::is_floating_point_v<T>;
        for (const auto op : {HIPBLAS_OP_N, is_real ? HIPBLAS_OP_T : HIPBLAS_OP_C}) {
            constexpr int n = 4;
            const auto a = numbers<T>(leading * n, 3), b = numbers<T>(leading * columns, 5);
            memory<T> on(a), found(b);
            memory<int> failed(std::vector<int>(1, 9));
            int told = 9;
            expect(calls<T>::gels(handle, op, m, n, columns, on.on, leading, found.on, leading, &told, failed.on) == HIPBLAS_STATUS_SUCCESS, name);
            expect(told == 0 && failed.back()[0] == 0, name);
            const auto x   = found.back();
            const bool is_adjoint = op != HIPBLAS_OP_N;
            const int rows = is_adjoint ? n : m, unknowns = is_adjoint ? m : n;
            if (rows <= unknowns) { // one of many solutions
                expect(error_of(a, leading, is_adjoint, x.data(), leading, b.data(), leading, rows, unknowns, columns) < bound, name);
                continue;
            }
            for (int c = 0; c < columns; ++c) { // what is left stands upright on all columns
                std::vector<number> left;
                for (int i = 0; i < rows; ++i) {
                    number sum = wide(b[size_t(i + c * leading)]);
                    for (int k = 0; k < unknowns; ++k) {
                        sum -= (is_adjoint ? std::conj(wide(a[size_t(k + i * leading)])) : wide(a[size_t(i + k * leading)])) * wide(x[size_t(k + c * leading)]);
                    }
                    left.push_back(sum);
                }
                for (int k = 0; k < unknowns; ++k) {
                    number sum = 0;
                    for (int i = 0; i < rows; ++i) {
                        const number one = is_adjoint ? std::conj(wide(a[size_t(k + i * leading)])) : wide(a[size_t(i + k * leading)]);
                        sum += std::conj(one) * left[size_t(i)];
                    }
                    expect(std::abs(sum) < bound, name);
                }
            }
        }
    }
    int wrong = 9;
    expect(calls<T>::geqrf(handle, -1, 1, nullptr, leading, nullptr, &wrong) == HIPBLAS_STATUS_INVALID_VALUE && wrong == -1, name);
    expect(calls<T>::geqrf_strided(handle, 1, 1, nullptr, 1, 1, nullptr, 1, &wrong, -1) == HIPBLAS_STATUS_INVALID_VALUE && wrong == -9, name);
    // A column of Q R has the length that it had.
    constexpr int m = 6, n = 4;
    const auto a = numbers<T>(leading * n, 3);
    memory<T> on(a), factors(std::vector<T>(size_t(n), T{}));
    int told = 9;
    expect(calls<T>::geqrf(handle, m, n, on.on, leading, factors.on, &told) == HIPBLAS_STATUS_SUCCESS && told == 0, name);
    const auto r = on.back();
    for (int j = 0; j < n; ++j) {
        double before = 0, behind = 0;
        for (int i = 0; i < m; ++i) {
            before += std::norm(wide(a[size_t(i + j * leading)]));
            behind += i <= j ? std::norm(wide(r[size_t(i + j * leading)])) : 0.0;
        }
        expect(std::fabs(before - behind) < bound, name);
    }
}

} // namespace

int main() {
    hipblasHandle_t handle = nullptr;
    expect(hipblasCreate(&handle) == HIPBLAS_STATUS_SUCCESS, "handle");
    systems<float>(handle, 2e-4, "float");
    systems<double>(handle, 1e-11, "double");
    systems<hipComplex>(handle, 2e-4, "complex float");
    systems<hipDoubleComplex>(handle, 1e-11, "complex double");
    squares<float>(handle, 2e-4, "squares of float");
    squares<double>(handle, 1e-11, "squares of double");
    squares<hipComplex>(handle, 2e-4, "squares of complex float");
    squares<hipDoubleComplex>(handle, 1e-11, "squares of complex double");
    (void) hipblasDestroy(handle);
    return failures;
}
