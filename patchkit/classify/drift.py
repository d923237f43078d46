"""Whether a function that a patch edits is still the function it was.

Vocabulary: *drift* is a changed token digest of an edited function between two upstreams, whether or
not the edit still finds its place in it. A new name alone is no drift: it is a move.
"""

from __future__ import annotations

from patchkit.classify.model import Drift
from patchkit.classify.retarget import nameless_digest
from patchkit.classify.units import align, list_units
from patchkit.cxx.scopes import Entity, ScopeMap

_SHOWN = 12  # units of each side; the digests cover all of them


def find_drift(old: tuple[ScopeMap, Entity], new: tuple[ScopeMap, Entity]) -> Drift | None:
    """What changed between two versions of one function as upstream has them; None when nothing did."""
    (old_scopes, old_entity), (new_scopes, new_entity) = old, new
    if old_entity.digest == new_entity.digest:
        return None
    if old_entity.name != new_entity.name:
        digests = nameless_digest(old_scopes, old_entity), nameless_digest(new_scopes, new_entity)
        if digests[0] == digests[1]:
            return None
    before = list_units(old_scopes, old_entity.span).texts
    after = list_units(new_scopes, new_entity.span).texts
    removed: list[str] = []
    added: list[str] = []
    for first, second in align(before, after).changed:
        removed += before[first.start : first.stop]
        added += after[second.start : second.stop]
    return Drift(
        file=new_scopes.source.path,
        entity=new_entity.name,
        before=old_entity.digest,
        after=new_entity.digest,
        removed=_cut(removed),
        added=_cut(added),
    )


def _cut(units: list[str]) -> tuple[str, ...]:
    if len(units) <= _SHOWN:
        return tuple(units)
    return (*units[: _SHOWN - 1], f"... and {len(units) - _SHOWN + 1} more")
