"""A copy of the series for a bump to work in, and the atomic publication of its results."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, PatchkitError, map_texts, members_of
from patchkit.base.files import disk_errors, working_folder
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.series.lock import Lock, write_lock
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.refs import delete_ref, read_ref, update_ref
from patchkit.carry.upstream.repository import Repository

_JOURNAL = "bump.journal"
_PREFIX = "bump-"


@contextmanager
def open_stage(series: SeriesDir, cache: Cache, lock: Lock) -> Iterator[SeriesDir]:
    """A copy of the series with ``lock`` in place of its own, removed when the context ends.

    An error that leaves the context names the files of the series, see :func:`name_series`. Copies left by
    killed processes are removed. Raises CacheError.
    """
    with copied_series(series, cache, _PREFIX, "copying the series for the bump") as stage:
        write_lock(stage.lock, lock)
        yield stage


@contextmanager
def copied_series(series: SeriesDir, cache: Cache, prefix: str, doing: str) -> Iterator[SeriesDir]:
    """A copy of a series in the cache folder, removed when the context ends; errors name the series' files.

    ``doing`` describes the step for disk errors. Raises CacheError.
    """
    with working_folder(cache.root, prefix, doing) as folder:
        stage = SeriesDir(root=folder, origin=series.origin)
        try:
            with disk_errors(folder, doing):
                for part in series.folders:
                    if part.is_dir():
                        shutil.copytree(part, folder / part.name)
                stage.templates.mkdir(exist_ok=True)
            yield stage
        except PatchkitError as error:
            name_series(error, stage=folder, series=series)
            raise


def name_series(error: PatchkitError, *, stage: Path, series: SeriesDir) -> None:
    """Replace paths of the temporary copy in an error by those of the series, which the user can open.

    Places in files that only the copy has, as those of a new patch, are removed if the error has others.
    """
    for each in members_of(error):
        kept = [place for place in each.where if not _is_only_in(place.path, stage, series)]
        each.where = tuple(kept) or each.where
    map_texts(error, lambda text: text.replace(f"{stage}{os.sep}", f"{series.root}{os.sep}"))


def _is_only_in(path: str, stage: Path, series: SeriesDir) -> bool:
    inside = path.removeprefix(f"{stage}{os.sep}")
    return inside != path and not (series.root / inside).exists()


def publish(
    cache: Cache,
    repository: Repository,
    series: SeriesDir,
    stage: SeriesDir,
    refs: Mapping[str, str],
    before: bytes,
    finish: Callable[[], None],
) -> None:
    """Move the refs, then write the lock; either all of it or nothing takes effect.

    Args:
        cache: held by the caller.
        repository: that of the cache.
        series: its lock must still be ``before``.
        stage: contains the next lock.
        refs: new object ids by full ref name.
        before: the lock as it was when the work began.
        finish: puts the next lock into place; if it raises, the refs are moved back.

    Raises:
        BUMP_SERIES_UNUSABLE: series or lock changed since the copy was made.
        REF_MOVED, GitError, CacheError: nothing was changed.
    """
    _refuse_changes(series, stage, before)
    old = {name: read_ref(repository, name) for name in refs}
    moves = {name: {"old": old[name], "new": refs[name]} for name in refs}
    document = {"refs": moves, "lock": str(series.lock), "text": stage.lock.read_text("utf-8")}
    journal = cache.root / _JOURNAL
    with disk_errors(journal, "writing the journal"):
        partial = journal.with_name(f".{_JOURNAL}.partial")
        partial.write_text(json.dumps(document), "utf-8")
        partial.replace(journal)
    try:
        for name, new in refs.items():
            if old[name] != new:
                update_ref(repository, name, new, old[name])
        finish()
    except BaseException:
        _put_back(repository, moves)
        journal.unlink(missing_ok=True)
        raise
    journal.unlink(missing_ok=True)


def recover(cache: Cache, repository: Repository, reporter: Reporter) -> None:
    """Move back the refs of a bump that was killed after moving them and before writing the lock.

    The caller holds the cache. Raises GitError, CacheError.
    """
    journal = cache.root / _JOURNAL
    if not journal.is_file():
        return
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(journal.read_text("utf-8"))
        lock = Path(found["lock"])
        if not lock.is_file() or lock.read_text("utf-8") != found["text"]:
            reporter.warn("a bump was killed while publishing its result; its refs are moved back")
            _put_back(repository, found["refs"])
    journal.unlink(missing_ok=True)


def _put_back(repository: Repository, moves: Mapping[str, Mapping[str, str | None]]) -> None:
    for name, move in moves.items():
        if read_ref(repository, name) == move["new"]:
            put_back_ref(repository, name, move["old"])


def put_back_ref(repository: Repository, name: str, old: str | None) -> None:
    """Move a ref back to where it was before a failed bump, or remove it."""
    now = read_ref(repository, name)
    with suppress(PatchkitError):
        if old is not None and now != old:
            update_ref(repository, name, old, now)
        elif old is None and now is not None:
            delete_ref(repository, name, now)


def _refuse_changes(series: SeriesDir, stage: SeriesDir, before: bytes) -> None:
    changed = [] if series.lock.read_bytes() == before else [series.lock]
    for part in stage.folders:
        for path in sorted(part.rglob("*")):
            original = series.root / path.relative_to(stage.root)
            if path.is_file() and original != series.lock:
                same = original.is_file() and original.read_bytes() == path.read_bytes()
                changed += [] if same else [original]
    if changed:
        raise ConfigError(
            f"{changed[0].name} changed while the bump was running",
            code="BUMP_SERIES_UNUSABLE",
            where=[Location(path=str(path)) for path in changed[:8]],
            why="the results are proven only for the previous content",
            hint="run the bump again",
        )
