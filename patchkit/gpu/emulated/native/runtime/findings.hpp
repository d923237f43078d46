// What the checks of the emulated GPU found, for the report: with the launch in the program, and the code objects
// that its instructions are in.
//
//   PATCHKIT_EMULATOR_CHECK    what is looked for, with commas: the names of PATCHKIT_CHECKS
//   PATCHKIT_EMULATOR_OBJECTS  folder that gets the code objects as files, so that source lines can be looked up
#pragma once

#include "../emulator/emulator.hpp"

#include <span>
#include <string>
#include <vector>

namespace patchkit {

gpu::checks read_checks();

// Whether anything is looked for: then memory is laid out so that what is outside of it, or freed, is told apart.
bool is_checking();

// Keeps a code object as a file, under the name that places in it have; without checks only one with source lines.
void keep_object(const gpu::code_object * code, std::span<const std::byte> elf);

// Writes down a finding at once, in the folder of the objects, as a line of JSON in PID.findings: what is there without
// a report belongs to a process that ended otherwise. begin_notes: with nothing in it yet.
void begin_notes();
void note(const gpu::finding & what);
void forget_notes();

// The callers of the runtime, innermost first; empty when nothing is looked for. `call`, if given: what they called.
std::vector<void *> callers(std::string * call = nullptr);

// Where a kernel was stopped, as a JSON object; null where no wave of it was.
std::string stopped_as_json(const gpu::kernel_fault * stopped);

// A list in JSON.
std::string findings_as_json(const std::vector<gpu::finding> & findings);

} // namespace patchkit
