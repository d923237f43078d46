"""What the preprocessor makes of a unit: the tokens a compiler pass sees, without compiling.

Two readings are equal when clang's output without any needless blank is equal byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import tool_failure
from patchkit.toolchain.compiler import Compiler, run_clang
from patchkit.toolchain.remarks import parse_diagnostics
from patchkit.toolchain.store import key_of
from patchkit.toolchain.units import INCLUDE_FOLDERS, SourceTree

_FORMAT = 1
_TIMEOUT_S = 300.0
_SHOWN_ERRORS = 4

# -fkeep-system-includes came with clang 18, -fminimize-whitespace with clang 14.
_TOKENS = ("-P", "-fminimize-whitespace")
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
    key = key_of(
        {
            "format": _FORMAT,
            "compiler": compiler.identity,
            "flags": [*_ALWAYS, *_TOKENS, *compiler.portable(reading.flags)],
            "sources": reading.tree.digest(reading.unit),
        }
    )

    def fill(folder: Path) -> None:
        digest = hashlib.sha256(_run(reading, compiler, _TOKENS)).hexdigest()
        (folder / "tokens").write_text(digest, "ascii")

    return (compiler.store.obtain(key, fill) / "tokens").read_text("ascii")


def reading_text(reading: Reading, compiler: Compiler) -> bytes:
    """The same tokens with line markers, for finding where a difference comes from. Raises as above."""
    return _run(reading, compiler, ())


def _run(reading: Reading, compiler: Compiler, layout: Sequence[str]) -> bytes:
    argv = [
        str(compiler.toolchain.clang),
        *_ALWAYS,
        *layout,
        *reading.flags,
        *(f"-I{folder}" for folder in INCLUDE_FOLDERS),
        reading.unit,
    ]
    completed = run_clang(argv, compiler, cwd=reading.tree.root, timeout_s=_TIMEOUT_S, work="preprocess")
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
