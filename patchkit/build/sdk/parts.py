"""The compiler of a prefix: one that is installed, else the distribution's, unpacked into the prefix."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError, SourceError, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors
from patchkit.base.process import ToolCrashed, ToolFailed, ToolMissing, run_tool
from patchkit.base.reporter import Reporter
from patchkit.build.sdk.apt import Client, Wanted
from patchkit.build.sdk.flags import leading_number
from patchkit.build.sdk.prefix import Package
from patchkit.build.sdk.versions import clang_version, known_archs

_PACKAGE_S = 300.0


def unpack(folder: Path, wanted: Sequence[Wanted], into: Path, reporter: Reporter) -> tuple[Package, ...]:
    """Unpack every package file of ``folder``, and delete it; what was unpacked, by name.

    Raises:
        SDK_PACKAGE_DAMAGED: a file is no package, or is not one of those wanted, or one is not there.
        SDK_APT_MISSING: there is no dpkg-deb.
        CacheError: the disk refused.
    """
    expected = {(one.name, one.version) for one in wanted}
    unpacked = []
    with disk_errors(into, "unpacking packages"):
        into.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.glob("*.deb"))
    for file in files:
        package = _describe(file, reporter)
        if (package.name, package.version) not in expected:
            raise _damaged(file, f"it is {package.name} {package.version}, which was not asked for")
        _run(["dpkg-deb", "--extract", str(file), str(into)], file, reporter)
        unpacked.append(package)
        with disk_errors(file, "unpacking packages"):
            file.unlink()
    missing = expected - {(one.name, one.version) for one in unpacked}
    if missing:
        raise _damaged(folder, f"these did not come: {' '.join(sorted(name for name, _ in missing))}")
    return tuple(sorted(unpacked, key=lambda one: one.name))


def _describe(file: Path, reporter: Reporter) -> Package:
    fields = _run(["dpkg-deb", "--field", str(file), "Package", "Version"], file, reporter)
    values = dict(line.partition(": ")[::2] for line in fields.decode("utf-8", "replace").splitlines())
    with disk_errors(file, "reading a package"), file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    return Package(
        name=values.get("Package", ""), version=values.get("Version", ""), sha256=digest, size=size
    )


def _run(argv: list[str], file: Path, reporter: Reporter) -> bytes:
    try:
        return run_tool(argv, timeout_s=_PACKAGE_S, reporter=reporter).stdout
    except ToolMissing as error:
        raise ToolchainError(
            "there is no dpkg-deb on this machine",
            code="SDK_APT_MISSING",
            why="it is what unpacks the packages",
            hint="install the package dpkg, or use a Debian machine or container",
        ) from error
    except ToolFailed as error:
        refused = disk_error_from_tool(error, file, "unpacking packages")
        raise refused if refused is not None else _damaged(file, error.why or "") from error


def _damaged(path: Path, why: str) -> SourceError:
    return SourceError(
        "a package cannot be unpacked",
        code="SDK_PACKAGE_DAMAGED",
        where=Location(path=str(path)),
        why=why,
        hint="run patchkit sdk install again: it downloads the package anew",
    )


_BUILD_S = 60.0

# hipErrorNoDevice of hip_runtime_api.h. hipBLAS' and HSA's functions fail with it too: any value but 0
# means failure to both.
_NO_DEVICE = 100

# Called by code that clang generates for kernels and launches; no header declares them all.
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

# Whose headers declare what a library has, by the stem of its name: a folder and a pattern of names.
# Libraries not listed are only named by the package files, and get no functions.
_DECLARED = {
    "libamdhip64": ("hip", r"\bhip[A-Z]\w*"),
    "libhipblas": ("hipblas", r"\bhipblas[A-Z]\w*"),
}

# These return text, which a caller prints.
_TEXT = frozenset(
    {
        "hipApiName",
        "hipGetErrorName",
        "hipGetErrorString",
        "hipKernelNameRef",
        "hipKernelNameRefByPtr",
        "hipblasStatusToString",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Library:
    """``file`` is relative to the folder that holds ``lib`` and ``include``."""

    file: str
    soname: str


def build_stubs(root: Path, clang: Path, reporter: Reporter) -> tuple[str, ...]:
    """Build a stub for each library that the package files name and that is not there; their sonames.

    Raises:
        SDK_STUBS_UNKNOWN: no library is named, or no function declared.
        ToolchainError: the compiler failed.
        CacheError: the disk refused.
    """
    libraries = [library for library in named_libraries(root) if not (root / library.file).is_file()]
    if not libraries:
        raise ToolchainError(
            "the CMake package files name no shared library",
            code="SDK_STUBS_UNKNOWN",
            where=Location(path=str(root)),
            why="they are written in a way that patchkit does not know",
            hint="report it: a suite has changed its packages",
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
    """The shared libraries that the package files under ``lib`` name as imported targets."""
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
    """Names of the pattern that stand before an opening bracket.

    Types and macros of that shape come along: a symbol too many harms nobody, one too few does not link.
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
            f"the headers declare nothing of {library.soname}",
            code="SDK_STUBS_UNKNOWN",
            where=Location(path=str(root / "include" / folder)),
            hint="report it: a suite has changed its packages",
        )
    return functions | (frozenset(_OF_THE_COMPILER) if _stem(library) == "libamdhip64" else frozenset())


def _stem(library: Library) -> str:
    return library.file.rpartition("/")[2].partition(".so")[0]


# Suites of Debian's main archive. A mirror of it carries all of them, whatever the machine uses.
_MAIN_SUITE = re.compile(
    r"(?:(?:old)*stable|testing|unstable|sid|buster|bullseye|bookworm|trixie|forky|duke)(?:-updates|-backports)?"
)
_LIST_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """``signed_by`` is what apt takes there: paths, fingerprints, or a key block; None: apt's own keys."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None = None

    def as_stanza(self) -> str:
        """The entry as a stanza of a ``.sources`` file.

        Options that weaken apt's checks (Trusted, Allow-Insecure) are left out on purpose.
        """
        lines = [
            "Types: deb",
            f"URIs: {' '.join(self.uris)}",
            f"Suites: {' '.join(self.suites)}",
            f"Components: {' '.join(self.components)}",
        ]
        if self.signed_by is not None:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"

    def for_suite(self, suite: str) -> Entry:
        """The same mirror, another suite of it."""
        return replace(self, suites=(suite,), components=("main",))


def choose_mirror(entries: tuple[Entry, ...]) -> Entry:
    """The first entry that is of Debian's main archive.

    Raises:
        SDK_MIRROR_MISSING: there is none.
    """
    for entry in entries:
        of_main = all(_MAIN_SUITE.fullmatch(suite) for suite in entry.suites)
        if of_main and "main" in entry.components:
            return entry
    named = sorted({suite for entry in entries for suite in entry.suites})
    raise ToolchainError(
        "apt is set up with no mirror of Debian",
        code="SDK_MIRROR_MISSING",
        why=f"it knows the suites {', '.join(named)}" if named else "it is set up with no sources at all",
        hint="the SDK is made of Debian's packages: use a Debian machine or container, or install ROCm",
    )


def load_entries(main: Path, parts: Path) -> tuple[Entry, ...]:
    """All entries, in apt's order: the main file, then the folder's files by name.

    Raises:
        SDK_APT_SOURCE_BAD: a file cannot be read, or is not text.
    """
    paths = [main] if main.is_file() else []
    if parts.is_dir():
        paths += sorted(path for path in parts.iterdir() if path.suffix in {".list", ".sources"})
    entries: list[Entry] = []
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ToolchainError(
                f"a file of apt's sources cannot be read: {error}",
                code="SDK_APT_SOURCE_BAD",
                where=Location(path=str(path)),
                hint=f"look at it with: ls -l {path}",
            ) from error
        entries += (parse_sources if path.suffix == ".sources" else parse_list)(text)
    return tuple(entries)


def parse_list(text: str) -> tuple[Entry, ...]:
    """The entries of a file of one-line entries; lines that are none are apt's to complain about."""
    entries = []
    for line in text.splitlines():
        found = _LIST_LINE.fullmatch(line.partition("#")[0].strip())
        if found is None or _is_medium(found["uri"]):
            continue
        options = dict(option.partition("=")[::2] for option in (found["options"] or "").split())
        entries.append(
            Entry(
                uris=(found["uri"],),
                suites=(found["suite"],),
                components=tuple(found["components"].split()),
                signed_by=options.get("signed-by", "").replace(",", " ") or None,
            )
        )
    return tuple(entries)


def parse_sources(text: str) -> tuple[Entry, ...]:
    """The entries of a file of stanzas."""
    entries = []
    for fields in _stanzas(text):
        uris = tuple(uri for uri in fields.get("uris", "").split() if not _is_medium(uri))
        enabled = fields.get("enabled", "yes").strip().lower() not in {"no", "false", "0", "off", "disable"}
        if enabled and uris and "deb" in fields.get("types", "").split():
            entries.append(
                Entry(
                    uris=uris,
                    suites=tuple(fields.get("suites", "").split()),
                    components=tuple(fields.get("components", "").split()),
                    signed_by=fields.get("signed-by") or None,
                )
            )
    return tuple(entries)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """Stanzas as lower-case field names and values; a continued value keeps its line breaks."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t" and last:
            fields[last] += f"\n{line}"
        else:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            fields[last] = value.strip()


def _is_medium(uri: str) -> bool:
    return uri.startswith("cdrom:")


_TOOLS = ("ld.lld", "clang-offload-bundler", "llvm-objdump", "llvm-readelf", "llvm-cxxfilt")
_PACKAGES = ("clang-{n}", "clang-tools-{n}", "lld-{n}", "llvm-{n}", "libclang-rt-{n}-dev")
_OF_LLVM = re.compile(r"(?:lib)?(?:clang|llvm|lld)")
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
    wanted = parts_to_unpack(closure, _installed(client.reporter))
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
