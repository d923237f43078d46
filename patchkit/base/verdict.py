"""What became of a check, in the words that reports use: a verdict says on what it rests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Verdict = Literal["passed", "passed (emulated)", "passed (modelled)", "failed", "not run"]

EMULATED: Verdict = "passed (emulated)"
"""A gate for a device passed on the emulated GPU: the code that would run was executed, on no hardware."""
MODELLED: Verdict = "passed (modelled)"
"""A gate about time passed by the timing model: nothing was measured."""
OFF_HARDWARE: frozenset[Verdict] = frozenset({EMULATED, MODELLED})
PASSED: frozenset[Verdict] = frozenset({"passed", *OFF_HARDWARE})
MARKS: Mapping[str, str] = {
    "passed": "ok",
    EMULATED: "emu ok",
    MODELLED: "mod ok",
    "failed": "FAILED",
    "not run": "-",
}
"""What a line of text about a gate begins with."""
