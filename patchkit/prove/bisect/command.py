"""``patchkit bisect``: searches the list of candidates, and keeps every outcome in a journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field, TypeAdapter

from patchkit.base.digests import key_of
from patchkit.base.errors import PatchkitError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.searching import FirstBad, Outcome, find_first_bad
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.target import with_target
from patchkit.carry.onto.pin import Onto
from patchkit.gpu.hardware.bench.journal import Journal, Line, Question, check_place, open_journal
from patchkit.prove.bisect.checks import Check, Checked, is_of_the_build
from patchkit.prove.bisect.steps import Step, Steps, find_range
from patchkit.prove.build import Machine, check_programs
from patchkit.prove.pick.arms import Arms
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.sides import BuiltSide

_FORMAT = 1
_MOST_WHY = 2000
_Name = Annotated[str, Field(max_length=300)]


class Tested(Line):
    """A finished test: which candidate, the hash of its tree (empty if it has none), and the outcome."""

    kind: Literal["tested"] = "tested"
    name: _Name
    tree: _Name
    outcome: Outcome
    why: Annotated[str, Field(max_length=_MOST_WHY)]
    seconds: Annotated[float, Field(ge=0, le=10**7, allow_inf_nan=False)]

    @property
    def question(self) -> Question:
        """The candidate."""
        return (self.name,)

    @property
    def text(self) -> str:
        """The candidate, for errors."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A tested candidate in a report: see :class:`Tested`."""

    name: str
    outcome: Outcome
    why: str
    tree: str
    seconds: float


TESTED: TypeAdapter[Tested] = TypeAdapter(Tested)


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectRequest:
    """The list to search, and where the outcomes are kept.

    ``good`` None: only patches, from upstream without patches on. ``has_patches``: also search the patches
    of the bad build. ``has_switches``: turn patches off at run time where that is possible. ``out`` None: a
    folder in the cache. ``machine``: where the test runs.
    """

    patches: Request
    onto: Onto | None
    good: str | None
    upstream_url: str | None
    machine: Machine
    programs: tuple[str, ...]
    has_patches: bool = True
    has_switches: bool = True
    is_timed: bool = True
    out: Path | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport:
    """The last good and the first bad candidate. ``skipped``: those between, which could not be tested.

    ``commit`` is that of the first bad build, ``patch`` the new patch of the first bad candidate; ``without``
    the outcome of all patches but that one. ``tested`` has every outcome in the order of the tests; ``kept``
    counts those of earlier runs.
    """

    json_keys: ClassVar = "ok test good bad patch commit skipped without tested kept folder"
    ok: ClassVar = True

    test: str
    good: str
    bad: str
    patch: str | None
    commit: str | None
    skipped: tuple[str, ...]
    without: Outcome | None
    tested: tuple[Tried, ...]
    kept: int
    folder: Path


def run_bisect(
    workspace: Workspace, request: BisectRequest, check: Check, environ: Mapping[str, str]
) -> BisectReport:
    """Search for the first bad candidate; outcomes of earlier runs are reused.

    Raises:
        BISECT_ENDS: the first candidate is not good, or the last one is not bad.
        BISECT_COMMAND: the user's command could not be run.
        USAGE_VALUE, NOTHING_SELECTED: there is nothing to search.
        BENCH_FOLDER_UNUSABLE: the folder belongs to another search, or is in use.
        The errors of fetching builds, placing patches, building, and running programs.
    """
    if request.out is not None:
        check_place(request.out, fresh=request.fresh)
    check_programs(request.programs)
    toolchain = None
    if request.machine.backend == "hip":
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    patches = request.patches
    if request.has_patches and request.onto is None:
        patches = with_target(patches, workspace)
    last = patches.upstream
    builds = None
    if request.good is not None:
        name = last if isinstance(last, str) or last is None else last.name
        builds = find_range(workspace, request.good, name, request.upstream_url)
    steps = Steps(
        workspace=workspace,
        arms=Arms(
            workspace=workspace,
            request=patches,
            onto=request.onto,
            toolchain=toolchain,
            programs=request.programs,
            is_timed=request.is_timed,
        ),
        machine=request.machine,
        builds=builds,
        has_patches=request.has_patches,
        has_switches=request.has_switches,
        programs=request.programs,
    )
    every = steps.all
    if len(every) < 2:  # noqa: PLR2004 - a good and a bad one
        raise UsageError(
            "there is only one candidate, so there is nothing to search",
            code="NOTHING_SELECTED",
            why="no patch of the series is for this build" if request.has_patches else "--no-patches is set",
            hint="name an earlier build that is good with --good, or add patches with --trust or --with",
        )
    setup = _setup(request, check, every, steps)
    root = request.out or workspace.cache_root / "bisect" / key_of(setup)[:16]
    with open_journal(root, setup, TESTED, fresh=request.fresh) as journal:
        return search_candidates(steps, check, journal, workspace.reporter)


def _setup(request: BisectRequest, check: Check, every: tuple[Step, ...], steps: Steps) -> dict[str, object]:
    """Everything that an outcome depends on; equal for all outcomes of a journal."""
    return {
        "format": _FORMAT,
        "test": dict(check.identity),
        "candidates": {step.name: key_of({"is": list(step.identity)})[:16] for step in every},
        "upstream": steps.tree_of(every[-1]),
        "archs": list(request.patches.archs),
        "device": request.machine.kind,
        "programs": sorted(request.programs),
        "switches": request.has_switches,
    }


class Candidates(Protocol):
    """The ordered list that is searched, and a way to build each entry."""

    @property
    def all(self) -> tuple[Step, ...]:
        """The list."""
        ...

    def tree_of(self, step: Step) -> str:
        """The hash of a step's tree."""
        ...

    def ready(self, step: Step) -> AbstractContextManager[BuiltSide]:
        """A step, built."""
        ...

    def tree_without(self, patch: str) -> str:
        """The hash of the tree with all patches but one."""
        ...

    def ready_without(self, patch: str) -> AbstractContextManager[BuiltSide]:
        """All patches but one, built."""
        ...


def search_candidates(
    candidates: Candidates, check: Check, journal: Journal[Tested], reporter: Reporter
) -> BisectReport:
    """Search with the outcomes in a journal and those of tests that are run now. Raises as run_bisect."""
    search = _Search(steps=candidates, every=candidates.all, check=check, journal=journal, reporter=reporter)
    try:
        return search.run()
    except KeyboardInterrupt as stop:
        stop.add_note(f"finished tests are kept in {journal.folder}; run the same command to continue")
        raise


@dataclass(slots=True, kw_only=True)
class _Search:
    steps: Candidates
    every: tuple[Step, ...]
    check: Check
    journal: Journal[Tested]
    reporter: Reporter
    _kept: int = 0
    _open: ExitStack = field(default_factory=ExitStack)
    _reference: BuiltSide | None = None

    def run(self) -> BisectReport:
        """Test both ends, search between them, and try the last build without the patch that was found."""
        self._kept = self.journal.kept
        if self._kept:
            self.reporter.info(
                f"continuing with {self._kept} outcomes of earlier runs; to start over: --fresh"
            )
        last = len(self.every) - 1
        with self._open:
            if not self.check.is_relative:
                self._expect(0, "good")
            self._expect(last, "bad")
            self.reporter.info(f"{counted(last - 1, 'candidate')} between them")
            found = find_first_bad(0, last, self._test)
            patch = self.every[found.bad].patch
            without = self._test_without(patch) if patch is not None and not found.skipped else None
        return self._report(found, without)

    def _expect(self, at: int, wanted: Outcome) -> None:
        """Raises BISECT_ENDS if an end has another outcome."""
        outcome = self._test(at)
        if outcome == wanted:
            return
        step = self.every[at]
        tested = self.journal.take((step.name,))
        where = "first" if at == 0 else "last"
        hint = "name an earlier build with --good"
        if outcome == "skip":
            hint = (
                "the first and the last candidate must be tested: correct the error, or choose another build"
            )
        elif at:
            hint = "name the build and the patches that you see the fault with: --upstream, --trust, --with"
        raise UsageError(
            f"{step.name}, the {where} candidate, is {format_outcome(outcome)}, but must be {wanted}",
            code="BISECT_ENDS",
            why=tested.why if tested is not None else None,
            hint=hint,
        )

    def _test(self, at: int) -> Outcome:
        step = self.every[at]
        return self._outcome(
            step.name, f"{at:04d}", lambda: self.steps.tree_of(step), lambda: self.steps.ready(step)
        )

    def _test_without(self, patch: str) -> Outcome:
        return self._outcome(
            f"{self.every[-1].name.partition(' + ')[0]} with all patches but {patch}",
            "without",
            lambda: self.steps.tree_without(patch),
            lambda: self.steps.ready_without(patch),
        )

    def _outcome(
        self,
        name: str,
        key: str,
        tree_of: Callable[[], str],
        ready: Callable[[], AbstractContextManager[BuiltSide]],
    ) -> Outcome:
        """The outcome of a candidate, from the journal or from a test that is run now."""
        known = self.journal.take((name,))
        if known is None:
            began = time.monotonic()
            self.reporter.step(f"testing {name}")
            tree, checked = self._run(key, tree_of, ready)
            known = Tested(
                number=len(self.journal.entries),
                name=name,
                tree=tree,
                outcome=checked.outcome,
                why=checked.why[:_MOST_WHY],
                seconds=round(time.monotonic() - began, 1),
            )
            self.journal.add(known)
        self.reporter.info(f"{name}: {format_outcome(known.outcome)} ({known.why})")
        return known.outcome

    def _run(
        self, key: str, tree_of: Callable[[], str], ready: Callable[[], AbstractContextManager[BuiltSide]]
    ) -> tuple[str, Checked]:
        """Build and test; a candidate that cannot be placed or built is skipped."""
        tree = ""
        with ExitStack() as stack:
            try:
                tree = tree_of()
                side = stack.enter_context(ready())
            except PatchkitError as error:
                if not is_of_the_build(error):
                    raise
                return tree, Checked(outcome="skip", why=error.message)
            return tree, self.check.run(side, self._good_end, self.journal.folder / "tests" / key)

    def _good_end(self) -> BuiltSide:
        """The first candidate, which speeds are compared with; it stays ready until the search ends."""
        if self._reference is None:
            self._reference = self._open.enter_context(self.steps.ready(self.every[0]))
        return self._reference

    def _report(self, found: FirstBad, without: Outcome | None) -> BisectReport:
        bad = self.every[found.bad]
        return BisectReport(
            test=self.check.label,
            good=self.every[found.good].name,
            bad=bad.name,
            patch=bad.patch,
            commit=bad.identity[0] if bad.build is not None else None,
            skipped=tuple(self.every[at].name for at in found.skipped),
            without=without,
            tested=tuple(
                Tried(name=one.name, outcome=one.outcome, why=one.why, tree=one.tree, seconds=one.seconds)
                for one in self.journal.entries
            ),
            kept=self._kept,
            folder=self.journal.folder,
        )


def format_outcome(outcome: Outcome) -> str:
    """The outcome for a sentence."""
    return "skipped" if outcome == "skip" else outcome
