"""``patchkit plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from patchkit.base.errors import ErrorGroup
from patchkit.cli.complaint import complain, error_as_json, exit_code_of
from patchkit.cli.request import (
    RequestOptions,
    make_request,
    request_options,
    requested_onto,
    unlocked_option,
)
from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.candidate.plan import PlannedPatch


@verb(
    "plan",
    example=(
        "patchkit plan --arch gfx1151",
        "patchkit plan --arch gfx1151 --only tile-config-guard",
        "patchkit plan --arch gfx1151 --onto HEAD --repo ~/llama.cpp",
    ),
)
@request_options
@unlocked_option
@click.option("--show-text", is_flag=True, help="Also print the text each edit renders to.")
def command(settings: Settings, *, show_text: bool, **options: Unpack[RequestOptions]) -> int:
    """Show what apply would do: each patch, each edit, and the place it resolves to.

    Reads only. Every place that would fail is reported, not only the first.
    """
    from patchkit.candidate.plan import make_plan

    onto = requested_onto(options)
    workspace = settings.workspace()
    request = make_request(workspace, options)
    classes: list[str] = []
    if onto is None:
        plan = make_plan(request, workspace)
        document = plan.as_json()
    else:
        from patchkit.bump.onto.plan import plan_onto
        from patchkit.cli.onto_text import class_lines
        from patchkit.upstream.cache import open_cache

        cache = open_cache(workspace.cache_root)
        found = plan_onto(request, onto, workspace, cache, drop_conflicts=options["drop_conflicts"])
        plan, document, classes = found.plan, found.as_json(), class_lines(found, verbose=settings.verbose)
    terminal = settings.terminal
    problems = ErrorGroup("the plan does not hold", plan.errors)
    if settings.json:
        errors = error_as_json(problems) if plan.errors else {}
        terminal.document({**document, **errors})
    else:
        name = (plan.pin.commit or plan.pin.tree)[:12]
        head = f"{plan.pin.name} ({name}) for {' '.join(plan.archs)}"
        terminal.data(
            "\n".join(
                [head, *classes, *(line for patch in plan.patches for line in _patch(patch, show_text))]
            )
        )
    if not plan.errors:
        return 0
    terminal.talk(complain(problems, terminal.paint))
    return exit_code_of(problems)


def _patch(patch: PlannedPatch, show_text: bool) -> list[str]:  # noqa: FBT001 - private, one caller
    lines = ["", f"{patch.id}: {patch.selected.patch.title}"]
    if patch.state != "apply":
        return [*lines, f"  {patch.state}{': ' if patch.reason else ''}{patch.reason}"]
    lines.append(f"  live on {', '.join(patch.targets)}; elsewhere upstream's code")
    for edit in patch.edits:
        lines.append(f"  {edit.id}: {edit.verb} ({edit.side}) in {edit.entity or edit.file}")
        lines += [f"    {place}" for place in edit.locations]
        if show_text:
            lines += [f"    | {row}".rstrip() for row in edit.text.strip("\n").splitlines()]
    lines += [f"  new file {path}" for path in patch.new_files]
    return lines
