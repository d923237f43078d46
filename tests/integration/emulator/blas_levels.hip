// hipBLAS, levels 1 to 3, on the executing runtime: against plain loops over matrices written out in full.
//
// Built with hipBLAS's own header. Numbers are small whole ones, so that sums are exact in every type; prints what is
// wrong, and ends with 1 when anything is. Each routine runs by itself, batched and strided, with its scalars on the
// host and on the device.

#include <hip/hip_runtime.h>
#include <hipblas/hipblas.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

int wrong = 0;

void expect(bool holds, const std::string & what) {
    if (!holds) {
        std::printf("wrong: %s\n", what.c_str());
        wrong = 1;
    }
}

void must(hipError_t error) {
    if (error != hipSuccess) {
        std::printf("wrong: %s\n", hipGetErrorName(error));
        std::exit(1);
    }
}

constexpr int batch = 3, n = 5, k = 2, ld = 7;
constexpr long long apart = 100; // elements from one product of a batch to the next

using matrix = std::vector<std::vector<double>>; // [row][column]

// Numbers on the device, `batch` times, and the list of where each begins.
template <typename T> struct numbers {
    T * at         = nullptr;
    T ** list      = nullptr;
    explicit numbers(int seed) {
        must(hipHostMalloc(reinterpret_cast<void **>(&at), batch * apart * sizeof(T), 0));
        must(hipHostMalloc(reinterpret_cast<void **>(&list), batch * sizeof(T *), 0));
        for (int i = 0; i < batch * apart; ++i) {
            at[i] = T(((i * 7 + seed * 5 + i / 11) % 7) - 3);
        }
        for (int i = 0; i < batch; ++i) {
            list[i] = at + i * apart;
        }
    }
    numbers(const numbers &) = delete;
    ~numbers() {
        (void) hipHostFree(at);
        (void) hipHostFree(list);
    }
    const T * const * constant() const { return const_cast<const T * const *>(list); }
    std::vector<double> all() const { return std::vector<double>(at, at + batch * apart); }
};

// Of each product in turn: how it is called, once with scalars on the host, once on the device.
enum way { alone, lists, strides };
const char * const ways[] = {"alone", "lists", "strides"};

hipblasHandle_t handle;

template <typename T> struct scalars {
    T * at;
    explicit scalars(std::vector<T> values) {
        must(hipHostMalloc(reinterpret_cast<void **>(&at), values.size() * sizeof(T), 0));
        std::copy(values.begin(), values.end(), at);
    }
    ~scalars() { (void) hipHostFree(at); }
};

// Runs `call` in each way, and holds what it leaves in `result` against `plain`, which changes numbers of one product.
template <typename T>
void check(const std::string & name, numbers<T> & result, const std::function<hipblasStatus_t(way)> & call,
           const std::function<void(int product, std::vector<double> & whole, long long begin)> & plain) {
    for (const auto mode : {HIPBLAS_POINTER_MODE_HOST, HIPBLAS_POINTER_MODE_DEVICE}) {
        for (const way which : {alone, lists, strides}) {
            const std::vector<T> before(result.at, result.at + batch * apart);
            std::vector<double> wanted = result.all();
            for (int i = 0; i < (which == alone ? 1 : batch); ++i) {
                plain(i, wanted, i * apart);
            }
            (void) hipblasSetPointerMode(handle, mode);
            const hipblasStatus_t status = call(which);
            must(hipDeviceSynchronize());
            const std::string what = name + ", " + ways[which] + (mode == HIPBLAS_POINTER_MODE_HOST ? "" : ", device");
            expect(status == HIPBLAS_STATUS_SUCCESS, what + ": status " + std::to_string(status));
            for (int i = 0; i < batch * apart; ++i) {
                if (std::abs(double(result.at[i]) - wanted[size_t(i)]) > 1e-5 * (1 + std::abs(wanted[size_t(i)]))) {
                    expect(false, what + " at " + std::to_string(i) + ": " + std::to_string(double(result.at[i])) +
                                      " is not " + std::to_string(wanted[size_t(i)]));
                    break;
                }
            }
            std::copy(before.begin(), before.end(), result.at);
        }
    }
    (void) hipblasSetPointerMode(handle, HIPBLAS_POINTER_MODE_HOST);
}

// The functions of one type, by their common name.
template <typename T> struct blas;
#define OF(type, letter)                                                                                              \
    template <> struct blas<type> {                                                                                   \
        static constexpr const char * name = #letter;                                                                 \
        ROUTINES(letter)                                                                                              \
    };
#define ROUTINE(letter, name)                                                                                         \
    static constexpr auto * name        = &hipblas##letter##name;                                                     \
    static constexpr auto * name##_list = &hipblas##letter##name##Batched;                                            \
    static constexpr auto * name##_many = &hipblas##letter##name##StridedBatched;
#define ROUTINES(l)                                                                                                   \
    ROUTINE(l, axpy) ROUTINE(l, scal) ROUTINE(l, copy) ROUTINE(l, swap) ROUTINE(l, dot) ROUTINE(l, nrm2)              \
    ROUTINE(l, asum) ROUTINE(l, rot) ROUTINE(l, gemv) ROUTINE(l, gbmv) ROUTINE(l, symv) ROUTINE(l, sbmv)              \
    ROUTINE(l, spmv) ROUTINE(l, ger) ROUTINE(l, syr) ROUTINE(l, spr) ROUTINE(l, syr2) ROUTINE(l, spr2)                \
    ROUTINE(l, trmv) ROUTINE(l, trsv) ROUTINE(l, tbmv) ROUTINE(l, tbsv) ROUTINE(l, tpmv) ROUTINE(l, tpsv)             \
    ROUTINE(l, gemm) ROUTINE(l, symm) ROUTINE(l, syrk) ROUTINE(l, syr2k) ROUTINE(l, syrkx) ROUTINE(l, trmm)           \
    ROUTINE(l, trsm) ROUTINE(l, geam) ROUTINE(l, dgmm) ROUTINE(l, trtri)
OF(float, S)
OF(double, D)

constexpr auto upper = HIPBLAS_FILL_MODE_UPPER, lower = HIPBLAS_FILL_MODE_LOWER;
constexpr auto as_is = HIPBLAS_OP_N, turned = HIPBLAS_OP_T;

// What is stored where.
enum storage { full, band, packed };

bool is_stored(hipblasFillMode_t fill, storage how, int i, int j) {
    const bool is_in = fill == upper ? i <= j : i >= j;
    return is_in && (how != band || std::abs(i - j) <= k);
}

long long place(hipblasFillMode_t fill, storage how, int i, int j) {
    switch (how) {
        case full: return i + j * ld;
        case band: return (fill == upper ? k + i - j : i - j) + j * ld;
        default: return fill == upper ? i + j * (j + 1) / 2 : i + j * (2 * n - j - 1) / 2;
    }
}

// Written out: what the triangle stands for.
matrix symmetric(const std::vector<double> & a, long long begin, hipblasFillMode_t fill, storage how) {
    matrix m(n, std::vector<double>(n, 0));
    for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
            if (is_stored(fill, how, i, j)) {
                m[i][j] = m[j][i] = a[size_t(begin + place(fill, how, i, j))];
            }
        }
    }
    return m;
}

matrix triangular(const std::vector<double> & a, long long begin, hipblasFillMode_t fill, storage how, bool is_unit,
                  bool is_turned) {
    matrix m(n, std::vector<double>(n, 0));
    for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
            if (is_stored(fill, how, i, j)) {
                (is_turned ? m[j][i] : m[i][j]) = i == j && is_unit ? 1 : a[size_t(begin + place(fill, how, i, j))];
            }
        }
    }
    return m;
}

matrix general(const std::vector<double> & a, long long begin, int rows, int columns, bool is_turned) {
    matrix m(size_t(rows), std::vector<double>(size_t(columns), 0));
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
            m[i][j] = a[size_t(begin + (is_turned ? j + i * ld : i + j * ld))];
        }
    }
    return m;
}

matrix times(const matrix & a, const matrix & b) {
    matrix m(a.size(), std::vector<double>(b[0].size(), 0));
    for (size_t i = 0; i < a.size(); ++i) {
        for (size_t j = 0; j < b[0].size(); ++j) {
            for (size_t p = 0; p < b.size(); ++p) {
                m[i][j] += a[i][p] * b[p][j];
            }
        }
    }
    return m;
}

// Element i of a vector of BLAS with `size` elements.
long long element(long long begin, int size, int step, int i) {
    return begin + (step < 0 ? (i - size + 1) * step : i * step);
}

std::vector<double> read(const std::vector<double> & x, long long begin, int size, int step) {
    std::vector<double> v;
    for (int i = 0; i < size; ++i) {
        v.push_back(x[size_t(element(begin, size, step, i))]);
    }
    return v;
}

std::vector<double> times(const matrix & a, const std::vector<double> & x) {
    std::vector<double> y(a.size(), 0);
    for (size_t i = 0; i < a.size(); ++i) {
        for (size_t j = 0; j < x.size(); ++j) {
            y[i] += a[i][j] * x[j];
        }
    }
    return y;
}

#define CALL(name, ALONE, LISTS, STRIDES)                                                                             \
    [&](way which) {                                                                                                  \
        return which == alone ? b::name ALONE : which == lists ? b::name##_list LISTS : b::name##_many STRIDES;        \
    }

template <typename T> void level1() {
    using b = blas<T>;
    const std::string of = b::name;
    numbers<T> x(1), y(2), r(3);
    const scalars<T> s({2, 3});
    const T *two = &s.at[0], *three = &s.at[1];
    for (const int step : {1, 2, -2}) {
        const auto each = [&](const std::function<void(double &, double &)> & change) {
            return [&, change, step](int, std::vector<double> & all, long long begin) {
                for (int i = 0; i < n; ++i) {
                    double other = double(x.at[element(begin, n, 3, i)]);
                    change(other, all[size_t(element(begin, n, step, i))]);
                }
            };
        };
        check<T>(of + "axpy", y, CALL(axpy, (handle, n, two, x.at, 3, y.at, step), (handle, n, two, x.constant(), 3, y.list, step, batch), (handle, n, two, x.at, 3, apart, y.at, step, apart, batch)),
                 each([](double & a, double & c) { c += 2 * a; }));
        check<T>(of + "copy", y, CALL(copy, (handle, n, x.at, 3, y.at, step), (handle, n, x.constant(), 3, y.list, step, batch), (handle, n, x.at, 3, apart, y.at, step, apart, batch)),
                 each([](double & a, double & c) { c = a; }));
        if (step > 0) {
            check<T>(of + "scal", y, CALL(scal, (handle, n, three, y.at, step), (handle, n, three, y.list, step, batch), (handle, n, three, y.at, step, apart, batch)),
                     each([](double &, double & c) { c *= 3; }));
        }
    }
    // Into the results of a batch, one after the other.
    const auto reduced = [&](const std::string & name, const std::function<hipblasStatus_t(way)> & call,
                             const std::function<double(std::vector<double>, std::vector<double>)> & sum) {
        check<T>(of + name, r, call, [&](int product, std::vector<double> & all, long long begin) {
            all[size_t(product)] = sum(read(x.all(), begin, n, 2), read(y.all(), begin, n, -1));
        });
    };
    reduced("dot", CALL(dot, (handle, n, x.at, 2, y.at, -1, r.at), (handle, n, x.constant(), 2, y.constant(), -1, batch, r.at), (handle, n, x.at, 2, apart, y.at, -1, apart, batch, r.at)), [](auto a, auto c) {
        double total = 0;
        for (int i = 0; i < n; ++i) {
            total += a[size_t(i)] * c[size_t(i)];
        }
        return total;
    });
    reduced("nrm2", CALL(nrm2, (handle, n, x.at, 2, r.at), (handle, n, x.constant(), 2, batch, r.at), (handle, n, x.at, 2, apart, batch, r.at)), [](auto a, auto) {
        double total = 0;
        for (const double one : a) {
            total += one * one;
        }
        return std::sqrt(total);
    });
    reduced("asum", CALL(asum, (handle, n, x.at, 2, r.at), (handle, n, x.constant(), 2, batch, r.at), (handle, n, x.at, 2, apart, batch, r.at)), [](auto a, auto) {
        double total = 0;
        for (const double one : a) {
            total += std::abs(one);
        }
        return total;
    });
    check<T>(of + "rot", y, CALL(rot, (handle, n, x.at, 1, y.at, 2, two, three), (handle, n, x.list, 1, y.list, 2, two, three, batch), (handle, n, x.at, 1, apart, y.at, 2, apart, two, three, batch)),
             [&, before = x.all()](int product, std::vector<double> & all, long long begin) {
                 static std::vector<double> now;
                 now = product == 0 ? x.all() : now; // x changes, too
                 for (int i = 0; i < n; ++i) {
                     double & c = all[size_t(begin + 2 * i)];
                     c          = 2 * c - 3 * now[size_t(begin + i)];
                 }
             });
    numbers<T> q(7), t(8);
    const std::vector<double> q_before = q.all(), t_before = t.all();
    (void) b::swap(handle, n, q.at, 1, t.at, -1);
    must(hipDeviceSynchronize());
    expect(read(q.all(), 0, n, 1) == read(t_before, 0, n, -1) && read(t.all(), 0, n, -1) == read(q_before, 0, n, 1),
           of + "swap");
}

template <typename T> void level2() {
    using b              = blas<T>;
    const std::string of = b::name;
    numbers<T> a(1), x(2), y(3);
    const scalars<T> s({2, 3});
    const T *two = &s.at[0], *three = &s.at[1];
    const auto sum = [&](const std::function<matrix(long long)> & written_out, int width) {
        return [&, written_out, width](int, std::vector<double> & all, long long begin) {
            const std::vector<double> product = times(written_out(begin), read(x.all(), begin, width, 2));
            for (size_t i = 0; i < product.size(); ++i) {
                double & to = all[size_t(element(begin, int(product.size()), -1, int(i)))];
                to          = 2 * product[i] + 3 * to;
            }
        };
    };
    for (const auto op : {as_is, turned}) {
        const int height = op == as_is ? n : k + 1, width = op == as_is ? k + 1 : n;
        check<T>(of + "gemv", y, CALL(gemv, (handle, op, n, k + 1, two, a.at, ld, x.at, 2, three, y.at, -1), (handle, op, n, k + 1, two, a.constant(), ld, x.constant(), 2, three, y.list, -1, batch), (handle, op, n, k + 1, two, a.at, ld, apart, x.at, 2, apart, three, y.at, -1, apart, batch)),
                 sum([&](long long begin) { return general(a.all(), begin, height, width, op == turned); }, width));
        check<T>(of + "gbmv", y, CALL(gbmv, (handle, op, n, n, 1, 2, two, a.at, ld, x.at, 2, three, y.at, -1), (handle, op, n, n, 1, 2, two, a.constant(), ld, x.constant(), 2, three, y.list, -1, batch), (handle, op, n, n, 1, 2, two, a.at, ld, apart, x.at, 2, apart, three, y.at, -1, apart, batch)),
                 sum([&](long long begin) {
                     matrix m(n, std::vector<double>(n, 0));
                     for (int j = 0; j < n; ++j) {
                         for (int i = std::max(0, j - 2); i <= std::min(n - 1, j + 1); ++i) {
                             (op == turned ? m[j][i] : m[i][j]) = double(a.at[begin + 2 + i - j + j * ld]);
                         }
                     }
                     return m;
                 }, n));
    }
    for (const auto fill : {upper, lower}) {
        const auto mirror = [&](storage how) {
            return sum([&a, fill, how](long long begin) { return symmetric(a.all(), begin, fill, how); }, n);
        };
        check<T>(of + "symv", y, CALL(symv, (handle, fill, n, two, a.at, ld, x.at, 2, three, y.at, -1), (handle, fill, n, two, a.constant(), ld, x.constant(), 2, three, y.list, -1, batch), (handle, fill, n, two, a.at, ld, apart, x.at, 2, apart, three, y.at, -1, apart, batch)), mirror(full));
        check<T>(of + "sbmv", y, CALL(sbmv, (handle, fill, n, k, two, a.at, ld, x.at, 2, three, y.at, -1), (handle, fill, n, k, two, a.constant(), ld, x.constant(), 2, three, y.list, -1, batch), (handle, fill, n, k, two, a.at, ld, apart, x.at, 2, apart, three, y.at, -1, apart, batch)), mirror(band));
        check<T>(of + "spmv", y, CALL(spmv, (handle, fill, n, two, a.at, x.at, 2, three, y.at, -1), (handle, fill, n, two, a.constant(), x.constant(), 2, three, y.list, -1, batch), (handle, fill, n, two, a.at, apart, x.at, 2, apart, three, y.at, -1, apart, batch)), mirror(packed));
        // Sums of outer products, of what is stored.
        const auto outer = [&](storage how, bool is_twice) {
            return [&, how, is_twice, fill](int, std::vector<double> & all, long long begin) {
                const auto u = read(x.all(), begin, n, 2), v = is_twice ? read(y.all(), begin, n, -1) : u;
                for (int j = 0; j < n; ++j) {
                    for (int i = 0; i < n; ++i) {
                        if (is_stored(fill, how, i, j)) {
                            all[size_t(begin + place(fill, how, i, j))] +=
                                2 * (u[size_t(i)] * v[size_t(j)] + (is_twice ? v[size_t(i)] * u[size_t(j)] : 0));
                        }
                    }
                }
            };
        };
        check<T>(of + "syr", a, CALL(syr, (handle, fill, n, two, x.at, 2, a.at, ld), (handle, fill, n, two, x.constant(), 2, a.list, ld, batch), (handle, fill, n, two, x.at, 2, apart, a.at, ld, apart, batch)), outer(full, false));
        check<T>(of + "spr", a, CALL(spr, (handle, fill, n, two, x.at, 2, a.at), (handle, fill, n, two, x.constant(), 2, a.list, batch), (handle, fill, n, two, x.at, 2, apart, a.at, apart, batch)), outer(packed, false));
        check<T>(of + "syr2", a, CALL(syr2, (handle, fill, n, two, x.at, 2, y.at, -1, a.at, ld), (handle, fill, n, two, x.constant(), 2, y.constant(), -1, a.list, ld, batch), (handle, fill, n, two, x.at, 2, apart, y.at, -1, apart, a.at, ld, apart, batch)), outer(full, true));
        check<T>(of + "spr2", a, CALL(spr2, (handle, fill, n, two, x.at, 2, y.at, -1, a.at), (handle, fill, n, two, x.constant(), 2, y.constant(), -1, a.list, batch), (handle, fill, n, two, x.at, 2, apart, y.at, -1, apart, a.at, apart, batch)), outer(packed, true));
        // Triangles: what is multiplied, and what is solved gives back what was multiplied.
        numbers<T> d(4);
        for (int i = 0; i < batch * apart; ++i) {
            d.at[i] = T(1 + i % 2); // no zero on any diagonal
        }
        for (const auto op : {as_is, turned}) {
            for (const auto diagonal : {HIPBLAS_DIAG_UNIT, HIPBLAS_DIAG_NON_UNIT}) {
                const auto product = [&](storage how, bool is_solved) {
                    return [&, how, is_solved, fill, op, diagonal](int, std::vector<double> & all, long long begin) {
                        const matrix m = triangular(d.all(), begin, fill, how, diagonal == HIPBLAS_DIAG_UNIT, op == turned);
                        std::vector<double> v = read(all, begin, n, 2);
                        if (is_solved) {
                            const bool is_forward = (fill == lower) == (op == as_is);
                            for (int step = 0; step < n; ++step) {
                                const int i = is_forward ? step : n - 1 - step;
                                for (int j = 0; j < n; ++j) {
                                    v[size_t(i)] -= j == i ? 0 : m[size_t(i)][size_t(j)] * ((j < i) == is_forward ? v[size_t(j)] : 0);
                                }
                                v[size_t(i)] /= m[size_t(i)][size_t(i)];
                            }
                        } else {
                            v = times(m, v);
                        }
                        for (int i = 0; i < n; ++i) {
                            all[size_t(begin + 2 * i)] = v[size_t(i)];
                        }
                    };
                };
#define TRIANGLE(name, solved)                                                                                        \
    check<T>(of + #name, x, CALL(name, (handle, fill, op, diagonal, n, d.at, ld, x.at, 2),                            \
                                 (handle, fill, op, diagonal, n, d.constant(), ld, x.list, 2, batch),                 \
                                 (handle, fill, op, diagonal, n, d.at, ld, apart, x.at, 2, apart, batch)),            \
             product(full, solved));
#define BAND(name, solved)                                                                                            \
    check<T>(of + #name, x, CALL(name, (handle, fill, op, diagonal, n, k, d.at, ld, x.at, 2),                         \
                                 (handle, fill, op, diagonal, n, k, d.constant(), ld, x.list, 2, batch),              \
                                 (handle, fill, op, diagonal, n, k, d.at, ld, apart, x.at, 2, apart, batch)),         \
             product(band, solved));
#define PACKED(name, solved)                                                                                          \
    check<T>(of + #name, x, CALL(name, (handle, fill, op, diagonal, n, d.at, x.at, 2),                                \
                                 (handle, fill, op, diagonal, n, d.constant(), x.list, 2, batch),                     \
                                 (handle, fill, op, diagonal, n, d.at, apart, x.at, 2, apart, batch)),                \
             product(packed, solved));
                TRIANGLE(trmv, false)
                TRIANGLE(trsv, true)
                BAND(tbmv, false)
                BAND(tbsv, true)
                PACKED(tpmv, false)
                PACKED(tpsv, true)
            }
        }
    }
    check<T>(of + "ger", a, CALL(ger, (handle, n, k, two, x.at, 2, y.at, -1, a.at, ld), (handle, n, k, two, x.constant(), 2, y.constant(), -1, a.list, ld, batch), (handle, n, k, two, x.at, 2, apart, y.at, -1, apart, a.at, ld, apart, batch)),
             [&](int, std::vector<double> & all, long long begin) {
                 const auto u = read(x.all(), begin, n, 2), v = read(y.all(), begin, k, -1);
                 for (int j = 0; j < k; ++j) {
                     for (int i = 0; i < n; ++i) {
                         all[size_t(begin + i + j * ld)] += 2 * u[size_t(i)] * v[size_t(j)];
                     }
                 }
             });
}

template <typename T> void level3() {
    using b              = blas<T>;
    const std::string of = b::name;
    numbers<T> a(1), c(2), e(3);
    const scalars<T> s({2, 3});
    const T *two = &s.at[0], *three = &s.at[1];
    // What is left of `rows` times `columns` numbers of e: beta is 3 or nothing.
    const auto left = [&](int rows, int columns, const std::function<matrix(long long)> & product, double beta,
                          const std::function<bool(int, int)> & is_kept) {
        return [=](int, std::vector<double> & all, long long begin) {
            const matrix m = product(begin);
            for (int j = 0; j < columns; ++j) {
                for (int i = 0; i < rows; ++i) {
                    double & to = all[size_t(begin + i + j * ld)];
                    to          = is_kept(i, j) ? to : m[size_t(i)][size_t(j)] + (beta == 0 ? 0 : beta * to);
                }
            }
        };
    };
    const auto all_of_it = [](int, int) { return false; };
    const auto doubled   = [](matrix m) {
        for (auto & row : m) {
            for (double & one : row) {
                one *= 2;
            }
        }
        return m;
    };
    for (const auto fill : {upper, lower}) {
        for (const auto side : {HIPBLAS_SIDE_LEFT, HIPBLAS_SIDE_RIGHT}) {
            const bool is_left = side == HIPBLAS_SIDE_LEFT;
            const int rows = is_left ? n : k, columns = is_left ? k : n;
            const auto with = [&, is_left, rows, columns](const std::function<matrix(long long)> & square) {
                return [&, is_left, rows, columns, square](long long begin) {
                    const matrix other = general(c.all(), begin, rows, columns, false);
                    return doubled(is_left ? times(square(begin), other) : times(other, square(begin)));
                };
            };
            check<T>(of + "symm", e, CALL(symm, (handle, side, fill, rows, columns, two, a.at, ld, c.at, ld, three, e.at, ld), (handle, side, fill, rows, columns, two, a.constant(), ld, c.constant(), ld, three, e.list, ld, batch), (handle, side, fill, rows, columns, two, a.at, ld, apart, c.at, ld, apart, three, e.at, ld, apart, batch)),
                     left(rows, columns, with([&](long long begin) { return symmetric(a.all(), begin, fill, full); }), 3, all_of_it));
            for (const auto op : {as_is, turned}) {
                for (const auto diagonal : {HIPBLAS_DIAG_UNIT, HIPBLAS_DIAG_NON_UNIT}) {
                    const auto square = [&, op, diagonal](long long begin) {
                        return triangular(a.all(), begin, fill, full, diagonal == HIPBLAS_DIAG_UNIT, op == turned);
                    };
                    check<T>(of + "trmm", e, CALL(trmm, (handle, side, fill, op, diagonal, rows, columns, two, a.at, ld, c.at, ld, e.at, ld), (handle, side, fill, op, diagonal, rows, columns, two, a.constant(), ld, c.constant(), ld, e.list, ld, batch), (handle, side, fill, op, diagonal, rows, columns, two, a.at, ld, apart, c.at, ld, apart, e.at, ld, apart, batch)),
                             left(rows, columns, with(square), 0, all_of_it));
                    // What is solved, multiplied: twice what it was.
                    numbers<T> d(4), x(5);
                    for (int i = 0; i < batch * apart; ++i) {
                        d.at[i] = T(1 + i % 2);
                    }
                    const std::vector<double> before = x.all();
                    (void) b::trsm_many(handle, side, fill, op, diagonal, rows, columns, two, d.at, ld, apart, x.at, ld, apart, batch);
                    must(hipDeviceSynchronize());
                    for (int product = 0; product < batch; ++product) {
                        const matrix t = triangular(d.all(), product * apart, fill, full, diagonal == HIPBLAS_DIAG_UNIT, op == turned);
                        const matrix solved = general(x.all(), product * apart, rows, columns, false);
                        const matrix back   = is_left ? times(t, solved) : times(solved, t);
                        const matrix wanted = doubled(general(before, product * apart, rows, columns, false));
                        for (int i = 0; i < rows; ++i) {
                            for (int j = 0; j < columns; ++j) {
                                expect(std::abs(back[size_t(i)][size_t(j)] - wanted[size_t(i)][size_t(j)]) < 1e-3, of + "trsm");
                            }
                        }
                    }
                }
            }
        }
        for (const auto op : {as_is, turned}) {
            const auto kept = [fill](int i, int j) { return !is_stored(fill, full, i, j); };
            const auto product = [&, op](const numbers<T> & first, const numbers<T> & second) {
                return [&, op](long long begin) {
                    return doubled(times(general(first.all(), begin, n, k, op == turned), general(second.all(), begin, k, n, op == as_is)));
                };
            };
            check<T>(of + "syrk", e, CALL(syrk, (handle, fill, op, n, k, two, a.at, ld, three, e.at, ld), (handle, fill, op, n, k, two, a.constant(), ld, three, e.list, ld, batch), (handle, fill, op, n, k, two, a.at, ld, apart, three, e.at, ld, apart, batch)),
                     left(n, n, product(a, a), 3, kept));
            check<T>(of + "syrkx", e, CALL(syrkx, (handle, fill, op, n, k, two, a.at, ld, c.at, ld, three, e.at, ld), (handle, fill, op, n, k, two, a.constant(), ld, c.constant(), ld, three, e.list, ld, batch), (handle, fill, op, n, k, two, a.at, ld, apart, c.at, ld, apart, three, e.at, ld, apart, batch)),
                     left(n, n, product(a, c), 3, kept));
            check<T>(of + "syr2k", e, CALL(syr2k, (handle, fill, op, n, k, two, a.at, ld, c.at, ld, three, e.at, ld), (handle, fill, op, n, k, two, a.constant(), ld, c.constant(), ld, three, e.list, ld, batch), (handle, fill, op, n, k, two, a.at, ld, apart, c.at, ld, apart, three, e.at, ld, apart, batch)),
                     left(n, n, [&, first = product(a, c), second = product(c, a)](long long begin) {
                         matrix sum = first(begin);
                         const matrix other = second(begin);
                         for (int i = 0; i < n; ++i) {
                             for (int j = 0; j < n; ++j) {
                                 sum[size_t(i)][size_t(j)] += other[size_t(i)][size_t(j)];
                             }
                         }
                         return sum;
                     }, 3, kept));
        }
        // The inverse of a triangle, times the triangle.
        numbers<T> d(4), inverse(5);
        for (int i = 0; i < batch * apart; ++i) {
            d.at[i] = T(1 + i % 2);
        }
        (void) b::trtri_list(handle, fill, HIPBLAS_DIAG_NON_UNIT, n, d.constant(), ld, inverse.list, ld, batch);
        must(hipDeviceSynchronize());
        for (int p = 0; p < batch; ++p) {
            const matrix one = times(triangular(d.all(), p * apart, fill, full, false, false), general(inverse.all(), p * apart, n, n, false));
            for (int i = 0; i < n; ++i) {
                for (int j = 0; j < n; ++j) {
                    expect(std::abs(one[size_t(i)][size_t(j)] - (i == j)) < 1e-4, of + "trtri");
                }
            }
        }
    }
    for (const auto op : {as_is, turned}) {
        check<T>(of + "gemm", e, CALL(gemm, (handle, op, turned, n, 3, k, two, a.at, ld, c.at, ld, three, e.at, ld), (handle, op, turned, n, 3, k, two, a.constant(), ld, c.constant(), ld, three, e.list, ld, batch), (handle, op, turned, n, 3, k, two, a.at, ld, apart, c.at, ld, apart, three, e.at, ld, apart, batch)),
                 left(n, 3, [&](long long begin) { return doubled(times(general(a.all(), begin, n, k, op == turned), general(c.all(), begin, k, 3, true))); }, 3, all_of_it));
        check<T>(of + "geam", e, CALL(geam, (handle, op, as_is, n, 3, two, a.at, ld, three, c.at, ld, e.at, ld), (handle, op, as_is, n, 3, two, a.constant(), ld, three, c.constant(), ld, e.list, ld, batch), (handle, op, as_is, n, 3, two, a.at, ld, apart, three, c.at, ld, apart, e.at, ld, apart, batch)),
                 left(n, 3, [&](long long begin) {
                     matrix m = doubled(general(a.all(), begin, n, 3, op == turned));
                     for (int i = 0; i < n; ++i) {
                         for (int j = 0; j < 3; ++j) {
                             m[size_t(i)][size_t(j)] += 3 * double(c.at[begin + i + j * ld]);
                         }
                     }
                     return m;
                 }, 0, all_of_it));
    }
    for (const auto side : {HIPBLAS_SIDE_LEFT, HIPBLAS_SIDE_RIGHT}) {
        check<T>(of + "dgmm", e, CALL(dgmm, (handle, side, n, 3, a.at, ld, c.at, 2, e.at, ld), (handle, side, n, 3, a.constant(), ld, c.constant(), 2, e.list, ld, batch), (handle, side, n, 3, a.at, ld, apart, c.at, 2, apart, e.at, ld, apart, batch)),
                 left(n, 3, [&](long long begin) {
                     matrix m = general(a.all(), begin, n, 3, false);
                     for (int i = 0; i < n; ++i) {
                         for (int j = 0; j < 3; ++j) {
                             m[size_t(i)][size_t(j)] *= double(c.at[begin + 2 * (side == HIPBLAS_SIDE_LEFT ? i : j)]);
                         }
                     }
                     return m;
                 }, 0, all_of_it));
    }
}

// What is there in one type alone: extremes, halves, integers, complex numbers.
void others() {
    numbers<float> x(1);
    const float values[] = {1, -3, 3, NAN, 0, -0.0f};
    std::copy(std::begin(values), std::end(values), x.at);
    int which[2];
    int64_t whole = 0;
    (void) hipblasIsamax(handle, 6, x.at, 1, &which[0]);
    (void) hipblasIsamin(handle, 6, x.at, 1, &which[1]);
    expect(which[0] == 2 && which[1] == 5, "isamax and isamin take the first, and no NaN");
    (void) hipblasIsamax_64(handle, 6, x.at, 1, &whole);
    expect(whole == 2, "isamax with sizes of 64 bits");
    float zero = 1;
    (void) hipblasSnrm2(handle, 0, x.at, 1, &zero);
    expect(zero == 0, "the norm of nothing");

    float *a, *c, *cosine, *sine;
    for (float ** one : {&a, &c, &cosine, &sine}) {
        must(hipHostMalloc(reinterpret_cast<void **>(one), sizeof(float), 0));
    }
    *a = 3, *c = 4;
    (void) hipblasSrotg(handle, a, c, cosine, sine);
    expect(std::abs(*a - 5) < 1e-6f && std::abs(*cosine - 0.6f) < 1e-6f && std::abs(*sine - 0.8f) < 1e-6f, "srotg");
    float param[5], d1 = 2, d2 = 3, x1 = 1;
    const float y1 = 2;
    (void) hipblasSrotmg(handle, &d1, &d2, &x1, &y1, param);
    numbers<float> u(1), v(2);
    u.at[0] = 1, v.at[0] = y1;
    (void) hipblasSrotm(handle, 1, u.at, 1, v.at, 1, param);
    must(hipDeviceSynchronize());
    expect(std::abs(v.at[0]) < 1e-5f && std::abs(d1 * x1 * x1 - 14) < 1e-4f, "srotmg makes what srotm turns to zero");

    _Float16 half[] = {1, 2, 3, 4}, other[] = {1, 0, 0, 1}, sums[] = {10, 20, 30, 40}, two = 2, one = 1, dot = 0;
    _Float16 * on_device;
    must(hipMalloc(reinterpret_cast<void **>(&on_device), 3 * sizeof(half)));
    (void) hipblasSetVector(4, sizeof(_Float16), half, 1, on_device, 1);
    (void) hipblasSetMatrix(2, 2, sizeof(_Float16), other, 2, on_device + 4, 2);
    (void) hipblasSetVector(4, sizeof(_Float16), sums, 1, on_device + 8, 1);
    const auto as_half = [](_Float16 * at) { return reinterpret_cast<hipblasHalf *>(at); };
    (void) hipblasHgemm(handle, as_is, as_is, 2, 2, 2, as_half(&two), as_half(on_device), 2, as_half(on_device + 4), 2,
                        as_half(&one), as_half(on_device + 8), 2);
    (void) hipblasGetMatrix(2, 2, sizeof(_Float16), on_device + 8, 2, sums, 2);
    expect(sums[0] == 12 && sums[1] == 24 && sums[2] == 36 && sums[3] == 48, "Hgemm, and matrices there and back");
    (void) hipblasHaxpy(handle, 4, as_half(&two), as_half(on_device), 1, as_half(on_device + 4), 1);
    (void) hipblasHdot(handle, 4, as_half(on_device), 1, as_half(on_device + 4), 1, as_half(&dot));
    expect(dot == 65, "Haxpy and Hdot");
    // Every second element, into every third.
    (void) hipblasSetVector(2, sizeof(_Float16), half, 2, on_device, 3);
    (void) hipblasGetVector(2, sizeof(_Float16), on_device, 3, sums, 1);
    expect(sums[0] == 1 && sums[1] == 3, "vectors with steps");

    int8_t bytes[] = {100, -100, 127, 3, 100, 50, -128, 7};
    int32_t whole_sums[] = {5, 6, 7, 8}, alpha = 2, beta = 3;
    void * integers;
    must(hipMalloc(&integers, 64));
    must(hipMemcpy(integers, bytes, sizeof(bytes), hipMemcpyHostToDevice));
    must(hipMemcpy(static_cast<char *>(integers) + 16, whole_sums, sizeof(whole_sums), hipMemcpyHostToDevice));
    (void) hipblasGemmEx(handle, as_is, as_is, 2, 2, 2, &alpha, integers, HIPBLAS_R_8I, 2,
                         static_cast<char *>(integers) + 4, HIPBLAS_R_8I, 2, &beta,
                         static_cast<char *>(integers) + 16, HIPBLAS_R_32I, 2, HIPBLAS_R_32I, HIPBLAS_GEMM_DEFAULT);
    must(hipMemcpy(whole_sums, static_cast<char *>(integers) + 16, sizeof(whole_sums), hipMemcpyDeviceToHost));
    expect(whole_sums[0] == 2 * (100 * 100 + 127 * 50) + 15 && whole_sums[1] == 2 * (-100 * 100 + 3 * 50) + 18 &&
               whole_sums[2] == 2 * (100 * -128 + 127 * 7) + 21 && whole_sums[3] == 2 * (100 * 128 + 3 * 7) + 24,
           "GemmEx of bytes");

    using c32 = std::complex<float>;
    c32 * z;
    must(hipHostMalloc(reinterpret_cast<void **>(&z), 16 * sizeof(c32), 0));
    const auto as_complex = [](c32 * at) { return reinterpret_cast<hipblasComplex *>(at); };
    z[0] = {1, 2}, z[1] = {3, -1}, z[4] = {0, 1}, z[5] = {2, 2}, z[8] = 0;
    c32 i_am = {0, 1}, none = 0, result = 0;
    (void) hipblasCdotc(handle, 2, as_complex(z), 1, as_complex(z + 4), 1, as_complex(&result));
    expect(result == std::conj(z[0]) * z[4] + std::conj(z[1]) * z[5], "Cdotc");
    (void) hipblasCgemm(handle, HIPBLAS_OP_C, as_is, 1, 1, 2, as_complex(&i_am), as_complex(z), 2, as_complex(z + 4), 2,
                        as_complex(&none), as_complex(z + 8), 1);
    must(hipDeviceSynchronize());
    expect(z[8] == i_am * result, "Cgemm");
    const float three = 3;
    z[8] = {1, 9}, z[9] = {2, 2}, z[11] = {3, 9};
    (void) hipblasCher(handle, lower, 2, &three, as_complex(z), 1, as_complex(z + 8), 2);
    must(hipDeviceSynchronize());
    expect(z[8] == c32(16, 0) && z[9] == c32(2, 2) + 3.0f * z[1] * std::conj(z[0]) && z[11] == c32(33, 0), "Cher");
}

// Nothing may be read where beta is zero, nor of the other triangle.
void reads_no_more() {
    numbers<double> a(1), c(2), e(3);
    for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
            e.at[i + j * ld] = NAN;
            a.at[i + j * ld] = i < j ? NAN : a.at[i + j * ld];
        }
    }
    const double one = 1, zero = 0;
    (void) hipblasDsymm(handle, HIPBLAS_SIDE_LEFT, lower, n, n, &one, a.at, ld, c.at, ld, &zero, e.at, ld);
    (void) hipblasDgemv(handle, as_is, n, n, &zero, a.at, ld, a.at, 1, &zero, e.at + 50, 1);
    must(hipDeviceSynchronize());
    for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
            expect(std::isfinite(e.at[i + j * ld]), "what is not to be read is read");
        }
    }
    expect(e.at[50] == 0, "alpha of zero");
    numbers<double> y(1);
    expect(hipblasDaxpy(handle, n, &one, nullptr, 1, y.at, 1) == HIPBLAS_STATUS_INVALID_VALUE, "no vector");
    expect(hipblasDgemv(handle, as_is, n, n, &one, a.at, n - 1, a.at, 1, &zero, y.at, 1) == HIPBLAS_STATUS_INVALID_VALUE, "columns that overlap");
    expect(hipblasDtrmv(handle, hipblasFillMode_t(0), as_is, HIPBLAS_DIAG_UNIT, n, a.at, ld, y.at, 1) == HIPBLAS_STATUS_INVALID_ENUM, "no such triangle");
    expect(hipblasDscal(nullptr, n, &one, y.at, 1) == HIPBLAS_STATUS_NOT_INITIALIZED, "no handle");
    expect(hipblasDscal(handle, 0, nullptr, nullptr, 1) == HIPBLAS_STATUS_SUCCESS, "nothing to do");
}

// A vector that goes on behind its memory.
void runs_over() {
    double * x;
    must(hipMalloc(reinterpret_cast<void **>(&x), 64));
    const double one = 1;
    (void) hipblasDscal(handle, 4, &one, x, 3);
    must(hipDeviceSynchronize());
}

} // namespace

int main(int, char ** arguments) {
    if (hipblasCreate(&handle) != HIPBLAS_STATUS_SUCCESS) {
        return 1;
    }
    const std::string what = arguments[1];
    if (what == "level1") {
        level1<float>();
        level1<double>();
    } else if (what == "level2") {
        level2<float>();
        level2<double>();
    } else if (what == "level3") {
        level3<float>();
        level3<double>();
    } else if (what == "others") {
        others();
    } else if (what == "reads_no_more") {
        reads_no_more();
    } else {
        runs_over();
    }
    return wrong;
}
