"""Which candidates a bump takes along: what the lock records, not only at its default pin.

Vocabulary: a *set* is GPUs together with the opt-in patches that they were given. A *row* is one set that a
bump follows, with the recorded results that it comes from: that of the default pin, and that of the newest
pin that has results of these GPUs and is no newer than the target. Several sets of the same GPUs are
several rows; the branch of these GPUs is that of the row without opt-in patches, or of the only row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from patchkit.config.lock import Lock, Result
from patchkit.config.profile import load_profile
from patchkit.config.profile_data import ArchProfile
from patchkit.config.series import Series, load_series
from patchkit.errors import UsageError
from patchkit.flow.bump_request import BumpRequest
from patchkit.flow.selection import opted_in, select_patches
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One set to follow.

    ``builds``: where its last renderings are looked for, oldest first. ``had``: every patch that its results
    record; None when the lock has none of this set. ``branch``: whether the branch of the GPUs is its own.
    """

    archs: tuple[str, ...]
    with_: tuple[str, ...]
    without: tuple[str, ...]
    builds: tuple[int, ...]
    had: tuple[str, ...] | None
    branch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """``newer`` are GPUs that the lock has results for at pins newer than the target only."""

    followed: tuple[Row, ...]
    newer: tuple[tuple[str, ...], ...]


def find_rows(request: BumpRequest, lock: Lock, target: int, folder: SeriesDir) -> Rows:
    """The rows of a bump to the build ``target``, sorted by GPUs and opt-in patches.

    With ``--arch`` or ``--with`` only what was named: the GPUs (or those that the default pin has results of)
    with exactly these opt-in patches.

    Raises UsageError when there is none; UNKNOWN_PATCH, REQUEST_CONTRADICTS and PATCH_PAIR_SPLIT for
    ``--without``; and the errors of reading series and profiles.
    """
    series = load_series(folder.patches)
    rows: list[Row] = []
    newer: list[tuple[str, ...]] = []
    for archs in _sets(request, lock):
        profiles = tuple(load_profile(folder.profiles, arch) for arch in archs)
        recorded = [result for result in lock.results if result.archs == archs]
        if request.archs or request.with_:
            asked = _opted(series, profiles, request.with_)
            same = [result for result in recorded if _opted(series, profiles, result.patches) == asked]
            rows.append(_row(request, lock, target, archs, request.with_, _recent(same, lock, target)))
            continue
        found: dict[tuple[str, ...], list[Result]] = {}
        for result in _recent(recorded, lock, target):
            found.setdefault(_opted(series, profiles, result.patches), []).append(result)
        made = [_row(request, lock, target, archs, with_, found[with_]) for with_ in sorted(found)]
        rows += [replace(row, branch=len(made) == 1 or not with_)
                 for row, with_ in zip(made, sorted(found), strict=True)]  # fmt: skip
        newer += [] if made else [archs]
    if not rows:
        raise UsageError(
            f"the lock records no candidate at its default pin, or at one before b{target}, "
            "so there is nothing to take along",
            hint="name the GPU: patchkit bump --arch gfx1151",
        )
    rows = [_checked(row, series, folder, target, rows) for row in rows]
    return Rows(followed=tuple(rows), newer=tuple(newer))


def _sets(request: BumpRequest, lock: Lock) -> list[tuple[str, ...]]:
    if request.archs:
        return [tuple(sorted(set(request.archs)))]
    return sorted(
        {result.archs for result in lock.results if not request.with_ or result.build == lock.default}
    )


def _opted(series: Series, profiles: Sequence[ArchProfile], ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(opted_in(profiles, [name for name in set(ids) if series.patch(name) is not None])))


def _recent(results: Sequence[Result], lock: Lock, target: int) -> list[Result]:
    """Those at the default pin, and those at the newest pin that is no newer than the target."""
    newest = max((result.build for result in results if result.build <= target), default=None)
    return [result for result in results if result.build in (lock.default, newest)]


def _row(
    request: BumpRequest,
    lock: Lock,
    target: int,
    archs: tuple[str, ...],
    with_: tuple[str, ...],
    results: Sequence[Result],
) -> Row:
    builds = sorted({result.build for result in results}) or [lock.default]
    # Held against itself nothing ever moves: what was recorded at the target is the base of last resort.
    builds = [build for build in builds if build != target] or builds
    asked = bool(request.archs or request.with_)
    return Row(
        archs=archs,
        with_=with_ if asked else tuple(name for name in with_ if name not in request.without),
        without=request.without,
        builds=tuple(builds),
        had=tuple(dict.fromkeys(name for result in results for name in result.patches)) if results else None,
    )


def _checked(row: Row, series: Series, folder: SeriesDir, target: int, rows: Sequence[Row]) -> Row:
    """The row with those of ``without`` that the series has; another may be one that the lock records."""
    recorded = {name for each in rows for name in each.had or ()}
    without = tuple(name for name in row.without if series.patch(name) is not None or name not in recorded)
    profiles = [load_profile(folder.profiles, arch) for arch in row.archs]
    select_patches(series, profiles, target, only=(), without=without, with_=row.with_)
    return replace(row, without=without)
