"""The work of ``patchkit gate``, from two commits to the verdict.

The order is that of cost: what changed (git), what the head's own data says (TOML), where its edits go
(planning), what the gates say (compiling). A lock that does not describe the head's series is found in its
files alone, and keeps every gate from running: they would judge another tree than the one that it records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.files import working_folder
from patchkit.base.workspace import Workspace
from patchkit.prove.pulls.changes import SERIES_PARTS
from patchkit.prove.pulls.fork import judge_fork
from patchkit.prove.pulls.judge import NOT_DESCRIBED, Judge, set_aside
from patchkit.prove.pulls.lock_rules import check_described, check_pins, stale_results
from patchkit.prove.pulls.look import FirstLook
from patchkit.prove.pulls.measured import judge_evidence
from patchkit.prove.pulls.side import point_into, read_side
from patchkit.prove.pulls.targets import find_attention, find_targets, foreign_profiles
from patchkit.prove.pulls.verdict import Finding, Judged, PullVerdict
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
        look: what changed.
        workspace: its cache is used; its series only for a fork of llama.cpp, which has none of its own.
        environ: where tools are looked for.
        hardware: the gates that run on hardware, for some GPUs; none by default.

    Raises:
        ConfigError: the series of the *fork point* is not what it must be.
        GATE_FORK_WITHOUT_BRANCH: the fork has no candidate.
        CacheError, GitError: the disk or git refused.
    """
    if look.pull.kind == "fork":
        return judge_fork(look, workspace, environ=environ, hardware=hardware)
    if not look.needs_more:
        return look.verdict()
    with working_folder(workspace.cache_root, "gate-", "making room for a pull request") as folder:
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
    judged: list[Judged] = []
    findings: list[Finding] = []
    try:
        changed = [path for path, part in look.parts.items() if part in SERIES_PARTS - {"lock"}]
        targets = find_targets(before, after, changed, foreign)
        behind = check_described(after, targets)
    except PatchkitError as error:
        problems += members_of(error)
    else:
        problems += behind
        judge = Judge(
            request=request,
            before=before,
            after=after,
            workspace=replace(workspace, series=after.files),
            foreign=foreign,
            environ=environ,
            hardware=hardware,
        )
        # Nothing is fetched for a pin whose lines in the lock are refused.
        refused = {str(place) for problem in of_pins for place in problem.where}
        for target in targets:
            if not target.reasons or str(target.pin.where) in refused:
                continue
            if request.explain:
                judged.append(set_aside(target, NOT_DESCRIBED) if behind else judge.explain(target))
                continue
            one, found = judge.place(target) if behind else judge.judge(target)
            judged.append(one)
            findings += found
    findings = in_order([*(Finding(problem=problem) for problem in problems), *findings])
    wrong, told = judge_evidence(look, after, workspace)
    findings += [Finding(problem=problem) for problem in wrong]
    for finding in findings:
        for side in (after, before):
            point_into(finding.problem, side.files.root)
    return look.verdict(tuple(judged), tuple(findings), (*find_attention(before, after), *told))


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """A lock that is behind comes last: a forgotten command must not hide what is wrong."""
    return sorted(findings, key=lambda finding: finding.problem.code.startswith("GATE_LOCK_"))
