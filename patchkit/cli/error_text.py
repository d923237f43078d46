"""Errors as text and as JSON.

An error can contain untrusted text: names of files and branches, lines of files. In text, control characters
are escaped and very long values shortened (:mod:`patchkit.base.text`). JSON has the values unchanged, because
a program may look for the exact value that it passed.
"""

from __future__ import annotations

from collections.abc import Callable

from patchkit.base.errors import ErrorGroup, ExitCode, PatchkitError, members_of
from patchkit.base.plain import fields_of
from patchkit.base.text import counted, shortened, visible

Paint = Callable[[str, str], str]
"""Colours a text by its role: ``error``, ``place``, ``hint``; on a screen ``heading``, ``good``, ``caution``,
``bad``, ``muted``."""


def uncolored(text: str, role: str) -> str:
    """Return the text without colour."""
    del role
    return text


def exit_code_of(error: PatchkitError) -> ExitCode:
    """Return the exit code of the error; for a group, that of its first member."""
    return next(members_of(error), error).exit_code


def format_error(error: PatchkitError, paint: Paint = uncolored) -> str:
    """Format the error as text: one block per error, and a last line that counts those of a group."""
    blocks = [_block(member, paint) for member in members_of(error)]
    if isinstance(error, ErrorGroup):
        blocks.append(f"{_in_line(error.message)}: {counted(len(blocks), 'error')}")
    return "\n\n".join(blocks)


def _block(error: PatchkitError, paint: Paint) -> str:
    lines = [f"{paint(f'error[{error.code}]', 'error')}: {_in_line(error.message)}"]
    lines += [f" {paint('-->', 'place')} {_in_line(place.with_label)}" for place in error.where]
    if error.why:
        lines.append(f"{paint('why', 'place')}: {_indented(error.why)}")
    if error.hint:
        lines.append(f"{paint('hint', 'hint')}: {_indented(error.hint)}")
    return "\n".join(lines)


def _shown(text: str) -> str:
    return visible(shortened(text))


def _in_line(text: str) -> str:
    """Escape line breaks, so that a file name cannot imitate a line of our own output."""
    return _shown(text.replace("\n", "\\n"))


def _indented(text: str) -> str:
    return _shown(text.rstrip("\n")).replace("\n", "\n      ")


def error_as_json(error: PatchkitError) -> dict[str, object]:
    """Return ``{"error": {...}}``; a group has its members under ``errors``."""
    document = _one(error)
    if isinstance(error, ErrorGroup):
        document["errors"] = [_one(member) for member in members_of(error)]
    return {"error": document}


def _one(error: PatchkitError) -> dict[str, object]:
    return {**fields_of(error), "exit_code": exit_code_of(error)}
