"""Options of a new patch, and the text that describes one; shared by ``import`` and ``new``."""

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
            raise click.BadParameter(
                f"expected NUMBER=NAME, for example 256=mmq.q6k_columns, got '{value}'", ctx, param
            )
        found.append((number, name))
    return tuple(found)


def _macro(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is None:
            raise click.BadParameter(f"'{value}' is not a macro name", ctx, param)
    return values


_guard = click.option(
    "--guard",
    "--arch",
    "guard",
    type=TEXT,
    metavar="GPUS",
    shell_complete=gpus,
    help="Which GPUs the patch is for: a GPU (gfx1151), a family (rdna3_5), or 'none' for every backend. Not "
    "needed in a plain series.",
)
_MORE = (
    click.option(
        "--macro",
        "macros",
        multiple=True,
        callback=_macro,
        metavar="NAME",
        help="Macro that must be defined for this code to be compiled, for example GGML_HIP_ROCWMMA_FATTN. "
        "May be repeated.",
    ),
    click.option("--title", type=TEXT, metavar="TEXT", help="Title of the patch, one line."),
    click.option(
        "--lift",
        "lifts",
        multiple=True,
        callback=_lift,
        metavar="NUMBER=NAME",
        help="Replace this number by a value from the GPU profiles, under NAME. May be repeated.",
    ),
)
# A dict of the values by name; ``import --update`` checks which of them were given.
wanted_values = packed("wanted", dict, _guard, *_MORE)
# ``import`` may take several guards, each for the paths that match a pattern.
guard_options = click.option(
    "--guard",
    "--arch",
    "guards",
    type=TEXT,
    multiple=True,
    metavar="[PATTERN=]GPUS",
    shell_complete=gpus,
    help="Which GPUs the patches are for: a GPU (gfx1151), a family (rdna3_5), or 'none' for every backend. "
    "With a pattern, for changes to matching paths only; may be repeated.",
)
more_values = packed("wanted", dict, *_MORE)


def make_wanted(given: dict[str, Any], workspace: Workspace, name: str | None = None) -> PatchOptions:
    """Make the request from the option values; a plain series needs no guard.

    Raises click.MissingParameter.
    """
    (guard,) = require_guards((given["guard"],) if given["guard"] else (), workspace)
    return PatchOptions(**{**given, "guard": guard}, id=name)


def require_guards(given: tuple[str, ...], workspace: Workspace) -> tuple[str, ...]:
    """Return the guards, ``none`` by default in a plain series; else raise click.MissingParameter."""
    if given or is_plain(workspace.series.profiles):
        return given or ("none",)
    raise click.MissingParameter(param_hint="'--guard'", param_type="option")


def _place(edit: NewEdit) -> str:
    """Describe the place of an edit by the name it is in or next to."""
    name = named_place(edit.selector, edit.function)
    return f"at {name}" if name is not None else "in the file"


def describe_written(done: Written, *, is_known: bool = False) -> Iterator[str]:
    """Describe the patch, the place of each edit, the checks and the next step; ``is_known``: an update."""
    patch = done.patch
    offered = "for" if is_known else "optional (opt-in) for"
    whom = "for every backend" if patch.archs is None else f"{offered} {' '.join(patch.archs)}"
    yield f"{done.folder}: {whom}"
    for edit in patch.body.edits:
        yield f"  {edit.id}: {_place(edit)}, {done.places[edit.id]}{f' ({edit.side})' if edit.side else ''}"
        if edit.id in done.hunks:
            yield f"    placed by its lines of text, not by code structure: {done.hunks[edit.id]}"
    yield from (f"  new file {path}" for path in patch.body.files)
    yield from (f"  {line}" for line in patch.body.whole.describe())
    yield from (f"  {hunk}" for hunk in done.change.moved)
    yield from (f"  requires {name}: {why}" for name, why in done.requires)
    yield f"on {done.change.name}: same result as the original change ({done.same})"
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
        yield "       patchkit lock --all  # because a GPU profile changed; no recorded result does"
    if not is_known:
        yield "       describe its purpose in patch.toml before verify --publish"
