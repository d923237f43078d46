"""A changed copy of the series, moved into the place of the series in one step."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ConfigError, Location
from patchkit.base.exchange import exchange_folders
from patchkit.base.files import disk_errors, working_folder, write_whole
from patchkit.base.locks import locked
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.trial import Stage

_SHOWN = 8
_DOING = "writing the series"
_ELSEWHERE = "move the series to another disk, and name its folder with --series-dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """A copy of the series to change. ``before``: the bytes of all files of patches and profiles, by path."""

    stage: Stage
    before: Mapping[str, bytes]

    @property
    def series(self) -> SeriesDir:
        """The copy."""
        return self.stage.series

    def publish(self, series: SeriesDir, *, profiles_first: bool = False) -> None:
        """Put the copy in the place of ``series``, from which it was made; see :func:`publish_series`."""
        publish_series(self.series, self.before, series, profiles_first=profiles_first)


def publish_series(
    copy: SeriesDir, before: Mapping[str, bytes], series: SeriesDir, *, profiles_first: bool = False
) -> None:
    """Put the files of a copy in the place of those of ``series``, from which it was made.

    The folder ``patches`` changes as a whole, with the lock in it; a process that is killed leaves the old
    one or the new one. The profiles are written after that or, with ``profiles_first``, before: a line for a
    patch that the series does not have has no effect, so lines are added before and removed after.

    Args:
        copy: the changed copy.
        before: the files of the copy as it was made, from :func:`read_series`.
        series: the series in use.
        profiles_first: write the profiles before the patches.

    Raises PATCH_CHANGED if the series changed meanwhile, CacheError; the series is then as it was.
    """
    after = read_series(copy)
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    if not changed:
        return
    real = series.patches.resolve()
    with (
        locked(series.lock.resolve(), creates=False, doing=_DOING, elsewhere=_ELSEWHERE),
        working_folder(real.parent, f".{real.name}-amended-", _DOING, _ELSEWHERE) as folder,
    ):
        _refuse_changes(series, before)
        new = folder / real.name
        with disk_errors(real, _DOING, _ELSEWHERE):
            shutil.copytree(real, new, symlinks=True)
            for path in sorted(changed):
                if path.startswith("patches/"):
                    _write(new / path.removeprefix("patches/"), after.get(path))
            profiles = sorted(path for path in changed if not path.startswith("patches/"))
            try:
                _write_profiles(series, after, profiles if profiles_first else ())
                exchange_folders(new, real)
            except BaseException:
                _write_profiles(series, before, profiles if profiles_first else ())
                raise
        _write_profiles(series, after, () if profiles_first else profiles)


@contextmanager
def open_amendment(pipeline: Pipeline) -> Iterator[Amendment]:
    """A copy of the series, removed when the context ends; errors raised in it name the real files."""
    with pipeline.open_stage() as stage:
        yield Amendment(stage=stage, before=read_series(stage.series))


def read_series(series: SeriesDir) -> dict[str, bytes]:
    """The files of patches and profiles, by path below the series. Raises CacheError."""
    found = {}
    with disk_errors(series.root, "reading the series"):
        for folder in (series.patches, series.profiles):
            for path in folder.rglob("*"):
                if path.is_file():
                    found[path.relative_to(series.root).as_posix()] = path.read_bytes()
    return found


def _write(path: Path, data: bytes | None) -> None:
    """Write a file of the new folder, or remove it; folders without files go as well."""
    if data is None:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_profiles(series: SeriesDir, files: Mapping[str, bytes], paths: Iterable[str]) -> None:
    for path in paths:
        write_whole(series.root / path, files[path], _DOING, _ELSEWHERE)


def _refuse_changes(series: SeriesDir, before: Mapping[str, bytes]) -> None:
    now = read_series(series)
    changed = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
    if changed:
        raise ConfigError(
            f"{changed[0]} was changed while patchkit was working on the series",
            code="PATCH_CHANGED",
            where=[Location(path=str(series.root / path)) for path in changed[:_SHOWN]],
            why="the result was checked for the previous content only",
            hint="run the command again",
        )
