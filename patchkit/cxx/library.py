"""The one door to libclang.

Vocabulary: a *unit* is a parsed translation unit that must be kept alive while its cursors or
tokens are read. Nothing outside :mod:`patchkit.cxx` sees a type of the bindings.

Pitfalls of libclang 18.1.1, each held by a test in ``tests/contract``: offsets are bytes; the wheel
has no resource headers; a missing header is fatal and silences later diagnostics unless the
unexposed KeepGoing flag is set; ``unsaved_files`` takes bytes; the wheel knows gfx1151 but not
gfx1152, gfx1153 and gfx950.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clang import cindex

from patchkit.errors import ToolchainError

__all__ = ["KEEP_GOING", "SINGLE_FILE", "LibclangUnavailable", "ParseFailed", "library_version", "parse_unit"]

KEEP_GOING = 0x200
"""CXTranslationUnit_KeepGoing (clang-c/Index.h), not exposed by the bindings."""
SINGLE_FILE = 0x400
"""CXTranslationUnit_SingleFileParse (clang-c/Index.h): includes are not followed."""


class LibclangUnavailable(ToolchainError):
    """The libclang shared library of the wheel does not load."""

    code = "LIBCLANG_UNAVAILABLE"


class ParseFailed(ToolchainError):
    """libclang gave no translation unit at all (it does give one for broken code)."""

    code = "LIBCLANG_PARSE"


def parse_unit(
    path: str, args: Sequence[str], files: Mapping[str, bytes], flags: int
) -> cindex.TranslationUnit:
    """Parse ``files[path]`` with the compiler arguments ``args``; every other file comes from ``files`` too.

    Raises :class:`LibclangUnavailable` or :class:`ParseFailed`.
    """
    try:
        index = cindex.Index.create()
    except (cindex.LibclangError, OSError) as exc:
        raise LibclangUnavailable(
            "libclang does not load",
            why=str(exc),
            hint="reinstall it: pip install --force-reinstall libclang==18.1.1",
        ) from exc
    try:
        return index.parse(path, args=list(args), unsaved_files=list(files.items()), options=flags)
    except cindex.TranslationUnitLoadError as exc:
        raise ParseFailed(
            f"libclang could not parse {path}",
            why=str(exc),
            hint="patchkit doctor",
        ) from exc


def library_version() -> str:
    """Version text of the loaded library, e.g. ``clang 18.1.1``."""
    unit = parse_unit("/version.cpp", ["-xc++"], {"/version.cpp": b"char v[] = __clang_version__;\n"}, 0)
    for cursor in unit.cursor.walk_preorder():
        if cursor.kind == cindex.CursorKind.STRING_LITERAL:
            return "clang " + str(cursor.spelling).strip('" ')
    return "clang (unknown version)"
