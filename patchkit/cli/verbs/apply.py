"""``patchkit apply``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.series_folder import PLAIN, SeriesDir, arch_options, format_archs
from patchkit.base.text import counted, near_miss
from patchkit.carry.candidate.apply import ApplyReport, run_apply
from patchkit.carry.onto.apply import run_onto
from patchkit.carry.onto.pin import Onto
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.picked import PickedFile, load_picked
from patchkit.cli.onto_text import draw_onto
from patchkit.cli.patch_text import (
    add_titles,
    build_command,
    included_text,
    list_command,
    more_trust_text,
    skipped_text,
)
from patchkit.cli.request import ApplyOptions, request_options
from patchkit.cli.screen import Screen
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb


@verb(
    "apply",
    example=(
        "patchkit apply --arch gfx1151",
        "patchkit apply --arch gfx1151 --onto HEAD --repo ~/llama.cpp",
        "patchkit apply --arch gfx1151 --checkout llama.cpp-gfx1151",
        "patchkit apply --arch gfx1151 --arch gfx1100 --source sdist",
        "patchkit apply --picked ~/picked.toml",
    ),
)
@request_options
@click.option(
    "--checkout",
    type=FOLDER,
    metavar="DIR",
    help="Also check out the branch into DIR, as a git repository of its own.",
)
@click.option(
    "--branch",
    type=TEXT,
    metavar="NAME",
    help="With --onto: name of the new branch (default: patchkit/GFX, or patchkit/plain).",
)
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="With --onto: replace a branch of that name that patchkit created.",
)
@click.option(
    "--picked",
    type=FOLDER,
    metavar="FILE",
    help="Apply the patches that patchkit pick kept: its picked.toml.",
)
def command(
    settings: Settings,
    given: ApplyOptions,
    checkout: Path | None,
    branch: str | None,
    picked: Path | None,
    *,
    replaces: bool,
) -> int:
    """Create a branch of llama.cpp with the patches for your GPU, one commit per patch.

    By default the branch (the "candidate") is based on a known llama.cpp build and lives in patchkit's own
    repository in the cache folder; your files are not touched. The output shows how to get it into a clone
    and how to build it. The same inputs always give the same commits.

    With --onto the branch is created in your own clone, on top of your commit with all your changes, by
    default as patchkit/gfx1151. Nothing else in the clone changes. If your commit already contains commits of
    patchkit, the new branch replaces them with the current patches; if that changes nothing, no branch is
    created.

    Placing a patch checks that the code it edits is the expected code, and that the result parses. Run
    patchkit verify to compile and test it.
    """
    chosen: PickedFile | None = None
    if picked is not None:
        given, chosen = _as_picked(settings, given, picked)
    onto = given.clone()
    if onto is not None:
        if checkout is not None:
            raise UsageError(
                "--checkout cannot be combined with --onto",
                code="OPTIONS_CONTRADICT",
                hint="use git worktree add in your clone",
            )
        return _apply_onto(settings, given, onto, branch, replaces=replaces)
    if branch is not None or replaces:
        raise UsageError(
            f"{'--branch' if branch is not None else '--replace'} requires --onto",
            code="OPTIONS_CONTRADICT",
            why="it names a branch of your own clone",
            hint="add --onto REV",
        )
    workspace = settings.workspace()
    applied = run_apply(given.request(workspace), workspace, checkout=checkout)
    if chosen is not None and applied.candidate.pin == chosen.upstream and applied.tree != chosen.tree:
        settings.reporter().warn(
            f"this result (tree {applied.tree[:12]}) is not the one that pick measured "
            f"({chosen.tree[:12]}); the "
            "series or the file has changed since. Run patchkit pick again to measure it"
        )
    repository = workspace.cache_root / "upstream.git"
    settings.show_screen(
        applied,
        lambda screen: _draw(screen, applied, workspace.series, repository, verbose=settings.verbose),
    )
    return ExitCode.OK


def _refuse_strange(picked: PickedFile, series: SeriesDir, *, on_its_pin: bool) -> None:
    """Raise UNKNOWN_PATCH or PICKED_OTHER if the series lacks a picked patch, GPU or build."""
    known = [patch.id for patch in load_series(series.patches).patches]
    for one in picked.patch:
        if one.verdict == "keep" and one.id not in known:
            raise UsageError(
                f"the series has no patch '{one.id}'",
                code="UNKNOWN_PATCH",
                where=one.where,
                why="it was picked from another series, or the patch was removed or renamed since",
                hint=near_miss(one.id, known)
                or "name that series with --series-dir, or run patchkit pick again",
            )
    lacking = [arch for arch in picked.archs if arch not in (PLAIN, *list_profiles(series.profiles))]
    pins = load_lock(series.lock).pins
    missing = f"no profile of '{lacking[0]}'" if lacking else ""
    if not lacking and on_its_pin and not any(pin.is_called(picked.upstream) for pin in pins):
        missing = f"no build '{picked.upstream}' in its lock file"
    if missing:
        raise UsageError(
            f"the patches were picked for another series; the one in use has {missing}",
            code="PICKED_OTHER",
            where=picked.where,
            hint="name that series with --series-dir, or run patchkit pick again",
        )


def _as_picked(settings: Settings, given: ApplyOptions, path: Path) -> tuple[ApplyOptions, PickedFile]:
    """Load a file of ``pick``, and return the request for its patches, and the file."""
    wanted = given.wanted
    named = [*wanted.only, *wanted.without, *wanted.with_, *(["--with-opt-in"] if wanted.with_opt_in else [])]
    named += [f"--trust {wanted.trust}"] if wanted.trust is not None else []
    if named:
        raise UsageError(
            "--picked cannot be combined with other options that select patches",
            code="OPTIONS_CONTRADICT",
            why=f"also given: {', '.join(named)}",
        )
    picked = load_picked(path)
    archs = wanted.archs or picked.archs
    if set(archs) != set(picked.archs):
        raise UsageError(
            f"the patches were picked for {format_archs(picked.archs)}, not for {format_archs(archs)}",
            code="PICKED_OTHER",
            where=picked.where,
            why="a patch that helps on one GPU may not help on another",
            hint="run patchkit pick on that GPU, or name the patches with --only",
        )
    if given.onto is None and picked.upstream.startswith("onto-"):
        commit = picked.upstream.removeprefix("onto-")
        raise UsageError(
            f"patchkit pick measured these patches on commit {commit} of a clone, not on a recorded build",
            code="PICKED_OTHER",
            where=picked.where,
            hint=f"add --onto {commit}, and --repo DIR unless the current folder is that clone",
        )
    on_its_pin = given.onto is None and wanted.upstream is None
    _refuse_strange(picked, settings.workspace().series, on_its_pin=on_its_pin)
    if given.onto is None and wanted.upstream not in (None, picked.upstream):
        settings.reporter().warn(
            f"the patches were picked on {picked.upstream}; on another build they are not measured"
        )
    upstream = picked.upstream if on_its_pin else wanted.upstream
    of_it = replace(wanted, archs=archs, upstream=upstream, only=picked.kept, with_=picked.kept)
    return replace(given, wanted=of_it), picked


def _apply_onto(
    settings: Settings, given: ApplyOptions, onto: Onto, branch: str | None, *, replaces: bool
) -> int:
    workspace = settings.workspace()
    request = given.request(workspace)
    applied = run_onto(
        request,
        onto,
        workspace,
        branch=branch or f"patchkit/{'+'.join(sorted(set(request.archs)))}",
        replace_branch=replaces,
        drop_conflicts=given.drop_conflicts,
    )
    settings.show_screen(
        applied, lambda screen: draw_onto(screen, applied, workspace.series, verbose=settings.verbose)
    )
    is_done = applied.branch is not None or applied.is_current
    return ExitCode.OK if is_done else ExitCode.NOTHING


def _draw(
    screen: Screen, applied: ApplyReport, series: SeriesDir, repository: Path, *, verbose: bool
) -> None:
    candidate, decision = applied.candidate, applied.decision
    pin, skipped = decision.pin, applied.skipped
    gpus = "" if candidate.archs == (PLAIN,) else f" for {format_archs(candidate.archs)}"
    if applied.available is not None:
        screen.prose(f"{candidate.branch}: no patches{gpus}, the branch equals llama.cpp {pin.title}")
        screen.prose(applied.available.sentence)
        _draw_skipped(screen, skipped, verbose=verbose)
        return
    many = counted(len(candidate.commits), "patch", "patches")
    state = "unchanged" if applied.unchanged else "created"
    screen.prose(f"{candidate.branch}: {state}, llama.cpp {pin.title} with {many}{gpus}", role="heading")
    screen.blank()
    titles = {each.patch.id: each.patch.title for each in decision.selected}
    add_titles(screen, [(each.id, titles[each.id]) for each in candidate.commits], optional=applied.opt_in)
    screen.blank()
    if applied.opt_in:
        screen.prose(included_text(applied.opt_in))
    if skipped:
        upstream = None if decision.pin.name == load_lock(series.lock).default else pin.name
        command = list_command(candidate.archs, series, upstream)
        screen.prose(skipped_text(len(skipped), command))
    _draw_skipped(screen, skipped, verbose=verbose)
    if decision.more_trust is not None:
        screen.prose(more_trust_text(decision.more_trust))
    if verbose:
        screen.heading("Commits")
        screen.code(*(f"{made.commit[:12]}  {made.subject}" for made in candidate.commits))
        screen.code(f"base {candidate.base}", f"tree {applied.tree} ({applied.lock_state})")
        screen.code(f"in   {repository}")
    _draw_source(screen, applied)
    needs = "" if candidate.archs == (PLAIN,) else " (needs ROCm)"
    screen.heading(f"Build it{'' if applied.checkout else ' in the parent folder of that clone'}{needs}")
    screen.code(shlex.join(applied.cmake), build_command(applied.cmake))
    screen.heading("Check it (the patches are placed and parsed, but not compiled or run yet)")
    options = arch_options(candidate.archs, series.profiles)
    if decision.pin.name not in {pin.name for pin in load_lock(series.lock).pins}:
        screen.code(shlex.join(["patchkit", "bump", "--to", candidate.pin]))
    else:
        screen.code(shlex.join(["patchkit", "verify", *options, "--upstream", candidate.pin]))
    _draw_undo(screen, applied)


def _draw_skipped(screen: Screen, skipped: Mapping[str, str], *, verbose: bool) -> None:
    if verbose:
        screen.table([(f"skipped {patch}:", reason) for patch, reason in skipped.items()])


def _draw_source(screen: Screen, applied: ApplyReport) -> None:
    """Add how to get the branch."""
    handover = applied.handover
    if applied.checkout is not None:
        screen.heading("The sources are in")
        screen.code(str(applied.checkout))
    elif handover is not None:
        screen.heading("Get it: add --checkout DIR to this command, or run in your clone of llama.cpp:")
        if handover.kind == "am":
            screen.code(
                "git fetch --tags",
                f"git switch -c {_own_branch(applied)} {applied.decision.pin.name}",
                *handover.commands,
            )
        else:
            screen.code(*handover.commands, f"git switch -c {_own_branch(applied)} FETCH_HEAD")
            if handover.first:
                screen.prose(f"If your clone lacks {handover.needs}, first run")
                screen.code(*handover.first)


def _draw_undo(screen: Screen, applied: ApplyReport) -> None:
    """Add how to undo what `_draw_source` shows; apply itself changes only the cache."""
    if applied.checkout is not None:
        screen.heading("Undo: delete the folder of the sources")
    elif applied.handover is not None:
        screen.heading("Undo, in your clone (apply itself changed nothing there)")
        screen.code(f"git switch - && git branch -D {_own_branch(applied)}")


def _own_branch(applied: ApplyReport) -> str:
    """Return a name for the branch in the user's clone, the same as that of ``apply --onto``."""
    return f"patchkit/{'+'.join(applied.candidate.archs)}"
