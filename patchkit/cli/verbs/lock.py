"""``patchkit lock``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import arch_options
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.relock import RecordedResult, Relocked, relock, relock_all
from patchkit.cli.request import choose_archs, lock_options
from patchkit.cli.settings import Settings, verb


@verb("lock", example=("patchkit lock --arch gfx1151", "patchkit lock --all"))
@lock_options
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Record every result of the lock again, for all its GPUs, builds and sets of patches.",
)
def command(settings: Settings, wanted: Request, *, every: bool) -> None:
    """Record the resulting source tree after you changed a patch, a template or a profile.

    Rewrites the result in patches/upstream.lock. Review the change with git diff before you commit it.

    A profile or a shared template affects several results. With --all, each is recorded again with its
    optional patches. The lock file is replaced only when all of them succeed.
    """
    if every:
        _refuse_narrowing(wanted)
    workspace = settings.workspace()
    lock = workspace.series.lock
    if every:
        done = relock_all(workspace, source=wanted.source, upstream_url=wanted.upstream_url)
        settings.show({"lock": str(lock), **fields_of(done)}, _lines(done, lock))
    else:
        one = relock(replace(wanted, archs=choose_archs(workspace, wanted.archs)), workspace)
        line = f"{lock}: {_state(one)}, tree {one.result.tree}, commit {one.result.commit}"
        words = [*arch_options(one.result.archs, workspace.series.profiles)]
        words += ["--upstream", one.result.pin] if wanted.upstream is not None else []
        made = f"next:  {shlex.join(['patchkit', 'apply', *words])}{wanted.options}"
        settings.show({"lock": str(lock), **fields_of(one)}, [line, f"{made}  # makes the candidate branch"])


def _refuse_narrowing(wanted: Request) -> None:
    named = {
        "--arch": wanted.archs,
        "--upstream": wanted.upstream,
        "--only": wanted.only,
        "--without": wanted.without,
        "--with": wanted.with_,
        "--trust": wanted.trust,
    }
    given = [name for name, value in named.items() if value]
    if given:
        raise UsageError(
            f"--all cannot be combined with {', '.join(given)}",
            code="OPTIONS_CONTRADICT",
            why="--all records every result in the lock",
            hint="use --all alone, or omit it to record one result",
        )


def _lines(done: Relocked, lock: Path) -> Iterator[str]:
    count = sum(each.changed for each in done.results)
    yield f"{lock}: {count} of {len(done.results)} results changed"
    for each in done.results:
        result = each.result
        patches = ", ".join(result.patches) or "no patches"
        yield f"  {result.name}: {_state(each)}, tree {result.tree[:12]}, {patches}"
        if each.was != result.patches:
            yield f"    before: {', '.join(each.was) or 'no patches'}"
    yield from (f"  {name}: removed, because its GPU has no profile any more" for name in done.dropped)


def _state(one: RecordedResult) -> str:
    return "recorded" if one.changed else "unchanged"
