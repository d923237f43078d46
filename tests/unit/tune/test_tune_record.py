"""The record that is shipped with a profile: read back as written, and invalid records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest
from refusing import refused
from strix_halo import LOOP

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.gpu.modelled.machine import ModelError
from patchkit.toolchain.tree import files_digest
from patchkit.tune.cost import Judged, Modelled
from patchkit.tune.family import Candidate
from patchkit.tune.outcome import Failure, Figures
from patchkit.tune.record import (
    Exclusion,
    Record,
    RecordedHeaders,
    load_record,
    merge,
    parse_record,
    record_path,
    render_record,
    same_figures,
    write_record,
)
from patchkit.tune.report import Basis, TuneReport, profile_rows
from patchkit.tune.run import write_table
from patchkit.tune.search import Verdict
from patchkit.tune.wmma import NO_MODEL_RUNS_IT

FIGURES = Figures(
    vgprs=200,
    spills=3,
    sgpr_spills=1,
    scratch_bytes=12,
    lds_bytes=16000,
    waves=7,
    resident=6,
    threads=128,
    loop=LOOP,
    latency=None,
    seconds=0.0,
)
FAILURE = Failure(code="COMPILE_FAILED", message='a "quoted" word')
RECORD = Record(
    arch="gfx1151",
    kernel="wmma",
    build=6900,
    made="2026-11-21",
    compiler="clang 22.1.8",
    sources="00",
    like=None,
    headers=(RecordedHeaders(name="stand-in", sha256="11"), RecordedHeaders(name="2.2.1", sha256="22")),
    excluded=(Exclusion(variant="v", setting=(1, 2), why="because"),),
    candidates={"v": ((256, 4), (128, 8))},
    units={"b.cu": (FIGURES, FAILURE), "a.cu": (FIGURES, replace(FIGURES, latency=7))},
)


def test_a_record_is_read_back_as_it_was_written(tmp_path) -> None:
    assert load_record(tmp_path, "gfx1151", "wmma", 6900) is None
    assert write_record(tmp_path, RECORD)
    assert load_record(tmp_path, "gfx1151", "wmma", 6900) == RECORD
    assert not write_record(tmp_path, RECORD)
    assert write_record(tmp_path, replace(RECORD, made="2027-01-01"))
    assert [each.name for each in (tmp_path / "tuned").iterdir()] == ["gfx1151-wmma-b6900.json"]


def test_a_record_with_the_earlier_name_of_exclusions_is_read() -> None:
    old = render_record(RECORD).replace(b'"excluded"', b'"left_out"')
    assert parse_record(old, "old.json") == RECORD


def test_the_bytes_do_not_depend_on_the_order_of_work() -> None:
    turned = replace(RECORD, units=dict(reversed(RECORD.units.items())))
    assert render_record(turned) == render_record(RECORD)
    timed = replace(RECORD, units={**RECORD.units, "b.cu": (replace(FIGURES, seconds=3.0), FAILURE)})
    assert render_record(timed) == render_record(RECORD)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"columns": ["vgprs"]},
        {"headers": [{"name": "one"}]},
        {"units": {"a.cu": [[1, 2]]}},
        {"units": {"a.cu": [[1], [2]]}},
        {"candidates": 3},
    ],
)
def test_an_invalid_record_is_an_error(tmp_path, change) -> None:
    data = json.dumps({**json.loads(render_record(RECORD)), **change}).encode()
    with refused("TUNE_RECORD_BAD") as caught:
        parse_record(data, "x.json")
    assert caught.value.where[0].path == "x.json"
    path = record_path(tmp_path, "gfx1151", "wmma", 6900)
    path.parent.mkdir()
    path.write_bytes(b"[")
    with refused("TUNE_RECORD_BAD"):
        load_record(tmp_path, "gfx1151", "wmma", 6900)


def test_available_headers_use_compiled_figures_and_others_recorded_ones() -> None:
    changed = replace(FIGURES, vgprs=99)
    merged = merge(RECORD, [0], {"a.cu": (changed,), "new.cu": (changed,)})
    assert merged["a.cu"] == (changed, replace(FIGURES, latency=7))
    assert merged["new.cu"][0] == changed
    unknown = merged["new.cu"][1]
    assert isinstance(unknown, Failure)
    assert unknown.code == "TUNE_RECORD_BAD"


def test_figures_are_the_same_whatever_time_they_took() -> None:
    assert same_figures(FIGURES, replace(FIGURES, seconds=9.0))
    assert not same_figures(FIGURES, replace(FIGURES, spills=4))
    assert same_figures(FAILURE, replace(FAILURE, message="other words"))
    assert not same_figures(FAILURE, FIGURES)


def test_a_digest_covers_names_and_bytes() -> None:
    digests = {files_digest(files) for files in ({"a": b"x"}, {"a": b"y"}, {"b": b"x"}, {})}
    assert len(digests) == 4


MODELLED = Modelled(
    us=(1.0,),
    ratio=0.5,
    error=ModelError(
        kind="wmma",
        head_sizes=(64,),
        points=3,
        median=0.17,
        p90=0.22,
        ratios=3,
        ratio_median=0.205,
        ratio_p90=0.23,
        source="a test",
    ),
)


def _verdict(best, variant="128-16-f32") -> Verdict:
    judged = [
        Judged(candidate=Candidate(variant, setting), figures=(FIGURES,), estimates=())
        for setting in ((256, 4), best)
    ]
    return Verdict(
        variant=variant,
        upstream=judged[0],
        best=judged[1],
        order=(judged[1],),
        others=(),
        front=(),
        margin="",
        kept=None,
        measured=False,
        reachable=7,
        failures=(),
    )


def _report(*verdicts: Verdict) -> TuneReport:
    return TuneReport(
        record=replace(RECORD, excluded=(), candidates={}, units={}, headers=RECORD.headers[:1]),
        parameters=("kq_stride", "nwarps"),
        mca=True,
        complete=True,
        verdicts=verdicts,
        current={},
        basis=None,
        own=None,
    )


def test_a_row_that_no_model_runs_says_so() -> None:
    report = _report(_verdict((128, 8)), _verdict((128, 8), "128-16-f16"))
    half, single = profile_rows(report, date(2027, 1, 1), {})
    assert (half["acc"], single["acc"]) == ("f16", "f32")
    assert half["source"] == f"{single['source']}; {NO_MODEL_RUNS_IT}"


def test_a_row_by_modelled_time_names_the_code_that_was_played_and_the_error() -> None:
    verdict = _verdict((128, 8), "64-16-f32")
    timed = replace(verdict, best=replace(verdict.best, modelled=MODELLED))
    (row,) = profile_rows(_report(timed), date(2027, 1, 1), {})
    assert row["measured_on"] == (
        "modelled for gfx1151 with stand-in, no hardware; "
        "median error 20.5% over 3 measured ratios of such kernels (wmma, head size 64)"
    )
    assert str(row["source"]).endswith("modelled as 2.00 times as fast as upstream's")
    known = replace(timed, measured=True)
    (row,) = profile_rows(_report(known), date(2027, 1, 1), {"64-16-f32": "gfx1151 by a user"})
    assert row["measured_on"] == "gfx1151 by a user"


def test_recorded_figures_never_write_another_table(tmp_path, checkout) -> None:
    workspace = Workspace(
        series=SeriesDir(root=checkout, origin="named"), cache_root=tmp_path, reporter=NullReporter()
    )
    report = replace(
        _report(_verdict((128, 8))),
        current={"128-16-f32": (128, 8)},
        basis=Basis(
            made="2026-11-21", compiler="c", here=("stand-in",), absent=("2.2.1",), units=3, differing=()
        ),
    )
    profile = checkout / "arch_profiles" / "gfx1151.toml"
    before = profile.read_bytes()
    assert not write_table(workspace, report, date(2027, 1, 1))
    with refused("TUNE_OPTIONS", match="depends on recorded figures") as caught:
        write_table(workspace, replace(report, current={"128-16-f32": (64, 4)}), date(2027, 1, 1))
    assert caught.value.why == "from the record: 2.2.1"
    verdict = _verdict((128, 8))
    timed = replace(report, verdicts=(replace(verdict, best=replace(verdict.best, modelled=MODELLED)),))
    with refused("TUNE_OPTIONS") as caught:
        write_table(workspace, replace(timed, current={"128-16-f32": (64, 4)}), date(2027, 1, 1))
    assert caught.value.why == "from the record: 2.2.1; by modelled time: 128-16-f32"
    assert profile.read_bytes() == before
