"""Gate speed beside evidence files: what machines measured of a patch, and when the model is doubted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measured_files import measured, of_patch

from patchkit.base.evidence import EvidenceFile
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.measured import measured_of
from patchkit.carry.series.promises import SpeedShape
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.speed import (
    JudgedShape,
    SpeedEvidence,
    compare_with_measured,
    kept_doubts,
    shape_text,
)

PROMPT = SpeedShape(type="q4_0", rows=4096, columns=4096, tokens=512)
TEXT = SpeedShape(type="q4_0", rows=4096, columns=4096, tokens=1)
ATTENTION = SpeedShape(head_size=64, heads=32, kv_heads=8, kv=4096, tokens=512)


@pytest.fixture(scope="module")
def file() -> EvidenceFile:
    """The first patch gains ten per cent in prompts and nothing in text."""
    return measured()


def judged(shape: SpeedShape, low: float, high: float, patch: str = "first") -> JudgedShape:
    change = (low + high) / 2
    return JudgedShape(
        patch=patch,
        arch="gfx1151",
        shape=shape_text(shape),
        baseline_us=100.0,
        candidate_us=100.0 / (1 + change),
        kernels=("a", "b"),
        change=change,
        interval=(low, high),
        judgement="slower" if high < 0 else "faster" if low > 0 else "same",
        why="nine of ten",
        hardware=None,
    )


def beside(file: EvidenceFile, shape: SpeedShape, low: float, high: float, **more: str) -> JudgedShape:
    return compare_with_measured(judged(shape, low, high, **more), shape, list(measured_of(file)))


def test_a_model_that_gains_less_than_its_operation_is_no_doubt(file: EvidenceFile) -> None:
    one = beside(file, PROMPT, 0.25, 0.35)
    assert one.doubt is None
    assert any("pp512@d0 +" in told for told in one.measured)


def test_a_model_that_gains_more_than_its_operation_is(file: EvidenceFile) -> None:
    one = beside(file, PROMPT, 0.01, 0.04)
    assert one.doubt is not None
    assert "by machine 00000000" in one.doubt


def test_a_modelled_loss_that_machines_saw_gain_fails_nothing(file: EvidenceFile) -> None:
    one = beside(file, PROMPT, -0.2, -0.1)
    assert one.judgement == "slower"
    assert not one.is_lost
    assert judged(PROMPT, -0.2, -0.1).is_lost


def test_a_modelled_gain_that_machines_did_not_see_is_no_doubt_by_itself(file: EvidenceFile) -> None:
    """Text of the second patch is the same: the operation may be a small part of it."""
    one = beside(file, TEXT, 0.1, 0.2, patch="second")
    assert one.doubt is None
    assert one.measured


@pytest.mark.parametrize("shape", [ATTENTION], ids=["head size"])
def test_tests_of_another_kind_say_nothing(file: EvidenceFile, shape: SpeedShape) -> None:
    assert beside(file, shape, -0.2, -0.1).measured == ()


def test_another_patch_says_nothing(file: EvidenceFile) -> None:
    assert beside(file, PROMPT, -0.2, -0.1, patch="third").measured == ()


def test_show_has_the_doubt_from_what_the_gate_left(
    file: EvidenceFile, tmp_path: Path, checkout: Path
) -> None:
    """Of a shipped patch, in the place of the first."""
    known = load_lock(checkout / "patches" / "upstream.lock")
    patch = load_series(checkout / "patches").patch("mmq-tile-config")
    assert patch is not None
    assert patch.speed is not None
    there = of_patch(file, patch.id, known)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "patches").symlink_to(checkout / "patches")
    (tmp_path / "evidence" / there.name).write_bytes(there.text)
    series = SeriesDir(root=tmp_path, origin="named")
    shape = next(each for each in patch.speed.shapes if each.tokens > 1 and each.head_size is None)
    result = next(each for each in known.results if patch.id in each.patches)
    evidence = SpeedEvidence(shapes=(judged(shape, -0.2, -0.1, patch=patch.id),), errors=())
    gate = GateResult(gate="speed", verdict="failed", summary="s", evidence=evidence)
    cache = tmp_path / "cache"
    (cache / "evidence" / result.tree).mkdir(parents=True)
    (cache / "evidence" / result.tree / "speed.json").write_text(json.dumps(fields_of(gate)))
    (doubt,) = kept_doubts(patch, series, known, cache)
    assert doubt.startswith(f"{shape_text(shape)} on gfx1151: modelled -15.0 %")
    assert "measured outside of the model's error" in doubt
    assert kept_doubts(patch, series, known, tmp_path / "empty") == ()
