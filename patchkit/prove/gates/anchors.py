"""Gate ``anchors``: planning the series again gives the same files and commits as the candidate has."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GateError, Location
from patchkit.base.report.blocks import Block, Row, Table, columns, group
from patchkit.base.series_folder import PLAIN, arch_options, format_archs
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import commit_message
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import Plan, make_plan
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.series.selection import terms_of
from patchkit.carry.upstream.cache import open_cache
from patchkit.prove.gates.base import Evidence, GateResult, Many, Record, RunSetup
from patchkit.prove.subject import PatchPart, Subject


class FoundEdit(Record):
    """Where one edit is in the candidate; ``confidence`` is how it was found."""

    patch: str
    edit: str
    entity: str
    entity_digest: str
    confidence: str
    places: Many[str]


class AnchorsEvidence(Evidence):
    """Every edit of the candidate's patches."""

    edits: Many[FoundEdit]

    def blocks(self) -> Iterator[Block]:
        """One table of the edits."""
        yield Table(
            name="edits",
            caption="Edits and the places they resolve to",
            columns=columns("patch", "edit", "in", "found by", "places"),
            rows=tuple(
                Row(cells=(one.patch, one.edit, one.entity, one.confidence, group(one.places)))
                for one in self.edits
            ),
            is_detail=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorsGate:
    """Plans with the workspace's series, for the patches of the candidate, which has at least one."""

    workspace: Workspace
    upstream: PinWanted
    name: str = "anchors"

    @classmethod
    def make(cls, setup: RunSetup) -> AnchorsGate:
        """The gate of a run."""
        return cls(workspace=setup.workspace, upstream=setup.upstream)

    def run(self, subject: Subject) -> GateResult:
        """Plan, and compare with the candidate's files. Raises the errors of planning."""
        ids = tuple(patch.id for patch in subject.patches)
        request = Request(
            archs=subject.archs,
            upstream=self.upstream,
            only=ids,
            with_=_opted_in(load_series(self.workspace.series.patches), subject),
        )
        plan = make_plan(request, self.workspace)
        stale = [] if plan.errors else [*_stale(plan, subject), *self._stale_commits(plan, subject)]
        edits = [(patch, edit) for patch in plan.patches for edit in patch.edits]
        problems = (*plan.errors, *stale)
        places = sum(len(edit.locations) for _, edit in edits)
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=(
                f"{counted(len(edits), 'edit')} of {counted(len(ids), 'patch', 'patches')} "
                f"{'resolves' if len(edits) == 1 else 'resolve'} to {counted(places, 'place')}, "
                f"{'as' if not problems else 'NOT as'} in the candidate"
            ),
            problems=problems,
            lines=tuple(_without_patches(subject)),
            evidence=AnchorsEvidence(
                edits=tuple(
                    FoundEdit(
                        patch=patch.id,
                        edit=edit.id,
                        entity=edit.entity,
                        entity_digest=edit.entity_digest,
                        confidence=edit.confidence,
                        places=tuple(str(place) for place in edit.locations),
                    )
                    for patch, edit in edits
                )
            ),
        )

    def _stale_commits(self, plan: Plan, subject: Subject) -> list[GateError]:
        """Commits that ``apply`` would write differently: for other GPUs, another profile or another text."""
        repository = open_cache(subject.cache_root).peek(subject.reporter)
        if repository is None:
            raise AssertionError("a subject comes from this repository")
        current = list(plan.ids)
        existing = [part.id for part in subject.patches]
        if current != existing:
            return [
                _stale_commit(
                    subject,
                    None,
                    f"the candidate has the patches {', '.join(existing)}; the series now selects "
                    f"{', '.join(current)}",
                )
            ]
        found = []
        for (selected, placed), part in zip(plan.steps, subject.patches, strict=True):
            message = repository.git.run("cat-file", "commit", part.commit).partition(b"\n\n")[2]
            # --unlocked adds a trailer to the message and changes nothing else.
            expected = {
                commit_message(plan, selected, placed, unlocked=unlocked).encode()
                for unlocked in (False, True)
            }
            if message not in expected:
                found.append(
                    _stale_commit(
                        subject, part, f"the commit message of {part.id} differs from what apply would write"
                    )
                )
        return found


def _stale_commit(subject: Subject, part: PatchPart | None, message: str) -> GateError:
    return GateError(
        message,
        code="ANCHORS_STALE",
        where=[] if part is None else Location(path=f"commit {part.commit[:12]}", label=part.id),
        why=(
            f"apply for {format_archs(subject.archs)} would write a different commit: the series changed "
            "since then, or the branch is for other GPUs than its name says"
        ),
        hint=_apply(subject),
    )


def _apply(subject: Subject) -> str:
    return shlex.join(["patchkit", "apply", *arch_options(subject.archs, subject.profiles_folder)])


def _without_patches(subject: Subject) -> list[str]:
    """A note for each GPU of the candidate that no patch applies to."""
    live = {arch for part in subject.patches for arch in part.archs}
    return [
        f"{arch}: no patch is active on it, it gets upstream's code"
        for arch in subject.archs
        if arch not in live and arch != PLAIN
    ]


def _opted_in(series: Series, subject: Subject) -> tuple[str, ...]:
    """Patches active on a GPU that does not get them by default, so they were requested with --with."""
    return tuple(
        part.id
        for part in subject.patches
        if (patch := series.patch(part.id)) is not None
        and any(
            terms_of(series, patch, subject.profiles[arch], subject.build).default != "on"
            for arch in part.archs
        )
    )


def _stale(plan: Plan, subject: Subject) -> list[GateError]:
    expected, modes = plan.files, plan.modes
    found = []
    for path in sorted({*expected, *subject.changed_files}):
        file, before = subject.candidate / path, subject.baseline / path
        kept = _mode(before) if before.is_file() else REGULAR
        wanted = (expected.get(path), modes.get(path, kept) if path in expected else None)
        if ((file.read_bytes(), _mode(file)) if file.is_file() else (None, None)) != wanted:
            found.append(
                GateError(
                    f"{path} in the candidate differs from what the series gives now",
                    code="ANCHORS_STALE",
                    where=Location(path=path, label=", ".join(subject.patches_of(path)) or None),
                    why="the series or a profile changed since the candidate was built",
                    hint=_apply(subject),
                )
            )
    return found


def _mode(file: Path) -> str:
    """The git mode of a file in an exported tree."""
    return EXECUTABLE if file.stat().st_mode & stat.S_IXUSR else REGULAR
