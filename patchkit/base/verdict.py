"""Verdicts of gates and of speed comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Verdict = Literal["passed", "passed (emulated)", "passed (modelled)", "failed", "not run"]

EMULATED: Verdict = "passed (emulated)"
"""A device gate passed on the emulated GPU: the same code was executed, but not on hardware."""
MODELLED: Verdict = "passed (modelled)"
"""A speed gate passed by the timing model, without a measurement."""
OFF_HARDWARE: frozenset[Verdict] = frozenset({EMULATED, MODELLED})
PASSED: frozenset[Verdict] = frozenset({"passed", *OFF_HARDWARE})
MARKS: Mapping[str, str] = {
    "passed": "ok",
    EMULATED: "emu ok",
    MODELLED: "mod ok",
    "failed": "FAILED",
    "not run": "-",
}
"""The word at the beginning of a gate's line in text reports."""

SpeedVerdict = Literal["faster", "same", "slower", "unclear"]
"""One build's speed compared with another's, by measured rounds or by modelled times."""
