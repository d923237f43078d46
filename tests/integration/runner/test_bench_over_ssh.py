"""llama-bench on another machine: programs and model copied, rounds run there, the journal here."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.conditions import read_conditions
from patchkit.gpu.hardware.bench.measure import Arm, Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan

_RECORDED = Path(__file__).parents[2] / "unit" / "gpu" / "hardware" / "recorded"

# Stands for the program there: its own folder holds what it writes, and the model must have come along.
_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
[ "$LD_LIBRARY_PATH" = "$here" ] || exit 9
[ "$1" = --help ] && exec cat "$here/help.txt"
[ -s "$2" ] || exit 8
[ -e "$here/trouble" ] && . "$here/trouble"
exec cat "$here/rows.jsonl"
"""


@pytest.mark.extra_tools
def test_rounds_run_there_and_a_call_that_failed_is_made_again(server, tmp_path: Path) -> None:
    for name in ("base", "cand"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "llama-bench").write_text(_PROGRAM)
        (folder / "llama-bench").chmod(0o755)
        (folder / "help.txt").write_bytes((_RECORDED / "b6900-help.txt").read_bytes())
        (folder / "rows.jsonl").write_bytes((_RECORDED / "b6900-cpu.jsonl").read_bytes())
    (tmp_path / "cand" / "trouble").write_text("exit 7\n")
    (tmp_path / "m.gguf").write_bytes(b"model")
    runner = server.runner()
    setup = Setup(
        arms=tuple(
            Arm(label=label, folder=tmp_path / name, tree=name)
            for label, name in (("baseline", "base"), ("candidate", "cand"), ("again", "base"))
        ),
        model=tmp_path / "m.gguf",
        plan=BenchPlan(prompts=(64,), generated=(8,), depths=(0, 256)),
        runner=runner,
    )
    with open_bench(tmp_path / "kept", setup, reporter=NullReporter(), timeout_s=60.0) as bench:
        with pytest.raises(PatchkitError, match="candidate at depth 0, 256 failed with status 7"):
            bench.measure(1)
        done = len(bench.journal.entries)
        (there,) = server.root.rglob("trouble")
        there.unlink()
        (tmp_path / "cand" / "trouble").unlink()
        bench.measure(1)
        assert bench.measured == 3
        assert done < 3
        assert (bench.rounds(1).count, len(bench.rounds(1).tests)) == (1, 4)
        assert float(bench.conditions[0]["cpus"]) > 0
        argv = " ".join(bench.journal.entries[0].argv)
        assert "-p 64 -n 8 -d 0,256" in argv
        assert "-dev none -ngl 0 -r 3 -o jsonl" in argv
    with open_bench(tmp_path / "kept", setup, reporter=NullReporter(), timeout_s=60.0) as bench:
        bench.measure(1)
        assert (bench.kept, bench.measured) == (3, 0)
    assert "load" in read_conditions(runner, "again")
