"""Gate ``sanitize``: the cases of ``backend-ops`` with the emulated GPU's checks enabled, on both sides."""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError
from patchkit.base.files import open_regular
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import (
    CodePlace,
    EmulationReport,
    Found,
    load_report,
)
from patchkit.gpu.emulated.findings import (
    Finding,
    Instruction,
    SourceLines,
    distinct,
    load_unreported_findings,
)
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.hardware.attention import AttentionResult, gate_cases
from patchkit.gpu.hardware.backend_ops import Row as OpsRow
from patchkit.gpu.hardware.backend_ops import parts_of
from patchkit.gpu.hardware.program import RunContext, describe_reused
from patchkit.prove.build import CandidateBuildFailed, Sides, runs_folder
from patchkit.prove.gates.base import Count, DeviceEvidence, DeviceGate, DeviceSetup, GateResult, Many, Record
from patchkit.prove.gates.emulated import emulated_on, not_proven_on, verdict_on
from patchkit.prove.gates.operations import (
    ATTENTION,
    EMULATED_SAMPLE,
    RUN_REPORT,
    TIMEOUT_S,
    AbortedCase,
    BackendOpsBroken,
    OpsRun,
    OwnPair,
    Runs,
    Selected,
    Tools,
    format_aborting,
    run_ops,
    run_own,
    select,
)
from patchkit.prove.gates.sides import BuiltSides, blame_candidate, built_sides, sides_on
from patchkit.prove.subject import Subject

NAME = "sanitize"
_SHOWN = 20  # findings with an error of their own, and lines in the terminal
_SHOWN_FRAMES = 4
_OURS = "attention cases of patchkit's own"  # recorded in evidence
_LONGEST_LINE = 120
_MOST_SOURCE = 16 << 20


class RecordedFinding(Record):
    """A fault: its first occurrence, and how often it occurred on its side.

    ``place`` is ``file`` and ``line`` relative to the side's tree (an offset in the function if the code has
    no line table), ``source`` the text of that line. ``code`` is the instruction, ``inlined_at`` the call
    sites that it was inlined at, ``other`` the access that it conflicts with. ``found_in`` are operations, or
    patchkit's own cases. ``on_other_side``: the other side has the same fault.
    """

    kind: str
    what: str
    kernel: str
    place: str
    file: str | None
    line: Count | None
    source: str
    code: str
    inlined_at: Many[str]
    other: str | None
    times: Count
    called_from: Many[str]
    found_in: Many[str]
    on_other_side: bool


class RecordedSide(Record):
    """What was checked on one side, and what was found.

    ``cases`` counts upstream's cases that ran, ``own_cases`` patchkit's. ``on_cpu`` are calls of hipBLAS or
    rocBLAS, which the CPU computed. ``cut_short`` counts processes that ended without a report.
    """

    cases: Count
    own_cases: Count
    launches: Count
    kernels: Count
    instructions: Count
    on_cpu: Many[str]
    cut_short: Count
    findings: Many[RecordedFinding]


class SanitizeEvidence(DeviceEvidence):
    """The checks, the cases that they ran on, and the findings on each side."""

    device: str
    checks: Many[str]
    operations: Many[str]
    sides: BuiltSides
    commands: Many[str]
    aborting: Many[AbortedCase] = ()
    baseline: RecordedSide
    candidate: RecordedSide

    @property
    def own(self) -> list[RecordedFinding]:
        """The findings that only the candidate has."""
        return [one for one in self.candidate.findings if not one.on_other_side]

    @property
    def outcome(self) -> str:
        """How many launches were checked, and how many faults are the candidate's."""
        faults = counted(len(self.own), "new fault") if self.own else "no new fault"
        return f"{counted(self.candidate.launches, 'checked launch', 'checked launches')} with {faults}"

    def blocks(self) -> Iterator[Block]:
        """What was checked, the candidate's findings, and upstream's."""
        sides = (("baseline", self.baseline), ("candidate", self.candidate))
        yield Table(
            name="sanitize",
            caption=f"Checked on {self.device}: {', '.join(self.checks)}",
            columns=columns("side", "upstream's cases #", "patchkit's cases #", "launches #", "findings #"),
            rows=tuple(
                Row(cells=(name, *map(str, (one.cases, one.own_cases, one.launches, len(one.findings)))))
                for name, one in sides
            ),
        )
        yield Table(
            name="sanitize-own",
            caption="Found on the candidate but not on the baseline",
            columns=_COLUMNS,
            rows=tuple(_table_row(one) for one in self.own),
        )
        yield Table(
            name="sanitize-upstream",
            caption="Upstream's own findings, on the baseline",
            columns=(*_COLUMNS, *columns("on the candidate")),
            rows=tuple(
                _table_row(one, "too" if one.on_other_side else "not seen") for one in self.baseline.findings
            ),
            note="Findings of the baseline do not fail the candidate. Places are lines of the baseline.",
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the checks."""
        yield from super().provenance()
        yield "checks", ", ".join(self.checks)


_COLUMNS = columns("kind", "source", "kernel", "what", "times #")


def _table_row(one: RecordedFinding, *more: str) -> Row:
    other = f"; the other: {one.other}" if one.other else ""
    inlined = "".join(f", inlined at {place}" for place in one.inlined_at)
    return Row(
        cells=(one.kind, f"{one.place}{inlined}", one.kernel, f"{one.what}{other}", str(one.times), *more)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizeGate(DeviceGate):
    """``ops`` replaces the operations of the changed files; ``pattern`` narrows upstream's cases."""

    NAME = NAME
    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: Sequence[Case] = field(default_factory=gate_cases)
    timeout_s: float = TIMEOUT_S
    is_sample: bool = False

    @classmethod
    def make(cls, setup: DeviceSetup) -> SanitizeGate:
        """The gate on a device, with the cases of ``backend-ops``."""
        is_sample = not setup.full
        return cls(
            machine=setup.machine,
            cases=gate_cases(is_sample=is_sample),
            is_sample=is_sample,
        )

    def run(self, subject: Subject) -> GateResult:
        """Build both sides, run both lists of cases on both, and compare the findings.

        Raises:
            ToolchainError: building or running the baseline failed.
            CacheError: the disk is full or not writable.
        """
        if not self.machine.is_emulated:
            why = "needs the emulated GPU, because a real one cannot run the checks"
            return GateResult(gate=self.name, verdict="not run", summary=why)
        runs = Runs(folder=runs_folder(subject, NAME, self.machine))
        try:
            with sides_on(self.machine, subject) as sides, runs.kept():
                return self._run(subject, sides, runs)
        except CandidateBuildFailed as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides, runs: Runs) -> GateResult:
        tools = Tools(
            subject=subject,
            machine=self.machine,
            sides=sides,
            place=RunContext(folder=runs.folder, reporter=subject.reporter),
            timeout_s=self.timeout_s,
            variables=runs.variables,
            forget=runs.forget,
        )
        chosen = select(tools, ops=self.ops, pattern=self.pattern, is_sample=self.is_sample)
        subject.reporter.step(f"checking {chosen.label} on {self.machine.label}: {', '.join(usual_checks())}")
        upstream: OpsRun | None = None
        own: list[OwnPair] = []
        aborting: tuple[str, ...] = ()
        broken: BackendOpsBroken | None = None
        try:
            upstream = run_ops(tools, chosen.choice)
            if chosen.has_attention:
                subject.reporter.step(f"checking {len(self.cases)} of patchkit's attention cases")
                own, aborting = run_own(tools, self.cases)
        except BackendOpsBroken as error:
            broken = error  # findings up to here are still reported
        lines = LineMap(subject.baseline, subject.candidate)
        before = read_findings(runs, "baseline", subject.baseline, lines.same)
        try:
            after = read_findings(
                runs, "candidate", subject.candidate, lines.before, may_be_short=broken is not None
            )
        except ToolchainError as error:
            return GateResult.ended_by(self.name, blame_candidate(error, BackendOpsBroken))
        tests = ((), ()) if upstream is None else upstream.tests
        of_upstream = () if upstream is None else upstream.aborting
        evidence = SanitizeEvidence(
            emulated=emulated_on(self.machine),
            device=self.machine.label,
            checks=usual_checks(),
            operations=chosen.ops,
            sides=built_sides(sides),
            commands=() if upstream is None else tuple(run.command for run in upstream.runs),
            aborting=of_upstream,
            baseline=before.record(tests[0], [old for old, _ in own], subject.baseline, after, chosen),
            candidate=after.record(tests[1], [new for _, new in own], subject.candidate, before, chosen),
        )
        # If the program failed before it launched anything, its own error is enough.
        found = () if broken and not evidence.own else judge(evidence, subject, self._command(subject))
        problems = (*([broken] if broken is not None else ()), *found)
        unsupported = sum(not new.is_supported for _, new in own)
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=_summary(evidence),
            problems=problems,
            evidence=evidence,
            not_run=(
                *not_proven_on(self.machine, subject),
                *chosen.skipped,
                *(
                    (f"{unsupported} of patchkit's cases: not supported by the backend",)
                    if unsupported
                    else ()
                ),
                *format_aborting(of_upstream),
                *aborting,
                *_not_checked(evidence, after.fault),
            ),
            lines=(*_lines(evidence), *(() if upstream is None else describe_reused(upstream.runs))),
        )

    def _command(self, subject: Subject) -> str:
        """The command that shows findings of an operation; the operation must be appended."""
        build = f"--upstream {build_name(subject.build)} --side candidate"
        return f"patchkit sanitize --arch {self.machine.emulates} {build} -- test-backend-ops test -b ROCm0"


LineKey = tuple[object, ...]
LineOf = Callable[[str, int | None], LineKey]


class LineMap:
    """Maps lines of the candidate to lines of the baseline, so that a shifted line counts as the same line.

    Unchanged lines are found by comparing the two files. A line that moved within its file is found by its
    text, if the text is unique in both versions. All other lines of the candidate are new.
    """

    def __init__(self, baseline: Path, candidate: Path) -> None:
        self._trees = (baseline, candidate)
        self._known: dict[str, dict[int, int] | None] = {}

    @staticmethod
    def same(file: str, line: int | None) -> LineKey:
        """A line of the baseline."""
        return ("baseline", file, line)

    def before(self, file: str, line: int | None) -> LineKey:
        """A line of the candidate as a line of the baseline, if it has one."""
        if file not in self._known:
            self._known[file] = self._compared(file)
        known = self._known[file]
        if known is None or line is None:
            return ("baseline", file, line)
        return ("baseline", file, known[line]) if line in known else ("candidate", file, line)

    def _compared(self, file: str) -> dict[int, int] | None:
        """Lines of the baseline by lines of the candidate; None if the files are equal or in neither tree."""
        old, new = (source_lines(tree, file) for tree in self._trees)
        if old == new:
            return None
        found: dict[int, int] = {}
        for at, there, size in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            found |= {there + n + 1: at + n + 1 for n in range(size)}
        once = _once(old)
        for text, number in _once(new).items():
            if number not in found and text in once:
                found[number] = once[text]
        return found


def _once(lines: Sequence[bytes]) -> dict[bytes, int]:
    """The numbers of lines whose text, ignoring indentation, is unique."""
    found: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines, start=1):
        found.setdefault(line.strip(), []).append(number)
    return {text: numbers[0] for text, numbers in found.items() if len(numbers) == 1 and text}


def source_lines(tree: Path, file: str) -> list[bytes]:
    """The lines of a file in a tree; empty for paths outside of it: names come from the program that ran."""
    if file.startswith("/") or ".." in file.split("/"):
        return []
    with contextlib.suppress(OSError, ValueError), open_regular(tree / file) as stream:
        return stream.read(_MOST_SOURCE).split(b"\n")
    return []


def fault_key(one: Finding, line_of: LineOf) -> tuple[object, ...]:
    """The key by which a fault of the candidate equals one of the baseline.

    It has the kind; the source line and its inlining call sites, as lines of the baseline (:class:`LineMap`);
    and the same for the conflicting access, in any order because either may come first. Without a conflict it
    has the action (read or write) instead. So a fault stays the same if lines shift or if the kernel has
    another name, other template arguments or other registers. Code without line tables is identified by its
    function's name without template arguments, and by the instruction.
    """
    at = _lines_of(one.at, line_of)
    if one.other is None:
        return (one.kind, one.action, at)
    return (one.kind, frozenset({at, _lines_of(one.other, line_of)}))


def _lines_of(at: Instruction, line_of: LineOf) -> tuple[object, ...]:
    if at.file is None:
        return (read_name(at.function).base, at.text.partition(" ")[0])
    return tuple(line_of(file, line) for file, line in ((at.file, at.line), *at.inlined_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFindings:
    """The findings of a side; ``found`` has each fault by its key, with the runs that it was found in."""

    found: Mapping[tuple[object, ...], tuple[Finding, tuple[str, ...]]]
    reports: Sequence[EmulationReport]
    cut_short: int

    @property
    def fault(self) -> str | None:
        """The fault that ended a process on the GPU early."""
        return next((one.fault for one in self.reports if one.fault is not None), None)

    def record(
        self,
        rows: Sequence[OpsRow],
        own: Sequence[AttentionResult],
        tree: Path,
        other: SideFindings,
        chosen: Selected,
    ) -> RecordedSide:
        """As evidence; ``rows`` and ``own`` are the cases, ``other`` is the other side."""
        kernels = [kernel for one in self.reports for kernel in one.kernels if kernel.launches]
        return RecordedSide(
            cases=sum(row.is_supported for row in rows),
            own_cases=sum(one.is_supported for one in own),
            launches=sum(kernel.launches for kernel in kernels),
            kernels=len({kernel.name for kernel in kernels}),
            instructions=sum(one.instructions for one in self.reports),
            on_cpu=tuple(sorted({product.call for one in self.reports for product in one.on_cpu})),
            cut_short=self.cut_short,
            findings=tuple(
                _recorded(
                    one, tree, sorted({_cases_of(run, chosen) for run in runs}), is_both=key in other.found
                )
                for key, (one, runs) in self.found.items()
            ),
        )


def read_findings(
    runs: Runs, side: str, tree: Path, line_of: LineOf, *, may_be_short: bool = False
) -> SideFindings:
    """Read the results of a side's runs; with ``may_be_short`` a report may be missing.

    Raises EMULATION_UNREPORTED.
    """
    lines = SourceLines(runs.looked / "objects", tree)
    found: dict[tuple[object, ...], tuple[Finding, tuple[str, ...]]] = {}
    reports: list[EmulationReport] = []
    cut_short = 0
    for place in runs.of(side):
        notes, processes = load_unreported_findings(place)
        cut_short += processes
        if not may_be_short or (place / RUN_REPORT).exists():
            reports.append(load_report(place / RUN_REPORT))
            notes = [*reports[-1].findings, *notes]
        for one in distinct([_pooled(note, place) for note in notes], lines):
            if one.is_note:
                continue
            key = fault_key(one, line_of)
            first, names = found.get(key, (None, ()))
            merged = one if first is None else replace(first, times=first.times + one.times)
            found[key] = (merged, names if place.name in names else (*names, place.name))
    return SideFindings(found=found, reports=reports, cut_short=cut_short)


def _pooled(found: Found, folder: Path) -> Found:
    """Name code objects by their content: processes load the same ones, and each is then read once."""
    other = None if found.other is None else _pooled_place(found.other, folder)
    return found.model_copy(update={"at": _pooled_place(found.at, folder), "other": other})


def _pooled_place(place: CodePlace, folder: Path) -> CodePlace:
    if not place.object or "/" in place.object:
        return place
    try:
        with open_regular(folder / place.object) as stream:
            digest = sha256(stream.read())
        pool = folder.parent / "objects"
        pool.mkdir(exist_ok=True)
        if not (pool / digest).exists():
            (pool / digest).hardlink_to(folder / place.object)
    except (OSError, ValueError):
        return place
    return place.model_copy(update={"object": digest})


def _cases_of(run: str, chosen: Selected) -> str:
    """The operations of a run, or a note that the cases are patchkit's."""
    if run.startswith("own-"):
        return _OURS
    number = run.rpartition("-")[2].partition(".")[0]  # after the dot: which half of the part it was
    parts = list(parts_of(chosen.choice.cases))
    cases = parts[int(number)] if number.isdigit() and int(number) < len(parts) else ()
    return ",".join(dict.fromkeys(case.partition("(")[0] for case in cases)) or chosen.label


def _recorded(one: Finding, tree: Path, found_in: Sequence[str], *, is_both: bool) -> RecordedFinding:
    other = None if one.other is None else f"{one.other.place}   {one.other.text}"
    source = b""
    if one.at.file is not None and one.at.line is not None:
        source = dict(enumerate(source_lines(tree, one.at.file), start=1)).get(one.at.line, b"")
    return RecordedFinding(
        kind=one.kind,
        what=one.title,
        kernel=str(read_name(one.kernel)),
        place=one.at.place,
        file=one.at.file,
        line=one.at.line,
        source=source.decode("utf-8", "replace").strip()[:_LONGEST_LINE],
        code=one.at.text,
        inlined_at=one.at.places[1:],
        other=other,
        times=one.times,
        called_from=tuple(map(str, one.called_from[:_SHOWN_FRAMES])),
        found_in=tuple(found_in),
        on_other_side=is_both,
    )


def judge(found: SanitizeEvidence, subject: Subject, command: str) -> Iterator[PatchkitError]:
    """Check every rule; ``command`` shows a finding again if an operation is appended."""
    if not found.candidate.launches and not found.own:
        yield GateError(
            "the candidate launched no kernel, so nothing was checked",
            code="NOTHING_LAUNCHED",
            why="no kernel computes a case of these operations",
            hint="patchkit verify --gate launch shows what the candidate launches",
        )
    for one in found.own[:_SHOWN]:
        patches = subject.patches_of(one.file, one.line) if one.file is not None else ()
        more = [f"inlined at {place}" for place in one.inlined_at]
        more += [f"the other: {one.other}"] if one.other else []
        more += [f"launched from {', '.join(one.called_from)}"] if one.called_from else []
        yield GateError(
            f"{one.kind} in kernel {one.kernel}, not found on the baseline: {one.source or one.code}",
            code="SANITIZE_FOUND",
            where=Location(path=one.file, line=one.line, label=", ".join(patches) or None)
            if one.file is not None
            else (),
            why="\n".join(
                [f"{one.what}; {counted(one.times, 'time')}", f"at {one.place}   {one.code}", *more]
            ),
            hint=_again(one, command, subject.archs),
        )
    if len(found.own) > _SHOWN:
        yield GateError(
            f"{len(found.own) - _SHOWN} more findings that the baseline does not have",
            code="SANITIZE_FOUND",
            hint="all are in the evidence: patchkit report",
        )


def _again(one: RecordedFinding, command: str, archs: Sequence[str]) -> str:
    """The next command: upstream's program for the operation; the gate if only patchkit's cases show it."""
    ops = [each for each in one.found_in if each != _OURS]
    if not ops:
        options = " ".join(f"--arch {arch}" for arch in archs)
        verify = f"patchkit verify {options} --emulated --gate {NAME} --fresh"
        return f"only patchkit's own cases reach it: {verify}"
    some = ["-p", EMULATED_SAMPLE] if ops[0] == ATTENTION else []
    return f"{command} {shlex.join(['-o', ops[0], *some])}"


def _summary(found: SanitizeEvidence) -> str:
    seen = found.candidate
    return (
        f"{counted(seen.launches, 'launch', 'launches')} of {seen.cases} cases of upstream and "
        f"{seen.own_cases} of patchkit checked on {found.device}; {counted(len(found.own), 'finding')} of "
        f"the candidate's own, {len(found.baseline.findings)} of upstream's"
    )


def _lines(found: SanitizeEvidence) -> Iterator[str]:
    """The lines below the summary; the candidate's findings are among the errors."""
    for name, side in (("baseline", found.baseline), ("candidate", found.candidate)):
        yield (
            f"{name}: {counted(side.launches, 'launch', 'launches')} of {counted(side.kernels, 'kernel')}, "
            f"{counted(len(side.findings), 'finding')}; checks: {', '.join(found.checks)}"
        )
    for one in found.baseline.findings[:_SHOWN]:
        gone = "" if one.on_other_side else "; not seen on the candidate"
        yield f"upstream's own: {one.kind} in {one.kernel} at {one.place}: {one.what}{gone}"
    hidden = len(found.baseline.findings) - _SHOWN
    if hidden > 0:
        yield f"upstream's own: {hidden} more in the evidence"


def _not_checked(found: SanitizeEvidence, fault: str | None) -> Iterator[str]:
    on_cpu = sorted({*found.baseline.on_cpu, *found.candidate.on_cpu})
    if on_cpu:
        yield f"matmuls that the CPU computed in place of BLAS: {', '.join(on_cpu)}"
    for name, side in (("baseline", found.baseline), ("candidate", found.candidate)):
        if side.cut_short:
            processes = counted(side.cut_short, "process", "processes")
            yield f"cases of the {name} after the early end of {processes}"
    if fault is not None:
        yield f"code of the candidate after this fault: {fault}"
    if any(one.on_other_side for one in found.candidate.findings):
        yield "other faults of the candidate on lines where upstream has one: they count as upstream's"
