"""An owner of a clone: a small upstream with the builds 1 and 2, a series for it, and work of his own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo_world import FOLDER, SOURCE, World, git, make_series, make_upstream

OPTIONS = 'cmake_minimum_required(VERSION 3.14)\noption(GGML_HIP "ggml: use HIP" OFF)\n'
EDITED = SOURCE.replace("    const int nblocks = 4;", "    const int nblocks = 4; // mine")


@dataclass(frozen=True)
class Owner:
    """``place`` has series and cache; ``clone`` is the owner's repository, on the branch ``mine``."""

    place: World
    clone: Path

    @property
    def here(self) -> tuple[str, ...]:
        """The options that name the HEAD of the clone."""
        return ("--arch", "gfx1151", "--onto", "HEAD", "--repo", str(self.clone))

    def apply(self, *args: str, at: Path | None = None, onto: str = "HEAD", code: int = 0):
        """``apply --onto`` for gfx1151, which must end with ``code``."""
        done = self.place.run(
            "apply", "--arch", "gfx1151", "--onto", onto, "--repo", str(at or self.clone), *args
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def error(self, *args: str, code: int, at: Path | None = None, onto: str = "HEAD"):
        """The error of an ``apply --onto`` that must end with ``code``."""
        return json.loads(self.apply("--json", *args, at=at, onto=onto, code=code).stdout)["error"]

    def git(self, *args: str, at: Path | None = None) -> str:
        return git(at or self.clone, *args)

    def commit(self, name: str, text: str, message: str = "mine") -> str:
        """A commit of the owner's; its id."""
        path = self.clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", "-A")
        self.git("-c", "user.name=owner", "commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Owner:
    """Made once; to be copied."""
    place = World(tmp_path_factory.mktemp("owner"), checkout)
    files = {
        f"{FOLDER}/demo.cu": SOURCE,
        f"{FOLDER}/common.cuh": "#pragma once\n#ifdef GGML_USE_HIP\n#endif\n",
        "ggml/CMakeLists.txt": OPTIONS,
        "include/llama.h": "#pragma once\n",
        "README.md": "a small upstream\n",
    }
    make_upstream(place.upstream, {1: files, 2: {"README.md": "a newer one\n"}})
    make_series(place, 1, ("gfx1151",), config=True, last=None)
    clone = place.root / "clone"
    git(place.root, "clone", "-q", "--template=", str(place.upstream), str(clone))
    git(clone, "switch", "-q", "-c", "mine", "b2")
    owner = Owner(place=place, clone=clone)
    owner.commit(f"{FOLDER}/demo.cu", EDITED)
    return owner


@pytest.fixture
def make_owner(grown: Owner, checkout: Path, tmp_path: Path) -> Callable[[str], Owner]:
    """A copy of the owner's machine; the lock's source stays where it was."""

    def make(name: str) -> Owner:
        shutil.copytree(grown.place.root, tmp_path / name, symlinks=True)
        return Owner(place=World(tmp_path / name, checkout), clone=tmp_path / name / "clone")

    return make


@pytest.fixture
def owner(make_owner: Callable[[str], Owner]) -> Owner:
    """One fresh machine."""
    return make_owner("machine")
