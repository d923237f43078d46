"""Gains of the patches by model, as the README, the guide and docs/records/gains.md state them.

The speeds are modelled (docs/records/data/with-patches.json, written by where_the_time_is.py). What others
measured of upstream, and what we expect on hardware, is docs/records/data/gains.json, written by hand.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "records" / "data"
_TIMING = ROOT / "arch_profiles" / "timing" / "gfx1151.toml"
_MOE = ("moe", "gpt-oss")  # parts of the names of GGUF files
SIDES = ("default", "optional")
PROMPT, TEXT = "pp512 @ d0", "tg128 @ d0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A gain over upstream as a fraction; ``error`` is that of its kind, nine of ten are within it."""

    value: float
    error: float | None

    def __str__(self) -> str:
        """As in ``+13 % (±4)``."""
        error = "" if self.error is None else f" (±{100 * self.error:.0f})"
        return f"{percent(self.value)}{error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model, its speeds by test and side in tokens per second, and what is known of hardware.

    ``measured`` are upstream's speeds by test, with their source. ``expected`` is the range of the gain in
    prefill of 512 tokens that we expect on hardware; None without an estimate.
    """

    name: str
    is_moe: bool
    is_in_chart: bool
    rates: Mapping[str, Mapping[str, float]]
    measured: Mapping[str, str]
    expected: tuple[float, float] | None

    def gain(self, test: str, side: str) -> Gain | None:
        """The modelled gain; None if that side was not modelled."""
        rates = self.rates.get(test, {})
        if side not in rates:
            return None
        ratio = rates[side] / rates["upstream"]
        error = _error(test, side, has_experts=self.is_moe)
        return Gain(value=ratio - 1, error=None if error is None else error * ratio)

    @property
    def range(self) -> str:
        """The expected range, as in ``+55 to +75 %``."""
        if self.expected is None:
            return "no estimate"
        return f"+{100 * self.expected[0]:.0f} to {percent(self.expected[1])}"


def percent(value: float) -> str:
    """A fraction as a gain in percent; 0 has no sign."""
    number = f"{100 * value:+.0f}"
    return "0" if number in ("+0", "-0") else f"{number} %"


def models() -> list[Model]:
    """All models, in the order of the data."""
    modelled = json.loads((DATA / "with-patches.json").read_text("utf-8"))["models"]
    known: Sequence[Mapping[str, Any]] = json.loads((DATA / "gains.json").read_text("utf-8"))["models"]
    return [
        Model(
            name=one["name"],
            is_moe=is_moe(one["record"]),
            is_in_chart=one.get("is_in_chart", False),
            rates={
                test: {side: found["rate"] for side, found in sides.items()}
                for test, sides in modelled[one["record"]].items()
            },
            measured=one.get("measured", {}),
            expected=tuple(one["expected"]) if "expected" in one else None,
        )
        for one in known
    ]


def is_moe(record: str) -> bool:
    """Whether a model is a mixture of experts, by its name in the record."""
    return any(word in record for word in _MOE)


def rows_of_all(tests: Sequence[str]) -> Iterator[list[object]]:
    """A row for each model and test: measured and modelled speed of upstream, and the gain of each side."""
    for model in models():
        for test in tests:
            if test not in model.rates:
                continue
            gains = [model.gain(test, side) for side in SIDES]
            yield [
                model.name,
                test,
                model.measured.get(test, ""),
                f"{model.rates[test]['upstream']:.0f}",
                *("" if gain is None else gain for gain in gains),
                model.range if test == PROMPT else "",
            ]


def rows_of_chart() -> Iterator[list[object]]:
    """A row for each model of the chart: prefill with each set of patches, and decode with all."""
    for model in models():
        if model.is_in_chart:
            gains = [model.gain(PROMPT, side) for side in SIDES]
            yield [model.name, *gains, model.range, model.gain(TEXT, "optional")]


def _error(test: str, side: str, *, has_experts: bool) -> float | None:
    """The error of a ratio of two sides, as a fraction; None where nothing of the kind was measured."""
    kinds = {one["kind"]: one for one in tomllib.loads(_TIMING.read_text("utf-8"))["error"]}
    is_prompt = test.startswith("pp")
    if is_prompt and side == "default":
        return float(kinds["mmq"]["ratio_p90"])
    if has_experts or not (test == PROMPT or " x8 " in test):
        return None
    return math.hypot(kinds["mmq"]["p90"], kinds["gemm" if is_prompt else "mmvq"]["p90"])
