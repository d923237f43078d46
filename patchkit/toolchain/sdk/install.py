"""Installs and removes the SDK prefix."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import PatchkitError, SourceError, ToolchainError
from patchkit.base.files import disk_errors, replace_link
from patchkit.base.locks import locked
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.apt import AvailablePackage, Client, make_client, read_apt_config
from patchkit.toolchain.sdk.compiler import SdkCompiler, find_compiler, obtain_compiler
from patchkit.toolchain.sdk.flags import hip_arguments, leading_number
from patchkit.toolchain.sdk.hipcc import write_hipcc
from patchkit.toolchain.sdk.packages import unpack
from patchkit.toolchain.sdk.pins import Pins
from patchkit.toolchain.sdk.prefix import (
    STANDIN,
    Package,
    Prefix,
    Record,
    current_prefix,
    newest_recipe,
    sdk_folder,
    write_record,
)
from patchkit.toolchain.sdk.rocwmma import FetchFolder, obtain_rocwmma
from patchkit.toolchain.sdk.smoke import smoke
from patchkit.toolchain.sdk.sources import AptSource, choose_mirror, load_entries
from patchkit.toolchain.sdk.stubs import build_stubs, complete_layout
from patchkit.toolchain.sdk.versions import (
    bitcode_llvm,
    check_bitcode,
    check_majors,
    hip_version,
    rocwmma_version,
)

RocWmmaChoice = Literal["auto", "git", "stand-in"]


_BITCODE = "usr/lib/**/amdgcn/bitcode/ocml.bc"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """What to install.

    ``environ`` provides PATH and proxies; ``fetch`` fetches rocWMMA from its remote; ``suites`` overrides
    those of the pins, and ``entries`` the apt sources of this machine. ``again``: even if it is installed.
    """

    cache_root: Path
    pins: Pins
    environ: Mapping[str, str]
    fetch: FetchFolder
    suites: tuple[str, ...] = ()
    rocwmma: RocWmmaChoice = "auto"
    rocwmma_url: str | None = None
    again: bool = False
    entries: tuple[AptSource, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """The unpacked packages, their suite, and the compiler."""

    suite: str
    packages: tuple[Package, ...]
    compiler: SdkCompiler


def make_prefix(new: Path, request: InstallRequest, reporter: Reporter) -> Record:
    """Create a prefix in the empty folder ``new``, and return its record.

    Raises:
        PatchkitError: an SDK_ error, a disk error, or the failure of a tool.
    """
    scratch = new / "scratch"
    with disk_errors(scratch, "creating a prefix"):
        scratch.mkdir()
    fetched = _fetch(new, scratch, request, reporter)
    root = new / "usr"
    hip, device_libs, device_libs_version = _check(new, fetched, request.pins)
    clang = new / fetched.compiler.path
    reporter.step("building stub libraries")
    stubs = build_stubs(root, clang, reporter)
    complete_layout(root)
    kind, rocwmma_version = _rocwmma(new, scratch, request, reporter)
    reporter.step(f"compiling a kernel for {request.pins.smoke_arch}")
    flags = hip_arguments(
        root=root,
        device_libs=device_libs,
        clang_version=fetched.compiler.version,
        hip_version=hip,
        arch=request.pins.smoke_arch,
        which="both",
        rocwmma=new / "rocwmma" if kind == "git" else STANDIN,
    )
    libraries = next(path.parent for path in sorted(root.glob("lib/**/libamdhip64.so")))
    wmma = kind == "git" or (STANDIN / "rocwmma" / "rocwmma.hpp").is_file()
    smoke(clang, flags, libraries, scratch, wmma=wmma, reporter=reporter)
    with disk_errors(scratch, "creating a prefix"):
        shutil.rmtree(scratch)
    record = Record(
        suite=fetched.suite,
        packages=fetched.packages,
        compiler=fetched.compiler.path,
        compiler_version=fetched.compiler.version,
        compiler_packages=fetched.compiler.packages,
        hip_version=hip,
        device_libs=str(device_libs.relative_to(new)),
        device_libs_version=device_libs_version,
        rocwmma_kind=kind,
        rocwmma_version=rocwmma_version,
        stubs=stubs,
        downloaded=sum(one.size for one in (*fetched.packages, *fetched.compiler.packages)),
        recipe=newest_recipe(),
    )
    write_hipcc(Prefix(path=new, record=record))
    write_record(new, record)
    return record


def _fetch(new: Path, scratch: Path, request: InstallRequest, reporter: Reporter) -> _Fetched:
    entries = machine_entries(reporter) if request.entries is None else request.entries
    mirror = choose_mirror(entries)
    suites = request.suites or request.pins.suites
    for number, suite in enumerate(suites, start=1):
        client = make_client(
            scratch / suite,
            mirror.for_suite(suite).as_stanza(),
            environ=request.environ,
            reporter=reporter,
        )
        reporter.step(f"reading the package index of {suite}")
        what = f"the suite {suite}"
        try:
            client.update(what)
            wanted = client.find(request.pins.packages, what)
            candidates = _device_libs(client, request.pins, what)
        except SourceError as error:
            if error.code != "SDK_PACKAGE_MISSING" or number == len(suites):
                raise
            reporter.info(f"{error.message}; trying the suite {suites[number]}")
            continue
        compiler, device_libs = _compiler(new, scratch, candidates, entries, request, reporter)
        wanted = (*wanted, device_libs)
        _check_size(wanted, request.pins)
        client.download(wanted, new / "debs", f"{len(wanted)} packages of {suite}")
        packages = unpack(new / "debs", wanted, new, reporter)
        with disk_errors(new, "unpacking packages"):
            (new / "debs").rmdir()
        return _Fetched(suite=suite, packages=packages, compiler=compiler)
    raise SourceError(
        "there is no suite of the distribution to download packages from",
        code="SDK_PACKAGE_MISSING",
        hint="name one with --suite",
    )


def machine_entries(reporter: Reporter) -> tuple[AptSource, ...]:
    """The apt sources of this machine, from the files that its apt configuration names."""
    text = read_apt_config(
        ["shell", "MAIN", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"], reporter
    )
    paths = dict(line.replace("'", "").partition("=")[::2] for line in text.splitlines())
    return load_entries(Path(paths.get("MAIN", "/")), Path(paths.get("PARTS", "/nowhere")))


def _device_libs(client: Client, pins: Pins, what: str) -> tuple[AvailablePackage, ...]:
    """The packages of device bitcode, the newest LLVM first."""
    prefix = pins.device_libs_prefix
    names = [name for name in client.names(prefix) if name.removeprefix(prefix).isdecimal()]
    if not names:
        raise SourceError(
            f"{what} lacks {prefix}<LLVM version>",
            code="SDK_PACKAGE_MISSING",
            hint="try another suite: patchkit sdk install --suite sid",
        )
    found = client.find(names, what)
    return tuple(sorted(found, key=lambda one: -int(one.name.removeprefix(prefix))))


def _compiler(
    new: Path,
    scratch: Path,
    device_libs: tuple[AvailablePackage, ...],
    entries: tuple[AptSource, ...],
    request: InstallRequest,
    reporter: Reporter,
) -> tuple[SdkCompiler, AvailablePackage]:
    """A compiler and the newest device libs that it can read."""
    pins = request.pins
    llvm_of = {one: int(one.name.removeprefix(pins.device_libs_prefix)) for one in device_libs}
    oldest = min(llvm_of.values())
    minimum = max(pins.minimum_clang, oldest)
    compiler, rejections = find_compiler(
        request.environ, minimum=minimum, arch=pins.smoke_arch, reporter=reporter
    )
    if compiler is None:
        reporter.info("no usable compiler is installed; the distribution's is added to the prefix")
        for rejection in rejections:
            reporter.info(rejection)
        stanzas = "\n".join(entry.as_stanza() for entry in entries)
        client = make_client(scratch / "machine", stanzas, environ=request.environ, reporter=reporter)
        reporter.step("reading the package index of this machine's suites")
        client.update("the machine's own suites")
        compiler = obtain_compiler(
            client, new, minimum=pins.minimum_clang, at_least=oldest, rejections=rejections
        )
    readable = [one for one in device_libs if llvm_of[one] <= leading_number(compiler.version)]
    return compiler, readable[0] if readable else device_libs[-1]


def _check_size(wanted: tuple[AvailablePackage, ...], pins: Pins) -> None:
    total = sum(one.size for one in wanted)
    if total > pins.download_limit:
        largest = max(wanted, key=lambda one: one.size)
        raise SourceError(
            f"the packages have {total / 1e6:.0f} MB; the limit is {pins.download_limit / 1e6:.0f} MB",
            code="SDK_PACKAGES_UNAVAILABLE",
            why=f"the largest is {largest.name} with {largest.size / 1e6:.0f} MB",
            hint="the suite has changed its packages; try another with --suite",
        )


def _check(new: Path, fetched: _Fetched, pins: Pins) -> tuple[str, Path, str]:
    """The HIP version, and the folder and version of the device libs, after checking that they match."""
    found = hip_version(new / "usr" / "include")
    bitcode = [path.parent for path in sorted(new.glob(_BITCODE))]
    if found is None or not bitcode:
        part = "HIP headers" if found is None else "device libs"
        raise ToolchainError(
            f"no {part} found in the unpacked packages",
            code="SDK_UNUSABLE",
            why="the layout of the packages is unknown to patchkit",
            hint="the suite has changed its packages; try another with --suite",
        )
    newest = max(bitcode, key=lambda path: bitcode_llvm(path) or 0)
    versions = {one.name: one.version for one in fetched.packages}
    device_libs_version = next(
        version for name, version in versions.items() if name.startswith(pins.device_libs_prefix)
    )
    parts = {"device libs": device_libs_version}
    for name, package in (("hipBLAS headers", "libhipblas-dev"), ("rocBLAS headers", "librocblas-dev")):
        if package in versions:
            parts[name] = versions[package]
    check_majors(found, parts, pins.goes_with_hip, new)
    check_bitcode(newest, fetched.compiler.version)
    return found, newest, device_libs_version


def _rocwmma(
    new: Path, scratch: Path, request: InstallRequest, reporter: Reporter
) -> tuple[Literal["git", "stand-in"], str]:
    pin = request.pins.rocwmma
    if request.rocwmma != "stand-in":
        reporter.step("fetching rocWMMA")
        url = request.rocwmma_url or pin.url
        try:
            return "git", obtain_rocwmma(pin, url, new / "rocwmma", scratch, reporter, request.fetch)
        except SourceError as error:
            if request.rocwmma == "git" or error.code == "SDK_ROCWMMA_MISMATCH":
                raise
            reporter.warn(f"using patchkit's stand-in header instead of rocWMMA: {error.message}")
    return "stand-in", rocwmma_version(STANDIN)


def install(request: InstallRequest, reporter: Reporter) -> tuple[Prefix, bool]:
    """Install the prefix of a cache, unless there is an intact one; returns it, and whether it is new.

    Raises:
        PatchkitError: as :func:`make_prefix`; no partial prefix remains visible.
    """
    folder = sdk_folder(request.cache_root)
    with _locked(folder, reporter):
        _sweep(folder, reporter)
        present = None if request.again else _intact_prefix(request.cache_root)
        if present is not None:
            write_hipcc(present)
            return present, False
        with disk_errors(folder, "creating a prefix"):
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            new.chmod(0o755)
        try:
            record = make_prefix(new, request, reporter)
            return _publish(new, record, folder, reporter), True
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _intact_prefix(cache_root: Path) -> Prefix | None:
    """The installed prefix; None if there is none, or it is damaged."""
    try:
        return current_prefix(cache_root)
    except PatchkitError:
        return None


def remove(cache_root: Path, reporter: Reporter) -> tuple[Path, ...]:
    """Remove all prefixes of a cache; returns the removed folders."""
    folder = sdk_folder(cache_root)
    if not folder.is_dir():
        return ()
    with _locked(folder, reporter):
        _sweep(folder, reporter)
        gone = []
        with disk_errors(folder, "removing the SDK"):
            (folder / "current").unlink(missing_ok=True)
            for path in sorted(folder.iterdir()):
                if path.is_dir() and not path.is_symlink():
                    _discard(path)
                    gone.append(path)
    return tuple(gone)


def _publish(new: Path, record: Record, folder: Path, reporter: Reporter) -> Prefix:
    """Rename the prefix to its id, make it the current one, and remove older ones.

    Replacing one of the same name is not atomic: a run that is killed between the two steps leaves a
    dangling link, which is reported as a damaged prefix.
    """
    path = folder / record.id
    with disk_errors(path, "publishing the prefix"):
        if path.exists():  # a damaged prefix with the same content, or an intact one of a killed run
            _discard(path)
        new.rename(path)
        replace_link(folder / "current", path.name)
        for other in sorted(folder.iterdir()):
            if other != path and other.is_dir() and not other.is_symlink():
                reporter.info(f"removing the older prefix {other.name}")
                _discard(other)
    return Prefix(path=path, record=record)


def _sweep(folder: Path, reporter: Reporter) -> None:
    """Remove the remains of killed runs. The lock is held, so no other run is using them.

    An apt process that outlived its patchkit may still write there; that is removed next time.
    """
    with disk_errors(folder, "removing the remains of a killed run"):
        for path in sorted(folder.glob(".*")):
            reporter.info(f"removing the remains of a killed run: {path.name}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _discard(path: Path) -> None:
    """Remove a prefix: rename it, which is atomic, then delete its files."""
    gone = path.with_name(f".old-{path.name}")
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)  # the next run removes the rest


def _locked(folder: Path, reporter: Reporter) -> AbstractContextManager[int]:
    text = "waiting for another patchkit that is installing or removing the SDK"
    return locked(folder / "lock", waiting=lambda: reporter.info(text), doing="locking the SDK folder")
