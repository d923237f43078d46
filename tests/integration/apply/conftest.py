"""A small upstream with a git remote, and a series of two patches for it: everything apply does, in a second.

Vocabulary: a *world* is one upstream repository, one series folder whose lock pins it, and a cache folder.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = """\
#include "common.cuh"

static __device__ int twin_a(int x) {
    const int scale = 2;
    return x * scale;
}

static __device__ int twin_b(int x) {
    const int scale = 2;
    return x * scale;
}

template<int ncols>
__launch_bounds__(64, 1)
static __global__ void demo_kernel(const float * x, float * dst) {
    const int i = blockIdx.x*ncols + threadIdx.x;
    dst[i] = x[i];
}

void demo_launch(ggml_backend_cuda_context & ctx, const int cc) {
    const int nblocks = 4;
    launch(demo_kernel<8>, nblocks, 64);
}
"""

_FIRST = """\
id = "demo-launch-bounds"
title = "two waves for the demo kernel"
why = "The demo has too few waves."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "nothing is faster"
context = ["archs", "guard"]
builds = { first = 1, last = 9, why = "the demo exists" }
expected = { effect = "none", source = "nobody measured it" }
guard = { macros = ["GGML_USE_HIP"] }

[[file]]
path = "ggml/src/ggml-cuda/demo-config.cuh"
template = "demo-config.cuh.jinja"

[[edit]]
id = "bounds"
file = "ggml/src/ggml-cuda/demo.cu"
function = "demo_kernel"
at = { call = "__launch_bounds__" }
verb = "change_to"
side = "device"
pairs = ["threads"]
text = "__launch_bounds__(128, 2)"

[[edit]]
id = "threads"
file = "ggml/src/ggml-cuda/demo.cu"
function = "demo_launch"
at = { call_arg = "64", of = "launch" }
verb = "change_to"
side = "host"
pairs = ["threads"]
text = "@{ guard.host('cc') }@ ? 128 : 64"
"""

_CONFIG = """\
#pragma once
//% for arch in archs
// @{ arch.name }@
//% endfor
"""

_SECOND = """\
id = "demo-twin"
title = "scale of the second twin"
why = "The twin needs another scale."
links = ["https://example.invalid/2"]
status = "not-submitted"
without = "the scale is upstream's"
builds = { first = 1, why = "the twin exists" }
expected = { effect = "none", source = "nobody measured it" }
guard = { macros = ["GGML_USE_HIP"] }

[[edit]]
id = "scale"
file = "ggml/src/ggml-cuda/demo.cu"
function = "twin_b"
at = { statement = "const int scale = 2" }
verb = "change_to"
side = "device"
text = "const int scale = 3;"
"""

_PATCHES = """\
[patches]
demo-launch-bounds = { default = "on", why = "for the test", source = "the test" }
demo-twin = { default = "on", why = "for the test", source = "the test" }
"""


@dataclass(frozen=True)
class World:
    """Paths of one world; ``run`` starts patchkit in it as a process of its own."""

    root: Path
    checkout: Path

    @property
    def series(self) -> Path:
        return self.root / "series"

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def repository(self) -> Path:
        return self.cache / "upstream.git"

    def command(self, *args: str, cache: Path | None = None) -> list[str]:
        where = ["--series-dir", str(self.series), "--cache-dir", str(cache or self.cache)]
        return [sys.executable, "-m", "patchkit", args[0], *where, *args[1:]]

    def run(
        self, *args: str, cache: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args, cache=cache),
            env={**os.environ, "PYTHONPATH": str(self.checkout), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
        )

    def git(self, *args: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "-C", str(at or self.repository), *args], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refs(self, cache: Path | None = None) -> dict[str, str]:
        repository = (cache or self.cache) / "upstream.git"
        if not (repository / "HEAD").exists():
            return {}
        rows = self.git("for-each-ref", "--format=%(refname) %(objectname)", at=repository).splitlines()
        return dict(row.split(" ") for row in rows if "/tmp" not in row)


def build_world(root: Path, checkout: Path) -> World:
    world = World(root, checkout)
    folder = world.upstream / "ggml" / "src" / "ggml-cuda"
    folder.mkdir(parents=True)
    (folder / "demo.cu").write_text(_SOURCE)
    (folder / "common.cuh").write_text("#pragma once\n")
    (world.upstream / "README.md").write_text("a small upstream\n")
    commit = {
        "GIT_AUTHOR_NAME": "up", "GIT_AUTHOR_EMAIL": "up@localhost",
        "GIT_AUTHOR_DATE": "2025-01-02T03:04:05+00:00",
        "GIT_COMMITTER_NAME": "up", "GIT_COMMITTER_EMAIL": "up@localhost",
        "GIT_COMMITTER_DATE": "2025-01-02T03:04:05+00:00",
    }  # fmt: skip
    for args in (["init", "-q", "-b", "master"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *args], cwd=world.upstream, check=True, env={**os.environ, **commit})
    subprocess.run(["git", "config", "uploadpack.allowAnySHA1InWant", "true"], cwd=world.upstream, check=True)
    patches = world.series / "patches"
    for name, text in (("0001-demo-launch-bounds", _FIRST), ("0002-demo-twin", _SECOND)):
        (patches / name).mkdir(parents=True)
        (patches / name / "patch.toml").write_text(text)
    (patches / "0001-demo-launch-bounds" / "demo-config.cuh.jinja").write_text(_CONFIG)
    (patches / "series.toml").write_text('folders = ["ggml/src/ggml-cuda/"]\n')
    (world.series / "templates").mkdir()
    shutil.copytree(checkout / "arch_profiles", world.series / "arch_profiles")
    for arch in ("gfx1151", "gfx1100"):
        profile = world.series / "arch_profiles" / f"{arch}.toml"
        text = re.sub(r"(?ms)^\[patches\]\n.*?(?=^\[|\Z)", _PATCHES + "\n", profile.read_text())
        profile.write_text(text)
    read = ["git", "cat-file", "commit", "HEAD"]
    raw = subprocess.run(read, cwd=world.upstream, check=True, capture_output=True)
    (patches / "upstream.lock").write_text(
        "version = 1\ndefault = 1\n\n[[pin]]\nbuild = 1\n"
        f'commit = "{world.git("rev-parse", "HEAD", at=world.upstream)}"\n'
        f'tree = "{world.git("rev-parse", "HEAD^{tree}", at=world.upstream)}"\n'
        'committed = "2025-01-02T03:04:05+00:00"\n'
        f'commit_object = "{base64.b64encode(raw.stdout).decode()}"\n\n'
        f'[[pin.source]]\nkind = "git"\nurl = "{world.upstream}"\n'
    )
    return world


@pytest.fixture(scope="session")
def finished_world(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> World:
    """A world in which apply has run once; to be copied or read."""
    world = build_world(tmp_path_factory.mktemp("world"), checkout)
    done = world.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    return world


@pytest.fixture
def make_world(tmp_path: Path, checkout: Path) -> Callable[[str], World]:
    """Builds a fresh world below the test's folder."""
    return lambda name: build_world(tmp_path / name, checkout)


@pytest.fixture
def world(make_world: Callable[[str], World]) -> World:
    """One fresh world; nothing has run in it."""
    return make_world("world")
