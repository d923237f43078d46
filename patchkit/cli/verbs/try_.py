"""``patchkit try``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import click

from patchkit.base.errors import ExitCode, PatchkitError, UsageError
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.cli.request import Asked, try_options
from patchkit.cli.settings import Settings, verb
from patchkit.prove.gates.resources import KernelRow
from patchkit.prove.trying import Against, Tried, run_try, series_state

_LOOK_S = 0.5  # between two looks at the files, and as long as they have to be at rest
_SHOWN = 40  # kernels


@verb(
    "try",
    example=(
        "patchkit try --arch gfx1151",
        "patchkit try --arch gfx1151 --likely --no-run --watch",
        "patchkit try --arch gfx1151 --against upstream",
        "patchkit try --arch gfx1151 --onto HEAD --repo ../llama.cpp",
    ),
)
@try_options
@click.option(
    "--against",
    type=click.Choice(["candidate", "upstream"]),
    default="candidate",
    help="What it is compared with (default: the candidate branch, upstream where there is none).",
)
@click.option("--run/--no-run", default=True, help="Also emulate and model (default), or only compile.")
@click.option(
    "--likely", is_flag=True, help="Only units that name most of what you changed: seconds, and no proof."
)
@click.option("--watch", is_flag=True, help="Again on each save of a file of the series, until Ctrl-C.")
def command(
    settings: Settings, asked: Asked, *, against: Against, run: bool, likely: bool, watch: bool
) -> int:
    """Show what a change to the series does to kernels: a row, a template or a profile that you just edited.

    For every kernel whose code changed: registers, spills, waves. Then whether the operations are right, on
    the emulated GPU, and what the shapes that patches name take, by the timing model: modelled, not measured.

    Nothing is recorded and no branch moves: when it pays, go on with patchkit lock, apply and verify. The
    first run builds upstream's programs, which takes minutes; later ones only what changed. With --onto all
    of it is of a commit of your own clone, which is only read.
    """
    if watch and settings.json:
        raise UsageError(
            "--watch and --json contradict each other", code="USAGE_SYNTAX", hint="leave out --watch"
        )
    workspace = settings.workspace()
    onto = asked.clone()
    request = replace(asked.request(workspace), unlocked=True)
    hear = _hearing(workspace)
    again = partial(
        run_try,
        workspace,
        request,
        onto=onto,
        against=against,
        run=run,
        environ=os.environ,
        likely=likely,
        on_kernels=hear,
    )
    if watch:
        _watch(settings, workspace, again, run=run)
    done = again()
    settings.show(done, list(_lines(done, run=run)))
    return ExitCode.GATE_FAILED if done.failed else ExitCode.OK


def _watch(settings: Settings, workspace: Workspace, again: Callable[[], Tried], *, run: bool) -> None:
    """Until Ctrl-C; what goes wrong is told, and the next save is another try."""
    series = workspace.series
    folders = (series.patches, series.templates, series.profiles)
    seen = None
    while True:
        state = series_state(folders)
        if state == seen:
            time.sleep(_LOOK_S)
            continue
        time.sleep(_LOOK_S)
        if series_state(folders) != state:  # an editor is still writing
            continue
        seen = state
        try:
            settings.terminal.data("\n".join(_lines(again(), run=run)))
        except PatchkitError as error:
            settings.terminal.complain(error)
        workspace.reporter.info(f"waiting for the next save in {series.patches.parent}; Ctrl-C ends it")


def _hearing(workspace: Workspace) -> Callable[[Sequence[KernelRow]], None]:
    """Tells the kernels of a unit while the others are compiled: a second look may not be needed."""

    def hear(rows: Sequence[KernelRow]) -> None:
        for line in _kernels(tuple(rows), f"{rows[0].unit.rpartition('/')[2]}: "):
            workspace.reporter.info(line)

    return hear


def _lines(done: Tried, *, run: bool) -> Iterator[str]:
    patches = ", ".join(done.patches) or "no patch"
    yield f"{patches} on {done.commit or build_name(done.build)}, against {done.before} ({done.seconds:g} s)"
    if done.tree == done.before_tree:
        yield "nothing changed: the trees are the same"
        return
    looked = done.units - done.left_out
    if not done.kernels:
        yield f"no kernel changed, of {looked} units: what changed is host code, or says the same"
    yield from _kernels(done.kernels)
    for gate in done.checked:
        yield f"{gate.gate}: {gate.verdict}: {gate.summary}"
        yield from (f"  {problem.message}" for problem in gate.problems)
    if done.shapes:
        yield "modelled, microseconds, before -> now:"
    for one in done.shapes:
        times = " -> ".join("-" if us is None else f"{us:.1f}" for us in (one.before_us, one.now_us))
        change = "" if one.change is None else f"  {100 * one.change:+.1f} %"
        yield f"  {one.arch}  {one.shape}: {times}{change}"
    if done.left_out:
        yield f"not looked at: {done.left_out} more units that read what changed (leave out --likely)"
    if not run:
        yield "not run: leave out --no-run to emulate and model it"


def _kernels(rows: tuple[KernelRow, ...], of: str = "") -> Iterator[str]:
    if not rows:
        return
    yield f"{of}{len(rows)} kernels changed, before -> now (by the compiler):"
    head = ("VGPRs", "spilled", "waves", "LDS", "kernel")
    cells = [head, *(_cells(row) for row in rows[:_SHOWN])]
    widths = [max(len(line[at]) for line in cells) for at in range(len(head) - 1)]
    for line in cells:
        shown = [cell.rjust(width) for cell, width in zip(line, widths, strict=False)]
        yield f"  {'  '.join(shown)}  {line[-1]}"
    if len(rows) > _SHOWN:
        yield f"  {len(rows) - _SHOWN} more: --json has all"


def _cells(row: KernelRow) -> tuple[str, ...]:
    def told(name: str) -> str:
        sides = [None if one is None else int(getattr(one, name)) for one in (row.was, row.now)]
        if sides[0] == sides[1]:
            return str(sides[0])
        return " -> ".join("-" if one is None else str(one) for one in sides)

    return (
        *(told(name) for name in ("vgprs", "vgpr_spills", "waves", "lds_bytes")),
        f"{row.variant} ({row.arch})",
    )
