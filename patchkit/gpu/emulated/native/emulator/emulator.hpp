// The emulated GPU: runs kernels of code objects on the CPU.
//
// The runtime loads the library and asks for an emulator by patchkit_make_emulator. Nothing here knows HIP.
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

// Where memory begins and ends that kernels may touch; host code allocated it.
struct memory_range {
    uintptr_t begin = 0;
    uintptr_t end   = 0;
    // When values are followed: a byte for each, with the bits that were given a value; null where all count as given.
    std::byte * known = nullptr;
    // Besides it, for each dword: what wrote there without a value, by which `reveal` knows it; 0 when nothing did.
    uint32_t * left_by = nullptr;
    bool is_constant = false; // kernels must not write there
    bool is_host     = false; // the host sees what they write
    bool is_for_host = false; // the host may write there while a kernel runs
    traces * traced = nullptr; // who touched it, where that is looked for

    bool holds(uintptr_t address, uint64_t size) const {
        return end - begin >= size && address - begin <= end - begin - size;
    }
};

// What the runtime provides.
struct memory_map {
    virtual ~memory_map() = default;

    // The allocation that holds this address, an empty range when none does. Called by many threads at once.
    virtual memory_range find(uintptr_t address) = 0;

    // Whether this address stands for a part of the GPU that is not emulated: behind an access to it nothing goes on.
    virtual bool is_refused(uintptr_t /*address*/) { return false; }

    // Whether a GPU would read these bytes, which no allocation holds, all the same.
    virtual bool is_readable(uintptr_t address, uint32_t size) = 0;

    // The texture or surface of that number, null when there is none. It stays as it is while kernels run.
    virtual const image * find_image(uint64_t /*number*/) { return nullptr; }

    // A wave waits (s_sleep) or sent an interrupt (s_sendmsg): serves calls of the device to the host. False when there
    // was none.
    virtual bool serve_host_calls() = 0;

    // What stands for the address of the hardware queue, for kernels that want it in a register; is_refused holds of it.
    virtual uintptr_t queue() { return 0; }

    // A check found something at a place for the first time. A program may end before it is asked for the findings.
    virtual void found(const struct finding & what) = 0;

    // What these bytes have to do with allocations, in words: "8 bytes behind the end of an allocation of 64 bytes".
    virtual std::string describe(uintptr_t address, uint32_t size) = 0;
};

// What a run can look for besides what no GPU would survive: PATCHKIT_CHECKS(each), which the compiler is told from the
// one list of them (patchkit/gpu/emulated/checks.py). The name is the word that asks for it and the kind of its findings.
// With `memory`, an access to what no allocation holds is a finding and not done, where it is a fault otherwise.
namespace kinds {
#define PATCHKIT_KIND(name) inline constexpr const char * name = #name;
PATCHKIT_CHECKS(PATCHKIT_KIND)
#undef PATCHKIT_KIND
} // namespace kinds

struct checks {
#define PATCHKIT_MEMBER(name) bool name = false;
    PATCHKIT_CHECKS(PATCHKIT_MEMBER)
#undef PATCHKIT_MEMBER

    // The check of that name, null when there is none.
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
    bool traces() const { return races || asynchrony; }
};

// What decides how many blocks of a launch the GPU holds at once.
struct multiprocessors {
    uint32_t count = 0, simds = 0, waves_per_simd = 0;
    uint32_t vgprs_per_simd = 0, vgpr_granule = 1; // of one lane
    uint64_t lds = 0;                              // bytes of one
};

struct configuration {
    std::string arch;
    std::string disassembler;          // path of libLLVM
    unsigned threads           = 0;    // 0: one per core
    uint64_t most_instructions = 0;    // of one wave before its kernel counts as endless; 0: no limit
    // Of each launch at most so many blocks run, but for cooperative ones: then results mean nothing. 0: all.
    uint64_t most_blocks       = 0;
    bool counts                = false; // keep how often each instruction ran
    // Blocks run in the order of their flat numbers, from 0 up, and so do the waves of a block, when it is 0; another
    // number shuffles both, the waves anew from each barrier on.
    uint64_t shuffle_seed      = 0;
    checks looks_for;
    // Of each launch only some blocks run, and are recorded, see recording.hpp: nothing is computed, and nothing is
    // looked for. The folder is empty where that is not wanted. `seen`: at most so many, of those that `on` holds at once.
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
    std::vector<void *> called_from; // return addresses of the host code, innermost first; for findings
    const operation_order * order = nullptr; // null where nobody looks for traces
};

// How often one instruction of one kernel ran, by waves.
struct instruction_count {
    std::string text; // as the disassembler writes it
    uint64_t executed;
    bool has_tolerance; // not exact by definition: exp, rcp, the order of sums in a dot product
};

struct kernel_count {
    std::string name;
    uint64_t launches;
    uint64_t repeats;      // of these, whose results were known, so that they did not run
    uint64_t waves;
    uint64_t instructions; // executed by waves
    uint64_t left_out;     // blocks, where only a sample of each launch runs
    double seconds;        // of this machine, by the clock on the wall
    std::vector<instruction_count> by_instruction; // of the kernel and the functions that it called
};

// An instruction of the code that ran: bytes from the start of a function, as the code object names it. Of an operation
// without code there is the text alone, in words.
struct code_place {
    const code_object * code = nullptr;
    std::string function;
    uint32_t offset = 0;
    std::string text;
};

// Where a wave was when its kernel was stopped. `does`: what it did there, in words.
struct stopped_wave {
    uint32_t wave = 0;
    std::string does;
    code_place at;
};

// A kernel did what the GPU would not survive, or what is not emulated. The text names kernel, instruction and wave.
struct kernel_fault : std::runtime_error {
    explicit kernel_fault(const std::string & text, std::string kernel = {}, std::vector<stopped_wave> waves = {})
        : std::runtime_error(text), kernel(std::move(kernel)), waves(std::move(waves)) {}

    std::string kernel; // mangled; empty, and no waves, where it was not begun
    std::vector<stopped_wave> waves;
};

// What a check found, by the first wave of the first block of the launch that showed it.
struct finding {
    std::string kind;   // one of `kinds`
    std::string what;   // in words, with lane and address where there is one
    std::string kernel; // that was launched
    code_place at;
    code_place other;   // what it conflicts with, empty where nothing does
    dimensions block;
    uint32_t wave;
    uint64_t times;     // it was found at this place, with this other one
    std::vector<void *> called_from;
    std::vector<void *> other_called_from; // of another operation
    bool is_note = false; // worth knowing, and no fault
};

// Who left a trace: an instruction of a kernel that was launched.
struct tracing {
    code_place place;
    std::string kernel;
    std::vector<void *> called_from;
};

// What one wave starts with and leaves, for running a few instructions by themselves.
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

    // A launch that does not run, as what it leaves is known.
    virtual void count_repeat(const launch & /*launch*/) {}

    // Runs `code` from its start to its end by these waves of one block, and leaves their registers; `lds` and
    // `scratch` in bytes (scratch per lane), both zeroed, `mode` as the low byte of the MODE register. Throws
    // kernel_fault.
    virtual void run_alone(std::span<const std::byte> code, std::span<wave_registers> waves, uint32_t lds,
                           uint32_t scratch, uint32_t mode) = 0;

    virtual std::vector<kernel_count> counts() = 0;

    // In the order in which they were first found.
    virtual std::vector<finding> findings() = 0;

    // The host gets what this wrote (memory_range::left_by); `where` says how, behind what is known of it.
    virtual void reveal(uint32_t /*left_by*/, const std::string & /*where*/) {}

    // Whether the launch that drew this number is known: then who that was.
    virtual bool find_tracing(uint64_t /*touch*/, tracing & /*found*/) { return false; }
};

using make_emulator = emulator * (*)(const configuration &, memory_map &);

} // namespace patchkit::gpu

// The caller owns it. Throws std::runtime_error when the configuration cannot be used.
extern "C" patchkit::gpu::emulator * patchkit_make_emulator(const patchkit::gpu::configuration & wanted,
                                                            patchkit::gpu::memory_map & memory);
