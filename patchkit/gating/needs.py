"""Which gates a target needs, and why each of the others does not have to run.

Vocabulary: a *need* is one gate with its reason; a gate that is *left out* has a reason too. A gate looks at
bytes of the candidate, at rules of its patches, or at facts of profiles: what looks at nothing that changed
would answer what it answered for the fork point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.flow.hardware import GPU_GATES
from patchkit.flow.verify import GATE_NAMES
from patchkit.gating.side import Side
from patchkit.gating.targets import Target

LADDER = (*GATE_NAMES, *GPU_GATES)

_OF_PROFILES = {"resources", "launch", "backend-ops"}  # they read facts and tables of the target's profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One gate of the ladder; ``needed`` False: ``why`` says what makes it needless."""

    gate: str
    needed: bool
    why: str


def find_needs(
    target: Target, before: Side, after: Side, *, tree: str, foreign: Sequence[str]
) -> tuple[Need, ...]:
    """The whole ladder for one target.

    Args:
        target: what is judged.
        before: the fork point.
        after: the head.
        tree: of the candidate that the head gives.
        foreign: GPUs that isolation and launch see in another way than before.
    """
    if target.before is None:
        return _all("the fork point has no such candidate")
    if target.before.tree != tree:
        return _all(f"the candidate is tree {tree[:12]} instead of {target.before.tree[:12]}")
    reasons: dict[str, str] = {"anchors": "the commits say what the series says"}
    for gate, why in _by_rules(target, before, after):
        reasons.setdefault(gate, why)
    strangers = [arch for arch in foreign if arch not in target.archs]
    if strangers:
        for gate in ("isolation", "launch"):
            reasons.setdefault(gate, f"it looks at {', '.join(strangers)}, which changed")
    return tuple(
        Need(gate=gate, needed=gate in reasons, why=reasons.get(gate, f"tree {tree[:12]} is as it was"))
        for gate in LADDER
    )


def _all(why: str) -> tuple[Need, ...]:
    return tuple(Need(gate=gate, needed=True, why=why) for gate in LADDER)


def _by_rules(target: Target, before: Side, after: Side) -> Iterator[tuple[str, str]]:
    for arch in target.archs:
        if _facts(before, arch) != _facts(after, arch):
            for gate in sorted(_OF_PROFILES):
                yield gate, f"facts of {arch} changed"
    for name in target.patches:
        old, new = before.series.patch(name), after.series.patch(name)
        if old is None or new is None:
            continue
        told = f"of patches/{new.folder}/patch.toml changed"
        if old.resources != new.resources:
            yield "resources", f"[resources] {told}"
        if old.moves != new.moves:
            yield "launch", f"the kernel moves {told}"
        if old.bench != new.bench:
            yield "bench", f"[bench] {told}"
        if old.guard_macros != new.guard_macros:
            yield "isolation", f"[guard] {told}"


def _facts(side: Side, arch: str) -> object:
    profile = side.profiles.get(arch)
    return None if profile is None else {name: fact.value for name, fact in profile.facts.by_name.items()}
