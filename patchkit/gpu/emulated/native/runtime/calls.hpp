// Calls of the program that return an error: the reason, and whether the program checks it.
//
// An error counts as checked if the call's result is used (used_results.hpp), or if the program queries the thread's
// last error before another call replaces it, as before ROCm 7. Results that mean "not ready", and errors for what this
// runtime does not support, are not errors of the program.
#pragma once

#include "../emulator/emulator.hpp"

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace patchkit {

struct history;

// Returns `error`, and records the reason for the current call of this thread.
hipError_t refused(hipError_t error, const std::string & why);

// The same for memory that was already freed. It is reported even if the program checks the error, because on a GPU the
// memory may belong to another allocation by then.
hipError_t refused_again(hipError_t error, const std::string & why, const history * of);

// A launch: reported on stderr immediately, and in the report.
hipError_t refused_launch(hipError_t error, const std::string & kernel, const std::string & why);

// ---- For calls that return.

void note_answer(hipError_t error);

// The program queries the last error, or the name of an error.
void note_asked();
void note_asked_for(hipError_t error);

// ---- Leaks.

// Where memory was allocated and freed; never deleted, and only kept if checks run.
struct history {
    std::string obtained_by, freed_by; // names of the calls
    std::vector<void *> obtained_at, freed_at;
    bool is_left = false; // not a leak
};

// For the current call of this thread; null if no checks run.
history * make_history();
void note_freed(history * of);

bool looks_for_leaks();

// ---- For the report.

// All unchecked errors so far; with `nothing_ran` also the reasons why launches were rejected, checked or not.
std::vector<gpu::finding> findings_of_calls(bool nothing_ran);
std::vector<gpu::finding> findings_of_leaks();

// As a JSON list.
std::string refused_as_json();

} // namespace patchkit
