// What all calls of hipBLAS share: the handle, their answers, what they are handed, and how a call becomes work of a
// stream.
//
// Declared by binary interface, not through hipblas.h: the header gives the enums of the same calls different names in
// versions 1 to 3 (hipblasDatatype_t, then hipDataType behind _v2, then hipDataType).
//
// What is refused, and with what, is as in hipBLAS over rocBLAS (hipblasConvertStatus, hipblasConvertOperation,
// hipblasInternalGemmExTypes; rocblas_gemm_arg_check and its like; read at 27cf7beb and b520bc83f of 2024-10). It looks
// at no operand: those pointers are the device's, and what lies behind them counts when the work is done.
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

// Null when there is none.
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

// hipblasDatatype_t of version 1 and 2, hipDataType since. Its numbers and those of hipblasComputeType_t overlap.
std::optional<number> type_of(word type);
std::optional<number> compute_type_of(word type);
std::string name_of_type(word type);

// Says so, and answers that it is not supported.
int refuse(const std::string & call, const std::string & why);

// Which call it is, of which handle, and how often its operands are there: `batch` times a stride apart, or where a
// list on the device says.
struct form {
    const char * call;
    handle_t handle;
    int64_t batch = 1;
};

// Where an operand is in each product of a batch.
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

// A matrix with its leading dimension; of a packed one, and of single numbers, there is none.
struct matrix {
    const char * name;
    operand at;
    int64_t leading = 0;
};

enum class use { reads, writes };

// One call. Operands are added, then it runs: each is checked when the work is done, and where the products of a batch
// have it is handed to the work.
class task {
  public:
    explicit task(const form & of);

    // What is wrong so far; success when nothing is.
    int status() const { return status_; }
    bool is_refused() const { return status_ != success; }

    // Refuses when it does not hold, unless something was wrong before.
    void need(bool holds, int otherwise = invalid_value);

    // alpha and its like: on the host they are read now, on the device when the work is done.
    int scalar(const char * name, const void * place, number type);

    // Operands, by number from 0. One that is multiplied with scalars that are all zero is not looked at.
    int add(const char * name, const operand & at, number type, const layout & as, use how,
            std::vector<int> factors = {});
    int add(const vector & x, number type, int64_t size, use how, std::vector<int> factors = {});

    // A number of the program, or several, in each product: on the host or on the device, as scalars are.
    int add_numbers(const char * name, const operand & at, number type, int64_t count, use how);

    struct place {
        const std::vector<void *> & at; // by operand; null when it is not looked at
        const std::vector<complex> & scalars;
        int64_t index; // in the batch
    };

    // `m`, `n` and `k` say how much it is, for the log and the report. What the host gets is there when this returns.
    int run(int64_t m, int64_t n, int64_t k, number type, std::function<void(const place &)> work);

    // The same with several products of the batch at once.
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
