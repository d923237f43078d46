// The emulated GPU: runs kernels of code objects on the CPU.
//
// The runtime loads this library and creates an emulator with patchkit_make_emulator. Nothing here depends on HIP.
#pragma once

#include "code_object.hpp"
#include "image.hpp"
#include "traces.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

// A range of memory that kernels may access, allocated by host code.
struct memory_range {
    uintptr_t begin = 0;
    uintptr_t end   = 0;
    // If values are followed: per byte, the bits that are initialised; null if all are.
    std::byte * known = nullptr;
    // In addition, per dword: the id of the uninitialised write to it, for `reveal`; 0 if there was none.
    uint32_t * left_by = nullptr;
    bool is_constant = false; // kernels must not write there
    bool is_host     = false; // the host reads what kernels write here
    bool is_for_host = false; // the host may write there while a kernel runs
    traces * traced = nullptr; // who accessed it, if that is tracked

    bool holds(uintptr_t address, uint64_t size) const {
        return end - begin >= size && address - begin <= end - begin - size;
    }
};

// Callbacks provided by the runtime.
struct memory_map {
    virtual ~memory_map() = default;

    // The allocation that contains this address, or an empty range. Called concurrently.
    virtual memory_range find(uintptr_t address) = 0;

    // Whether this address represents a part of the GPU that is not emulated; an access to it ends the kernel.
    virtual bool is_refused(uintptr_t /*address*/) { return false; }

    // Whether a GPU could read these bytes although they are in no allocation.
    virtual bool is_readable(uintptr_t address, uint32_t size) = 0;

    // The texture or surface with that number, or null. It does not change while kernels run.
    virtual const image * find_image(uint64_t /*number*/) { return nullptr; }

    // Called when a wave waits (s_sleep) or sends an interrupt (s_sendmsg): serves host calls of the device. Returns
    // false if there was none.
    virtual bool serve_host_calls() = 0;

    // A placeholder for the address of the hardware queue, for kernels that request it; is_refused is true for it.
    virtual uintptr_t queue() { return 0; }

    // Called on the first finding at a place, because the program may end before findings are requested.
    virtual void found(const struct finding & what) = 0;

    // Describes the position of these bytes relative to allocations: "8 bytes past the end of 64 bytes of device
    // memory".
    virtual std::string describe(uintptr_t address, uint32_t size) = 0;
};

// The checks a run can enable. PATCHKIT_CHECKS(each) is passed by the build from the list in
// patchkit/gpu/emulated/checks.py. A check's name is also the kind of its findings. With `memory`, an invalid access is
// a finding and is skipped; without, it is a fault.
namespace kinds {
#define PATCHKIT_KIND(name) inline constexpr const char * name = #name;
PATCHKIT_CHECKS(PATCHKIT_KIND)
#undef PATCHKIT_KIND
} // namespace kinds

struct checks {
#define PATCHKIT_MEMBER(name) bool name = false;
    PATCHKIT_CHECKS(PATCHKIT_MEMBER)
#undef PATCHKIT_MEMBER

    // The check with that name, or null.
    bool * find(std::string_view word) {
#define PATCHKIT_FIND(name)    \
    if (word == kinds::name) { \
        return &name;          \
    }
        PATCHKIT_CHECKS(PATCHKIT_FIND)
#undef PATCHKIT_FIND
        return nullptr;
    }

#define PATCHKIT_OR(name) || name
    bool any() const { return false PATCHKIT_CHECKS(PATCHKIT_OR); }
#undef PATCHKIT_OR
    bool traces() const { return races || asynchrony || caches; }
};

// Resources that limit how many blocks of a launch the GPU holds at once.
struct multiprocessors {
    uint32_t count = 0, simds = 0, waves_per_simd = 0;
    uint32_t vgprs_per_simd = 0, vgpr_granule = 1; // per lane
    uint64_t lds = 0;                              // bytes per multiprocessor
};

struct configuration {
    std::string arch;
    std::string disassembler;          // path of libLLVM
    unsigned threads           = 0;    // 0: one per core
    uint64_t most_instructions = 0;    // per wave before its kernel counts as endless; 0: no limit
    // Maximum number of blocks to run per launch, except cooperative ones; results are then meaningless. 0: all.
    uint64_t most_blocks       = 0;
    bool counts                = false; // count how often each instruction runs
    // If 0, blocks run in the order of their flat numbers, and so do the waves of a block. Any other value shuffles
    // both; waves are reshuffled at each barrier.
    uint64_t shuffle_seed      = 0;
    checks looks_for;
    // Folder for recordings, see recording.hpp; empty: none. When recording, only some blocks of each launch run, and
    // no results or checks are computed. `seen`: maximum number of blocks, out of those that `on` holds at once.
    std::string record_to;
    uint32_t sampled = 0, seen = 0, later = 0;
    multiprocessors on;
};

struct dimensions {
    uint32_t x = 1, y = 1, z = 1;
};

struct launch {
    code_object * code;
    const kernel_code * kernel;
    dimensions grid;  // blocks
    dimensions block; // threads
    uint32_t dynamic_lds; // bytes
    std::vector<std::byte> kernarg;
    bool is_cooperative;
    std::vector<void *> called_from; // host return addresses, innermost first, for findings
    const operation_order * order = nullptr; // null if no traces are recorded
};

// How often one instruction of one kernel was executed by waves.
struct instruction_count {
    std::string text; // as the disassembler writes it
    uint64_t executed;
    bool has_tolerance; // not exact by definition: exp, rcp, order of additions in a dot product
};

struct kernel_count {
    std::string name;
    uint64_t launches;
    uint64_t repeats;      // launches that did not run because their results were known
    uint64_t waves;
    uint64_t instructions; // executed by waves
    uint64_t left_out;     // blocks that did not run, if only a sample does
    double seconds;        // wall-clock time of the emulation
    std::vector<instruction_count> by_instruction; // of the kernel and the functions it calls
};

// An instruction that ran: byte offset from the start of a function, with the name from the code object. An operation
// without code has only a text.
struct code_place {
    const code_object * code = nullptr;
    std::string function;
    uint32_t offset = 0;
    std::string text;
};

// Where a wave was when its kernel was stopped. `does`: its state in words.
struct stopped_wave {
    uint32_t wave = 0;
    std::string does;
    code_place at;
};

// A kernel did something that a GPU would not survive, or that is not emulated. The text names kernel, instruction and
// wave.
struct kernel_fault : std::runtime_error {
    explicit kernel_fault(const std::string & text, std::string kernel = {}, std::vector<stopped_wave> waves = {})
        : std::runtime_error(text), kernel(std::move(kernel)), waves(std::move(waves)) {}

    std::string kernel; // mangled; empty, and without waves, if the kernel was not started
    std::vector<stopped_wave> waves;
};

// A finding of a check, for the first wave of the first block of the launch that showed it.
struct finding {
    std::string kind;   // one of `kinds`
    std::string what;   // in words, with lane and address if applicable
    std::string kernel; // the launched kernel
    code_place at;
    code_place other;   // the conflicting instruction, or empty
    dimensions block;
    uint32_t wave;
    uint64_t times;     // found at this pair of places
    std::vector<void *> called_from;
    std::vector<void *> other_called_from; // of the other operation
    bool is_note = false; // worth knowing, but not a fault
};

// The source of a trace: an instruction of a launched kernel.
struct tracing {
    code_place place;
    std::string kernel;
    std::vector<void *> called_from;
};

// Initial and final registers of a wave, for running single instructions.
struct wave_registers {
    std::vector<std::array<uint32_t, 32>> vgprs; // [register][lane]
    std::array<uint32_t, 106> sgprs{};
    uint32_t vcc = 0, exec = 0, m0 = 0;
    bool scc = false;
};

class emulator {
  public:
    virtual ~emulator() = default;

    // Runs all blocks. Throws kernel_fault, bad_code_object.
    virtual void run(const launch & launch) = 0;

    // Counts a launch that does not run because its results are known.
    virtual void count_repeat(const launch & /*launch*/) {}

    // Runs `code` from start to end with these waves of one block and stores their final registers. `lds` and `scratch`
    // (per lane) in bytes, both zeroed; `mode` is the low byte of the MODE register. Throws kernel_fault.
    virtual void run_alone(std::span<const std::byte> code, std::span<wave_registers> waves, uint32_t lds,
                           uint32_t scratch, uint32_t mode) = 0;

    virtual std::vector<kernel_count> counts() = 0;

    // In the order in which they were first found.
    virtual std::vector<finding> findings() = 0;

    // The host reads an uninitialised value (memory_range::left_by); `where` says how, appended to the finding's text.
    virtual void reveal(uint32_t /*left_by*/, const std::string & /*where*/) {}

    // Finds the launch that used this touch number. Returns false if it is unknown.
    virtual bool find_tracing(uint64_t /*touch*/, tracing & /*found*/) { return false; }
};

using make_emulator = emulator * (*)(const configuration &, memory_map &);

} // namespace patchkit::gpu

// The caller owns the result. Throws std::runtime_error if the configuration is unusable.
extern "C" patchkit::gpu::emulator * patchkit_make_emulator(const patchkit::gpu::configuration & wanted,
                                                            patchkit::gpu::memory_map & memory);
