"""The words for results: what became of a check, and how one speed compares with another."""

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

SpeedVerdict = Literal["faster", "same", "slower", "unclear"]
"""How one build's speed compares with another's: by measured rounds, or by modelled times."""
