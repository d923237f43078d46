"""``patchkit import``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.cli.completing import files, patches, pins
from patchkit.cli.new_patch import make_wanted, told_lines, wanted_values
from patchkit.cli.request import build_number
from patchkit.cli.settings import FOLDER, TEXT, Settings, options, verb

_SOURCE = options(
    click.argument("source", type=TEXT, required=False, metavar="FILE|REV..REV", shell_complete=files),
    click.option("--pr", "pull", type=click.IntRange(min=1), metavar="N", help="A pull request of --url."),
    click.option("--url", type=TEXT, metavar="REMOTE", help="The git remote that has refs/pull/N/head."),
    click.option(
        "--repo", type=FOLDER, metavar="DIR", help="The clone with the commits (default: the one you are in)."
    ),
    click.option(
        "--upstream",
        type=TEXT,
        metavar="PIN",
        shell_complete=pins,
        help="The pin of the lock that a diff is made for.",
    ),
    click.option(
        "--as-build",
        type=TEXT,
        callback=build_number,
        metavar="N",
        help="The upstream build or release below the commits, where no tag tells.",
    ),
)


@verb(
    "import",
    example=(
        "patchkit import my-change.patch --guard gfx1151",
        "patchkit import master..my-branch --repo ~/llama.cpp --guard none",
        "patchkit import --pr 28613 --url https://github.com/ggml-org/llama.cpp --guard rdna3_5",
        "patchkit import --update my-pull-request",
    ),
)
@_SOURCE
@wanted_values
@click.option("--id", "name", type=TEXT, metavar="ID", help="The patch's id (default: made of its title).")
@click.option(
    "--update",
    type=TEXT,
    metavar="ID",
    shell_complete=patches,
    help="Bring a patch to the newest head of its pull request.",
)
@click.option("--force", is_flag=True, help="With --update: write over edits that were changed by hand.")
def command(
    settings: Settings,
    wanted: dict[str, Any],
    name: str | None,
    update: str | None,
    *,
    force: bool,
    **given: Any,
) -> None:
    """Make a structural patch of a diff, of commits or of a pull request, and put it into the series.

    Each change becomes an edit that names its function and the tokens around it; what tokens do not reach
    stays a hunk of text, for exactly that version of its function. New files become templates. Author,
    message and links stay. The result is compared with what the diff makes of its upstream, and placed on
    the newest pin that is cached. When anything is refused, the series is as it was.

    --update makes the edits and files of a patch anew from the newest head of its pull request, and shows
    what changed there. All else that its patch.toml says stays, and so do the numbers from profiles.
    """
    if update is not None:
        _update(settings, update, force=force, others={**given, **wanted, "id": name})
        return
    if force:
        raise UsageError("--force goes with --update", code="USAGE_VALUE", hint="leave it out")
    from patchkit.carry.authoring.run import ImportRequest, run_import

    workspace = settings.workspace()
    request = ImportRequest(wanted=make_wanted(wanted, workspace, name), **given)
    done = run_import(request, workspace)
    settings.show(done.as_json(), told_lines(done))


def _update(settings: Settings, name: str, *, force: bool, others: dict[str, Any]) -> None:
    given = [option for option, value in others.items() if value]
    if given:
        raise UsageError(
            f"--update takes everything from the patch '{name}'",
            code="IMPORT_UPDATE_ALONE",
            why=f"given as well: {', '.join(given)}",
            hint=f"patchkit import --update {shlex.quote(name)}",
        )
    from patchkit.carry.authoring.update import run_update

    done = run_update(name, settings.workspace(), force=force)
    lines = [*done.lines(), *(told_lines(done.imported, is_known=True) if done.imported is not None else ())]
    settings.show(done.as_json(), lines)
