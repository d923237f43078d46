"""What a candidate changes in upstream, read from the cache.

Vocabulary: the *whole* of a candidate is the difference between its base and its tip; a *part* is what
one patch adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.config.lock import PinWanted, load_lock
from patchkit.errors import Location, UsageError
from patchkit.flow.candidates import Candidate, find_candidate
from patchkit.flow.workspace import Workspace
from patchkit.vcs.repository import Repository

# Everything that a newer git might default differently is named.
_OPTIONS = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--diff-algorithm=myers",
    "--no-indent-heuristic",
)
_TEXT = ("--unified=3", "--full-index")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One changed file, with its counts of lines."""

    path: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between two commits: ``files`` in order of path, ``text`` as git writes it."""

    branch: str
    base: str
    tip: str
    files: tuple[FileChange, ...]
    text: bytes

    def as_json(self) -> dict[str, object]:
        """Plain data; bytes of the text that are not UTF-8 become lone surrogates."""
        return {
            "branch": self.branch,
            "base": self.base,
            "tip": self.tip,
            "files": [
                {"path": change.path, "added": change.added, "removed": change.removed}
                for change in self.files
            ],
            "diff": self.text.decode("utf-8", "surrogateescape"),
        }


def make_diff(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, patch: str | None
) -> Difference:
    """The whole of the candidate, or the part of one patch.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is no candidate to show.
        CANDIDATE_PATCH_MISSING: it has no commit of that patch.
        ConfigError: the lock has no such pin.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    repository, candidate = find_candidate(workspace, archs, pin)
    return difference(repository, candidate, patch)


def difference(repository: Repository, candidate: Candidate, patch: str | None) -> Difference:
    """The whole of a candidate that was found, or the part of one patch; raises CANDIDATE_PATCH_MISSING."""
    base, tip = (candidate.base, candidate.tip) if patch is None else _part(candidate, patch)
    text = repository.git.run("diff", *_OPTIONS, *_TEXT, base, tip, "--")
    files = _files(repository, base, tip)
    return Difference(branch=candidate.branch, base=base, tip=tip, files=files, text=text)


def _part(candidate: Candidate, patch: str) -> tuple[str, str]:
    before = candidate.base
    for made in candidate.commits:
        if made.id == patch:
            return before, made.commit
        before = made.commit
    raise UsageError(
        f"{candidate.branch} has no patch '{patch}'",
        code="CANDIDATE_PATCH_MISSING",
        where=Location(path=candidate.ref),
        hint=f"it has: {', '.join(made.id for made in candidate.commits)}",
    )


def _files(repository: Repository, base: str, tip: str) -> tuple[FileChange, ...]:
    out = repository.git.run("diff", *_OPTIONS, "--numstat", "-z", base, tip, "--")
    return tuple(_file(row) for row in out.decode("utf-8", "surrogateescape").split("\0") if row)


def _file(row: str) -> FileChange:
    added, removed, path = row.split("\t", 2)
    # A binary file has "-" for both.
    return FileChange(path=path, added=_count(added), removed=_count(removed))


def _count(text: str) -> int:
    return int(text) if text != "-" else 0
