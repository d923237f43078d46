"""The compiler of a prefix: one that is installed, else the distribution's, unpacked into the prefix."""

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
from patchkit.toolchain.sdk.apt import Client, Wanted
from patchkit.toolchain.sdk.flags import leading_number
from patchkit.toolchain.sdk.packages import unpack
from patchkit.toolchain.sdk.prefix import Package
from patchkit.toolchain.sdk.versions import clang_version, known_archs

_TOOLS = ("ld.lld", "clang-offload-bundler", "llvm-objdump", "llvm-readelf", "llvm-cxxfilt")


# The last is for hipcc -fopenmp, which 36 programs of HeCBench are built with.
_PACKAGES = ("clang-{n}", "clang-tools-{n}", "lld-{n}", "llvm-{n}", "libclang-rt-{n}-dev", "libomp-{n}-dev")


_OF_LLVM = re.compile(r"(?:lib)?(?:clang|llvm|lld|omp)")


# Shared libraries; not headers, not the C library, which is every program's, not those of 32-bit programs.
_LIBRARY = re.compile(r"lib(?!32|x32|c6).*(?<!-dev)")


_ANSWER_S = 30.0


# Runs the program of its own name from the unpacked packages, with their libraries before the system's.
_WRAPPER = """#!/bin/sh
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
usr=$here/../compiler/usr
LD_LIBRARY_PATH=$usr/lib/{multiarch}:$usr/lib/llvm-{major}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$usr/lib/llvm-{major}/bin/${{0##*/}}" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """``path`` is absolute for an installed compiler, else relative to the prefix."""

    path: str
    version: str
    packages: tuple[Package, ...] = ()


def find_compiler(
    environ: Mapping[str, str], *, minimum: int, arch: str, reporter: Reporter
) -> tuple[Compiler | None, tuple[str, ...]]:
    """The newest installed clang that serves; and why each newer one does not."""
    complaints: list[str] = []
    for path in _clangs(environ):
        try:
            version = clang_version(path, reporter)
            complaint = _complaint(path, version, minimum, arch, reporter)
        except PatchkitError as error:
            version, complaint = None, error.message
        if version is not None and complaint is None:
            return Compiler(path=str(path), version=version), tuple(complaints)
        complaints.append(f"{path}: {complaint}")
    return None, tuple(complaints)


def obtain_compiler(
    client: Client, prefix: Path, *, minimum: int, at_least: int, complaints: tuple[str, ...]
) -> Compiler:
    """Unpack the newest clang of the machine's own suites into ``prefix``/compiler.

    Args:
        client: of the machine's own suites, updated.
        prefix: being made.
        minimum: the oldest clang that patchkit takes.
        at_least: the oldest that can read the device libs.
        complaints: about the installed ones, for the message.

    Raises:
        SDK_COMPILER_UNAVAILABLE: the suites have no clang at all.
        SDK_COMPILER_TOO_OLD: they only have older ones.
    """
    numbers = [int(name[6:]) for name in client.names("clang-") if re.fullmatch(r"clang-\d+", name)]
    what = "the compiler"
    if not numbers:
        raise ToolchainError(
            "no compiler that serves is installed, and the machine's suites have none",
            code="SDK_COMPILER_UNAVAILABLE",
            why="; ".join(complaints) or None,
            hint="install clang, lld and llvm of one version, or add a suite that has them",
        )
    newest = max(numbers)
    if newest < max(minimum, at_least):
        raise ToolchainError(
            f"the newest clang to be had is {newest}, needed is {max(minimum, at_least)}",
            code="SDK_COMPILER_TOO_OLD",
            why="; ".join(complaints) or f"the device libs are of LLVM {at_least}",
            hint="add a suite with a newer one to apt's sources (backports or updates)",
        )
    closure = client.closure([name.format(n=newest) for name in _PACKAGES], what)
    # An older release's libomp may stand in for this one's, and depends on 26 MB that it does not use.
    others = re.compile(rf"libllvm(?!{newest}\b)\d+")
    wanted = tuple(
        one for one in parts_to_unpack(closure, _installed(client.reporter)) if not others.fullmatch(one.name)
    )
    client.download(wanted, prefix / "debs", what)
    packages = unpack(prefix / "debs", wanted, prefix / "compiler", client.reporter)
    _write_wrappers(prefix, newest)
    version = clang_version(prefix / "bin" / "clang++", client.reporter) or str(newest)
    return Compiler(path="bin/clang++", version=version, packages=packages)


def parts_to_unpack(closure: Sequence[Wanted], installed: Container[str]) -> tuple[Wanted, ...]:
    """Of all that a compiler needs, what has to be in the prefix.

    That is LLVM's own packages, whatever the machine has of them, and shared libraries that it lacks.
    Headers and the C++ library are the machine's: a compiler looks for them there only.
    """
    return tuple(
        one
        for one in closure
        if _OF_LLVM.match(one.name) or (_LIBRARY.fullmatch(one.name) and one.name not in installed)
    )


def _clangs(environ: Mapping[str, str]) -> list[Path]:
    """Every clang++ on PATH, by its number, the newest first; those without a number come last."""
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


def _complaint(clang: Path, version: str | None, minimum: int, arch: str, reporter: Reporter) -> str | None:
    if version is None:
        return "it is no clang"
    if leading_number(version) < minimum:
        return f"it is {version}, needed is {minimum}"
    if arch not in known_archs(clang, reporter):
        return f"it does not know {arch}"
    lacks = [tool for tool in _TOOLS if not _printed(clang, f"-print-prog-name={tool}", reporter=reporter)]
    if not _printed(clang, "-print-libgcc-file-name", "--rtlib=compiler-rt", reporter=reporter):
        lacks.append("its run-time library (package libclang-rt-N-dev)")
    return f"it lacks {', '.join(lacks)}" if lacks else None


def _printed(clang: Path, *question: str, reporter: Reporter) -> bool:
    """Whether the file that the compiler names in its answer is there."""
    done = run_tool([str(clang), *question], timeout_s=_ANSWER_S, check=False, reporter=reporter)
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
