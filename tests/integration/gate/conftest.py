"""A small clone of this project with pull requests against it, on the real pin."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit
from demo_world import git

from patchkit.carry.series.lock import GitSource, format_lock, load_lock

ROOT = Path(__file__).resolve().parents[3]
ARCH = "gfx1151"
# The target and one other GPU: enough to see a leak, and every further one is compiled for.
KEPT = ("gfx1030", "gfx1151")


@dataclass(frozen=True)
class Judgement:
    """What one run of the command gave."""

    code: int
    document: dict[str, Any]
    stderr: str

    def states(self, name: str = "gfx1151 on b6900") -> dict[str, str]:
        (one,) = (each for each in self.document["candidates"] if each["name"] == name)
        return {row["gate"]: row["state"] for row in one["gates"]}

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in self.document["findings"]]


@dataclass(frozen=True)
class Project:
    """A git repository with the shipped series, a lock of one pin, and a few files of each other part.

    ``cache`` is a folder with the pin.
    """

    root: Path
    cache: Path

    def git(self, *args: str, at: Path | None = None) -> str:
        return git(at or self.root, *args)

    def patchkit(self, *args: str) -> subprocess.CompletedProcess[str]:
        return run_patchkit(*args, cwd=self.root)

    def pull(self, name: str, changes: Mapping[str, str | None], *, relock: bool = False) -> str:
        """A branch with one commit: texts by path, None removes; ``relock``: with the lock of its series."""
        self.git("checkout", "-q", "-f", "-B", name, "main")
        for path, text in changes.items():
            place = self.root / path
            if text is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
        if relock:
            done = self.patchkit(
                "lock", "--series-dir", str(self.root), "--cache-dir", str(self.cache), "--arch", ARCH
            )
            assert done.returncode == 0, done.stderr
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)
        return self.git("rev-parse", "HEAD")

    def edited(self, path: str, old: str, new: str) -> dict[str, str | None]:
        """The changes that replace one text in a file of main."""
        text = self.git("show", f"main:{path}") + "\n"
        assert text.count(old) >= 1, f"{path} no longer has: {old}"
        return {path: text.replace(old, new, 1)}

    def bumped(self) -> dict[str, str | None]:
        """The lock with a newer pin as its default, whose upstream changed a document."""
        path = "patches/upstream.lock"
        (self.root / path).write_text(self.git("show", f"main:{path}") + "\n", "utf-8")
        lock = load_lock(self.root / path)
        (old,) = lock.pins
        upstream = Path(old.sources[0].url)
        new = replace(
            old,
            name="b6901",
            build=6901,
            commit=self.git("rev-parse", "b6901", at=upstream),
            tree=self.git("rev-parse", "b6901^{tree}", at=upstream),
            committed=self.git("show", "-s", "--format=%cI", "b6901", at=upstream),
            commit_object=None,
        )
        raw = subprocess.run(
            ["git", "-C", str(upstream), "cat-file", "commit", "b6901"], check=True, capture_output=True
        ).stdout
        newer = replace(lock, default="b6901", pins=(old, replace(new, commit_object=raw)))
        return {path: format_lock(newer)}

    def gate(self, head: str, *args: str) -> Judgement:
        done = self.patchkit(
            "gate", "--cache-dir", str(self.cache), "--base", "main", "--head", head,
            "--no-gpu", "--json", *args,
        )  # fmt: skip
        return Judgement(code=done.returncode, document=json.loads(done.stdout), stderr=done.stderr)


def make_upstream(folder: Path, cache: Path, base: str) -> Path:
    """A repository that serves the pin and, as b6901, a commit above it that changes a document."""
    project = Project(folder, cache)
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    project.git("config", "uploadpack.allowAnySHA1InWant", "true")
    (folder / "objects" / "info" / "alternates").write_text(f"{cache / 'upstream.git' / 'objects'}\n")
    (folder / "shallow").write_text(f"{base}\n")
    blob = project.git("rev-parse", f"{base}:LICENSE")
    entry = f"100644 blob {blob}\tAN-EXAMPLE\n"
    listed = project.git("ls-tree", base) + "\n" + entry
    tree = subprocess.run(
        ["git", "-C", str(folder), "mktree"], input=listed, check=True, capture_output=True, text=True
    ).stdout.strip()
    commit = project.git("commit-tree", tree, "-p", base, "-m", "a newer build")
    project.git("update-ref", "refs/tags/b6901", commit)
    return folder


def make_project(root: Path, cache: Path) -> Project:
    project = Project(root, cache)
    root.mkdir(parents=True)
    for name in ("patches", "templates", "arch_profiles"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
    (root / "templates").mkdir(exist_ok=True)
    (root / "templates" / ".keep").write_text("")
    for path in (root / "arch_profiles").glob("gfx*.toml"):
        if path.stem not in KEPT:
            path.unlink()
    lock = load_lock(root / "patches" / "upstream.lock")
    pin = lock.pin("b6900")
    upstream = make_upstream(root.parent / "upstream.git", cache, str(pin.commit))
    pin = replace(pin, sources=(GitSource(url=str(upstream)), *pin.sources))
    small = replace(
        lock,
        default="b6900",
        pins=(pin,),
        results=tuple(one for one in lock.results if (one.build, one.archs) == (6900, (ARCH,))),
    )
    (root / "patches" / "upstream.lock").write_text(format_lock(small), "utf-8")
    for path, text in {
        "README.md": "# A project\n",
        "docs/how.md": "How.\n",
        "patchkit/thing.py": "VALUE = 1\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    project.git("init", "-q", "-b", "main")
    project.git("add", "-A", "-f")
    project.git("commit", "-q", "-m", "base")
    return project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Project:
    """For pull requests that end before anything is compiled; the cache is only read but for objects."""
    root = tmp_path_factory.mktemp("gate")
    cache = root / "cache"
    shutil.copytree(warm_cache, cache)
    return make_project(root / "project", cache)


@pytest.fixture(scope="module")
def compiling_project(tmp_path_factory: pytest.TempPathFactory, gates_cache: Path) -> Project:
    """For pull requests that go through the gates, with the cache of compiled units that all tests share."""
    return make_project(tmp_path_factory.mktemp("gate") / "project", gates_cache)
