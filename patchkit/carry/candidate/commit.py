"""Write the commits of a plan into the cache, one per patch, without moving a ref."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from patchkit.base.digests import sha256
from patchkit.carry.candidate.record import Candidate, CandidateCommit, candidate_ref
from patchkit.carry.series.patch import BREAKS_MAIL, Original
from patchkit.carry.series.profile import NO_GPU
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.commits import NewCommit, write_commits
from patchkit.carry.upstream.git import IDENTITY_EMAIL, IDENTITY_NAME
from patchkit.carry.upstream.repository import Repository

if TYPE_CHECKING:
    from patchkit.carry.candidate.plan import Plan
    from patchkit.carry.placing.place import PlacedPatch

_WIDTH = 72
_GLUE = "\0"  # does not occur in any text of a patch.toml


def write_plan(plan: Plan, repository: Repository, *, unlocked: bool = False) -> tuple[Candidate, str]:
    """Write the commits of a plan; no ref moves. Returns the candidate, and the tree of its tip.

    ``unlocked`` adds a trailer to each commit that records this. Raises one ErrorGroup of all errors in the
    plan, and GitError.
    """
    plan.check()
    new = [
        NewCommit(
            message=commit_message(plan, selected, placed, unlocked=unlocked),
            changes=placed.changes,
            author=_author(selected.patch.commit, plan.pin.committed),
            gone=placed.gone,
            modes=placed.modes,
        )
        for selected, placed in plan.steps
    ]
    written = write_commits(repository, plan.base, new, date=plan.pin.committed) if new else []
    tree = written[-1].tree if written else repository.tree_of(plan.base)
    candidate = Candidate(
        ref=candidate_ref(plan.archs, plan.pin.name, unproven=plan.pin.unproven),
        archs=plan.archs,
        pin=plan.pin.name,
        build=plan.pin.build,
        base=plan.base,
        tip=written[-1].commit if written else plan.base,
        commits=tuple(
            CandidateCommit(id=selected.patch.id, commit=each.commit, subject=commit_subject(selected))
            for (selected, _), each in zip(plan.steps, written, strict=True)
        ),
    )
    return candidate, tree


def commit_subject(selected: Selected) -> str:
    """The subject that an imported patch had, else ``id: title``."""
    original = selected.patch.commit
    if original is not None and original.subject is not None:
        return original.subject
    return f"{selected.patch.id}: {selected.patch.title}"


def _author(original: Original | None, date: str) -> tuple[str, str] | None:
    if original is None or (original.author is None and original.date is None):
        return None
    return original.author or f"{IDENTITY_NAME} <{IDENTITY_EMAIL}>", original.date or date


def commit_message(plan: Plan, selected: Selected, placed: PlacedPatch, *, unlocked: bool) -> str:
    """The reason, the expected effect with its source, and trailers for programs; wrapped."""
    patch = selected.patch
    parts = [commit_subject(selected)]
    if patch.why is not None:
        parts.append(_fill(patch.why) if patch.commit is None else _as_written(patch.why))
    if patch.expected.effect:
        parts.append(_fill(f"Expected: {patch.expected.effect} ({patch.expected.source})"))
    if patch.without is not None:
        parts.append(_fill(f"Without it: {patch.without}"))
    said = f"{parts[0]}\n{patch.why}" if patch.commit is not None else ""
    links = [link for link in patch.links if link not in said]
    if links:
        parts.append("\n".join(f"Link: {link}" for link in links))
    own = patch.commit.author if patch.commit is not None else None
    trailers = [f"Co-authored-by: {author}" for author in patch.authors if author != own]
    trailers.append(f"Patchkit-Id: {patch.id}")
    gpus = (profile for profile in selected.targets if profile is not NO_GPU)
    for profile in sorted(gpus, key=lambda profile: profile.arch):
        digests = "".join(f"{path}{sha256}" for path, sha256 in profile.inputs.items())
        trailers.append(f"Patchkit-Profile: {profile.arch} {sha256(digests)[:16]}")
    rendered = json.dumps(dict(placed.rendered), sort_keys=True, separators=(",", ":"))
    trailers.append(f"Patchkit-Digest: {sha256(rendered)}")
    if unlocked:
        trailers.append("Patchkit-Unlocked: inputs differ from the lock")
    trailers.append(f"Upstream-Commit: {plan.pin.commit or plan.base}")
    return "\n\n".join([*parts, "\n".join(trailers)]) + "\n"


def _as_written(text: str) -> str:
    """A text in its own lines, unless git am would end the message at one of them."""
    lines = [line.rstrip() for line in text.split("\n")]
    return _fill(text) if any(map(BREAKS_MAIL.match, lines)) else "\n".join(lines)


def _fill(text: str) -> str:
    """Wrap a text without starting a line with something that would end the message for git am."""
    words = text.split()
    joined = words[0] if words else ""
    for position in range(1, len(words)):
        glued = BREAKS_MAIL.match(" ".join(words[position : position + 2]) + " ")
        joined += (_GLUE if glued else " ") + words[position]
    lines = textwrap.fill(joined, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_GLUE, " ")
