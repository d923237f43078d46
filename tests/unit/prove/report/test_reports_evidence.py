"""Evidence is what the report says, and only what belongs to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from evidence_files import files_of

from patchkit.base.document import EvidenceContradicts, EvidenceMalformed, EvidenceUnreadable
from patchkit.base.report.blocks import Table
from patchkit.prove.gates.base import Evidence, GateResult
from patchkit.prove.gates.record import ProblemPlace
from patchkit.prove.report.evidence import load_evidence, parse_evidence
from patchkit.prove.report.model import Run


def test_the_whole_ladder_is_read(whole: Run) -> None:
    assert whole.headline == "Nothing failed: of 12 gates 7 passed, 0 failed, 5 did not run"
    assert [gate.name for gate in whole.gates if gate.evidence] == [
        *("anchors", "isolation", "compile", "resources", "launch"),
        *("backend-ops@cpu", "logits@cpu", "bench@cpu"),
    ]
    assert {file.name for file in whole.files} == {
        "report.json",
        *(f"{gate.name}.json" for gate in whole.gates if gate.evidence),
    }


def test_everything_that_was_not_proven_is_listed(whole: Run) -> None:
    told = list(whole.open)
    assert ("bench", "not run: needs the GPU") in told
    assert (
        "isolation",
        "CUDA and MUSA are read by clang with empty vendor headers, not by nvcc and mcc",
    ) in told
    assert any(gate == "numerics" and "of another run" in what for gate, what in told)


def test_a_gate_of_an_earlier_version_is_read_without_what_only_it_knew(
    whole_files: dict[str, bytes],
) -> None:
    report = json.loads(whole_files["report.json"])
    (row,) = (row for row in report["gates"] if row["gate"] == "numerics")
    kept = json.loads(whole_files["numerics.json"])
    row |= {key: kept[key] for key in ("verdict", "summary")} | {"evidence": "e/numerics.json"}
    run = parse_evidence({**whole_files, "report.json": json.dumps(report).encode()}, "e")
    (gate,) = (gate for gate in run.gates if gate.name == "numerics")
    assert (gate.verdict, gate.summary, gate.blocks) == (kept["verdict"], kept["summary"], ())


def test_each_known_gate_gives_tables(whole: Run) -> None:
    names = {gate.title: [table.name for table in gate.tables] for gate in whole.report().gates}
    assert names["resources"] == ["kernels", "kernels-unchanged"]
    assert names["launch"] == ["kernels-by-phase-gfx1151", "samples-gfx1151", "models-gfx1151", "other-gpus"]
    assert names["bench@cpu"] == ["bench"]
    assert names["bench"] == []
    assert all(names[gate.name] for gate in whole.gates if gate.evidence)


def test_rows_have_a_cell_per_column(whole: Run) -> None:
    tables = [table for gate in whole.report().gates for table in gate.tables]
    assert len(tables) > 12
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows), table.name


def test_kernels_are_ordered_by_what_matters(whole: Run) -> None:
    (gate,) = (gate for gate in whole.gates if gate.name == "resources")
    kernels, _ = (block for block in gate.blocks if isinstance(block, Table))
    states = [row.cells[0] for row in kernels.rows]
    assert states == sorted(states, key=["better", "new"].index)


def test_provenance_names_tools_machine_and_time(whole: Run) -> None:
    told = dict(whole.provenance)
    assert told["candidate's tree"] == "5bd24ab7fe6661af4cb8137b8c1993ce8a55d9e6"
    assert told["bench@cpu: run at"].startswith("2026-11-21T")
    assert "cpu AMD EPYC" in told["logits@cpu: machine"]


def test_a_failed_run_says_so_and_keeps_its_problems(failing: Run) -> None:
    assert failing.headline == "Failed: of 3 gates 1 passed, 1 failed, 1 did not run"
    leak, nowhere = (one for gate in failing.gates for one in gate.problems)
    assert [(str(place.shown), place.side, place.label) for place in leak.places] == [
        ("ggml/src/ggml-cuda/fattn.cu:42:7", "upstream", "wmma-tile-params"),
        ("patches/0001-p/patch.toml:9", "series", "the edit"),
    ]
    assert nowhere.places == ()


def test_a_run_that_ended_in_the_middle_is_no_pass(stopped: Run) -> None:
    assert stopped.headline == "Incomplete, ended by TOOLCHAIN: of 3 gates 1 passed, 0 failed, 2 did not run"
    assert [gate.name for gate in stopped.gates if gate.has_broken] == ["isolation"]
    assert stopped.strays == ()


def test_a_finding_keeps_its_fingerprint_when_lines_move(failing_files: dict[str, bytes]) -> None:
    moved = {name: data.replace(b'"line": 42', b'"line": 50') for name, data in failing_files.items()}
    runs = [parse_evidence(each, "e") for each in (failing_files, moved)]
    first, second = (next(one for gate in run.gates for one in gate.problems) for run in runs)
    assert first.places != second.places
    assert first.fingerprint == second.fingerprint


def test_the_file_of_a_gate_must_be_of_the_same_run(whole_but: Callable[..., Run]) -> None:
    with pytest.raises(EvidenceContradicts) as caught:
        whole_but("anchors.json", lambda file: file.update(summary="13 edits"))
    assert caught.value.where[0].path == "e/anchors.json"


class Seen(Evidence):
    x: int


def test_a_gate_that_is_unknown_is_shown_without_tables() -> None:
    result = GateResult(gate="new-one", verdict="passed", summary="fine", evidence=Seen(x=1))
    (gate,) = parse_evidence(files_of([result]), "e").gates
    assert gate.evidence is not None
    assert gate.blocks == ()


def test_a_broken_detail_names_file_and_path(whole_but: Callable[..., Run]) -> None:
    with pytest.raises(EvidenceMalformed) as caught:
        whole_but("resources.json", lambda file: file["evidence"]["rows"][3]["after"].update(vgprs="many"))
    assert caught.value.message.startswith(
        "e/resources.json: $.evidence.rows[3].after.vgprs is not an integer"
    )


def test_too_large_a_file_is_not_read(tmp_path: Path, whole_files: dict[str, bytes]) -> None:
    (tmp_path / "report.json").write_bytes(whole_files["report.json"])
    with (tmp_path / "anchors.json").open("wb") as stream:
        stream.truncate(33 * 1024 * 1024)
    with pytest.raises(EvidenceUnreadable):
        load_evidence(tmp_path)


@pytest.mark.parametrize(
    ("path", "file", "side"),
    [
        ("ggml/src/x.cu", "ggml/src/x.cu", "upstream"),
        ("$PATCHKIT_SERIES/patches/a/patch.toml", "patches/a/patch.toml", "series"),
        ("../x.cu", "../x.cu", "other"),
        ("$PATCHKIT_CACHE/evidence", "$PATCHKIT_CACHE/evidence", "other"),
        ("commit 0123456789ab", "commit 0123456789ab", "other"),
        ("/etc/passwd", "/etc/passwd", "other"),
        ("", "", "other"),
    ],
)
def test_a_place_says_whose_file_it_is(path: str, file: str, side: str) -> None:
    place = ProblemPlace(path=path, line=4)
    assert (str(place.shown), place.side) == (f"{file}:4", side)
