"""Adds what the packages lack: stub libraries to link with, and the layout that clang and CMake expect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.base.reporter import Reporter

_BUILD_S = 60.0


# hipErrorNoDevice of hip_runtime_api.h. hipBLAS and HSA functions return it, too: for both, any nonzero value
# is an error.
_NO_DEVICE = 100


# Called by code that clang generates for kernels and launches; no header declares all of them.
_OF_THE_COMPILER = (
    "__hipPopCallConfiguration",
    "__hipPushCallConfiguration",
    "__hipRegisterFatBinary",
    "__hipRegisterFunction",
    "__hipRegisterManagedVar",
    "__hipRegisterSurface",
    "__hipRegisterTexture",
    "__hipRegisterVar",
    "__hipUnregisterFatBinary",
)


# By the base name of a library: the folder of headers that declare its functions, and a pattern of
# names. Libraries that are not listed are only named by CMake package files; their stubs have no functions.
_DECLARED = {
    # Up to ROCm 6 the runtime also has hiprtc's functions: AMD's hiprtc example links no other library.
    "libamdhip64": ("hip", r"\bhip(?:rtc)?[A-Z]\w*"),
    "libhipblas": ("hipblas", r"\bhipblas[A-Z]\w*"),
    "libhiprtc": ("hip", r"\bhiprtc[A-Z]\w*"),
    # The emulated GPU has no other function of it.
    "librocblas": ("rocblas", r"\brocblas_initialize"),
}


# These return strings, which callers print.
_TEXT = frozenset(
    {
        "hipApiName",
        "hipGetErrorName",
        "hipGetErrorString",
        "hipKernelNameRef",
        "hipKernelNameRefByPtr",
        "hipblasStatusToString",
        "hiprtcGetErrorString",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Library:
    """A shared library; ``file`` is relative to the folder that contains ``lib`` and ``include``."""

    file: str
    soname: str


def build_stubs(root: Path, clang: Path, reporter: Reporter) -> tuple[str, ...]:
    """Build stubs for the libraries that CMake package files name and that are missing; returns sonames.

    Raises:
        SDK_UNUSABLE: the package files name no library, or the headers declare no function.
        ToolchainError: the compiler failed.
        CacheError: a disk operation failed.
    """
    libraries = [library for library in named_libraries(root) if not (root / library.file).is_file()]
    if not libraries:
        raise ToolchainError(
            "the CMake package files name no shared library",
            code="SDK_UNUSABLE",
            where=Location(path=str(root)),
            why="their format is unknown to patchkit",
            hint="report this to patchkit: the suite has changed its packages",
        )
    for library in libraries:
        target = root / library.file
        source = stub_source(_functions_of(library, root))
        argv = [str(clang), "-x", "c", "-", "-shared", "-fPIC", "-O1", "-nostdlib", "-fuse-ld=lld"]
        argv += ["-Wl,--build-id=none", f"-Wl,-soname,{library.soname}", "-o", str(target)]
        with disk_errors(target, "building a stub"):
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            run_tool(argv, stdin=source.encode("ascii"), timeout_s=_BUILD_S, reporter=reporter)
        except (ToolFailed, ToolCrashed) as error:
            refused = disk_error_from_tool(error, target, "building a stub")
            if refused is not None:
                raise refused from error
            raise
        with disk_errors(target, "building a stub"):
            for name in {library.soname, f"{_stem(library)}.so"} - {target.name}:
                link = target.with_name(name)
                link.unlink(missing_ok=True)
                link.symlink_to(target.name)
    return tuple(sorted(library.soname for library in libraries))


def named_libraries(root: Path) -> tuple[Library, ...]:
    """The shared libraries of imported targets in the CMake package files under ``lib``."""
    found: dict[str, Library] = {}
    for path in sorted(root.glob("lib/**/cmake/**/*.cmake")):
        text = path.read_text("utf-8", errors="replace")
        pattern = (
            r'IMPORTED_LOCATION\w*\s+"\$\{_IMPORT_PREFIX\}/(lib[^"]*/lib[^"/]*\.so[^"/]*)"'
            r'(?:\s+IMPORTED_SONAME\w*\s+"([^"]+)")?'
        )
        for file, soname in re.findall(pattern, text):
            if ".." not in file.split("/"):
                found.setdefault(file, Library(file=file, soname=soname or file.rpartition("/")[2]))
    return tuple(sorted(found.values()))


def declared_functions(headers: Iterable[Path], pattern: str) -> frozenset[str]:
    """Names in the headers that match the pattern and are followed by an opening parenthesis.

    This includes some types and macros, but superfluous symbols do no harm, and missing ones do not link.
    """
    names: set[str] = set()
    for header in headers:
        names.update(re.findall(rf"({pattern})\s*\(", header.read_text("utf-8", errors="replace")))
    return frozenset(names)


def stub_source(functions: Iterable[str]) -> str:
    """The C source of a library with these functions."""
    lines = []
    for name in sorted(functions):
        if name in _TEXT:
            lines.append(f'const char *{name}(void) {{ return "a stub of patchkit: there is no GPU"; }}')
        else:
            lines.append(f"int {name}(void) {{ return {_NO_DEVICE}; }}")
    return "\n".join(lines) + "\n"


def _functions_of(library: Library, root: Path) -> frozenset[str]:
    declared = _DECLARED.get(_stem(library))
    if declared is None:
        return frozenset()
    folder, pattern = declared
    functions = declared_functions(sorted((root / "include" / folder).rglob("*.h")), pattern)
    if not functions:
        raise ToolchainError(
            f"the headers declare no function of {library.soname}",
            code="SDK_UNUSABLE",
            where=Location(path=str(root / "include" / folder)),
            hint="report this to patchkit: the suite has changed its packages",
        )
    return functions | (frozenset(_OF_THE_COMPILER) if _stem(library) == "libamdhip64" else frozenset())


def _stem(library: Library) -> str:
    return library.file.rpartition("/")[2].partition(".so")[0]


_FORWARD = 'include("${{CMAKE_CURRENT_LIST_DIR}}/{path}")\n'


def complete_layout(root: Path) -> None:
    """Add folders and links that tools expect below ``root``, after unpacking packages and building stubs.

    - ``bin``: HIP's CMake package files check that it exists, although they use nothing in it.
    - ``lib/lib*.so``: clang links HIP programs with ``-L<root>/lib -lamdhip64``; CMake identifies the
      compiler by linking such a program.
    - ``lib/cmake``: older CMake searches hip-lang only there (measured: 3.25 does, 4.4 does not).

    Raises:
        CacheError: a disk operation failed.
    """
    with disk_errors(root, "completing the prefix"):
        (root / "bin").mkdir(exist_ok=True)
        lib = root / "lib"
        for multiarch in sorted(lib.glob("*-linux-gnu*")):
            for library in sorted(multiarch.glob("lib*.so")):
                link = lib / library.name
                link.unlink(missing_ok=True)
                link.symlink_to(f"{multiarch.name}/{library.name}")
            for package in sorted((multiarch / "cmake").glob("*/*.cmake")):
                _forward(package, lib / "cmake" / package.parent.name / package.name, multiarch.name)


def _forward(package: Path, forwarder: Path, multiarch: str) -> None:
    if not package.name.endswith(("-config.cmake", "-config-version.cmake", "Config.cmake")):
        return  # other files are included by these
    forwarder.parent.mkdir(parents=True, exist_ok=True)
    path = f"../../{multiarch}/cmake/{package.parent.name}/{package.name}"
    forwarder.write_text(_FORWARD.format(path=path), encoding="ascii")
