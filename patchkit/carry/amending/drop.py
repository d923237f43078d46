"""``patchkit series drop``: remove patches from the series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import InterruptNote, UsageError, raise_all
from patchkit.base.series_folder import refuse_installed
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.check import broken_errors, compare_series, without
from patchkit.carry.amending.site import Site, find_site
from patchkit.carry.amending.staged import open_amendment
from patchkit.carry.amending.uses import remove_patches, require_not_required
from patchkit.carry.lifting.pipeline import Pipeline, open_pipeline
from patchkit.carry.series.catalogue import load_series


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The patches that were removed. ``profiles``: those that named one; ``faults``: those that one fixed.

    ``stale``: results of the lock that have one of them; ``unchecked``: those on builds that are not cached.
    """

    json_keys: ClassVar = "dropped=patches profiles faults lock_stale=stale unchecked checked written"

    patches: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    written: bool = True


def run_drop(names: tuple[str, ...], workspace: Workspace, *, dry_run: bool) -> Dropped:
    """Remove patches, and the lines that name them in profiles and known faults.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        AMEND_REFUSED: another patch requires one of them.
        AMEND_BREAKS: another patch cannot be placed without one of them.
        PatchkitError: as :func:`patchkit.carry.lifting.pipeline.open_pipeline`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    series = load_series(workspace.series.patches)
    names = tuple(dict.fromkeys(names))
    for name in names:
        series.require(name)
    require_not_required(series, names)
    gone = {*names}

    with InterruptNote("the series is unchanged"), open_pipeline(workspace) as pipeline:
        site = site_of(names, pipeline)
        with open_amendment(pipeline) as amendment:
            profiles, faults = remove_patches(amendment.series, names)
            checked = compare_series(amendment.stage.workspace, pipeline, names, site, without(gone))
            quoted = ", ".join(names)
            raise_all(
                broken_errors(
                    checked,
                    f"dropping {quoted}",
                    "drop it too, or replace it first by a version that does not need the dropped one",
                )
            )
            if not dry_run:
                amendment.publish(workspace.series)
        stale = [result.name for result in pipeline.lock.results if gone & {*result.patches}]
    return Dropped(
        patches=names,
        profiles=profiles,
        faults=faults,
        stale=tuple(stale),
        unchecked=checked.unchecked,
        checked=tuple(each.name for each in checked.compared),
        written=not dry_run,
    )


def site_of(names: tuple[str, ...], pipeline: Pipeline) -> Site | None:
    """A build where the patches are placed; None if there is none, for example because their range ended."""
    try:
        return find_site(names, None, pipeline)
    except UsageError as error:
        if error.code != "AMEND_REFUSED":
            raise
        return None
