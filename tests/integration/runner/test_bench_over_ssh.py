"""The bench gate on another machine: programs and model copied, rounds run there, evidence here."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.conditions import read_conditions
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.run import BenchSetup, open_session

_RECORDED = Path(__file__).parents[2] / "unit" / "gpu" / "hardware" / "recorded"

# Stands for the program there: its own folder holds what it writes, and the model must have come along.
_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
[ "$LD_LIBRARY_PATH" = "$here" ] || exit 9
[ "$1" = --help ] && exec cat "$here/help.txt"
[ -s "$2" ] || exit 8
exec cat "$here/rows.jsonl"
"""


@pytest.mark.extra_tools
def test_rounds_run_there_and_their_outputs_come_here(server, tmp_path: Path) -> None:
    for name in ("base", "cand"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "llama-bench").write_text(_PROGRAM)
        (folder / "llama-bench").chmod(0o755)
        (folder / "help.txt").write_bytes((_RECORDED / "b6900-help.txt").read_bytes())
        (folder / "rows.jsonl").write_bytes((_RECORDED / "b6900-cpu.jsonl").read_bytes())
    (tmp_path / "m.gguf").write_bytes(b"model")
    setup = BenchSetup(
        baseline=tmp_path / "base",
        candidate=tmp_path / "cand",
        model=tmp_path / "m.gguf",
        plan=BenchPlan(),
        baseline_tree="b" * 40,
        candidate_tree="c" * 40,
    )
    runner = server.runner()
    with open_session(setup, tmp_path / "evidence", runner=runner, reporter=NullReporter()) as session:
        session.add_round()
        session.close()
    assert (session.rounds.count, len(session.rounds.tests)) == (1, 4)
    assert float(session.conditions[0]["cpus"]) > 0
    kept = sorted(path.name for path in session.folder.iterdir())
    assert kept == ["000-again.jsonl", "000-baseline.jsonl", "000-candidate.jsonl", "finished.json"]
    assert "load" in read_conditions(runner, "again")
