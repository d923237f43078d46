"""``patchkit show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchkit.base.errors import UsageError
from patchkit.cli.commands import near_misses
from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from patchkit.candidate.listing import Catalogue
    from patchkit.series.patch import Edit, Patch
    from patchkit.series.profile import ArchProfile


@verb("show", example=("patchkit show tile-unprune", "patchkit show gfx1151"))
@click.argument("name", metavar="PATCH|ARCH")
def command(settings: Settings, name: str) -> None:
    """Show one patch or one GPU in full: why, expected effect, facts, and the source of each figure."""
    from patchkit.candidate.listing import load_catalogue

    catalogue = load_catalogue(settings.workspace().series)
    terminal = settings.terminal
    for patch in catalogue.patches:
        if name in {patch.id, patch.folder, f"{patch.number:04d}"}:
            if settings.json:
                terminal.document(_patch_document(patch, catalogue))
            else:
                terminal.data(_patch_text(patch, catalogue))
            return
    for profile in catalogue.profiles:
        if name == profile.arch:
            if settings.json:
                terminal.document(_arch_document(profile))
            else:
                terminal.data(_arch_text(profile))
            return
    known = [*(patch.id for patch in catalogue.patches), *(profile.arch for profile in catalogue.profiles)]
    raise UsageError(
        f"there is no patch and no GPU '{name}'",
        code="SHOW_UNKNOWN",
        hint=near_misses(name, known) or "patchkit list",
    )


def _patch_document(patch: Patch, catalogue: Catalogue) -> dict[str, object]:
    return {
        "kind": "patch",
        "id": patch.id,
        "number": patch.number,
        "title": patch.title,
        "why": patch.why,
        "without": patch.without,
        "expected": {"effect": patch.expected.effect, "source": patch.expected.source},
        "links": list(patch.links),
        "status": patch.status,
        "builds": {"first": patch.builds.first, "last": patch.builds.last, "why": patch.builds.why},
        "requires": [{"patch": need.patch, "why": need.why} for need in patch.requires],
        "archs": _standings(patch, catalogue),
        "edits": [
            {
                "id": edit.id,
                "file": edit.file,
                "function": edit.function,
                "verb": edit.verb,
                "side": edit.side,
            }
            for edit in patch.edits
        ],
        "files": [new.path for new in patch.files],
        "where": str(patch.where),
    }


def _standings(patch: Patch, catalogue: Catalogue) -> dict[str, str]:
    rows = {profile.arch: catalogue.standing(patch.id, profile.arch) for profile in catalogue.profiles}
    return {arch: standing for arch, standing in rows.items() if standing != "off"}


def _patch_text(patch: Patch, catalogue: Catalogue) -> str:
    last = patch.builds.last if patch.builds.last is not None else "..."
    lines = [
        f"{patch.number:04d} {patch.id}: {patch.title}",
        f"  {patch.where}",
        "",
        *_paragraph("why", patch.why),
        *_paragraph("without it", patch.without),
        *_paragraph("expected", f"{patch.expected.effect} (source: {patch.expected.source})"),
        *_paragraph(
            "upstream", f"{patch.standing}; builds {patch.builds.first} to {last}: {patch.builds.why}"
        ),
    ]
    for need in patch.requires:
        lines += _paragraph("needs", f"{need.patch}: {need.why}")
    standings = ", ".join(f"{arch} {standing}" for arch, standing in _standings(patch, catalogue).items())
    lines += _paragraph("GPUs", standings or "none")
    lines += ["edits:", *(f"  {_edit(edit)}" for edit in patch.edits)]
    lines += [f"  new file {new.path}" for new in patch.files]
    lines += ["links:", *(f"  {link}" for link in patch.links)]
    return "\n".join(lines)


def _edit(edit: Edit) -> str:
    return f"{edit.id}: {edit.verb} ({edit.side}) in {edit.function or 'the file'}, {edit.file}"


def _paragraph(name: str, text: str) -> list[str]:
    return [f"{name}:", *(f"  {line}" for line in text.split("\n"))]


def _arch_document(profile: ArchProfile) -> dict[str, object]:
    return {
        "kind": "arch",
        "arch": profile.arch,
        "families": list(profile.families),
        "note": profile.note,
        "facts": {
            name: {
                "value": fact.value,
                "source": fact.source,
                "confidence": fact.confidence,
                "note": fact.note,
                "where": str(fact.where),
            }
            for name, fact in profile.facts.by_name.items()
        },
        "patches": {
            name: {"default": choice.default, "why": choice.why, "source": choice.source}
            for name, choice in profile.patches.items()
        },
        "cmake": dict(profile.build.cmake),
        "cmake_with_series": dict(profile.build.cmake_with_series),
        "where": str(profile.where),
    }


def _arch_text(profile: ArchProfile) -> str:
    lines = [
        f"{profile.arch} ({' < '.join(profile.families)})",
        f"  {profile.where}",
        "",
        profile.note.strip(),
    ]
    lines += ["", "facts:"]
    for name, fact in profile.facts.by_name.items():
        lines.append(f"  {name:<24} {fact.value!s:<14} {fact.confidence:<6}  {fact.source}")
    lines += ["", "patches:"]
    lines += [f"  {name:<20} {choice.default:<6}  {choice.why}" for name, choice in profile.patches.items()]
    lines += [] if profile.patches else ["  none"]
    lines += ["", f"cmake: {_definitions(profile.build.cmake)}"]
    if profile.build.cmake_with_series:
        lines.append(f"with patches whose guard needs it: {_definitions(profile.build.cmake_with_series)}")
    return "\n".join(lines)


def _definitions(options: Mapping[str, str]) -> str:
    return " ".join(f"-D{name}={value}" for name, value in options.items())
