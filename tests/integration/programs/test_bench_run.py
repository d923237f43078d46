"""``patchkit bench run`` with the real llama-bench on the CPU: stopped in every way, and run again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shipped import SEED

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.models import SmallModel, model_file
from patchkit.prove.subject import Subject

pytestmark = pytest.mark.cpu_build

_SMALL = ("--depths", "0,64", "--prompts", "16", "--generated", "4", "--threads", "1")
_PER_REPETITION = 4  # runs: two labels at two depths
Command = Callable[..., list[str]]


@pytest.fixture
def command(cpu_subject: Subject, cpu_cache: Path, checkout: Path, tmp_path: Path) -> Command:
    """The command line of a sweep into the folder ``sweep``."""

    def make(*more: str) -> list[str]:
        argv = [
            sys.executable,
            "-m",
            "patchkit",
            "bench",
            "run",
            *SEED,
            "--backend",
            "cpu",
        ]
        places = [
            "--cache-dir",
            str(cpu_cache),
            "--series-dir",
            str(checkout),
            "--out",
            str(tmp_path / "sweep"),
        ]
        return [*argv, *places, *_SMALL, *more]

    return make


def _answer(argv: list[str], code: int = 0) -> dict:
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    document: dict = json.loads(done.stdout)
    return document


def _kept(sweep: Path) -> dict[str, int]:
    """The runs that count as measured, each with its line in the journal."""
    journal = sweep / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.is_file() else []
    calls = [json.loads(line.partition(b"\t")[0]) for line in lines]
    return {f"{call['round']:03d}-d{call['depths'][0]}-{call['label']}": call["number"] for call in calls}


def _interrupted(argv: list[str], sweep: Path, number: signal.Signals, log: Path) -> tuple[int, int, str]:
    """Start, signal when something was kept; the exit status, how many runs were begun, and what was said."""
    with log.open("w") as err:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=err)
    while process.poll() is None and not _kept(sweep):
        time.sleep(0.005)
    process.send_signal(number)
    process.wait()
    text = log.read_text("utf-8")
    begun = [int(number) for number in re.findall(r"^  run (\d+) of \d+", text, re.MULTILINE)]
    assert begun, text
    return process.returncode, max(begun), text


def test_a_sweep_is_measured_once_compared_and_added_to(command: Command, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    first = _answer(command("--repetitions", "2"))
    assert (first["measured"], first["kept"]) == (8, 0)
    assert first["arms"] == {"baseline": "build 6900", "candidate": "build 6900 with the patches"}
    lines = first["table"]["lines"]
    assert [line["test"] for line in lines] == ["pp16", "pp16 @ d64", "tg4", "tg4 @ d64"]
    assert all(
        len(line["cells"][label]["runs"]) == 2 for line in lines for label in ("baseline", "candidate")
    )
    kept = _kept(sweep)
    again = _answer(command("--repetitions", "2"))
    assert (again["measured"], again["kept"]) == (0, 8)
    assert _kept(sweep) == kept
    assert again["table"] == first["table"]
    more = _answer(command("--repetitions", "3"))
    assert (more["measured"], more["kept"]) == (4, 8)
    assert kept.items() <= _kept(sweep).items()

    from patchkit.gpu.hardware.bench.compare import CompareRequest, run_bench_compare

    table = run_bench_compare(CompareRequest(files=(sweep / "baseline.jsonl", sweep / "candidate.jsonl")))
    assert [line.test for line in table.lines] == [line["test"] for line in more["table"]["lines"]]
    line = (sweep / "journal.jsonl").read_bytes().split(b"\n")[1]
    call = json.loads(line.partition(b"\t")[0])
    assert call["argv"][0].endswith("/llama-bench")
    assert call["seconds"] > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "ctrl-c"])
def test_an_interrupted_sweep_loses_the_run_in_progress_and_goes_on(
    command: Command, tmp_path: Path, number: signal.Signals
) -> None:
    sweep = tmp_path / "sweep"
    # More than it can ever do before the signal; the second command asks for few, of the same measurement.
    endless = command("--repetitions", "999")
    status, begun, said = _interrupted(endless, sweep, number, tmp_path / "log")
    kept = _kept(sweep)
    assert len(kept) >= begun - 1, "more than the run in progress was lost"
    if number == signal.SIGKILL:
        assert status == -signal.SIGKILL
    else:
        assert status == 130
        assert f"the run in progress is lost; all earlier runs are kept in {sweep}" in said
    # As a crash in the middle of a write would leave it.
    with (sweep / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"kind":"call","nu')
    there = sum(int(name.split("-")[0]) < 6 for name in kept)
    answer = _answer(command("--repetitions", "6"))
    assert (answer["measured"], answer["kept"]) == (6 * _PER_REPETITION - there, there)
    assert kept.items() <= _kept(sweep).items()
    for label in ("baseline", "candidate"):
        rows = (sweep / f"{label}.jsonl").read_text("utf-8").splitlines()
        assert len(rows) == 6 * 2 * 2
        assert all(json.loads(row)["samples_ns"] for row in rows)


def test_other_settings_do_not_mix_with_what_is_there(command: Command) -> None:
    _answer(command("--repetitions", "1"))
    error = _answer(command("--repetitions", "1", "--batch", "64", "--micro-batch", "64"), 2)["error"]
    assert error["code"] == "BENCH_FOLDER_UNUSABLE"
    assert "batch was 2048, is 64; micro_batch was 512, is 64" in error["why"]


def test_a_call_that_fails_counts_for_nothing_and_can_be_made_again(
    command: Command, cpu_cache: Path, tmp_path: Path
) -> None:
    whole = model_file(SmallModel(head_size=64), cpu_cache, NullReporter()).read_bytes()
    model = tmp_path / "model.gguf"
    model.write_bytes(whole.replace(b"llama", b"lemur"))  # a sound file of an architecture that nobody knows
    os.utime(model, ns=(1, 1))
    error = _answer(command("--repetitions", "1", "--model", str(model)), 6)["error"]
    assert error["code"] == "BENCH_FAILED"
    assert not _kept(tmp_path / "sweep")
    assert list((tmp_path / "sweep").glob("000-d0-*.failed"))
    model.write_bytes(whole)
    os.utime(model, ns=(1, 1))
    answer = _answer(command("--repetitions", "1", "--model", str(model), "--fresh"))
    assert (answer["measured"], answer["model"]) == (4, "model.gguf")
    assert not list((tmp_path / "sweep").glob("*.failed"))


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--model", "no-such.gguf"), "MODEL_MISSING"),
        (("--model", __file__), "GGUF_BAD"),
        (("--depths", "1,two"), "USAGE_VALUE"),
        (("--depths", "-1"), "USAGE_VALUE"),
        (("--prompts", "0", "--generated", "0"), "USAGE_SYNTAX"),
        (("--repetitions", "0"), "USAGE_VALUE"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(
    command: Command, tmp_path: Path, more: tuple[str, ...], code: str
) -> None:
    error = _answer(command(*more), 2)["error"]
    assert error["code"] == code
    assert error["hint"]
    assert not (tmp_path / "sweep").exists()
