"""``patchkit show``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from patchkit.base.errors import UsageError
from patchkit.base.text import near_miss
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.listing import Catalogue, load_catalogue
from patchkit.carry.series.patch import Edit, NewFile, Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.series.selection import Terms
from patchkit.cli.completing import patches_and_gpus
from patchkit.cli.settings import Settings, verb
from patchkit.prove.gates.speed import kept_doubts

_NOT_SAID = "not said yet"


@verb("show", example=("patchkit show fattn-keep-gqa-tiles", "patchkit show gfx1151"))
@click.argument("name", metavar="PATCH|ARCH", shell_complete=patches_and_gpus)
def command(settings: Settings, name: str) -> None:
    """Show one patch or one GPU in full: why, expected effect, facts, and the source of each figure."""
    catalogue = load_catalogue(settings.workspace().series)
    for patch in catalogue.patches:
        if name in {patch.id, patch.folder, f"{patch.number:04d}"}:
            doubts = _doubts(settings, patch, catalogue)
            document = {**_patch_document(patch, catalogue), "doubts": list(doubts)}
            settings.show(document, _patch_lines(patch, catalogue, doubts))
            return
    for profile in catalogue.profiles:
        if name == profile.arch:
            settings.show(_arch_document(profile, catalogue), _arch_lines(profile, catalogue))
            return
    known = [*(patch.id for patch in catalogue.patches), *(profile.arch for profile in catalogue.profiles)]
    raise UsageError(
        f"there is no patch{' and no GPU' if catalogue.profiles else ''} '{name}'",
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
    """By GPU: the level, the trust that it takes, and one sentence; of the build that it is told for."""
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


def _claim_lines(patch: Patch, catalogue: Catalogue) -> Iterator[str]:
    """What is known, by whom, on what: per GPU what it comes to, then each claim."""
    if not patch.claims:
        return
    yield f"trust at {build_name(catalogue.label_build(patch))}:"
    for profile in catalogue.profiles:
        terms = catalogue.terms(patch, profile)
        if terms.assessment.claims:
            yield f"  {profile.arch} {terms.default}: {terms.assessment.sentence()}"
    yield "claims:"
    for claim in patch.claims:
        told = [" ".join(claim.archs), claim.kind + (", indirect" if claim.indirect else ""), claim.says]
        told += [build_name(claim.build)] if claim.build is not None else []
        told += [f"up to {build_name(claim.last_build)}"] if claim.last_build is not None else []
        told += [claim.on.isoformat()] if claim.on is not None else []
        yield f"  {claim.who} ({', '.join(told)}): {claim.figure}"
        yield from (f"    {line}" for line in (claim.note, claim.link) if line is not None)


def _doubts(settings: Settings, patch: Patch, catalogue: Catalogue) -> tuple[str, ...]:
    """Where machines measured something else than the timing model says, by gate speed's last word."""
    if patch.speed is None or not any(claim.link.startswith("evidence/") for claim in patch.claims):
        return ()
    workspace = settings.workspace()
    return kept_doubts(patch, workspace.series, catalogue.lock, workspace.cache_root)


def _patch_lines(patch: Patch, catalogue: Catalogue, doubts: tuple[str, ...]) -> Iterator[str]:
    last = patch.builds.last if patch.builds.last is not None else "..."
    standings = ", ".join(f"{arch} {standing}" for arch, standing in _standings(patch, catalogue).items())
    yield f"{patch.number:04d} {patch.id}: {patch.title}"
    yield f"  {patch.where}"
    yield ""
    yield from _paragraph("why", patch.why or _NOT_SAID)
    yield from _paragraph("without it", patch.without or _NOT_SAID)
    expected = f"{patch.expected.effect} (source: {patch.expected.source})"
    yield from _paragraph("expected", expected if patch.expected.effect else _NOT_SAID)
    builds = f"builds {patch.builds.first} to {last}: {patch.builds.why}"
    yield from _paragraph("upstream", f"{patch.upstream_text}; {builds}")
    for need in patch.requires:
        yield from _paragraph("needs", f"{need.patch}: {need.why}")
    if catalogue.profiles:
        told = catalogue.label_build(patch)
        at = f"at {build_name(told)}: " if standings and told != catalogue.lock.default else ""
        yield from _paragraph("GPUs", f"{at}{standings}" or "none")
    yield from _claim_lines(patch, catalogue)
    yield from (f"the timing model is doubted: {doubt}" for doubt in doubts)
    yield "edits:"
    for edit in patch.edits:
        where = f"{edit.function or 'the file'}, {edit.file}"
        yield f"  {edit.id}: {edit.verb} ({edit.side or 'every build'}) in {where}{_builds(edit)}"
    yield from (f"  {line}" for line in patch.format_files)
    if patch.links:
        yield "links:"
    yield from (f"  {link}" for link in patch.links)


def _builds(part: Edit | NewFile) -> str:
    """The builds of a part that is not for all those of its patch."""
    if part.first_build is None and part.last_build is None:
        return ""
    first = build_name(part.first_build) if part.first_build is not None else "the first build"
    return f", {first} to {build_name(part.last_build) if part.last_build is not None else 'the newest'}"


def _paragraph(name: str, text: str) -> list[str]:
    return [f"{name}:", *(f"  {line}" for line in text.split("\n"))]


def _offered(profile: ArchProfile, catalogue: Catalogue) -> Iterator[tuple[Patch, Terms]]:
    """The patches that the GPU is offered, or that its profile speaks of."""
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
        "build": catalogue.lock.default,
        "patches": {
            patch.id: {
                "default": terms.default,
                "needs": terms.needs,
                "why": terms.why,
                "builds": patch.builds,
                "told_build": catalogue.label_build(patch),
            }
            for patch, terms in _offered(profile, catalogue)
        },
        "cmake": dict(profile.build.cmake),
        "cmake_with_series": dict(profile.build.cmake_with_series),
        "where": str(profile.where),
    }


def _arch_lines(profile: ArchProfile, catalogue: Catalogue) -> Iterator[str]:
    yield f"{profile.arch} ({' < '.join(profile.families)})"
    yield f"  {profile.where}"
    yield from ("", profile.note.strip(), "", "facts:")
    for name, fact in profile.facts.by_name.items():
        yield f"  {name:<24} {fact.value!s:<14} {fact.confidence:<6}  {fact.source}"
    build = catalogue.lock.default
    offered = list(_offered(profile, catalogue))
    here = [(patch, terms) for patch, terms in offered if patch.builds.covers(build)]
    others = [(patch, terms) for patch, terms in offered if not patch.builds.covers(build)]
    yield from ("", f"patches at {build_name(build)}, the default:")
    for patch, terms in here:
        yield f"  {patch.id:<23} {terms.default:<6}  {terms.why}"
    if not here:
        yield "  none"
    if others:
        yield from ("", "patches for other builds only:")
    for patch, terms in others:
        last = build_name(patch.builds.last) if patch.builds.last is not None else ""
        builds = f"{build_name(patch.builds.first)}-{last}"
        yield f"  {patch.id:<23} {builds:<13} {terms.default:<6}  {terms.why}"
    yield from ("", f"cmake: {_definitions(profile.build.cmake)}")
    if profile.build.cmake_with_series:
        yield f"with patches whose guard needs it: {_definitions(profile.build.cmake_with_series)}"


def _definitions(options: Mapping[str, str]) -> str:
    return " ".join(f"-D{name}={value}" for name, value in options.items())
