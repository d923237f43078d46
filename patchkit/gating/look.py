"""The first look at a pull request, which is all that documents and patchkit's own code need.

It imports neither the compiler's side nor the templates', so that it takes no longer than git does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.errors import Location
from patchkit.gating.changes import SERIES_PARTS, Part, parts_of
from patchkit.gating.errors import OwnTestsNeeded
from patchkit.gating.pull import Pull, read_pull
from patchkit.gating.verdict import Finding, Judged, Verdict
from patchkit.report import Reporter

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
