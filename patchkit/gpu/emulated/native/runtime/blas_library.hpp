// Common parts of all hipBLAS calls: handles, status codes, operands, and enqueueing on a stream.
//
// Declared by binary interface, not with hipblas.h, because the header names the enums of the same calls differently in
// versions 1 to 3 (hipblasDatatype_t, then hipDataType with _v2, then hipDataType).
//
// Errors are as in hipBLAS on rocBLAS (hipblasConvertStatus, hipblasConvertOperation, hipblasInternalGemmExTypes;
// rocblas_gemm_arg_check and similar; read at 27cf7beb and b520bc83f of 2024-10). Operands are not dereferenced at the
// call: they are device pointers, and their contents matter when the work runs.
#pragma once

#include "algebra.hpp"
#include "products.hpp"

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace patchkit::blas {

using handle_t = void *;
using word     = int; // an enum of the interface

// hipblasStatus_t (hipblas-common.h)
constexpr int success           = 0;
constexpr int not_initialized   = 1;
constexpr int invalid_value     = 3;
constexpr int internal_error    = 6;
constexpr int not_supported     = 7;
constexpr int handle_is_nullptr = 9;
constexpr int invalid_enum      = 10;

// hipblasOperation_t, hipblasFillMode_t, hipblasDiagType_t, hipblasSideMode_t
constexpr word op_n = 111, op_t = 112, op_c = 113;
constexpr word fill_upper = 121, fill_lower = 122;
constexpr word diag_non_unit = 131, diag_unit = 132;
constexpr word side_left = 141, side_right = 142;

struct library {
    hipStream_t stream        = nullptr;
    bool has_scalars_on_device = false; // HIPBLAS_POINTER_MODE_DEVICE
    word math_mode            = 0;
    word atomics              = 1; // HIPBLAS_ATOMICS_ALLOWED
};

// Null if the handle is invalid.
std::shared_ptr<library> find_library(handle_t handle);

inline bool is_operation(word op) { return op == op_n || op == op_t || op == op_c; }
inline bool is_transposed(word op) { return op != op_n; }
inline bool is_fill(word fill) { return fill == fill_upper || fill == fill_lower; }
inline bool is_diagonal(word diagonal) { return diagonal == diag_non_unit || diagonal == diag_unit; }
inline bool is_side(word side) { return side == side_left || side == side_right; }

inline taken taken_of(word op) {
    return op == op_n ? taken::none : op == op_t ? taken::transposed : taken::conjugated;
}
inline triangle triangle_of(word fill) { return fill == fill_upper ? triangle::upper : triangle::lower; }

// hipblasDatatype_t in versions 1 and 2, later hipDataType. Its values overlap with those of hipblasComputeType_t.
std::optional<number> type_of(word type);
std::optional<number> compute_type_of(word type);
std::string name_of_type(word type);

// Prints the reason, and returns "not supported".
int refuse(const std::string & call, const std::string & why);

// The form of a call: its handle, and its batch: `batch` operands with a stride, or from a list on the device.
struct form {
    const char * call;
    handle_t handle;
    int64_t batch = 1;
};

// Location of an operand for each element of a batch.
struct operand {
    const void * address;
    long long stride = 0; // in elements
    bool is_list     = false;
};

struct vector {
    const char * name;
    operand at;
    int64_t step;
};

// A matrix with its leading dimension; packed matrices and single numbers have none.
struct matrix {
    const char * name;
    operand at;
    int64_t leading = 0;
};

enum class use { reads, writes };

// One call. Operands are added, then it runs: each is checked when the work runs, and their addresses for each batch
// element are passed to the work.
class task {
  public:
    explicit task(const form & of);

    // The first error; success if there is none.
    int status() const { return status_; }
    bool is_refused() const { return status_ != success; }

    // Sets an error if the condition is false, unless there already is one.
    void need(bool holds, int otherwise = invalid_value);

    // A scalar such as alpha: on the host it is read now, on the device when the work runs.
    int scalar(const char * name, const void * place, number type);

    // Adds an operand, numbered from 0. An operand multiplied by scalars that are all zero is not accessed.
    int add(const char * name, const operand & at, number type, const layout & as, use how,
            std::vector<int> factors = {});
    int add(const vector & x, number type, int64_t size, use how, std::vector<int> factors = {});

    // One or several numbers per batch element, on the host or the device like scalars.
    int add_numbers(const char * name, const operand & at, number type, int64_t count, use how);

    struct place {
        const std::vector<void *> & at; // by operand; null if it is not accessed
        const std::vector<complex> & scalars;
        int64_t index; // within the batch
    };

    // `m`, `n` and `k` describe the size for the log and the report. Results for the host are available on return.
    int run(int64_t m, int64_t n, int64_t k, number type, std::function<void(const place &)> work);

    // The same, with several batch elements at once.
    using all_places = std::vector<std::vector<void *>>;
    int run_together(int64_t m, int64_t n, int64_t k, const std::string & types,
                     std::function<void(const all_places &, const std::vector<complex> & scalars)> work);

  private:
    struct part {
        const char * name;
        operand at;
        number type;
        layout as;
        use how;
        std::vector<int> factors;
        bool is_the_hosts = false;
    };
    struct factor {
        const char * name;
        const void * place;
        number type;
        bool is_on_device;
        complex value;
    };

    struct work_to_do;

    form of_;
    std::shared_ptr<library> library_;
    int status_;
    bool answers_host_ = false;
    std::vector<part> parts_;
    std::vector<factor> factors_;
};

} // namespace patchkit::blas
