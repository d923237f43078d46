"""Find evidence, in the cache or in any folder, and write reports of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import OTHER_FILE, check_output, disk_errors, write_output
from patchkit.base.plain import fields_of
from patchkit.base.report.terminal import terminal_summary
from patchkit.base.series_folder import PLAIN, arch_options
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate, named_candidate
from patchkit.carry.series.lock import PinWanted
from patchkit.prove.gates.record import SERIES, GateReport
from patchkit.prove.gates.registry import load
from patchkit.prove.publish.evidence import neutral, neutral_names
from patchkit.prove.report.evidence import load_evidence
from patchkit.prove.report.model import Run
from patchkit.prove.report.registry import find_format
from patchkit.prove.report.run_record import RunPatch
from patchkit.prove.verify.run import Report

_BRANCH = re.compile(r"candidate/[^/]+/(b[0-9]{1,9}|onto-[0-9a-f]{12})")


def write_reports(
    workspace: Workspace,
    folder: Path,
    environ: Mapping[str, str],
    *,
    files: Mapping[str, Path],
    summary: Path | None = None,
    version: str,
) -> None:
    """Write reports of the evidence in ``folder``: ``files`` by format, and Markdown appended to ``summary``.

    Raises the errors of reading evidence and of writing reports.
    """
    if not files and summary is None:
        return
    evidence = read_evidence(workspace, folder, environ)
    for form, path in files.items():
        write_report(path, make_report(evidence, form, version=version))
    if summary is not None:
        append_report(summary, "\n" + make_report(evidence, "markdown", version=version))


def find_evidence(
    workspace: Workspace, where: str | None, *, archs: Sequence[str], upstream: PinWanted
) -> tuple[Path, str | None]:
    """The folder ``where``, or that of a candidate: by its branch, else by ``archs`` and ``upstream``.

    For a candidate also its branch, because evidence belongs to a tree, and two candidates can have the same.

    Raises:
        EVIDENCE_MISSING: ``where`` is neither a folder nor a branch.
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no such candidate.
    """
    with contextlib.suppress(OSError):  # a name may be too long for a file
        if where is not None and Path(where).is_dir():
            return Path(where), None
    branch = _BRANCH.fullmatch(where) if where is not None else None
    if where is not None and branch is None:
        raise UsageError(
            f"'{where}' is neither a folder nor the branch of a candidate",
            code="EVIDENCE_MISSING",
            hint="patchkit status lists the candidates",
        )
    if branch is not None:
        repository, candidate = named_candidate(workspace, branch[0])
    else:
        repository, candidate = find_candidate(workspace, archs, upstream)
    tree = repository.git.run("rev-parse", "--verify", f"{candidate.tip}^{{tree}}").decode("ascii").strip()
    return workspace.cache_root / "evidence" / tree, candidate.branch


def read_evidence(
    workspace: Workspace,
    folder: Path,
    environ: Mapping[str, str],
    *,
    is_neutral: bool = True,
    of: str | None = None,
) -> Run:
    """Read the evidence in a folder, by default with paths of this machine replaced.

    ``of`` is the branch of the candidate that it should be of. Raises EVIDENCE_MISSING if it is of another
    candidate, and the errors of :func:`patchkit.prove.report.evidence.load_evidence`.
    """
    names = _names(workspace, environ)
    evidence = load_evidence(folder, (lambda data: neutral(data, names)) if is_neutral else None)
    if of is not None and evidence.branch != of:
        archs, _, pin = of.removeprefix("candidate/").partition("/")
        words = [] if archs == PLAIN else ["--no-gpu"]
        words += arch_options(archs.split("+"), workspace.series.profiles)
        raise UsageError(
            f"no evidence of {of}: the evidence of its tree is of {evidence.branch}",
            code="EVIDENCE_MISSING",
            where=Location(path=str(folder)),
            why="both candidates have the same tree, and the other one was verified last",
            hint=shlex.join(["patchkit", "verify", *words, "--upstream", pin]),
        )
    return evidence.model_copy(update={"arch_options": _options(workspace, evidence.archs)})


def _names(workspace: Workspace, environ: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    root = workspace.series.root
    series = [(os.fsencode(path), SERIES.rstrip("/").encode()) for path in {root, root.resolve()}]
    names = [*series, *neutral_names(workspace.cache_root, environ)]
    return sorted(names, key=lambda pair: -len(pair[0]))


def make_report(run: Run, form: str, *, version: str = "") -> str:
    """Render the report in the format of that name."""
    return str(load(find_format(form).render)(run.report(version=version)))


def summarize(workspace: Workspace, found: Report, width: int) -> str:
    """The terminal summary of a run that has just ended, wrapped at ``width``."""
    run = _as_read(found).model_copy(update={"arch_options": _options(workspace, found.archs)})
    return terminal_summary(run.report(), width)


def _options(workspace: Workspace, archs: Sequence[str]) -> tuple[str, ...]:
    return tuple(arch_options(archs, workspace.series.profiles))


def _as_read(found: Report) -> Run:
    """The run as :func:`read_evidence` would read it back, without the hashes of its files."""
    gates = tuple(
        GateReport.model_construct(
            name=gate.gate,
            verdict=gate.verdict,
            summary=gate.summary,
            problems=(),  # they are printed as errors
            not_run=gate.not_run,
            lines=gate.lines,
            seconds=gate.seconds,
            evidence=gate.evidence,
        )
        for gate in found.gates
    )
    return Run.model_construct(
        ok=found.ok,
        stopped=found.stopped,
        branch=found.branch,
        archs=found.archs,
        base=found.base,
        tip=found.tip,
        tree=found.tree,
        proven_with=found.proven_with,
        known_faults=found.known_faults,
        patches=tuple(RunPatch.model_validate(fields_of(patch)) for patch in found.patches),
        gates=gates,
        folder=str(found.folder),
        strays=(),
        files=(),
        nothing=None if found.nothing is None else found.nothing.sentence,
    )


def write_report(path: Path, text: str) -> None:
    """Write a file atomically; also to a pipe or device. Raises CacheError."""
    write_output(path, text.encode("utf-8", "backslashreplace"), "writing the report")


def append_report(path: Path, text: str) -> None:
    """Append to a file that other steps of a CI job also write to. Raises CacheError."""
    with disk_errors(path, "writing the summary", OTHER_FILE), path.open("ab") as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))


def check_writable(path: Path, *, appends: bool = False) -> None:
    """Raise CacheError now if the file cannot be written, instead of after a long run."""
    check_output(path, "preparing the report", appends=appends)


def check_apart(out: Path, others: Iterable[Path]) -> None:
    """Raise REPORT_FILE_TAKEN if the report would overwrite its evidence or another report."""
    real = Path(os.path.realpath(out))
    for other in others:
        if real == Path(os.path.realpath(other)) and (real.is_file() or not real.exists()):
            raise UsageError(
                f"refusing to overwrite {out}",
                code="REPORT_FILE_TAKEN",
                where=Location(path=str(other)),
                why="it is evidence, or another output of this command",
                hint="name another file",
            )
