"""What a bump is asked for, and whether that can be: looked at before anything is fetched."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from patchkit.config.lock import Lock
from patchkit.config.profile import load_profile
from patchkit.config.series import load_series
from patchkit.flow.following import select_on
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpRequest:
    """``archs`` and ``with_`` empty: every set that the lock follows, see :mod:`patchkit.flow.bump_rows`.

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
