"""Builds measured by turns: what counts as kept, in which order, and whose a folder is.

A small shell program stands for llama-bench: it answers with recorded rows, at the depth that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.journal import check_place
from patchkit.gpu.hardware.bench.measure import Arm, Bench, Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import LocalRunner

_RECORDED = Path(__file__).parent / "recorded"
_LABELS = ("HIP", "rocWMMA", "candidate")
_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
[ "$LD_LIBRARY_PATH" = "$here" ] || exit 9
[ "$1" = --help ] && exec cat "$here/help.txt"
[ -s "$2" ] || exit 8
[ -e "$here/trouble" ] && . "$here/trouble"
echo talk >&2
while [ $# -gt 0 ]; do [ "$1" = -d ] && depth=$2; shift; done
exec sed "s/\\"n_depth\\": 0/\\"n_depth\\": $depth/" "$here/rows.jsonl"
"""
Open = Callable[..., AbstractContextManager[Bench]]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    rows = (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8").splitlines(keepends=True)[:2]
    for label in _LABELS:
        folder = tmp_path / "builds" / label
        folder.mkdir(parents=True)
        (folder / "llama-bench").write_text(_PROGRAM)
        (folder / "llama-bench").chmod(0o755)
        (folder / "help.txt").write_bytes((_RECORDED / "b6900-help.txt").read_bytes())
        (folder / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "m.gguf").write_bytes(b"model")
    return Setup(
        arms=tuple(
            Arm(label=label, folder=tmp_path / "builds" / label, tree=f"tree of {label}") for label in _LABELS
        ),
        model=tmp_path / "m.gguf",
        plan=BenchPlan(prompts=(64,), generated=(8,), depths=(0, 4096), repetitions=1),
        runner=LocalRunner(reporter=NullReporter()),
    )


@pytest.fixture
def bench(setup: Setup, tmp_path: Path) -> Open:
    def make(
        *, of: Setup = setup, fresh: bool = False, timeout_s: float = 60.0
    ) -> AbstractContextManager[Bench]:
        reporter = NullReporter()
        return open_bench(
            tmp_path / "out", of, reporter=reporter, timeout_s=timeout_s, is_apart=True, fresh=fresh
        )

    return make


def test_every_build_runs_once_a_round_and_every_call_is_kept(bench: Open) -> None:
    with bench() as one:
        one.measure(2)
        entries = one.journal.entries
        assert [entry.depths for entry in entries] == [((0,), (4096,))[at // 3 % 2] for at in range(12)]
        for at in range(0, 12, 3):
            assert {entry.label for entry in entries[at : at + 3]} == set(_LABELS)
        first, second = ([entry.label for entry in entries[at : at + 3]] for at in (0, 6))
        assert first == second[::-1]
        assert (entries[0].talk, entries[0].argv[-4:-2]) == ("talk\n", ("-r", "1"))
        assert one.rounds(2).count == 2
        assert len(one.rounds(2).tests) == 4
        lines = one.gather("HIP", 2).read_text("utf-8").splitlines()
        assert [json.loads(line)["n_depth"] for line in lines] == [0, 0, 4096, 4096] * 2


def test_the_next_one_goes_on_adds_to_it_and_fresh_begins_anew(bench: Open, setup: Setup) -> None:
    with bench() as one:
        one.measure(1)
        name = one.journal.name
        (one.journal.folder / "machine.json").write_text("mine")
    deeper = replace(setup, plan=replace(setup.plan, depths=(0, 4096, 8192)))
    with bench(of=deeper) as one:
        one.measure(1)
        assert (one.kept, one.measured, one.journal.name) == (6, 3, name)
        one.measure(2)
        assert one.measured == 12
    with bench(fresh=True) as one:
        assert (one.kept, one.journal.entries) == (0, [])
        assert one.journal.name != name
        assert not (one.journal.folder / "machine.json").exists()


def test_after_the_end_of_one_measurement_the_next_begins_anew(bench: Open) -> None:
    with bench() as one:
        one.measure(1)
        one.journal.finish()
    with bench() as one:
        assert one.kept == 0


def test_a_folder_of_another_setup_is_refused_with_what_differs(bench: Open, setup: Setup) -> None:
    with bench():
        pass
    other = replace(setup, plan=replace(setup.plan, batch=64))
    with refused("BENCH_FOLDER_UNUSABLE") as caught, bench(of=other):
        pass
    assert caught.value.why == "line 1: batch was 4096, is 64"
    assert "--fresh" in str(caught.value.hint)


def test_a_folder_with_something_else_in_it_is_left_alone(bench: Open, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine", "utf-8")
    with refused("BENCH_FOLDER_UNUSABLE"), bench(fresh=True):
        pass
    with refused("BENCH_FOLDER_UNUSABLE"):
        check_place(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_two_at_once_are_refused(bench: Open) -> None:
    with bench(), refused("BENCH_FOLDER_UNUSABLE"), bench(fresh=True):
        pass
    with bench():
        pass


def test_a_file_where_the_folder_should_be_is_a_refusal_of_the_disk(bench: Open, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", "utf-8")
    with refused("DISK_REFUSED"), bench():
        pass


@pytest.mark.parametrize(
    ("trouble", "code", "why"),
    [
        ("echo 'ggml_cuda_host_malloc: out of memory' >&2; exit 1", "BENCH_OUT_OF_MEMORY", "out of memory"),
        ("echo 'HIP error: hsa_status_error' >&2; exit 1", "BENCH_GPU_LOST", "hsa_status_error"),
        ("kill -SEGV $$", "BENCH_FAILED", ""),
        ("exit 3", "BENCH_FAILED", ""),
        ("echo no json; exit 0", "BENCH_FAILED", "not JSON"),
        ("printf '{\"a\":'; exit 0", "BENCH_FAILED", ""),
        ("exit 0", "BENCH_FAILED", "[]"),
        (
            'cat "$here/rows.jsonl" "$here/rows.jsonl"; exit 0',
            "BENCH_FAILED",
            "(64, 0, 0), (64, 0, 0)",
        ),
    ],
)
def test_a_call_that_does_not_end_well_is_told_kept_apart_and_made_again(
    bench: Open, setup: Setup, tmp_path: Path, trouble: str, code: str, why: str
) -> None:
    (setup.arms[1].folder / "trouble").write_text(trouble + "\n")
    with bench() as one:
        with refused(code) as caught:
            one.measure(1)
        assert why in str(caught.value.why)
        assert caught.value.hint
        done = [entry.label for entry in one.journal.entries]
        assert "rocWMMA" not in done
        assert (tmp_path / "out" / "000-d0-rocWMMA.failed").exists()
    (setup.arms[1].folder / "trouble").unlink()
    with bench() as one:
        one.measure(1)
        assert (one.kept, one.measured) == (len(done), 6 - len(done))
    assert not list((tmp_path / "out").glob("*.failed"))


def test_a_call_on_another_device_proves_nothing(bench: Open, setup: Setup) -> None:
    elsewhere = replace(setup, plan=replace(setup.plan, device="ROCm0"))
    with bench(of=elsewhere) as one, refused("BENCH_DEVICE_WRONG", match="not on ROCm0"):
        one.measure(1)


def test_a_call_that_hangs_is_ended(bench: Open, setup: Setup) -> None:
    (setup.arms[0].folder / "trouble").write_text("exec sleep 1000\n")
    with bench(timeout_s=1.0) as one, pytest.raises(PatchkitError) as caught:
        one.measure(1)
    assert caught.value.code == "BENCH_FAILED"
    assert "--timeout" in str(caught.value.hint)


def test_ctrl_c_loses_the_call_in_progress_and_says_where_the_others_are(
    bench: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench() as one:
        call = one.program.call

        def stop(*args: object, **options: object) -> object:
            if len(one.journal.entries) == 4:
                raise KeyboardInterrupt
            return call(*args, **options)

        monkeypatch.setattr(type(one.program), "call", lambda _, *args, **options: stop(*args, **options))
        with pytest.raises(KeyboardInterrupt) as caught:
            one.measure(1)
    assert caught.value.__notes__ == [
        f"the run in progress is lost; all earlier runs are kept in {tmp_path / 'out'}"
    ]
    with bench() as one:
        assert one.kept == 4
