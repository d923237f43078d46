"""``patchkit import``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.new_patch import told_lines, wanted_options
from patchkit.cli.request import build_number
from patchkit.cli.settings import FOLDER, TEXT, Settings, options, verb

if TYPE_CHECKING:
    from patchkit.authoring.run import Wanted

_SOURCE = options(
    click.argument("source", type=TEXT, required=False, metavar="FILE|REV..REV"),
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
)


@verb(
    "import",
    example=(
        "patchkit import my-change.patch --guard gfx1151",
        "patchkit import master..my-branch --repo ~/llama.cpp --guard none",
        "patchkit import --pr 28613 --url https://github.com/ggml-org/llama.cpp --guard rdna3_5",
    ),
)
@_SOURCE
@wanted_options
@click.option("--id", "name", type=TEXT, metavar="ID", help="The patch's id (default: made of its title).")
def command(settings: Settings, wanted: Wanted, name: str | None, **given: Any) -> None:
    """Make a structural patch of a diff, of commits or of a pull request, and put it into the series.

    Each change becomes an edit that names its function and the tokens around it; what tokens do not reach
    stays a hunk of text, for exactly that version of its function. New files become templates. Author,
    message and links stay. The result is compared with what the diff makes of its upstream, and placed on
    the newest pin that is cached. When anything is refused, the series is as it was.
    """
    from dataclasses import replace

    from patchkit.authoring.run import ImportRequest, run_import

    done = run_import(ImportRequest(wanted=replace(wanted, id=name), **given), settings.workspace())
    settings.show(done.as_json(), told_lines(done))
