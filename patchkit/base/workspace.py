"""The series, the cache folder and the reporter that every command works with; where caches are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """``cache_root`` is the cache folder, see :mod:`patchkit.carry.upstream.cache`."""

    series: SeriesDir
    cache_root: Path
    reporter: Reporter


def default_cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """``PATCHKIT_CACHE`` if set, else the folder the system has for a user's caches."""
    named = (os.environ if environ is None else environ).get("PATCHKIT_CACHE")
    return Path(named).absolute() if named else platformdirs.user_cache_path("patchkit", appauthor=False)
