"""``patchkit status``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.bump.status import Queue, Status

_STANDING = {
    "recorded": "as the lock records",
    "differs": "not as the lock records: patchkit apply makes it anew",
    "not recorded": "not in the lock",
    "on a clone": "on a commit of your clone",
}


@verb("status", example=("patchkit status",))
def command(settings: Settings) -> None:
    """Show the pins of the lock, what is cached, and the candidates made so far. Reads only."""
    from patchkit.bump.status import read_status

    status = read_status(settings.workspace(), dt.datetime.now(tz=dt.UTC).date())
    terminal = settings.terminal
    settings.show(status.as_json(), _lines(status), fit=True)
    if settings.json:
        return
    for patch in status.queue.patches:
        for warning in patch.warnings:
            terminal.talk(f"{terminal.paint('warning', 'error')}: {patch.id}: {warning}")
    for error in status.broken:
        terminal.complain(error)


def _lines(status: Status) -> Iterator[str]:
    yield f"series      {status.series.root} ({status.series.origin})"
    yield f"repository  {status.repository}"
    yield ""
    for pin in status.pins:
        cached = "cached" if pin.cached else "not cached"
        name = (pin.commit or pin.tree)[:12]
        yield f"pin  b{pin.build}  {name}  {cached}{'  (default)' if pin.default else ''}"
    yield ""
    for row in status.candidates:
        made = row.candidate
        count = len(made.commits)
        how = _STANDING[row.standing]
        if made.made is not None and made.made.clone is not None:
            how = f"{made.made.branch or 'no branch'} in {made.made.clone}"
        yield f"{made.branch}  {made.tip[:12]}  {count} patch{'es'[: 2 * (count != 1)]}  {how}"
    if not status.candidates:
        yield "no candidate yet: patchkit apply --arch gfx1151"
    yield from _queue(status.queue)


def _queue(queue: Queue) -> Iterator[str]:
    if not queue.patches:
        return
    yield ""
    yield f"carried at b{queue.build}: {len(queue.patches)} patches, {queue.edits} edits"
    for patch in queue.patches:
        age = f"{patch.age_days} days" if patch.age_days is not None else "age not written down"
        yield f"  {patch.id}  {patch.edits} edits  {age}, {patch.builds} builds  {patch.standing}"
    if queue.bumps:
        yield f"conflicts: {queue.conflicts} in {queue.bumps} bumps"
