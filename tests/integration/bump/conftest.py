"""A small upstream with a history of tagged builds, a series for it, and bumps in processes of their own.

Vocabulary: a *river* is one upstream whose builds b1 to b5 each change one thing, a series whose lock pins
b1, a git repository around that series, and a cache folder.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DEMO = """\
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

TWIN = DEMO[DEMO.index("static __device__ int twin_b") : DEMO.index("template<int ncols>")]

BUILDS = {
    1: DEMO,
    2: DEMO.replace("int twin_a(int x) {\n", "int twin_a(int x) {\n    x += 1;\n"),  # no edited function
    3: DEMO.replace("    dst[i] = x[i];", "    dst[i] = 2*x[i];"),  # an edited function drifts
    4: DEMO.replace("demo_launch", "demo_run"),  # an edited function is renamed
    5: DEMO.replace(TWIN, ""),  # an edited function is gone
}

FIRST = """\
id = "demo-launch-bounds"
title = "two waves for the demo kernel"
why = "The demo has too few waves."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "nothing is faster"
context = ["guard"]
builds = { first = 1, last = 9, why = "the demo exists" }
expected = { effect = "none", source = "nobody measured it" }
guard = { macros = ["GGML_USE_HIP"] }

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

SECOND = """\
id = "demo-twin"
title = "scale of the second twin"
why = "The twin needs another scale."
links = ["https://example.invalid/2"]
status = "not-submitted"
without = "the scale is upstream's"
builds = { first = 1, last = 4, why = "the twin exists" }
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

PATCHES = """\
[patches]
demo-launch-bounds = { default = "on", why = "for the test", source = "the test" }
demo-twin = { default = "on", why = "for the test", source = "the test" }
"""

IDENTITY = {
    "GIT_AUTHOR_NAME": "up", "GIT_AUTHOR_EMAIL": "up@localhost",
    "GIT_COMMITTER_NAME": "up", "GIT_COMMITTER_EMAIL": "up@localhost",
}  # fmt: skip


@dataclass(frozen=True)
class River:
    """Paths of one river; ``run`` starts patchkit in it as a process of its own."""

    root: Path
    checkout: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def lock(self) -> Path:
        return self.home / "patches" / "upstream.lock"

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def command(self, *args: str, cache: Path | None = None) -> list[str]:
        where = ["--series-dir", str(self.home), "--cache-dir", str(cache or self.cache)]
        return [sys.executable, "-m", "patchkit", args[0], *where, *args[1:]]

    def run(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args),
            env=self.environ | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
        )

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.checkout)}

    def git(self, *args: str, at: Path | None = None, date: str = "2025-02-01T00:00:00Z") -> str:
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        where = at or self.cache / "upstream.git"
        done = subprocess.run(
            ["git", "-C", str(where), *args],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **IDENTITY, **dates},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self) -> dict[str, str]:
        """Everything a bump may move: the refs of the cache, the lock, the branches around the series."""
        refs = {}
        if (self.cache / "upstream.git" / "HEAD").exists():
            refs = self._refs(self.cache / "upstream.git")
        home = {f"home {name}": sha for name, sha in self._refs(self.home).items()}
        return refs | home | {"lock": hashlib.sha256(self.lock.read_bytes()).hexdigest()}

    def _refs(self, repository: Path) -> dict[str, str]:
        rows = self.git("for-each-ref", "--format=%(refname) %(objectname)", at=repository).splitlines()
        return dict(row.split(" ") for row in rows)

    def left_over(self) -> list[str]:
        """Folders and journals of bumps in the cache."""
        return sorted(path.name for path in self.cache.glob("*bump*"))


def build_river(root: Path, checkout: Path) -> River:
    river = River(root, checkout)
    folder = river.upstream / "ggml" / "src" / "ggml-cuda"
    folder.mkdir(parents=True)
    (folder / "common.cuh").write_text("#pragma once\n// GGML_USE_HIP\n")
    river.git("init", "-q", "-b", "master", at=river.upstream)
    river.git("config", "uploadpack.allowAnySHA1InWant", "true", at=river.upstream)
    for build, text in BUILDS.items():
        (folder / "demo.cu").write_text(text)
        river.git("add", "-A", at=river.upstream)
        river.git(
            "commit", "-q", "-m", f"change {build}", at=river.upstream, date=f"2025-01-0{build}T03:04:05Z"
        )
        river.git("tag", f"b{build}", at=river.upstream)
    patches = river.home / "patches"
    for name, text in (("0001-demo-launch-bounds", FIRST), ("0002-demo-twin", SECOND)):
        (patches / name).mkdir(parents=True)
        (patches / name / "patch.toml").write_text(text)
    (patches / "series.toml").write_text('folders = ["ggml/src/ggml-cuda/"]\n')
    (river.home / "templates").mkdir()
    (river.home / "templates" / "README").write_text("shared templates\n")
    shutil.copytree(checkout / "arch_profiles", river.home / "arch_profiles")
    profile = river.home / "arch_profiles" / "gfx1151.toml"
    profile.write_text(re.sub(r"(?ms)^\[patches\]\n.*?(?=^\[|\Z)", PATCHES + "\n", profile.read_text()))
    commit = river.git("rev-parse", "b1", at=river.upstream)
    raw = subprocess.run(
        ["git", "cat-file", "commit", "b1"], cwd=river.upstream, check=True, capture_output=True
    ).stdout
    river.lock.write_text(
        "version = 1\ndefault = 1\n\n[[pin]]\nbuild = 1\n"
        f'commit = "{commit}"\ntree = "{river.git("rev-parse", "b1^{tree}", at=river.upstream)}"\n'
        f'committed = "2025-01-01T03:04:05+00:00"\ncommit_object = "{base64.b64encode(raw).decode()}"\n\n'
        f'[[pin.source]]\nkind = "git"\nurl = "{river.upstream}"\n'
    )
    done = river.run("lock", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    river.git("init", "-q", "-b", "main", at=river.home)
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
