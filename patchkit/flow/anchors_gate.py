"""Gate ``anchors``: planned again, the series puts every edit where the candidate has it."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.config.profile import ArchProfile
from patchkit.errors import Location
from patchkit.flow.plan import Plan, Request, make_plan
from patchkit.flow.workspace import Workspace
from patchkit.gates.base import GateError, GateResult, Subject

__all__ = ["AnchorsGate", "CandidateStale"]


class CandidateStale(GateError):
    """A file of the candidate is not what the series gives now."""

    code = "ANCHORS_STALE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorsGate:
    """Plans with the workspace's series, for the patches that the candidate has."""

    workspace: Workspace
    upstream: str | None
    name: str = "anchors"

    def run(self, subject: Subject) -> GateResult:
        """Plan, and compare with the candidate's files. Raises what planning raises."""
        ids = tuple(patch.id for patch in subject.patches)
        plan = make_plan(
            Request(archs=subject.archs, upstream=self.upstream, only=ids, with_=_opted_in(subject)),
            self.workspace,
        )
        stale = [] if plan.errors else _stale(plan, subject)
        edits = [(patch, edit) for patch in plan.patches for edit in patch.edits]
        problems = (*plan.errors, *stale)
        places = sum(len(edit.locations) for _, edit in edits)
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=(
                f"{len(edits)} edits of {len(ids)} patches resolve to {places} places, "
                f"{'as' if not problems else 'NOT as'} in the candidate"
            ),
            problems=problems,
            evidence={
                "edits": [
                    {
                        "patch": patch.id,
                        "edit": edit.id,
                        "entity": edit.entity,
                        "entity_digest": edit.digest,
                        "confidence": edit.confidence,
                        "places": [str(place) for place in edit.locations],
                    }
                    for patch, edit in edits
                ]
            },
        )


def _opted_in(subject: Subject) -> tuple[str, ...]:
    """Patches that are live on a GPU whose profile does not have them on: they were asked for."""
    return tuple(
        patch.id
        for patch in subject.patches
        if any(not _is_on(subject.profiles[arch], patch.id) for arch in patch.archs)
    )


def _is_on(profile: ArchProfile, patch: str) -> bool:
    choice = profile.patches.get(patch)
    return choice is not None and choice.default == "on"


def _stale(plan: Plan, subject: Subject) -> list[CandidateStale]:
    expected: dict[str, bytes] = {}
    for _, placed in plan.steps:
        expected |= placed.changes
    found = []
    for path in sorted({*expected, *subject.changed_files}):
        file = subject.candidate / path
        if (file.read_bytes() if file.is_file() else None) != expected.get(path):
            found.append(
                CandidateStale(
                    f"{path} of the candidate is not what the series gives now",
                    where=Location(path=path, label=", ".join(subject.patches_of(path)) or None),
                    why="the series or a profile changed since the candidate was made",
                    hint=f"patchkit apply {' '.join(f'--arch {arch}' for arch in subject.archs)}",
                )
            )
    return found
