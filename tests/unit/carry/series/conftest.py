from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from patchkit.carry.series.wmma import Accumulator, WmmaParams, WmmaVariant


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
