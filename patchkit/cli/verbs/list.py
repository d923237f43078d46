"""``patchkit list``."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.listing import Catalogue, load_catalogue
from patchkit.carry.series.patch import Patch
from patchkit.cli.settings import Settings, verb


@verb("list", example=("patchkit list", "patchkit list --json"))
def command(settings: Settings) -> None:
    """List the patches of the series in order, and the GPUs, where it has any, with what is on for each."""
    catalogue = load_catalogue(settings.workspace().series)
    settings.show(_document(catalogue), _lines(catalogue), fit=True)


def _document(catalogue: Catalogue) -> dict[str, object]:
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
            for profile in catalogue.profiles
        ],
    }


def _lines(catalogue: Catalogue) -> Iterator[str]:
    wide = max((len(patch.id) for patch in catalogue.patches), default=0)
    for patch in catalogue.patches:
        yield f"{patch.number:04d}  {patch.id:<{wide}}  {_builds(patch):<13}  {patch.title}"
    if not catalogue.profiles:
        return
    yield ""
    yield f"of the patches for {catalogue.lock.pin(None).title}, the default:"
    told = {profile.arch: _standings(catalogue, profile.arch) for profile in catalogue.profiles}
    wide = max(map(len, told.values()), default=0)
    for profile in catalogue.profiles:
        part = profile.facts.report("part")
        yield f"{profile.arch:<8}  {told[profile.arch]:<{wide}}  {part.value if part else ''}"


def _standings(catalogue: Catalogue, arch: str) -> str:
    counts = ((catalogue.count(standing, arch), standing) for standing in ("on", "opt-in"))
    return ", ".join(f"{count} {standing}" for count, standing in counts if count) or "none"


def _builds(patch: Patch) -> str:
    return f"{build_name(patch.builds.first)}-" + (
        build_name(patch.builds.last) if patch.builds.last is not None else ""
    )
