"""The text of a patch.toml, or of series.toml, in parts: some tables change, all others keep every byte."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from patchkit.base.errors import ConfigError, Location, PatchkitError
from patchkit.base.toml import find_places, parse_toml
from patchkit.carry.lifting.change import Authorship
from patchkit.carry.lifting.write import short_title, toml_text, toml_word
from patchkit.carry.series.body import BODY_TABLES

_NEW = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One table of a patch.toml: its text with the comment lines above it, and its parsed content.

    ``number``: its position among the tables of the same ``key``. ``order``: its position in the text that it
    was split from; negative for a part from elsewhere.
    """

    key: str
    number: int
    text: str
    table: Mapping[str, Any]
    order: int = _NEW

    @property
    def comment(self) -> str:
        """The comment lines above the table."""
        lines = self.text.splitlines(keepends=True)
        return "".join(lines[: next(at for at, line in enumerate(lines) if line.startswith("["))])

    def moved(self) -> Part:
        """The part, to be written into another text, or at another position."""
        return replace(self, order=_NEW)

    def with_value(self, key: str, value: str | int | None, *, after: str = "") -> Part:
        """The part with another value for a key, or without the key; it must be on a line of its own.

        A key that the part does not have is written below that of ``after``. Raises PATCH_BAD if the lines
        cannot be changed.
        """
        line = _line_of(key)
        table = {name: each for name, each in self.table.items() if name != key}
        new = "" if value is None else f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"

        def changed(found: re.Match[str]) -> str:
            rest = f"  {found['rest']}" if found["rest"] and new else ""
            return f"{new}{rest}\n" if new else ""

        if key in self.table or not after:
            text = line.sub(changed, self.text, count=1)
        else:
            text = _line_of(after).sub(lambda found: f"{found[0].rstrip()}\n{new}\n", self.text, count=1)
        wanted = table if value is None else {**self.table, key: value}
        try:
            (found,) = split_text("", text).parts
        except (PatchkitError, ValueError):
            found = self
        if found.table != wanted:
            raise _unwritable("", 0, f"'{key}' of a [[{self.key}]] has to be on a line of its own")
        return replace(self, text=text, table=wanted)


def _line_of(key: str) -> re.Pattern[str]:
    """The line of a key whose value is a string or a number."""
    value = r"""(?:"[^"\\\n]*"|'[^'\n]*'|[0-9]+)"""
    return re.compile(rf"^{key}[ \t]*=[ \t]*{value}[ \t]*(?P<rest>#.*)?\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchText:
    """The text of a patch.toml: the ``head`` above the first table, and the tables in order."""

    path: str
    head: str
    parts: tuple[Part, ...]

    def of(self, *keys: str) -> tuple[Part, ...]:
        """The parts with one of these keys."""
        return tuple(part for part in self.parts if part.key in keys)


def split_text(path: str, text: str) -> PatchText:
    """The parts of a valid patch.toml.

    Raises ConfigError for invalid TOML, PATCH_BAD if an edit or a file is not a table with a header.
    """
    data = text.encode()
    table = parse_toml(path, data).table
    places = find_places(data)
    starts: list[tuple[int, str, int, Mapping[str, Any]]] = []
    for key, value in table.items():
        several = value if isinstance(value, list) else [value]
        for number, each in enumerate(several):
            if not isinstance(each, Mapping):
                continue
            place = places.get((key, number) if isinstance(value, list) else (key,))
            start = data.rfind(b"\n", 0, place) + 1 if place is not None else 0
            if place is None or not data.startswith(b"[", start):
                if key in BODY_TABLES:
                    raise _unwritable(
                        path, data.count(b"\n", 0, place) + 1, f"write it as [[{key}]] on its own line"
                    )
                continue  # an inline table of the head
            starts.append((start, key, number, each))
    starts.sort(key=lambda each: each[0])
    cuts = [_with_comment(data, start) for start, *_ in starts]
    ends = [*cuts[1:], len(data)][: len(cuts)]
    parts = [
        Part(key=key, number=number, text=data[cut:end].decode(), table=each, order=order)
        for order, (cut, end, (_, key, number, each)) in enumerate(zip(cuts, ends, starts, strict=True))
    ]
    head = data[: cuts[0] if cuts else len(data)].decode()
    return PatchText(path=path, head=head, parts=tuple(parts))


def with_commit(text: str, by: Authorship, *, title: bool) -> str:
    """A patch.toml with the author, date and message of a commit; with ``title``, also its title.

    Raises PATCH_BAD if single tables of it cannot be changed.
    """
    old = split_text("patch.toml", text)
    document = tomlkit.parse(old.head)
    if title:
        document["title"] = short_title(by.subject)
    document.pop("why", None)
    head = tomlkit.dumps(document)
    if by.message:
        lines = head.splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines, 1) if line.startswith("title"))
        head = "".join([*lines[:at], f"why = {toml_text(by.message)}\n", *lines[at:]])
    table = by.original
    words = "".join(f"{key} = {toml_word(value)}\n" for key, value in table.items())
    parts = [
        replace(part, text=f"{part.comment}[commit]\n{words}\n", table=table)
        if part.key == "commit"
        else part
        for part in old.parts
    ]
    return join_text(old, head, parts)


def _with_comment(data: bytes, start: int) -> int:
    """The start of the comment lines right above a line."""
    while start > 0:
        above = data.rfind(b"\n", 0, start - 1) + 1
        if not data.startswith(b"#", above):
            return start
        start = above
    return start


def join_text(old: PatchText, head: str, parts: Sequence[Part]) -> str:
    """A patch.toml of these parts; ``old`` is the text that the parts with an order were split from.

    Raises PATCH_BAD if the result does not have exactly these tables.
    """
    text = head
    last: Part | None = None
    for part in parts:
        follows = part.order == (last.order + 1 if last is not None else 0) and part.order != _NEW
        if not follows:
            text = text.rstrip("\n") + "\n\n" if text.strip() else ""
        text += part.text
        last = part
    if last is None or last.order != len(old.parts) - 1:
        text = text.rstrip("\n") + "\n"
    found = split_text(old.path, text)
    wanted: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        wanted.setdefault(part.key, []).append(part.table)
    is_same = all([part.table for part in found.of(key)] == tables for key, tables in wanted.items())
    if not is_same or len(found.parts) != len(parts):
        raise _unwritable(old.path, 1, "its tables cannot be changed one by one as they are written")
    return text


def _unwritable(path: str, line: int, why: str) -> ConfigError:
    return ConfigError(
        "cannot change single tables of this file",
        code="PATCH_BAD",
        where=Location(path=path, line=line or None) if path else None,
        why=why,
        hint="rewrite its tables with one header each, on a line of its own",
    )


def without_tables(path: Path) -> ConfigError:
    """The PATCH_BAD for a patch.toml whose requirements are not ``[[requires]]`` tables."""
    return ConfigError(
        f"cannot change what '{path.parent.name[5:]}' requires",
        code="PATCH_BAD",
        where=Location(path=str(path)),
        why="its requirements are not [[requires]] tables",
        hint="write each as a [[requires]] table",
    )
