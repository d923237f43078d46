"""Tuned rows in the text of a profile: put in place of the old ones, everything else kept as it stands."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from patchkit.base.errors import ConfigError, Location
from patchkit.base.files import disk_errors
from patchkit.tune.family import Row


def row_text(table: str, row: Row) -> str:
    """The ``[[tuning.<table>]]`` of one row, ending with a line break."""
    lines = [f"{name} = {tomlkit.item(value).as_string()}" for name, value in row.items()]
    return "\n".join([f"[[tuning.{table}]]", *lines, ""])


def replace_rows(text: str, table: str, rows: Sequence[Row], where: str) -> str:
    """The profile's text with these rows of ``table`` in place of those it has, where the first stood.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the result would not read as the profile with these rows.
    """
    kept, place = _without(text.splitlines(), table)
    tables = "\n".join(row_text(table, row) for row in rows).splitlines()
    before, after = kept[:place], kept[place:]
    while before and not before[-1].strip():
        before.pop()
    joined = [*before, "", *tables, *(["", *after] if any(line.strip() for line in after) else [])]
    made = "\n".join(joined).rstrip("\n") + "\n"
    _check(text, made, table, rows, where)
    return made


def write_profile(path: Path, table: str, rows: Sequence[Row]) -> bool:
    """Put the rows into the profile; whether that changed the file. It changes in one step or not at all.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the text cannot be changed so.
        CacheError: the disk refused.
    """
    with disk_errors(path, "writing the profile"):
        text = path.read_text("utf-8")
    made = replace_rows(text, table, rows, str(path))
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


def _check(text: str, made: str, table: str, rows: Sequence[Row], where: str) -> None:
    try:
        old, new = tomllib.loads(text), tomllib.loads(made)
    except tomllib.TOMLDecodeError as error:
        raise _refused(where, f"it would not be TOML: {error}") from error
    if new.get("tuning", {}).get(table, []) != list(rows):
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
