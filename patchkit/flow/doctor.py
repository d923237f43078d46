"""Whether this machine has what patchkit needs, and what a build of llama.cpp will need.

Vocabulary: a *check* looks at one thing and changes nothing but a probe file in the cache folder. It is
*ok*, *failed* (patchkit cannot work), or *absent* (something that only a later step needs).
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.cxx.library import library_version
from patchkit.errors import CacheError, ErrorGroup, Location, PatchkitError, ToolchainError
from patchkit.flow.gpus import detect_gpus
from patchkit.flow.listing import load_catalogue
from patchkit.report import Reporter
from patchkit.series_dir import find_series_dir
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.refs import list_refs
from patchkit.vcs.repository import open_repository
from patchkit.vcs.runner import check_git

__all__ = ["Check", "LowSpace", "PythonTooOld", "State", "run_doctor"]

State = Literal["ok", "absent", "failed"]

_PYTHONS = ((3, 11), (3, 13))  # pyproject.toml, requires-python

# Measured at build 6900: the source package is 26 MB, its unpacked tree 101 MB, the repository with the
# pin and a candidate 30 MB; the rest is room for more pins.
_FREE_BYTES = 300_000_000


class PythonTooOld(ToolchainError):
    """This Python is outside of what patchkit is tested with."""

    code = "PYTHON_UNSUPPORTED"


class LowSpace(CacheError):
    """The disk of the cache folder has too little room for a pin."""

    code = "CACHE_LOW_SPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; ``error`` is there when it failed, ``hint`` says how to get what is absent."""

    name: str
    state: State
    detail: str
    hint: str | None = None
    error: PatchkitError | None = None

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "hint": self.hint,
            "code": self.error.code if self.error is not None else None,
        }


def run_doctor(
    *, series_dir: Path | None, cache_root: Path, environ: Mapping[str, str], reporter: Reporter
) -> tuple[Check, ...]:
    """Every check, in the order in which their failures would stop a run."""
    return (
        _required("python", _python),
        _required("git", lambda: "git {}.{}".format(*check_git(reporter))),
        _required("libclang", lambda: library_version().strip()),
        _required("cache", lambda: _cache(cache_root)),
        _required("series", lambda: _series(series_dir)),
        _pins(cache_root, reporter),
        _gpu(),
        _tool("cmake", ("cmake",), environ, "python -m pip install cmake, or the package of your system"),
        _tool(
            "hip compiler",
            ("amdclang++", "hipcc"),
            environ,
            "install ROCm as AMD's installation guide for your system says (package rocm-hip-sdk, or hipcc)",
        ),
        _rocm(environ),
    )


def _required(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, state="ok", detail=look())
    except ErrorGroup as group:
        detail = f"{group.message}: {len(group.errors)} errors"
        return Check(name=name, state="failed", detail=detail, hint=group.errors[0].hint, error=group)
    except PatchkitError as error:
        places = "".join(f" ({place})" for place in error.where[:1])
        return Check(
            name=name, state="failed", detail=f"{error.message}{places}", hint=error.hint, error=error
        )


def _python() -> str:
    version = sys.version_info[:2]
    first, last = _PYTHONS
    if not first <= version <= last:
        raise PythonTooOld(
            f"Python {version[0]}.{version[1]} is not supported",
            where=Location(path=sys.executable),
            hint=f"use Python {first[0]}.{first[1]} to {last[0]}.{last[1]}",
        )
    return f"{platform.python_version()} ({sys.executable})"


def _cache(root: Path) -> str:
    with disk_errors(root, "writing to the cache folder"):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(b"patchkit doctor")
            probe.flush()
        free = shutil.disk_usage(root).free
    if free < _FREE_BYTES:
        raise LowSpace(
            f"only {free / 1e6:.0f} MB are free, a pin needs {_FREE_BYTES / 1e6:.0f} MB",
            where=Location(path=str(root)),
            hint="free some space there, or name another folder with --cache-dir",
        )
    return f"{root} ({free / 1e9:.1f} GB free)"


def _series(explicit: Path | None) -> str:
    series = find_series_dir(explicit)
    catalogue = load_catalogue(series)
    counts = (
        f"{len(catalogue.patches)} patches, {len(catalogue.profiles)} GPUs, {len(catalogue.lock.pins)} pins"
    )
    return f"{counts} in {series.root} ({series.origin})"


def _pins(cache_root: Path, reporter: Reporter) -> Check:
    prefix = "refs/patchkit/pin/"
    try:
        repository = open_repository(cache_root / "upstream.git", reporter)
        refs = list_refs(repository, prefix) if repository is not None else {}
    except PatchkitError as error:
        return Check(name="pins", state="failed", detail=error.message, hint=error.hint, error=error)
    if not refs:
        return Check(name="pins", state="absent", detail="none cached", hint="patchkit apply fetches the pin")
    names = ", ".join(name.removeprefix(prefix) for name in refs)
    return Check(name="pins", state="ok", detail=f"cached: {names}")


def _gpu() -> Check:
    found = detect_gpus()
    if not found:
        hint = "name one with --arch; the kernel driver amdgpu lists them under the kfd topology"
        return Check(name="gpu", state="absent", detail="no AMD GPU on this machine", hint=hint)
    return Check(name="gpu", state="ok", detail=", ".join(found))


def _tool(name: str, programs: tuple[str, ...], environ: Mapping[str, str], hint: str) -> Check:
    for program in programs:
        path = shutil.which(program, path=environ.get("PATH"))
        if path is not None:
            return Check(name=name, state="ok", detail=path)
    return Check(name=name, state="absent", detail=f"no {' or '.join(programs)} on PATH", hint=hint)


def _rocm(environ: Mapping[str, str]) -> Check:
    for root in (environ.get("ROCM_PATH"), "/opt/rocm"):
        if root and Path(root, "include", "hip").is_dir():
            return Check(name="rocm", state="ok", detail=root)
    hint = "needed to build, not to make a candidate; set ROCM_PATH when it is installed elsewhere"
    return Check(name="rocm", state="absent", detail="no ROCm found", hint=hint)
