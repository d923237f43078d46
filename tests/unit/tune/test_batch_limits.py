"""Batch limits of the vector kernel by modelled time: changed source, proposal, and output."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.cli.app import main
from patchkit.tune.batch import BatchReport, TimedColumns, TypeLimit, always_matrix, write_limits

ROOT = Path(__file__).resolve().parents[3]
SOURCE = b"""bool ggml_cuda_should_use_mmvq(enum ggml_type type, int cc, int64_t ne11) {
    if (cc == 1) {
        return false;
    }
    return ne11 <= 8;
}
"""


def _type(name: str, ratios: dict[int, float], profile: int | None = None) -> TypeLimit:
    timed = tuple(
        TimedColumns(columns=columns, vector_us=(100 * ratio, 10 * ratio), matrix_us=(100.0, 10.0))
        for columns, ratio in ratios.items()
    )
    return TypeLimit(type=name, shapes=((4096, 4096), (512, 2048)), timed=timed, profile=profile)


def _report(*types: TypeLimit, complete: bool = True) -> BatchReport:
    pin = load_lock(ROOT / "patches" / "upstream.lock").pin("b11549")
    return BatchReport(arch="gfx1151", pin=pin, error=0.2, types=types, complete=complete)


@pytest.mark.parametrize(
    ("ratios", "limit"),
    [
        ({2: 0.8, 4: 1.0, 6: 1.1, 8: 1.19}, 8),  # ahead, and within the error
        ({2: 0.8, 4: 1.0, 6: 1.3, 8: 1.6}, 5),
        ({2: 1.3, 8: 1.6}, 1),
        ({2: 0.2, 8: 0.4}, 8),
    ],
)
def test_a_limit_is_where_the_matrix_kernel_is_ahead_beyond_the_error(ratios, limit) -> None:
    one = _type("Q4_K", ratios)
    assert one.limit(0.2) == limit
    assert one.timed[0].ratio == pytest.approx(ratios[2])


def test_the_changed_choice_precedes_upstreams() -> None:
    text = always_matrix(SOURCE).decode()
    assert text.index("ne11 <= 1;") < text.index("cc == 1")
    assert text.replace("\n    return ggml_is_quantized(type) && ne11 <= 1;\n", "", 1) == SOURCE.decode()


@pytest.mark.parametrize("source", [b"int x;\n", SOURCE * 2])
def test_a_build_that_chooses_in_another_way_is_rejected(source) -> None:
    with refused("TUNE_KERNEL_UNTUNABLE"):
        always_matrix(source)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    shutil.copytree(ROOT / "arch_profiles", tmp_path / "arch_profiles")
    series = SeriesDir(root=tmp_path, origin="named")
    return Workspace(series=series, cache_root=tmp_path / "cache", reporter=NullReporter())


def test_limits_from_hardware_are_kept(workspace: Workspace) -> None:
    folder = workspace.series.profiles
    before = {row.type: row for row in load_profile(folder, "gfx1151").tuning.mmvq_batch}
    assert "Q4_K" in before
    assert "IQ2_S" not in before
    report = _report(
        _type("Q4_K", {2: 1.5}), _type("IQ2_S", {2: 1.0, 7: 1.5}), _type("IQ1_M", {2: 1.0, 8: 1.1})
    )
    assert write_limits(workspace, report, date(2026, 11, 23)) is True
    after = {row.type: row for row in load_profile(folder, "gfx1151").tuning.mmvq_batch}
    assert {name: row.max_batch for name, row in after.items() if name in before} == {
        name: row.max_batch for name, row in before.items()
    }
    assert set(after) - set(before) == {"IQ2_S"}  # IQ1_M stays at upstream's 8
    assert after["IQ2_S"].max_batch == 6
    assert after["IQ2_S"].source.startswith("modelled (patchkit tune of 2026-11-23, build 11549)")
    assert after["IQ2_S"].measured_on.startswith("modelled for gfx1151, no hardware")
    again = _report(_type("IQ2_S", {2: 1.0, 5: 1.5}))
    assert write_limits(workspace, again, date(2026, 11, 24)) is True  # a modelled row is no hardware's
    rows = load_profile(folder, "gfx1151").tuning.mmvq_batch
    assert [row.max_batch for row in rows if row.type == "IQ2_S"] == [4]


def test_a_run_over_some_types_writes_no_table(workspace: Workspace) -> None:
    with refused("TUNE_OPTIONS"):
        write_limits(workspace, _report(complete=False), date(2026, 11, 23))


@pytest.mark.parametrize("more", [("--near", "1"), ("--again",)])
def test_options_for_settings_are_rejected(more, capsys) -> None:
    assert main(["tune", "--arch", "gfx1151", "--kernel", "mmvq", "--upstream", "b11549", *more]) == 2
    assert "do not apply to mmvq" in capsys.readouterr().err


def test_the_report_has_the_ratios_of_each_type() -> None:
    document = fields_of(_report(_type("Q4_K", {2: 0.8, 6: 1.3}, profile=2)))
    (one,) = document["types"]  # type: ignore[misc]
    assert (one["limit"], one["profile"]) == (5, 2)
    assert [(each["columns"], round(each["ratio"], 3)) for each in one["columns"]] == [(2, 0.8), (6, 1.3)]
