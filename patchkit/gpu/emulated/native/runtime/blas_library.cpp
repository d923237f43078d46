#include "blas_library.hpp"

#include "allocations.hpp"
#include "blas.hpp"
#include "ending.hpp"
#include "handles.hpp"
#include "happens_before.hpp"
#include "known_bits.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace patchkit::blas {

namespace {

handle_map<library> & handles() {
    static auto * made = new handle_map<library>;
    return *made;
}

// Computed calls.

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

void log_call(const computed & one) {
    log_line("{\"blas\":" + quoted(one.call) + ",\"m\":" + std::to_string(one.m) + ",\"n\":" + std::to_string(one.n) +
             ",\"k\":" + std::to_string(one.k) + ",\"batch\":" + std::to_string(one.batch) + "}");
}

const void * address_of(const operand & from, number type, int64_t index) {
    if (from.is_list) {
        const void * address;
        std::memcpy(&address, static_cast<const char *>(from.address) + index * int64_t(sizeof(address)),
                    sizeof(address));
        return address;
    }
    return reinterpret_cast<const void *>(uintptr_t(from.address) +
                                          uint64_t(from.stride) * uint64_t(index) * bytes_of(type));
}

// On a GPU the kernel would access unallocated memory.
[[noreturn]] void fault_at(const char * call, const char * name, const void * address, size_t bytes, int64_t index) {
    char text[256];
    std::snprintf(text, sizeof(text),
                  "%s: operand %s of batch entry %lld has %zu bytes at %p, which are not within one allocation", call,
                  name, static_cast<long long>(index), bytes, address);
    fault(text);
}

// Clamped to the maximum size of memory.
size_t bytes_of_elements(uint64_t count, number type) {
    size_t result;
    return __builtin_mul_overflow(count, uint64_t(bytes_of(type)), &result) ? std::numeric_limits<size_t>::max()
                                                                            : result;
}

// Calls `todo` with the used bytes as rows: address of the first, width, pitch, number.
template <typename Do> void for_rows(const void * begin, number type, const layout & as, Do todo) {
    const auto * bytes    = static_cast<const std::byte *>(begin);
    const int64_t element = int64_t(bytes_of(type));
    if (as.as == layout::form::packed) {
        return todo(bytes, size_t(as.extent()) * size_t(element), size_t(0), size_t(1));
    }
    if (as.as == layout::form::full && as.stored == triangle::none) {
        return todo(bytes, size_t(as.rows * element), size_t(as.leading * element), size_t(as.columns));
    }
    for (int64_t j = 0; j < as.columns; ++j) {
        const int64_t first = as.first_row(j), end = as.end_row(j);
        if (end > first) {
            todo(bytes + as.offset(first, j) * element, size_t((end - first) * element), size_t(0), size_t(1));
        }
    }
}

layout layout_of(int64_t size, int64_t step) {
    const int64_t apart = step < 0 ? -step : step;
    // Adjacent elements form one column.
    return apart == 1 ? layout{size, 1, size} : layout{1, size, apart};
}

} // namespace

std::shared_ptr<library> find_library(handle_t handle) { return handles().find(handle); }

std::optional<number> type_of(word type) {
    switch (type) {
        case 150: case 2: return number::f16;
        case 168: case 14: return number::bf16;
        case 151: case 0: return number::f32;
        case 152: case 1: return number::f64;
        case 160: case 3: return number::i8;
        case 162: case 10: return number::i32;
        case 154: case 4: return number::complex_f32;
        case 155: case 5: return number::complex_f64;
        default: return std::nullopt;
    }
}

// hipblasDatatype_t, or hipblasComputeType_t, for which complex types follow from the matrices.
std::optional<number> compute_type_of(word type) {
    switch (type) {
        case 150: case 0: return number::f16;
        case 151: case 2: return number::f32;
        case 152: case 7: return number::f64;
        case 162: case 9: return number::i32;
        case 154: return number::complex_f32;
        case 155: return number::complex_f64;
        default: return std::nullopt;
    }
}

std::string name_of_type(word type) {
    const auto known = type_of(type);
    return known ? name_of(*known) : "type " + std::to_string(type);
}

// The name in the program's source: HIPBLAS_V2 appends a version.
static std::string name_in_source(std::string call) {
    const size_t version = call.find("_v2");
    return version == std::string::npos ? call : call.erase(version, 3);
}

int refuse(const std::string & call, const std::string & why) {
    std::fprintf(stderr, "patchkit: %s is not supported: %s\n", name_in_source(call).c_str(), why.c_str());
    return not_supported;
}

task::task(const form & of) : of_(of), library_(find_library(of.handle)) {
    status_ = library_ == nullptr ? not_initialized : of.batch < 0 ? invalid_value : success;
}

void task::need(bool holds, int otherwise) {
    if (status_ == success && !holds) {
        status_ = otherwise;
    }
}

int task::scalar(const char * name, const void * place, number type) {
    factor made = {name, place, type, library_ != nullptr && library_->has_scalars_on_device, 0.0};
    if (status_ == success) {
        need(place != nullptr && (made.is_on_device || is_mapped(place, bytes_of(type))));
        if (status_ == success && !made.is_on_device) {
            made.value = elements{type, static_cast<std::byte *>(const_cast<void *>(place))}.get(0);
        }
    }
    factors_.push_back(made);
    return int(factors_.size()) - 1;
}

int task::add(const char * name, const operand & at, number type, const layout & as, use how,
              std::vector<int> factors) {
    const bool is_zero = !factors.empty() && std::all_of(factors.begin(), factors.end(), [this](int one) {
        return !factors_[size_t(one)].is_on_device && factors_[size_t(one)].value == 0.0;
    });
    need(at.address != nullptr || of_.batch == 0 || as.rows == 0 || as.columns == 0 || is_zero);
    parts_.push_back({name, at, type, as, how, std::move(factors), false});
    return int(parts_.size()) - 1;
}

int task::add(const vector & x, number type, int64_t size, use how, std::vector<int> factors) {
    return add(x.name, x.at, type, layout_of(size, x.step), how, std::move(factors));
}

int task::add_numbers(const char * name, const operand & at, number type, int64_t count, use how) {
    const bool is_on_device = library_ != nullptr && library_->has_scalars_on_device;
    const int made          = add(name, at, type, layout{count, 1, count}, how);
    parts_.back().is_the_hosts = !is_on_device;
    answers_host_ |= !is_on_device && of_.batch != 0;
    if (!is_refused() && !is_on_device) {
        const bool is_there = at.is_list ? is_mapped(at.address, size_t(of_.batch) * sizeof(void *))
                                         : is_mapped(at.address, size_t(count) * bytes_of(type));
        need(is_there || of_.batch == 0);
    }
    return made;
}

// The work that runs later, with copies of all parameters.
struct task::work_to_do {
    std::string call;
    int64_t batch;
    std::vector<part> parts;
    std::vector<factor> factors;
    std::function<void(const all_places &, const std::vector<complex> &)> work;
    computed what;

    std::vector<complex> values() const {
        std::vector<complex> result;
        for (const factor & one : factors) {
            if (!one.is_on_device) {
                result.push_back(one.value);
                continue;
            }
            if (!is_known(one.place, bytes_of(one.type))) {
                fault_at(call.c_str(), one.name, one.place, bytes_of(one.type), 0);
            }
            touch_rows(call, access::reads, one.place, bytes_of(one.type), 0, 1);
            result.push_back(elements{one.type, static_cast<std::byte *>(const_cast<void *>(one.place))}.get(0));
        }
        return result;
    }

    static bool is_used(const part & one, const std::vector<complex> & scalars) {
        return one.as.rows != 0 && one.as.columns != 0 &&
               (one.factors.empty() || std::any_of(one.factors.begin(), one.factors.end(), [&](int factor) {
                    return scalars[size_t(factor)] != 0.0;
                }));
    }

    void check_list(const part & one) const {
        const size_t bytes = size_t(batch) * sizeof(void *);
        const bool is_there =
            one.is_the_hosts ? is_mapped(one.at.address, bytes) : is_known(one.at.address, bytes);
        if (one.at.is_list && !is_there) {
            fault_at(call.c_str(), one.name, one.at.address, bytes, 0);
        }
    }

    void * checked(const part & one, int64_t index) const {
        const void * address = address_of(one.at, one.type, index);
        const size_t bytes   = bytes_of_elements(one.as.extent(), one.type);
        if (!(one.is_the_hosts ? is_mapped(address, bytes) : is_known(address, bytes))) {
            fault_at(call.c_str(), one.name, address, bytes, index);
        }
        if (!one.is_the_hosts) {
            for_rows(address, one.type, one.as, [&](const void * first, size_t width, size_t pitch, size_t height) {
                touch_rows(call, one.how == use::writes ? access::writes : access::reads, first, width, pitch, height);
            });
        }
        return const_cast<void *>(address);
    }

    // Results count as initialised, whatever the operands are: values are not followed through these computations.
    void note(const part & one, const void * address) const {
        if (one.how != use::writes || one.is_the_hosts || address == nullptr) {
            return;
        }
        for_rows(address, one.type, one.as, [&](const std::byte * first, size_t width, size_t pitch, size_t height) {
            for (size_t row = 0; row < height; ++row) {
                note_written(first + row * pitch, width);
            }
        });
    }

    void operator()() const {
        const std::vector<complex> scalars = values();
        std::vector<bool> used;
        for (const part & one : parts) {
            used.push_back(is_used(one, scalars));
            if (used.back()) {
                check_list(one);
            }
        }
        constexpr int64_t at_once = 4096; // batch elements processed at once, to limit memory
        all_places places;
        for (int64_t first = 0; first < batch; first += at_once) {
            places.clear();
            for (int64_t index = first; index < std::min(batch, first + at_once); ++index) {
                std::vector<void *> & own = places.emplace_back();
                for (size_t i = 0; i < parts.size(); ++i) {
                    own.push_back(used[i] ? checked(parts[i], index) : nullptr);
                }
            }
            work(places, scalars);
            for (const std::vector<void *> & own : places) {
                for (size_t i = 0; i < parts.size(); ++i) {
                    note(parts[i], own[i]);
                }
            }
        }
        count(what);
    }
};

int task::run_together(int64_t m, int64_t n, int64_t k, const std::string & types,
                       std::function<void(const all_places &, const std::vector<complex> &)> work) {
    if (is_refused()) {
        return status_;
    }
    const std::string name = name_in_source(of_.call);
    const computed what    = {name, m, n, k, of_.batch, types};
    log_call(what);
    if (!is_computing() || of_.batch == 0) {
        return success;
    }
    work_to_do todo = {name, of_.batch, parts_, factors_, std::move(work), what};
    const hipError_t error = answers_host_ ? enqueue_and_wait(library_->stream, std::move(todo))
                                           : enqueue_kernel(library_->stream, std::move(todo));
    return error == hipSuccess ? success : internal_error;
}

int task::run(int64_t m, int64_t n, int64_t k, number type, std::function<void(const place &)> work) {
    const auto is = [](const char * what, number of) { return std::string("\"") + what + "\":\"" + name_of(of) + "\""; };
    const std::string types =
        is("a", type) + "," + is("b", type) + "," + is("c", type) + "," + is("compute", type) + "," +
        is("sums", is_complex(type) ? number::complex_f64 : number::f64);
    return run_together(m, n, k, types, [work = std::move(work)](const all_places & all, const auto & scalars) {
        int64_t index = 0;
        for (const std::vector<void *> & at : all) {
            work({at, scalars, index++});
        }
    });
}

} // namespace patchkit::blas

namespace patchkit {

std::string products_as_json() {
    const std::lock_guard<std::mutex> guard(blas::counts_mutex);
    std::string text = "[";
    for (const auto & [one, calls] : blas::counts()) {
        text += std::string(text.size() == 1 ? "" : ",") + "\n{\"call\":" + quoted(one.call) + ",\"m\":" +
                std::to_string(one.m) + ",\"n\":" + std::to_string(one.n) + ",\"k\":" + std::to_string(one.k) +
                ",\"batch\":" + std::to_string(one.batch) + "," + one.types + ",\"calls\":" + std::to_string(calls) +
                "}";
    }
    return text + "]";
}

} // namespace patchkit

extern "C" {

using namespace patchkit::blas;

// The only function of rocBLAS: ollama's ggml calls it to load the kernels for a GPU early, and there are none.
void rocblas_initialize() {}

int hipblasCreate(handle_t * handle) {
    if (handle == nullptr) {
        return handle_is_nullptr;
    }
    *handle = handles().make(std::make_shared<library>());
    return success;
}

int hipblasDestroy(handle_t handle) { return handles().drop(handle) ? success : not_initialized; }

int hipblasSetStream(handle_t handle, void * stream) {
    const auto own = find_library(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    if (!patchkit::is_stream(stream)) {
        return invalid_value;
    }
    own->stream = static_cast<hipStream_t>(stream);
    return success;
}

int hipblasGetStream(handle_t handle, hipStream_t * stream) {
    const auto own = find_library(handle);
    if (own == nullptr || stream == nullptr) {
        return own == nullptr ? not_initialized : invalid_value;
    }
    *stream = own->stream;
    return success;
}

// HIPBLAS_POINTER_MODE_HOST is 0, HIPBLAS_POINTER_MODE_DEVICE is 1.
int hipblasSetPointerMode(handle_t handle, word mode) {
    const auto own = find_library(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    if (mode != 0 && mode != 1) {
        return invalid_enum;
    }
    own->has_scalars_on_device = mode == 1;
    return success;
}

int hipblasGetPointerMode(handle_t handle, word * mode) {
    const auto own = find_library(handle);
    if (own == nullptr || mode == nullptr) {
        return own == nullptr ? not_initialized : invalid_value;
    }
    *mode = own->has_scalars_on_device ? 1 : 0;
    return success;
}

// rocBLAS has no other math mode for f32 on these GPUs.
int hipblasSetMathMode(handle_t handle, word mode) {
    const auto own = find_library(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    own->math_mode = mode;
    return success;
}

int hipblasGetMathMode(handle_t handle, word * mode) {
    const auto own = find_library(handle);
    if (own == nullptr || mode == nullptr) {
        return own == nullptr ? not_initialized : invalid_value;
    }
    *mode = own->math_mode;
    return success;
}

int hipblasSetAtomicsMode(handle_t handle, word mode) {
    const auto own = find_library(handle);
    if (own == nullptr) {
        return not_initialized;
    }
    if (mode != 0 && mode != 1) {
        return invalid_enum;
    }
    own->atomics = mode;
    return success;
}

int hipblasGetAtomicsMode(handle_t handle, word * mode) {
    const auto own = find_library(handle);
    if (own == nullptr || mode == nullptr) {
        return own == nullptr ? not_initialized : invalid_value;
    }
    *mode = own->atomics;
    return success;
}

const char * hipblasStatusToString(word status) {
    switch (status) {
        case 0: return "HIPBLAS_STATUS_SUCCESS";
        case 1: return "HIPBLAS_STATUS_NOT_INITIALIZED";
        case 2: return "HIPBLAS_STATUS_ALLOC_FAILED";
        case 3: return "HIPBLAS_STATUS_INVALID_VALUE";
        case 4: return "HIPBLAS_STATUS_MAPPING_ERROR";
        case 5: return "HIPBLAS_STATUS_EXECUTION_FAILED";
        case 6: return "HIPBLAS_STATUS_INTERNAL_ERROR";
        case 7: return "HIPBLAS_STATUS_NOT_SUPPORTED";
        case 8: return "HIPBLAS_STATUS_ARCH_MISMATCH";
        case 9: return "HIPBLAS_STATUS_HANDLE_IS_NULLPTR";
        case 10: return "HIPBLAS_STATUS_INVALID_ENUM";
        default: return "HIPBLAS_STATUS_UNKNOWN";
    }
}

} // extern "C"
