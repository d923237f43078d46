"""Preprocessing a unit: the tokens that a compiler pass sees.

Two readings are equal if clang's preprocessed output, with minimized whitespace, is byte-identical.
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

# -fkeep-system-includes needs clang 18, -fminimize-whitespace clang 14.
_TOKENS = ("-P", "-fminimize-whitespace")
_MACROS = ("-dD",)  # keeps each #define and #undef, so that the output shows which macros are defined
_MACRO_LINES = re.compile(rb"^#(?:define|undef)\b[^\n]*\n", re.MULTILINE)  # as written by -dD
_COUNTER = b"__COUNTER__"  # preprocessor state that is not visible in the output
_WITH_MACROS, _WITHOUT_MACROS = "tokens", "plain"  # files of an entry
_ALWAYS = ("-E", "-w", "-D__LINE__=__LINE__", "-fkeep-system-includes")


class PreprocessFailed(ToolchainError):
    """A unit cannot be preprocessed: an ``#error``, a missing header, an unclosed ``#if``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One unit in one configuration; ``flags`` are for language, GPU, pass, macros and system headers."""

    tree: SourceTree
    unit: str
    flags: tuple[str, ...]
    name: str


def reading_digest(reading: Reading, compiler: Compiler) -> str:
    """sha256 of the token stream; cached.

    Raises:
        PreprocessFailed: clang reported errors.
        ToolMissing, ToolTimeout, ToolCrashed: clang did not run to completion.
    """
    return _tokens_digest(reading, compiler, _TOKENS, reading.unit)


def head_digest(reading: Reading, compiler: Compiler) -> str | None:
    """A digest that is equal in two trees only if the unit has the same tokens in both; None for most units.

    It exists for units that include one file, followed by text without directives. Their tokens depend only
    on that text, and on the tokens and macro definitions of the included file. So one preprocessor run
    serves all instances of a template. Units with the same tokens may have different digests, if a macro
    changed that they do not use.

    Raises as :func:`reading_digest`.
    """
    return _of_head(reading, compiler, _WITH_MACROS)


def head_tokens(reading: Reading, compiler: Compiler) -> str | None:
    """As :func:`head_digest`, without macro definitions: if it differs, the tokens of the units differ.

    If it is equal, the units may still differ. Raises as :func:`reading_digest`.
    """
    return _of_head(reading, compiler, _WITHOUT_MACROS)


def _of_head(reading: Reading, compiler: Compiler, of: str) -> str | None:
    head = reading.tree.head(reading.unit)
    if head is None or reading.tree.mentions(reading.unit, _COUNTER):
        return None
    path, rest = head
    # Included, because "#pragma once" has no effect in the main file.
    text = f'#include "{path}"\n'.encode()
    digest = _tokens_digest(reading, compiler, (*_TOKENS, *_MACROS), path, stdin=text, digest_of=of)
    return key_of({"head": digest, "rest": rest.hex()})


def _tokens_digest(
    reading: Reading,
    compiler: Compiler,
    layout: Sequence[str],
    of: str,
    *,
    stdin: bytes | None = None,
    digest_of: str = _WITH_MACROS,
) -> str:
    """sha256 of clang's preprocessed output for the file ``of``; cached by the files that clang opens.

    ``digest_of``: of the whole output, or of the output without macro definitions.
    """
    inputs = {
        "format": _FORMAT,
        "compiler": compiler.identity,
        "flags": [*_ALWAYS, *layout, *compiler.portable(reading.flags)],
    }

    def make(folder: Path, opened: Path) -> None:
        # By -Xclang, because clang's driver drops -MD for the device pass of HIP.
        listing = [part for word in listing_words(opened) for part in ("-Xclang", word)]
        text = _run(reading, compiler, [*layout, *listing], stdin=stdin)
        (folder / _WITH_MACROS).write_text(sha256(text), "ascii")
        # Whitespace is dropped, because a definition leaves a line break.
        plain = b"".join(_MACRO_LINES.sub(b"", text).split())
        (folder / _WITHOUT_MACROS).write_text(sha256(plain), "ascii")

    folder, _ = obtain_by_opened(compiler.store, inputs, reading.tree, of, make)
    return (folder / digest_of).read_text("ascii")


def reading_text(reading: Reading, compiler: Compiler) -> bytes:
    """The tokens with line markers, to locate a difference. Raises as :func:`reading_digest`."""
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
        hint="--verbose shows the command",
    )
