"""``patchkit plan``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from patchkit.base.errors import ErrorGroup
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import format_archs
from patchkit.carry.candidate.plan import Plan, PlannedPatch, make_plan
from patchkit.carry.candidate.target import with_target
from patchkit.carry.onto.plan import plan_onto
from patchkit.carry.series.fault import refused_faults
from patchkit.carry.series.selection import LEFT_OUT
from patchkit.carry.upstream.cache import open_cache
from patchkit.cli.complaint import error_as_json, exit_code_of
from patchkit.cli.onto_text import class_lines
from patchkit.cli.request import ApplyOptions, request_options
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
def command(settings: Settings, asked: ApplyOptions, *, show_text: bool) -> int:
    """Show what apply would do: every patch, its edits, and the line where each edit goes.

    Changes nothing. All errors are reported, not only the first. --upstream may also name a build that is not
    in the lock file yet; this shows which patches would keep bump from moving there.
    """
    onto = asked.clone()
    workspace = settings.workspace()
    request = asked.request(workspace)
    classes: list[str] = []
    where: dict[str, object] = {}
    if onto is None:
        plan = make_plan(with_target(request, workspace), workspace)
        plan.decision.warn_of_faults(workspace.reporter)
    else:
        cache = open_cache(workspace.cache_root)
        found = plan_onto(request, onto, workspace, cache, drop_conflicts=asked.drop_conflicts)
        plan, classes = found.plan, class_lines(found, verbose=settings.verbose)
        where = {"onto": found, "classes": found.verdicts}
    problems = ErrorGroup("some patches cannot be applied", plan.errors)
    errors = error_as_json(problems) if plan.errors else {}
    settings.show(
        {**fields_of(plan), **where, **errors},
        _lines(plan, classes, request.accept_faults, show_text=show_text),
    )
    if not plan.errors:
        return 0
    settings.terminal.complain(problems)
    return exit_code_of(problems)


def _lines(plan: Plan, classes: list[str], accepted: tuple[str, ...], *, show_text: bool) -> Iterator[str]:
    yield f"{plan.pin.title_with_id} for {format_archs(plan.archs)}"
    yield from classes
    for found in () if plan.decision.is_plain else refused_faults(plan.faults, accepted):
        yield f"apply refuses this: {found.sentence()}"
    left_out = [patch.id for patch in plan.patches if patch.reason == LEFT_OUT]
    for patch in plan.patches:
        if patch.id in left_out:
            continue
        yield ""
        yield f"{patch.id}: {patch.selected.patch.title}"
        if patch.state != "apply":
            yield f"  {patch.state}{': ' if patch.reason else ''}{patch.reason}"
        else:
            yield from _edits(patch, show_text=show_text)
    if left_out:
        yield ""
        yield f"{LEFT_OUT}: {', '.join(left_out)}"


def _edits(patch: PlannedPatch, *, show_text: bool) -> Iterator[str]:
    whom = "for every build"
    if not patch.selected.patch.is_plain:
        whom = f"live on {', '.join(patch.targets)}; elsewhere upstream's code"
    yield f"  {whom}"
    for edit in patch.edits:
        yield f"  {edit.id}: {edit.verb} ({edit.side}) in {edit.entity or edit.file}"
        yield from (f"    {place}" for place in edit.locations)
        if show_text:
            by = f"by {edit.at}" if edit.at is not None else "said"
            yield f"    {by} in {edit.where}"
            if edit.parameters is not None:
                yield f"    of its twins the one with the parameters {edit.parameters}"
            yield from (f"    | {row}".rstrip() for row in edit.text.strip("\n").splitlines())
    yield from (f"  {line}" for line in patch.format_files)
