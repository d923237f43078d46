"""Reading every touched unit of both trees in many configurations, and explaining what differs.

Vocabulary: a *case* is one unit in one configuration; it *agrees* when both trees read alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.build.compiler import Compiler
from patchkit.build.kv_types import kv_definitions
from patchkit.build.parallel import run_parallel
from patchkit.build.preprocess import PreprocessFailed, Reading, reading_digest, reading_text
from patchkit.build.sources import SourceTree
from patchkit.errors import GateError, Location, PatchkitError
from patchkit.gates.configurations import Configuration
from patchkit.gates.isolation_errors import TokensDiffer
from patchkit.gates.subject import Subject
from patchkit.gates.token_diff import Run, differing_runs

_EXPLAINED = 6  # differing cases whose tokens are looked at; the others are counted
_RUNS = 3  # runs shown of one case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One unit in one configuration: the digests of both trees, or why one has none."""

    configuration: Configuration
    unit: str
    before: str | PreprocessFailed
    after: str | PreprocessFailed

    @property
    def agrees(self) -> bool:
        """Whether both trees read alike."""
        return self.before == self.after

    @property
    def is_unread(self) -> bool:
        """Whether neither tree can be read: these headers do not support the configuration."""
        return isinstance(self.before, PreprocessFailed) and isinstance(self.after, PreprocessFailed)


def compare(
    cases: Sequence[tuple[Configuration, str]], trees: tuple[SourceTree, SourceTree], compiler: Compiler
) -> list[Case]:
    """Read both trees in every case."""

    def read(configuration: Configuration, unit: str, tree: SourceTree) -> str | PreprocessFailed:
        try:
            return reading_digest(_reading(configuration, unit, tree), compiler)
        except PreprocessFailed as error:
            return error

    def work(case: tuple[Configuration, str]) -> Case:
        before, after = (read(*case, tree) for tree in trees)
        return Case(configuration=case[0], unit=case[1], before=before, after=after)

    return run_parallel(
        cases, work, reporter=compiler.reporter, what="reading units", unit="cases", stop=compiler.stop
    )


def explain(
    cases: Sequence[Case],
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    subject: Subject,
    kind: type[GateError] = TokensDiffer,
) -> list[PatchkitError]:
    """One problem per distinct difference, with its tokens, both places and the patch it comes from."""
    problems: dict[tuple[str, str, str], PatchkitError] = {}
    differing = [case for case in cases if not case.agrees and not case.is_unread]
    for case in _spread(differing):
        for run in _runs(case, trees, compiler):
            key = (str(run.new), run.before, run.after)
            if key not in problems:
                problems[key] = _problem(case, run, differing, subject, kind)
        if isinstance(case.after, PreprocessFailed):
            key = (case.after.message, "", "")
            problems.setdefault(key, _unreadable(case, case.after, subject))
    return list(problems.values())


def units_for(
    units: Sequence[str], configurations: Sequence[Configuration]
) -> list[tuple[Configuration, str]]:
    """Every unit in every configuration, the configurations in order."""
    return [(configuration, unit) for configuration in configurations for unit in units]


def _reading(configuration: Configuration, unit: str, tree: SourceTree) -> Reading:
    flags = (*configuration.flags, *kv_definitions(tree.root))
    return Reading(tree=tree, unit=unit, flags=flags, name=configuration.name)


def _spread(cases: Sequence[Case]) -> Iterator[Case]:
    """A few cases that differ from each other as much as possible: one per unit and backend first."""
    seen: set[tuple[str, str]] = set()
    chosen = 0
    for case in cases:
        kind = (case.unit.rpartition("/")[2].split("-instance")[0], case.configuration.platform)
        if kind not in seen and chosen < _EXPLAINED:
            seen.add(kind)
            chosen += 1
            yield case


def _runs(case: Case, trees: tuple[SourceTree, SourceTree], compiler: Compiler) -> tuple[Run, ...]:
    if isinstance(case.after, PreprocessFailed) or isinstance(case.before, PreprocessFailed):
        return ()
    before, after = (reading_text(_reading(case.configuration, case.unit, tree), compiler) for tree in trees)
    return differing_runs(before, after, most=_RUNS)


def _problem(
    case: Case, run: Run, differing: Sequence[Case], subject: Subject, kind: type[GateError]
) -> PatchkitError:
    place = run.new or Location(path=case.unit)
    patches = ", ".join(subject.patches_of(place.path, place.line)) or "no patch"
    names = sorted({other.configuration.name for other in differing if other.unit == case.unit})
    others = f" and {len(names) - 1} more configurations" if len(names) > 1 else ""
    return kind(
        f"{case.unit} reads differently for {case.configuration.name}{others}: "
        f"'{run.before}' became '{run.after}'",
        where=[
            Location(path=place.path, line=place.line, label=f"candidate, patch {patches}"),
            *([Location(path=run.old.path, line=run.old.line, label="baseline")] if run.old else []),
        ],
        why=f"the change of patch {patches} is not under its guard there",
        hint=f"patchkit diff --patch {patches.split(',')[0]}",
    )


def _unreadable(case: Case, error: PreprocessFailed, subject: Subject) -> PatchkitError:
    place = error.where[0] if error.where else Location(path=case.unit)
    patches = ", ".join(subject.patches_of(place.path, place.line)) or "no patch"
    return GateError(
        f"{error.message}",
        code="ISOLATION_UNREADABLE",
        where=[Location(path=place.path, line=place.line, label=f"candidate, patch {patches}")],
        why=f"the baseline can be read there. {error.why or ''}".strip(),
        hint=f"patchkit diff --patch {patches.split(',')[0]}",
    )
