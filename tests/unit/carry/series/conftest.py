from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from patchkit.base.occupancy import HardwareLimits, limits_of
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.wmma import Accumulator, WmmaParams, WmmaVariant

PROFILES = Path(__file__).resolve().parents[4] / "arch_profiles"


@dataclass(frozen=True)
class Compiled:
    """What the compiler said about one variant with one choice of parameters."""

    variant: WmmaVariant
    params: WmmaParams
    vgprs: int
    spilled: int
    lds: int
    waves: int


@pytest.fixture(scope="session")
def compiled() -> list[Compiled]:
    text = (Path(__file__).parent / "gfx1151_wmma.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [
        Compiled(
            WmmaVariant(int(row["head_size"]), int(row["ncols"]), cast("Accumulator", row["acc"])),
            WmmaParams(int(row["kq_stride"]), int(row["nwarps"])),
            int(row["vgprs"]),
            int(row["spilled"]),
            int(row["lds"]),
            int(row["waves"]),
        )
        for row in rows
    ]


@pytest.fixture(scope="session")
def limits() -> dict[str, HardwareLimits]:
    """Limits by gfx id, of the profiles that come with patchkit."""
    return {
        path.stem: limits_of(load_profile(PROFILES, path.stem)) for path in sorted(PROFILES.glob("gfx*.toml"))
    }
