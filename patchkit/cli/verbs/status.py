"""``patchkit status``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import click

from patchkit.base.series_folder import arch_options, format_archs
from patchkit.base.text import counted
from patchkit.carry.status import Queue, Status, read_status
from patchkit.cli.settings import Settings, verb
from patchkit.cli.terminal import talk

_STANDING = {
    "recorded": "as the lock records",
    "differs": "not as the lock records: patchkit apply makes it anew",
    "not recorded": "not in the lock",
    "on a clone": "on a commit of your clone",
}


@verb("status", example=("patchkit status", "patchkit status --fetch"))
@click.option(
    "--fetch", is_flag=True, help="Ask remotes for the pull requests of patches and for watched forks."
)
def command(settings: Settings, *, fetch: bool) -> None:
    """Show the pins of the lock, what is cached, the candidates made so far, and what is followed.

    Pull requests that patches name, and the forks of [[watch]], are shown as they were when somebody asked
    last: status --fetch or a bump. Without --fetch it reads only.
    """
    status = read_status(settings.workspace(), dt.datetime.now(tz=dt.UTC), fetch=fetch)
    terminal = settings.terminal
    settings.show(status, _lines(status), fit=True)
    if settings.json:
        return
    for patch in status.queue.patches:
        for warning in patch.warnings:
            talk(f"{terminal.paint('warning', 'error')}: {patch.id}: {warning}")
    for made, found in ((one.made, one.fault) for one in status.faults):
        if found.archs and found.fault.is_harmful:
            where = f"known fault of {made.branch}"
            talk(f"{terminal.paint('warning', 'error')}: {where}: {found.sentence()}")
    for error in status.broken:
        terminal.complain(error)


def _lines(status: Status) -> Iterator[str]:
    yield f"series      {status.series.root} ({status.series.origin})"
    yield f"repository  {status.repository}"
    yield ""
    for pin in status.lock.pins:
        cached = "cached" if pin.build in status.cached else "not cached"
        default = "  (default)" if pin.build == status.lock.default else ""
        yield f"pin  {pin.title}  {(pin.commit or pin.tree)[:12]}  {cached}{default}"
        for row in pin.left_out:
            yield f"     left out for {format_archs(row.archs)}: {row.patch}: {row.why}"
    yield ""
    for made, standing in ((one.made, one.standing) for one in status.candidates):
        many = counted(len(made.commits), "patch", "patches")
        how = _STANDING[standing]
        if made.record is not None and made.record.clone is not None:
            how = f"{made.record.branch or 'no branch'} in {made.record.clone}"
        yield f"{made.branch}  {made.tip[:12]}  {many}  {how}"
    if not status.candidates:
        options = arch_options(["gfx1151"], status.series.profiles)
        yield f"no candidate yet: {' '.join(['patchkit apply', *options])}"
    yield from _queue(status.queue, status.lock.pin(None).title)
    yield from status.following.lines(status.lock.pin(None).name)


def _queue(queue: Queue, pin: str) -> Iterator[str]:
    if not queue.patches:
        return
    yield ""
    yield f"carried at {pin}: {len(queue.patches)} patches, {queue.edits} edits"
    for patch in queue.patches:
        age = f"{patch.age_days} days" if patch.age_days is not None else "age not written down"
        yield f"  {patch.id}  {patch.edits} edits  {age}, {patch.builds} builds  {patch.upstream}"
    if queue.bumps:
        yield f"conflicts: {queue.conflicts} in {queue.bumps} bumps"
