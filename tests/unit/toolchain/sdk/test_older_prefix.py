"""A prefix of an older patchkit is usable, and what it lacks is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_patchkit

from patchkit.toolchain.sdk.prefix import load_prefix, newest_recipe

_RECORD = {
    "format": 3,
    "suite": "forky",
    "packages": [],
    "compiler": "bin/clang",
    "compiler_version": "22.1.8",
    "compiler_packages": [],
    "hip_version": "6.4.43484",
    "device_libs": "usr/lib/bitcode",
    "device_libs_version": "6.4.4-1",
    "rocwmma_kind": "stand-in",
    "rocwmma_version": "1",
    "stubs": ["libamdhip64.so.6"],
    "downloaded": 1,
}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A prefix with only the files that are checked; its record lacks the recipe."""
    path = tmp_path / "cache" / "sdk" / "0123"
    for file in ("usr/include/hip/hip_runtime.h", "usr/lib/bitcode/ocml.bc", "bin/clang"):
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).touch()
    (path / "sdk.json").write_text(json.dumps(_RECORD), "utf-8")
    (path.parent / "current").symlink_to(path.name)
    return path


def test_status_shows_what_an_older_prefix_lacks(prefix: Path) -> None:
    argv = ["sdk", "status", "--cache-dir", str(prefix.parents[1])]
    (line,) = (line for line in run_patchkit(*argv).stdout.splitlines() if line.startswith("outdated"))
    assert "thrust's headers" in line
    assert line.endswith("patchkit sdk install --again")


def test_a_prefix_of_today_lacks_nothing_and_has_another_name(prefix: Path) -> None:
    older = load_prefix(prefix)
    (prefix / "sdk.json").write_text(json.dumps({**_RECORD, "recipe": newest_recipe()}), "utf-8")
    newer = load_prefix(prefix)
    assert older is not None
    assert newer is not None
    assert older.lacks
    assert newer.lacks is None
    assert older.record.id != newer.record.id
