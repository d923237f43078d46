"""What the texts of a patch.toml may hold: they become commit messages, mails and lines of a terminal.

Vocabulary: *prose* is what a person wrote for a person (why, without, effect); it may have several
lines and is wrapped again. *Code* is templates and patterns. Everything else is one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from patchkit.config.places import KeyPath
from patchkit.config.toml import Document
from patchkit.errors import ConfigError
from patchkit.visible import orders_in

BREAKS_MAIL = re.compile(
    r"---|diff -|index:|>?from[ :]|subject:|date:|message-id:|content-|\[patch\]", re.IGNORECASE
)
"""How a line must not begin: git am would take it for the start of the diff or for a header.

From git's mailinfo.c: patchbreak() and check_inbody_header().
"""

_PROSE: frozenset[KeyPath] = frozenset({("why",), ("without",), ("expected", "effect")})
_CODE_KEYS = frozenset({"text", "at", "parameters"})
_SEVERAL_LINES = frozenset("\n\t")


def check_texts(document: Document) -> Iterator[ConfigError]:
    """Every string of a valid patch.toml that could not become what it is for."""
    for path, text in _strings(document.table, ()):
        allowed = _SEVERAL_LINES if path in _PROSE or _is_code(path) else frozenset()
        bad = next((char for char in orders_in(text) if char not in allowed), None)
        if bad is not None:
            yield ConfigError(
                f"{_name(path)} holds the control character U+{ord(bad):04X}",
                code="PATCH_CONTROL_CHARACTER",
                where=document.locate(path),
                why="only why, without, effect and the text of an edit have several lines",
                hint="remove it",
            )
        elif path[0] in ("title", "links") and text != " ".join(text.split()):
            yield ConfigError(
                f"{_name(path)} has blanks that git am would not keep",
                code="PATCH_UNTIDY_LINE",
                where=document.locate(path),
                hint="one blank between words, none at the ends",
            )
        elif path == ("why",) and BREAKS_MAIL.match(text.lstrip()):
            yield ConfigError(
                f"'why' begins with '{text.split()[0]}'",
                code="PATCH_BREAKS_MAIL",
                where=document.locate(path),
                why="git am would take that line for a header or for the start of the diff",
                hint="begin with another word",
            )


def _strings(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, (*path, index))


def _is_code(path: KeyPath) -> bool:
    return len(path) >= 3 and path[0] == "edit" and path[2] in _CODE_KEYS  # noqa: PLR2004  edit, number, key


def _name(path: KeyPath) -> str:
    names = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"'{names.removeprefix('.')}'"
