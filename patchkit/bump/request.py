"""Which candidates a bump takes along: what the lock records, not only at its default pin."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.base.errors import UsageError
from patchkit.candidate.following import select_on
from patchkit.series.catalogue import Series, load_series
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import Lock, Result
from patchkit.series.profile import ArchProfile, load_profile
from patchkit.series.selection import opted_in, select_patches


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpRequest:
    """``archs`` and ``with_`` empty: every set that the lock follows, see :mod:`patchkit.bump.request`.

    ``without``: patches that may be lost, by name. ``drop_conflicts``: those in conflict are left out. Where
    the lock goes is the caller's matter; ``commit`` is only for telling the command again.
    """

    to: str = "latest"
    archs: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    source: Literal["auto", "git", "sdist"] = "auto"
    upstream_url: str | None = None
    verify: bool = True
    keep_default: bool = False
    drop_conflicts: bool = False
    commit: bool = False


def bump_command(request: BumpRequest, *, to: str) -> str:
    """The command line of a request, to be pasted."""
    return " ".join(map(shlex.quote, ["patchkit", "bump", "--to", to, *_options(request)]))


def _options(request: BumpRequest) -> Iterator[str]:
    for option, names in (("--arch", request.archs), ("--with", request.with_)):
        for name in names:
            yield from (option, name)
    if request.source != "auto":
        yield from ("--source", request.source)
    if request.upstream_url is not None:
        yield from ("--upstream-url", request.upstream_url)
    flags = {
        "--no-verify": not request.verify,
        "--keep-default": request.keep_default,
        "--commit": request.commit,
        "--drop-conflicts": request.drop_conflicts,
    }
    yield from (flag for flag, given in flags.items() if given)
    for name in request.without:
        yield from ("--without", name)


def check_series(request: BumpRequest, folder: SeriesDir, lock: Lock) -> None:
    """Read everything once before anything is fetched, so that what is wrong with it is told at once.

    Raises the errors of reading series and profiles, UNKNOWN_PATCH, and PATCH_PAIR_SPLIT.
    """
    series = load_series(folder.patches)
    sets = {request.archs} if request.archs else {result.archs for result in lock.results}
    for archs in sorted(sets):
        profiles = tuple(load_profile(folder.profiles, arch) for arch in archs)
        select_on(series, profiles, lock.pin(None), request.with_)


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
