"""Folders that ``evidence export --from`` is given, and that no command of patchkit wrote."""

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
