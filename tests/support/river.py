"""A small upstream with a history of tagged builds, a series for it, and bumps in processes of their own.

A *river* is a world (see ``demo_world``) whose upstream has builds b1 to b5 that each change one
thing; its series lies in a git repository of its own, the *home*, and its lock pins b1.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo_world import FOLDER, SOURCE, World, make_series, make_upstream

TWIN = SOURCE[SOURCE.index("static __device__ int twin_b") : SOURCE.index("template<int ncols>")]

BUILDS = {
    1: SOURCE,
    2: SOURCE.replace("int twin_a(int x) {\n", "int twin_a(int x) {\n    x += 1;\n"),  # no edited function
    3: SOURCE.replace("    dst[i] = x[i];", "    dst[i] = 2*x[i];"),  # an edited function drifts
    4: SOURCE.replace("demo_launch", "demo_run"),  # an edited function is renamed
    5: SOURCE.replace(TWIN, ""),  # an edited function is gone
}


@dataclass(frozen=True)
class River(World):
    """A world whose series is a git repository."""

    @property
    def series(self) -> Path:
        return self.root / "home"

    @property
    def home(self) -> Path:
        return self.series

    def state(self) -> dict[str, str]:
        """Everything a bump may move: the refs of the cache, the lock, the branches around the series."""
        home = {f"home {name}": sha for name, sha in self.refs(at=self.home).items()}
        return self.refs() | home | {"lock": hashlib.sha256(self.lock.read_bytes()).hexdigest()}

    def left_over(self) -> list[str]:
        """Folders and journals of bumps in the cache."""
        return sorted(path.name for path in self.cache.glob("*bump*"))


def build_river(root: Path, checkout: Path) -> River:
    river = River(root, checkout)
    common = {f"{FOLDER}/common.cuh": "#pragma once\n#ifdef GGML_USE_HIP\n#endif\n"}
    make_upstream(
        river.upstream, {build: {f"{FOLDER}/demo.cu": text, **common} for build, text in BUILDS.items()}
    )
    make_series(river, 1, ("gfx1151",), config=False, last=4)
    (river.home / "templates" / "README").write_text("shared templates\n")
    done = river.run("lock", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    river.git("init", "-q", "--template=", "-b", "main", at=river.home)
    river.git("add", "-A", at=river.home)
    river.git("commit", "-q", "-m", "the series", at=river.home)
    done = river.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    return river


@pytest.fixture(scope="session")
def spring(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> River:
    """A river at which b1 was applied; to be copied."""
    return build_river(tmp_path_factory.mktemp("spring"), checkout)


@pytest.fixture
def river(spring: River, tmp_path: Path) -> River:
    """A copy of the spring of the test's own; its upstream is shared, and only read."""
    shutil.copytree(spring.home, tmp_path / "home")
    shutil.copytree(spring.cache, tmp_path / "cache")
    (tmp_path / "upstream").symlink_to(spring.upstream)
    return River(tmp_path, spring.checkout)
