"""``patchkit list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.flow.listing import Catalogue

__all__ = ["command"]


@verb("list", example=("patchkit list", "patchkit list --json"))
def command(settings: Settings) -> None:
    """List the patches of the series in order, and the GPUs with what is on for each."""
    from patchkit.flow.listing import load_catalogue

    catalogue = load_catalogue(settings.workspace().series)
    if settings.json:
        settings.terminal.document(_document(catalogue))
    else:
        settings.terminal.data(_text(catalogue))


def _document(catalogue: Catalogue) -> dict[str, object]:
    return {
        "patches": [
            {"id": patch.id, "number": patch.number, "title": patch.title, "status": patch.status}
            for patch in catalogue.patches
        ],
        "archs": [
            {
                "arch": profile.arch,
                "families": list(profile.families),
                "patches": {
                    patch.id: catalogue.standing(patch.id, profile.arch) for patch in catalogue.patches
                },
            }
            for profile in catalogue.profiles
        ],
    }


def _text(catalogue: Catalogue) -> str:
    lines = [f"{patch.number:04d}  {patch.id:<20}  {patch.title}" for patch in catalogue.patches]
    lines.append("")
    for profile in catalogue.profiles:
        part = profile.facts.report("part")
        on = len(profile.patches_by_default("on"))
        opt_in = len(profile.patches_by_default("opt-in"))
        standing = [f"{on} on"] * bool(on) + [f"{opt_in} opt-in"] * bool(opt_in)
        patches = ", ".join(standing) or "none"
        lines.append(f"{profile.arch:<8}  {patches:<10}  {part.value if part else ''}")
    return "\n".join(lines)
