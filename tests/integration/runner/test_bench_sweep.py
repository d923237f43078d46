"""The sweep of ``bench run`` over three labels, here and on another machine, and calls that end in every way.

A small shell program stands for llama-bench on a GPU that is not here: it answers with recorded rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.folder import open_sweep
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.tables import Table
from patchkit.gpu.hardware.runner import LocalRunner, Runner
from patchkit.prove.bench.arms import BenchArm
from patchkit.prove.bench.sweep import Sweep
from patchkit.prove.build import Machine
from patchkit.toolchain.sides import BuiltSide

_RECORDED = Path(__file__).parents[2] / "unit" / "gpu" / "hardware" / "recorded"
_LABELS = ("HIP", "rocWMMA", "candidate")

_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
[ "$LD_LIBRARY_PATH" = "$here" ] || exit 9
[ "$1" = --help ] && exec cat "$here/help.txt"
[ -s "$2" ] || exit 8
told() { echo "  Device 0: AMD Radeon Graphics, ${gpu:-gfx1151} (0x1151), VMM: no" >&2; }
[ -e "$here/trouble" ] && . "$here/trouble"
told
while [ $# -gt 0 ]; do [ "$1" = -d ] && depth=$2; shift; done
exec sed "s/\\"n_depth\\": 0/\\"n_depth\\": $depth/" "$here/rows.jsonl"
"""


@pytest.fixture
def arms(tmp_path: Path) -> tuple[BenchArm, ...]:
    made = []
    rows = [json.loads(line) for line in (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8").splitlines()[:2]]
    for label in _LABELS:
        folder = tmp_path / "sides" / label
        folder.mkdir(parents=True)
        (folder / "llama-bench").write_text(_PROGRAM)
        (folder / "llama-bench").chmod(0o755)
        (folder / "help.txt").write_bytes((_RECORDED / "b6900-help.txt").read_bytes())
        answer = [row | {"backends": "ROCm", "devices": "ROCm0"} for row in rows]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answer))
        module = folder / "libggml-hip.so"
        side = BuiltSide(tree=label, backend="hip", folder=folder, module=module, cpu=module, parts=())
        made.append(BenchArm(label=label, what=f"the {label} build", side=side))
    return tuple(made)


@pytest.fixture
def sweep(arms: tuple[BenchArm, ...], tmp_path: Path) -> Callable[..., tuple[int, int, Table]]:
    """Measures two depths, or those that are named: how many calls now, how many before, and the table."""
    model = tmp_path / "m.gguf"
    model.write_bytes(b"model")

    def measure(
        runner: Runner | None = None, *, depths: tuple[int, ...] = (0, 4096), timeout_s: float = 60.0
    ) -> tuple[int, int, Table]:
        with open_sweep(tmp_path / "out", {"model": "m"}, fresh=False) as folder:
            one = Sweep(
                plan=BenchPlan(prompts=(64,), generated=(8,), depths=depths, repetitions=1),
                archs=("gfx1151",),
                arms=arms,
                machine=Machine(backend="hip"),
                model=model,
                timeout_s=timeout_s,
                folder=folder,
                runner=runner or LocalRunner(reporter=NullReporter()),
                reporter=NullReporter(),
            )
            measured, kept = one.measure()
            return measured, kept, one.table(one.gather())

    return measure


@pytest.mark.extra_tools
def test_three_labels_are_measured_on_another_machine(server, sweep, tmp_path: Path) -> None:
    runner = server.runner()
    measured, kept, table = sweep(runner, depths=(4096,))
    assert (measured, kept) == (3, 0)
    assert table.labels == _LABELS
    assert [line.test for line in table.lines] == ["pp64 @ d4096", "tg8 @ d4096"]
    assert all(line.change(0, 2) == 0 for line in table.lines)
    note = json.loads((tmp_path / "out" / "runs" / "000-d4096-HIP.json").read_text("utf-8"))
    assert " ".join(note["argv"][3:]).startswith("-p 64 -n 8 -d 4096")
    assert "-dev ROCm0 -ngl 99 -r 1 -o jsonl" in " ".join(note["argv"])
    assert note["conditions"]["cpus"]
    assert sweep(runner, depths=(4096,))[:2] == (0, 3)


@pytest.mark.extra_tools
def test_a_call_that_failed_there_is_made_again(server, sweep, arms, tmp_path: Path) -> None:
    trouble = arms[1].side.folder / "trouble"
    trouble.write_text("exit 7\n")
    with pytest.raises(PatchkitError, match="rocWMMA at depth 0 ended with status 7"):
        sweep(server.runner(), depths=(0,))
    (there,) = server.root.rglob("trouble")
    there.unlink()
    trouble.unlink()
    assert sweep(server.runner(), depths=(0,))[:2] == (2, 1)


@pytest.mark.parametrize(
    ("trouble", "code", "why"),
    [
        ("gpu=gfx1100", "DEVICE_MISSING", "gfx1100"),
        ("echo 'ggml_cuda_host_malloc: out of memory' >&2; exit 1", "BENCH_OUT_OF_MEMORY", "out of memory"),
        ("echo 'HIP error: hsa_status_error' >&2; exit 1", "BENCH_GPU_LOST", "hsa_status_error"),
        ("kill -SEGV $$", "BENCH_CRASHED", ""),
        ("exit 3", "BENCH_FAILED", ""),
        ("echo no json; exit 0", "BENCH_OUTPUT_UNREADABLE", "no JSON"),
        ("printf '{\"a\":'; exit 0", "BENCH_OUTPUT_UNREADABLE", ""),
        ("told; exit 0", "BENCH_TESTS_UNASKED", "[]"),
        (
            'told; cat "$here/rows.jsonl" "$here/rows.jsonl"; exit 0',
            "BENCH_TESTS_UNASKED",
            "(64, 0, 0), (64, 0, 0)",
        ),
        ('sed s/ROCm0/CPU/ "$here/rows.jsonl"; exit 0', "BENCH_DEVICE_WRONG", "another device"),
    ],
)
def test_a_call_that_does_not_end_well_is_told_kept_apart_and_made_again(
    sweep, arms, tmp_path: Path, trouble: str, code: str, why: str
) -> None:
    (arms[1].side.folder / "trouble").write_text(trouble + "\n")
    with pytest.raises(PatchkitError) as caught:
        sweep()
    assert caught.value.code == code
    assert why in str(caught.value.why)
    assert caught.value.hint
    assert (tmp_path / "out" / "runs" / "000-d0-rocWMMA.failed").exists()
    assert [path.name for path in (tmp_path / "out" / "runs").glob("*.jsonl")] == ["000-d0-HIP.jsonl"]
    (arms[1].side.folder / "trouble").unlink()
    assert sweep()[:2] == (5, 1)
    assert not list((tmp_path / "out" / "runs").glob("*.failed"))


def test_a_call_that_hangs_is_ended(sweep, arms, tmp_path: Path) -> None:
    (arms[0].side.folder / "trouble").write_text("exec sleep 1000\n")
    with pytest.raises(PatchkitError) as caught:
        sweep(timeout_s=1.0)
    assert caught.value.code == "BENCH_HUNG"
    assert "--timeout" in str(caught.value.hint)
    assert not list((tmp_path / "out" / "runs").glob("*.jsonl"))
