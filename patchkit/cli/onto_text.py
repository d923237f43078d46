"""The text output of ``plan --onto`` and ``apply --onto``: patches on a commit of the user's own clone."""

from __future__ import annotations

import shlex

from patchkit.base.series_folder import SeriesDir, arch_options, format_archs
from patchkit.base.text import counted
from patchkit.carry.judging.classes import GOOD
from patchkit.carry.onto.apply import OntoReport
from patchkit.carry.onto.plan import OntoPlan
from patchkit.cli.patch_text import build_command, included_text, list_command, more_trust_text, skipped_text
from patchkit.cli.screen import Cell, Screen

# What a patch's class means for the user's commit.
_MEANINGS = {
    "clean": "applies",
    "moved": "applies, moved",
    "upstreamed": "already in it",
    "superseded": "replaced upstream",
    "retired": "no longer needed",
    "conflict": "CONFLICT",
}
_ROLES = {"clean": "good", "moved": "caution", "conflict": "bad"}


def draw_classes(screen: Screen, found: OntoPlan, *, verbose: bool) -> None:
    """Add what becomes of each patch on that commit, with details of those that need a look."""
    titles = {each.patch.id: each.patch.title for each in found.plan.decision.selected}
    verdicts = [each for each in found.verdicts if each.id in found.in_range]
    rows: list[tuple[Cell, ...]] = []
    for each in verdicts:
        role = _ROLES.get(each.patch_class, "muted")
        meaning = _MEANINGS.get(each.patch_class, each.patch_class)
        mark = ["optional" if each.id in found.opt_in else ""] if found.opt_in else []
        rows.append(((each.id, role), (meaning, role), *mark, titles.get(each.id, "")))
    if rows:
        screen.blank()
        screen.table(rows)
    changed: dict[str, list[str]] = {}
    for each in verdicts:
        for drift in each.drift if each.patch_class in GOOD else ():
            changed.setdefault(drift.entity, []).append(each.id)
    reference = " and ".join(found.reference) or "upstream"
    for function, ids in changed.items():
        edits = "edits" if len(ids) == 1 else "edit"
        screen.prose(
            f"Please review {function}: {', '.join(ids)} {edits} it, and it differs from {reference}.",
            role="caution",
        )
    seen: set[str] = set()
    for each in verdicts:
        if verbose or each.patch_class not in GOOD:
            lines = list(each.lines(found.plan.pin.name, seen))
            screen.blank()
            for line in lines:
                screen.prose(line.lstrip(), indent=2 + len(line) - len(line.lstrip()))
    if found.dropped:
        screen.prose(f"Skipped on request, because of a conflict: {', '.join(found.dropped)}", role="bad")
    _draw_replaced(screen, found, verbose=verbose)


def _draw_replaced(screen: Screen, found: OntoPlan, *, verbose: bool) -> None:
    """Add the commits of patchkit that the user's commit already has."""
    own = found.replaced[::-1]
    if not own:
        return
    screen.blank()
    screen.prose(f"Already in your commit, from patchkit: {', '.join(each.id for each in own)}")
    if verbose:
        screen.code(*(f"{each.sha[:12]}  {each.id}{' (rebased)' if each.is_copy else ''}" for each in own))
    if found.not_replaced:
        gone = ", ".join(found.not_replaced)
        screen.prose(f"Not in the new branch any more: {gone} (-v shows why)", role="caution")


def draw_onto(screen: Screen, applied: OntoReport, series: SeriesDir, *, verbose: bool) -> None:
    """Add the result of ``apply --onto``."""
    found, plan = applied.onto, applied.onto.plan
    options = arch_options(applied.candidate.archs, series.profiles)
    _draw_headline(screen, applied)
    draw_classes(screen, found, verbose=verbose)
    screen.blank()
    if verbose:
        skipped = [patch for patch in plan.patches if patch.state != "apply"]
        screen.table([(f"skipped {patch.id}:", patch.reason) for patch in skipped])
    elif plan.skipped:
        screen.prose(skipped_text(len(plan.skipped), list_command(plan.archs, series)))
    if applied.is_current:
        _draw_check(screen, [*options, "--onto", found.commit.sha[:12], "--repo", str(found.clone.top)])
    elif applied.branch is not None:
        _draw_branch(screen, applied, verbose=verbose)
        _draw_check(screen, [*options, *shlex.split(plan.pin.option)])
        _draw_undo(screen, found, applied.branch)


def _draw_headline(screen: Screen, applied: OntoReport) -> None:
    found, top = applied.onto, applied.onto.clone.top
    is_exact = found.build.high == found.build.low
    based = f"upstream {found.build.known_by}" if is_exact else f"as in llama.cpp {found.build}"
    on = f"{found.commit.sha[:12]} ({based})"
    if applied.is_current:
        are = counted(len(found.replaced), "patch is", "patches are")
        head = f"already applied and current: {are} in {on}; no branch was created in {top}"
    elif applied.branch is None:
        there = [each.id for each in found.verdicts if each.patch_class == "upstreamed"]
        why = (
            f"{', '.join(there)}: already in {on}"
            if there
            else f"no patch is for {format_archs(found.plan.archs)} on {on}"
        )
        head = f"{why}; no branch was created in {top}"
        if found.opt_in_here and not there:
            head += f". Optional patches: {', '.join(found.opt_in_here)}; --with-opt-in adds them"
    else:
        many = counted(len(applied.candidate.commits), "patch", "patches")
        moved = f" (was at {applied.before[:12]})" if applied.before and not applied.unchanged else ""
        state = "unchanged" if applied.unchanged else f"created{moved}"
        head = f"{applied.branch}: {state}, {many} on {on}, in {top}"
    screen.prose(head, role="heading")


def _draw_branch(screen: Screen, applied: OntoReport, *, verbose: bool) -> None:
    """Add what more could be in the branch, and how to use and build it."""
    found, plan = applied.onto, applied.onto.plan
    if found.opt_in:
        screen.prose(included_text(found.opt_in))
    if plan.decision.more_trust is not None:
        screen.prose(more_trust_text(plan.decision.more_trust))
    if verbose:
        screen.heading("Commits")
        if found.replaced:
            screen.code(f"{plan.base[:12]}  removes patchkit's earlier commits")
        screen.code(*(f"{made.commit[:12]}  {made.subject}" for made in applied.candidate.commits))
    screen.heading("Use it")
    screen.code(f"{found.clone.command} {_take(found)} {applied.branch}")
    screen.heading("Build it")
    screen.code(shlex.join(applied.cmake), build_command(applied.cmake))


def _take(found: OntoPlan) -> str:
    """Return the git command that takes the new branch in the clone."""
    if found.clone.is_bare:
        return "log --oneline"
    return "merge --ff-only" if found.is_head else "switch"


def _draw_check(screen: Screen, options: list[str]) -> None:
    screen.heading("Check it (the patches are placed and parsed, but not compiled or run yet)")
    screen.code(shlex.join(["patchkit", "verify", *options]))


def _draw_undo(screen: Screen, found: OntoPlan, branch: str) -> None:
    screen.heading("Undo")
    if found.is_head and not found.clone.is_bare:
        screen.code(f"{found.clone.command} reset --keep {found.commit.sha[:12]}  # if you merged it")
    elif not found.clone.is_bare:
        screen.code(f"{found.clone.command} switch -  # if you switched to it")
    screen.code(f"{found.clone.command} branch -D {branch}")
