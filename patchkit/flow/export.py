"""The candidate as files for plain ``git am``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.config.lock import PinWanted, load_lock
from patchkit.flow.candidates import find_candidate
from patchkit.flow.workspace import Workspace
from patchkit.vcs.export import format_patches


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: the patch files in order, made from ``base``..``tip``."""

    branch: str
    base: str
    tip: str
    directory: Path
    files: tuple[Path, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "branch": self.branch,
            "base": self.base,
            "tip": self.tip,
            "directory": str(self.directory),
            "files": [path.name for path in self.files],
        }


def run_export(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, directory: Path
) -> Exported:
    """Write one patch file per commit of the candidate into ``directory``; the same bytes on every run.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is no candidate to export.
        PlaceUnusable: the folder is one that patchkit reads from, or cannot be replaced.
        GitError: the folder holds what patchkit did not write.
        CacheError: the disk refused.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    repository, candidate = find_candidate(workspace, archs, pin)
    series = workspace.series
    kept = (series.patches, series.templates, series.profiles)
    files = format_patches(repository, candidate.base, candidate.tip, directory, kept=kept)
    return Exported(
        branch=candidate.branch,
        base=candidate.base,
        tip=candidate.tip,
        directory=directory,
        files=files,
    )
