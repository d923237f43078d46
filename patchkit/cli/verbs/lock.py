"""``patchkit lock``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

import click

from patchkit.base.errors import UsageError
from patchkit.cli.request import RequestOptions, make_request, request_options
from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.candidate.lock import Recorded, Relocked
    from patchkit.candidate.workspace import Workspace


@verb("lock", example=("patchkit lock --arch gfx1151", "patchkit lock --all"))
@request_options
@click.option(
    "--all", "every", is_flag=True, help="Every result of the lock anew, for all its GPUs, pins and patches."
)
def command(settings: Settings, *, every: bool, **options: Unpack[RequestOptions]) -> None:
    """Record what the series gives at the pin, after a patch, a template or a profile was changed.

    Rewrites the result in patches/upstream.lock; look at what changed with git diff before you commit it.

    A profile or a shared template is an input of several results. With --all each of them is made anew, with
    the opt-in patches that it has; the lock is replaced once, when all are made, or not at all.
    """
    from patchkit.candidate.lock import relock, relock_all

    if every:
        _refuse_narrowing(options)
    workspace = settings.workspace()
    if every:
        done = relock_all(workspace, source=options["source"], upstream_url=options["upstream_url"])
        document, lines = done.as_json(), list(_lines(done, workspace))
    else:
        one = relock(make_request(workspace, options), workspace)
        document = one.as_json()
        lines = [
            f"{workspace.series.lock}: {_state(one)}, tree {one.result.tree}, commit {one.result.commit}"
        ]
    if settings.json:
        settings.terminal.document({"lock": str(workspace.series.lock), **document})
    else:
        settings.terminal.data("\n".join(lines))


def _refuse_narrowing(options: RequestOptions) -> None:
    named = {
        "--arch": options["archs"],
        "--upstream": options["upstream"],
        "--only": options["only"],
        "--without": options["without"],
        "--with": options["with_"],
    }
    given = [name for name, value in named.items() if value]
    if given:
        raise UsageError(
            f"--all and {', '.join(given)} contradict each other",
            code="LOCK_ALL_NARROWED",
            why="--all is every result that the lock has",
            hint="patchkit lock --all, or leave --all out to record one result",
        )


def _lines(done: Relocked, workspace: Workspace) -> Iterator[str]:
    count = sum(each.changed for each in done.results)
    yield f"{workspace.series.lock}: {count} of {len(done.results)} results recorded anew"
    for each in done.results:
        result = each.result
        patches = ", ".join(result.patches) or "no patches"
        yield f"  {result.name}: {_state(each)}, tree {result.tree[:12]}, {patches}"
        if each.was != result.patches:
            yield f"    instead of {', '.join(each.was) or 'no patches'}"
    yield from (f"  {name}: taken out, its GPU has no profile any more" for name in done.dropped)


def _state(one: Recorded) -> str:
    return "recorded" if one.changed else "as it was"
