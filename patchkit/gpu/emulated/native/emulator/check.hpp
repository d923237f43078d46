// Checks of a kernel while it runs: a step before each instruction that knows what the instruction is about to do, and
// one behind each memory instruction.
#pragma once

#include "check_state.hpp"
#include "program.hpp"

#include <string_view>
#include <vector>

namespace patchkit::gpu {

class checker final : public observer {
  public:
    explicit checker(const checks & wanted) : wanted(wanted) {}

    handler before(const facts & known) const override;
    handler behind(const facts & known) const override;

    // The hints of the registers that are touched, or the waits.
    i64 at_hand(const facts & known) const override;

    bool tries(const facts & known) const override;
    bool follows_values() const override { return wanted.uninitialised; }

  private:
    checks wanted;
};

// The wave calls this function.
void check_call(const instruction * i, wave & w, std::string_view callee);

// No wave of the block goes on by itself: each waits at a barrier or has ended, as its state says. Asked before those at
// barriers go on, and once more when all have ended.
void check_halted(block_checks & b, const std::vector<wave *> & waves, const checks & wanted);

} // namespace patchkit::gpu
