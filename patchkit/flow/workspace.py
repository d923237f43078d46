"""What every verb works on, handed over explicitly.

Vocabulary: the *workspace* is the series, the cache folder and who hears about progress. There is no
other state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.report import Reporter
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """``cache_root`` is the folder of the bare repository and the downloads."""

    series: SeriesDir
    cache_root: Path
    reporter: Reporter
