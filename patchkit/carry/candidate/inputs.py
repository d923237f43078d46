"""The inputs of a result: sha256 of every file, and the patches that a bump dropped, as long as unchanged."""

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
"""series.toml, by its name among the inputs: a path below the series folder."""


def hash_inputs(profiles: Iterable[ArchProfile], folders: Iterable[str], series: SeriesDir) -> dict[str, str]:
    """sha256 by path below the series folder, for profiles and patch folders; works without planning.

    Raises LOCK_INPUT_UNUSABLE, and ConfigError if series.toml is invalid.
    """
    found = {
        f"arch_profiles/{path}": sha256 for profile in profiles for path, sha256 in profile.inputs.items()
    }
    found[RULES] = _sha256_of_rules(series.root / RULES)
    files = _files_below(series.templates)
    for folder in folders:
        files += _files_below(series.patches / folder)
    return dict(sorted((found | _hashed(files, series)).items()))


# Tables of series.toml that do not affect the bytes of a candidate: the gates required for publishing,
# watched forks, and the number of sources needed to trust a patch.
_NO_EFFECT_ON_BYTES = ("gates", "trust")


def _sha256_of_rules(path: Path) -> str:
    """sha256 over the parts of series.toml that affect candidates, independent of formatting."""
    table = {key: value for key, value in load_toml(path).table.items() if key not in _NO_EFFECT_ON_BYTES}
    faults = table.get("fault")
    if isinstance(
        faults, list
    ):  # signs in the code are for commits of a clone, which the lock does not record
        table["fault"] = [{key: value for key, value in each.items() if key != "code"} for each in faults]
    return key_of(table)


def _files_below(folder: Path) -> list[Path]:
    """Every file that a template may include; not editors' files, patchkit's own texts, or evidence."""
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
            why="every file next to a patch is an input of the lock, and the lock is text",
            hint="rename it, or move it out of the series",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}",
            code="LOCK_INPUT_UNUSABLE",
            where=Location(path=str(path)),
            why=f"every file next to a patch is an input of the lock: {error.strerror}",
            hint="make it readable, or move it out of the series",
        ) from error


def digest_of(inputs: Mapping[str, str]) -> str:
    """sha256 over paths and digests."""
    text = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"))
    return sha256(text)


def digest_today(series: SeriesDir, archs: Sequence[str], patches: Sequence[str]) -> str | None:
    """The current digest of these patches for these GPUs; None if the series lacks one of them.

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


def dropped_on(
    pin: Pin, archs: Sequence[str], series: Series, folder: SeriesDir, *, named: Collection[str] = ()
) -> dict[str, str]:
    """The patches that a bump dropped on a pin for these GPUs, each with the reason.

    A patch whose files have changed since, or that is ``named``, is not included, because it is tried again.

    Raises LOCK_INPUT_UNUSABLE.
    """
    found = {}
    for row in pin.dropped:
        patch = series.patch(row.patch)
        if patch is None or row.archs != tuple(sorted(archs)) or row.patch in named:
            continue
        if digest_of_patch(patch, folder) == row.digest:
            found[row.patch] = f"dropped at {pin.name} until its files change: {row.why}"
    return found
