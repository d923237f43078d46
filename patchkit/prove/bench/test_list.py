"""The tests of llama-bench to run, given as ``pp512,tg128,pp512@d16384``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import UsageError
from patchkit.gpu.hardware.bench.options import BenchPlan

DEFAULT = "pp512,tg128"
_WORD = re.compile(r"(pp|tg)([1-9][0-9]{0,6})(?:@d([0-9]{1,7}))?")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WantedTest:
    """Prompt tokens, or generated tokens, at a depth of ``depth`` tokens."""

    depth: int
    prompt: int
    generated: int

    @property
    def name(self) -> str:
        """The name as in ``--tests``."""
        what = f"pp{self.prompt}" if self.prompt else f"tg{self.generated}"
        return f"{what}@d{self.depth}" if self.depth else what


def parse_tests(text: str) -> tuple[WantedTest, ...]:
    """The tests, each once. Raises USAGE_VALUE."""
    found = []
    for word in text.split(","):
        match = _WORD.fullmatch(word.strip())
        if match is None:
            raise UsageError(
                f"'{word.strip()[:40]}' is not a test",
                code="USAGE_VALUE",
                why="pp512: a prompt of 512 tokens; tg128: generate 128; pp512@d4096: at a depth of 4096",
                hint=f"--tests {DEFAULT}",
            )
        tokens, depth = int(match[2]), int(match[3] or 0)
        is_prompt = match[1] == "pp"
        found.append(
            WantedTest(depth=depth, prompt=tokens if is_prompt else 0, generated=0 if is_prompt else tokens)
        )
    return tuple(sorted(set(found)))


def verifying_tests(tests: Sequence[WantedTest], drafts: int) -> tuple[WantedTest, ...]:
    """The batches that verify ``drafts`` of speculative decoding, at each depth where tokens are generated.

    Such a batch has one token more than there are drafts. The kernels are those of a prompt of that length,
    which llama-bench can run; it cannot draft. If no test generates tokens, the depths of all tests count.
    """
    depths = {test.depth for test in tests if test.generated} or {test.depth for test in tests}
    return tuple(WantedTest(depth=depth, prompt=drafts + 1, generated=0) for depth in sorted(depths))


def plans_of(tests: Sequence[WantedTest], plan: BenchPlan) -> tuple[BenchPlan, ...]:
    """One plan per depth, each for one call of llama-bench; ``plan`` has everything else."""
    plans = []
    for depth in sorted({test.depth for test in tests}):
        here = [test for test in tests if test.depth == depth]
        plans.append(
            replace(
                plan,
                prompts=tuple(test.prompt for test in here if test.prompt),
                generated=tuple(test.generated for test in here if test.generated),
                depths=(depth,),
            )
        )
    return tuple(plans)
