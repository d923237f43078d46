// Calls of the program that answer with an error: why they do, and whether the program looks at it.
//
// A call's error is looked at when its result is used (used_results.hpp), or when the program asks for the last error
// of the thread before another call takes its place, as it does before ROCm 7. Answers that say what is not done yet,
// and those by which this runtime refuses what it lacks, are no errors of a program.
#pragma once

#include "../emulator/emulator.hpp"

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace patchkit {

struct history;

// Returns `error`, and keeps for the call that this thread is in why it is one.
hipError_t refused(hipError_t error, const std::string & why);

// The same for memory that is to be freed and was freed already, which is told whether the program looks at it or not:
// on a GPU it may be somebody else's by now.
hipError_t refused_again(hipError_t error, const std::string & why, const history * of);

// A launch: told on stderr at once, and in the report.
hipError_t refused_launch(hipError_t error, const std::string & kernel, const std::string & why);

// ---- For answers.

void note_answer(hipError_t error);

// The program asks for the last error, or for what an error is called.
void note_asked();
void note_asked_for(hipError_t error);

// ---- Memory that nobody frees.

// Where memory was obtained and given back; kept for good, and only where something is looked for.
struct history {
    std::string obtained_by, freed_by; // the calls
    std::vector<void *> obtained_at, freed_at;
    bool is_left = false; // it need not be freed any more
};

// Of the call that this thread is in; null when nothing is looked for.
history * make_history();
void note_freed(history * of);

bool looks_for_leaks();

// ---- For the report.

// Everything that was not looked at until now; with `nothing_ran` what refused the launches, looked at or not.
std::vector<gpu::finding> findings_of_calls(bool nothing_ran);
std::vector<gpu::finding> findings_of_leaks();

// A list in JSON.
std::string refused_as_json();

} // namespace patchkit
