// Detects launches that repeat an earlier one.
//
// A kernel's result depends only on its code, its arguments and the memory that it accesses: clocks count instructions,
// registers and LDS start equal in each launch, and operations run one at a time. Benchmarks launch a kernel hundreds
// of times on the same input. The results of such a launch are known from an earlier one, so they are copied instead of
// running it.
//
// A launch that accesses host memory (pinned, registered, managed), memory from malloc in kernels, or an image always
// runs: during the launch, others may react to what it writes there.
#pragma once

#include "../emulator/emulator.hpp"
#include "allocations.hpp"

#include <functional>

namespace patchkit {

// Whether launches are compared: if enabled (PATCHKIT_EMULATOR_REPEATS), with all blocks computed in order, and without
// checks.
bool finds_repeats();

// Runs the launch with `run`, unless it repeats an earlier one; returns whether it does.
bool run_unless_known(const gpu::launch & launch, const std::function<void()> & run);

// A kernel accessed this allocation, or an image; thread-safe.
void note_touched(const allocation & one);
void note_image();

} // namespace patchkit
