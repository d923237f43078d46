"""The checks of ``doctor``: does this machine have what patchkit, and a build of llama.cpp, need?"""

from __future__ import annotations

import functools
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import CacheError, ErrorGroup, Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import NullReporter, Reporter
from patchkit.base.series_folder import find_series_dir
from patchkit.carry.candidate.listing import load_catalogue
from patchkit.carry.cpp.libclang import library_version
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.git import check_git, damaged
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.hardware.gpus import detect_gpus
from patchkit.gpu.hardware.host.knowledge import load_knowledge
from patchkit.prove.verify.policy import load_proven_series
from patchkit.toolchain.hip import (
    RocmInstallation,
    RocWmma,
    Toolchain,
    ToolchainMissing,
    find_toolchain,
    inspect_rocm,
    knows_arch,
    rocm_locations,
    rocwmma_for,
)
from patchkit.toolchain.sdk.prefix import current_prefix
from patchkit.toolchain.sdk.versions import known_archs

State = Literal["ok", "absent", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check. ``error`` is set if it failed; ``hint`` is what to do if it is not ok."""

    json_keys: ClassVar = "name state detail hint code=error.code"

    name: str
    state: State
    detail: str
    hint: str | None = None
    error: PatchkitError | None = None


class _NotOk(Exception):
    """A check's result other than ok; ``hint`` is what to do."""

    state: State

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


class _Absent(_NotOk):
    """An optional part is missing."""

    state = "absent"


def _checked(name: str, look: Callable[[], str]) -> Check:
    """Run ``look`` and turn its return value or exception into a check."""
    try:
        return Check(name=name, state="ok", detail=look())
    except _NotOk as found:
        return Check(name=name, state=found.state, detail=found.detail, hint=found.hint)
    except ErrorGroup as group:
        detail = f"{group.message}: {len(group.errors)} errors"
        return Check(name=name, state="failed", detail=detail, hint=group.errors[0].hint, error=group)
    except PatchkitError as error:
        detail = "".join([error.message, *(f" ({place})" for place in error.where[:1])])
        return Check(name=name, state="failed", detail=detail, hint=error.hint, error=error)


_INSTALL = "patchkit sdk install"
_NEEDED = f"needed to compile and emulate GPU code: {_INSTALL}; to run it on a GPU, install ROCm"
_NEEDED_WITHOUT_APT = (
    "needed to compile, emulate and run GPU code: install ROCm (the SDK of patchkit needs apt)"
)


def check_toolchain(
    cache_root: Path, *, archs: tuple[str, ...], environ: Mapping[str, str], reporter: Reporter
) -> tuple[Check, ...]:
    """Check ROCm, the SDK and rocWMMA, for building for ``archs``."""
    toolchains: list[Toolchain] = []

    def look() -> str:
        try:
            toolchains.append(find_toolchain(cache_root, environ, _Quiet(reporter)))
        except ToolchainMissing as error:
            has_apt = shutil.which("apt-get", path=environ.get("PATH")) is not None
            detail = f"{error.message}: {error.why}" if found and error.why else error.message
            raise _Absent(detail, _NEEDED if has_apt else _NEEDED_WITHOUT_APT) from error
        return _toolchain(toolchains[0], archs, found, reporter)

    found = [inspect_rocm(place, environ) for place in rocm_locations(environ)]
    checks = [_checked("rocm", functools.partial(_rocm, each)) for each in found or (None,)]
    checks += [_checked("sdk", lambda: _sdk(cache_root)), _checked("hip toolchain", look)]
    for toolchain in toolchains:
        checks += [_checked("rocwmma", functools.partial(_rocwmma, toolchain, arch)) for arch in archs]
    return tuple(checks)


class _Quiet(NullReporter):
    """Passes on commands only: toolchains that are skipped have a check of their own."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def command(self, text: str) -> None:
        """Pass it on."""
        self._reporter.command(text)


def _rocm(found: RocmInstallation | None) -> str:
    if found is None:
        raise _Absent(
            "no ROCm found in ROCM_PATH, /opt, Python's packages or the distribution's",
            f"needed to run on a GPU; to compile and emulate without it: {_INSTALL}",
        )
    where = f"{found.place.root} ({found.place.origin})"
    if found.missing_parts:
        raise _Absent(
            f"{where} lacks {' and '.join(found.missing_parts)}",
            f"install ROCm's development packages, or run {_INSTALL}",
        )
    what = f"{found.version or found.hip_version}, {where}"
    _check_build(what, found)
    return what


def _check_build(what: str, found: RocmInstallation) -> None:
    """Raise _Absent if llama.cpp cannot be built with this ROCm."""
    oldest = load_knowledge().rocm.oldest
    if found.release[: len(oldest)] < oldest:
        raise _Absent(
            f"{what}: too old to build llama.cpp",
            "install ROCm {}.{} or newer".format(*oldest) + f"; to compile without ROCm: {_INSTALL}",
        )
    if found.missing_packages:
        raise _Absent(
            f"{what}: cannot build llama.cpp, because CMake packages (lib/cmake/NAME/NAME-config.cmake) are "
            f"missing: {', '.join(found.missing_packages)}",
            "install ROCm's packages hip-dev, hipblas-dev and rocblas-dev (on Debian and Ubuntu: "
            f"libamdhip64-dev, libhipblas-dev, librocblas-dev); to compile without ROCm: {_INSTALL}",
        )


def _sdk(cache_root: Path) -> str:
    prefix = current_prefix(cache_root)
    if prefix is None:
        raise _Absent("not installed", f"to compile without ROCm: {_INSTALL}")
    hipcc = f", {prefix.hipcc}" if prefix.hipcc.exists() else ""
    older = f"; outdated, lacks {prefix.lacks} (to update: {_INSTALL} --again)" if prefix.lacks else ""
    return f"{prefix.path} ({prefix.record.suite}{hipcc}){older}"


def _toolchain(
    toolchain: Toolchain, archs: tuple[str, ...], found: Sequence[RocmInstallation], reporter: Reporter
) -> str:
    what = f"{toolchain.kind}: clang {toolchain.clang_version}, HIP {toolchain.hip_version}"
    unknown = sorted(set(archs) - known_archs(toolchain.clang, reporter))
    if unknown:
        raise _Absent(
            f"{what}; its compiler does not support {', '.join(unknown)}",
            f"use a newer ROCm, or unset ROCM_PATH and run {_INSTALL} --again",
        )
    if toolchain.kind == "rocm":
        _check_build(what, next(each for each in found if each.place.root == toolchain.root))
    return f"{what} ({toolchain.clang})"


def _rocwmma(toolchain: Toolchain, arch: str) -> str:
    own, chosen = toolchain.rocwmma, rocwmma_for(toolchain, arch)
    if own is not None and own == chosen and own.kind != "stand-in":
        return f"{_named(own)} supports {arch}"
    if chosen is None and toolchain.kind == "sdk":
        raise _Absent(f"{arch}: no rocWMMA here supports it")
    if own is None:
        why = "rocWMMA is not installed"
    elif own.kind == "stand-in":
        why = "the SDK was installed without rocWMMA"
    else:
        why = f"{_named(own)} does not support {arch}" if not knows_arch(own, arch) else _named(own)
    with_what = f"; using patchkit's stand-in header {chosen.version}" if chosen is not None else ""
    if toolchain.kind == "rocm":
        hint = "install the package rocwmma-dev from a ROCm that supports the GPU"
    else:
        hint = f"run {_INSTALL} --again with access to rocWMMA's repository (or with --rocwmma-url)"
    raise _Absent(f"{arch}: {why}{with_what}", hint)


def _named(rocwmma: RocWmma) -> str:
    return f"{rocwmma.kind} {rocwmma.version}"


_DEFAULT_ARCH = "gfx1151"
_OLDEST_PYTHON = (3, 11)  # pyproject.toml, requires-python

# Measured at build 6900: source package 26 MB, unpacked tree 101 MB, repository with the pin and a candidate
# 30 MB. The rest is room for more pins.
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
    """Run all checks, ordered by when their failure would stop a run.

    ``archs``: the GPUs to build for, by default this machine's, else gfx1151.
    """
    archs = archs or default_archs()
    return (
        _checked("python", _python),
        _checked("git", lambda: "git {}.{}".format(*check_git(reporter))),
        _checked("libclang", lambda: library_version().strip()),
        _checked("cache", lambda: _cache(cache_root)),
        _checked("series", lambda: _series(series_dir)),
        _checked("pins", lambda: _pins(cache_root, reporter)),
        _checked("gpu", _gpu),
        _checked("cmake", lambda: _cmake(environ)),
        _checked("c++ compiler", lambda: _cxx(environ)),
        *check_toolchain(cache_root, archs=archs, environ=environ, reporter=reporter),
    )


def default_archs() -> tuple[str, ...]:
    """The GPUs of this machine, else gfx1151."""
    return detect_gpus() or (_DEFAULT_ARCH,)


def _python() -> str:
    version = sys.version_info[:2]
    if version < _OLDEST_PYTHON:
        raise ToolchainError(
            f"Python {version[0]}.{version[1]} is not supported",
            code="PYTHON_UNSUPPORTED",
            where=Location(path=sys.executable),
            hint="use Python {}.{} or newer".format(*_OLDEST_PYTHON),
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
            f"only {free / 1e6:.0f} MB are free in the cache folder {root}; one llama.cpp build needs "
            f"{_FREE_BYTES / 1e6:.0f} MB",
            code="CACHE_LOW_SPACE",
            where=Location(path=str(root)),
            hint="free disk space, or choose another folder with --cache-dir",
        )
    return f"{root} ({free / 1e9:.1f} GB free)"


def _series(explicit: Path | None) -> str:
    series = find_series_dir(explicit)
    catalogue = load_catalogue(series)
    load_proven_series(series.patches)  # also checks [gates], which load_catalogue does not read
    gpus = f"{len(catalogue.profiles)} GPUs, " if catalogue.profiles else ""
    counts = f"{len(catalogue.patches)} patches, {gpus}{len(catalogue.lock.pins)} llama.cpp builds"
    return f"{counts} in {series.root} ({series.origin})"


def _pins(cache_root: Path, reporter: Reporter) -> str:
    prefix = "refs/patchkit/pin/"
    repository = open_cache(cache_root).peek(reporter)
    refs = list_refs(repository, prefix) if repository is not None else {}
    if repository is not None:
        _verify(repository)
    if not refs:
        raise _Absent("no llama.cpp build downloaded yet", "patchkit apply downloads it")
    return f"downloaded: {', '.join(name.removeprefix(prefix) for name in refs)}"


def _verify(repository: Repository) -> None:
    """Run git fsck (2 s at build 6900); raise ObjectDamaged with its output."""
    finished = repository.git.attempt("fsck", "--full", "--no-dangling", "--no-progress")
    if finished.status != 0:
        text = (finished.stderr + finished.stdout.decode("utf-8", "replace")).strip()
        raise damaged(repository.path, "\n".join(text.splitlines()[:_SHOWN]) or "git fsck found errors")


def _gpu() -> str:
    found = detect_gpus()
    if not found:
        raise _Absent(
            "no AMD GPU found",
            "name your GPU with --arch; if this machine has one, the kernel driver amdgpu (kfd) "
            "does not list it",
        )
    return ", ".join(found)


def _cxx(environ: Mapping[str, str]) -> str:
    missing = [name for name in ("cc", "c++") if shutil.which(name, path=environ.get("PATH")) is None]
    if missing:
        raise _Absent(
            f"no {' and no '.join(missing)} on PATH",
            "needed to build llama.cpp, and by the gates cpu-build and cpu-tests: install the package g++",
        )
    return str(shutil.which("c++", path=environ.get("PATH")))


def _cmake(environ: Mapping[str, str]) -> str:
    path = shutil.which("cmake", path=environ.get("PATH"))
    if path is None:
        raise _Absent("no cmake on PATH", "python -m pip install cmake, or your distribution's package")
    return path
