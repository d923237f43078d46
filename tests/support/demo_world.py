"""A small upstream with a git remote, a series of two patches for it, and patchkit run on them.

A *world* is one upstream repository, one series folder whose lock pins a build of it, and a
cache folder. What apply and bump do takes a second there; tests add what they are about.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from command_line import patchkit_process, run_patchkit

from patchkit.carry.series.lock import GitSource, Pin

FOLDER = "ggml/src/ggml-cuda"

SOURCE = """\
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

_HEAD = """\
id = "{id}"
title = "{title}"
why = "{why}"
links = ["https://example.invalid/{number}"]
status = "not-submitted"
without = "{without}"
{context}builds = {{ first = 1, {last}why = "{exists}" }}
expected = {{ effect = "none", source = "nobody measured it" }}
guard = {{ macros = ["GGML_USE_HIP"] }}
"""

_NEW_FILE = f"""
[[file]]
path = "{FOLDER}/demo-config.cuh"
template = "demo-config.cuh.jinja"
"""

_FIRST = f"""
[[edit]]
id = "bounds"
file = "{FOLDER}/demo.cu"
function = "demo_kernel"
at = {{ call = "__launch_bounds__" }}
verb = "change_to"
side = "device"
pairs = ["threads"]
text = "__launch_bounds__(128, 2)"

[[edit]]
id = "threads"
file = "{FOLDER}/demo.cu"
function = "demo_launch"
at = {{ call_arg = "64", of = "launch" }}
verb = "change_to"
side = "host"
pairs = ["threads"]
text = "@{{ guard.host('cc') }}@ ? 128 : 64"
"""

_CONFIG = """\
#pragma once
//% for arch in archs
// @{ arch.name }@
//% endfor
"""

_SECOND = f"""
[[edit]]
id = "scale"
file = "{FOLDER}/demo.cu"
function = "twin_b"
at = {{ statement = "const int scale = 2" }}
verb = "change_to"
side = "device"
text = "const int scale = 3;"
"""

_ON = """\
[patches]
demo-launch-bounds = { default = "on", why = "for the test", source = "the test" }
demo-twin = { default = "on", why = "for the test", source = "the test" }

"""

IDENTITY = {
    "GIT_AUTHOR_NAME": "up", "GIT_AUTHOR_EMAIL": "up@localhost",
    "GIT_COMMITTER_NAME": "up", "GIT_COMMITTER_EMAIL": "up@localhost",
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """Paths of one world, and commands in it."""

    root: Path
    checkout: Path

    @property
    def series(self) -> Path:
        return self.root / "series"

    @property
    def lock(self) -> Path:
        return self.series / "patches" / "upstream.lock"

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def repository(self) -> Path:
        return self.cache / "upstream.git"

    def words(self, *args: str, cache: Path | None = None) -> list[str]:
        """A command line with its series and cache folders."""
        where = ["--series-dir", str(self.series), "--cache-dir", str(cache or self.cache)]
        return [args[0], *where, *args[1:]]

    def run(
        self, *args: str, cache: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_patchkit(*self.words(*args, cache=cache), cwd=self.root, env=env)

    def process(
        self,
        *args: str,
        cache: Path | None = None,
        env: Mapping[str, str] | None = None,
        before: str = "",
        own_session: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """A command as a process of its own."""
        words = self.words(*args, cache=cache)
        return patchkit_process(*words, cwd=self.root, env=env, before=before, own_session=own_session)

    def git(self, *args: str, at: Path | None = None, date: str = "2025-02-01T00:00:00Z") -> str:
        return git(at or self.repository, *args, date=date)

    def refs(self, cache: Path | None = None, *, at: Path | None = None) -> dict[str, str]:
        """Every ref but those that a running patchkit holds; none where there is no repository."""
        repository = at or (cache or self.cache) / "upstream.git"
        if at is None and not (repository / "HEAD").exists():
            return {}
        rows = self.git("for-each-ref", "--format=%(refname) %(objectname)", at=repository).splitlines()
        return dict(row.split(" ") for row in rows if "/tmp" not in row)


W = TypeVar("W", bound=World)


def git(folder: Path, *args: str, date: str = "2025-02-01T00:00:00Z") -> str:
    """Output of git in ``folder``, with fixed names and dates; it must succeed."""
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(
        ["git", "-C", str(folder), *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **IDENTITY, **dates},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_upstream(folder: Path, builds: Mapping[int, Mapping[str, str | None]], day: int = 1) -> None:
    """A repository with a commit and a tag ``b<build>`` for each build, a day apart.

    Files by path, None for one that goes; what a build does not name stays.
    """
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--template=", "-b", "master")
    for name in ("allowAnySHA1InWant", "allowFilter"):  # as the remotes of llama.cpp do
        git(folder, "config", f"uploadpack.{name}", "true")
    for number, (build, files) in enumerate(builds.items(), start=day):
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        git(folder, "add", "-A")
        date = f"2025-01-{number:02}T03:04:05+00:00"
        git(folder, "commit", "-q", "-m", f"change {build}", date=date)
        git(folder, "tag", f"b{build}")


def make_series(world: World, build: int, archs: tuple[str, ...], *, config: bool, last: int | None) -> None:
    """The two patches, the profiles with them on for ``archs``, and a lock that pins ``build``.

    ``config``: the first patch adds a file of its own; ``last``: the last build of the second one.
    """
    first = _HEAD.format(
        id="demo-launch-bounds", number=1, title="two waves for the demo kernel", last="last = 9, ",
        why="The demo has too few waves.", without="nothing is faster", exists="the demo exists",
        context='context = ["archs", "guard"]\n' if config else 'context = ["guard"]\n',
    )  # fmt: skip
    second = _HEAD.format(
        id="demo-twin", number=2, title="scale of the second twin", why="The twin needs another scale.",
        without="the scale is upstream's", exists="the twin exists", context="",
        last=f"last = {last}, " if last is not None else "",
    )  # fmt: skip
    patches = world.series / "patches"
    for name, text in (
        ("0001-demo-launch-bounds", first + (_NEW_FILE if config else "") + _FIRST),
        ("0002-demo-twin", second + _SECOND),
    ):
        (patches / name).mkdir(parents=True)
        (patches / name / "patch.toml").write_text(text)
    if config:
        (patches / "0001-demo-launch-bounds" / "demo-config.cuh.jinja").write_text(_CONFIG)
    (patches / "series.toml").write_text(f'folders = ["{FOLDER}/"]\n')
    (world.series / "templates").mkdir()
    shutil.copytree(world.checkout / "arch_profiles", world.series / "arch_profiles")
    for arch in archs:
        profile = world.series / "arch_profiles" / f"{arch}.toml"
        text = re.sub(r"(?ms)^\[patches\]\n.*?(?=^\[|\Z)", "", profile.read_text())
        profile.write_text(f"{text.rstrip()}\n\n{_ON}")  # most of the shipped ones have no such table
    world.lock.write_text(pin_text(world.upstream, build))


def copy_world(made: W, root: Path) -> W:
    """What stands in a world, at another place: series and repositories name the upstream there.

    Git makes the smallest world with some twenty processes, and most tests want one of their own.
    """
    shutil.copytree(made.root, root, symlinks=True)
    old, new = os.fsencode(made.root), os.fsencode(root)
    for pattern in ("series/patches/**/*", "*/.git/config", "cache/*.git/config"):
        for path in root.glob(pattern):
            if path.is_file() and old in (data := path.read_bytes()):
                path.write_bytes(data.replace(old, new))
    return replace(made, root=root)


def pin_text(upstream: Path, build: int) -> str:
    """A lock that pins one build, with upstream's repository as its source."""
    raw = subprocess.run(
        ["git", "cat-file", "commit", f"b{build}"], cwd=upstream, check=True, capture_output=True
    ).stdout
    return (
        f'version = 2\ndefault = "b{build}"\n\n[[pin]]\nname = "b{build}"\n'
        f'commit = "{git(upstream, "rev-parse", f"b{build}")}"\n'
        f'tree = "{git(upstream, "rev-parse", f"b{build}^{{tree}}")}"\n'
        f'committed = "{git(upstream, "show", "-s", "--format=%cI", f"b{build}")}"\n'
        f'commit_object = "{base64.b64encode(raw).decode()}"\n\n'
        f'[[pin.source]]\nkind = "git"\nurl = "{upstream}"\n'
    )


def pin_at(upstream: Path, build: int) -> Pin:
    """The pin of one build, without its commit object."""
    return Pin(
        name=f"b{build}",
        build=build,
        commit=git(upstream, "rev-parse", f"b{build}"),
        tree=git(upstream, "rev-parse", f"b{build}^{{tree}}"),
        committed=git(upstream, "show", "-s", "--format=%cI", f"b{build}"),
        commit_object=None,
        sources=(GitSource(url=str(upstream)),),
    )
