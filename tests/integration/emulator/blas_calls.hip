// Every call of hipBLAS that the backend makes, on the executing runtime: against plain loops, by streams, refused.
//
// Built with hipBLAS's own header, as a program of version 2 and as one of version 3 (HIPBLAS_V2). Prints what is
// wrong, and ends with 1 when anything is. Numbers are small whole ones, so that every type has every sum.

#include <hip/hip_runtime.h>
#include <hipblas/hipblas.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

#ifdef HIPBLAS_V2
using compute_t = hipblasComputeType_t;
constexpr compute_t as_f16 = HIPBLAS_COMPUTE_16F, as_f32 = HIPBLAS_COMPUTE_32F, as_f64 = HIPBLAS_COMPUTE_64F;
#else
using compute_t = hipblasDatatype_t;
constexpr compute_t as_f16 = HIPBLAS_R_16F, as_f32 = HIPBLAS_R_32F, as_f64 = HIPBLAS_R_64F;
#endif

constexpr auto left = HIPBLAS_SIDE_LEFT, right = HIPBLAS_SIDE_RIGHT;
constexpr auto algorithm = HIPBLAS_GEMM_DEFAULT;

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

// Types, by the number that the host sees.

struct f16 {
    static constexpr hipblasDatatype_t type = HIPBLAS_R_16F;
    uint16_t bits;
    explicit f16(double value = 0) {
        const _Float16 half = _Float16(value);
        std::memcpy(&bits, &half, sizeof(bits));
    }
    explicit operator double() const {
        _Float16 half;
        std::memcpy(&half, &bits, sizeof(half));
        return double(half);
    }
};

struct bf16 {
    static constexpr hipblasDatatype_t type = HIPBLAS_R_16B;
    uint16_t bits;
    explicit bf16(double value = 0) {
        const float single = float(value);
        uint32_t wide;
        std::memcpy(&wide, &single, sizeof(wide));
        bits = uint16_t(wide >> 16);
    }
    explicit operator double() const {
        const uint32_t wide = uint32_t(bits) << 16;
        float single;
        std::memcpy(&single, &wide, sizeof(single));
        return double(single);
    }
};

template <typename T> constexpr hipblasDatatype_t type_of = T::type;
template <> constexpr hipblasDatatype_t type_of<float> = HIPBLAS_R_32F;
template <> constexpr hipblasDatatype_t type_of<double> = HIPBLAS_R_64F;

// Memory that the device has and the host may look at: what it holds is what has been done.
template <typename T> struct pinned {
    T * at = nullptr;
    size_t size;
    explicit pinned(size_t count) : size(count) {
        must(hipHostMalloc(reinterpret_cast<void **>(&at), count * sizeof(T), 0));
    }
    pinned(const pinned &) = delete;
    ~pinned() { (void) hipHostFree(at); }
    void fill(int seed) {
        for (size_t i = 0; i < size; ++i) {
            at[i] = T(double(int((i * 7 + size_t(seed) * 5) % 7) - 3));
        }
    }
};

struct form {
    bool ta, tb;
    int m, n, k, ld_a, ld_b, ld_c;
};

form form_of(bool ta, bool tb) { return {ta, tb, 5, 4, 7, (ta ? 7 : 5) + 1, (tb ? 4 : 7) + 2, 5 + 3}; }

hipblasOperation_t operation(bool is_transposed) { return is_transposed ? HIPBLAS_OP_T : HIPBLAS_OP_N; }

constexpr int batch = 3;
constexpr long long stride_a = 80, stride_b = 96, stride_c = 50;

// The matrices of a batch, by stride and as lists on the device, and what C must become.
template <typename In, typename Out> struct problem {
    form f;
    double alpha, beta;
    pinned<In> a{batch * size_t(stride_a)}, b{batch * size_t(stride_b)};
    pinned<Out> c{batch * size_t(stride_c)};
    pinned<const void *> list_a{batch}, list_b{batch};
    pinned<void *> list_c{batch};
    std::vector<double> wanted;

    problem(const form & given, double alpha, double beta, int count) : f(given), alpha(alpha), beta(beta) {
        a.fill(1), b.fill(2), c.fill(3);
        for (size_t i = 0; i < c.size; ++i) {
            wanted.push_back(double(c.at[i]));
        }
        for (int i = 0; i < batch; ++i) {
            list_a.at[i] = a.at + i * stride_a;
            list_b.at[i] = b.at + i * stride_b;
            list_c.at[i] = c.at + i * stride_c;
        }
        for (int i = 0; i < count; ++i) {
            apply(i);
        }
    }

    void apply(int i) {
        for (int column = 0; column < f.n; ++column) {
            for (int row = 0; row < f.m; ++row) {
                double sum = 0;
                for (int p = 0; p < f.k; ++p) {
                    sum += double(a.at[i * stride_a + (f.ta ? p + row * f.ld_a : row + p * f.ld_a)]) *
                           double(b.at[i * stride_b + (f.tb ? column + p * f.ld_b : p + column * f.ld_b)]);
                }
                double & c_at = wanted[size_t(i * stride_c + row + column * f.ld_c)];
                c_at          = alpha * sum + beta * c_at;
            }
        }
    }

    bool holds() const {
        for (size_t i = 0; i < wanted.size(); ++i) {
            if (double(c.at[i]) != wanted[i]) {
                return false;
            }
        }
        return true;
    }
};

hipblasHandle_t new_handle(hipStream_t stream) {
    hipblasHandle_t handle = nullptr;
    expect(hipblasCreate(&handle) == HIPBLAS_STATUS_SUCCESS, "create");
    expect(hipblasSetStream(handle, stream) == HIPBLAS_STATUS_SUCCESS, "set stream");
    return handle;
}

void finish(const char * what, hipblasStatus_t status, hipStream_t stream) {
    expect(status == HIPBLAS_STATUS_SUCCESS, std::string(what) + ": status " + std::to_string(int(status)));
    must(hipStreamSynchronize(stream));
}

// The three calls of one choice of types. Scalar is what alpha and beta are.
template <typename In, typename Out, typename Scalar>
void by_types(const char * what, compute_t compute, hipblasHandle_t handle, hipStream_t stream) {
    for (int turn = 0; turn < 4; ++turn) {
        const form f = form_of((turn & 1) != 0, (turn & 2) != 0);
        const Scalar alpha(turn == 0 ? 1.0 : 2.0), beta(turn == 1 ? 1.0 : 0.0);
        const hipblasOperation_t op_a = operation(f.ta), op_b = operation(f.tb);
        constexpr auto in = type_of<In>, out = type_of<Out>;
        const std::string name = std::string(what) + ", form " + std::to_string(turn);
        {
            problem<In, Out> one(f, double(alpha), double(beta), 1);
            finish(what, hipblasGemmEx(handle, op_a, op_b, f.m, f.n, f.k, &alpha, one.a.at, in, f.ld_a, one.b.at, in,
                                       f.ld_b, &beta, one.c.at, out, f.ld_c, compute, algorithm), stream);
            expect(one.holds(), name + ": GemmEx");
        }
        {
            problem<In, Out> all(f, double(alpha), double(beta), batch);
            finish(what, hipblasGemmStridedBatchedEx(handle, op_a, op_b, f.m, f.n, f.k, &alpha, all.a.at, in, f.ld_a,
                                                     stride_a, all.b.at, in, f.ld_b, stride_b, &beta, all.c.at, out,
                                                     f.ld_c, stride_c, batch, compute, algorithm), stream);
            expect(all.holds(), name + ": GemmStridedBatchedEx");
        }
        {
            problem<In, Out> all(f, double(alpha), double(beta), batch);
            finish(what, hipblasGemmBatchedEx(handle, op_a, op_b, f.m, f.n, f.k, &alpha, all.list_a.at, in, f.ld_a,
                                              all.list_b.at, in, f.ld_b, &beta, all.list_c.at, out, f.ld_c, batch,
                                              compute, algorithm), stream);
            expect(all.holds(), name + ": GemmBatchedEx");
        }
    }
}

void single_precision(hipblasHandle_t handle, hipStream_t stream) {
    for (int turn = 0; turn < 4; ++turn) {
        const form f = form_of((turn & 1) != 0, (turn & 2) != 0);
        const float alpha = -2, beta = turn == 3 ? 0.5f : 1.0f;
        const hipblasOperation_t op_a = operation(f.ta), op_b = operation(f.tb);
        problem<float, float> one(f, -2, double(beta), 1);
        finish("Sgemm", hipblasSgemm(handle, op_a, op_b, f.m, f.n, f.k, &alpha, one.a.at, f.ld_a, one.b.at, f.ld_b,
                                     &beta, one.c.at, f.ld_c), stream);
        expect(one.holds(), "Sgemm");
        problem<float, float> strided(f, -2, double(beta), batch);
        finish("SgemmStridedBatched",
               hipblasSgemmStridedBatched(handle, op_a, op_b, f.m, f.n, f.k, &alpha, strided.a.at, f.ld_a, stride_a,
                                          strided.b.at, f.ld_b, stride_b, &beta, strided.c.at, f.ld_c, stride_c, batch),
               stream);
        expect(strided.holds(), "SgemmStridedBatched");
        problem<float, float> listed(f, -2, double(beta), batch);
        finish("SgemmBatched",
               hipblasSgemmBatched(handle, op_a, op_b, f.m, f.n, f.k, &alpha,
                                   reinterpret_cast<const float * const *>(listed.list_a.at), f.ld_a,
                                   reinterpret_cast<const float * const *>(listed.list_b.at), f.ld_b, &beta,
                                   reinterpret_cast<float * const *>(listed.list_c.at), f.ld_c, batch),
               stream);
        expect(listed.holds(), "SgemmBatched");
    }
}

// X op(A) = 2 B and op(A) X = 2 B: B is made from an X that is known.
void systems(hipblasHandle_t handle, hipStream_t stream) {
    constexpr int m = 6, n = 4, ld_a = 8, ld_b = 7;
    for (int turn = 0; turn < 16; ++turn) {
        const bool is_left = (turn & 1) != 0, is_upper = (turn & 2) != 0, is_transposed = (turn & 4) != 0,
                   is_unit = (turn & 8) != 0;
        const int unknowns = is_left ? m : n;
        pinned<float> a(ld_a * m), b(ld_b * n);
        pinned<float *> list_a(1), list_b(1);
        a.fill(4);
        list_a.at[0] = a.at, list_b.at[0] = b.at;
        for (int i = 0; i < unknowns; ++i) {
            a.at[i + i * ld_a] = is_unit ? 99.0f : 2.0f;
        }
        const auto at = [&](int row, int column) {
            const int r = is_transposed ? column : row, c = is_transposed ? row : column;
            return r == c ? (is_unit ? 1.0f : 2.0f) : (r < c) == is_upper ? a.at[r + c * ld_a] : 0.0f;
        };
        const auto x = [](int row, int column) { return float((row * 3 + column * 5) % 7 - 3); };
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                float sum = 0;
                for (int i = 0; i < unknowns; ++i) {
                    sum += is_left ? at(row, i) * x(i, column) : x(row, i) * at(i, column);
                }
                b.at[row + column * ld_b] = sum / 2;
            }
        }
        const float alpha = 2;
        finish("StrsmBatched",
               hipblasStrsmBatched(handle, is_left ? left : right,
                                   is_upper ? HIPBLAS_FILL_MODE_UPPER : HIPBLAS_FILL_MODE_LOWER,
                                   operation(is_transposed), is_unit ? HIPBLAS_DIAG_UNIT : HIPBLAS_DIAG_NON_UNIT, m, n, &alpha, list_a.at, ld_a,
                                   list_b.at, ld_b, 1),
               stream);
        bool holds = true;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                holds = holds && b.at[row + column * ld_b] == x(row, column);
            }
        }
        expect(holds, "StrsmBatched, form " + std::to_string(turn));
    }
}

void computes() {
    hipStream_t stream = nullptr;
    must(hipStreamCreate(&stream));
    hipblasHandle_t handle = new_handle(stream);
    by_types<f16, f16, f16>("f16", as_f16, handle, stream);
    by_types<f16, f16, float>("f16 as f32", as_f32, handle, stream);
    by_types<f16, float, float>("f16 to f32", as_f32, handle, stream);
    by_types<bf16, bf16, float>("bf16", as_f32, handle, stream);
    by_types<bf16, float, float>("bf16 to f32", as_f32, handle, stream);
    by_types<float, float, float>("f32", as_f32, handle, stream);
    by_types<double, double, double>("f64", as_f64, handle, stream);
    single_precision(handle, stream);
    systems(handle, stream);
    expect(hipblasDestroy(handle) == HIPBLAS_STATUS_SUCCESS, "destroy");
}

// The work is the stream's: scalars are read in the call, lists and matrices when it is done, in the stream that
// the handle had, also when the handle is gone.
void waits_its_turn() {
    hipStream_t stream = nullptr, other = nullptr;
    must(hipStreamCreate(&stream));
    must(hipStreamCreate(&other));
    hipblasHandle_t handle = new_handle(stream);
    problem<float, float> all(form_of(true, false), 2, 0, batch);
    pinned<const void *> filled_a(batch), filled_b(batch);
    pinned<void *> filled_c(batch);
    std::memcpy(filled_a.at, all.list_a.at, sizeof(void *) * batch);
    std::memcpy(filled_b.at, all.list_b.at, sizeof(void *) * batch);
    std::memcpy(filled_c.at, all.list_c.at, sizeof(void *) * batch);
    void * lists = nullptr;
    constexpr size_t bytes = sizeof(void *) * batch;
    must(hipMalloc(&lists, 3 * bytes));
    auto * at = static_cast<char *>(lists);
    must(hipMemcpyAsync(at, filled_a.at, bytes, hipMemcpyHostToDevice, stream));
    must(hipMemcpyAsync(at + bytes, filled_b.at, bytes, hipMemcpyHostToDevice, stream));
    must(hipMemcpyAsync(at + 2 * bytes, filled_c.at, bytes, hipMemcpyHostToDevice, stream));
    const form & f = all.f;
    float alpha = 2, beta = 0;
    const hipblasStatus_t status = hipblasSgemmBatched(
        handle, operation(f.ta), operation(f.tb), f.m, f.n, f.k, &alpha, reinterpret_cast<const float * const *>(at),
        f.ld_a, reinterpret_cast<const float * const *>(at + bytes), f.ld_b, &beta,
        reinterpret_cast<float * const *>(at + 2 * bytes), f.ld_c, batch);
    expect(status == HIPBLAS_STATUS_SUCCESS, "status");
    alpha = 77, beta = 78;
    std::printf("%s\n", all.holds() ? "done at once" : "not done yet");
    expect(hipblasSetStream(handle, other) == HIPBLAS_STATUS_SUCCESS, "set stream");
    expect(hipblasDestroy(handle) == HIPBLAS_STATUS_SUCCESS, "destroy");
    must(hipStreamSynchronize(stream));
    expect(all.holds(), "the product of its stream");
}

// A graph's product is done once per launch.
void replays() {
    hipStream_t stream = nullptr;
    must(hipStreamCreate(&stream));
    hipblasHandle_t handle = new_handle(stream);
    problem<float, float> one(form_of(false, false), 1, 1, 0);
    one.apply(0), one.apply(0);
    const float alpha = 1, beta = 1;
    hipGraph_t graph = nullptr;
    hipGraphExec_t ready = nullptr;
    must(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    const form & f = one.f;
    expect(hipblasSgemm(handle, operation(f.ta), operation(f.tb), f.m, f.n, f.k, &alpha, one.a.at, f.ld_a, one.b.at,
                        f.ld_b, &beta, one.c.at, f.ld_c) == HIPBLAS_STATUS_SUCCESS, "status");
    must(hipStreamEndCapture(stream, &graph));
    must(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
    must(hipGraphLaunch(ready, stream));
    must(hipGraphLaunch(ready, stream));
    must(hipStreamSynchronize(stream));
    expect(one.holds(), "a product twice");
}

void refuses() {
    hipblasHandle_t handle = new_handle(nullptr);
    problem<float, float> one(form_of(false, false), 1, 1, 0);
    const float alpha = 1, beta = 0;
    const form & f = one.f;
    expect(hipblasGemmEx(handle, operation(f.ta), operation(f.tb), f.m, f.n, f.k, &alpha, one.a.at, HIPBLAS_R_32F,
                         f.ld_a, one.b.at, HIPBLAS_R_16F, f.ld_b, &beta, one.c.at, HIPBLAS_R_32F, f.ld_c, as_f32,
                         algorithm) == HIPBLAS_STATUS_NOT_SUPPORTED, "mixed types");
    expect(hipblasGemmEx(handle, operation(f.ta), operation(f.tb), f.m, f.n, f.k, &alpha, one.a.at, HIPBLAS_R_8I,
                         f.ld_a, one.b.at, HIPBLAS_R_8I, f.ld_b, &beta, one.c.at, HIPBLAS_R_32I, f.ld_c, as_f32,
                         algorithm) == HIPBLAS_STATUS_NOT_SUPPORTED, "integers");
    expect(one.holds(), "nothing was written");
}

// What a GPU would not survive: B ends before its last column, or a list names what nobody allocated.
void runs_over() {
    hipblasHandle_t handle = new_handle(nullptr);
    pinned<float> a(16), b(15), c(16);
    const float alpha = 1, beta = 0;
    (void) hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_N, 4, 4, 4, &alpha, a.at, 4, b.at, 4, &beta, c.at, 4);
    (void) hipDeviceSynchronize();
}

void follows_a_wrong_list() {
    hipblasHandle_t handle = new_handle(nullptr);
    pinned<float> a(16), b(16), c(16);
    pinned<float *> lists(3);
    lists.at[0] = a.at, lists.at[1] = b.at, lists.at[2] = reinterpret_cast<float *>(0xdead0);
    const float alpha = 1, beta = 0;
    (void) hipblasSgemmBatched(handle, HIPBLAS_OP_N, HIPBLAS_OP_N, 4, 4, 4, &alpha, lists.at, 4, lists.at + 1, 4, &beta,
                               lists.at + 2, 4, 1);
    (void) hipDeviceSynchronize();
}

} // namespace

int main(int count, char ** given) {
    const std::string name = count == 2 ? given[1] : "";
    const struct {
        const char * name;
        void (*run)();
    } all[] = {
        {"computes", computes}, {"waits_its_turn", waits_its_turn}, {"replays", replays}, {"refuses", refuses},
        {"runs_over", runs_over}, {"follows_a_wrong_list", follows_a_wrong_list},
    };
    for (const auto & one : all) {
        if (name == one.name) {
            one.run();
            return wrong;
        }
    }
    std::printf("which one?\n");
    return 2;
}
