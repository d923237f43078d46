"""The compiler of an SDK prefix: an installed clang, or the distribution's, unpacked into the prefix."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import PatchkitError, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.apt import AvailablePackage, Client
from patchkit.toolchain.sdk.flags import leading_number
from patchkit.toolchain.sdk.packages import unpack
from patchkit.toolchain.sdk.prefix import Package
from patchkit.toolchain.sdk.versions import clang_version, known_archs

_TOOLS = ("ld.lld", "clang-offload-bundler", "llvm-objdump", "llvm-readelf", "llvm-cxxfilt")


# libomp is for hipcc -fopenmp, which 36 programs of HeCBench use.
_PACKAGES = ("clang-{n}", "clang-tools-{n}", "lld-{n}", "llvm-{n}", "libclang-rt-{n}-dev", "libomp-{n}-dev")


_OF_LLVM = re.compile(r"(?:lib)?(?:clang|llvm|lld|omp)")


# Shared libraries, without headers, the C library and 32-bit libraries.
_LIBRARY = re.compile(r"lib(?!32|x32|c6).*(?<!-dev)")


_ANSWER_S = 30.0


# Wrapper that runs the program of the same name from the unpacked packages, with their libraries first.
_WRAPPER = """#!/bin/sh
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
usr=$here/../compiler/usr
LD_LIBRARY_PATH=$usr/lib/{multiarch}:$usr/lib/llvm-{major}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$usr/lib/llvm-{major}/bin/${{0##*/}}" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkCompiler:
    """A compiler; ``path`` is absolute for an installed one, else relative to the prefix."""

    path: str
    version: str
    packages: tuple[Package, ...] = ()


def find_compiler(
    environ: Mapping[str, str], *, minimum: int, arch: str, reporter: Reporter
) -> tuple[SdkCompiler | None, tuple[str, ...]]:
    """The newest usable clang that is installed, and the reasons why newer ones were rejected."""
    rejections: list[str] = []
    for path in _clangs(environ):
        try:
            version = clang_version(path, reporter)
            reason = _rejection(path, version, minimum, arch, reporter)
        except PatchkitError as error:
            version, reason = None, error.message
        if version is not None and reason is None:
            return SdkCompiler(path=str(path), version=version), tuple(rejections)
        rejections.append(f"{path}: {reason}")
    return None, tuple(rejections)


def obtain_compiler(
    client: Client, prefix: Path, *, minimum: int, at_least: int, rejections: tuple[str, ...]
) -> SdkCompiler:
    """Unpack the newest clang of the machine's own suites into ``prefix``/compiler.

    Args:
        client: apt client for the machine's own suites, with an updated index.
        prefix: the prefix that is being created.
        minimum: the oldest clang version that patchkit supports.
        at_least: the oldest clang version that can read the device libs.
        rejections: why installed compilers were rejected, for the message.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: the suites have no clang.
        SDK_UNUSABLE: the suites have only older versions.
    """
    numbers = [int(name[6:]) for name in client.names("clang-") if re.fullmatch(r"clang-\d+", name)]
    what = "the compiler"
    if not numbers:
        raise ToolchainError(
            "no usable clang is installed, and the apt suites of this machine have none",
            code="SDK_PACKAGES_UNAVAILABLE",
            why="; ".join(rejections) or None,
            hint="install clang, lld and llvm of the same version, or add a suite that has them",
        )
    newest = max(numbers)
    if newest < max(minimum, at_least):
        raise ToolchainError(
            f"the newest available clang is {newest}; {max(minimum, at_least)} or newer is required",
            code="SDK_UNUSABLE",
            why="; ".join(rejections) or f"the device libs are of LLVM {at_least}",
            hint="add a suite with a newer clang to apt's sources (backports or updates)",
        )
    closure = client.closure([name.format(n=newest) for name in _PACKAGES], what)
    # apt may choose an older libomp, which depends on an older libllvm: 26 MB that it does not use.
    others = re.compile(rf"libllvm(?!{newest}\b)\d+")
    wanted = tuple(
        one for one in parts_to_unpack(closure, _installed(client.reporter)) if not others.fullmatch(one.name)
    )
    client.download(wanted, prefix / "debs", what)
    packages = unpack(prefix / "debs", wanted, prefix / "compiler", client.reporter)
    _write_wrappers(prefix, newest)
    version = clang_version(prefix / "bin" / "clang++", client.reporter) or str(newest)
    return SdkCompiler(path="bin/clang++", version=version, packages=packages)


def parts_to_unpack(
    closure: Sequence[AvailablePackage], installed: Container[str]
) -> tuple[AvailablePackage, ...]:
    """The packages of a compiler's dependencies that the prefix must contain.

    These are all of LLVM's own packages, installed or not, and the shared libraries that the machine lacks.
    Headers and the C++ library are used from the machine, because the compiler searches only there.
    """
    return tuple(
        one
        for one in closure
        if _OF_LLVM.match(one.name) or (_LIBRARY.fullmatch(one.name) and one.name not in installed)
    )


def _clangs(environ: Mapping[str, str]) -> list[Path]:
    """All clang++ on PATH, by the version in the name, the newest first; those without one are last."""
    found: dict[Path, int] = {}
    folders = [Path(folder) for folder in (environ.get("PATH") or "").split(os.pathsep) if folder]
    for folder in {folder.resolve(): folder for folder in reversed(folders)}.values():  # /bin may be /usr/bin
        for path in sorted(folder.glob("clang++*")):
            name = re.fullmatch(r"clang\+\+(?:-(\d+))?", path.name)
            if name is not None and shutil.which(str(path)):
                found.setdefault(path, int(name[1] or 0))
    return sorted(found, key=lambda path: -found[path])


def _installed(reporter: Reporter) -> frozenset[str]:
    argv = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n"]
    lines = (
        run_tool(argv, timeout_s=_ANSWER_S, reporter=reporter).stdout.decode("utf-8", "replace").splitlines()
    )
    return frozenset(line.removeprefix("installed ") for line in lines if line.startswith("installed "))


def _rejection(clang: Path, version: str | None, minimum: int, arch: str, reporter: Reporter) -> str | None:
    """Why a compiler cannot be used; None if it can."""
    if version is None:
        return "it is not clang"
    if leading_number(version) < minimum:
        return f"it is {version}; {minimum} or newer is required"
    if arch not in known_archs(clang, reporter):
        return f"it does not support {arch}"
    lacks = [
        tool for tool in _TOOLS if not _prints_file(clang, f"-print-prog-name={tool}", reporter=reporter)
    ]
    if not _prints_file(clang, "-print-libgcc-file-name", "--rtlib=compiler-rt", reporter=reporter):
        lacks.append("its run-time library (package libclang-rt-N-dev)")
    return f"it lacks {', '.join(lacks)}" if lacks else None


def _prints_file(clang: Path, *options: str, reporter: Reporter) -> bool:
    """Whether the file that the compiler prints with these options exists."""
    done = run_tool([str(clang), *options], timeout_s=_ANSWER_S, check=False, reporter=reporter)
    path = Path(done.stdout.decode("utf-8", "replace").strip())
    return done.returncode == 0 and path.is_absolute() and path.is_file()


def _write_wrappers(prefix: Path, major: int) -> None:
    usr = prefix / "compiler" / "usr"
    with disk_errors(prefix, "writing the compiler's wrappers"):
        programs = sorted(path.name for path in (usr / "lib" / f"llvm-{major}" / "bin").iterdir())
        multiarch = sorted(path.name for path in (usr / "lib").glob("*-linux-gnu*"))
        folder = prefix / "bin"
        folder.mkdir()
        wrapper = folder / "run"
        wrapper.write_text(
            _WRAPPER.format(major=major, multiarch=multiarch[0] if multiarch else "."), encoding="ascii"
        )
        wrapper.chmod(0o755)
        for program in programs:
            (folder / program).symlink_to("run")
