"""``patchkit plan``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from patchkit.base.errors import ErrorGroup
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import SeriesDir, arch_options, format_archs
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import Plan, PlannedPatch, make_plan
from patchkit.carry.candidate.target import with_target
from patchkit.carry.onto.pin import Onto
from patchkit.carry.onto.plan import OntoPlan, plan_onto
from patchkit.carry.placing.resolve import WHOLE_FILE
from patchkit.carry.series.fault import refused_faults
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.selection import LEFT_OUT
from patchkit.carry.upstream.cache import open_cache
from patchkit.cli.error_text import error_as_json, exit_code_of
from patchkit.cli.onto_text import draw_classes
from patchkit.cli.request import ApplyOptions, request_options
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import Settings, verb


@verb(
    "plan",
    example=(
        "patchkit plan --arch gfx1151",
        "patchkit plan --arch gfx1151 --only wmma-tile-params",
        "patchkit plan --arch gfx1151 --onto HEAD --repo ~/llama.cpp",
    ),
)
@request_options
@click.option("--show-text", is_flag=True, help="Also print the selector and the new text of each edit.")
def command(settings: Settings, given: ApplyOptions, *, show_text: bool) -> int:
    """Show what apply would do: every patch, its edits, and the line where each edit goes.

    Changes nothing. All errors are reported, not only the first. --upstream may also name a build that is not
    in the lock file yet; this shows which patches would keep bump from moving there.
    """
    onto = given.clone()
    workspace = settings.workspace()
    request = given.request(workspace)
    found: OntoPlan | None = None
    where: dict[str, object] = {}
    if onto is None:
        plan = make_plan(with_target(request, workspace), workspace)
        plan.decision.warn_of_faults(workspace.reporter)
    else:
        cache = open_cache(workspace.cache_root)
        found = plan_onto(request, onto, workspace, cache, drop_conflicts=given.drop_conflicts)
        plan = found.plan
        where = {"onto": found, "classes": found.verdicts}
    problems = ErrorGroup("some patches cannot be applied", plan.errors)
    errors = error_as_json(problems) if plan.errors else {}

    def draw(screen: Screen) -> None:
        screen.prose(f"{plan.pin.title_with_id} for {format_archs(plan.archs)}", role="heading")
        if found is not None:
            screen.prose(
                f"{found.project}, as in llama.cpp {found.build}, by {found.build.known_by}", indent=2
            )
            draw_classes(screen, found, verbose=settings.verbose)
        _draw(screen, plan, request.accept_faults, show_text=show_text)
        _draw_next(screen, plan, request, onto, workspace.series)

    settings.show_screen({**fields_of(plan), **where, **errors}, draw)
    if not plan.errors:
        return 0
    settings.terminal.write_error(problems)
    return exit_code_of(problems)


def _draw(screen: Screen, plan: Plan, accepted: tuple[str, ...], *, show_text: bool) -> None:
    for found in () if plan.decision.is_plain else refused_faults(plan.faults, accepted):
        screen.prose(f"apply would stop here: {found.sentence()}", role="bad")
    applied = [patch for patch in plan.patches if patch.state == "apply"]
    failed = [patch for patch in plan.patches if patch.state not in ("apply", "skipped")]
    for patch in applied:
        screen.heading(f"{patch.id}: {patch.selected.patch.title}")
        for line in _edits(patch, show_text=show_text):
            screen.code(line)
    for patch in failed:
        screen.heading(f"{patch.id}: {patch.selected.patch.title}")
        screen.prose(f"{patch.state}{': ' if patch.reason else ''}{patch.reason}", indent=2, role="bad")
    skipped = [patch for patch in plan.patches if patch.state == "skipped" and patch.reason != LEFT_OUT]
    if skipped:
        screen.heading("Skipped")
        rows: list[tuple[Cell, Cell]] = [((patch.id, "muted"), patch.reason) for patch in skipped]
        screen.table(rows)
    excluded = [patch.id for patch in plan.patches if patch.reason == LEFT_OUT]
    if excluded:
        screen.heading("Excluded on request")
        screen.prose(", ".join(excluded), indent=2)


def _draw_next(screen: Screen, plan: Plan, request: Request, onto: Onto | None, series: SeriesDir) -> None:
    """Add the command that makes what was planned, unless it would be rejected."""
    if not plan.ids or (not plan.decision.is_plain and refused_faults(plan.faults, request.accept_faults)):
        return
    lock = load_lock(series.lock)
    if onto is None and all(pin.name != plan.pin.name for pin in lock.pins):
        screen.heading("Next: move the series to this build")
        screen.code(shlex.join(["patchkit", "bump", "--to", plan.pin.name]))
        return
    words = ["patchkit", "apply", *arch_options(plan.archs, series.profiles)]
    if onto is not None:
        words += ["--onto", onto.revision, "--repo", str(onto.directory)]
        words += ["--as-build", str(onto.as_build)] if onto.as_build is not None else []
    elif plan.pin.name != lock.default:
        words += ["--upstream", plan.pin.name]
    words += [word for name in request.accept_faults for word in ("--accept-fault", name)]
    screen.heading("Next: create this branch")
    screen.code(shlex.join(words) + request.options)


def _edits(patch: PlannedPatch, *, show_text: bool) -> Iterator[str]:
    if patch.selected.patch.is_plain:
        yield "for every backend"
    else:
        yield f"active on {', '.join(patch.targets)}; other GPUs run upstream's code"
    for edit in patch.edits:
        is_in_function = edit.entity != WHOLE_FILE
        yield f"{edit.id}: {edit.verb} ({edit.side}) in {edit.entity if is_in_function else edit.file}"
        for place in edit.locations:
            has_line = place.line is not None or is_in_function
            yield f"  {place}" if has_line else "  after the #includes at the top"
        if show_text:
            by = f"selected by {edit.at}" if edit.at is not None else "written"
            yield f"  {by} in {edit.where}"
            if edit.parameters is not None:
                yield f"  of several functions of that name, the one with the parameters {edit.parameters}"
            yield from (f"  | {row}".rstrip() for row in edit.text.strip("\n").splitlines())
    yield from patch.format_files
