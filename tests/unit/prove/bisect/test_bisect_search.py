"""The search with builds that are scripts: outcomes, what is kept, and being stopped at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bisected import SIZE, Scripts, search
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.journal import JOURNAL

IS_GOOD = 'read answer rest <<E\n$(llama-cli)\nE\ntest "$answer" = Paris'  # tests may not call grep
CHECK = ("sh", "-c", IS_GOOD)


@pytest.mark.parametrize("fault", range(1, SIZE))
def test_each_first_bad_one_is_found(tmp_path: Path, fault: int) -> None:
    scripts = Scripts(tmp_path / "builds", fault)
    found = search(scripts, *CHECK, out=tmp_path / "out")
    names = [step.name for step in scripts.all]
    assert (found.good, found.bad, found.skipped) == (names[fault - 1], names[fault], ())
    is_patch = fault >= 4
    assert (found.patch, found.without) == ((f"patch-{fault}", "good") if is_patch else (None, None))
    assert found.commit == (None if is_patch else f"{fault:040x}")
    assert len(scripts.made) == len(set(scripts.made)) <= 7 + is_patch  # none is built twice


def test_a_fault_that_stays_without_the_patch_is_reported(tmp_path: Path) -> None:
    found = search(Scripts(tmp_path / "b", 7, is_fixed_without=False), *CHECK, out=tmp_path / "out")
    assert (found.patch, found.without) == ("patch-7", "bad")


def test_builds_that_cannot_be_made_are_skipped(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path / "b", 6, broken=frozenset({4, 5, 6}))
    found = search(scripts, *CHECK, out=tmp_path / "out")
    assert (found.good, found.bad) == ("b103", "b103 + patch-7")
    assert found.skipped == ("b103 + patch-4", "b103 + patch-5", "b103 + patch-6")
    assert found.without is None  # which patch it is was not decided
    why = {each.name: each.why for each in found.tested}
    assert "no such type" in why["b103 + patch-5"]
    skipping = ("sh", "-c", f"{IS_GOOD} || exit 125")
    with refused("BISECT_ENDS", match="the last candidate, is skipped"):
        search(scripts, *skipping, out=tmp_path / "other")


def test_ends_that_are_not_good_and_bad(tmp_path: Path) -> None:
    for fault, match in ((0, "the first candidate, is bad"), (SIZE, "the last candidate, is good")):
        with refused("BISECT_ENDS", match=match):
            search(Scripts(tmp_path / "b", fault), *CHECK, out=tmp_path / f"out-{fault}")


@pytest.mark.parametrize(
    ("body", "outcome", "why"),
    [
        ("exit 1", "bad", "exit status 1"),
        ("echo 'wrong answer' >&2; exit 3", "bad", "exit status 3; wrong answer"),
        ("kill -SEGV $$", "bad", "ended by SIGSEGV"),
        ("sh -c 'kill -ABRT $$'", "bad", "ended by SIGABRT"),
        ("sleep 60", "bad", "it did not end in"),
        ("exit 255", "bad", "exit status 255"),  # no signal has the number 127
        ("exit 125", "skip", "exit status 125"),
    ],
)
def test_how_a_command_ends_decides(tmp_path: Path, body: str, outcome: str, why: str) -> None:
    script = f"{IS_GOOD} && exit 0; {body}"
    scripts = Scripts(tmp_path / "b", SIZE - 1, size=SIZE)
    if outcome == "skip":
        with refused("BISECT_ENDS", match="skipped"):
            search(scripts, "sh", "-c", script, out=tmp_path / "out")
        return
    found = search(scripts, "sh", "-c", script, out=tmp_path / "out", timeout_s=2.0)
    last = next(each for each in found.tested if each.name == found.bad)
    assert last.outcome == outcome
    assert last.why.startswith(why)


@pytest.mark.parametrize("body", ["no-such-program-here", "/etc/passwd", "kill -INT $$", "kill -KILL $$"])
def test_a_command_that_cannot_run_says_nothing_about_a_build(tmp_path: Path, body: str) -> None:
    with refused("BISECT_COMMAND"):
        search(Scripts(tmp_path / "b", 3), "sh", "-c", body, out=tmp_path / "out")


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with refused("TOOL_MISSING"):
        search(Scripts(tmp_path / "b", 3), "no-such-program-here", out=tmp_path / "out")


def test_the_command_gets_the_build_and_the_users_environment(tmp_path: Path) -> None:
    body = 'test "$(command -v llama-cli)" = "$PATCHKIT_BUILD/llama-cli" && test "$MINE" = yes || exit 1'
    environ = {"PATH": os.environ["PATH"], "MINE": "yes"}
    found = search(
        Scripts(tmp_path / "b", 2), "sh", "-c", f"{body}\n{IS_GOOD}", out=tmp_path / "out", environ=environ
    )
    assert found.bad == "b102"


def test_what_was_tested_is_not_tested_again(tmp_path: Path) -> None:
    first = search(Scripts(tmp_path / "b", 6), *CHECK, out=tmp_path / "out")
    scripts = Scripts(tmp_path / "b", 6)
    again = search(scripts, *CHECK, out=tmp_path / "out")
    assert (again.bad, again.kept, scripts.made) == (first.bad, len(first.tested), [])
    assert again.tested == first.tested
    fresh = search(scripts, *CHECK, out=tmp_path / "out", fresh=True)
    assert (fresh.bad, fresh.kept) == (first.bad, 0)


def test_outcomes_of_another_test_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "check.sh"
    script.write_text(f"#!/bin/sh\n{IS_GOOD}\n")
    script.chmod(0o755)
    search(Scripts(tmp_path / "b", 6), str(script), out=tmp_path / "out")
    script.write_text("#!/bin/sh\nexit 1\n")
    with refused("BENCH_FOLDER_UNUSABLE"):
        search(Scripts(tmp_path / "b", 6), str(script), out=tmp_path / "out")
    journal = tmp_path / "out" / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(b'"good"', b'"bad"', 1))
    script.write_text(f"#!/bin/sh\n{IS_GOOD}\n")
    with refused("BENCH_FOLDER_UNUSABLE", match="changed"):
        search(Scripts(tmp_path / "b", 6), str(script), out=tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with refused("BENCH_FOLDER_UNUSABLE"):
        search(Scripts(tmp_path / "b", 6), *CHECK, out=tmp_path / "mine", fresh=True)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


class _Interrupting(NullReporter):
    """Ctrl-C at the n-th step."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self, text: str) -> None:
        self.left -= text.startswith("testing")
        if self.left < 0:
            raise KeyboardInterrupt


def test_ctrl_c_keeps_what_was_tested(tmp_path: Path) -> None:
    whole = search(Scripts(tmp_path / "b", 6), *CHECK, out=tmp_path / "whole")
    for at in range(len(whole.tested)):
        with pytest.raises(KeyboardInterrupt) as stopped:
            search(Scripts(tmp_path / "b", 6), *CHECK, out=tmp_path / f"{at}", reporter=_Interrupting(at))
        assert "run the same command to continue" in stopped.value.__notes__[0]
        scripts = Scripts(tmp_path / "b", 6)
        found = search(scripts, *CHECK, out=tmp_path / f"{at}")
        assert (found.bad, found.kept, len(scripts.made)) == (whole.bad, at, len(whole.tested) - at)


@pytest.mark.slow
def test_kill_9_at_any_time_keeps_what_was_tested(tmp_path: Path) -> None:
    count = tmp_path / "count"
    body = f"echo run >> {count}; sleep 0.2; {IS_GOOD}"
    program = Path(__file__).resolve().parents[3] / "support" / "bisected.py"
    argv = [sys.executable, str(program), str(tmp_path), "6", "sh", "-c", body]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).resolve().parents[4],)))}
    killed = 0
    for attempt in range(40):
        before = len(count.read_text().splitlines()) if count.exists() else 0
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:  # kill it in its first or second test, a little later each time
                now = len(count.read_text().splitlines()) if count.exists() else 0
                if now > before + attempt % 2:
                    time.sleep(0.02 * (attempt % 10))
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.01)
            out, _ = process.communicate()
        if process.returncode == 0:
            break
        killed += 1
    assert out.split()[0:3] == ["b103", "+", "patch-6"]
    assert killed > 2
