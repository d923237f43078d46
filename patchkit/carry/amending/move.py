"""``patchkit series move``: change the order of the patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import InterruptNote, UsageError, raise_all
from patchkit.base.files import disk_errors
from patchkit.base.series_folder import SeriesDir, refuse_installed
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.check import compare_series, renew_lock, require_equal
from patchkit.carry.amending.drop import site_of
from patchkit.carry.amending.staged import open_amendment
from patchkit.carry.lifting.pipeline import open_pipeline
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Result
from patchkit.carry.series.patch import Patch

_LAST = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A patch at another position. ``folders``: the new folder of every renumbered patch, by the old one.

    ``renewed``, ``stale``, ``unchecked``: results of the lock, as of a replaced patch.
    """

    json_keys: ClassVar = (
        "moved=patch folders checked lock_renewed=renewed lock_stale=stale unchecked written"
    )

    patch: str
    folders: Mapping[str, str]
    checked: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    written: bool = True


def run_move(name: str, other: str, workspace: Workspace, *, before: bool, dry_run: bool) -> Moved:
    """Move a patch right before or after another one; the result of the series has to stay the same.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        AMEND_REFUSED: a patch would come before one that it requires.
        AMEND_BREAKS: a patch cannot be placed in the new order, or the result is another one.
        PatchkitError: as :func:`patchkit.carry.lifting.pipeline.open_pipeline`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    series = load_series(workspace.series.patches)
    patch, target = series.require(name), series.require(other)
    if patch is target:
        raise UsageError(f"'{name}' cannot be moved next to itself", code="AMEND_REFUSED", where=patch.where)
    rest = [each for each in series.patches if each is not patch]
    at = rest.index(target) + (not before)
    order = [*rest[:at], patch, *rest[at:]]
    way = f"moving '{name}' {'before' if before else 'after'} '{other}'"
    require_order(series, order, way)
    folders = _renumber(patch, order, series)
    if not folders:
        return Moved(patch=name, folders={}, written=False)
    renamed = [each.id for each in series.patches if each.folder in folders]
    ids = [each.id for each in order]

    def is_same(result: Result) -> bool:
        """Whether the patches of a result have the same order as before."""
        return [each for each in ids if each in result.patches] == list(result.patches)

    with InterruptNote("the series is unchanged"), open_pipeline(workspace) as pipeline:
        site = site_of((name, other), pipeline) or site_of((name,), pipeline)
        with open_amendment(pipeline) as amendment:
            _rename(amendment.series, folders)
            checked = compare_series(amendment.stage.workspace, pipeline, renamed, site)
            hint = "leave the order as it is, or combine the two: patchkit series fold"
            require_equal(checked, way, hint)
            lock = renew_lock(amendment, pipeline, renamed, is_same)
            if not dry_run:
                amendment.publish(workspace.series)
    return Moved(
        patch=name,
        folders=folders,
        checked=tuple(each.name for each in checked.compared),
        renewed=lock.renewed,
        stale=lock.stale,
        unchecked=checked.unchecked,
        written=not dry_run,
    )


def require_order(series: Series, order: Sequence[Patch], way: str) -> None:
    """Raise AMEND_REFUSED if a patch comes before one that it requires, and did not before."""
    was = {each.id: number for number, each in enumerate(series.patches)}
    now = {each.id: number for number, each in enumerate(order)}
    errors = [
        UsageError(
            f"{way} would place '{patch.id}' before '{each.patch}', which it requires",
            code="AMEND_REFUSED",
            where=[each.where, patch.where],
            why=each.why,
            hint=f"move '{each.patch}' as well, or remove the [[requires]] if it is wrong",
        )
        for patch in order
        for each in patch.requires
        if each.patch in now and was[each.patch] < was[patch.id] and now[each.patch] > now[patch.id]
    ]
    raise_all(errors, f"{way} is not possible")


def _renumber(patch: Patch, order: Sequence[Patch], series: Series) -> dict[str, str]:
    """New folder names by old ones: one for the patch if a number is free there, else for those it passes."""
    if [each.id for each in order] == [each.id for each in series.patches]:
        return {}
    at = order.index(patch)
    low = order[at - 1].number if at else 0
    high = order[at + 1].number if at + 1 < len(order) else _LAST + 1
    if high - low > 1:
        return {patch.folder: _folder(low + 1, patch)}
    old = series.patches.index(patch)
    first, last = min(at, old), max(at, old)
    numbers = [each.number for each in series.patches[first : last + 1]]
    pairs = zip(order[first : last + 1], numbers, strict=True)
    return {each.folder: _folder(number, each) for each, number in pairs if each.number != number}


def _folder(number: int, patch: Patch) -> str:
    return f"{number:04d}-{patch.id}"


def _rename(series: SeriesDir, folders: Mapping[str, str]) -> None:
    # The new names differ from all old ones, because the ids in them do.
    with disk_errors(series.patches, "writing the series"):
        for old, new in folders.items():
            (series.patches / old).rename(series.patches / new)
