"""Where the files of a series name a patch: other patches, known faults, and the profiles of GPUs."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, PatchkitError, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.series_folder import SeriesDir
from patchkit.base.toml import find_places, parse_toml
from patchkit.carry.lifting.tables import Part, join_text, split_text, without_tables
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import load_lock, write_lock

_DOING = "writing the series"


def require_not_required(series: Series, names: Collection[str]) -> None:
    """Raise AMEND_REFUSED if a patch that is not one of these requires one of them."""
    needed = [
        (patch, each)
        for patch in series.patches
        for each in patch.requires
        if each.patch in names and patch.id not in names
    ]
    if needed:
        users = list(dict.fromkeys(patch.id for patch, _ in needed))
        wanted = list(dict.fromkeys(each.patch for _, each in needed))
        raise UsageError(
            f"{', '.join(users)} {'requires' if len(users) == 1 else 'require'} {', '.join(wanted)}",
            code="AMEND_REFUSED",
            where=[each.where for _, each in needed],
            why="\n".join(f"{patch.id}: {each.why}" for patch, each in needed),
            hint=f"drop both: patchkit series drop {' '.join([*names, *users])}; or remove the [[requires]] "
            "if it is wrong",
        )


def remove_patches(series: SeriesDir, names: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove the folders of patches, and what names them in profiles, known faults and the lock.

    The results of the lock do not have them any more, so that a bump does not report them as lost.

    Returns the changed profiles and the ids of the changed faults. Raises PATCH_BAD and UNKNOWN_PATCH.
    """
    known = load_series(series.patches)
    for name in names:
        folder = series.patches / known.require(name).folder
        with disk_errors(folder, _DOING):
            shutil.rmtree(folder)
    profiles = dict.fromkeys(path for name in names for path in remove_from_profiles(series, name))
    faults = [fault for name in names for fault in rename_faults(series, name, None)]
    lock = load_lock(series.lock)
    if (without := lock.without_patches(names)) != lock:
        write_lock(series.lock, without)
    return tuple(profiles), tuple(faults)


def rename_faults(series: SeriesDir, old: str, new: str | None) -> tuple[str, ...]:
    """Let known faults that name ``old`` name ``new``, or no patch; return their ids. Raises PATCH_BAD."""
    path = series.patches / "series.toml"
    with disk_errors(path, "reading the series"):
        text = path.read_text("utf-8")
    rules = split_text(str(path), text)
    named = [part for part in rules.of("fault") if part.table.get("patch") == old]
    if named:
        parts = [_with(path, part, new) if part in named else part for part in rules.parts]
        write_whole(path, join_text(rules, rules.head, parts), _DOING)
    return tuple(str(part.table.get("id")) for part in named)


def rename_requirements(series: SeriesDir, folders: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    """Let the patches in some folders require ``new`` instead of ``old``; return the changed folders.

    A requirement that the patch has already, or that is the patch itself, is removed. Raises PATCH_BAD.
    """
    changed = []
    for folder in folders:
        path = series.patches / folder / "patch.toml"
        with disk_errors(path, "reading the patch"):
            text = path.read_text("utf-8")
        if old not in [
            each["patch"] for each in parse_toml(str(path), text.encode()).table.get("requires", ())
        ]:
            continue
        whole = split_text(str(path), text)
        has = {part.table.get("patch") for part in whole.of("requires")} | {folder[5:]}
        parts: list[Part] = []
        for part in whole.parts:
            if part.key != "requires" or part.table.get("patch") != old:
                parts.append(part)
            elif new not in has:
                parts.append(_with(path, part, new))
        if len(whole.of("requires")) == 0:
            raise without_tables(path)
        write_whole(path, join_text(whole, whole.head, parts), _DOING)
        changed.append(folder)
    return tuple(changed)


def _with(path: Path, part: Part, value: str | None) -> Part:
    try:
        return part.with_value("patch", value)
    except PatchkitError as error:
        error.where = (Location(path=str(path)),)
        raise


def profile_choices(series: SeriesDir, name: str) -> Iterator[tuple[Path, str]]:
    """The profiles that name a patch, each with the patch's ``default`` there."""
    for path in sorted(series.profiles.rglob("*.toml")) if series.profiles.is_dir() else ():
        with disk_errors(path, "reading the profile"):
            table = parse_toml(str(path), path.read_bytes()).table
        choice = table.get("patches", {}).get(name)
        if choice is not None:
            yield path, str(choice.get("default"))


def remove_from_profiles(series: SeriesDir, name: str) -> tuple[str, ...]:
    """Remove the line of a patch from every profile that has one; return their paths in the series.

    Raises PROFILE_NOT_WRITTEN if it is not one line below ``[patches]``.
    """
    return _change_profiles(series, name, None)


def copy_in_profiles(series: SeriesDir, name: str, new: str) -> tuple[str, ...]:
    """Give ``new`` the line of a patch in every profile that has one; return their paths in the series.

    Raises PROFILE_NOT_WRITTEN if it is not one line below ``[patches]``.
    """
    return _change_profiles(series, name, new)


def _change_profiles(series: SeriesDir, name: str, new: str | None) -> tuple[str, ...]:
    """Remove the lines of a patch, or add the same ones for ``new`` below them."""
    found = []
    for path, _ in profile_choices(series, name):
        data = path.read_bytes()
        table = dict(parse_toml(str(path), data).table)
        start = find_places(data)["patches", name]
        line = data.rfind(b"\n", 0, start) + 1
        end = data.find(b"\n", start) + 1 or len(data)
        own = data[line:end].rstrip(b"\n") + b"\n"
        if new is None:
            text = data[:line] + data[end:]
            table["patches"] = {key: value for key, value in table["patches"].items() if key != name}
        else:
            text = data[:line] + own + own.replace(name.encode(), new.encode(), 1) + data[end:]
            table["patches"] = {**table["patches"], new: table["patches"][name]}
        if not _means(path, text, table):
            what = f"remove the line of '{name}'" if new is None else f"add a line for '{new}'"
            raise ConfigError(
                f"cannot {what} in {path.name}",
                code="PROFILE_NOT_WRITTEN",
                where=Location(path=str(path), line=data.count(b"\n", 0, start) + 1),
                why=f"the line of '{name}' is not one line below [patches] with the whole value",
                hint="write it on one line, or change it by hand; then run the command again",
            )
        write_whole(path, text, _DOING)
        found.append(path.relative_to(series.root).as_posix())
    return tuple(found)


def _means(path: Path, text: bytes, table: Mapping[str, object]) -> bool:
    """Whether a text is TOML with exactly this content; ``path`` is only named."""
    try:
        return dict(parse_toml(str(path), text).table) == table
    except PatchkitError:
        return False
