"""The classes of a patch on a new upstream, and the details that are reported with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.text import differing, one_line, shortened
from patchkit.carry.placing.resolve import AnchorNotFound

PatchClass = Literal[
    "clean", "moved", "upstreamed", "superseded", "retired", "out of range", "conflict", "off"
]
PATCH_CLASSES: tuple[PatchClass, ...] = get_args(PatchClass)
GOOD: frozenset[PatchClass] = frozenset({"clean", "moved"})
"""Classes of patches that are in the candidate."""
DROPPED: frozenset[PatchClass] = frozenset({"upstreamed", "superseded", "retired"})
"""Classes with a proof that upstream made the patch unnecessary."""
DEFINED_TOO = "which upstream defines now, too"
"""What changed if a patch and the new upstream define the same macro."""
NEW_CALLER = "which upstream calls in a further file now"
"""What changed if a patch adds or removes parameters of a function that more files of upstream call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCommit:
    """A commit of upstream's history."""

    commit: str
    subject: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} ({self.subject})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One place of an edit that moved since the last rendering; ``how`` says in what way."""

    edit: str
    how: Literal["renamed", "another file", "nesting", "order", "statement", "merged"]
    before: Location
    after: Location
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An edited function whose tokens changed upstream; ``removed`` and ``added`` are statements.

    ``commits``: those that changed them, newest first; empty if upstream's history is not available.
    """

    json_keys: ClassVar = (
        "file entity digest_before=before digest_after=after removed added upstream_commits=commits"
    )

    file: str
    entity: str
    before: str
    after: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    commits: tuple[UpstreamCommit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Something the patch depends on that upstream no longer has, and the commit that removed it."""

    json_keys: ClassVar = "what name upstream_commit=commit"

    what: Literal["file", "function", "option"]
    name: str
    commit: UpstreamCommit | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDeclaration:
    """Something that the patch calls or reads, and that upstream declares differently now.

    ``how``: what changed, as the end of a sentence. ``used``: the place in the patched file. ``declared``:
    the place of the new declaration in upstream; None if there is none. ``before`` and ``after``: both
    declarations as text. ``is_gone``: upstream removed what is used, so the code does not compile.
    """

    json_keys: ClassVar = "kind name how used declared before after"

    kind: Literal["function", "macro", "member", "enum value", "constant"]
    name: str
    how: str
    used: Location
    declared: Location | None
    before: str
    after: str
    is_gone: bool = False

    def lines(self) -> Iterator[str]:
        """As text: what changed, the place that uses it, and both declarations."""
        yield str(self)
        yield f"  used at {self.used}"
        before, after = differing(self.before, self.after) if self.after else (self.before, "")
        yield f"  - {shortened(before)}"
        if after:
            yield f"  + {shortened(after)}"

    def __str__(self) -> str:
        verb = "calls" if self.kind == "function" else "uses"
        verb = {DEFINED_TOO: "defines", NEW_CALLER: "changes"}.get(self.how, verb)
        place = f" ({self.declared})" if self.declared is not None else ""
        return f"{verb} {self.name}, {self.how}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether the three-way text merge of the last rendering agrees with placing by structure.

    ``agree``: the same tokens in every file. ``differ``: both apply and give different code.
    ``does not apply``: the merge has conflicts, or the patch has other edits on the new upstream.
    ``no last rendering``: there is nothing to merge. ``differing``: the files that differ, as placed by
    structure.
    """

    json_keys: ClassVar = "verdict lines"

    verdict: Literal["agree", "differ", "does not apply", "no last rendering"]
    lines: tuple[str, ...] = ()
    differing: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """One patch on one upstream. ``proof``: sentences on how the class was determined.

    ``next_step``: for a conflict, the command to continue with and what to expect from it. ``merged``: the
    commits between the builds with a pull request that the patch names, or with its title. ``skipped``:
    optional edits that could not be placed. ``waits_for``: the required patch in conflict that has to be
    resolved before this one.
    """

    json_keys: ClassVar = (
        "id title intent class=patch_class reason proof moves drift changed_declarations=declarations gone "
        "agreement problems next_step upstream_commits=merged skipped waits_for"
    )

    id: str
    title: str
    intent: str
    patch_class: PatchClass
    reason: str
    proof: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    drift: tuple[Drift, ...] = ()
    declarations: tuple[ChangedDeclaration, ...] = ()
    gone: tuple[Gone, ...] = ()
    agreement: Agreement | None = None
    problems: tuple[PatchkitError, ...] = ()
    next_step: str = ""
    merged: tuple[UpstreamCommit, ...] = ()
    skipped: tuple[str, ...] = ()
    waits_for: str | None = None

    def lines(self, pin: str, seen: set[str] | None = None) -> Iterator[str]:
        """All details as text: reason, proof, moves, the places of each problem, drift, intent.

        ``seen`` collects what the report has shown, so that a change of upstream that concerns several
        patches is shown once.
        """
        seen = set() if seen is None else seen
        yield f"{pin} {self.id}: {self.patch_class}: {self.reason}"
        yield from (f"  proof: {sentence}" for sentence in self._shown_proof)
        yield from (f"  upstream merged a change that the patch names: {commit}" for commit in self.merged)
        for gone in self.gone:
            if gone.commit is not None:
                yield f"  {gone} was removed by {gone.commit}"
        for move in self.moves:
            yield f"  {move.edit} ({move.how}): {move.before} -> {move.after}: {move.detail}"
        if not self.waits_for:
            yield from (f"  {line}" for line in _problem_lines(self.problems, with_hints=not self.next_step))
            yield from (f"  {line}" for each in self.declarations for line in _once(each, seen))
            yield from (f"  {line}" for each in self.drift for line in _drift_lines(each, seen))
        if self.patch_class == "conflict" and self.intent.strip():
            yield f"  intent: {' '.join(self.intent.split())}"
        if self.next_step:
            yield f"  next: {self.next_step}"

    @property
    def missing(self) -> tuple[ChangedDeclaration, ...]:
        """The names that upstream removed and that the placed patch uses."""
        return tuple(each for each in self.declarations if each.is_gone and self.patch_class in GOOD)

    @property
    def _shown_proof(self) -> tuple[str, ...]:
        """The proof, without sentences that are the same for nearly every patch that fits."""
        if self.patch_class not in GOOD:
            return () if self.problems else self.proof
        agrees = self.agreement is not None and self.agreement.verdict == "agree"
        return () if agrees else self.proof[1:]


def _once(declaration: ChangedDeclaration, seen: set[str]) -> Iterator[str]:
    """The lines of a declaration; both versions only if the report has not shown them yet."""
    lines = list(declaration.lines())
    if declaration.name in seen:
        lines = [f"{lines[0]}, shown above", lines[1]]
    seen.add(declaration.name)
    yield from lines


def _drift_lines(drift: Drift, seen: set[str]) -> Iterator[str]:
    """The lines of a drift, without the changes if the report has shown them already."""
    key = f"{drift.file} {drift.before} {drift.after}"
    shown = ", shown above" if key in seen else ""
    yield f"changed upstream: {drift.entity} in {drift.file}{shown}"
    if not shown:
        yield from (f"  by {commit}" for commit in drift.commits)
        removed, added = list(drift.removed), list(drift.added)
        if len(removed) == len(added):
            for at, pair in enumerate(zip(removed, added, strict=True)):
                removed[at], added[at] = differing(*pair)
        yield from (f"  - {text}" for text in removed)
        yield from (f"  + {text}" for text in added)
    seen.add(key)


def _problem_lines(problems: Sequence[PatchkitError], *, with_hints: bool) -> Iterator[str]:
    """Every problem; edits that have no place in the same function have one line each.

    ``with_hints``: also hints that are the same for every edit without a place.
    """
    hints: dict[str, None] = {}
    by_place: dict[Location | None, list[AnchorNotFound]] = {}
    for each in problems:
        if isinstance(each, AnchorNotFound):
            by_place.setdefault(each.inside, []).append(each)
    shown: set[str] = set()
    for problem in problems:
        if not isinstance(problem, AnchorNotFound) or problem.inside is None:
            if problem.message in shown and problem.where:
                yield f"  the same: {problem.where[0]}"
            else:
                yield from _one_problem(problem)
            shown.add(problem.message)
            continue
        several = by_place.pop(problem.inside, ())
        if several:
            many = f"{len(several)} edits have" if len(several) > 1 else "an edit has"
            name = (problem.inside.label or "").removesuffix(" begins here")
            yield f"{problem.code}: {many} no place in {name} ({problem.inside.path}:{problem.inside.line})"
        for each in several:
            own, *others = each.where
            why = shortened(one_line(each.why or each.message))
            yield f"  {own.path}:{own.line}: edit '{each.edit}': {why}"
            yield from (f"    {other.with_label}" for other in others if other != each.inside)
            if each.hint and (with_hints or not each.has_usual_hint):
                hints[each.hint] = None
    yield from (f"  hint: {hint}" for hint in hints)


def _one_problem(problem: PatchkitError) -> Iterator[str]:
    yield f"{problem.code}: {problem.message}"
    for place in problem.where:
        yield f"  {place.with_label}"
    if problem.why:
        yield from (f"  {line}" for line in problem.why.splitlines())
    if problem.hint:
        yield f"  hint: {problem.hint}"
