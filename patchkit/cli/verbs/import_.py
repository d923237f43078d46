"""``patchkit import``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.request import build_number
from patchkit.cli.settings import FOLDER, TEXT, Settings, packed, verb

if TYPE_CHECKING:
    from patchkit.authoring.run import Imported, ImportRequest


def _lift(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        number, _, name = value.partition("=")
        if re.fullmatch(r"\d+(\.\d+)?", number) is None or not name:
            raise click.BadParameter(f"'{value}' is not NUMBER=NAME, as 256=mmq.q6k_columns", ctx, param)
        found.append((number, name))
    return tuple(found)


def _make_request(**given: Any) -> ImportRequest:
    from patchkit.authoring.run import ImportRequest

    return ImportRequest(**given)


_options = packed(
    "request",
    _make_request,
    click.option("--pr", "pull", type=click.IntRange(min=1), metavar="N", help="A pull request of --url."),
    click.option("--url", type=TEXT, metavar="REMOTE", help="The git remote that has refs/pull/N/head."),
    click.option(
        "--repo", type=FOLDER, metavar="DIR", help="The clone with the commits (default: the one you are in)."
    ),
    click.option("--upstream", type=TEXT, metavar="PIN", help="The pin of the lock that a diff is made for."),
    click.option(
        "--as-build",
        type=TEXT,
        callback=build_number,
        metavar="N",
        help="The upstream build below the commits, where no tag tells.",
    ),
    click.option(
        "--guard",
        type=TEXT,
        required=True,
        metavar="GPUS",
        help="For which GPUs: one as gfx1151, a family as rdna3_5, or none, for every build.",
    ),
    click.option("--id", type=TEXT, metavar="ID", help="The patch's id (default: made of its title)."),
    click.option("--title", type=TEXT, metavar="TEXT", help="Its title (default: the commit's subject)."),
    click.option(
        "--lift",
        "lifts",
        multiple=True,
        callback=_lift,
        metavar="NUMBER=NAME",
        help="A number that the profiles of these GPUs have under that name.",
    ),
)


@verb(
    "import",
    example=(
        "patchkit import my-change.patch --guard gfx1151",
        "patchkit import master..my-branch --repo ~/llama.cpp --guard none",
        "patchkit import --pr 28613 --url https://github.com/ggml-org/llama.cpp --guard rdna3_5",
    ),
)
@click.argument("source", type=TEXT, required=False, metavar="FILE|REV..REV")
@_options
def command(settings: Settings, source: str | None, request: ImportRequest) -> None:
    """Make a structural patch of a diff, of commits or of a pull request, and put it into the series.

    Each change becomes an edit that names its function and the tokens around it; what tokens do not reach
    stays a hunk of text, for exactly that version of its function. New files become templates. Author,
    message and links stay. The result is compared with what the diff makes of its upstream, and placed on
    the newest pin that is cached. When anything is refused, the series is as it was.
    """
    from dataclasses import replace

    from patchkit.authoring.run import run_import

    done = run_import(replace(request, source=source), settings.workspace())
    settings.show(done.as_json(), _lines(done))


def _lines(done: Imported) -> Iterator[str]:
    patch = done.patch
    whom = "for every build" if patch.archs is None else f"opt-in for {' '.join(patch.archs)}"
    yield f"{done.folder}: {whom}"
    for edit in patch.edits:
        where = f"in {edit.function}" if edit.function else "in the file"
        yield f"  {edit.id}: {where}, {done.places[edit.id]}{f' ({edit.side})' if edit.side else ''}"
        if edit.id in done.hunks:
            yield f"    stays a hunk of text: {done.hunks[edit.id]}"
    yield from (f"  new file {path}" for path in patch.files)
    yield f"on {done.source}: as the diff, {done.proof.same}"
    yield f"on {done.proof.newest}"
    yield from (f"  {error.code}: {error.message}" for error in done.proof.newest_errors)
    archs = [word for arch in patch.archs or ("gfx1151",) for word in ("--arch", arch)]
    words = [*archs, *(["--with", patch.id] if patch.archs else [])]
    yield f"next:  {shlex.join(['patchkit', 'plan', *words])}"
    yield "       its patch.toml does not say yet what it is good for; lock and publish ask for that"
