// hipBLAS as far as the HIP backend calls it: matrix products become lines of the log, and are computed on the CPU
// when the runtime executes. What a call does not do it refuses, and says so; calls that are not here do not link.
//
// Declared here by binary interface, not through hipblas.h: the header gives the enums of the same calls
// different names in versions 1 to 3 (hipblasDatatype_t, then hipDataType behind _v2, then hipDataType).
//
// What is refused, and with what, is as in hipBLAS over rocBLAS (hipblasConvertStatus, hipblasConvertOperation,
// hipblasInternalGemmExTypes; rocblas_gemm_arg_check, rocblas_gemm_ex_arg_check, rocblas_trsm_arg_check and the
// types that rocblas_gemm_ex lists; read at 27cf7beb and b520bc83f of 2024-10). It looks at no matrix: those
// pointers are the device's, and what lies behind them counts when the work is done.

#include "blas.hpp"

#include "allocations.hpp"
#include "emulation.hpp"
#include "known_bits.hpp"
#include "handles.hpp"
#include "happens_before.hpp"
#include "products.hpp"
#include "recorder.hpp"
#include "schedule.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

namespace {

using patchkit::number;

using handle_t = void *;
using word = int; // an enum of the interface

// hipblasStatus_t (hipblas-common.h)
constexpr int success           = 0;
constexpr int not_initialized   = 1;
constexpr int invalid_value     = 3;
constexpr int internal_error    = 6;
constexpr int not_supported     = 7;
constexpr int handle_is_nullptr = 9;
constexpr int invalid_enum      = 10;

// hipblasOperation_t, hipblasFillMode_t, hipblasDiagType_t, hipblasSideMode_t, hipblasGemmAlgo_t
constexpr word op_n = 111, op_t = 112, op_c = 113;
constexpr word fill_upper = 121, fill_lower = 122;
constexpr word diag_non_unit = 131, diag_unit = 132;
constexpr word side_left = 141, side_right = 142;
constexpr word gemm_default = 160;

struct library {
    hipStream_t stream = nullptr;
};

patchkit::handle_map<library> & handles() {
    static auto * made = new patchkit::handle_map<library>;
    return *made;
}

// Of a matrix: hipblasDatatype_t of version 1 and 2, hipDataType since.
std::optional<number> type_of(word type) {
    switch (type) {
        case 150: case 2: return number::f16;
        case 168: case 14: return number::bf16;
        case 151: case 0: return number::f32;
        case 152: case 1: return number::f64;
        default: return std::nullopt;
    }
}

// Of alpha and beta: hipblasDatatype_t of version 1 and 2, hipblasComputeType_t since.
std::optional<number> compute_type_of(word type) {
    switch (type) {
        case 150: case 0: return number::f16;
        case 151: case 2: return number::f32;
        case 152: case 7: return number::f64;
        default: return std::nullopt;
    }
}

// One matrix of each product of a batch: a stride of elements apart, or where a list on the device says.
struct operand {
    const void * address;
    word type;
    int leading;
    long long stride = 0;
    bool is_list     = false;
};

struct gemm {
    const char * call;
    word op_a, op_b;
    int m, n, k, batch;
    const void * alpha;
    operand a, b;
    const void * beta;
    operand c;
    word compute;
    word algorithm = gemm_default;
};

struct trsm {
    const char * call;
    word side, fill, op, diagonal;
    int m, n, batch;
    const void * alpha;
    operand a, b;
};

// The calls that were computed.

struct computed {
    std::string call;
    int64_t m, n, k, batch;
    std::string types; // as JSON

    auto key() const { return std::tie(call, types, m, n, k, batch); }
    bool operator<(const computed & other) const { return key() < other.key(); }
};

std::mutex counts_mutex;

std::map<computed, uint64_t> & counts() {
    static auto * made = new std::map<computed, uint64_t>;
    return *made;
}

void count(const computed & one) {
    const std::lock_guard<std::mutex> guard(counts_mutex);
    ++counts()[one];
}

void log_call(const char * call, int m, int n, int k, int batch) {
    patchkit::log_line("{\"blas\":" + patchkit::quoted(call) + ",\"m\":" + std::to_string(m) + ",\"n\":" +
                       std::to_string(n) + ",\"k\":" + std::to_string(k) + ",\"batch\":" + std::to_string(batch) +
                       "}");
}

int refuse(const std::string & call, const std::string & why) {
    std::fprintf(stderr, "patchkit: %s is not supported: %s\n", call.c_str(), why.c_str());
    return not_supported;
}

bool is_operation(word op) { return op == op_n || op == op_t || op == op_c; }

// Numbers are real, so both transposes are the same.
bool is_transposed(word op) { return op != op_n; }

// The matrices of one product or system, by where they are when the work is done.

const void * matrix_of(const operand & from, number type, int64_t index) {
    if (from.is_list) {
        const void * address;
        std::memcpy(&address, static_cast<const char *>(from.address) + index * int64_t(sizeof(address)),
                    sizeof(address));
        return address;
    }
    const uint64_t bytes = uint64_t(from.stride) * uint64_t(index) * patchkit::bytes_of(type);
    return reinterpret_cast<const void *>(uintptr_t(from.address) + bytes);
}

// From the first byte of the first column to the last of the last.
size_t extent_of(number type, int64_t rows, int64_t columns, int64_t leading) {
    const uint64_t elements = uint64_t(columns - 1) * uint64_t(leading) + uint64_t(rows);
    const size_t size       = patchkit::bytes_of(type);
    return elements > std::numeric_limits<size_t>::max() / size ? std::numeric_limits<size_t>::max() : elements * size;
}

struct stored {
    const char * name; // A
    operand from;
    number type;
    int64_t rows, columns; // as they lie in memory
};

// On a GPU the kernel would read or write what nobody allocated.
[[noreturn]] void fault_at(const char * call, const char * name, const void * address, size_t bytes, int64_t index) {
    char text[256];
    std::snprintf(text, sizeof(text),
                  "%s: matrix %s of product %lld takes %zu bytes at %p, which are not in one allocation", call, name,
                  static_cast<long long>(index), bytes, address);
    patchkit::fault(text);
}

const void * checked(const char * call, const stored & matrix, int64_t index) {
    const void * address = matrix_of(matrix.from, matrix.type, index);
    const size_t bytes   = extent_of(matrix.type, matrix.rows, matrix.columns, matrix.from.leading);
    if (!patchkit::is_known(address, bytes)) {
        fault_at(call, matrix.name, address, bytes, index);
    }
    // The result of a product is C, that of a triangular system B.
    const bool is_result = matrix.name[0] == 'C' || (matrix.name[0] == 'B' && std::strstr(call, "trsm") != nullptr);
    patchkit::touch_rows(call, is_result ? patchkit::access::writes : patchkit::access::reads, address,
                         size_t(matrix.rows) * patchkit::bytes_of(matrix.type),
                         size_t(matrix.from.leading) * patchkit::bytes_of(matrix.type), size_t(matrix.columns));
    return address;
}

void check_list(const char * call, const stored & matrix, int batch) {
    const size_t bytes = size_t(batch) * sizeof(void *);
    if (matrix.from.is_list && !patchkit::is_known(matrix.from.address, bytes)) {
        fault_at(call, matrix.name, matrix.from.address, bytes, 0);
    }
}

constexpr int64_t at_once = 4096; // products of a batch, so that its size costs no memory

// Products.

struct types {
    number a, b, c, compute;
};

std::optional<types> types_of(const gemm & wanted) {
    const auto a = type_of(wanted.a.type), b = type_of(wanted.b.type), c = type_of(wanted.c.type);
    const auto compute = compute_type_of(wanted.compute);
    if (!a || !b || !c || !compute) {
        return std::nullopt;
    }
    return types{*a, *b, *c, *compute};
}

// Those of rocblas_gemm_ex, but for integers and complex numbers, which upstream does not multiply.
bool is_supported(const types & given) {
    const auto is = [&given](number in, number out, number compute) {
        return given.a == in && given.b == in && given.c == out && given.compute == compute;
    };
    return is(number::f64, number::f64, number::f64) || is(number::f32, number::f32, number::f32) ||
           is(number::f16, number::f16, number::f16) || is(number::f16, number::f16, number::f32) ||
           is(number::f16, number::f32, number::f32) || is(number::bf16, number::bf16, number::f32) ||
           is(number::bf16, number::f32, number::f32);
}

bool has_its_sizes(const gemm & p) {
    return p.m >= 0 && p.n >= 0 && p.k >= 0 && p.batch >= 0 && p.a.leading >= (is_transposed(p.op_a) ? p.k : p.m) &&
           p.b.leading >= (is_transposed(p.op_b) ? p.n : p.k) && p.c.leading >= p.m;
}

// Without anything to compute no pointer is looked at; without k, or with a zero alpha, A and B are not read.
bool has_its_pointers(const gemm & p, number scalars) {
    const size_t bytes = patchkit::bytes_of(scalars);
    if (p.m == 0 || p.n == 0 || p.batch == 0) {
        return true;
    }
    if (p.c.address == nullptr || !patchkit::is_mapped(p.beta, bytes)) {
        return false;
    }
    if (p.k == 0) {
        return true;
    }
    if (!patchkit::is_mapped(p.alpha, bytes)) {
        return false;
    }
    return (p.a.address != nullptr && p.b.address != nullptr) || patchkit::value_at(scalars, p.alpha) == 0;
}

std::string name_of_type(word type) {
    const auto known = type_of(type);
    return known ? patchkit::name_of(*known) : "type " + std::to_string(type);
}

std::string text_of(const gemm & p) {
    const auto compute = compute_type_of(p.compute);
    return name_of_type(p.a.type) + " times " + name_of_type(p.b.type) + " to " + name_of_type(p.c.type) +
           ", computed as " + (compute ? patchkit::name_of(*compute) : "type " + std::to_string(p.compute));
}

int check(const gemm & p, const std::optional<types> & given) {
    if (!is_operation(p.op_a) || !is_operation(p.op_b) || p.algorithm != gemm_default) {
        return invalid_enum;
    }
    if (!given || !is_supported(*given)) {
        return refuse(p.call, text_of(p));
    }
    return has_its_sizes(p) && has_its_pointers(p, given->compute) ? success : invalid_value;
}

// alpha and beta are the host's, and read in the call.
patchkit::product product_of(const gemm & p, const types & given) {
    patchkit::product result = {
        p.m, p.n, p.k, {given.a, is_transposed(p.op_a), p.a.leading}, {given.b, is_transposed(p.op_b), p.b.leading},
        {given.c, false, p.c.leading}, 0, patchkit::value_at(given.compute, p.beta),
    };
    if (p.k != 0) {
        result.alpha = patchkit::value_at(given.compute, p.alpha);
    }
    return result;
}

computed shape_of(const gemm & p, const types & given) {
    const auto is = [](const char * what, number type) {
        return std::string("\"") + what + "\":\"" + patchkit::name_of(type) + "\"";
    };
    const number sums = given.c == number::f64 ? number::f64 : number::f32;
    return {p.call, p.m, p.n, p.k, p.batch,
            is("a", given.a) + "," + is("b", given.b) + "," + is("c", given.c) + "," + is("compute", given.compute) +
                "," + is("sums", sums)};
}

// Results have a value, whatever the factors have: what is computed here is not followed.
void note_columns(const void * begin, size_t element, int64_t rows, int64_t columns, int64_t leading) {
    for (int64_t n = 0; n < columns; ++n) {
        patchkit::note_written(static_cast<const char *>(begin) + size_t(n * leading) * element, size_t(rows) * element);
    }
}

void compute(const gemm & p, const patchkit::product & what) {
    const auto lying = [](const char * name, const operand & from, const patchkit::matrix & as, int64_t rows,
                          int64_t columns) {
        return stored{name, from, as.type, as.is_transposed ? columns : rows, as.is_transposed ? rows : columns};
    };
    const stored a         = lying("A", p.a, what.a, p.m, p.k);
    const stored b         = lying("B", p.b, what.b, p.k, p.n);
    const stored c         = lying("C", p.c, what.c, p.m, p.n);
    const bool has_factors = p.k != 0 && what.alpha != 0;
    check_list(p.call, c, p.batch);
    if (has_factors) {
        check_list(p.call, a, p.batch);
        check_list(p.call, b, p.batch);
    }
    std::vector<patchkit::factors> batch;
    for (int64_t first = 0; first < p.batch; first += at_once) {
        batch.clear();
        for (int64_t i = first; i < std::min<int64_t>(p.batch, first + at_once); ++i) {
            batch.push_back({has_factors ? checked(p.call, a, i) : nullptr,
                             has_factors ? checked(p.call, b, i) : nullptr, const_cast<void *>(checked(p.call, c, i))});
        }
        patchkit::multiply(what, batch, patchkit::number_of_threads());
        for (const patchkit::factors & one : batch) {
            note_columns(one.c, patchkit::bytes_of(what.c.type), p.m, p.n, what.c.leading);
        }
    }
}

int multiply(handle_t handle, const gemm & p) {
    const auto own = handles().find(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    const auto given = types_of(p);
    const int status = check(p, given);
    if (status != success) {
        return status;
    }
    log_call(p.call, p.m, p.n, p.k, p.batch);
    if (!patchkit::is_computing() || p.m == 0 || p.n == 0 || p.batch == 0) {
        return success;
    }
    const hipError_t error =
        patchkit::enqueue(own->stream, [p, what = product_of(p, *given), shape = shape_of(p, *given)] {
            compute(p, what);
            count(shape);
        });
    return error == hipSuccess ? success : internal_error;
}

// Triangular systems, solved in place.

bool has_its_sizes(const trsm & s) {
    return s.m >= 0 && s.n >= 0 && s.batch >= 0 && s.a.leading >= (s.side == side_left ? s.m : s.n) &&
           s.b.leading >= s.m;
}

bool has_its_pointers(const trsm & s) {
    if (s.m == 0 || s.n == 0 || s.batch == 0) {
        return true;
    }
    return s.b.address != nullptr && patchkit::is_mapped(s.alpha, sizeof(float)) &&
           (s.a.address != nullptr || patchkit::value_at(number::f32, s.alpha) == 0);
}

int check(const trsm & s) {
    if ((s.side != side_left && s.side != side_right) || (s.fill != fill_upper && s.fill != fill_lower) ||
        !is_operation(s.op) || (s.diagonal != diag_non_unit && s.diagonal != diag_unit)) {
        return invalid_enum;
    }
    return has_its_sizes(s) && has_its_pointers(s) ? success : invalid_value;
}

void compute(const trsm & s, const patchkit::triangular_system & what) {
    const int64_t unknowns = what.is_left ? s.m : s.n;
    const stored a         = {"A", s.a, number::f32, unknowns, unknowns};
    const stored b         = {"B", s.b, number::f32, s.m, s.n};
    check_list(s.call, b, s.batch);
    if (what.alpha != 0) {
        check_list(s.call, a, s.batch);
    }
    std::vector<patchkit::sides> batch;
    for (int64_t first = 0; first < s.batch; first += at_once) {
        batch.clear();
        for (int64_t i = first; i < std::min<int64_t>(s.batch, first + at_once); ++i) {
            const void * factor = what.alpha != 0 ? checked(s.call, a, i) : nullptr;
            batch.push_back({static_cast<const float *>(factor),
                             static_cast<float *>(const_cast<void *>(checked(s.call, b, i)))});
        }
        patchkit::solve(what, batch, patchkit::number_of_threads());
    }
}

int solve(handle_t handle, const trsm & s) {
    const auto own = handles().find(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    const int status = check(s);
    if (status != success) {
        return status;
    }
    log_call(s.call, s.m, s.n, s.m, s.batch);
    if (!patchkit::is_computing() || s.m == 0 || s.n == 0 || s.batch == 0) {
        return success;
    }
    const patchkit::triangular_system what = {
        s.side == side_left, s.fill == fill_upper, is_transposed(s.op), s.diagonal == diag_unit, s.m, s.n,
        s.a.leading, s.b.leading, float(patchkit::value_at(number::f32, s.alpha)),
    };
    const computed shape = {s.call, s.m, s.n, what.is_left ? s.m : s.n, s.batch,
                            R"("a":"f32","b":"f32","c":"f32","compute":"f32","sums":"f32")"};
    const hipError_t error = patchkit::enqueue(own->stream, [s, what, shape] {
        compute(s, what);
        count(shape);
    });
    return error == hipSuccess ? success : internal_error;
}

constexpr word f32 = 151;

} // namespace

namespace patchkit {

std::string products_as_json() {
    const std::lock_guard<std::mutex> guard(counts_mutex);
    std::string text = "[";
    for (const auto & [one, calls] : counts()) {
        text += std::string(text.size() == 1 ? "" : ",") + "\n{\"call\":" + quoted(one.call) + ",\"m\":" +
                std::to_string(one.m) + ",\"n\":" + std::to_string(one.n) + ",\"k\":" + std::to_string(one.k) +
                ",\"batch\":" + std::to_string(one.batch) + "," + one.types + ",\"calls\":" + std::to_string(calls) +
                "}";
    }
    return text + "]";
}

} // namespace patchkit

extern "C" {

int hipblasCreate(handle_t * handle) {
    if (handle == nullptr) {
        return handle_is_nullptr;
    }
    *handle = handles().make(std::make_shared<library>());
    return success;
}

int hipblasDestroy(handle_t handle) { return handles().drop(handle) ? success : not_initialized; }

int hipblasSetStream(handle_t handle, void * stream) {
    const auto own = handles().find(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    if (!patchkit::is_stream(stream)) {
        return invalid_value;
    }
    own->stream = static_cast<hipStream_t>(stream);
    return success;
}

// rocBLAS has no other way to multiply f32 on these GPUs.
int hipblasSetMathMode(handle_t handle, word) {
    return handles().find(handle) != nullptr ? success : not_initialized;
}

int hipblasSgemm(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha, const void * a,
                 int ld_a, const void * b, int ld_b, const void * beta, void * c, int ld_c) {
    return multiply(handle, {"hipblasSgemm", op_a, op_b, m, n, k, 1, alpha, {a, f32, ld_a}, {b, f32, ld_b}, beta,
                             {c, f32, ld_c}, f32});
}

int hipblasSgemmBatched(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                        const void * a, int ld_a, const void * b, int ld_b, const void * beta, void * c, int ld_c,
                        int batch) {
    return multiply(handle, {"hipblasSgemmBatched", op_a, op_b, m, n, k, batch, alpha, {a, f32, ld_a, 0, true},
                             {b, f32, ld_b, 0, true}, beta, {c, f32, ld_c, 0, true}, f32});
}

int hipblasSgemmStridedBatched(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                               const void * a, int ld_a, long long stride_a, const void * b, int ld_b,
                               long long stride_b, const void * beta, void * c, int ld_c, long long stride_c,
                               int batch) {
    return multiply(handle, {"hipblasSgemmStridedBatched", op_a, op_b, m, n, k, batch, alpha,
                             {a, f32, ld_a, stride_a}, {b, f32, ld_b, stride_b}, beta, {c, f32, ld_c, stride_c}, f32});
}

int hipblasGemmEx(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha, const void * a,
                  word type_a, int ld_a, const void * b, word type_b, int ld_b, const void * beta, void * c,
                  word type_c, int ld_c, word compute, word algorithm) {
    return multiply(handle, {"hipblasGemmEx", op_a, op_b, m, n, k, 1, alpha, {a, type_a, ld_a}, {b, type_b, ld_b},
                             beta, {c, type_c, ld_c}, compute, algorithm});
}

int hipblasGemmBatchedEx(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                         const void * a, word type_a, int ld_a, const void * b, word type_b, int ld_b,
                         const void * beta, void * c, word type_c, int ld_c, int batch, word compute,
                         word algorithm) {
    return multiply(handle, {"hipblasGemmBatchedEx", op_a, op_b, m, n, k, batch, alpha, {a, type_a, ld_a, 0, true},
                             {b, type_b, ld_b, 0, true}, beta, {c, type_c, ld_c, 0, true}, compute, algorithm});
}

int hipblasGemmStridedBatchedEx(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                                const void * a, word type_a, int ld_a, long long stride_a, const void * b,
                                word type_b, int ld_b, long long stride_b, const void * beta, void * c, word type_c,
                                int ld_c, long long stride_c, int batch, word compute, word algorithm) {
    return multiply(handle, {"hipblasGemmStridedBatchedEx", op_a, op_b, m, n, k, batch, alpha,
                             {a, type_a, ld_a, stride_a}, {b, type_b, ld_b, stride_b}, beta,
                             {c, type_c, ld_c, stride_c}, compute, algorithm});
}

int hipblasStrsmBatched(handle_t handle, word side, word fill, word op, word diagonal, int m, int n,
                        const void * alpha, void * a, int ld_a, void * b, int ld_b, int batch) {
    return solve(handle, {"hipblasStrsmBatched", side, fill, op, diagonal, m, n, batch, alpha,
                          {a, f32, ld_a, 0, true}, {b, f32, ld_b, 0, true}});
}

// The names of the same calls when a program is built with HIPBLAS_V2.
int hipblasGemmEx_v2(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha, const void * a,
                     word type_a, int ld_a, const void * b, word type_b, int ld_b, const void * beta, void * c,
                     word type_c, int ld_c, word compute, word algorithm) {
    return hipblasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c, type_c, ld_c,
                         compute, algorithm);
}

int hipblasGemmBatchedEx_v2(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                            const void * a, word type_a, int ld_a, const void * b, word type_b, int ld_b,
                            const void * beta, void * c, word type_c, int ld_c, int batch, word compute,
                            word algorithm) {
    return hipblasGemmBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c, type_c,
                                ld_c, batch, compute, algorithm);
}

int hipblasGemmStridedBatchedEx_v2(handle_t handle, word op_a, word op_b, int m, int n, int k, const void * alpha,
                                   const void * a, word type_a, int ld_a, long long stride_a, const void * b,
                                   word type_b, int ld_b, long long stride_b, const void * beta, void * c,
                                   word type_c, int ld_c, long long stride_c, int batch, word compute,
                                   word algorithm) {
    return hipblasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, stride_a, b, type_b, ld_b,
                                       stride_b, beta, c, type_c, ld_c, stride_c, batch, compute, algorithm);
}

} // extern "C"
