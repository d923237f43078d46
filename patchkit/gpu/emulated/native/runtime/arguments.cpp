#include "arguments.hpp"

#include "allocations.hpp"
#include "emulation.hpp"
#include "host_calls.hpp"
#include "kernel_heap.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace patchkit {

namespace {

bool is_hidden(const gpu::argument & one) { return one.kind.rfind("hidden_", 0) == 0; }

// Kinds that host code passes by value, which includes pointers.
bool is_value(const gpu::argument & one) { return one.kind == "by_value" || one.kind == "global_buffer"; }

// The barrier of cooperative launches: struct mg_info of the device libraries' cg.cl (ROCm 6 and 7). Its counter
// returns to the initial value when all blocks have passed, so launches of the same size share one.
struct grid_barrier {
    uint64_t other_gpus     = 0;
    uint32_t grid           = 0;
    uint32_t grids          = 0;
    uint64_t threads_before = 0;
    uint64_t threads        = 0;
    uint32_t arrived        = 0;
    uint32_t unused         = 0;
    uint32_t blocks;
};

uint64_t barrier_of(const launch_shape & shape) {
    static std::mutex mutex;
    static auto * made = new std::map<uint32_t, grid_barrier>;
    const uint32_t blocks = shape.grid.x * shape.grid.y * shape.grid.z;
    const std::lock_guard<std::mutex> guard(mutex);
    const auto [found, is_new] = made->try_emplace(blocks);
    if (is_new) {
        found->second.blocks = blocks;
        register_memory(&found->second, sizeof(grid_barrier), hipMemoryTypeDevice, owner::runtime);
    }
    return uint64_t(&found->second);
}

// Values of hidden arguments (LLVM's AMDGPU user guide, code object V5, ".value_kind"; values as in clr f9f995c6d,
// rocvirtual.cpp: submitKernelInternal). HIP's grids are whole blocks in three dimensions without an offset.
using value_of = std::function<uint64_t(const launch_shape &)>;

const std::unordered_map<std::string_view, value_of> & hidden_values() {
    using shape = const launch_shape &;
    static const auto zero = [](shape) { return uint64_t(0); };
    static const std::unordered_map<std::string_view, value_of> table = {
        {"hidden_none", zero},
        {"hidden_block_count_x", [](shape s) { return uint64_t(s.grid.x); }},
        {"hidden_block_count_y", [](shape s) { return uint64_t(s.grid.y); }},
        {"hidden_block_count_z", [](shape s) { return uint64_t(s.grid.z); }},
        {"hidden_group_size_x", [](shape s) { return uint64_t(s.block.x); }},
        {"hidden_group_size_y", [](shape s) { return uint64_t(s.block.y); }},
        {"hidden_group_size_z", [](shape s) { return uint64_t(s.block.z); }},
        {"hidden_remainder_x", zero},
        {"hidden_remainder_y", zero},
        {"hidden_remainder_z", zero},
        {"hidden_global_offset_x", zero},
        {"hidden_global_offset_y", zero},
        {"hidden_global_offset_z", zero},
        {"hidden_grid_dims", [](shape) { return uint64_t(3); }},
        {"hidden_dynamic_lds_size", [](shape s) { return uint64_t(s.dynamic_lds); }},
        {"hidden_hostcall_buffer", [](shape) { return host_call_buffer(); }},
        {"hidden_multigrid_sync_arg", [](shape s) { return s.is_cooperative ? barrier_of(s) : 0; }},
        {"hidden_heap_v1", [](shape) { return kernel_heap(); }},
        {"hidden_queue_ptr", [](shape) { return address_of_missing_queue(); }},
        {"hidden_default_queue", zero}, // for OpenCL kernels that launch kernels
        {"hidden_completion_action", zero},
    };
    return table;
}

std::byte * place_in(std::vector<std::byte> & segment, const gpu::kernel_code & kernel, const gpu::argument & one) {
    if (one.offset > segment.size() || one.size > segment.size() - one.offset) {
        throw unknown_argument("an argument of kernel " + kernel.name + " is outside of its kernarg segment");
    }
    return segment.data() + one.offset;
}

void fill_hidden(std::vector<std::byte> & segment, const gpu::kernel_code & kernel, const launch_shape & shape) {
    for (const gpu::argument & one : kernel.arguments) {
        if (!is_hidden(one)) {
            continue;
        }
        const uint64_t value = hidden_values().at(one.kind)(shape);
        std::memcpy(place_in(segment, kernel, one), &value, std::min(sizeof(value), size_t(one.size)));
    }
}

} // namespace

void check_kinds(const gpu::kernel_code & kernel) {
    for (const gpu::argument & one : kernel.arguments) {
        if (!is_value(one) && hidden_values().count(one.kind) == 0) {
            throw unknown_argument("kernel " + kernel.name + " takes an argument of the kind " + one.kind +
                                   ", which is not emulated");
        }
    }
}

bool are_readable(const gpu::kernel_code & kernel, void ** values) {
    size_t next = 0;
    for (const gpu::argument & one : kernel.arguments) {
        if (is_hidden(one)) {
            continue;
        }
        if (!is_mapped(values + next, sizeof(*values)) || !is_mapped(values[next], one.size)) {
            return false;
        }
        ++next;
    }
    return true;
}

std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape, void ** values) {
    std::vector<std::byte> segment(kernel.kernarg_size);
    size_t next = 0;
    for (const gpu::argument & one : kernel.arguments) {
        if (is_hidden(one)) {
            continue;
        }
        std::memcpy(place_in(segment, kernel, one), values[next++], one.size);
    }
    fill_hidden(segment, kernel, shape);
    return segment;
}

std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape,
                                      const std::vector<std::byte> & given) {
    std::vector<std::byte> segment = given;
    segment.resize(kernel.kernarg_size);
    fill_hidden(segment, kernel, shape);
    return segment;
}

} // namespace patchkit
