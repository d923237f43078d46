"""``patchkit plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from patchkit.cli.request import RequestOptions, make_request, request_options
from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.flow.plan import PlannedPatch

__all__ = ["command"]


@verb(
    "plan", example=("patchkit plan --arch gfx1151", "patchkit plan --arch gfx1151 --only tile-config-guard")
)
@request_options
def command(settings: Settings, **options: Unpack[RequestOptions]) -> None:
    """Show what apply would do: each patch, each edit, and the place it resolves to.

    Reads only. Every place that would fail is reported, not only the first.
    """
    from patchkit.errors import ErrorGroup
    from patchkit.flow.plan import make_plan

    workspace = settings.workspace()
    plan = make_plan(make_request(workspace, options), workspace)
    if plan.errors and settings.json:
        raise ErrorGroup("the plan does not hold", plan.errors)
    if settings.json:
        settings.terminal.document(plan.as_json())
        return
    head = f"{plan.pin.name} ({(plan.pin.commit or plan.pin.tree)[:12]}) for {' '.join(plan.archs)}"
    settings.terminal.data("\n".join([head, *(line for patch in plan.patches for line in _patch(patch))]))
    if plan.errors:
        raise ErrorGroup("the plan does not hold", plan.errors)


def _patch(patch: PlannedPatch) -> list[str]:
    lines = ["", f"{patch.id}: {patch.title}"]
    if patch.state != "apply":
        return [*lines, f"  {patch.state}: {patch.reason}"]
    for edit in patch.edits:
        lines.append(f"  {edit.id}: {edit.verb} ({edit.side}) in {edit.entity or edit.file}")
        lines += [f"    {place}" for place in edit.locations]
    return lines
