"""``patchkit gate`` from the two names to the verdict.

The order is that of cost: what changed (git), what the head's own data says (TOML), where its edits go
(planning), what the gates say (compiling). A lock that does not describe the head's series is found in its
files alone, and keeps every gate from running: they would judge another tree than the one that it records.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.files import disk_errors
from patchkit.candidate.workspace import Workspace
from patchkit.gates.hardware import Hardware
from patchkit.pull.changes import SERIES_PARTS
from patchkit.pull.fork import judge_fork
from patchkit.pull.judge import NOT_DESCRIBED, Outcome, explain_target, judge_target, place_target, set_aside
from patchkit.pull.lock_rules import check_described, check_pins, stale_results
from patchkit.pull.look import FirstLook
from patchkit.pull.side import Side, point_into, read_side
from patchkit.pull.targets import find_attention, find_targets, foreign_profiles
from patchkit.pull.verdict import Finding, Verdict

_PREFIX = "gate-"


def run_gate(
    look: FirstLook,
    workspace: Workspace,
    *,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None = None,
) -> Verdict:
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
    request = look.request
    if look.pull.kind == "fork":
        return judge_fork(
            look.pull,
            workspace,
            own_files=request.own_files,
            explain=request.explain,
            full=request.full,
            environ=environ,
            hardware=hardware,
        )
    if not look.needs_more:
        return look.verdict()
    with _stage(workspace.cache_root) as folder:
        outcome = _judge_series(look, workspace, folder, environ, hardware)
    return look.verdict(outcome.judged, outcome.findings, outcome.attention)


@contextmanager
def _stage(cache_root: Path) -> Iterator[Path]:
    with disk_errors(cache_root, "making room for a pull request"):
        cache_root.mkdir(parents=True, exist_ok=True)
        for remains in cache_root.glob(f"{_PREFIX}*-*"):
            if not _is_alive(remains.name):
                shutil.rmtree(remains, ignore_errors=True)
        # Resolved, because errors are told by what they name below it.
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=cache_root)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(name: str) -> bool:
    """Whether the process that a folder is named after still runs; it, or another one of its number."""
    try:
        os.kill(int(name.removeprefix(_PREFIX).partition("-")[0]), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _judge_series(
    look: FirstLook,
    workspace: Workspace,
    folder: Path,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None,
) -> Outcome:
    pull, request = look.pull, look.request
    before = read_side(pull.repository, pull.fork_point, folder / "before")
    try:
        after = read_side(pull.repository, pull.head, folder / "after")
    except PatchkitError as error:
        return Outcome(findings=tuple(Finding(problem=one) for one in members_of(error)))
    problems = [*check_pins(before.lock, after.lock), *stale_results(after)]
    refused = _refused_builds(before, after)
    changed = [path for path, part in look.parts.items() if part in SERIES_PARTS - {"lock"}]
    foreign = foreign_profiles(before, after)
    total = Outcome(
        findings=tuple(Finding(problem=problem) for problem in problems),
        attention=tuple(find_attention(before, after)),
    )
    try:
        targets = find_targets(before, after, changed, foreign)
        behind = check_described(after, targets)
    except PatchkitError as error:
        return total.plus(Outcome(findings=tuple(Finding(problem=one) for one in members_of(error))))
    total = total.plus(Outcome(findings=tuple(Finding(problem=problem) for problem in behind)))
    mine = replace(workspace, series=after.files)
    for target in targets:
        if not target.reasons or target.pin.build in refused:
            continue
        if request.explain and behind:
            total = total.plus(Outcome(judged=(set_aside(target, NOT_DESCRIBED),)))
        elif behind:
            total = total.plus(place_target(target, before, after, mine))
        elif request.explain:
            total = total.plus(explain_target(target, before, after, foreign=foreign))
        else:
            workspace.reporter.step(f"judging {target.name}")
            total = total.plus(
                judge_target(
                    target,
                    before,
                    after,
                    mine,
                    foreign=foreign,
                    full=request.full,
                    environ=environ,
                    hardware=hardware(target.archs) if hardware else None,
                )
            )
    for finding in total.findings:
        for side in (after, before):
            point_into(finding.problem, side.files.root)
    return total.in_order()


def _refused_builds(before: Side, after: Side) -> frozenset[int]:
    """Pins whose lines in the lock are refused: nothing is fetched for them."""
    places = {str(place) for problem in check_pins(before.lock, after.lock) for place in problem.where}
    return frozenset(pin.build for pin in after.lock.pins if str(pin.where) in places)
