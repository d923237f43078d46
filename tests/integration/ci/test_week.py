"""A fork's week on the small upstream: the job as its templates call it, without compiling."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_world import git

from patchkit.base.toml import parse_toml
from patchkit.carry.series.lock import Lock, parse_lock

ROOT = Path(__file__).resolve().parents[3]
SHELL = ROOT / "ci" / "shell"
TWIN = "patches/0002-demo-twin/patch.toml"
pytestmark = pytest.mark.extra_tools  # bash


def environment(river, **settings: str) -> dict[str, str]:
    command = river.root / "patchkit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m patchkit "$@" --cache-dir {river.cache}\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATCHKIT": str(command),
        "WEEK_OUT": str(river.root / "out"),
        "WEEK_UPSTREAM": str(river.upstream.resolve()),
        "WEEK_GATES": "none",
        "WEEK_WHEEL": "no",
        "WEEK_KEEP": "yes",
        **settings,
    }


@pytest.fixture
def week(river) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(**settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SHELL / "week.sh"), str(ROOT), str(river.home)],
            env=environment(river, **settings),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def written(river) -> str:
    return (river.root / "out" / "week.md").read_text()


def lock_on(river, branch: str) -> Lock:
    text = git(river.home, "show", f"{branch}:patches/upstream.lock")
    return parse_lock(parse_toml("upstream.lock", text.encode()))


def test_a_week_without_trouble_leaves_a_branch_to_merge_and_a_text(week, river) -> None:
    before = river.lock.read_bytes()
    done = week(WEEK_TO="b2")
    assert done.returncode == 0, done.stderr
    assert river.lock.read_bytes() == before  # the job works on a clone
    text = written(river)
    assert text.splitlines()[0] == "llama.cpp b1 -> b2: 2 patches carried"
    assert "The new lock is the branch `bump/b2` of the series" in text
    assert "- demo-twin: clean: " in text
    assert "- no gate ran: only the places of the edits were checked" in text
    assert "- nothing was published" in text
    assert lock_on(river, "bump/b2").default == "b2"
    # The same week again changes nothing; once it is merged there is no news.
    tip = git(river.home, "rev-parse", "bump/b2")
    assert week(WEEK_TO="b2").returncode == 0
    assert git(river.home, "rev-parse", "bump/b2") == tip
    git(river.home, "merge", "-q", "--ff-only", "bump/b2")
    assert week(WEEK_TO="b2").returncode == 0
    assert written(river) == "llama.cpp b2: nothing new\n"


def test_one_conflict_is_left_out_and_the_rest_goes_on(week, river) -> None:
    clone = river.root / "broken"
    git(river.root, "clone", "-q", str(river.upstream.resolve()), str(clone))
    git(clone, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(clone, "checkout", "-q", "-b", "other", "b2")
    path = clone / "ggml/src/ggml-cuda/demo.cu"
    head, twin, tail = path.read_text().partition("int twin_b(int x) {")
    path.write_text(head + twin + tail.replace("const int scale = 2;", "const int scale = x > 2;", 1))
    git(clone, "commit", "-q", "-a", "-m", "another scale")
    git(clone, "tag", "b6")
    patch = river.home / TWIN
    patch.write_text(patch.read_text().replace("last = 4, ", ""))
    assert river.run("lock", "--arch", "gfx1151").returncode == 0
    git(river.home, "commit", "-q", "-a", "-m", "no end")
    done = week(WEEK_UPSTREAM=str(clone))
    assert done.returncode == 9, done.stderr
    text = written(river)
    assert text.splitlines()[0] == "llama.cpp b1 -> b6: 1 patch carried, 1 dropped"
    assert "- demo-twin: DROPPED: " in text
    assert "`ANCHOR_" in text
    assert "ggml/src/ggml-cuda/demo.cu:" in text
    assert "    - patches/0002-demo-twin/patch.toml:" in text  # and no folder of a machine
    assert "`patchkit plan --arch gfx1151 --upstream b6 --with ID`" in text
    (row,) = lock_on(river, "bump/b6").pin("b6").dropped
    assert row.patch == "demo-twin"


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        ({"WEEK_TO": "b77"}, 2, "llama.cpp: no bump, BUMP_TARGET_UNKNOWN"),
        ({"WEEK_TO": "b3"}, 2, "llama.cpp: no bump, BUMP_GATES_NEEDED"),
        ({"WEEK_UPSTREAM": "nowhere"}, 7, "llama.cpp: no bump, REMOTE_HAS_NO_BUILDS"),
        ({"PATCHKIT": "/bin/false"}, 1, "llama.cpp: no bump, the job exited with 1 and wrote no report"),
    ],
)
def test_a_week_that_cannot_be_is_told(week, river, settings, code: int, says: str) -> None:
    refs = river.refs(at=river.home)
    done = week(**settings)
    assert (done.returncode, written(river).splitlines()[0]) == (code, says)
    assert river.refs(at=river.home) == refs


@pytest.mark.parametrize("settings", [{"WEEK_GATES": "some"}, {"WEEK_WHEEL": "yes"}])
def test_a_setting_that_means_nothing_is_refused_before_any_work(week, river, settings) -> None:
    done = week(**settings)
    assert done.returncode == 2
    assert next(iter(settings.values())) in done.stderr
    assert not (river.root / "out").exists()


def test_somebody_elses_work_on_the_branch_is_not_replaced(week, river) -> None:
    assert week(WEEK_TO="b2").returncode == 0
    git(river.home, "checkout", "-q", "bump/b2")
    (river.home / "notes").write_text("mine\n")
    git(river.home, "add", "notes")
    git(river.home, "commit", "-q", "-m", "mine")
    tip = git(river.home, "rev-parse", "HEAD")
    git(river.home, "checkout", "-q", "main")
    assert week(WEEK_TO="b2").returncode == 5
    assert "BUMP_BRANCH_TAKEN" in written(river).splitlines()[0]
    assert git(river.home, "rev-parse", "bump/b2") == tip


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_week_that_is_interrupted_changes_nothing(river, sign: signal.Signals) -> None:
    refs, temporary = river.refs(at=river.home), river.root / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [str(SHELL / "week.sh"), str(ROOT), str(river.home)],
        env=environment(river, WEEK_TO="b2", TMPDIR=str(temporary)),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (river.root / "out" / "bump.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, sign)
    assert process.wait(60) in {130, 143}
    assert river.refs(at=river.home) == refs
    assert list(temporary.iterdir()) == []


def test_what_a_document_says_is_one_line_without_markup(tmp_path: Path) -> None:
    bump = {
        "state": "done",
        "from": {"build": 1},
        "to": {"build": 2},
        "commit": {"branch": "bump/b2"},
        "candidates": [
            {
                "archs": ["gfx1151"],
                "branch": "candidate/gfx1151/b2",
                "tip": "1" * 40,
                "applied": ["a"],
                "patches": [{"id": "a", "class": "moved", "reason": "`x`\n# <b>@all"}],
                "lost": [],
            }
        ],
    }
    (tmp_path / "bump.json").write_text(json.dumps(bump))
    (tmp_path / "verify-gfx1151.json").write_text("{ not JSON")
    script = [sys.executable, str(ROOT / "ci" / "week_text.py")]
    subprocess.run([*script, "write", "--folder", str(tmp_path), "--code", "1"], check=True)
    text = (tmp_path / "week.md").read_text()
    assert text.splitlines()[0].endswith("a later step failed (exit code 1)")
    assert "- a: moved: 'x' # (b>(at)all\n" in text
