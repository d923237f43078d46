"""What ``plan`` and ``apply`` tell a person of patches on a commit of the user's own clone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from patchkit.base.series_folder import format_archs
from patchkit.base.text import counted
from patchkit.carry.judging.classes import GOOD
from patchkit.carry.onto.apply import OntoReport
from patchkit.carry.onto.plan import OntoPlan
from patchkit.cli.request import unproven


def class_lines(found: OntoPlan, *, verbose: bool) -> list[str]:
    """What became of each patch there: in full where a person may have to look, else by name."""
    verdicts = [each for each in found.verdicts if each.id in found.in_range]
    against = f", compared with {' and '.join(found.reference)}" if found.reference else ""
    by_class: dict[str, list[str]] = {}
    for each in verdicts:
        by_class.setdefault(each.patch_class, []).append(each.id)
    counts = [f"{len(names)} {name} ({', '.join(names)})" for name, names in by_class.items()]
    lines = replaced_lines(found, verbose=verbose)
    lines += [f"patches:   {'; '.join(counts)}{against}"] if counts else []
    changed: dict[str, list[str]] = {}
    for each in verdicts:
        for drift in each.drift if each.patch_class in GOOD else ():
            changed.setdefault(drift.entity, []).append(each.id)
    for function, ids in changed.items():
        lines.append(
            f"look at:   {function} is not as it was there; {', '.join(ids)} edit{'s'[: len(ids) == 1]} it"
        )
    for each in verdicts:
        if verbose or each.patch_class not in GOOD:
            lines += [f"  {line}" for line in each.lines(found.plan.pin.name)]
    return lines


def replaced_lines(found: OntoPlan, *, verbose: bool) -> list[str]:
    """Patchkit's own commits that are there already, and what becomes of them."""
    own = found.replaced[::-1]
    if not own:
        return []
    lines = [f"there:     as patchkit's own commits: {', '.join(each.id for each in own)}"]
    if verbose:
        copy = {True: " (rebased)", False: ""}
        lines += [f"  {each.sha[:12]}  {each.id}{copy[each.is_copy]}" for each in own]
    if found.not_replaced:
        gone = ", ".join(found.not_replaced)
        lines.append(f"NO MORE:   {gone}: there now, not in the new branch (-v says why)")
    return lines


def onto_lines(applied: OntoReport, options: Sequence[str], *, verbose: bool) -> list[str]:
    """The result of ``apply --onto``, in a few lines; ``options`` name its GPUs."""
    found, plan = applied.onto, applied.onto.plan
    clone = found.clone
    on = f"{found.commit.sha[:12]} (upstream {found.build.known_by})"
    left_out = [patch for patch in plan.patches if patch.state != "apply"]
    told = [f"  left out {patch.id}: {patch.reason}" for patch in left_out] if verbose else []
    classes = class_lines(found, verbose=verbose)
    dropped = (
        [f"DROPPED:   {', '.join(found.dropped)}: in conflict, left out on request"] if found.dropped else []
    )
    if applied.is_current:
        names = counted(len(found.replaced), "patch is", "patches are")
        head = f"already applied and current: {names} in {on}"
        verify = " ".join(["patchkit verify", *options, "--onto", found.commit.sha[:12], "--repo"])
        verify += f" {shlex.quote(str(clone.top))}"
        return [
            f"{head}; no branch was made in {clone.top}",
            *classes,
            *dropped,
            *told,
            f"next:      {verify}  # {unproven(plan.archs)}",
        ]
    if applied.branch is None:
        offered = found.opt_in_here
        more = f" Opt-in there: {', '.join(offered)}; --with-opt-in adds them." if offered else ""
        there = [each.id for each in found.verdicts if each.patch_class == "upstreamed"]
        why = (
            f"{', '.join(there)}: in it already"
            if there
            else f"No patch is for {format_archs(plan.archs)} on {on}"
        )
        head = f"{why}; no branch was made in {clone.top}.{more if not there else ''}"
        return [head, *classes, *dropped, *told]
    many = counted(len(applied.candidate.commits), "patch", "patches")
    moved = f", was at {applied.before[:12]}" if applied.before and not applied.unchanged else ""
    state = "as it was" if applied.unchanged else f"made{moved}"
    lines = [f"{applied.branch}: {state}, {many} on {on}, in {clone.top}", *classes, *dropped]
    if verbose:
        lines += [f"  {plan.base[:12]}  takes out patchkit's commits below it"] if found.replaced else []
        lines += [f"  {made.commit[:12]}  {made.subject}" for made in applied.candidate.commits]
        lines += told
    if found.opt_in:
        named = ", ".join(found.opt_in)
        lines.append(f"opt-in:    {named}: what they bring on this build is not measured (patchkit show ID)")
    beyond = plan.decision.more_trust
    if beyond is not None:
        lines.append(f"trust:     {beyond.sentence()}")
    take = "log --oneline" if clone.is_bare else "merge --ff-only" if found.is_head else "switch"
    verify = " ".join(["patchkit verify", *options, plan.pin.option])
    return [
        *lines,
        f"take it:   {clone.command} {take} {applied.branch}",
        f"build it:  {shlex.join(applied.cmake)}",
        f"next:      {verify}  # {unproven(plan.archs)}",
    ]
