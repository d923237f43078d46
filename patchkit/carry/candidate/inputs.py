"""What a result is made of: sha256 of every file, and the patches that a bump left out as they were then."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import ConfigError, Location
from patchkit.base.files import file_sha256
from patchkit.base.series_folder import SeriesDir, is_no_template
from patchkit.base.toml import load_toml
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, load_profiles

RULES = "patches/series.toml"
"""The rules of the series, by the name that inputs have: a path below the series folder."""


def hash_inputs(profiles: Iterable[ArchProfile], folders: Iterable[str], series: SeriesDir) -> dict[str, str]:
    """sha256 by path below the series folder, of profiles and folders of patches: no planning is needed.

    Raises LOCK_INPUT_UNUSABLE, and ConfigError where series.toml is none.
    """
    found = {
        f"arch_profiles/{path}": sha256 for profile in profiles for path, sha256 in profile.inputs.items()
    }
    found[RULES] = _sha256_of_rules(series.root / RULES)
    files = _files_below(series.templates)
    for folder in folders:
        files += _files_below(series.patches / folder)
    return dict(sorted((found | _hashed(files, series)).items()))


# Tables of series.toml that decide no byte of a candidate: what it must have passed before it is published,
# which forks are told of beside its patches, and how many sources a patch needs to be in it at all.
_SAYS_NO_BYTE = ("gates", "watch", "trust")


def _sha256_of_rules(path: Path) -> str:
    """sha256 over what series.toml says of candidates, however it is written."""
    table = {key: value for key, value in load_toml(path).table.items() if key not in _SAYS_NO_BYTE}
    return key_of(table)


def _files_below(folder: Path) -> list[Path]:
    """Every file a template may include: not an editor's, what patchkit itself writes, or evidence."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not is_no_template(path, folder))


def _hashed(files: Iterable[Path], series: SeriesDir) -> dict[str, str]:
    return {path.relative_to(series.root).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    try:
        str(path).encode("utf-8")
        return file_sha256(path)
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the name of {str(path)!r} is not UTF-8",
            code="LOCK_INPUT_UNUSABLE",
            where=Location(path=str(path)),
            why="every file beside a patch is an input of the lock, and the lock is text",
            hint="rename it, or move it out of the series",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}",
            code="LOCK_INPUT_UNUSABLE",
            where=Location(path=str(path)),
            why=f"every file beside a patch is an input of the lock: {error.strerror}",
            hint="make it readable, or move it out of the series",
        ) from error


def digest_of(inputs: Mapping[str, str]) -> str:
    """sha256 over paths and digests."""
    text = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"))
    return sha256(text)


def digest_today(series: SeriesDir, archs: Sequence[str], patches: Sequence[str]) -> str | None:
    """The digest that these patches for these GPUs have now; None when the series lacks one of them.

    Raises the errors of reading the series and the profiles, LOCK_INPUT_UNUSABLE.
    """
    known = {patch.id: patch for patch in load_series(series.patches).patches}
    if not known.keys() >= set(patches):
        return None
    folders = [known[name].folder for name in patches]
    return digest_of(hash_inputs(load_profiles(series.profiles, archs), folders, series))


def digest_of_patch(patch: Patch, series: SeriesDir) -> str:
    """The digest of the patch's own files and the shared templates. Raises LOCK_INPUT_UNUSABLE."""
    files = _files_below(series.patches / patch.folder) + _files_below(series.templates)
    return digest_of(_hashed(files, series))


def left_out_on(
    pin: Pin, archs: Sequence[str], series: Series, folder: SeriesDir, *, named: Collection[str] = ()
) -> dict[str, str]:
    """Why each patch is left out on a pin that a bump left out there: for these GPUs, and until it is mended.

    One whose files changed since is not among them, nor one that is ``named``: both are tried again.

    Raises LOCK_INPUT_UNUSABLE.
    """
    found = {}
    for row in pin.left_out:
        patch = series.patch(row.patch)
        if patch is None or row.archs != tuple(sorted(archs)) or row.patch in named:
            continue
        if digest_of_patch(patch, folder) == row.digest:
            found[row.patch] = f"left out at {pin.name} until its files change: {row.why}"
    return found
