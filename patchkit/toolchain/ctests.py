"""Lists, builds and runs upstream's own CPU tests by CTest, in the build folder of its programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import Completed, run_tool
from patchkit.toolchain.cmake import find_cmake, find_ninja
from patchkit.toolchain.machine import Source, host_compiler
from patchkit.toolchain.parts import CPU_LIBRARY, programs_part
from patchkit.toolchain.sides import Workshop, build_part

_CONFIGURED = "ggml-base"  # the smallest library: once it is built, CTest knows all tests
_BACKEND = CPU_LIBRARY  # programs load it at run time from their own folder
# Depending on CMake policies, the name is bare, in quotes or in brackets.
_ADD_TEST = re.compile(r'^add_test\((?:\[=*\[|")?([^\]\s"]+)(?:\]=*\]|")? "([^"]+)"', re.MULTILINE)
# A build sees its tree through a link called "source" next to the build folder.
_READ = re.compile(rb"^ +[^\n]*?/source/([^\n]+)$", re.MULTILINE)
_ANSWER_S = 60.0
_TEST_S = 900  # patchkit's limit; upstream's slowest test with the label "main" took 40 s on two cores


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTest:
    """A test listed by CTest. ``program`` is None for a script; ``needs`` are fixtures (a download)."""

    name: str
    program: str | None
    labels: tuple[str, ...]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestBuild:
    """A configured build of a tree, with the list of its tests; ``folder`` is the build folder."""

    source: Source
    folder: Path
    workshop: Workshop
    tests: tuple[UpstreamTest, ...]

    def build(self, targets: Sequence[str]) -> None:
        """Build targets and the CPU backend. Raises as :func:`patchkit.toolchain.cmake.build_targets`."""
        _build(self.source, (*targets, _BACKEND), self.workshop)

    def read_by_compilers(self) -> frozenset[str]:
        """The files of the tree that compilers read for the targets built so far, from Ninja's log."""
        argv = [find_ninja(), "-C", str(self.folder), "-t", "deps"]
        done = run_tool(argv, timeout_s=_ANSWER_S, reporter=self.workshop.reporter)
        return frozenset(found[1].decode("utf-8", "replace") for found in _READ.finditer(done.stdout))

    def run(self, name: str) -> Completed:
        """Run one test that was built; it passes with status 0."""
        argv = [str(_ctest()), "--test-dir", str(self.folder), "-R", f"^{re.escape(name)}$", "-FA", "."]
        argv += ["--no-tests=error", "--output-on-failure", "--timeout", str(_TEST_S)]
        reporter = self.workshop.reporter
        return run_tool(argv, timeout_s=2 * _TEST_S, check=False, reporter=reporter, work="run")


def open_tests(source: Source, workshop: Workshop) -> TestBuild:
    """Configure a tree and list its tests.

    Raises:
        COMPILER_MISSING, LIBRARY_TOOLS_MISSING, CMAKE_CONFIGURE_FAILED, BuildFailed: the build failed.
        ToolchainError: the output of CTest cannot be parsed.
        ToolTimeout, ToolStopped, CacheError: it was stopped, or a disk operation failed.
    """
    folder = _build(source, (_CONFIGURED,), workshop)
    done = run_tool(
        [str(_ctest()), "--test-dir", str(folder), "--show-only=json-v1"],
        timeout_s=_ANSWER_S,
        check=False,
        reporter=workshop.reporter,
    )
    try:
        rows = json.loads(done.stdout)["tests"]
        tests = read_tests(folder, rows)
    except (ValueError, KeyError, TypeError) as error:
        raise ToolchainError(
            "cannot list upstream's tests",
            where=Location(path=str(folder)),
            why=done.stderr.decode("utf-8", "replace").strip() or str(error),
            hint=f"check the output of: ctest --test-dir {folder} --show-only=json-v1",
        ) from error
    return TestBuild(source=source, folder=folder, workshop=workshop, tests=tests)


def read_tests(folder: Path, rows: Sequence[dict[str, object]]) -> tuple[UpstreamTest, ...]:
    """The tests in CTest's JSON ``rows`` of a build; raises ValueError if no test has a program."""
    programs = dict(_programs(folder))
    if rows and not programs:
        raise ValueError("CTestTestfile.cmake names no test program of the build")
    return tuple(_read(row, programs) for row in rows)


def _build(source: Source, targets: Sequence[str], workshop: Workshop) -> Path:
    compiler = host_compiler(workshop.reporter)
    part = programs_part(
        source.root,
        build=source.build,
        commit=source.commit,
        compiler=compiler,
        is_timed=False,
        has_cpu=True,
    )
    return build_part(part, source.root, targets, workshop).folder / "build"


def _ctest() -> Path:
    return Path(find_cmake().cmake_path).with_name("ctest")


def _programs(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and programs of the tests built here; CTest itself names a program only once it is built."""
    for path in folder.rglob("CTestTestfile.cmake"):
        for found in _ADD_TEST.finditer(path.read_text("utf-8", "replace")):
            program = Path(found[2])
            if program.parent == folder / "bin":
                yield found[1], program.name


def _read(row: dict[str, object], programs: Mapping[str, str]) -> UpstreamTest:
    properties: dict[str, object] = {}
    listed = row.get("properties")
    for each in listed if isinstance(listed, list) else ():
        properties[str(each["name"])] = each["value"]
    return UpstreamTest(
        name=str(row["name"]),
        program=programs.get(str(row["name"])),
        labels=_words(properties.get("LABELS")),
        needs=_words(properties.get("FIXTURES_REQUIRED")),
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
