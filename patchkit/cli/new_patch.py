"""What ``import`` and ``new`` have in common: for whom the patch is, and how it is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click

from patchkit.base.series_folder import PLAIN, is_plain
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.lifting.draft import named_place
from patchkit.carry.lifting.pipeline import PatchOptions, Written
from patchkit.carry.lifting.write import NewEdit
from patchkit.cli.completing import gpus
from patchkit.cli.settings import TEXT, packed


def _lift(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        number, _, name = value.partition("=")
        if re.fullmatch(r"\d+(\.\d+)?", number) is None or not name:
            raise click.BadParameter(f"'{value}' is not NUMBER=NAME, as 256=mmq.q6k_columns", ctx, param)
        found.append((number, name))
    return tuple(found)


def _macro(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is None:
            raise click.BadParameter(f"'{value}' is no name of a macro", ctx, param)
    return values


_guard = click.option(
    "--guard",
    "--arch",
    "guard",
    type=TEXT,
    metavar="GPUS",
    shell_complete=gpus,
    help="For which GPUs: one as gfx1151, a family as rdna3_5, or none, for every build; a plain series has "
    "none.",
)
_MORE = (
    click.option(
        "--macro",
        "macros",
        multiple=True,
        callback=_macro,
        metavar="NAME",
        help="A macro without which the code is not compiled, as GGML_HIP_ROCWMMA_FATTN.",
    ),
    click.option("--title", type=TEXT, metavar="TEXT", help="The patch's title, one line."),
    click.option(
        "--lift",
        "lifts",
        multiple=True,
        callback=_lift,
        metavar="NUMBER=NAME",
        help="A number that the profiles of these GPUs have under that name.",
    ),
)
# The values by name: ``import`` does not ask where the patch is there already.
wanted_values = packed("wanted", dict, _guard, *_MORE)
# Those of ``import``, whose changes may be for several.
guard_options = click.option(
    "--guard",
    "--arch",
    "guards",
    type=TEXT,
    multiple=True,
    metavar="[PATTERN=]GPUS",
    shell_complete=gpus,
    help="For which GPUs: one as gfx1151, a family as rdna3_5, or none, for every build; of the paths that "
    "fit a pattern, or of all.",
)
more_values = packed("wanted", dict, *_MORE)


def make_wanted(given: dict[str, Any], workspace: Workspace, name: str | None = None) -> PatchOptions:
    """The patch that the values ask for; in a plain series it needs no guard.

    Raises click.MissingParameter.
    """
    (guard,) = asked_guards((given["guard"],) if given["guard"] else (), workspace)
    return PatchOptions(**{**given, "guard": guard}, id=name)


def asked_guards(given: tuple[str, ...], workspace: Workspace) -> tuple[str, ...]:
    """The guards that were asked for; in a plain series none is needed. Raises click.MissingParameter."""
    if given or is_plain(workspace.series.profiles):
        return given or ("none",)
    raise click.MissingParameter(param_hint="'--guard'", param_type="option")


def _place(edit: NewEdit) -> str:
    """What an edit is in, or beside, by its name."""
    name = named_place(edit.selector, edit.function)
    return f"at {name}" if name is not None else "in the file"


def describe_written(done: Written, *, is_known: bool = False) -> Iterator[str]:
    """The patch, where each edit goes, what was proven, and what is next; ``is_known``: it is not new."""
    patch = done.patch
    offered = "for" if is_known else "opt-in for"
    whom = "for every build" if patch.archs is None else f"{offered} {' '.join(patch.archs)}"
    yield f"{done.folder}: {whom}"
    for edit in patch.body.edits:
        yield f"  {edit.id}: {_place(edit)}, {done.places[edit.id]}{f' ({edit.side})' if edit.side else ''}"
        if edit.id in done.hunks:
            yield f"    a hunk of text: {done.hunks[edit.id]}"
    yield from (f"  new file {path}" for path in patch.body.files)
    yield from (f"  {line}" for line in patch.body.whole.describe())
    yield from (f"  {hunk}" for hunk in done.change.moved)
    yield f"on {done.change.name}: as it was written, {done.same}"
    if done.change.because:
        yield f"  {done.change.name}: {done.change.because}"
    yield f"on {done.newest.summary}"
    yield from (f"  {error.code}: {error.message}" for error in done.newest.errors)
    whom_for = patch.archs or (() if is_plain(done.folder.parents[1] / "arch_profiles") else (PLAIN,))
    archs = [word for arch in whom_for for word in ("--arch", arch)]
    words = [
        *archs,
        "--upstream",
        build_name(patch.first_build),
        *(["--with", patch.id] if patch.archs else []),
    ]
    yield f"next:  {shlex.join(['patchkit', 'plan', *words])}"
    if patch.archs:
        yield "       patchkit lock --all  # the profile is another one now, no result is"
    if not is_known:
        yield "       its patch.toml does not say yet what it is good for; lock and publish ask for that"
