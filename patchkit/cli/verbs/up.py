"""``patchkit up``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.apply import run_apply
from patchkit.cli.request import (
    CandidateChoice,
    backend_for,
    candidate_options,
    choose_archs,
    program_options,
)
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb
from patchkit.prove.serving import ServiceKind
from patchkit.prove.up import (
    PROGRAMS,
    Installed,
    UpReport,
    UpRequest,
    check_options,
    list_installed,
    roll_back,
    run_up,
    update_request,
)
from patchkit.toolchain.parts import BackendName


@verb(
    "up",
    example=(
        "patchkit up --arch gfx1151",
        "patchkit up --arch gfx1151 --trust modelled --model ~/models/llama-3.1-8b.gguf",
        "patchkit up --arch gfx1151 --model ~/models/llama-3.1-8b.gguf --service systemd",
        "patchkit up --update",
        "patchkit up --list",
        "patchkit up --rollback",
    ),
)
@candidate_options
@program_options
@click.option(
    "--model", type=FOLDER, metavar="FILE", help="GGUF file: run a prompt with it before using the build."
)
@click.option(
    "--check/--no-check",
    default=True,
    help="Run operations on the GPU before using the build (default). The CPU backend has no such check.",
)
@click.option(
    "--prefix",
    type=FOLDER,
    metavar="DIR",
    help="Folder of the installed builds (default: patchkit/llama.cpp in the user's data folder).",
)
@click.option(
    "--service",
    type=click.Choice(["systemd", "llama-swap"]),
    help="Write a file that starts the server with --model: a systemd user unit, or an entry of llama-swap.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Install the successor of the current build: same GPU, backend, programs and choice of patches, on "
    "the newest build of the series.",
)
@click.option("--list", "is_list", is_flag=True, help="Show the installed builds, and do nothing else.")
@click.option("--rollback", is_flag=True, help="Use the previous build again, and do nothing else.")
@click.option("--use", type=TEXT, metavar="NAME", help="Use this installed build, and do nothing else.")
def command(
    settings: Settings,
    choice: CandidateChoice,
    backend: BackendName | None,
    programs: tuple[str, ...],
    model: Path | None,
    prefix: Path | None,
    use: str | None,
    service: ServiceKind | None,
    *,
    check: bool,
    update: bool,
    is_list: bool,
    rollback: bool,
) -> None:
    """Build llama-server with the patches for your GPU, check it, and install it.

    Applies the patches, builds llama-server, llama-cli and llama-bench, and runs some operations of
    test-backend-ops on the GPU. If all are correct, the link 'current' in the prefix names the new build.
    Earlier builds stay installed next to it. If anything fails, or if you stop the command, the last good
    build stays current. Parts that did not change are not built again.

    Nothing outside of the prefix and the cache folder changes, except for the file of --service. To remove a
    build, delete its folder.
    """
    if sum((is_list, rollback, use is not None, update)) > 1:
        raise UsageError(
            "--list, --rollback, --use and --update cannot be combined", code="OPTIONS_CONTRADICT"
        )
    workspace = settings.workspace()
    if is_list or rollback or use is not None:
        known = list_installed(prefix) if is_list else roll_back(prefix, use, workspace.reporter)
        settings.show(known, _list_lines(known))
        return
    if update:
        choice, backend, programs = _again(prefix, choice, backend, programs)
    check_options(programs or PROGRAMS, prefix, model, service, os.environ)
    if choice.onto is None:
        request = choice.wish.request(choose_archs(workspace, choice.archs), choice.upstream)
        run_apply(request, workspace, checkout=None)
    chosen = choice.choose(workspace)
    wanted = UpRequest(
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        backend=backend_for(chosen.archs, backend),
        programs=programs or PROGRAMS,
        prefix=prefix,
        model=model,
        check=check,
        service=service,
    )
    report = run_up(wanted, workspace, os.environ)
    settings.show(report, _lines(report))


def _again(
    prefix: Path | None, choice: CandidateChoice, backend: BackendName | None, programs: tuple[str, ...]
) -> tuple[CandidateChoice, BackendName, tuple[str, ...]]:
    """The choices of the current build. Raises OPTIONS_CONTRADICT for options that name others."""
    named = (choice.archs, choice.upstream, choice.onto, backend, programs)
    if any(named) or not choice.wish.is_empty:
        raise UsageError(
            "--update takes GPU, build, backend, programs and patches from the current build",
            code="OPTIONS_CONTRADICT",
            hint="to change them, run patchkit up with these options and without --update",
        )
    current, wish = update_request(prefix)
    return replace(choice, archs=current.archs, wish=wish), current.backend, current.programs


def _lines(report: UpReport) -> Iterator[str]:
    made = report.installation
    what = "installed" if report.is_new else "already installed"
    count = counted(len(made.patches), "patch", "patches")
    yield f"{made.name}: {what}, {count} on llama.cpp {build_name(made.build)} ({report.seconds:g} s)"
    yield f"  checked: {made.checked}{'' if report.is_new else ' (when it was installed)'}"
    yield f"  folder:  {report.folder}"
    if report.replaced is not None:
        yield f"  before:  {report.replaced} (patchkit up --rollback goes back to it)"
    if report.server:
        yield from ("", "Start the server", f"  {shlex.join(report.server)}")
        yield from (f"  {note}" for note in report.notes)
    if report.service is not None:
        yield from ("", f"Wrote {report.service.path}. To start it")
        yield from (f"  {command}" for command in report.service.commands)


def _list_lines(known: Installed) -> Iterator[str]:
    if not known.builds:
        yield f"no builds in {known.prefix}; patchkit up installs one"
        return
    width = max(len(each.name) for each in known.builds)
    for each in known.builds:
        mark = {known.current: "current", known.previous: "previous"}.get(each.name, "")
        compiler = f", {each.compiler}" if each.compiler is not None else ""
        yield f"  {each.name:<{width}}  {mark:<8}  {each.made[:10]}{compiler}"
        yield f"    commit {each.commit[:9]}: {', '.join(each.patches) or 'no patches'}"
    yield f"in {known.prefix}"
