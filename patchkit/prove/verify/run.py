"""Run the gates on a candidate in order of cost, and write the evidence."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import CacheError, PatchkitError, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.plain import fields_of, plain
from patchkit.base.series_folder import PLAIN
from patchkit.base.store import STORES, store_in
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.candidate.listing import Available, find_available
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.fault import find_faults
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import terms_of
from patchkit.carry.series.trust import LEVELS, Assessment, Level
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.gates.base import NOT_SELECTED, SKIPPED, Gate, GateResult, RunSetup
from patchkit.prove.gates.registry import cpu_names, entries, gate_names, ladder_of, load, plain_names
from patchkit.prove.subject import Subject, lock_evidence, make_subject
from patchkit.prove.verify.hardware import Hardware, choose_hardware
from patchkit.prove.verify.kept import Kept, key_of_run
from patchkit.prove.verify.policy import load_proven_series
from patchkit.prove.verify.timings import Stage, Stopwatch
from patchkit.toolchain.hip import Toolchain, check_archs, find_toolchain, rocwmma_for

NOTHING = "nothing to prove: the candidate has no patch, it is upstream's own tree"


class UnknownGate(UsageError):
    """``--gate`` has an unknown name."""

    code = "UNKNOWN_GATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePatch:
    """A patch of the candidate, and the evidence for its gain on the candidate's GPUs.

    ``trust``: the level of evidence, the lowest of all GPUs; None if no gain is known on one of them.
    ``sources``: who measured a gain of the patch itself, not of something that does the same. ``gain``: what
    is known, in words.
    """

    id: str
    title: str
    trust: Level | None
    sources: tuple[str, ...]
    gain: str

    @classmethod
    def of(cls, patch: Patch, assessments: Mapping[str, Assessment]) -> CandidatePatch:
        """Make it from the claims about the patch on each GPU."""
        levels = [each.level for each in assessments.values()]
        known = [level for level in levels if level is not None]
        sentences = {arch: each.sentence() for arch, each in assessments.items()}
        is_same = len(set(sentences.values())) == 1
        return cls(
            id=patch.id,
            title=patch.title,
            trust=max(known, key=LEVELS.index) if known and len(known) == len(levels) else None,
            sources=tuple(
                dict.fromkeys(
                    who for each in assessments.values() for who in each.gains if who not in each.indirect
                )
            ),
            gain=next(iter(sentences.values()))
            if is_same
            else "; ".join(f"{arch}: {sentence}" for arch, sentence in sentences.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of ``verify``.

    ``proven_with`` lists the tools; ``folder`` has the evidence; ``stopped`` is the code of the error that
    ended the run early. ``nothing``: set if the candidate has no patch, with the pins that have some.
    ``known_faults``: known defects of the candidate's build on these GPUs that its patches do not fix.
    ``timings``: the time spent in each gate.
    """

    json_keys: ClassVar = (
        "ok nothing_to_prove available=nothing stopped branch archs base tip tree proven_with "
        "known_faults patches gates=gate_records timings"
    )

    branch: str
    archs: tuple[str, ...]
    base: str
    tip: str
    tree: str
    folder: Path
    proven_with: tuple[str, ...] = ()
    known_faults: tuple[str, ...] = ()
    patches: tuple[CandidatePatch, ...] = ()
    gates: tuple[GateResult, ...] = ()
    stopped: str | None = None
    nothing: Available | None = None
    timings: tuple[Stage, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a gate failed."""
        return any(gate.verdict == "failed" for gate in self.gates)

    @property
    def ok(self) -> bool:
        """Whether every selected gate ran, and none failed."""
        return not self.failed and self.stopped is None and self.nothing is None

    @property
    def nothing_to_prove(self) -> bool:
        """Whether the candidate has no patch."""
        return self.nothing is not None

    @property
    def gate_records(self) -> list[dict[str, object]]:
        """Each gate without its evidence, which is in a separate file."""
        return [
            {
                **fields_of(gate),
                "seconds": gate.seconds,
                "evidence": str(self.folder / f"{gate.gate}.json") if gate.evidence else None,
            }
            for gate in self.gates
        ]


def run_verify(  # noqa: PLR0913 - keyword arguments with defaults
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    only: Sequence[str],
    full: bool,
    environ: Mapping[str, str],
    candidate: Candidate | None = None,
    hardware: Hardware | None = None,
    then: Callable[[Path], None] | None = None,
) -> Report:
    """Run the gates and write the evidence to ``<cache>/evidence/<tree>``; without a patch no gate runs.

    ``candidate`` is one that has no branch yet; by default it is the one of ``archs`` on ``upstream``.
    Without ``hardware`` only gates run that need no GPU. ``then`` is called with the evidence folder once it
    is complete, also if the run ends early. Waits for another run on the same tree.

    Raises:
        UnknownGate: a name in ``only`` is not a gate.
        CANDIDATE_MISSING, CANDIDATE_STALE: there is nothing to verify.
        ToolchainMissing, SDK_UNUSABLE: no compiler, or none for these GPUs.
        ToolchainError, CacheError: a gate could not run; the evidence has the reason and the results of the
            gates before it.
    """
    watch = Stopwatch(workspace.reporter)
    workspace = replace(workspace, reporter=watch)
    hardware = hardware or choose_hardware(archs, None, model=None, no_gpu=True)
    only = tuple(hardware.own_name(name) for name in only)
    _refuse_unknown(only, hardware, archs)
    if candidate is None:
        repository, candidate = find_candidate(workspace, archs, upstream)
    else:
        root = workspace.cache_root
        repository = Repository(
            path=root / "upstream.git", reporter=workspace.reporter, parses=root / STORES["parses"]
        )
    tree = repository.tree_of(candidate.tip)
    report = Report(
        branch=candidate.branch,
        archs=candidate.archs,
        base=candidate.base,
        tip=candidate.tip,
        tree=tree,
        folder=workspace.cache_root / "evidence" / tree,
        known_faults=_known_faults(workspace, candidate),
        patches=tuple(_patches(workspace, candidate)),
    )
    if not candidate.commits:
        available = find_available(workspace.series, candidate.archs, candidate.build)
        with lock_evidence(workspace.cache_root, report.tree, workspace.reporter):
            return _nothing(replace(report, nothing=available), hardware, then)
    is_plain = candidate.archs == (PLAIN,)
    toolchain = None
    without_compiler = {entry.name for entry in entries() if not entry.compiles} | set(cpu_names())
    if not is_plain and (not only or set(only) - without_compiler):
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
        check_archs(toolchain, candidate.archs, workspace.reporter)
        report = replace(report, proven_with=_tools(toolchain, candidate))
    with watch.stage("trees"):
        subject = make_subject(workspace, repository, candidate, toolchain)
    setup = RunSetup(workspace=workspace, upstream=upstream, full=full)
    chosen = [entry for entry in entries("anywhere") if not is_plain or entry.plain is True]
    key, fresh = key_of_run(subject, workspace, full=full), hardware.fresh or full
    passed = store_in(workspace.cache_root, "gates")
    anywhere = [
        Kept(inner=load(entry.gate).make(setup), key=key, store=passed, fresh=fresh) for entry in chosen
    ]
    gates = (*anywhere, *hardware.gates)
    not_here = [_skipped(name, NOT_SELECTED if only else why) for name, why in hardware.not_here.items()]
    results: list[GateResult] = []
    with lock_evidence(workspace.cache_root, report.tree, workspace.reporter):
        try:
            for result in _run(gates, subject, only, report.folder, watch):
                results.append(result)  # noqa: PERF402 - kept when the next one raises
        except (PatchkitError, KeyboardInterrupt) as error:
            # The folder must not keep evidence of an earlier run next to a run that ended early.
            results += _cut_short(gates[len(results) :], error, report.folder)
            code = error.code if isinstance(error, PatchkitError) else "INTERRUPTED"
            with contextlib.suppress(PatchkitError):  # a full disk is reported already
                _finish(
                    replace(report, gates=(*results, *not_here), stopped=code, timings=watch.stages), then
                )
            raise
        return _finish(replace(report, gates=(*results, *not_here), timings=watch.stages), then)


def _known_faults(workspace: Workspace, candidate: Candidate) -> tuple[str, ...]:
    faults = load_proven_series(workspace.series.patches).faults
    live = [(patch, candidate.archs) for patch in candidate.ids]
    found = find_faults(faults, candidate.build, candidate.archs, live)
    return tuple(each.sentence() for each in found if each.archs)


def _patches(workspace: Workspace, candidate: Candidate) -> Iterator[CandidatePatch]:
    """The patches of the candidate; its series may be newer and lack some of them."""
    series = load_proven_series(workspace.series.patches)
    archs = [arch for arch in candidate.archs if arch != PLAIN]
    profiles = [load_profile(workspace.series.profiles, arch) for arch in archs]
    for name in candidate.ids:
        patch = series.patch(name)
        if patch is None:
            continue
        assessments = {
            each.arch: terms_of(series, patch, each, candidate.build).assessment for each in profiles
        }
        yield CandidatePatch.of(patch, assessments)


def _finish(report: Report, then: Callable[[Path], None] | None) -> Report:
    _write(report.folder / "report.json", report)
    if then is not None:
        then(report.folder)
    return report


def _nothing(report: Report, hardware: Hardware, then: Callable[[Path], None] | None) -> Report:
    """The report of a candidate without a patch; needs no compiler."""
    here = [name for name in gate_names("anywhere") if name in ladder_of(report.archs)]
    names = dict.fromkeys((*here, *(gate.name for gate in hardware.gates), *hardware.not_here))
    report = _finish(replace(report, gates=tuple(_skipped(name, NOTHING) for name in names)), None)
    # Evidence of upstream's own tree, which all GPUs share, is of no patch. The new report is written first:
    # an older one must not lose the files that it names.
    with disk_errors(report.folder, "removing old evidence"):
        for name in (*gate_names(), *cpu_names()):
            (report.folder / f"{name}.json").unlink(missing_ok=True)
    if then is not None:
        then(report.folder)
    return report


def _cut_short(
    gates: Sequence[Gate], error: PatchkitError | KeyboardInterrupt, folder: Path
) -> list[GateResult]:
    """The gate that ``error`` ended, with its evidence, and those after it."""
    summary = "interrupted"
    problems: tuple[PatchkitError, ...] = ()
    if isinstance(error, PatchkitError):
        summary, problems = error.message, (error,)
    broken = GateResult(gate=gates[0].name, verdict="not run", summary=summary, problems=problems)
    with contextlib.suppress(CacheError):  # as above
        _write(folder / f"{broken.gate}.json", broken)
    return [
        broken,
        *(_skipped(gate.name, f"{SKIPPED}gate {broken.gate} could not run") for gate in gates[1:]),
    ]


def _run(
    gates: Sequence[Gate], subject: Subject, only: Sequence[str], folder: Path, watch: Stopwatch
) -> Iterator[GateResult]:
    stopped: str | None = None
    for gate in gates:
        if only and gate.name not in only:
            yield _skipped(gate.name, NOT_SELECTED)
            continue
        if stopped is not None:
            yield _skipped(gate.name, f"{SKIPPED}gate {stopped} failed")
            continue
        subject.reporter.step(f"gate {gate.name}")
        began = time.monotonic()
        with watch.stage(gate.name):
            result = gate.run(subject)
        _write(folder / f"{gate.name}.json", result)
        yield replace(result, seconds=round(time.monotonic() - began, 2))
        if result.verdict == "failed":
            stopped = gate.name


def _skipped(name: str, why: str) -> GateResult:
    return GateResult(gate=name, verdict="not run", summary=why)


def _refuse_unknown(only: Sequence[str], hardware: Hardware, archs: Sequence[str]) -> None:
    anywhere = plain_names() if tuple(archs) == (PLAIN,) else gate_names("anywhere")
    here = (*anywhere, *(gate.name for gate in hardware.gates))
    for name in only:
        if name in here:
            continue
        if name in hardware.not_here:
            raise UnknownGate(
                f"gate '{name}' cannot run here: it {hardware.not_here[name]}",
                hint=f"gates that can run: {', '.join(here)}",
            )
        others = tuple(name for name in hardware.not_here if name not in here)
        hint = f"gates: {', '.join((*here, *others))}"
        raise UnknownGate(f"unknown gate '{name}'", hint=hint)


def _tools(toolchain: Toolchain, candidate: Candidate) -> tuple[str, ...]:
    rocwmma = {arch: rocwmma_for(toolchain, arch) for arch in candidate.archs}
    tools = [
        f"clang {toolchain.clang_version} ({toolchain.clang})",
        f"HIP headers {toolchain.hip_version} ({'ROCm' if toolchain.kind == 'rocm' else 'SDK of patchkit'})",
    ]
    for arch, one in rocwmma.items():
        kind = f" ({one.kind})" if one is not None and one.kind != "git" else ""
        version = "none" if one is None else f"{one.version}{kind}"
        tools.append(f"rocWMMA for {arch}: {version}")
    return tuple(tools)


def _write(path: Path, document: object) -> None:
    write_whole(path, json.dumps(plain(document), indent=1) + "\n", "writing evidence")


def failures(report: Report) -> list[PatchkitError]:
    """All problems of all gates."""
    return [problem for gate in report.gates for problem in gate.problems]
