"""The ladder on the CPU backend, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shipped import SEED

from patchkit.cli.app import main
from patchkit.prove.subject import Subject

pytestmark = [pytest.mark.cpu_build, pytest.mark.slow]


def test_gates_run_on_the_cpu_and_never_stand_for_the_gpu(
    cpu_subject: Subject, cpu_cache: Path, capsys
) -> None:
    argv = [
        "verify",
        *SEED,
        "--backend",
        "cpu",
        "--gate",
        "logits",
        "--json",
    ]
    code = main([*argv, "--cache-dir", str(cpu_cache)])
    out, err = capsys.readouterr()
    assert code == 0, err
    report = json.loads(out)
    rows = {gate["gate"]: gate for gate in report["gates"]}
    assert rows["logits@cpu"]["verdict"] == "passed"
    assert {rows[name]["verdict"] for name in ("backend-ops", "logits", "bench")} == {"not run"}
    evidence = json.loads(Path(rows["logits@cpu"]["evidence"]).read_text())
    assert evidence["evidence"]["device"] == "CPU"
    ran = [(scene["model"], scene["scene"]["name"]) for scene in evidence["evidence"]["scenes"]]
    assert len(ran) == len(set(ran)) >= 20
    assert {model.split("-")[1] for model, _ in ran} == {"d64", "d96", "d128", "d256"}
    folder = cpu_cache / "evidence" / cpu_subject.candidate_tree / "logits-cpu"
    records = [json.loads(path.read_text()) for path in folder.glob("llama-*/*.json")]
    assert len(records) >= 100  # five runs and comparisons of each scene
    assert {record["state"] for record in records} == {"ended"}
