"""The work of ``patchkit gate``, from two commits to the verdict.

Steps run in order of cost: what changed (git), the head's own data (TOML), where its edits go (planning),
gates (compiling). A lock that does not match the head's series is found from its files alone, and then no
gate runs, because gates would judge another tree than the recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.files import working_folder
from patchkit.base.workspace import Workspace
from patchkit.prove.pulls.changes import SERIES_PARTS
from patchkit.prove.pulls.first_look import FirstLook
from patchkit.prove.pulls.fork import judge_fork
from patchkit.prove.pulls.judge import NOT_DESCRIBED, Judge, set_aside
from patchkit.prove.pulls.lock_rules import check_described, check_pins, stale_results
from patchkit.prove.pulls.measured import judge_evidence
from patchkit.prove.pulls.side import point_into, read_side
from patchkit.prove.pulls.targets import find_attention, find_targets, foreign_profiles
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, PullVerdict
from patchkit.prove.verify.hardware import Hardware


def run_gate(
    look: FirstLook,
    workspace: Workspace,
    *,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None = None,
) -> PullVerdict:
    """Judge a pull request.

    Args:
        look: the changes.
        workspace: its cache is used; its series only for a fork of llama.cpp, which has no series.
        environ: the environment to find tools in.
        hardware: the gates that run on hardware, for some GPUs; none by default.

    Raises:
        ConfigError: the series of the *fork point* is invalid.
        GATE_FORK_WRONG: the fork has no candidate.
        CacheError, GitError: the disk or git failed.
    """
    if look.pull.kind == "fork":
        return judge_fork(look, workspace, environ=environ, hardware=hardware)
    if not look.needs_more:
        return look.verdict()
    with working_folder(workspace.cache_root, "gate-", "creating a folder for a pull request") as folder:
        return _judge_series(look, workspace, folder, environ, hardware)


def _judge_series(
    look: FirstLook,
    workspace: Workspace,
    folder: Path,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None,
) -> PullVerdict:
    pull, request = look.pull, look.request
    before = read_side(pull.repository, pull.fork_point, folder / "before")
    try:
        after = read_side(pull.repository, pull.head, folder / "after")
    except PatchkitError as error:
        return look.verdict(findings=tuple(Finding(problem=one) for one in members_of(error)))
    of_pins = list(check_pins(before.lock, after.lock))
    foreign = foreign_profiles(before, after)
    problems: list[PatchkitError] = [*of_pins, *stale_results(after)]
    judged: list[CandidateVerdict] = []
    findings: list[Finding] = []
    try:
        changed = [path for path, part in look.parts.items() if part in SERIES_PARTS - {"lock"}]
        targets = find_targets(before, after, changed, foreign)
        outdated = check_described(after, targets)
    except PatchkitError as error:
        problems += members_of(error)
    else:
        problems += outdated
        judge = Judge(
            request=request,
            before=before,
            after=after,
            workspace=replace(workspace, series=after.files),
            foreign=foreign,
            environ=environ,
            hardware=hardware,
        )
        # Nothing is fetched for a pin whose lock entry was rejected.
        refused = {str(place) for problem in of_pins for place in problem.where}
        for target in targets:
            if not target.reasons or str(target.pin.where) in refused:
                continue
            if request.explain:
                judged.append(set_aside(target, NOT_DESCRIBED) if outdated else judge.explain(target))
                continue
            one, found = judge.place(target) if outdated else judge.judge(target)
            judged.append(one)
            findings += found
    findings = in_order([*(Finding(problem=problem) for problem in problems), *findings])
    wrong, notes = judge_evidence(look, after, workspace)
    findings += [Finding(problem=problem) for problem in wrong]
    for finding in findings:
        for side in (after, before):
            point_into(finding.problem, side.files.root)
    return look.verdict(tuple(judged), tuple(findings), (*find_attention(before, after), *notes))


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Put an outdated lock last: a forgotten command must not hide real problems."""
    return sorted(findings, key=lambda finding: finding.problem.code.startswith("GATE_LOCK_"))
