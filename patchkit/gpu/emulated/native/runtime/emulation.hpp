// The emulated GPU behind the runtime: loaded when the runtime is to compute what it is asked for.
//
// The runtime records unless PATCHKIT_EMULATOR names the emulator's library; then it executes. More variables:
//   PATCHKIT_EMULATOR_DISASSEMBLER  path of libLLVM, by which the emulator decodes
//   PATCHKIT_EMULATOR_SCHEDULE      when asynchronous work runs, see schedule.hpp
//   PATCHKIT_EMULATOR_THREADS       that run blocks; without it one per core
//   PATCHKIT_EMULATOR_LIMIT         instructions of one wave before its kernel counts as endless
//   PATCHKIT_EMULATOR_BLOCKS        at most so many blocks of each launch run, the first and the last among them
//   PATCHKIT_EMULATOR_REPEATS       when set, launches that repeat an earlier one do not run, see repeats.hpp
//   PATCHKIT_EMULATOR_COUNT         when set, each instruction is counted
//   PATCHKIT_EMULATOR_REPORT        file that gets a JSON report at the end
//   PATCHKIT_EMULATOR_RECORD        folder that gets what blocks execute, see recording.hpp; then only a sample of the
//                                   blocks runs: PATCHKIT_EMULATOR_SAMPLED, PATCHKIT_EMULATOR_SEEN and PATCHKIT_EMULATOR_LATER
//   PATCHKIT_EMULATOR_UNITS         folder of code objects, PATCHKIT_EMULATOR_SERVER: who makes those that are not
//                                   there yet, see modules.hpp
#pragma once

#include "../emulator/emulator.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace patchkit {

bool is_executing();

// Whether results count: not when a few blocks of each launch are recorded.
bool is_computing();

// Whether blocks of launches are left out, so that memory lacks what they would have written there.
bool is_sampling();

// A variable of the environment; null when it is not set or empty.
const char * setting(const char * name);

// The program did what a GPU would not survive: says so, writes the report and ends the process as ROCm does. `stopped`:
// where the waves of the kernel that did it were; null when it was none.
[[noreturn]] void fault(const std::string & what, const gpu::kernel_fault * stopped = nullptr);

// From now on the process ends with all work done and the report written; for any number of calls.
void watch_end_of_process();

// What kernels get in place of a hardware queue: who follows it is told that there is none.
uint64_t address_of_missing_queue();

// Runs a kernel to its end; a fault ends the process.
void run_kernel(const gpu::launch & launch);

// See gpu::emulator::reveal.
void reveal(uint32_t left_by, const std::string & where);

// Who left a touch, if it was a kernel.
bool find_tracing(uint64_t touch, gpu::tracing & found);

// The functions of code_object.hpp in the emulator's library. They throw bad_code_object.
std::unique_ptr<gpu::code_object> load_code_object(std::span<const std::byte> elf);
std::span<const std::byte> find_code_object(std::span<const std::byte> bundle, std::vector<std::byte> & storage,
                                            std::vector<std::string> & held);

// Of the CPU, for what is computed in place of a kernel.
unsigned number_of_threads();

} // namespace patchkit
