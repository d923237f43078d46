"""The series, the cache folder and the reporter that every command works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """``cache_root`` is the cache folder, see :mod:`patchkit.carry.upstream.cache`."""

    series: SeriesDir
    cache_root: Path
    reporter: Reporter
