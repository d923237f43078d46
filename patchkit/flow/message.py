"""The commit message of a patch: why, what to expect and from where, and trailers a program can read."""

from __future__ import annotations

import hashlib
import json
import textwrap

from patchkit.config.prose import BREAKS_MAIL
from patchkit.flow.place import PlacedPatch
from patchkit.flow.plan import Plan
from patchkit.flow.selection import Selected

_WIDTH = 72
_GLUE = "\0"  # no text of a patch.toml holds it


def commit_subject(selected: Selected) -> str:
    """``id: title``."""
    return f"{selected.patch.id}: {selected.patch.title}"


def patch_digest(placed: PlacedPatch) -> str:
    """sha256 over the sha256 of every rendered text, by name."""
    text = json.dumps(dict(placed.rendered), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def commit_message(plan: Plan, selected: Selected, placed: PlacedPatch, *, unlocked: bool) -> str:
    """Subject, body and trailers, wrapped at 72 columns, ending in a newline."""
    patch = selected.patch
    parts = [commit_subject(selected), _fill(patch.why)]
    parts.append(_fill(f"Expected: {patch.effect} ({patch.effect_source})"))
    parts.append(_fill(f"Without it: {patch.without}"))
    parts.append("\n".join(f"Link: {link}" for link in patch.links))
    trailers = [f"Patchkit-Id: {patch.id}"]
    for profile in sorted(selected.targets, key=lambda profile: profile.arch):
        digests = "".join(f"{entry.path}{entry.sha256}" for entry in profile.inputs)
        trailers.append(
            f"Patchkit-Profile: {profile.arch} {hashlib.sha256(digests.encode()).hexdigest()[:16]}"
        )
    trailers.append(f"Patchkit-Digest: {patch_digest(placed)}")
    if unlocked:
        trailers.append("Patchkit-Unlocked: inputs differ from the lock")
    trailers.append(f"Upstream-Commit: {plan.pin.commit or plan.base}")
    return "\n\n".join([*parts, "\n".join(trailers)]) + "\n"


def _fill(text: str) -> str:
    """Wrapped, without breaking in front of what would end the message for git am."""
    words = text.split()
    joined = words[0] if words else ""
    for position in range(1, len(words)):
        glued = BREAKS_MAIL.match(" ".join(words[position : position + 2]) + " ")
        joined += (_GLUE if glued else " ") + words[position]
    lines = textwrap.fill(joined, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_GLUE, " ")
