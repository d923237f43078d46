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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from patchkit.base.errors import Location, PatchkitError, members_of
from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.candidate.workspace import Workspace
from patchkit.gates.hardware import Hardware
from patchkit.pull.changes import SERIES_PARTS, Part, Pull, parts_of, read_pull
from patchkit.pull.errors import OwnTestsNeeded
from patchkit.pull.fork import judge_fork
from patchkit.pull.judge import NOT_DESCRIBED, Outcome, explain_target, judge_target, place_target, set_aside
from patchkit.pull.lock_rules import check_described, check_pins, stale_results
from patchkit.pull.side import Side, point_into, read_side
from patchkit.pull.targets import find_attention, find_targets, foreign_profiles
from patchkit.pull.verdict import Finding, Judged, Verdict

_OWN_TESTS = ".ci/run"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """``explain``: plan only. ``own_tests_passed``: somebody ran patchkit's own tests on the head."""

    repository: Path
    base: str
    head: str
    explain: bool = False
    own_tests_passed: bool = False
    full: bool = False
    own_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """What git says. ``needs_more``: it is a fork, or the series changed."""

    request: GateRequest
    pull: Pull
    parts: Mapping[str, Part]

    @property
    def needs_more(self) -> bool:
        """Whether the verdict needs more than this look."""
        return self.pull.kind == "fork" or any(part in SERIES_PARTS for part in self.parts.values())

    def verdict(
        self,
        judged: tuple[Judged, ...] = (),
        findings: tuple[Finding, ...] = (),
        attention: tuple[str, ...] = (),
    ) -> Verdict:
        """The verdict on a pull request to this project, with what came of its candidates."""
        own = _own_tests(self.pull, self.parts, passed=self.request.own_tests_passed)
        return Verdict(
            pull=self.pull,
            parts=self.parts,
            judged=judged,
            findings=(*findings, *own.findings),
            attention=(*_behind(self.pull), *attention, *own.attention),
            own_tests=own.state,
            explained=self.request.explain,
        )


def look_first(request: GateRequest, reporter: Reporter) -> FirstLook:
    """Read what changed.

    Raises:
        GATE_REPOSITORY_ABSENT, GATE_REF_UNKNOWN, GATE_NO_COMMON_COMMIT, GATE_REPOSITORY_UNKNOWN: there is
            nothing to judge.
        GitError: git refused.
    """
    pull = read_pull(request.repository, request.base, request.head, reporter)
    return FirstLook(request=request, pull=pull, parts={} if pull.kind == "fork" else parts_of(pull.changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnTests:
    state: Literal["not needed", "needed", "passed"]
    findings: tuple[Finding, ...] = ()
    attention: tuple[str, ...] = ()


def _own_tests(pull: Pull, parts: Mapping[str, Part], *, passed: bool) -> _OwnTests:
    """A change of patchkit itself: the gate runs the patchkit that is installed, so it cannot judge it."""
    code = [path for path, part in parts.items() if part in ("code", "catalogue")]
    if not code:
        return _OwnTests(state="not needed")
    told = f"{len(code)} changed file{'s'[: len(code) > 1]} of patchkit itself"
    if passed:
        return _OwnTests(
            state="passed",
            attention=(f"{told}: that its own tests pass was said by the caller, not seen here",),
        )
    problem = OwnTestsNeeded(
        f"{told}: this gate cannot judge {'them' if len(code) > 1 else 'it'}",
        where=[Location(path=path) for path in code[:8]],
        why=(
            "it runs the patchkit that is installed, never that of the pull request; candidates are judged "
            "as that one makes them"
        ),
        hint=f"run {_OWN_TESTS} at {pull.head[:12]}, then this with --own-tests passed",
    )
    return _OwnTests(state="needed", findings=(Finding(problem=problem),))


def _behind(pull: Pull) -> Iterator[str]:
    if pull.behind:
        yield (
            f"the head is {pull.behind} commit{'s'[: pull.behind > 1]} behind the base: judged is the "
            "head as it stands, not what merging makes of it"
        )


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
