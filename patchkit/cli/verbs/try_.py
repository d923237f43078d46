"""``patchkit try``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import click

from patchkit.base.errors import ExitCode, PatchkitError, UsageError
from patchkit.base.text import align_columns, counted
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.cli.request import ApplyOptions, try_options
from patchkit.cli.settings import Settings, verb
from patchkit.prove.gates.resources import KernelRow
from patchkit.prove.trying import Against, Tried, run_try, series_state

_POLL_S = 0.5  # interval between two checks of the files, which must be unchanged for as long
_SHOWN = 40  # kernels in the table


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
    help="What to compare with (default: the candidate branch; upstream if there is none).",
)
@click.option(
    "--run/--no-run",
    default=True,
    help="Run the changed operations on the emulated GPU and model their time (default), or only compile.",
)
@click.option(
    "--likely",
    is_flag=True,
    help="Compile only the source files most likely affected. Takes seconds; may miss kernels.",
)
@click.option("--watch", is_flag=True, help="Repeat after each change to the series, until Ctrl-C.")
def command(
    settings: Settings, given: ApplyOptions, *, against: Against, run: bool, likely: bool, watch: bool
) -> int:
    """Show what your edit of a patch, template or GPU profile does to the compiled kernels.

    For each kernel whose code changed, prints registers, spills and waves. Then checks the affected
    operations on the emulated GPU, and predicts the time of the shapes that the patches name (modelled, not
    measured).

    Records nothing and moves no branch. To keep the change, continue with patchkit lock, apply and verify.
    The first run builds llama.cpp's test programs, which takes minutes; later runs rebuild only what changed.
    With --onto, works on a commit of your own clone, which is only read.
    """
    if watch and settings.json:
        raise UsageError("--watch cannot be combined with --json", code="USAGE_SYNTAX")
    workspace = settings.workspace()
    onto = given.clone()
    request = replace(given.request(workspace), unlocked=True)
    on_kernels = _kernel_printer(workspace)
    again = partial(
        run_try,
        workspace,
        request,
        onto=onto,
        against=against,
        run=run,
        environ=os.environ,
        likely=likely,
        on_kernels=on_kernels,
    )
    if watch:
        _watch(settings, workspace, again, run=run)
    done = again()
    settings.show(done, list(_lines(done, run=run)))
    return ExitCode.GATE_FAILED if done.failed else ExitCode.OK


def _watch(settings: Settings, workspace: Workspace, again: Callable[[], Tried], *, run: bool) -> None:
    """Repeat until Ctrl-C. Errors are printed, and the next change starts another run."""
    series = workspace.series
    folders = (series.patches, series.templates, series.profiles)
    seen = None
    while True:
        state = series_state(folders)
        if state == seen:
            time.sleep(_POLL_S)
            continue
        time.sleep(_POLL_S)
        if series_state(folders) != state:  # an editor is still writing
            continue
        seen = state
        try:
            settings.terminal.data("\n".join(_lines(again(), run=run)))
        except PatchkitError as error:
            settings.terminal.write_error(error)
        workspace.reporter.info(f"waiting for a change in {series.patches.parent} (Ctrl-C to stop)")


def _kernel_printer(workspace: Workspace) -> Callable[[Sequence[KernelRow]], None]:
    """Return a callback that prints the changed kernels of a source file while others still compile."""

    def show(rows: Sequence[KernelRow]) -> None:
        for line in _kernels(tuple(rows), f"{rows[0].unit.rpartition('/')[2]}: "):
            workspace.reporter.info(line)

    return show


def _lines(done: Tried, *, run: bool) -> Iterator[str]:
    patches = ", ".join(done.patches) or "no patch"
    yield f"{patches} on {done.commit or build_name(done.build)}, against {done.before} ({done.seconds:g} s)"
    if done.tree == done.before_tree:
        yield "nothing changed: the trees are the same"
        return
    looked = done.units - done.skipped
    if not done.kernels:
        yield f"no kernel changed in {counted(looked, 'source file')}; only host code did, or nothing at all"
    yield from _kernels(done.kernels)
    for gate in done.checked:
        yield f"{gate.gate}: {gate.verdict}: {gate.summary}"
        yield from (f"  {problem.message}" for problem in gate.problems)
    if done.shapes:
        yield "modelled time in microseconds, before -> now:"
    for one in done.shapes:
        times = " -> ".join("-" if us is None else f"{us:.1f}" for us in (one.before_us, one.now_us))
        change = "" if one.change is None else f"  {100 * one.change:+.1f} %"
        yield f"  {one.arch}  {one.shape}: {times}{change}"
    if done.skipped:
        more = counted(done.skipped, "source file")
        yield f"not compiled: {more} that may also be affected (omit --likely to include them)"
    if not run:
        yield "not run on the emulated GPU, and not modelled (omit --no-run for both)"


def _kernels(rows: tuple[KernelRow, ...], of: str = "") -> Iterator[str]:
    if not rows:
        return
    yield f"{of}{counted(len(rows), 'kernel')} changed, before -> now (from the compiler):"
    head = ("VGPRs", "spilled", "waves", "LDS", "kernel")
    cells = [head, *(_cells(row) for row in rows[:_SHOWN])]
    right = [title != "kernel" for title in head]
    yield from (f"  {line}" for line in align_columns(cells, right))
    if len(rows) > _SHOWN:
        yield f"  {len(rows) - _SHOWN} more (--json lists all)"


def _cells(row: KernelRow) -> tuple[str, ...]:
    def change(name: str) -> str:
        sides = [None if one is None else int(getattr(one, name)) for one in (row.was, row.now)]
        if sides[0] == sides[1]:
            return str(sides[0])
        return " -> ".join("-" if one is None else str(one) for one in sides)

    return (
        *(change(name) for name in ("vgprs", "vgpr_spills", "waves", "lds_bytes")),
        f"{row.variant} ({row.arch})",
    )
