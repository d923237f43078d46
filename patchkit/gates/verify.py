"""Running the gates over a candidate, in order of cost, and saying what was proven and what was not."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import CacheError, PatchkitError, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.build.toolchain import Toolchain, check_archs, find_toolchain, rocwmma_for
from patchkit.candidate.find import find_candidate
from patchkit.candidate.listing import Available, find_available
from patchkit.candidate.record import Candidate
from patchkit.candidate.subject import Subject, make_subject
from patchkit.candidate.workspace import Workspace
from patchkit.gates.base import Gate, GateResult, RunSetup
from patchkit.gates.hardware import Hardware, choose_hardware
from patchkit.gates.registry import cpu_names, entries, gate_names, load
from patchkit.series.lock import PinWanted, load_lock
from patchkit.upstream.repository import Repository

NOTHING = "nothing to prove: the candidate has no patch, it is upstream's own tree"


class UnknownGate(UsageError):
    """``--gate`` names no gate."""

    code = "UNKNOWN_GATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One gate's result and how long it took, in seconds."""

    result: GateResult
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``verify`` found.

    ``proven_with`` says by which tools; ``folder`` holds the evidence; ``stopped`` is the code of the error
    that ended the run in the middle. ``nothing``: the candidate has no patch, and where there are some.
    """

    branch: str
    archs: tuple[str, ...]
    base: str
    tip: str
    tree: str
    proven_with: tuple[str, ...]
    gates: tuple[Timed, ...]
    folder: Path
    stopped: str | None = None
    nothing: Available | None = None

    @property
    def failed(self) -> bool:
        """Whether a gate failed."""
        return any(gate.result.verdict == "failed" for gate in self.gates)

    def as_json(self) -> dict[str, object]:
        """Plain data; the evidence of each gate stands in its own file."""
        gates: list[dict[str, object]] = []
        for gate in self.gates:
            row = gate.result.as_json()
            del row["evidence"]
            evidence = self.folder / f"{gate.result.gate}.json"
            row |= {"seconds": gate.seconds, "evidence": str(evidence) if gate.result.evidence else None}
            gates.append(row)
        return {
            "ok": not self.failed and self.stopped is None and self.nothing is None,
            "nothing_to_prove": self.nothing is not None,
            "available": None if self.nothing is None else self.nothing.as_json(),
            "stopped": self.stopped,
            "branch": self.branch,
            "archs": list(self.archs),
            "base": self.base,
            "tip": self.tip,
            "tree": self.tree,
            "proven_with": list(self.proven_with),
            "gates": gates,
        }


def run_verify(  # noqa: PLR0913 - all but the first by name; callers leave most of them out
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
    """Run the gates, of a candidate without a patch none; evidence goes to ``<cache>/evidence/<tree>``.

    ``candidate`` is one that no branch names yet; by default it is that of
    ``archs`` on ``upstream``. Without ``hardware`` only the gates run that need no GPU. ``then`` gets the
    folder of the evidence once it is complete, also when the run ends in the middle.

    Raises:
        UnknownGate: ``only`` names none.
        CANDIDATE_MISSING, CANDIDATE_BROKEN, CANDIDATE_PATCH_UNKNOWN: there is nothing to verify.
        ToolchainMissing, SDK_COMPILER_LACKS_ARCH: no compiler, or none for these GPUs.
        ToolchainError, CacheError: a gate could not be run; the evidence says which and why, and what the
            gates before it found.
    """
    hardware = hardware or choose_hardware(archs, None, model=None, no_gpu=True)
    only = tuple(hardware.own_name(name) for name in only)
    _refuse_unknown(only, hardware)
    repository, candidate = _candidate(workspace, archs, upstream, candidate)
    if not candidate.commits:
        return _nothing(workspace, repository, candidate, hardware, then)
    toolchain = None
    without_compiler = {entry.name for entry in entries() if not entry.compiles} | set(cpu_names())
    if not only or set(only) - without_compiler:
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
        check_archs(toolchain, candidate.archs, workspace.reporter)
    subject = make_subject(workspace, repository, candidate, toolchain)
    folder = workspace.cache_root / "evidence" / subject.candidate_tree
    setup = RunSetup(workspace=workspace, upstream=upstream, full=full)
    gates = (*(load(entry.gate).make(setup) for entry in entries("anywhere")), *hardware.gates)
    not_here = _not_here(only, hardware)
    results: list[Timed] = []
    try:
        for made in _run(gates, subject, only, folder):
            results.append(made)  # noqa: PERF402 - kept when the next one raises
    except (PatchkitError, KeyboardInterrupt) as error:
        # What an earlier run proved must not stand beside a run that ended in the middle.
        results += _cut_short(gates[len(results) :], error, folder)
        report = _report(candidate, subject, toolchain, [*results, *not_here], folder, _code(error))
        with contextlib.suppress(PatchkitError):  # a full disk is being told already
            _write(folder / "report.json", report.as_json())
            if then is not None:
                then(folder)
        raise
    return _told(_report(candidate, subject, toolchain, [*results, *not_here], folder), then)


def _told(report: Report, then: Callable[[Path], None] | None) -> Report:
    _write(report.folder / "report.json", report.as_json())
    if then is not None:
        then(report.folder)
    return report


def _nothing(
    workspace: Workspace,
    repository: Repository,
    candidate: Candidate,
    hardware: Hardware,
    then: Callable[[Path], None] | None,
) -> Report:
    """The report of a candidate without a patch; nothing is exported and no compiler is looked for."""
    tree = repository.tree_of(candidate.tip)
    folder = workspace.cache_root / "evidence" / tree
    names = dict.fromkeys(
        (*gate_names("anywhere"), *(gate.name for gate in hardware.gates), *hardware.not_here)
    )
    report = Report(
        branch=candidate.branch,
        archs=candidate.archs,
        base=candidate.base,
        tip=candidate.tip,
        tree=tree,
        proven_with=(),
        gates=tuple(_skipped(name, NOTHING) for name in names),
        folder=folder,
        nothing=find_available(workspace.series, candidate.archs, candidate.build),
    )
    _write(folder / "report.json", report.as_json())
    # Upstream's tree is the same for every GPU: what lies there was never evidence of a patch. The report was
    # written first: an older one must not lose what it names.
    with disk_errors(folder, "removing old evidence"):
        for name in (*gate_names(), *cpu_names()):
            (folder / f"{name}.json").unlink(missing_ok=True)
    if then is not None:
        then(folder)
    return report


def _candidate(
    workspace: Workspace, archs: Sequence[str], upstream: PinWanted, given: Candidate | None
) -> tuple[Repository, Candidate]:
    pin = load_lock(workspace.series.lock).pin(upstream)
    if given is None:
        return find_candidate(workspace, archs, pin)
    return Repository(path=workspace.cache_root / "upstream.git", reporter=workspace.reporter), given


def _cut_short(gates: Sequence[Gate], error: PatchkitError | KeyboardInterrupt, folder: Path) -> list[Timed]:
    """The gate that ``error`` ended, with its evidence, and those behind it."""
    told = "interrupted in the middle"
    problems: tuple[PatchkitError, ...] = ()
    if isinstance(error, PatchkitError):
        told, problems = error.message, (error,)
    broken = GateResult(gate=gates[0].name, verdict="not run", summary=told, problems=problems)
    with contextlib.suppress(CacheError):  # as above
        _write(folder / f"{broken.gate}.json", broken.as_json())
    behind = [_skipped(gate.name, f"gate {broken.gate} could not run") for gate in gates[1:]]
    return [Timed(result=broken, seconds=0.0), *behind]


def _code(error: PatchkitError | KeyboardInterrupt) -> str:
    return error.code if isinstance(error, PatchkitError) else "INTERRUPTED"


def _report(
    candidate: Candidate,
    subject: Subject,
    toolchain: Toolchain | None,
    results: Sequence[Timed],
    folder: Path,
    stopped: str | None = None,
) -> Report:
    return Report(
        branch=candidate.branch,
        archs=candidate.archs,
        base=candidate.base,
        tip=candidate.tip,
        tree=subject.candidate_tree,
        proven_with=_tools(toolchain, candidate),
        gates=tuple(results),
        folder=folder,
        stopped=stopped,
    )


def _run(gates: Sequence[Gate], subject: Subject, only: Sequence[str], folder: Path) -> Iterator[Timed]:
    stopped: str | None = None
    for gate in gates:
        if only and gate.name not in only:
            yield _skipped(gate.name, "not asked for")
            continue
        if stopped is not None:
            yield _skipped(gate.name, f"gate {stopped} failed")
            continue
        subject.reporter.step(f"gate {gate.name}")
        began = time.monotonic()
        result = gate.run(subject)
        seconds = round(time.monotonic() - began, 2)
        _write(folder / f"{gate.name}.json", result.as_json())
        yield Timed(result=result, seconds=seconds)
        if result.verdict == "failed":
            stopped = gate.name


def _skipped(name: str, why: str) -> Timed:
    return Timed(result=GateResult(gate=name, verdict="not run", summary=why), seconds=0.0)


def _not_here(only: Sequence[str], hardware: Hardware) -> list[Timed]:
    return [_skipped(name, "not asked for" if only else why) for name, why in hardware.not_here.items()]


def _refuse_unknown(only: Sequence[str], hardware: Hardware) -> None:
    here = (*gate_names("anywhere"), *(gate.name for gate in hardware.gates))
    for name in only:
        if name in here:
            continue
        if name in hardware.not_here:
            raise UnknownGate(
                f"gate '{name}' cannot run here: it {hardware.not_here[name]}",
                hint=f"gates that can: {', '.join(here)}",
            )
        others = tuple(name for name in hardware.not_here if name not in here)
        hint = f"gates: {', '.join((*here, *others))}"
        raise UnknownGate(f"there is no gate '{name}'", hint=hint)


def _tools(toolchain: Toolchain | None, candidate: Candidate) -> tuple[str, ...]:
    if toolchain is None:
        return ()
    rocwmma = {arch: rocwmma_for(toolchain, arch) for arch in candidate.archs}
    told = [
        f"clang {toolchain.clang_version} ({toolchain.clang})",
        f"HIP headers {toolchain.hip_version} ({'ROCm' if toolchain.kind == 'rocm' else 'SDK of patchkit'})",
    ]
    for arch, one in rocwmma.items():
        kind = f" ({one.kind})" if one is not None and one.kind != "git" else ""  # git's version names itself
        what = "none" if one is None else f"{one.version}{kind}"
        told.append(f"rocWMMA for {arch}: {what}")
    return tuple(told)


def _write(path: Path, document: object) -> None:
    write_whole(path, json.dumps(document, indent=1) + "\n", "writing evidence")


def failures(report: Report) -> list[PatchkitError]:
    """Every problem of every gate."""
    return [problem for gate in report.gates for problem in gate.result.problems]
