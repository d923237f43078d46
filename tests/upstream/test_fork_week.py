"""A fork's week on real trees: a series of one's own goes from build 9538 to 11549, against local remotes.

It has patches of this project, an imported one for the GPU, and three plain ones; upstream changed what one
of them edits. The job is ci/shell/week.sh, as its templates call it. In the ordinary proof nothing is
compiled; with gates it takes hours of two cores, and runs by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from caches import link_kept
from demo_world import git
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.lock import load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain

ROOT = Path(__file__).resolve().parents[2]
FROM, TO = 9538, 11549
OPT_IN = "ssm-conv-tail"

GPU = (
    "ggml/src/ggml-cuda/argmax.cu",
    "    int   argmax = -1;\n",
    "    int   argmax = 0;\n",
)
PLAIN = {
    "long-words": (
        "src/llama-grammar.cpp",
        "|| c == '-' || is_digit_char(c);",
        "|| c == '-' || c == '_' || is_digit_char(c);",
    ),
    "quiet-options": ("CMakeLists.txt", "set(CMAKE_WARN_UNUSED_CLI YES)", "set(CMAKE_WARN_UNUSED_CLI NO)"),
    "more-rules": (
        "src/llama-grammar.cpp",
        "if (n_prev_rules * total_rules >= MAX_REPETITION_THRESHOLD) {",
        "if (n_prev_rules * total_rules >= 2 * MAX_REPETITION_THRESHOLD) {",
    ),
}
DOCUMENTED = """\
why = "A patch of the fork, for the test."
links = ["https://example.invalid/fork"]
without = "The fork is as upstream."
expected = { effect = "none", source = "nobody measured it" }
"""


@dataclass(frozen=True)
class Fork:
    """A series of one's own in a repository, a remote of upstream's two builds, and a fork of that."""

    root: Path

    @property
    def series(self) -> Path:
        return self.root / "series"

    @property
    def upstream(self) -> Path:
        return self.root / "upstream.git"

    @property
    def fork(self) -> Path:
        return self.root / "fork.git"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATCHKIT_SERIES": str(self.series),
            "PATCHKIT_CACHE": str(self.cache),
        }

    def run(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "patchkit", *args],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def bring(self, name: str, change: tuple[str, str, str], guard: str) -> None:
        """Import a change of one place, as the diff that git makes of it, and say what it is for."""
        path, old, new = change
        before = self.root / "a" / path
        after = self.root / "b" / path
        text = git(self.upstream, "show", f"b{FROM}:{path}") + "\n"
        assert text.count(old) == 1
        for file, content in ((before, text), (after, text.replace(old, new))):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        done = subprocess.run(
            ["git", "diff", "--no-index", "--no-prefix", f"a/{path}", f"b/{path}"],
            cwd=self.root,
            capture_output=True,
            check=False,
        )
        patch = self.root / f"{name}.patch"
        patch.write_bytes(done.stdout)
        self.run("import", str(patch), "--guard", guard, "--id", name, "--title", name)
        (folder,) = self.series.glob(f"patches/*-{name}")
        manifest = folder / "patch.toml"
        head, title, tail = manifest.read_text().partition(f'title = "{name}"\n')
        assert title
        manifest.write_text(head + title + DOCUMENTED + tail)

    def week(self, **settings: str) -> subprocess.CompletedProcess[str]:
        command = self.root / "patchkit"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m patchkit "$@"\n')
        command.chmod(0o755)
        return subprocess.run(
            [str(ROOT / "ci" / "shell" / "week.sh"), str(ROOT), str(self.series)],
            env={
                **self.environment,
                "PATCHKIT": str(command),
                "WEEK_OUT": str(self.out),
                "WEEK_UPSTREAM": str(self.upstream),
                "WEEK_PUSH": str(self.fork),
                "WEEK_KEEP": "yes",
                **settings,
            },
            capture_output=True,
            text=True,
            check=False,
        )


def make_upstream(fork: Fork, corpus: Path) -> None:
    """A remote with both trees as one commit each, and tags as upstream's."""
    git(fork.root, "init", "-q", "--bare", "--template=", str(fork.upstream))
    (fork.upstream / "objects/info").mkdir(parents=True, exist_ok=True)
    (fork.upstream / "objects/info/alternates").write_text(f"{corpus / 'upstream.git/objects'}\n")
    git(fork.upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
    above: list[str] = []
    pins = {pin.build: pin for pin in load_lock(ROOT / "tests/upstream/corpus.toml").pins}
    for build in (FROM, TO):
        pin = pins[build]
        date = pin.committed
        made = git(fork.upstream, "commit-tree", pin.tree, *above, "-m", f"build {build}", date=date)
        git(fork.upstream, "tag", f"b{build}", made)
        above = ["-p", made]
    git(fork.upstream, "update-ref", "refs/heads/master", above[1])
    git(fork.root, "clone", "-q", "--bare", str(fork.upstream), str(fork.fork))


def make_fork(root: Path, test_cache: Path) -> Fork:
    fork = Fork(root)
    corpus = test_cache / "corpus"
    lock = load_lock(ROOT / "tests/upstream/corpus.toml")
    with FileLock(test_cache / "corpus.lock"):
        cache = open_cache(corpus)
        for build in (FROM, TO):
            obtain(lock.pin(str(build)), cache=cache, reporter=NullReporter())
        if not fork.cache.exists():
            fork.cache.mkdir()
            shutil.copytree(corpus / "upstream.git", fork.cache / "upstream.git", copy_function=link_kept)
    make_upstream(fork, corpus)
    fork.run(
        "init", str(fork.series), "--arch", "gfx1151", "--upstream", str(FROM), "--series-dir", str(ROOT)
    )
    for name, change in PLAIN.items():
        fork.bring(name, change, "none")
    fork.bring("argmax-start", GPU, "gfx1151")
    fork.run("lock", "--arch", "gfx1151")
    fork.run("lock", "--arch", "gfx1151", "--with", "argmax-start", "--with", OPT_IN)
    git(fork.series, "init", "-q", "-b", "main")
    git(fork.series, "add", "-A")
    git(fork.series, "commit", "-q", "-m", "the series")
    return fork


@pytest.fixture
def fork(tmp_path: Path, test_cache: Path) -> Fork:
    (tmp_path / "fork").mkdir()
    return make_fork(tmp_path / "fork", test_cache)


def told(fork: Fork) -> list[str]:
    return (fork.out / "week.md").read_text().splitlines()


def check_bumped(fork: Fork) -> None:
    """What every week of this series comes to, whatever was proven of it."""
    (default, opted) = json.loads((fork.out / "bump.json").read_text())["candidates"]
    ours = ["patch-switches", "mmq-batch-limits", "mmq-tile-config", "mmvq-batch-limits", "mmq-rolled-loops"]
    assert default["applied"] == [*ours, "long-words", "quiet-options"]
    assert set(opted["applied"]) == {*ours, OPT_IN, "long-words", "quiet-options", "argmax-start"}
    for made in (default, opted):
        assert {loss["id"]: loss["how"] for loss in made["lost"]} == {"more-rules": "dropped"}
    assert told(fork)[0] == f"llama.cpp b{FROM} -> b{TO}: 9 patches carried, 1 dropped"
    lock = git(fork.series, "show", f"bump/b{TO}:patches/upstream.lock")
    assert lock.count("[[pin.dropped]]") == 1
    git(fork.series, "merge", "-q", "--ff-only", f"bump/b{TO}")
    # What the fork's people do next: the lock alone makes the same, without an option.
    applied = json.loads(fork.run("apply", "--arch", "gfx1151", "--json"))
    assert (applied["lock_state"], applied["tree"]) == ("as the lock records", default["tree"])


@pytest.mark.hip
@pytest.mark.hours
@pytest.mark.parametrize(
    ("gates", "wheel", "branch"), [("no-gpu", "no", "unproven"), ("emulated", "cpu", "emulated")]
)
def test_the_week_is_proven_and_published(
    fork: Fork, gates_cache: Path, gates: str, wheel: str, branch: str
) -> None:
    """What was compiled before is found by its content."""
    for name in ("objects", "sdk", "ccache"):
        (fork.cache / name).symlink_to(gates_cache / name)
    done = fork.week(WEEK_GATES=gates, WEEK_WHEEL=wheel)
    assert done.returncode == 9, done.stderr
    check_bumped(fork)
    text = "\n".join(told(fork))
    for gate in ("anchors", "isolation", "compile", "resources", "launch", "cpu-build", "cpu-tests"):
        assert f"- gate {gate}: passed: " in text
    published = f"patchkit/gfx1151/b{TO}-{branch}"
    assert f"- published: `{published}`" in text
    assert git(fork.fork, "rev-parse", f"refs/heads/{published}~1^{{tree}}")
    assert (fork.out / "report-gfx1151.md").is_file()
    assert bool(list(fork.out.glob("*.whl"))) is (wheel != "no")


@pytest.mark.extra_tools
@pytest.mark.upstream
@pytest.mark.network
def test_the_week_carries_everything_but_the_conflict_without_compiling(fork: Fork) -> None:
    done = fork.week(WEEK_GATES="none", WEEK_WHEEL="no")
    assert done.returncode == 9, done.stderr
    check_bumped(fork)
    assert "- no gate ran: only the places of the edits were checked" in told(fork)
    assert git(fork.fork, "for-each-ref", "refs/heads/patchkit") == ""
