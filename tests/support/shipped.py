"""What the lock of this project records, for tests that are about the shipped series."""

from __future__ import annotations

from pathlib import Path

from patchkit.carry.series.lock import Result, load_lock
from patchkit.carry.series.profile import load_profile

ROOT = Path(__file__).resolve().parents[2]
LOCK = load_lock(ROOT / "patches" / "upstream.lock")

SEED = ("--arch", "gfx1151", "--upstream", "b6900")
"""Names the candidate where the series began: most tests are about it, as it is the smallest to compile."""


def recorded_opt_in(arch: str, build: int) -> tuple[str, ...]:
    """The opt-in patches of the largest set that is recorded for one GPU at a build, sorted."""
    choices = load_profile(ROOT / "arch_profiles", arch).patches
    sets = [each.patches for each in LOCK.results if (each.build, each.archs) == (build, (arch,))]
    optional = {name for name, choice in choices.items() if choice.default == "opt-in"}
    return tuple(sorted(optional.intersection(max(sets, key=len))))


def recorded(arch: str, build: int) -> Result:
    """What is recorded for one GPU at a build without opt-in patches."""
    sets = [each for each in LOCK.results if (each.build, each.archs) == (build, (arch,))]
    return min(sets, key=lambda each: len(each.patches))
