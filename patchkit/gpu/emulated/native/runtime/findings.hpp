// Findings of the checks for the report, with the call stack of the launch and the code objects of the instructions.
//
//   PATCHKIT_EMULATOR_CHECK    comma-separated names of checks (PATCHKIT_CHECKS)
//   PATCHKIT_EMULATOR_OBJECTS  folder for code objects, to look up source lines
#pragma once

#include "../emulator/emulator.hpp"

#include <span>
#include <string>
#include <vector>

namespace patchkit {

gpu::checks read_checks();

// Whether checks run: then memory is laid out so that accesses outside of it, or to freed memory, are recognised.
bool is_checking();

// Saves a code object as a file, with the name used in places; without checks, only one with line tables.
void keep_object(const gpu::code_object * code, std::span<const std::byte> elf);

// Writes a finding immediately, as a JSON line in PID.findings in the folder of objects: without a report, this file
// shows that a process ended unexpectedly. begin_notes creates it empty.
void begin_notes();
void note(const gpu::finding & what);
void forget_notes();

// Return addresses of the runtime's caller, innermost first; empty if no checks run. `call`, if given, gets the name of
// the called function.
std::vector<void *> callers(std::string * call = nullptr);

// The same for reports of launches. If an interpreter named its own places (patchkit_called_from), the innermost of
// these instead: addresses that stand for them.
std::vector<void *> reported_callers();

// Where a kernel was stopped, as a JSON object; null if no wave was.
std::string stopped_as_json(const gpu::kernel_fault * stopped);

// As a JSON list.
std::string findings_as_json(const std::vector<gpu::finding> & findings);

} // namespace patchkit
