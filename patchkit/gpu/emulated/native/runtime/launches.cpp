// Launches, by host functions and by handles, and other log entries of the recorder.

#include "launches.hpp"

#include "answers.hpp"
#include "calls.hpp"
#include "emulation.hpp"
#include "findings.hpp"
#include "happens_before.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using patchkit::answered;
using patchkit::is_executing;
using patchkit::is_stream;
using patchkit::launch_request;
using patchkit::loaded_kernel;
using patchkit::log_line;
using patchkit::quoted;

struct call_configuration {
    dim3 grid;
    dim3 block;
    size_t lds;
    hipStream_t stream;
};

thread_local std::vector<call_configuration> configurations;

constexpr uint64_t most_threads = 1024; // per block, maxWorkGroupSize

uint64_t product(const dim3 & sizes) { return uint64_t(sizes.x) * sizes.y * sizes.z; }

std::string triple(const dim3 & value) {
    return "[" + std::to_string(value.x) + "," + std::to_string(value.y) + "," + std::to_string(value.z) + "]";
}

hipError_t log_launch(const void * function, const launch_request & request) {
    const int number = patchkit::number_in_log(function);
    if (number < 0) {
        return hipErrorInvalidDeviceFunction;
    }
    log_line("{\"launch\":" + std::to_string(number) + ",\"grid\":" + triple(request.grid) + ",\"block\":" +
             triple(request.block) + ",\"lds\":" + std::to_string(request.lds) +
             (request.is_cooperative ? ",\"cooperative\":true" : "") + "}");
    return hipSuccess;
}

bool is_too_many(const dim3 & grid, const dim3 & block) {
    constexpr uint64_t most = UINT32_MAX;
    return uint64_t(grid.x) * block.x > most || uint64_t(grid.y) * block.y > most || uint64_t(grid.z) * block.z > most;
}

bool has_arguments(const patchkit::gpu::kernel_code & kernel) {
    return std::any_of(kernel.arguments.begin(), kernel.arguments.end(),
                       [](const auto & one) { return one.kind.rfind("hidden_", 0) != 0; });
}

// In the order of the real runtime (clr f9f995c6d, hip_platform.cpp: ihipLaunchKernel; hip_module.cpp:
// ihipLaunchKernel_validate). Static and dynamic LDS that exceed the limit together are only rejected by the hardware
// queue.
hipError_t check(const loaded_kernel & kernel, const launch_request & request) {
    const auto refuse = [&kernel](hipError_t error, const std::string & why) {
        return patchkit::refused_launch(error, kernel.kernel->name, why);
    };
    const uint64_t most_lds = patchkit::the_device().lds_per_block, lds = kernel.kernel->lds;
    const uint64_t threads  = product(request.block);
    const std::string sizes = "a grid of " + triple(request.grid) + " blocks of " + triple(request.block) + " threads";
    if (is_too_many(request.grid, request.block)) {
        return refuse(hipErrorInvalidConfiguration,
                      sizes + " has more threads in one direction than " + std::to_string(UINT32_MAX));
    }
    if (request.values != nullptr && request.segment != nullptr) {
        return refuse(hipErrorInvalidValue, "its arguments are given twice, as a list and as bytes");
    }
    if (product(request.grid) == 0 || threads == 0) {
        return refuse(hipErrorInvalidValue, sizes + " is empty");
    }
    const uint64_t longest = std::max({request.block.x, request.block.y, request.block.z});
    if (longest > most_threads || threads > most_threads) {
        return refuse(hipErrorInvalidValue, "a block of " + triple(request.block) + " has " + std::to_string(threads) +
                                                " threads, but may have at most " + std::to_string(most_threads));
    }
    if (request.lds > most_lds) {
        return refuse(hipErrorInvalidValue, std::to_string(request.lds) +
                                                " bytes of dynamic LDS are requested, but a block may have at most " +
                                                std::to_string(most_lds));
    }
    if (has_arguments(*kernel.kernel) && request.values == nullptr && request.segment == nullptr) {
        return refuse(hipErrorInvalidValue, "the kernel has arguments, but none are given");
    }
    if (threads > kernel.kernel->max_threads) {
        return refuse(hipErrorLaunchFailure,
                      "a block has " + std::to_string(threads) + " threads, but the kernel was compiled for at most " +
                          std::to_string(kernel.kernel->max_threads) + " (__launch_bounds__)");
    }
    if (request.lds + lds > most_lds) {
        return refuse(hipErrorInvalidValue, std::to_string(lds) + " bytes of LDS of the kernel and " +
                                                std::to_string(request.lds) + " dynamic ones are " +
                                                std::to_string(lds + request.lds) + ", but a block may have at most " +
                                                std::to_string(most_lds));
    }
    if (request.values != nullptr && !patchkit::are_readable(*kernel.kernel, request.values)) {
        return refuse(hipErrorInvalidValue, "the list of its arguments cannot be read");
    }
    return hipSuccess;
}

// All blocks of a cooperative launch must be resident at once; this is the maximum number.
uint64_t most_at_once(const loaded_kernel & kernel, const launch_request & request) {
    const int per_multiprocessor = patchkit::resident_blocks(patchkit::resources_of(*kernel.kernel),
                                                             int(product(request.block)), request.lds);
    return uint64_t(per_multiprocessor) * uint64_t(patchkit::the_device().multiprocessors);
}

// Throws unknown_argument.
hipError_t checked_launch(const loaded_kernel & kernel, const launch_request & request, hipStream_t stream) {
    patchkit::check_kinds(*kernel.kernel);
    const hipError_t error = check(kernel, request);
    if (error != hipSuccess) {
        return error;
    }
    const uint64_t blocks = product(request.grid);
    const uint64_t most   = request.is_cooperative ? most_at_once(kernel, request) : blocks;
    if (blocks > most) {
        return patchkit::refused_launch(hipErrorCooperativeLaunchTooLarge, kernel.kernel->name,
                                        "a cooperative launch of " + std::to_string(blocks) +
                                            " blocks, but the GPU holds only " + std::to_string(most) + " of them at once");
    }
    const patchkit::launch_shape shape = {request.grid, request.block, uint32_t(request.lds), request.is_cooperative};
    auto made = std::make_shared<patchkit::gpu::launch>();
    made->code           = kernel.code;
    made->kernel         = kernel.kernel;
    made->grid           = {request.grid.x, request.grid.y, request.grid.z};
    made->block          = {request.block.x, request.block.y, request.block.z};
    made->dynamic_lds    = shape.dynamic_lds;
    made->is_cooperative = request.is_cooperative;
    made->called_from    = patchkit::reported_callers();
    made->kernarg = request.segment != nullptr ? patchkit::pack_arguments(*kernel.kernel, shape, *request.segment)
                                               : patchkit::pack_arguments(*kernel.kernel, shape, request.values);
    return patchkit::enqueue_kernel(stream, [made, in = kernel.in] {
        made->order = patchkit::order_of_launch(in);
        patchkit::run_kernel(*made);
    });
}

hipError_t launch_function(const void * function, const launch_request & request, hipStream_t stream) {
    const hipError_t logged = log_launch(function, request);
    if (logged != hipSuccess || !is_executing()) {
        return logged;
    }
    loaded_kernel kernel;
    const hipError_t error = patchkit::find_kernel(function, kernel);
    return error == hipSuccess ? patchkit::launch(kernel, request, stream) : error;
}

} // namespace

namespace patchkit {

hipError_t launch(const loaded_kernel & kernel, const launch_request & request, hipStream_t stream) {
    try {
        return checked_launch(kernel, request, stream);
    } catch (const unknown_argument & wrong) {
        std::fprintf(stderr, "patchkit emulator: %s\n", wrong.what());
        return hipErrorLaunchFailure;
    }
}

} // namespace patchkit

extern "C" {

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds, hipStream_t stream) {
    configurations.push_back({grid, block, lds, stream});
    return answered(hipSuccess);
}

hipError_t __hipPopCallConfiguration(dim3 * grid, dim3 * block, size_t * lds, hipStream_t * stream) {
    if (grid == nullptr || block == nullptr || lds == nullptr || stream == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (configurations.empty()) {
        return answered(hipErrorMissingConfiguration);
    }
    const call_configuration & top = configurations.back();
    *grid   = top.grid;
    *block  = top.block;
    *lds    = top.lds;
    *stream = top.stream;
    configurations.pop_back();
    return answered(hipSuccess);
}

hipError_t hipLaunchKernel(const void * function, dim3 grid, dim3 block, void ** args, size_t lds,
                           hipStream_t stream) {
    if (!is_stream(stream)) {
        return answered(hipErrorInvalidValue);
    }
    return answered(launch_function(function, {grid, block, lds, false, args}, stream));
}

// The events are recorded before and after the kernel; either may be null.
hipError_t hipExtLaunchKernel(const void * function, dim3 grid, dim3 block, void ** args, size_t lds,
                              hipStream_t stream, hipEvent_t begin, hipEvent_t end, int /*flags*/) {
    if (!is_stream(stream) || !patchkit::is_null_or_event(begin) || !patchkit::is_null_or_event(end)) {
        return answered(hipErrorInvalidValue);
    }
    return answered(patchkit::record_around(begin, end, stream, [&] {
        return launch_function(function, {grid, block, lds, false, args}, stream);
    }));
}

hipError_t hipLaunchCooperativeKernel(const void * function, dim3 grid, dim3 block, void ** params, unsigned int lds,
                                      hipStream_t stream) {
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    return answered(launch_function(function, {grid, block, lds, true, params}, stream));
}

// Writes a mark between launches, for drivers of the backend: the next case, or the result of one.
void patchkit_recorder_mark(const char * text) {
    log_line("{\"mark\":" + quoted(text == nullptr ? "" : text) + "}");
}

} // extern "C"
