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
from patchkit.gpu.hardware.bench.measure import Called
from patchkit.prove.evidence.export import load_measurement


def _nobody(arch: str, backend: str) -> MeasuredMachine:
    raise AssertionError(f"nothing to ask of {arch} {backend}")


def _journal(*bodies: str) -> str:
    return "".join(f"{body}\t{hashlib.sha256(body.encode()).hexdigest()[:16]}\n" for body in bodies)


RECORDED = Path(__file__).parents[3] / "unit" / "gpu" / "hardware" / "recorded" / "b6900-cpu.jsonl"
_DEEP = "[" * 200_000


def _begun(setup: object) -> str:
    return json.dumps({"kind": "begun", "setup": setup})


@pytest.mark.parametrize(
    "text",
    [
        "",
        _journal(_DEEP),
        _journal("[]"),
        _journal(_begun(5)),
        _journal(_begun({"arms": 1, "archs": 5})),
        _journal(_begun({"arms": {"a": 1}, "archs": [], "backend": "hip", "runner": "this machine"})),
        _journal(_begun({"models": 5})),
    ],
    ids=["empty", "deep", "list", "setup", "GPUs", "arms", "models"],
)
def test_a_journal_of_another_form_is_refused_and_is_no_bug_of_patchkit(text: str, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(text)
    with refused("EVIDENCE_NOT_EXPORTED") as error:
        load_measurement(tmp_path, _nobody)
    assert str(tmp_path) in str(error.value.where)
    assert "name a folder" in (error.value.hint or "")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal.jsonl")
    with refused("EVIDENCE_NOT_EXPORTED"):
        load_measurement(tmp_path, _nobody)


def test_what_llama_bench_wrote_is_taken(tmp_path: Path) -> None:
    """Rows of build 6900, in the folder that ``bench run`` makes of them."""
    (tmp_path / "machine.json").write_text(json.dumps(machine(0)))
    arms = {"baseline": {"tree": "a" * 40}, "candidate": {"tree": "b" * 40}}
    setup = {"arms": arms, "archs": ["gfx1151"], "backend": "hip", "runner": "this machine"}
    calls = [
        Called(
            number=number, round=0, label=label, depths=(0, 256), argv=(), rows=RECORDED.read_text("utf-8"),
            talk="", seconds=1.0, conditions={},
        ).model_dump_json()
        for number, label in enumerate(arms)
    ]  # fmt: skip
    (tmp_path / "journal.jsonl").write_text(_journal(_begun(setup), *calls))
    archs, found = load_measurement(tmp_path, _nobody)
    assert archs == ("gfx1151",)
    assert [test.name for test in found.tests] == ["tg8@d0", "tg8@d256", "pp64@d0", "pp64@d256"]
    assert {tuple(sorted(one)) for test in found.tests for one in test.rounds} == {("baseline", "candidate")}
    test = found.tests[0]
    assert (test.model, test.model_bytes, test.layers) == ("llama ?B F16 (guessed)", 1971200, 0)
    assert (test.batch, test.micro_batch, test.threads, test.load) == (256, 64, 2, "none")
