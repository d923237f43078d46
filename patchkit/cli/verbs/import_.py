"""``patchkit import``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.series_folder import is_plain
from patchkit.base.workspace import Workspace
from patchkit.carry.importing.queue import QueueReport, QueueRequest, import_changes
from patchkit.carry.importing.update import run_update
from patchkit.carry.lifting.pipeline import PatchOptions
from patchkit.carry.series.catalogue import load_series
from patchkit.cli.completing import files, patches, pins
from patchkit.cli.new_patch import asked_guards, describe_written, guard_options, more_values
from patchkit.cli.queue_text import queue_lines
from patchkit.cli.request import build_number
from patchkit.cli.settings import FOLDER, TEXT, Settings, options, verb

_SOURCE = options(
    click.argument("sources", type=TEXT, nargs=-1, metavar="[FILE|FOLDER|REV..REV]...", shell_complete=files),
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
        help="The pin that a diff is placed on (default: that of the series).",
    ),
    click.option(
        "-p",
        "strip",
        type=click.IntRange(0, 99),
        metavar="N",
        help="Folders to take off the paths of a diff, as patch -p does (default: 1, the a/ and b/).",
    ),
    click.option(
        "--prefix",
        type=TEXT,
        metavar="DIR",
        help="The folder of llama.cpp in the paths of a diff, as vendor/llama.cpp; other files are left out.",
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
        "patchkit import ~/my-queue/patches --guard none --dry-run",
        "patchkit import --pr 28613 --url https://github.com/ggml-org/llama.cpp --guard rdna3_5",
        "patchkit import --update my-pull-request",
    ),
)
@_SOURCE
@guard_options
@more_values
@click.option("--squash", is_flag=True, help="Make one patch of all changes of a queue.")
@click.option("--dry-run", is_flag=True, help="Show what would become of it, and write nothing.")
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
) -> ExitCode:
    """Make structural patches of a diff, a queue, commits or a pull request, and put them into the series.

    Each change becomes an edit, as small as the change: in its function or struct, by the lines that it
    replaces or stands beside; behind a guard by tokens. New files become templates. Author, message and
    links stay. The result is compared with what the diff makes of its upstream, and placed on the newest pin
    that is cached. When anything is refused, the series is as it was.

    A queue is a folder of patch files (its series file says which), a quilt series, an mbox, several files,
    or REV..REV: a patch each, in order, with what each requires of those before it. What is refused leaves
    the rest standing, and the exit code is 9; the table at the end says why.

    --update makes the edits and files of a patch anew from the newest head of its pull request, and shows
    what changed there. All else that its patch.toml says stays, and so do the numbers from profiles.
    """
    if update is not None:
        _update(settings, update, force=force, others={**given, **wanted, "id": name})
        return ExitCode.OK
    if force:
        raise UsageError("--force goes with --update", code="USAGE_VALUE", hint="leave it out")
    workspace = settings.workspace()
    given["guards"] = asked_guards(given["guards"], workspace)
    request = QueueRequest(wanted=PatchOptions(guard=given["guards"][0], **wanted, id=name), **given)
    done = import_changes(request, workspace)
    if not isinstance(done, QueueReport):
        settings.show(done, describe_written(done))
        return ExitCode.OK
    lacking = _lacking(done, workspace) if done.written else ()
    lines = queue_lines(done, request.guards, lacking, in_plain=is_plain(workspace.series.profiles))
    settings.show(done, lines, fit=True)
    return done.exit_code


def _lacking(done: QueueReport, workspace: Workspace) -> list[list[str]]:
    """The keys that the new patches lack, each patch's."""
    written = {name for each in done.patches for name, _ in each.patches}
    return [
        [line.partition(" = ")[0] for line in patch.undocumented]
        for patch in load_series(workspace.series.patches).patches
        if patch.id in written
    ]


def _update(settings: Settings, name: str, *, force: bool, others: dict[str, Any]) -> None:
    given = [option for option, value in others.items() if value]
    if given:
        raise UsageError(
            f"--update takes everything from the patch '{name}'",
            code="IMPORT_UPDATE_ALONE",
            why=f"given as well: {', '.join(given)}",
            hint=f"patchkit import --update {shlex.quote(name)}",
        )
    done = run_update(name, settings.workspace(), force=force)
    lines = [
        *done.lines(),
        *(describe_written(done.written, is_known=True) if done.written is not None else ()),
    ]
    settings.show(done, lines)
