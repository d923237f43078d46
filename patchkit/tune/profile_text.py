"""What a profile says already of a kernel's settings, in the tuner's words."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from patchkit.base.errors import ConfigError, Location
from patchkit.base.files import disk_errors
from patchkit.kernels.wmma import WmmaVariant
from patchkit.series.profile import ArchProfile, TunedWmma
from patchkit.tune.family import Family, Setting
from patchkit.tune.mmq import MmqFamily
from patchkit.tune.wmma import WmmaFamily, name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaLine:
    """One ``[[tuning.wmma]]`` table, the fields as the profile names them."""

    table: ClassVar[str] = "wmma"
    head_size: int
    ncols: int
    acc: str
    kq_stride: int
    nwarps: int
    min_waves: int
    source: str
    measured_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLine:
    """One ``[[tuning.tile]]`` table, the fields as the profile names them."""

    table: ClassVar[str] = "tile"
    head_size_k: int
    head_size_v: int
    ncols: int
    nthreads: int
    occupancy: int
    nbatch_fa: int
    nbatch_k: int
    source: str
    measured_on: str


Line = WmmaLine | TileLine


def row_text(row: Line) -> str:
    """The table of one row, ending with a line break."""
    lines = [f"[[tuning.{row.table}]]"]
    for name in _fields(row):
        value = getattr(row, name)
        lines.append(f"{name} = {value}" if isinstance(value, int) else f"{name} = {_quoted(value)}")
    return "\n".join(lines) + "\n"


def replace_rows(text: str, rows: Sequence[Line], where: str) -> str:
    """The profile's text with these rows, of one kernel, in place of those it has, where the first stood.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the result would not read as the profile with these rows.
    """
    table = rows[0].table
    kept, place = _without(text.splitlines(), table)
    tables = "\n".join(row_text(row) for row in rows).splitlines()
    before, after = kept[:place], kept[place:]
    while before and not before[-1].strip():
        before.pop()
    joined = [*before, "", *tables, *(["", *after] if any(line.strip() for line in after) else [])]
    made = "\n".join(joined).rstrip("\n") + "\n"
    _check(text, made, rows, table, where)
    return made


def write_profile(path: Path, rows: Sequence[Line]) -> bool:
    """Put the rows into the profile; whether that changed the file. It changes in one step or not at all.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the text cannot be changed so.
        CacheError: the disk refused.
    """
    with disk_errors(path, "writing the profile"):
        text = path.read_text("utf-8")
    made = replace_rows(text, rows, str(path))
    if made == text:
        return False
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with disk_errors(path, "writing the profile"):
            partial.write_text(made, "utf-8")
            partial.chmod(path.stat().st_mode & 0o777)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def _fields(row: Line) -> tuple[str, ...]:
    return tuple(each.name for each in fields(row))


def _without(lines: Sequence[str], table: str) -> tuple[list[str], int]:
    """The lines without the tables, and where the first of them began (the end when there is none)."""
    kept: list[str] = []
    place: int | None = None
    inside = False
    for line in lines:
        if line.lstrip().startswith("["):
            inside = line.strip() == f"[[tuning.{table}]]"
            if inside and place is None:
                place = len(kept)
        if not inside or line.lstrip().startswith("#"):
            kept.append(line)
    return kept, len(kept) if place is None else place


def _check(text: str, made: str, rows: Sequence[Line], table: str, where: str) -> None:
    wanted = [{name: getattr(row, name) for name in _fields(row)} for row in rows]
    try:
        old, new = tomllib.loads(text), tomllib.loads(made)
    except tomllib.TOMLDecodeError as error:
        raise _refused(where, f"it would not be TOML: {error}") from error
    if new.get("tuning", {}).get(table, []) != wanted:
        raise _refused(where, f"the rows are not together, or are not written as [[tuning.{table}]]")
    if dict(_others(old, table)) != dict(_others(new, table)):
        raise _refused(where, "something else of the profile would change")


def _others(document: dict[str, Any], table: str) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if name != "tuning":
            yield name, value
        elif rest := {other: rows for other, rows in value.items() if other != table}:
            yield name, rest


def _refused(where: str, why: str) -> ConfigError:
    return ConfigError(
        "the tuned rows cannot be put into the profile",
        code="TUNE_PROFILE_NOT_WRITTEN",
        where=Location(path=where),
        why=why,
        hint="put the rows that patchkit tune --json shows in by hand",
    )


def _quoted(text: str) -> str:
    r"""A TOML basic string: backslash, quote and control characters escaped."""
    out = "".join(
        f"\\u{ord(sign):04x}" if ord(sign) < 0x20 or ord(sign) == 0x7F else sign  # noqa: PLR2004 - ASCII
        for sign in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{out}"'


COMPILER_ONLY = "compiler for "  # how measured_on begins where no hardware was


def rows_by_variant(profile: ArchProfile) -> dict[str, TunedWmma]:
    """The rows of the rocWMMA kernel by the names of its variants."""
    return {name_of(WmmaVariant(row.head_size, row.ncols, row.acc)): row for row in profile.tuning.wmma}


def profile_settings(family: Family, profile: ArchProfile) -> Mapping[str, Setting]:
    """The settings that the profile has now, by variant; none where a patch leaves upstream's."""
    if isinstance(family, WmmaFamily):
        return {name: _setting(row, bounds=family.bounds) for name, row in rows_by_variant(profile).items()}
    if family.name == "tile":
        rows = {
            f"{row.head_size_k}-{row.ncols}": (row.nthreads, row.occupancy, row.nbatch_fa, row.nbatch_k)
            for row in profile.tuning.tile
            if row.head_size_k == row.head_size_v
        }
        return {variant: rows[variant] for variant in family.variants if variant in rows}
    if isinstance(family, MmqFamily):
        return {
            variant: (block.nthreads, block.occupancy)
            for variant, row in family.rows.items()
            for block in reversed(profile.tuning.mmq)  # the patch takes the first that fits
            if row.columns >= block.min_j
        }
    return {}


def measured_settings(family: Family, profile: ArchProfile) -> dict[str, Setting]:
    """The settings that a profile has from hardware; the others say that a compiler gave the figures."""
    if not isinstance(family, WmmaFamily):
        return {}
    return {
        name: _setting(row, bounds=family.bounds)
        for name, row in rows_by_variant(profile).items()
        if not row.measured_on.startswith(COMPILER_ONLY)
    }


def _setting(row: TunedWmma, *, bounds: bool) -> Setting:
    return (row.kq_stride, row.nwarps, row.min_waves) if bounds else (row.kq_stride, row.nwarps)
