"""Whether this machine has what patchkit needs, and what a build of llama.cpp will need."""

from __future__ import annotations

import functools
import platform
import re
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
from patchkit.gpu.hardware.gpus import detect_gpus, gfx_name
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

State = Literal["ok", "warn", "absent", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; ``error`` is set when it failed, ``hint`` says what to do about what is not ok."""

    json_keys: ClassVar = "name state detail hint code=error.code"

    name: str
    state: State
    detail: str
    hint: str | None = None
    error: PatchkitError | None = None


class _Noted(Exception):
    """What a check looked for is not there, or not good; ``hint`` says what to do."""

    state: State

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


class _Absent(_Noted):
    """What a check looked for is not there."""

    state = "absent"


class _Warned(_Noted):
    """What a check looked for is there, and does harm."""

    state = "warn"


def _checked(name: str, look: Callable[[], str]) -> Check:
    """What ``look`` found, or why it did not."""
    try:
        return Check(name=name, state="ok", detail=look())
    except _Noted as noted:
        return Check(name=name, state=noted.state, detail=noted.detail, hint=noted.hint)
    except ErrorGroup as group:
        detail = f"{group.message}: {len(group.errors)} errors"
        return Check(name=name, state="failed", detail=detail, hint=group.errors[0].hint, error=group)
    except PatchkitError as error:
        detail = "".join([error.message, *(f" ({place})" for place in error.where[:1])])
        return Check(name=name, state="failed", detail=detail, hint=error.hint, error=error)


_INSTALL = "patchkit sdk install"

# docs/guide/strix-halo.md. With headers before 6.3 builds fail at __hip_fp8_e4m3 (llama.cpp issue 27303).
_OLDEST_ROCM = (6, 4)
# ROCm/rocm-systems issue 2865, llama.cpp issue 19984; docs/records/timing-model.md compares the compilers.
_ROCM_THAT_UNROLLS = (7, 2, 0)
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"  # of all GPUs; with _0, _1, ... of one


def check_toolchain(
    cache_root: Path, *, archs: tuple[str, ...], environ: Mapping[str, str], reporter: Reporter
) -> tuple[Check, ...]:
    """The checks, for building for ``archs``."""
    toolchains: list[Toolchain] = []

    def look() -> str:
        try:
            toolchains.append(find_toolchain(cache_root, environ, _Quiet(reporter)))
        except ToolchainMissing as error:
            raise _Absent(error.message, error.hint) from error
        return _toolchain(toolchains[0], archs, found, reporter)

    found = [inspect_rocm(place, environ) for place in rocm_locations(environ)]
    checks = [_checked("rocm", functools.partial(_rocm, each)) for each in found or (None,)]
    checks += [_checked("sdk", lambda: _sdk(cache_root)), _checked("hip toolchain", look)]
    for toolchain in toolchains:
        checks += [_checked("rocwmma", functools.partial(_rocwmma, toolchain, arch)) for arch in archs]
    return tuple(checks)


class _Quiet(NullReporter):
    """Hands on the commands only: what is passed over has a check of its own."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def command(self, text: str) -> None:
        """Echo it."""
        self._reporter.command(text)


def _rocm(found: RocmInstallation | None) -> str:
    if found is None:
        raise _Absent(
            "no ROCm in ROCM_PATH, /opt, Python's packages or the distribution's",
            f"a GPU needs it to run; to compile without, {_INSTALL}",
        )
    where = f"{found.place.root} ({found.place.origin})"
    if found.missing_parts:
        raise _Absent(
            f"{where} lacks {' and '.join(found.missing_parts)}",
            f"install ROCm's development packages, or {_INSTALL}",
        )
    what = f"{found.version or found.hip_version}, {where}"
    _check_build(what, found)
    if found.release == _ROCM_THAT_UNROLLS:
        raise _Warned(
            f"{what}: its compiler unrolls the loops of mul_mat_q; prompt processing is 2 to 3 times slower",
            "use ROCm 7.2.1 or newer; or add to cmake: "
            '-DCMAKE_HIP_FLAGS="-mllvm --amdgpu-unroll-threshold-local=600" (patches can avoid it, too: '
            "docs/guide/strix-halo.md)",
        )
    return what


def _check_build(what: str, found: RocmInstallation) -> None:
    """Whether llama.cpp can be built with a ROCm; raises _Absent."""
    if found.release[: len(_OLDEST_ROCM)] < _OLDEST_ROCM:
        raise _Absent(
            f"{what}: too old to build llama.cpp",
            "install ROCm {}.{} or newer".format(*_OLDEST_ROCM) + f"; to compile without ROCm, {_INSTALL}",
        )
    if found.missing_packages:
        raise _Absent(
            f"{what}: cannot build llama.cpp, which needs the CMake packages hip-lang, hip, hipblas and "
            f"rocblas (lib/cmake/NAME/NAME-config.cmake); missing: {', '.join(found.missing_packages)}",
            "install hip-dev, hipblas-dev and rocblas-dev of ROCm (of Debian and Ubuntu: libamdhip64-dev, "
            f"libhipblas-dev, librocblas-dev); to compile without ROCm, {_INSTALL}",
        )


def _sdk(cache_root: Path) -> str:
    prefix = current_prefix(cache_root)
    if prefix is None:
        raise _Absent("not installed", f"to compile without ROCm: {_INSTALL}")
    hipcc = f", {prefix.hipcc}" if prefix.hipcc.exists() else ""
    older = f"; older, it lacks {prefix.lacks}: {_INSTALL} --again" if prefix.lacks else ""
    return f"{prefix.path} ({prefix.record.suite}{hipcc}){older}"


def _toolchain(
    toolchain: Toolchain, archs: tuple[str, ...], found: Sequence[RocmInstallation], reporter: Reporter
) -> str:
    what = f"{toolchain.kind}: clang {toolchain.clang_version}, HIP {toolchain.hip_version}"
    unknown = sorted(set(archs) - known_archs(toolchain.clang, reporter))
    if unknown:
        raise _Absent(
            f"{what}; its compiler does not know {', '.join(unknown)}",
            f"use a newer ROCm, or without ROCM_PATH: {_INSTALL} --again",
        )
    if toolchain.kind == "rocm":
        _check_build(what, next(each for each in found if each.place.root == toolchain.root))
    return f"{what} ({toolchain.clang})"


def _rocwmma(toolchain: Toolchain, arch: str) -> str:
    own, chosen = toolchain.rocwmma, rocwmma_for(toolchain, arch)
    if own is not None and own == chosen and own.kind != "stand-in":
        return f"{_named(own)} knows {arch}"
    if chosen is None and toolchain.kind == "sdk":
        raise _Absent(f"{arch}: no rocWMMA here knows it")
    if own is None:
        why = "there is none"
    elif own.kind == "stand-in":
        why = "the SDK was installed without it"
    else:
        why = f"{_named(own)} does not know {arch}" if not knows_arch(own, arch) else _named(own)
    with_what = f"; patchkit's stand-in header {chosen.version} is used" if chosen is not None else ""
    if toolchain.kind == "rocm":
        hint = "install rocWMMA's development package (rocwmma-dev) of a ROCm that knows the GPU"
    else:
        hint = f"{_INSTALL} --again, where rocWMMA's repository can be reached (or with --rocwmma-url)"
    raise _Absent(f"{arch}: {why}{with_what}", hint)


def _named(rocwmma: RocWmma) -> str:
    return f"{rocwmma.kind} {rocwmma.version}"


_DEFAULT_ARCH = "gfx1151"
_OLDEST_PYTHON = (3, 11)  # pyproject.toml, requires-python

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
        _checked("python", _python),
        _checked("git", lambda: "git {}.{}".format(*check_git(reporter))),
        _checked("libclang", lambda: library_version().strip()),
        _checked("cache", lambda: _cache(cache_root)),
        _checked("series", lambda: _series(series_dir)),
        _checked("pins", lambda: _pins(cache_root, reporter)),
        _checked("gpu", _gpu),
        _checked("gpu override", lambda: _override(archs, environ)),
        _checked("cmake", lambda: _cmake(environ)),
        *check_toolchain(cache_root, archs=archs, environ=environ, reporter=reporter),
    )


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
            f"only {free / 1e6:.0f} MB are free, a pin needs {_FREE_BYTES / 1e6:.0f} MB",
            code="CACHE_LOW_SPACE",
            where=Location(path=str(root)),
            hint="free some space there, or name another folder with --cache-dir",
        )
    return f"{root} ({free / 1e9:.1f} GB free)"


def _series(explicit: Path | None) -> str:
    series = find_series_dir(explicit)
    catalogue = load_catalogue(series)
    load_proven_series(series.patches)  # what a branch must have passed is read here, and by no other check
    gpus = f"{len(catalogue.profiles)} GPUs, " if catalogue.profiles else ""
    counts = f"{len(catalogue.patches)} patches, {gpus}{len(catalogue.lock.pins)} pins"
    return f"{counts} in {series.root} ({series.origin})"


def _pins(cache_root: Path, reporter: Reporter) -> str:
    prefix = "refs/patchkit/pin/"
    repository = open_cache(cache_root).peek(reporter)
    refs = list_refs(repository, prefix) if repository is not None else {}
    if repository is not None:
        _verify(repository)
    if not refs:
        raise _Absent("none cached", "patchkit apply fetches the pin")
    return f"cached: {', '.join(name.removeprefix(prefix) for name in refs)}"


def _verify(repository: Repository) -> None:
    """Have git read every object (2 s at build 6900); raises ObjectDamaged with what it says."""
    finished = repository.git.attempt("fsck", "--full", "--no-dangling", "--no-progress")
    if finished.status != 0:
        text = (finished.stderr + finished.stdout.decode("utf-8", "replace")).strip()
        raise damaged(repository.path, "\n".join(text.splitlines()[:_SHOWN]) or "git fsck found errors")


def _gpu() -> str:
    found = detect_gpus()
    if not found:
        raise _Absent(
            "no AMD GPU on this machine",
            "name one with --arch; the kernel driver amdgpu lists them under the kfd topology",
        )
    return ", ".join(found)


def _override(archs: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """Whether ROCm tells programs that a GPU is another one than it is."""
    names = [name for name in sorted(environ) if re.fullmatch(rf"{_OVERRIDE}(_[0-9]+)?", name)]
    others = [name for name in names if environ[name] and _overriding(environ[name]) not in archs]
    if others:
        named = ", ".join(f"{name}={environ[name]} ({_overriding(environ[name])})" for name in others)
        raise _Warned(
            f"{named}: programs see this GPU, so code and patches for {' '.join(archs)} are not used",
            f"unset {' '.join(others)}",
        )
    return ", ".join(f"{name}={environ[name]}" for name in names) or f"{_OVERRIDE} is not set"


def _overriding(version: str) -> str:
    """The GPU that a value stands for: ``11.5.1`` is gfx1151, ``9.0.10`` is gfx90a."""
    parts = version.split(".")
    if len(parts) != 3 or not all(re.fullmatch("[0-9]{1,2}", part) for part in parts):  # noqa: PLR2004
        return "not a GPU version"
    major, minor, stepping = map(int, parts)
    return gfx_name(major * 10000 + minor * 100 + stepping)


def _cmake(environ: Mapping[str, str]) -> str:
    path = shutil.which("cmake", path=environ.get("PATH"))
    if path is None:
        raise _Absent("no cmake on PATH", "python -m pip install cmake, or the package of your system")
    return path
