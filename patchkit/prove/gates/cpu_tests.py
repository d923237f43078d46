"""Gate ``cpu-tests``: upstream's own tests of files that plain patches change pass on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.upstreams import upstream_of
from patchkit.prove.gates.base import Evidence, GateResult, Many, Record, RunSetup
from patchkit.prove.gates.cpu_build import NOT_FOR_THE_CPU, ended_by_tool, host_files, source_of
from patchkit.prove.gates.registry import CPU_TESTS
from patchkit.prove.subject import Subject
from patchkit.toolchain.ctests import TestBuild, UpstreamTest, open_tests
from patchkit.toolchain.sides import Workshop

NAME = CPU_TESTS
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_SHOWN = 20  # lines of a failed test's output
_DEFAULT_LABEL = "main"


class CpuTestFailed(GateError):
    """A test of upstream fails on the candidate but passes on the baseline."""

    code = "CPU_TESTS_WORSE"


class RanTest(Record):
    """One test on the candidate, and on the baseline if it failed there."""

    name: str
    passed: bool
    baseline_passed: bool | None
    about: Many[str]


class CpuTestsEvidence(Evidence):
    """What was built and run, and for which files."""

    files: Many[str]
    targets: Many[str]
    tests: Many[RanTest]

    def blocks(self) -> Iterator[Block]:
        """Each test with the files that it covers."""
        if self.tests:
            yield Table(
                name="cpu-tests",
                caption="Upstream's tests on the CPU",
                columns=columns("test", "result", "about"),
                rows=tuple(
                    Row(
                        cells=(one.name, _result(one), ", ".join(one.about) or "everything"),
                    )
                    for one in self.tests
                ),
            )


def _result(one: RanTest) -> str:
    if one.passed:
        return "passes"
    return "FAILS" if one.baseline_passed else "fails, as on the baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTestsGate:
    """Runs the tests of the changed files; ``every_test``: all that need neither a model nor the network."""

    every_test: bool = False
    name: str = NAME

    @classmethod
    def make(cls, setup: RunSetup) -> CpuTestsGate:
        """The gate of a run."""
        return cls(every_test=setup.full)

    def run(self, subject: Subject) -> GateResult:
        """Build and test the candidate, and the baseline if that fails. Raises if the baseline fails too."""
        files = host_files(subject)
        if not files:
            return GateResult(gate=NAME, verdict="not run", summary=NOT_FOR_THE_CPU)
        workshop = Workshop(cache_root=subject.cache_root, reporter=subject.reporter)
        subject.reporter.step("configuring upstream's tests")
        try:
            after = open_tests(source_of(subject, candidate=True), workshop)
            chosen, skipped = choose_tests(after.tests, files, subject, every_test=self.every_test)
            if not chosen:
                why = "no test of upstream covers the changed files"
                return GateResult(gate=NAME, verdict="not run", summary=why, not_run=tuple(skipped))
            programs = sorted({test.program for test in chosen if test.program is not None})
            after.build(programs)
        except ToolchainError as error:
            return ended_by_tool(NAME, error, subject, workshop)
        ran, problems = _run(after, chosen, subject, workshop)
        return GateResult(
            gate=NAME,
            verdict="failed" if problems else "passed",
            summary=f"{len(ran)} of upstream's tests, for {len(files)} changed files, ran on the CPU",
            problems=tuple(problems),
            evidence=CpuTestsEvidence(files=files, targets=tuple(programs), tests=tuple(ran)),
            not_run=tuple(skipped),
            lines=tuple(f"{_result(one)}: {one.name}" for one in ran),
        )


def choose_tests(
    tests: Sequence[UpstreamTest], files: Sequence[str], subject: Subject, *, every_test: bool
) -> tuple[list[UpstreamTest], list[str]]:
    """The tests to run, and a line for each skipped test or file that no test covers.

    A test covers a file if its source includes a header of that name, or if the file is that source.
    """
    by_program = {test.program: about(test.program, files, subject) for test in tests if test.program}
    chosen, skipped = [], []
    for test in tests:
        if test.program is None or not (every_test or by_program[test.program]):
            continue
        if test.needs or test.labels not in {(), (_DEFAULT_LABEL,)}:
            skipped.append(f"{test.name}: it needs {', '.join(test.needs) or 'a model'}")
        else:
            chosen.append(test)
    covered = {path for test in chosen if test.program for path in by_program[test.program]}
    if not every_test:
        skipped += [
            f"{path}: no test of upstream includes it (--full runs all tests)"
            for path in files
            if path not in covered
        ]
    return chosen, skipped


def about(program: str, files: Sequence[str], subject: Subject) -> tuple[str, ...]:
    """Those of the files that the source of a test includes or is."""
    own = _source_of(program, subject)
    source = subject.candidate / own
    if not source.is_file():
        return ()
    included = {found[1].decode("utf-8", "replace") for found in _INCLUDE.finditer(source.read_bytes())}
    stems = {name.rpartition("/")[2].partition(".")[0] for name in included}
    return tuple(path for path in files if path == own or path.rpartition("/")[2].partition(".")[0] in stems)


def _source_of(program: str | None, subject: Subject) -> str:
    return f"{upstream_of(subject.candidate).folders.tests}/{program}.cpp"


def _run(
    after: TestBuild, chosen: Sequence[UpstreamTest], subject: Subject, workshop: Workshop
) -> tuple[list[RanTest], list[PatchkitError]]:
    ran: list[RanTest] = []
    problems: list[PatchkitError] = []
    files = host_files(subject)
    before: TestBuild | None = None
    for test in chosen:
        subject.reporter.step(f"upstream's {test.name}")
        done = after.run(test.name)
        named = about(test.program or "", files, subject)
        held: bool | None = None
        if done.returncode != 0:
            if before is None:
                subject.reporter.step("building the baseline, to check whether it fails there too")
                before = open_tests(source_of(subject, candidate=False), workshop)
                before.build(sorted({each.program for each in chosen if each.program}))
            held = before.run(test.name).returncode == 0
            if held:
                problems.append(_failed(test, done.stdout, named, subject, after))
        ran.append(RanTest(name=test.name, passed=done.returncode == 0, baseline_passed=held, about=named))
    return ran, problems


def _failed(
    test: UpstreamTest, output: bytes, named: Sequence[str], subject: Subject, after: TestBuild
) -> CpuTestFailed:
    lines = output.decode("utf-8", "replace").strip().splitlines()[-_SHOWN:]
    patches = sorted({name for path in named for name in subject.patches_of(path)})
    return CpuTestFailed(
        f"upstream's {test.name} fails with the patches and passes without them",
        where=[Location(path=path, label=", ".join(subject.patches_of(path)) or None) for path in named]
        or Location(path=_source_of(test.program, subject)),
        why="\n".join(line[:200] for line in lines),
        hint=f"to run it again: ctest --test-dir {after.folder} -R '^{test.name}$' --output-on-failure; "
        f"the change: patchkit diff --patch {patches[0] if patches else 'ID'}",
    )
