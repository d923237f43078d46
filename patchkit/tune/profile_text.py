"""Replaces tuned rows in the text of a profile; all other text is unchanged."""

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
    """The text of one row, ``[[tuning.<table>]]`` and its keys, ending with a newline."""
    lines = [f"{name} = {tomlkit.item(value).as_string()}" for name, value in row.items()]
    return "\n".join([f"[[tuning.{table}]]", *lines, ""])


def replace_rows(text: str, table: str, rows: Sequence[Row], where: str) -> str:
    """Replace all rows of ``table`` in a profile's text, at the position of the first.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the result would not parse as the profile with these rows.
    """
    kept, place = _without(text.splitlines(), table)
    tables = "\n".join(row_text(table, row) for row in rows).splitlines()
    before, after = kept[:place], kept[place:]
    while before and not before[-1].strip():
        before.pop()
    joined = [*before, "", *tables, *(["", *after] if any(line.strip() for line in after) else [])]
    changed = "\n".join(joined).rstrip("\n") + "\n"
    _check(text, changed, table, rows, where)
    return changed


def write_profile(path: Path, table: str, rows: Sequence[Row]) -> bool:
    """Write the rows to the profile (atomically); returns whether the file changed.

    Raises:
        TUNE_PROFILE_NOT_WRITTEN: the text cannot be changed safely.
        CacheError: a disk operation failed.
    """
    with disk_errors(path, "writing the profile"):
        text = path.read_text("utf-8")
    changed = replace_rows(text, table, rows, str(path))
    if changed == text:
        return False
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with disk_errors(path, "writing the profile"):
            partial.write_text(changed, "utf-8")
            partial.chmod(path.stat().st_mode & 0o777)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def _without(lines: Sequence[str], table: str) -> tuple[list[str], int]:
    """The lines without the rows of ``table``, and the index of the first row (the end if there is none)."""
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


def _check(text: str, changed: str, table: str, rows: Sequence[Row], where: str) -> None:
    try:
        old, new = tomllib.loads(text), tomllib.loads(changed)
    except tomllib.TOMLDecodeError as error:
        raise _refused(where, f"the result would not be valid TOML: {error}") from error
    if new.get("tuning", {}).get(table, []) != list(rows):
        raise _refused(where, f"the rows are not consecutive, or are not written as [[tuning.{table}]]")
    if dict(_others(old, table)) != dict(_others(new, table)):
        raise _refused(where, "other parts of the profile would change")


def _others(document: dict[str, Any], table: str) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if name != "tuning":
            yield name, value
        elif rest := {other: rows for other, rows in value.items() if other != table}:
            yield name, rest


def _refused(where: str, why: str) -> ConfigError:
    return ConfigError(
        "cannot write the tuned rows to the profile",
        code="TUNE_PROFILE_NOT_WRITTEN",
        where=Location(path=where),
        why=why,
        hint="insert the rows by hand; patchkit tune --json prints them",
    )
