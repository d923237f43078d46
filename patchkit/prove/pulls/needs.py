"""Which gates a target needs: those whose result the pull request can change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from patchkit.prove.gates.registry import entries, gate_names
from patchkit.prove.pulls.side import SeriesSide
from patchkit.prove.pulls.targets import AffectedCandidate
from patchkit.prove.pulls.verdict import GateRow, GateState


def find_needs(
    target: AffectedCandidate, before: SeriesSide, after: SeriesSide, *, tree: str, foreign: Sequence[str]
) -> tuple[GateRow, ...]:
    """Every gate for one target: which would run, and why the others need not.

    Args:
        target: the target to judge.
        before: the fork point.
        after: the head.
        tree: the tree of the candidate that the head gives.
        foreign: GPUs that changed in the eyes of gates that check every GPU.
    """
    if target.before is None:
        return every_gate("would run", "the fork point does not have this candidate")
    if target.before.tree != tree:
        return every_gate(
            "would run", f"the candidate is tree {tree[:12]} instead of {target.before.tree[:12]}"
        )
    reasons = {entry.name: entry.always for entry in entries() if entry.always}
    for gate, why in _by_rules(target, before, after):
        reasons.setdefault(gate, why)
    strangers = [arch for arch in foreign if arch not in target.archs]
    if strangers:
        for gate in (entry.name for entry in entries() if entry.sees_every_gpu):
            reasons.setdefault(gate, f"it checks {', '.join(strangers)} too, which changed")
    return tuple(
        replace(row, state="would run", why=reasons[row.gate]) if row.gate in reasons else row
        for row in every_gate("not needed", f"tree {tree[:12]} is unchanged")
    )


def every_gate(state: GateState, why: str) -> tuple[GateRow, ...]:
    """Every gate in that state, for one reason."""
    return tuple(GateRow(gate=gate, state=state, why=why) for gate in gate_names())


def _by_rules(target: AffectedCandidate, before: SeriesSide, after: SeriesSide) -> Iterator[tuple[str, str]]:
    for arch in target.archs:
        if _facts(before, arch) != _facts(after, arch):
            for gate in (entry.name for entry in entries() if entry.reads_facts):
                yield gate, f"facts of {arch} changed"
    for name in target.patches:
        old, new = before.series.patch(name), after.series.patch(name)
        if old is None or new is None:
            continue
        where = f"of patches/{new.folder}/patch.toml changed"
        for entry in entries():
            for attribute, words in entry.reads.items():
                if getattr(old, attribute) != getattr(new, attribute):
                    yield entry.name, f"{words} {where}"


def _facts(side: SeriesSide, arch: str) -> object:
    profile = side.profiles.get(arch)
    return None if profile is None else {name: fact.value for name, fact in profile.facts.by_name.items()}
