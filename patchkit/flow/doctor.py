"""Whether this machine has what patchkit needs, and what a build of llama.cpp will need.

Vocabulary: that of :mod:`patchkit.flow.check`. Nothing is changed but a probe file in the cache folder.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from patchkit.cxx.library import library_version
from patchkit.errors import CacheError, ErrorGroup, Location, PatchkitError, ToolchainError
from patchkit.flow.check import Check
from patchkit.flow.gpus import detect_gpus
from patchkit.flow.listing import load_catalogue
from patchkit.flow.toolchain_check import check_toolchain
from patchkit.report import Reporter
from patchkit.series_dir import find_series_dir
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.refs import list_refs
from patchkit.vcs.repository import Repository, open_repository
from patchkit.vcs.runner import check_git, damaged

_DEFAULT_ARCH = "gfx1151"
_PYTHONS = ((3, 11), (3, 13))  # pyproject.toml, requires-python

# Measured at build 6900: the source package is 26 MB, its unpacked tree 101 MB, the repository with the
# pin and a candidate 30 MB; the rest is room for more pins.
_FREE_BYTES = 300_000_000
_SHOWN = 5  # lines of git fsck


def run_doctor(
    *,
    series_dir: Path | None,
    cache_root: Path,
    environ: Mapping[str, str],
    reporter: Reporter,
    archs: tuple[str, ...] = (),
) -> tuple[Check, ...]:
    """Every check, in the order in which their failures would stop a run.

    ``archs`` are the GPUs to build for; by default those of this machine, else gfx1151.
    """
    archs = archs or detect_gpus() or (_DEFAULT_ARCH,)
    return (
        _required("python", _python),
        _required("git", lambda: "git {}.{}".format(*check_git(reporter))),
        _required("libclang", lambda: library_version().strip()),
        _required("cache", lambda: _cache(cache_root)),
        _required("series", lambda: _series(series_dir)),
        _pins(cache_root, reporter),
        _gpu(),
        _tool("cmake", ("cmake",), environ, "python -m pip install cmake, or the package of your system"),
        *check_toolchain(cache_root, archs=archs, environ=environ, reporter=reporter),
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
        raise ToolchainError(
            f"Python {version[0]}.{version[1]} is not supported",
            code="PYTHON_UNSUPPORTED",
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
        raise CacheError(
            f"only {free / 1e6:.0f} MB are free, a pin needs {_FREE_BYTES / 1e6:.0f} MB",
            code="CACHE_LOW_SPACE",
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
        if repository is not None:
            _verify(repository)
    except PatchkitError as error:
        return Check(name="pins", state="failed", detail=error.message, hint=error.hint, error=error)
    if not refs:
        return Check(name="pins", state="absent", detail="none cached", hint="patchkit apply fetches the pin")
    names = ", ".join(name.removeprefix(prefix) for name in refs)
    return Check(name="pins", state="ok", detail=f"cached: {names}")


def _verify(repository: Repository) -> None:
    """Have git read every object (2 s at build 6900); raises ObjectDamaged with what it says."""
    finished = repository.git.attempt("fsck", "--full", "--no-dangling", "--no-progress")
    if finished.status != 0:
        text = (finished.stderr + finished.stdout.decode("utf-8", "replace")).strip()
        raise damaged(repository.path, "\n".join(text.splitlines()[:_SHOWN]) or "git fsck found errors")


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
