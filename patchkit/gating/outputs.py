"""The verdict as files that CI systems show."""

from __future__ import annotations

from pathlib import Path

from patchkit.gating.text import gate_markdown
from patchkit.gating.verdict import Verdict
from patchkit.vcs.disk import disk_errors

__all__ = ["append_summary"]


def append_summary(verdict: Verdict, path: Path) -> None:
    """Add the markdown to the end of a file, which several steps share.

    Raises:
        CacheError: the disk refused.
    """
    with disk_errors(path, "writing the summary"), path.open("a", encoding="utf-8") as stream:
        stream.write(gate_markdown(verdict))
