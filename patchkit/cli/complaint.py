"""Errors as text and as JSON.

What is in an error may come from anybody: the name of a file, a branch, a line of somebody's file. A person
sees control characters as escapes, and the two ends of what is very long (:mod:`patchkit.base.text`). A
program gets all of it as it is, in JSON, because it may look for the very value that it gave.
"""

from __future__ import annotations

from collections.abc import Callable

from patchkit.base.errors import ErrorGroup, ExitCode, PatchkitError, members_of
from patchkit.base.plain import fields_of
from patchkit.base.text import counted, shortened, visible

Paint = Callable[[str, str], str]
"""Takes a text and its role (``error``, ``place``, ``hint``) and gives it a colour."""


def plain(text: str, role: str) -> str:
    """The paint of a terminal without colours."""
    del role
    return text


def exit_code_of(error: PatchkitError) -> ExitCode:
    """The exit code of the error; of a group, that of its first member."""
    return next(members_of(error), error).exit_code


def complain(error: PatchkitError, paint: Paint = plain) -> str:
    """The text for a person: one block per error, and for several a last line that counts them."""
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
    """No name of a file with a line break in it goes on with a line that could be one of ours."""
    return _shown(text.replace("\n", "\\n"))


def _indented(text: str) -> str:
    return _shown(text.rstrip("\n")).replace("\n", "\n      ")


def error_as_json(error: PatchkitError) -> dict[str, object]:
    """``{"error": {...}}``; a group carries its members under ``errors``."""
    document = _one(error)
    if isinstance(error, ErrorGroup):
        document["errors"] = [_one(member) for member in members_of(error)]
    return {"error": document}


def _one(error: PatchkitError) -> dict[str, object]:
    return {**fields_of(error), "exit_code": exit_code_of(error)}
