"""Patches without AMD-only code, exported with guards that hold on NVIDIA GPUs, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import git

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.slow]

GFX = ("--arch", "gfx1151", "--upstream", "b11549")
NEUTRAL = ("--only", "moe-sum-coalesce", "--with", "moe-sum-coalesce")


@pytest.fixture
def cache(test_cache: Path) -> Path:
    """A cache whose candidate no other test moves."""
    return test_cache / "widened"


def test_git_am_takes_the_patches_and_each_guard_names_both_gpus(cache: Path, tmp_path: Path) -> None:
    applied = run_patchkit("apply", *GFX, *NEUTRAL, "--unlocked", "--cache-dir", cache)
    assert applied.returncode == 0, applied.stderr
    out = tmp_path / "patches"
    done = run_patchkit("export", *GFX, "--also", "nvidia", "--cache-dir", cache, out)
    assert done.returncode == 0, done.stderr
    assert "not checked by any gate" in done.stdout
    tree = tmp_path / "tree"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", str(cache / "upstream.git"), str(tree))
    git(tree, "fetch", "--quiet", "origin", "refs/patchkit/pin/b11549")
    git(tree, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    git(tree, *who, "am", "--quiet", "--keep-cr", *map(str, sorted(out.glob("*.patch"))))
    log = git(tree, "log", "--format=%B", "FETCH_HEAD..")
    assert "Patchkit-" not in log, "a commit that patchkit changed is none of a candidate"
    added = git(tree, "diff", "FETCH_HEAD", "--", "ggml/src/ggml-cuda").splitlines()
    added = [line for line in added if line.startswith("+")]
    guards = [line for line in added if "__gfx1151__" in line]
    assert guards
    assert all("!defined(GGML_USE_MUSA)) || (" in line for line in guards)
    hosts = [line for line in added if "GGML_CUDA_CC_OFFSET_AMD" in line]
    assert hosts
    assert all(re.search(r"GGML_CUDA_CC_IS_NVIDIA\(([^|]+)\) \|\| \1 == ", line) for line in hosts)


def test_a_patch_with_amd_only_code_is_refused_by_name(cache: Path, tmp_path: Path) -> None:
    applied = run_patchkit("apply", *GFX, "--cache-dir", cache)
    assert applied.returncode == 0, applied.stderr
    out = tmp_path / "patches"
    done = run_patchkit("export", *GFX, "--also", "nvidia", "--cache-dir", cache, out)
    assert done.returncode == 2
    assert "--without mmq-tile-config" in done.stderr
    assert "patch-switches" not in done.stderr.partition("why:")[2]
    assert not out.exists()
