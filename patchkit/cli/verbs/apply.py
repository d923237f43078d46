"""``patchkit apply``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
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
from patchkit.cli.onto_text import onto_lines
from patchkit.cli.request import ApplyOptions, request_options, unproven
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
    asked: ApplyOptions,
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
        asked, chosen = _as_picked(settings, asked, picked)
    onto = asked.clone()
    if onto is not None:
        if checkout is not None:
            raise UsageError(
                "--checkout cannot go with --onto",
                code="OPTIONS_CONTRADICT",
                hint="git worktree add in your clone",
            )
        return _apply_onto(settings, asked, onto, branch, replaces=replaces)
    if branch is not None or replaces:
        raise UsageError(
            f"{'--branch' if branch is not None else '--replace'} goes with --onto",
            code="OPTIONS_CONTRADICT",
            why="it is about a branch of your own clone",
            hint="add --onto REV",
        )
    workspace = settings.workspace()
    applied = run_apply(asked.request(workspace), workspace, checkout=checkout)
    if chosen is not None and applied.candidate.pin == chosen.upstream and applied.tree != chosen.tree:
        settings.reporter().warn(
            f"this is tree {applied.tree[:12]}, and picked was {chosen.tree[:12]}: the series or the file "
            "was changed since, and nobody measured this one; patchkit pick again"
        )
    repository = workspace.cache_root / "upstream.git"
    options = arch_options(applied.candidate.archs, workspace.series.profiles)
    settings.show(applied, _lines(applied, repository, options, verbose=settings.verbose))
    return ExitCode.OK


def _refuse_strange(picked: PickedFile, series: SeriesDir, *, on_its_pin: bool) -> None:
    """Say at its line what the series in use does not have. Raises UNKNOWN_PATCH, PICKED_OTHER."""
    known = [patch.id for patch in load_series(series.patches).patches]
    for one in picked.patch:
        if one.verdict == "keep" and one.id not in known:
            raise UsageError(
                f"the series has no patch '{one.id}'",
                code="UNKNOWN_PATCH",
                where=one.where,
                why="it was picked from another series, or the patch went since",
                hint=near_miss(one.id, known) or "name that series with --series-dir; or patchkit pick again",
            )
    lacking = [arch for arch in picked.archs if arch not in (PLAIN, *list_profiles(series.profiles))]
    pins = load_lock(series.lock).pins
    told = f"'{lacking[0]}', which it has no profile of" if lacking else ""
    if not lacking and on_its_pin and not any(pin.is_called(picked.upstream) for pin in pins):
        told = f"'{picked.upstream}', which its lock does not have"
    if told:
        raise UsageError(
            f"those patches were picked for another series than the one in use: for {told}",
            code="PICKED_OTHER",
            where=picked.where,
            hint="name that series with --series-dir; or patchkit pick again",
        )


def _as_picked(settings: Settings, asked: ApplyOptions, path: Path) -> tuple[ApplyOptions, PickedFile]:
    """The request for the patches of a file of ``pick``, with its GPUs where none are named; and the file."""
    wanted = asked.wanted
    named = [*wanted.only, *wanted.without, *wanted.with_, *(["--with-opt-in"] if wanted.with_opt_in else [])]
    named += [f"--trust {wanted.trust}"] if wanted.trust is not None else []
    if named:
        raise UsageError(
            "--picked says which patches, and so do other options",
            code="OPTIONS_CONTRADICT",
            why=f"also named: {', '.join(named)}",
            hint="leave out one of them",
        )
    picked = load_picked(path)
    archs = wanted.archs or picked.archs
    if set(archs) != set(picked.archs):
        raise UsageError(
            f"those patches were picked for {format_archs(picked.archs)}, not for {format_archs(archs)}",
            code="PICKED_OTHER",
            where=picked.where,
            why="what pays on one GPU may not on another",
            hint="patchkit pick on that GPU; or name the patches with --only",
        )
    if asked.onto is None and picked.upstream.startswith("onto-"):
        raise UsageError(
            f"those patches were picked on a commit of a clone, {picked.upstream.removeprefix('onto-')}",
            code="PICKED_OTHER",
            where=picked.where,
            hint="say --onto REV, and --repo DIR where you are not in that clone",
        )
    on_its_pin = asked.onto is None and wanted.upstream is None
    _refuse_strange(picked, settings.workspace().series, on_its_pin=on_its_pin)
    if asked.onto is None and wanted.upstream not in (None, picked.upstream):
        settings.reporter().warn(f"picked on {picked.upstream}: on another upstream nobody measured them")
    upstream = picked.upstream if on_its_pin else wanted.upstream
    of_it = replace(wanted, archs=archs, upstream=upstream, only=picked.kept, with_=picked.kept)
    return replace(asked, wanted=of_it), picked


def _apply_onto(
    settings: Settings, asked: ApplyOptions, onto: Onto, branch: str | None, *, replaces: bool
) -> int:
    workspace = settings.workspace()
    request = asked.request(workspace)
    applied = run_onto(
        request,
        onto,
        workspace,
        branch=branch or f"patchkit/{'+'.join(sorted(set(request.archs)))}",
        replace_branch=replaces,
        drop_conflicts=asked.drop_conflicts,
    )
    options = arch_options(applied.candidate.archs, workspace.series.profiles)
    settings.show(applied, onto_lines(applied, options, verbose=settings.verbose))
    is_done = applied.branch is not None or applied.is_current
    return ExitCode.OK if is_done else ExitCode.NOTHING


def _lines(applied: ApplyReport, repository: Path, options: list[str], *, verbose: bool) -> Iterator[str]:
    candidate, skipped = applied.candidate, applied.skipped
    left_out = [f"  left out {patch}: {reason}" for patch, reason in skipped.items()] if verbose else []
    if applied.available is not None:
        head = f"No patch is for {format_archs(candidate.archs)} on {applied.decision.pin.title}"
        yield f"{head}: {candidate.branch} is upstream's own tree. {applied.available.sentence}"
        yield from left_out
        return
    many = counted(len(candidate.commits), "patch", "patches")
    state = "as it was" if applied.unchanged else "made"
    others = f"; {len(skipped)} left out (-v says why)" if skipped and not verbose else ""
    pin = applied.decision.pin
    called = f", {pin.title}" if pin.releases else ""
    yield f"{candidate.branch}: {state}, {many} on {candidate.base[:12]}{called}"
    yield f"patches:   {', '.join(candidate.ids)}{others}"
    if verbose:
        yield from (f"  {made.commit[:12]}  {made.subject}" for made in candidate.commits)
        yield from left_out
        yield f"tree {applied.tree} ({applied.lock_state})"
        yield f"in   {repository}"
    if applied.opt_in:
        yield f"opt-in:    {', '.join(applied.opt_in)}: see patchkit show ID for what was measured, and where"
    beyond = applied.decision.more_trust
    if beyond is not None:
        yield f"trust:     {beyond.sentence()}"
    if applied.checkout is not None:
        yield f"files:     {applied.checkout}"
    elif applied.handover is not None:
        first, *more = applied.handover.lines()
        yield f"fetch it:  {first}"
        yield from (f"{'':11}{line}" for line in more if verbose)
    yield f"build it:  {shlex.join(applied.cmake)}"
    verify = shlex.join(["patchkit", "verify", *options, "--upstream", candidate.pin])
    yield f"next:      {verify}  # {unproven(candidate.archs)}"
