"""Which patches a candidate had before a bump and has no more, and what shows that it needs them no more.

Vocabulary: a loss is *proven* when upstream has the change or its replacement, or took away what the patch
rests on, or what a patch that it requires rests on; *accepted* when the user named it; *dropped* when it was
left out because of a conflict; else it is *unproven*. The end of a build range is what a person once wrote,
and proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.classify.model import DROPPED, GOOD, Classified
from patchkit.config.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One patch that is not in the candidate any more; ``how`` as above, ``why`` in a sentence."""

    id: str
    how: Literal["proven", "accepted", "dropped", "unproven"]
    why: str

    def as_json(self) -> dict[str, str]:
        """Plain data."""
        return {"id": self.id, "how": self.how, "why": self.why}


def find_losses(
    had: Sequence[str],
    verdicts: Sequence[Classified],
    series: Series,
    *,
    without: Collection[str],
    dropped: Collection[str],
) -> tuple[Loss, ...]:
    """Every loss, those of ``had`` first and in its order."""
    known = {verdict.id: verdict for verdict in verdicts}
    kept = {verdict.id for verdict in verdicts if verdict.patch_class in GOOD}
    proven = _proven(known, series)
    found: list[Loss] = []
    for name in dict.fromkeys([*had, *dropped]):
        state = known[name].patch_class if name in known else None
        if name in kept or (state == "conflict" and name not in dropped):
            continue  # what is in conflict is not lost yet: it keeps the bump from being done
        why = known[name].reason if name in known else "the series has no such patch any more"
        if name in proven:
            found.append(Loss(id=name, how="proven", why=proven[name]))
        elif name in without:
            found.append(Loss(id=name, how="accepted", why=why))
        else:
            found.append(Loss(id=name, how="dropped" if name in dropped else "unproven", why=why))
    return tuple(found)


def _proven(known: Mapping[str, Classified], series: Series) -> dict[str, str]:
    """Why each patch is needed no more: its own class, or that of a patch without which it is wrong."""
    found = {
        name: f"{verdict.patch_class}: {verdict.reason}"
        for name, verdict in known.items()
        if verdict.patch_class in DROPPED
    }
    ended = {name for name in found if known[name].patch_class == "retired"}
    more = True
    while more:
        more = False
        for patch in series.patches:
            if patch.id in found or known[patch.id].patch_class != "out of era":
                continue
            for requirement in patch.requires:
                if requirement.patch in ended:
                    found[patch.id] = f"requires '{requirement.patch}', which is retired: {requirement.why}"
                    ended.add(patch.id)
                    more = True
                    break
    return found
