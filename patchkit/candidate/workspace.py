"""What every verb works on, handed over explicitly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.base.reporter import Reporter
from patchkit.series.folder import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """``cache_root`` is the folder of the bare repository and the downloads."""

    series: SeriesDir
    cache_root: Path
    reporter: Reporter
