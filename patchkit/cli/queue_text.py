"""The text output of ``import`` for a queue: a table of the changes, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from patchkit.base.errors import members_of
from patchkit.base.series_folder import PLAIN
from patchkit.base.text import counted, shortened
from patchkit.base.upstreams import build_name
from patchkit.carry.importing.queue import QueuedPatch, QueueReport

_MOST = 4  # removals, renames and mode changes shown per change
_NAME = 56  # longest name in the table


def queue_lines(
    done: QueueReport, guards: Sequence[str], lacking: Sequence[Sequence[str]], *, in_plain: bool
) -> Iterator[str]:
    """Yield the table, the counts and the next commands; ``in_plain``: the series is plain.

    ``lacking``: for each written patch, the keys that patch.toml still needs before it can be published.
    """
    width = min(_NAME, max(len(each.name) for each in done.patches))
    for each in done.patches:
        yield f"{_cut(each.name):{width}}  {each.state:8}  {_result(each)}"
        yield from (f"  {hunk}" for hunk in each.moved)
        yield from (f"  requires {name}: {why}" for name, why in each.requires)
        yield from ((f"  {each.note}",) if each.note and each.state != "skipped" else ())
        yield from _reasons(each)
    parts = [
        f"{done.count('lifted')} lifted",
        f"{done.count('text')} text",
        f"{done.count('refused')} refused",
    ]
    if done.count("skipped"):
        parts.append(f"{done.count('skipped')} skipped")
    yield f"{counted(len(done.patches), 'change')}: {', '.join(parts)}; on {done.base}: {done.because}"
    ids = [name for each in done.patches for name, _ in each.patches]
    if not ids:
        yield "nothing was written"
        return
    missing = f", not {', '.join(done.not_on_newest)}" if done.not_on_newest else ""
    yield f"on {done.newest}{missing}"
    if not done.written:
        yield "nothing was written: --dry-run"
        return
    if set(guards) == {"none"}:
        whom = () if in_plain else ("--arch", PLAIN)
        at = [*whom, "--upstream", build_name(done.build)]
        yield f"next:  {shlex.join(['patchkit', 'plan', *at])}"
        yield f"       {shlex.join(['patchkit', 'apply', *at])}"
    # A new plain series has no recorded result that --all could renew.
    lock = "patchkit lock" if in_plain else "patchkit lock --all"
    yield f"       {lock}  # records the new result of the series"
    keys = list(dict.fromkeys(key for each in lacking for key in each))
    if keys:
        count = counted(sum(map(bool, lacking)), "patch.toml", "patch.toml")
        yield f"       add {', '.join(keys)} to {count} before verify --publish"


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."


def _result(each: QueuedPatch) -> str:
    if each.state == "refused":
        return ", ".join(dict.fromkeys(error.code for error in members_of(each.error))) if each.error else ""
    if each.state == "skipped":
        return each.note
    parts = []
    if each.edits:
        hunks = f", {each.hunks} of them by text" if 0 < each.hunks < each.edits else ""
        parts.append(
            counted(each.edits, "edit") + hunks if each.state == "lifted" else counted(each.hunks, "hunk")
        )
    if each.new_files:
        parts.append(counted(each.new_files, "new file"))
    parts += each.whole[:_MOST] + (("...",) if len(each.whole) > _MOST else ())
    return f"{' and '.join(parts)}: {', '.join(name for name, _ in each.patches)}"


def _reasons(each: QueuedPatch) -> Iterator[str]:
    for error in members_of(each.error) if each.error is not None else ():
        where = f"{error.where[0]}: " if error.where else ""
        why = f" ({shortened(error.why.splitlines()[0])})" if error.why else ""
        yield f"  {where}{error.message}{why}"
        yield from (f"    {place.with_label}" for place in error.where[1:])
        if error.hint:
            yield f"    {shortened(error.hint.splitlines()[0])}"
