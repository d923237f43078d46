"""One good file, which is not made anew for each test."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from measured_files import lock, made, measured

from patchkit.base.evidence import EvidenceFile
from patchkit.carry.series.profile import load_profile
from patchkit.prove.evidence.check import Checker

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="session")
def good() -> EvidenceFile:
    """What machine 0 measured: the first patch gains in prompts, the second does nothing."""
    return measured()


@pytest.fixture(scope="session")
def checker() -> Checker:
    """With the shipped profile of gfx1151, ten days after the file."""
    profiles = {"gfx1151": load_profile(ROOT / "arch_profiles", "gfx1151")}
    return Checker(lock=lock(), profiles=profiles, today=dt.date(2026, 11, 30), place=made)
