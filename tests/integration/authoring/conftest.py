"""A small upstream of two builds, its series, and a clone of it in which somebody works."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo_world import FOLDER, IDENTITY, World, copy_world, git, make_series, make_upstream
from demo_world import SOURCE as DEMO

CHOICE = """\
#include "common.cuh"

bool demo_should_use(const int type, const int cc, const int ne11) {
#ifdef DEMO_OLD
    return false;
#endif
    if (type == 1) {
        return ne11 <= 128;
    }
    const int limit = 256;
    if (cc == 0 && type > 99) {
        return false;
    }
    switch (type) {
        case 2:
            return ne11 <= (cc > 7 ? 128 : 256);
        default:
            break;
    }
    return ne11 <= limit;
}
"""
CMAKE = 'cmake_minimum_required(VERSION 3.14)\nproject(demo)\noption(DEMO_FAST "it\'s fast" OFF)\n'
TOOL = """\
#include <string>

namespace tool {

// how much at most
static int limit(int wanted) {
    return wanted > 256 ? 256 : wanted;
}

static std::string name() {
    return "\\\\a@{b}";
}

}
"""
FIRST = {
    f"{FOLDER}/demo.cu": DEMO,
    f"{FOLDER}/choice.cu": CHOICE,
    f"{FOLDER}/common.cuh": "#pragma once\n#ifdef GGML_USE_HIP\n#endif\n",
    "CMakeLists.txt": CMAKE,
    "common/tool.cpp": TOOL,
    "include/llama.h": "#pragma once\n",
    "dos.txt": "one\r\ntwo\r\nthree\r\n",
}
SECOND = {
    "CMakeLists.txt": CMAKE.replace("project(demo)", "project(demo CXX)"),
    "common/tool.cpp": TOOL.replace("// how much at most\n", "// how much there may be\n"),
}


@dataclass(frozen=True)
class Desk(World):
    """A world with a clone of its upstream."""

    @property
    def clone(self) -> Path:
        return self.root / "llama.cpp"

    def change(self, path: str, old: str, new: str, count: int = 1) -> None:
        file = self.clone / path
        text = file.read_bytes().decode()
        assert text.count(old) == count, (path, old)
        file.write_bytes(text.replace(old, new).encode())

    def add(self, path: str, text: str) -> None:
        (self.clone / path).parent.mkdir(parents=True, exist_ok=True)
        (self.clone / path).write_text(text)

    def commit(self, message: str) -> str:
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-q", "-m", message)
        return git(self.clone, "rev-parse", "HEAD")

    def diff(self, *more: str) -> Path:
        """What was changed in the clone, as a file; the clone is as it was."""
        git(self.clone, "add", "-A", "-N")
        path = self.root / "a.patch"
        path.write_bytes(
            subprocess.run(
                ["git", "-C", str(self.clone), "diff", "--binary", *more], check=True, capture_output=True
            ).stdout
        )
        git(self.clone, "reset", "-q", "--hard")
        git(self.clone, "clean", "-q", "-fd")
        return path

    def snapshot(self) -> dict[str, bytes]:
        """Every file of the series."""
        return {str(path): path.read_bytes() for path in sorted(self.series.rglob("*")) if path.is_file()}

    def shown(self, patch: str, path: str, arch: str = "gfx1151") -> bytes:
        """A file of the candidate that has this patch."""
        done = self.run("apply", "--arch", arch, "--only", patch, "--with", patch, "--unlocked")
        assert done.returncode == 0, done.stderr
        return subprocess.run(
            ["git", "--git-dir", str(self.repository), "show", f"candidate/{arch}/b1:{path}"],
            check=True,
            capture_output=True,
        ).stdout


@pytest.fixture(scope="session")
def laid_desk(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Desk:
    """Made once; to be copied."""
    return make_desk(tmp_path_factory.mktemp("laid") / "desk", checkout)


@pytest.fixture
def desk(laid_desk: Desk, tmp_path: Path) -> Desk:
    return copy_world(laid_desk, tmp_path / "desk")


@pytest.fixture(scope="module")
def shared_desk(laid_desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """One for all tests of a module, which leave it as it was."""
    return copy_world(laid_desk, tmp_path_factory.mktemp("shared") / "desk")


def make_desk(root: Path, checkout: Path) -> Desk:
    desk = Desk(root, checkout)
    make_upstream(desk.upstream, {1: FIRST, 2: SECOND})
    git(desk.upstream, "checkout", "-q", "b1")
    make_series(desk, 1, ("gfx1151", "gfx1100"), config=False, last=None)
    git(desk.root, "clone", "-q", str(desk.upstream), "llama.cpp")
    for name, value in (("user.name", IDENTITY["GIT_AUTHOR_NAME"]), ("user.email", "up@localhost")):
        git(desk.clone, "config", name, value)
    return desk
