// Checks of a running kernel: a step before each instruction that examines what it is about to do, and one after each
// memory instruction.
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

    // The hints of the accessed registers, or the waits.
    i64 at_hand(const facts & known) const override;

    bool tries(const facts & known) const override;
    bool follows_values() const override { return wanted.uninitialised; }

  private:
    checks wanted;
};

// Called when a wave calls this function.
void check_call(const instruction * i, wave & w, std::string_view callee);

// Called when no wave of the block can continue, because each waits at a barrier or has ended: before waves at barriers
// are released, and when all have ended.
void check_halted(block_checks & b, const std::vector<wave *> & waves, const checks & wanted);

} // namespace patchkit::gpu
