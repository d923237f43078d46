// Loads the emulated GPU when the runtime should execute instead of record.
//
// The runtime records launches, unless PATCHKIT_EMULATOR is the path of the emulator's library; then it executes them.
// Other variables:
//   PATCHKIT_EMULATOR_DISASSEMBLER  path of libLLVM, which decodes instructions
//   PATCHKIT_EMULATOR_SCHEDULE      when asynchronous work runs, see schedule.hpp
//   PATCHKIT_EMULATOR_THREADS       threads that run blocks; default: one per core
//   PATCHKIT_EMULATOR_LIMIT         instructions per wave before its kernel counts as endless
//   PATCHKIT_EMULATOR_BLOCKS        maximum number of blocks to run per launch, including the first and the last
//   PATCHKIT_EMULATOR_LARGEST       bytes of the largest piece of device memory that can be allocated
//   PATCHKIT_EMULATOR_REPEATS       if set, launches that repeat an earlier one do not run, see repeats.hpp
//   PATCHKIT_EMULATOR_COUNT         if set, executions of each instruction are counted
//   PATCHKIT_EMULATOR_REPORT        file for a JSON report, written at the end
//   PATCHKIT_EMULATOR_RECORD        folder for recordings, see recording.hpp; then only a sample of the blocks runs:
//                                   PATCHKIT_EMULATOR_SAMPLED, PATCHKIT_EMULATOR_SEEN and PATCHKIT_EMULATOR_LATER
//   PATCHKIT_EMULATOR_UNITS         folder of code objects, and PATCHKIT_EMULATOR_SERVER, the process that compiles
//                                   missing ones, see modules.hpp
#pragma once

#include "../emulator/emulator.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace patchkit {

// A placeholder for the hardware queue; a kernel that dereferences it ends with an error.
uint64_t address_of_missing_queue();

// Runs a kernel to completion; a fault ends the process.
void run_kernel(const gpu::launch & launch);

// Functions of code_object.hpp in the emulator's library. They throw bad_code_object.
std::unique_ptr<gpu::code_object> load_code_object(std::span<const std::byte> elf);
std::span<const std::byte> find_code_object(std::span<const std::byte> bundle, std::vector<std::byte> & storage,
                                            std::vector<std::string> & held);

} // namespace patchkit
