"""``patchkit import``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.series_folder import is_plain
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.replace import ReplaceRequest, run_replace
from patchkit.carry.importing.queue import QueueReport, QueueRequest, import_changes
from patchkit.carry.importing.update import run_update
from patchkit.carry.lifting.pipeline import PatchOptions
from patchkit.carry.series.catalogue import load_series
from patchkit.cli.amended_text import replaced_lines
from patchkit.cli.completing import files, patches, pins
from patchkit.cli.new_patch import describe_written, guard_options, more_values, require_guards
from patchkit.cli.queue_text import queue_lines
from patchkit.cli.request import build_number
from patchkit.cli.settings import FOLDER, TEXT, Settings, options, verb

_SOURCE = options(
    click.argument("sources", type=TEXT, nargs=-1, metavar="[FILE|FOLDER|REV..REV]...", shell_complete=files),
    click.option(
        "--pr", "pull", type=click.IntRange(min=1), metavar="N", help="Import this pull request of --url."
    ),
    click.option("--url", type=TEXT, metavar="REMOTE", help="Git remote that has refs/pull/N/head."),
    click.option(
        "--repo",
        type=FOLDER,
        metavar="DIR",
        help="Clone that has the commits (default: the current folder's).",
    ),
    click.option(
        "--upstream",
        type=TEXT,
        metavar="PIN",
        shell_complete=pins,
        help="llama.cpp build that a diff was made for (default: the series' default build).",
    ),
    click.option(
        "-p",
        "strip",
        type=click.IntRange(0, 99),
        metavar="N",
        help="Leading folders to strip from the paths of a diff, as in patch -p (default: 1, for a/ and b/).",
    ),
    click.option(
        "--prefix",
        type=TEXT,
        metavar="DIR",
        help="Folder of llama.cpp in the paths of a diff, for example vendor/llama.cpp. Other files are "
        "skipped.",
    ),
    click.option(
        "--as-build",
        type=TEXT,
        callback=build_number,
        metavar="N",
        help="Upstream build or release that the commits are based on, if no tag shows it.",
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
        "patchkit import --replace my-patch my-patch-v2.patch",
    ),
)
@_SOURCE
@guard_options
@more_values
@click.option("--squash", is_flag=True, help="Combine all changes of a queue into one patch.")
@click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")
@click.option("--id", "name", type=TEXT, metavar="ID", help="Id of the patch (default: from its title).")
@click.option(
    "--update",
    type=TEXT,
    metavar="ID",
    shell_complete=patches,
    help="Update a patch to the newest head of its pull request.",
)
@click.option(
    "--replace",
    type=TEXT,
    metavar="ID",
    shell_complete=patches,
    help="Give a patch of the series a new version: a diff, a commit or REV..REV.",
)
@click.option(
    "--allow-broken",
    is_flag=True,
    help="With --replace: write it although a later patch cannot be placed any more.",
)
@click.option("--force", is_flag=True, help="With --update: overwrite edits that were changed by hand.")
def command(
    settings: Settings,
    wanted: dict[str, Any],
    name: str | None,
    update: str | None,
    replace: str | None,
    *,
    force: bool,
    allow_broken: bool,
    **given: Any,
) -> ExitCode:
    """Turn a diff, a queue of patches, commits or a pull request into patches of the series.

    Each hunk becomes an edit that names its function or struct and the lines it replaces or follows; with a
    GPU guard, it names tokens instead. New files become templates. Author, message and links are kept. Before
    anything is written, the result is compared with the original diff, and the patch is placed on the newest
    cached build. If the import fails, the series is unchanged.

    A queue is a folder of patch files (with an optional series file), a quilt series, an mbox, several files,
    or REV..REV. Each becomes a patch, in order, with the patches before it that it requires. If some are
    rejected, the others are still imported and the exit code is 9; the table at the end gives the reasons.

    --update re-creates the edits and files of a patch from the newest head of its pull request, and shows
    what changed. The rest of patch.toml is kept, including the numbers that come from profiles.

    --replace gives a patch the new version that you name. It is placed on the patches before it. Edits that
    did not change and the rest of patch.toml are kept. The patches after it are placed again. If one of them
    cannot be placed any more, nothing is written, unless you give --allow-broken.
    """
    others = {**given, **wanted, "id": name}
    if replace is not None:
        return _replace(
            settings, replace, others | {"update": update, "force": force}, allow_broken=allow_broken
        )
    if allow_broken:
        raise UsageError("--allow-broken requires --replace", code="USAGE_VALUE")
    if update is not None:
        _update(settings, update, force=force, others=others)
        return ExitCode.OK
    if force:
        raise UsageError("--force requires --update", code="USAGE_VALUE")
    workspace = settings.workspace()
    given["guards"] = require_guards(given["guards"], workspace)
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
    """Return, for each new patch, the keys that its patch.toml still lacks."""
    written = {name for each in done.patches for name, _ in each.patches}
    return [
        [line.partition(" = ")[0] for line in patch.undocumented]
        for patch in load_series(workspace.series.patches).patches
        if patch.id in written
    ]


_WITH_REPLACE = ("sources", "strip", "prefix", "repo", "upstream", "dry_run")


def _replace(settings: Settings, name: str, given: dict[str, Any], *, allow_broken: bool) -> ExitCode:
    others = [option for option, value in given.items() if value and option not in _WITH_REPLACE]
    if others or len(given["sources"]) != 1:
        raise UsageError(
            f"--replace cannot be combined with {', '.join(others)}"
            if others
            else f"--replace takes one new version, but {len(given['sources'])} were given",
            code="IMPORT_OPTIONS",
            why=f"it keeps the other values of the patch '{name}'" if others else None,
            hint=f"patchkit import --replace {shlex.quote(name)} FILE",
        )
    known = {option: given[option] for option in _WITH_REPLACE if option != "sources"}
    request = ReplaceRequest(patch=name, source=given["sources"][0], allow_broken=allow_broken, **known)
    done = run_replace(request, settings.workspace())
    settings.show(done, replaced_lines(done))
    return ExitCode.ANCHOR if done.broken else ExitCode.OK


def _update(settings: Settings, name: str, *, force: bool, others: dict[str, Any]) -> None:
    given = [option for option, value in others.items() if value]
    if given:
        raise UsageError(
            f"--update cannot be combined with {', '.join(given)}",
            code="IMPORT_OPTIONS",
            why=f"it takes these values from the patch '{name}'",
            hint=f"patchkit import --update {shlex.quote(name)}",
        )
    done = run_update(name, settings.workspace(), force=force)
    lines = [
        *done.lines(),
        *(describe_written(done.written, is_known=True) if done.written is not None else ()),
    ]
    settings.show(done, lines)
