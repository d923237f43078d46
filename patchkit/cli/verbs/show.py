"""``patchkit show``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import partial

import click

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import SeriesDir, arch_options
from patchkit.base.text import near_miss
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.decision import required_by
from patchkit.carry.candidate.listing import Catalogue, load_catalogue
from patchkit.carry.series.patch import Edit, NewFile, Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.series.selection import Terms
from patchkit.carry.series.switches import has_switch
from patchkit.carry.series.trust import LEVELS
from patchkit.cli.completing import patches_and_gpus
from patchkit.cli.patch_text import ROLES, STATES, describe_level
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import Settings, verb
from patchkit.prove.gates.speed import kept_doubts

_NOT_WRITTEN = "(not written yet)"
_KINDS = {
    "hardware": "measured on",
    "modelled": "modelled for",
    "emulated": "emulated",
    "concluded": "concluded for",
}
_SAYS = {
    "gain": "a gain",
    "fixes": "a fix",
    "same": "no change",
    "mixed": "gains and losses",
    "loss": "a loss",
}


@verb("show", example=("patchkit show fattn-keep-gqa-tiles", "patchkit show gfx1151"))
@click.argument("name", metavar="PATCH|ARCH", shell_complete=patches_and_gpus)
def command(settings: Settings, name: str) -> None:
    """Show one patch or one GPU in detail.

    For a patch: what it does, what it gains and who measured that, its risks, and how to try it. For a GPU:
    its patches, and the facts in its profile. Each figure has its source.
    """
    catalogue = load_catalogue(settings.workspace().series)
    for patch in catalogue.patches:
        if name in {patch.id, patch.folder, f"{patch.number:04d}"}:
            doubts = _doubts(settings, patch, catalogue)
            document = {**_patch_document(patch, catalogue), "doubts": list(doubts)}
            series = settings.workspace().series
            settings.show_screen(
                document, partial(_draw_patch, patch=patch, catalogue=catalogue, series=series, doubts=doubts)
            )
            return
    for profile in catalogue.profiles:
        if name == profile.arch:
            settings.show_screen(
                _arch_document(profile, catalogue),
                partial(_draw_arch, profile=profile, catalogue=catalogue),
            )
            return
    known = [*(patch.id for patch in catalogue.patches), *(profile.arch for profile in catalogue.profiles)]
    raise UsageError(
        f"unknown patch{' or GPU' if catalogue.profiles else ''} '{name}'",
        code="SHOW_UNKNOWN",
        hint=near_miss(name, known, most=3) or "patchkit list",
    )


def _patch_document(patch: Patch, catalogue: Catalogue) -> dict[str, object]:
    return {
        "kind": "patch",
        "id": patch.id,
        "number": patch.number,
        "title": patch.title,
        "why": patch.why,
        "without": patch.without,
        "expected": patch.expected,
        "links": list(patch.links),
        "status": patch.status,
        "builds": patch.builds,
        "requires": patch.requires,
        "archs": _standings(patch, catalogue),
        "trust": _levels(patch, catalogue),
        "claims": patch.claims,
        "edits": [
            {
                "id": edit.id,
                "file": edit.file,
                "function": edit.function,
                "verb": edit.verb,
                "side": edit.side,
                "first_build": edit.first_build,
                "last_build": edit.last_build,
            }
            for edit in patch.edits
        ],
        "files": [new.path for new in patch.files],
        "removes": [file.path for file in patch.removes],
        "renames": [{"from": file.source, "to": file.to} for file in patch.renames],
        "modes": patch.modes,
        "where": str(patch.where),
    }


def _standings(patch: Patch, catalogue: Catalogue) -> dict[str, str]:
    rows = {profile.arch: catalogue.default_of(patch.id, profile.arch) for profile in catalogue.profiles}
    return {arch: standing for arch, standing in rows.items() if standing != "off"}


def _levels(patch: Patch, catalogue: Catalogue) -> dict[str, object]:
    """Return by GPU the level, the trust that it needs and a sentence, for the build that is described."""
    found: dict[str, object] = {}
    for profile in catalogue.profiles:
        terms = catalogue.terms(patch, profile)
        if terms.assessment.claims:
            found[profile.arch] = {
                "build": catalogue.label_build(patch),
                "level": terms.assessment.level,
                "needs": terms.needs,
                "default": terms.default,
                "sentence": terms.assessment.sentence(),
            }
    return found


def _doubts(settings: Settings, patch: Patch, catalogue: Catalogue) -> tuple[str, ...]:
    """Return where measurements contradict the timing model, from the last run of the speed gate."""
    if patch.speed is None or not any(claim.link.startswith("evidence/") for claim in patch.claims):
        return ()
    workspace = settings.workspace()
    return kept_doubts(patch, workspace.series, catalogue.lock, workspace.cache_root)


def _draw_patch(
    screen: Screen, *, patch: Patch, catalogue: Catalogue, series: SeriesDir, doubts: tuple[str, ...]
) -> None:
    screen.prose(f"{patch.id}: {patch.title}", role="heading")
    screen.heading("What it does")
    screen.paragraphs(patch.why or _NOT_WRITTEN, indent=2)
    _draw_gain(screen, patch, catalogue)
    _draw_risks(screen, patch, catalogue, doubts)
    _draw_trial(screen, patch, catalogue, series)
    _draw_details(screen, patch)


def _draw_gain(screen: Screen, patch: Patch, catalogue: Catalogue) -> None:
    """Add the expected effect, then each claim with its source."""
    screen.heading("What it gains, and who measured it")
    expected = patch.expected
    # A claim has its own figure and source, so these are not repeated.
    if expected.effect and all(claim.figure != expected.effect for claim in patch.claims):
        screen.prose(f"{expected.effect}.", indent=2)
    if expected.effect and not patch.claims:
        screen.prose(f"Source: {expected.source}.", indent=2, role="muted")
    elif not patch.claims:
        screen.prose(_NOT_WRITTEN, indent=2)
    build = build_name(catalogue.label_build(patch))
    for profile in catalogue.profiles:
        terms = catalogue.terms(patch, profile)
        if terms.assessment.claims:
            default = "enabled by default" if terms.default == "on" else STATES[terms.default]
            state = f"{profile.arch}, {build}: {default}, {describe_level(terms.assessment)}"
            screen.prose(state, indent=2, role=ROLES[terms.default])
    for claim in patch.claims:
        facts = [claim.on.isoformat()] if claim.on is not None else []
        facts += [build_name(claim.build)] if claim.build is not None else []
        facts += [f"up to {build_name(claim.last_build)}"] if claim.last_build is not None else []
        facts += ["a similar change"] if claim.indirect else []
        head = ", ".join([claim.who, f"{_KINDS[claim.kind]} {' '.join(claim.archs)}", *facts])
        says = "" if claim.says == "gain" else f" ({_SAYS[claim.says]})"
        screen.prose(f"- {head}{says}: {claim.figure}", indent=2, hang=2)
        if claim.note is not None:
            screen.prose(claim.note, indent=4)
        screen.prose(claim.link, indent=4, role="muted")


def _draw_risks(screen: Screen, patch: Patch, catalogue: Catalogue, doubts: tuple[str, ...]) -> None:
    screen.heading("Risks")
    risks = [f"The timing model is contradicted by measurements: {doubt}" for doubt in doubts]
    risks += [
        f"{claim.who} saw {_SAYS[claim.says]} on {' '.join(claim.archs)}: {claim.figure}"
        for claim in patch.claims
        if claim.says in ("loss", "mixed")
    ]
    levels = {catalogue.terms(patch, profile).assessment.level for profile in catalogue.profiles}
    if "modelled" in levels:
        risks.append("The gain is predicted by a timing model; no one has measured this patch on a GPU.")
    elif any(claim.indirect for claim in patch.claims):
        risks.append("Some of the measurements are of a similar change, not of this patch.")
    risks += [f"It needs the patch {need.patch}: {need.why}." for need in patch.requires]
    direct = {need.patch for need in patch.requires}
    indirect = [name for name in required_by(catalogue.series, [patch.id]) if name not in direct]
    risks += [f"Through {', '.join(sorted(direct))} it also needs {', '.join(indirect)}."] if indirect else []
    for risk in risks or ["No one has reported a loss."]:
        screen.prose(f"- {risk}", indent=2, hang=2)


def _draw_trial(screen: Screen, patch: Patch, catalogue: Catalogue, series: SeriesDir) -> None:
    """Add the commands that include or exclude the patch, for the GPU on which most is known about it."""
    standings = _standings(patch, catalogue)
    if not standings:
        return
    levels = {each.arch: catalogue.terms(patch, each).assessment.level for each in catalogue.profiles}
    known = {arch: LEVELS.index(level) if level else len(LEVELS) for arch, level in levels.items()}
    arch, state = min(standings.items(), key=lambda one: (one[1] != "on", known[one[0]]))
    needed = [*required_by(catalogue.series, [patch.id]), patch.id]
    build, default = catalogue.label_build(patch), catalogue.lock.pin().build
    words = ["patchkit", "apply", *arch_options([arch], series.profiles)]
    words += ["--upstream", build_name(build)] if build != default else []
    where = arch if build == default else f"{arch} on llama.cpp {build_name(build)}"
    screen.heading("How to try it")
    if state == "on":
        all_ = catalogue.series
        without = [each.id for each in catalogue.patches if patch.id in required_by(all_, [each.id])]
        without = [name for name in without if catalogue.default_of(name, arch) == "on"]
        screen.prose(f"It is on by default for {where}. To exclude it:", indent=2)
        screen.code("  " + shlex.join([*words, *_repeated("--without", [*without, patch.id])]))
    else:
        screen.prose(f"It is optional for {where}. To add it:", indent=2)
        screen.code("  " + shlex.join([*words, "--with", patch.id]))
        added = [name for name in needed[:-1] if catalogue.default_of(name, arch) != "on"]
        if added:
            screen.prose(f"This also adds {', '.join(added)}, which it requires.", indent=4)
    words[1] = "pick"
    screen.prose("To measure it on your machine:", indent=2)
    screen.code("  " + shlex.join([*words, *_repeated("--only", needed), "--model", "MODEL.gguf"]))


def _repeated(option: str, names: list[str]) -> list[str]:
    return [word for name in names for word in (option, name)]


def _switch(patch: Patch) -> str:
    if has_switch(patch):
        return f"GGML_PATCHES_OFF={patch.id} turns it off, if the branch has patch-switches"
    return "cannot be turned off: its code is compiled into upstream's kernels"


def _draw_details(screen: Screen, patch: Patch) -> None:
    screen.heading("Details")
    last = build_name(patch.builds.last) if patch.builds.last is not None else "the newest"
    screen.table(
        [
            *([("if missing", patch.without)] if patch.without else []),
            ("upstream", patch.upstream_text),
            ("builds", f"{build_name(patch.builds.first)} to {last}: {patch.builds.why}"),
            *([("at run time", _switch(patch))] if not patch.is_plain and patch.switches is None else []),
            ("file", str(patch.where)),
        ]
    )
    screen.heading("Edits")
    rows: list[tuple[Cell, ...]] = []
    for edit in patch.edits:
        where = f"{edit.function}, {edit.file}" if edit.function else edit.file
        rows.append((edit.id, f"{edit.verb} ({edit.side or 'every backend'}) in {where}{_builds(edit)}"))
    screen.table(rows)
    screen.code(*patch.format_files)
    if patch.links:
        screen.heading("Links")
        screen.code(*patch.links)


def _builds(part: Edit | NewFile) -> str:
    """Return the builds of a part that is not for all builds of its patch."""
    if part.first_build is None and part.last_build is None:
        return ""
    first = build_name(part.first_build) if part.first_build is not None else "the first build"
    return f", {first} to {build_name(part.last_build) if part.last_build is not None else 'the newest'}"


def _offered(profile: ArchProfile, catalogue: Catalogue) -> Iterator[tuple[Patch, Terms]]:
    """Yield the patches that are offered to the GPU or mentioned in its profile, with their terms."""
    for patch in catalogue.patches:
        terms = catalogue.terms(patch, profile)
        if (terms.is_offered and not patch.is_plain) or patch.id in profile.patches:
            yield patch, terms


def _arch_document(profile: ArchProfile, catalogue: Catalogue) -> dict[str, object]:
    return {
        "kind": "arch",
        "arch": profile.arch,
        "families": list(profile.families),
        "note": profile.note,
        "facts": profile.facts.by_name,
        "build": catalogue.lock.pin().build,
        "patches": {
            patch.id: {
                "default": terms.default,
                "needs": terms.needs,
                "why": terms.why,
                "builds": patch.builds,
                "build_label": catalogue.label_build(patch),
            }
            for patch, terms in _offered(profile, catalogue)
        },
        "cmake": dict(profile.build.cmake),
        "cmake_with_series": dict(profile.build.cmake_with_series),
        "where": str(profile.where),
    }


def _draw_arch(screen: Screen, *, profile: ArchProfile, catalogue: Catalogue) -> None:
    part = profile.facts.report("part")
    name = f"{profile.arch}{f' ({part.value})' if part else ''}"
    screen.prose(f"{name}, of the families {', '.join(profile.families)}", role="heading")
    screen.prose(profile.note.strip())
    build = catalogue.lock.pin().build
    offered = list(_offered(profile, catalogue))
    here = [(patch, terms) for patch, terms in offered if patch.builds.covers(build)]
    others = [(patch, terms) for patch, terms in offered if not patch.builds.covers(build)]
    screen.heading(f"Patches on llama.cpp {build_name(build)}, the default build")
    rows: list[tuple[Cell, ...]] = []
    for patch, terms in sorted(here, key=lambda one: list(ROLES).index(one[1].default)):
        role = ROLES[terms.default]
        rows.append(((patch.id, role), (STATES[terms.default], role), describe_level(terms.assessment)))
    screen.table(rows)
    if not rows:
        screen.code("none")
    else:
        screen.prose(f"patchkit list --arch {profile.arch} also shows their titles and gains.")
    if others:
        screen.heading("Patches for other builds only")
        rows = []
        for patch, terms in others:
            last = build_name(patch.builds.last) if patch.builds.last is not None else ""
            builds = f"{build_name(patch.builds.first)}-{last}"
            rows.append((patch.id, builds, STATES[terms.default], patch.title))
        screen.table(rows)
    screen.heading("CMake options")
    screen.code(_definitions(profile.build.cmake))
    if profile.build.cmake_with_series:
        for name, value in profile.build.cmake_with_series.items():
            users = [patch.id for patch, _ in offered if name in patch.macros]
            screen.prose(f"with {' or '.join(users) or 'a patch whose guard needs it'}:")
            screen.code(_definitions({name: value}))
    screen.heading("Facts, with their source (confidence high, unless noted)")
    rows = [
        (
            name,
            str(fact.value),
            fact.source + (f" (confidence: {fact.confidence})" if fact.confidence != "high" else ""),
        )
        for name, fact in profile.facts.by_name.items()
    ]
    screen.table(rows)
    screen.blank()
    screen.prose(f"profile: {profile.where}", role="muted")


def _definitions(options: Mapping[str, str]) -> str:
    return " ".join(f"-D{name}={value}" for name, value in options.items())
