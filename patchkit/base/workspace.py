"""The series, cache folder and reporter that all commands use, and the default cache folder."""

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
    """What all commands use; for ``cache_root`` see :mod:`patchkit.carry.upstream.cache`."""

    series: SeriesDir
    cache_root: Path
    reporter: Reporter


def default_cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """``PATCHKIT_CACHE`` if set, else the system's folder for user caches."""
    named = (os.environ if environ is None else environ).get("PATCHKIT_CACHE")
    return Path(named).absolute() if named else platformdirs.user_cache_path("patchkit", appauthor=False)


def default_data_root() -> Path:
    """The folder for what the user keeps, such as installed builds: the user's data folder."""
    return platformdirs.user_data_path("patchkit", appauthor=False)
