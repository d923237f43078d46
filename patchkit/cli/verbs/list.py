"""``patchkit list``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import arch_options
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.decision import Decision, Request, load_decision
from patchkit.carry.candidate.listing import Catalogue, load_catalogue
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.series.selection import Selected
from patchkit.cli.completing import gpus, pins
from patchkit.cli.patch_text import ROLES, describe_gain
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import TEXT, Settings, verb


@verb("list", example=("patchkit list", "patchkit list --arch gfx1151", "patchkit list --json"))
@click.option(
    "--arch",
    type=TEXT,
    metavar="GFX",
    shell_complete=gpus,
    help="Show which patches this GPU gets, with their gain and who measured it.",
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="With --arch: for this llama.cpp build of the lock file (default: the lock's default).",
)
def command(settings: Settings, arch: str | None, upstream: str | None) -> None:
    """List the patches of the series and the GPUs that have some.

    With --arch, lists the patches that are on for one GPU, those that are optional, and those that are not
    for it or for this build. An optional patch is added by apply --with ID, or by a higher --trust.
    """
    workspace = settings.workspace()
    catalogue = load_catalogue(workspace.series)
    if arch is None:
        if upstream is not None:
            raise UsageError(
                "--upstream requires --arch",
                code="USAGE_SYNTAX",
                hint="patchkit list --arch GFX --upstream BUILD",
            )
        settings.show_screen(_document(catalogue), lambda screen: _draw(screen, catalogue))
        return
    decision = load_decision(Request(archs=(arch,), upstream=upstream), workspace, catalogue.lock)
    profiles = tuple(profile for profile in catalogue.profiles if profile.arch == arch)
    settings.show_screen(
        _document(catalogue, profiles),
        lambda screen: _draw_arch(
            screen, decision, profiles, arch_options([arch], workspace.series.profiles)
        ),
    )


def _document(catalogue: Catalogue, profiles: Sequence[ArchProfile] | None = None) -> dict[str, object]:
    return {
        "patches": [
            {
                "id": patch.id,
                "number": patch.number,
                "title": patch.title,
                "status": patch.status,
                "builds": patch.builds,
            }
            for patch in catalogue.patches
        ],
        "archs": [
            {
                "arch": profile.arch,
                "families": list(profile.families),
                "patches": {
                    patch.id: catalogue.default_of(patch.id, profile.arch) for patch in catalogue.patches
                },
            }
            for profile in (catalogue.profiles if profiles is None else profiles)
        ],
    }


def _draw(screen: Screen, catalogue: Catalogue) -> None:
    patches: list[tuple[Cell, ...]] = [
        (f"{patch.number:04d}", patch.id, _builds(patch), patch.title) for patch in catalogue.patches
    ]
    builds = "the llama.cpp builds that they are for"
    screen.prose(f"Patches, in the order in which they are applied, and {builds}", role="heading")
    screen.table(patches, indent=0)
    if not catalogue.profiles:
        return
    screen.heading(f"Patches for each GPU on llama.cpp {catalogue.lock.pin(None).title}, the default build")
    rows: list[tuple[Cell, ...]] = []
    for profile in catalogue.profiles:
        counts = {standing: catalogue.count(standing, profile.arch) for standing in ("on", "opt-in")}
        part = profile.facts.report("part")
        role = ROLES["on"] if counts["on"] else ROLES["opt-in"] if counts["opt-in"] else ROLES["off"]
        rows.append(((profile.arch, role), (_counts(counts), role), str(part.value) if part else ""))
    screen.table(rows, indent=0)
    screen.blank()
    screen.prose("patchkit list --arch GFX shows the patches of one GPU, with their gain.")


def _counts(counts: dict[str, int]) -> str:
    words = {"on": "on", "opt-in": "optional"}
    return ", ".join(f"{count} {words[standing]}" for standing, count in counts.items() if count) or "none"


def _draw_arch(
    screen: Screen, decision: Decision, profiles: Sequence[ArchProfile], options: list[str]
) -> None:
    """Add the patches by their state on one GPU: on, optional, not for this build or GPU."""
    build = decision.pin.build
    on = [each for each in decision.selected if each.targets]
    here = [each for each in decision.selected if not each.targets and each.patch.builds.covers(build)]
    optional = [each for each in here if decision.terms[each.patch.id][0].default == "opt-in"]
    others = [each for each in decision.selected if each not in on and each not in optional]
    part = next((fact.value for each in profiles if (fact := each.facts.report("part"))), None)
    name = f"{decision.archs[0]}{f' ({part})' if part else ''}"
    screen.prose(
        f"{name}, llama.cpp {decision.pin.title}: {len(on)} patches on, {len(optional)} optional",
        role="heading",
    )
    if on:
        screen.heading("On: applied by default")
        _draw_patches(screen, decision, on, "on")
    command = " ".join(["patchkit apply", *options])
    modelled = [each for each in optional if decision.terms[each.patch.id][0].assessment.level == "modelled"]
    named = [each for each in optional if each not in modelled]
    if named:
        screen.heading(f"Optional: add one with {command} --with ID")
        _draw_patches(screen, decision, named, "opt-in")
    if modelled:
        screen.heading("Optional, gain modelled: predicted by the timing model, not measured by anyone")
        screen.prose(f"Add all of them with {command} --trust modelled, or one with --with ID.")
        _draw_patches(screen, decision, modelled, "opt-in", shows_level=False)
    if others:
        screen.heading("Not for this build or GPU")
        rows: list[tuple[Cell, ...]] = []
        for each in others:
            covers = each.patch.builds.covers(build)
            rows.append(
                (
                    (each.patch.id, "muted"),
                    ("other GPUs" if covers else _builds(each.patch), "muted"),
                    (each.patch.title, "muted"),
                )
            )
        screen.table(rows)
    screen.blank()
    screen.prose("patchkit show ID has the details of a patch.")


def _draw_patches(
    screen: Screen,
    decision: Decision,
    patches: Sequence[Selected],
    state: str,
    *,
    shows_level: bool = True,
) -> None:
    rows: list[tuple[Cell, ...]] = []
    for each in patches:
        terms = decision.terms[each.patch.id][0]
        rows.append(((each.patch.id, ROLES[state]), each.patch.title))
        text = describe_gain(each.patch, terms, shows_level=shows_level)
        if text:
            rows.append(("", (text, "muted")))
    screen.table(rows)


def _builds(patch: Patch) -> str:
    return f"{build_name(patch.builds.first)}-" + (
        build_name(patch.builds.last) if patch.builds.last is not None else ""
    )
