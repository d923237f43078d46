// Launches that repeat an earlier one.
//
// What a kernel computes depends on its code, its arguments and the memory that it touches, and on nothing else here:
// clocks count instructions, registers and LDS begin alike in each launch, and one operation runs at a time. Programs
// that measure launch one kernel hundreds of times over the same input. What such a launch leaves is known from an
// earlier one, so it is put where that one put it, and nothing runs.
//
// A launch that touches memory of the host (pinned, registered, managed), what malloc in kernels gave, or an image runs
// each time: while it runs, others may answer to what it writes there.
#pragma once

#include "../emulator/emulator.hpp"
#include "allocations.hpp"

#include <functional>

namespace patchkit {

// Whether launches are compared: wanted (PATCHKIT_EMULATOR_REPEATS), and each is computed whole and in order, and not
// looked at.
bool finds_repeats();

// Runs the launch by `run`, unless it repeats an earlier one: then true.
bool run_unless_known(const gpu::launch & launch, const std::function<void()> & run);

// A kernel asked for this allocation, or for an image; for any thread.
void note_touched(const allocation & one);
void note_image();

} // namespace patchkit
