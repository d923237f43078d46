"""What the preprocessor makes of a unit: the tokens a compiler pass sees, without compiling.

Two readings are equal when clang's output without any needless blank is equal byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import tool_failure
from patchkit.toolchain.compiler import Compiler, run_clang
from patchkit.toolchain.opened import obtain_by_opened
from patchkit.toolchain.remarks import parse_diagnostics
from patchkit.toolchain.steps import listing_words
from patchkit.toolchain.units import SourceTree, include_folders

_FORMAT = 3
_TIMEOUT_S = 300.0
_SHOWN_ERRORS = 4

# -fkeep-system-includes came with clang 18, -fminimize-whitespace with clang 14.
_TOKENS = ("-P", "-fminimize-whitespace")
_MACROS = ("-dD",)  # every #define and #undef where it stands: what is known at the end
_OF_MACROS = re.compile(rb"^#(?:define|undef)\b[^\n]*\n", re.MULTILINE)  # as -dD writes them
_COUNTER = b"__COUNTER__"  # a state of the preprocessor that no output shows
_READ, _PLAIN = "tokens", "plain"  # files of an entry
_ALWAYS = ("-E", "-w", "-D__LINE__=__LINE__", "-fkeep-system-includes")


class PreprocessFailed(ToolchainError):
    """A unit cannot be preprocessed: an ``#error``, a header that is not there, an unclosed ``#if``."""

    code = "PREPROCESS_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One unit in one configuration; ``flags`` say language, GPU, pass, macros and system headers."""

    tree: SourceTree
    unit: str
    flags: tuple[str, ...]
    name: str


def reading_digest(reading: Reading, compiler: Compiler) -> str:
    """sha256 of the token stream; remembered in the store.

    Raises:
        PreprocessFailed: clang refused.
        ToolMissing, ToolTimeout, ToolCrashed: it could not be asked.
    """
    return _tokens_digest(reading, compiler, _TOKENS, reading.unit)


def head_digest(reading: Reading, compiler: Compiler) -> str | None:
    """A digest that is the same in two trees only if the unit reads alike in both; None for most units.

    A unit that only includes a file and then has text without a directive is determined by what reading
    that file gives, tokens and definitions of macros, and by the text. So all instances of a template are
    one reading. Equal units may have different digests: a macro changed that they do not use.

    Raises as :func:`reading_digest`.
    """
    return _of_head(reading, compiler, _READ)


def head_tokens(reading: Reading, compiler: Compiler) -> str | None:
    """As :func:`head_digest`, of the letters of all tokens: where these differ, so do those of the units.

    Where they do not, the units may differ. Raises as :func:`reading_digest`.
    """
    return _of_head(reading, compiler, _PLAIN)


def _of_head(reading: Reading, compiler: Compiler, of: str) -> str | None:
    head = reading.tree.head(reading.unit)
    if head is None or reading.tree.mentions(reading.unit, _COUNTER):
        return None
    path, rest = head
    # As its own file it would be the main one, in which "#pragma once" says nothing.
    text = f'#include "{path}"\n'.encode()
    read = _tokens_digest(reading, compiler, (*_TOKENS, *_MACROS), path, stdin=text, told_of=of)
    return key_of({"head": read, "rest": rest.hex()})


def _tokens_digest(
    reading: Reading,
    compiler: Compiler,
    layout: Sequence[str],
    of: str,
    *,
    stdin: bytes | None = None,
    told_of: str = _READ,
) -> str:
    """sha256 of what clang writes for the file ``of``; remembered while no file that it opens changes.

    ``told_of``: of all that it writes, or without the definitions of macros.
    """
    told = {
        "format": _FORMAT,
        "compiler": compiler.identity,
        "flags": [*_ALWAYS, *layout, *compiler.portable(reading.flags)],
    }

    def make(folder: Path, opened: Path) -> None:
        # Of clang itself, because its driver drops -MD for the device pass of HIP.
        listing = [part for word in listing_words(opened) for part in ("-Xclang", word)]
        text = _run(reading, compiler, [*layout, *listing], stdin=stdin)
        (folder / _READ).write_text(sha256(text), "ascii")
        # Without any blank: there is a line's end where a definition stood.
        plain = b"".join(_OF_MACROS.sub(b"", text).split())
        (folder / _PLAIN).write_text(sha256(plain), "ascii")

    folder, _ = obtain_by_opened(compiler.store, told, reading.tree, of, make)
    return (folder / told_of).read_text("ascii")


def reading_text(reading: Reading, compiler: Compiler) -> bytes:
    """The same tokens with line markers, for finding where a difference comes from. Raises as above."""
    return _run(reading, compiler, ())


def _run(reading: Reading, compiler: Compiler, layout: Sequence[str], *, stdin: bytes | None = None) -> bytes:
    argv = [
        str(compiler.toolchain.clang),
        *_ALWAYS,
        *layout,
        *reading.flags,
        *(f"-I{folder}" for folder in include_folders(reading.tree.root)),
        reading.unit if stdin is None else "-",
    ]
    completed = run_clang(
        argv, compiler, cwd=reading.tree.root, timeout_s=_TIMEOUT_S, work="preprocess", stdin=stdin
    )
    if completed.returncode == 0:
        return completed.stdout
    if completed.returncode < 0:
        raise tool_failure(completed)
    stderr = completed.stderr.decode("utf-8", "replace")
    errors = [found for found in parse_diagnostics(stderr) if found.kind == "error"][:_SHOWN_ERRORS]
    raise PreprocessFailed(
        f"{reading.unit} cannot be preprocessed for {reading.name}"
        + (f": {errors[0].text}" if errors else ""),
        where=[found.where for found in errors] or Location(path=reading.unit),
        why="\n".join(f"{found.where}: {found.text}" for found in errors) or stderr[-400:],
        hint="with --verbose the command is shown",
    )
