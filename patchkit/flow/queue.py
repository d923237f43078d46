"""What the series costs, and which patches it should not carry any more.

Vocabulary: a patch is *carried* when the lock records it in a result at its default pin. The *cost* is the
number of carried patches and edits, how old they are, and how many conflicts each bump brought.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchkit.classify.premise import find_gone
from patchkit.classify.superseded import find_replacement
from patchkit.config.lock import Lock, Pin
from patchkit.config.manifest import Patch
from patchkit.config.series import Series
from patchkit.fetch.pin import find_pinned
from patchkit.flow.following import followed_series
from patchkit.flow.upstream import UpstreamFiles, read_upstream
from patchkit.vcs.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPatch:
    """``age_days`` is None when patch.toml does not say since when; ``builds`` is from its first build on."""

    id: str
    edits: int
    standing: str
    age_days: int | None
    builds: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The carried patches at the default pin; ``bumps`` are those whose reports the cache keeps."""

    build: int
    patches: tuple[CarriedPatch, ...]
    bumps: int
    conflicts: int

    @property
    def edits(self) -> int:
        """Of all carried patches."""
        return sum(patch.edits for patch in self.patches)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "build": self.build,
            "patches": [
                {
                    "id": patch.id,
                    "edits": patch.edits,
                    "upstream": patch.standing,
                    "age_days": patch.age_days,
                    "builds": patch.builds,
                    "warnings": list(patch.warnings),
                }
                for patch in self.patches
            ],
            "edits": self.edits,
            "bumps": self.bumps,
            "conflicts": self.conflicts,
        }


def read_queue(
    lock: Lock, series: Series, repository: Repository | None, reports: Path, today: dt.date
) -> Queue:
    """The queue as it is; reads the sources of the default pin when they are cached. Raises GitError."""
    pin = lock.pin(None)
    series = followed_series(series, pin)
    names = {name for result in lock.results if result.build == pin.build for name in result.patches}
    carried = [patch for patch in series.patches if patch.id in names]
    files = _files(repository, pin, series) if carried else None
    bumps, conflicts = _past(reports)
    return Queue(
        build=pin.build,
        patches=tuple(
            CarriedPatch(
                id=patch.id,
                edits=len(patch.edits),
                standing=str(patch.fate),
                age_days=(today - patch.fate.since).days if patch.fate.since is not None else None,
                builds=pin.build - patch.builds.first,
                warnings=tuple(_warnings(patch, pin, files, today)),
            )
            for patch in carried
        ),
        bumps=bumps,
        conflicts=conflicts,
    )


def _files(repository: Repository | None, pin: Pin, series: Series) -> UpstreamFiles | None:
    found = find_pinned(repository, pin) if repository is not None else None
    if repository is None or found is None:
        return None
    return read_upstream(repository, found.commit, series.folders)


def _warnings(patch: Patch, pin: Pin, files: UpstreamFiles | None, today: dt.date) -> Iterator[str]:
    fate = patch.fate
    if fate.merged_in is not None and fate.merged_in <= pin.build:
        yield f"upstream has it since b{fate.merged_in}, and it is still carried at {pin.name}"
    expired = fate.expired(pin.build, today)
    if expired is not None:
        yield expired
    if not patch.builds.covers(pin.build):
        yield f"its builds end before {pin.name}, and it is still carried"
    if files is None:
        return

    def defines(path: str, name: str) -> bool:
        entities = files.upstream_scopes(path).entities
        return any(entity.answers_to(name) for entity in entities if entity.kind != "record")

    gone = find_gone(patch, files.base, files.names, defines)
    if gone:
        yield f"retired: {pin.name} has no {', '.join(map(str, gone))}, and it is still carried"
    replacement = find_replacement(patch, files.base, files.upstream_scopes)
    if replacement is not None:
        place, why = replacement
        yield f"superseded at {place}: {why}; and it is still carried"


def _past(reports: Path) -> tuple[int, int]:
    """How many bumps there were, and conflicts in them; a report that cannot be read counts for nothing.

    A bump that was tried again counts once, with the most conflicts that one of its tries met.
    """
    met: dict[tuple[int, int], int] = {}
    for path in sorted(reports.glob("bump-*.json")) if reports.is_dir() else []:
        try:
            document = json.loads(path.read_text("utf-8"))
            pins = (document["from"]["build"], document["to"]["build"])
            # A patch of several sets of the same GPUs is one conflict.
            found = {
                (*made["archs"], patch["id"])
                for made in document["candidates"]
                for patch in made["patches"]
                if patch["class"] == "conflict"
            }
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if pins[0] != pins[1]:
            met[pins] = max(met.get(pins, 0), len(found))
    return len(met), sum(met.values())
