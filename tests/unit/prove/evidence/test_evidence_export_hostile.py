"""Folders that ``evidence export --from`` is given: one of ``bench run``, and those that no command wrote."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from measured_files import machine
from refusing import refused

from patchkit.base.evidence import MeasuredMachine
from patchkit.prove.evidence.export import load_measurement


def _nobody(arch: str, backend: str) -> MeasuredMachine:
    raise AssertionError(f"nothing to ask of {arch} {backend}")


def _journal(*bodies: str) -> str:
    return "".join(f"{body}\t{hashlib.sha256(body.encode()).hexdigest()[:16]}\n" for body in bodies)


RECORDED = Path(__file__).parents[3] / "unit" / "gpu" / "hardware" / "recorded" / "b6900-cpu.jsonl"
_DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("session.json", '{"arms": ' + _DEEP),
        ("session.json", '{"arms": {"a": {"tree": "t"}}, "archs": 5}'),
        ("session.json", '{"arms": {"a": 1}}'),
        ("journal.jsonl", _journal(_DEEP)),
        ("journal.jsonl", _journal("[]")),
        ("journal.jsonl", _journal(json.dumps({"kind": "begun", "setup": 5}))),
    ],
    ids=[
        "session, deep",
        "session, GPUs",
        "session, arms",
        "journal, deep",
        "journal, list",
        "journal, setup",
    ],
)
def test_json_of_another_form_is_refused_and_is_no_bug_of_patchkit(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with refused("EVIDENCE_NOT_EXPORTED") as error:
        load_measurement(tmp_path, _nobody)
    assert str(tmp_path) in str(error.value.where)
    assert "name the folder" in (error.value.hint or "")


@pytest.mark.parametrize("name", ["session.json", "runs/001-d0-a.jsonl"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "machine.json").write_text(json.dumps(machine(0)))
    (tmp_path / "session.json").write_text('{"arms": {"a": {"tree": "t"}}}')
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with refused("EVIDENCE_NOT_EXPORTED"):
        load_measurement(tmp_path, _nobody)


def test_what_llama_bench_wrote_is_taken(tmp_path: Path) -> None:
    """Rows of build 6900, in the folder that ``bench run`` makes of them."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "machine.json").write_text(json.dumps(machine(0)))
    arms = {"baseline": {"tree": "a" * 40}, "candidate": {"tree": "b" * 40}}
    (tmp_path / "session.json").write_text(json.dumps({"arms": arms, "archs": ["gfx1151"]}))
    for label in arms:
        (tmp_path / "runs" / f"000-d0-{label}.jsonl").write_text(RECORDED.read_text("utf-8"))
    archs, found = load_measurement(tmp_path, _nobody)
    assert archs == ("gfx1151",)
    assert [test.name for test in found.tests] == ["tg8@d0", "tg8@d256", "pp64@d0", "pp64@d256"]
    assert {tuple(sorted(one)) for test in found.tests for one in test.rounds} == {("baseline", "candidate")}
    test = found.tests[0]
    assert (test.model, test.model_bytes, test.layers) == ("llama ?B F16 (guessed)", 1971200, 0)
    assert (test.batch, test.micro_batch, test.threads, test.load) == (256, 64, 2, "none")
