"""A first look at a pull request with git only, which often shows that no candidate has to be judged."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GateError, Location
from patchkit.base.reporter import Reporter
from patchkit.prove.pulls.changes import SERIES_PARTS, Part, Pull, part_of, read_pull
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, PullVerdict

_OWN_TESTS = ".ci/run"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """``explain``: plan only. ``own_tests_passed``: the caller ran patchkit's own tests on the head."""

    repository: Path
    base: str
    head: str
    explain: bool = False
    own_tests_passed: bool = False
    full: bool = False
    own_files: tuple[str, ...] = ()
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """The changes as git reports them. ``needs_more``: it is a fork, or the series changed."""

    request: GateRequest
    pull: Pull
    parts: Mapping[str, Part]

    @property
    def needs_more(self) -> bool:
        """Whether the verdict needs more than this."""
        return self.pull.kind == "fork" or any(part in SERIES_PARTS for part in self.parts.values())

    def verdict(
        self,
        judged: tuple[CandidateVerdict, ...] = (),
        findings: tuple[Finding, ...] = (),
        attention: tuple[str, ...] = (),
    ) -> PullVerdict:
        """The verdict on a pull request to this project, with the results of its candidates."""
        code = [path for path, part in self.parts.items() if part in ("code", "catalogue")]
        changed = f"{len(code)} changed file{'s'[: len(code) > 1]} of patchkit itself"
        passed = self.request.own_tests_passed
        if code and not passed:
            findings = (*findings, Finding(problem=_own_tests_needed(code, changed, self.pull.head)))
        if code and passed:
            attention = (
                *attention,
                f"{changed}: its own tests pass according to the caller (--own-tests), not checked here",
            )
        return PullVerdict(
            pull=self.pull,
            parts=self.parts,
            judged=judged,
            findings=findings,
            attention=(*_outdated(self.pull), *attention),
            own_tests=("passed" if passed else "needed") if code else "not needed",
            explained=self.request.explain,
        )


def look_first(request: GateRequest, reporter: Reporter) -> FirstLook:
    """Read the changes.

    Raises:
        GATE_REPOSITORY_UNKNOWN: there is
            nothing to judge.
        GitError: git failed.
    """
    pull = read_pull(request.repository, request.base, request.head, reporter)
    changes = () if pull.kind == "fork" else pull.changes
    return FirstLook(request=request, pull=pull, parts={each.path: part_of(each) for each in changes})


def _own_tests_needed(code: Sequence[str], changed: str, head: str) -> GateError:
    """Report changes of patchkit itself: the gate runs the installed patchkit and so cannot judge them."""
    return GateError(
        f"this gate cannot judge the {changed}",
        code="GATE_OWN_TESTS_NEEDED",
        where=[Location(path=path) for path in code[:8]],
        why=(
            "the gate runs the installed patchkit, not the one in the pull request, and checks the "
            "candidates that the installed one makes"
        ),
        hint=f"run {_OWN_TESTS} at {head[:12]}, then this command with --own-tests passed",
    )


def _outdated(pull: Pull) -> Iterator[str]:
    if pull.behind:
        yield (
            f"the head is {pull.behind} commit{'s'[: pull.behind > 1]} behind the base: the head itself was "
            "judged, not the result of merging it"
        )
