"""Calls to libclang; no other module loads the library.

Pitfalls of libclang 18.1.1, each covered by a test in ``tests/contract``: offsets are bytes; the wheel has no
resource headers; a missing header is fatal and suppresses later diagnostics unless the KeepGoing flag, which
the bindings do not expose, is set; ``unsaved_files`` takes bytes; the wheel knows gfx1151 but not gfx1152,
gfx1153 and gfx950.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from clang import cindex

from patchkit.base.errors import ToolchainError
from patchkit.base.source import Span

KEEP_GOING = 0x200
"""CXTranslationUnit_KeepGoing (clang-c/Index.h), not exposed by the bindings."""
INCOMPLETE = 0x02
"""CXTranslationUnit_Incomplete (clang-c/Index.h): the file is a prefix, so no templates are instantiated."""
PREPROCESSING_RECORD = 0x01
"""CXTranslationUnit_DetailedPreprocessingRecord (clang-c/Index.h); skipped ranges need it."""
SINGLE_FILE = 0x400
"""CXTranslationUnit_SingleFileParse (clang-c/Index.h): includes are not followed."""


def parse_unit(
    path: str, args: Sequence[str], files: Mapping[str, bytes], flags: int
) -> cindex.TranslationUnit:
    """Parse ``files[path]`` with the compiler arguments ``args``; includes are read from ``files`` as well.

    Raises :class:`LIBCLANG_UNAVAILABLE` or :class:`LIBCLANG_PARSE`.
    """
    try:
        index = cindex.Index.create()
    except (cindex.LibclangError, OSError) as exc:
        raise ToolchainError(
            "libclang could not be loaded",
            code="LIBCLANG_UNAVAILABLE",
            why=str(exc),
            hint="reinstall it: pip install --force-reinstall libclang==18.1.1",
        ) from exc
    try:
        return index.parse(path, args=list(args), unsaved_files=list(files.items()), options=flags)
    except cindex.TranslationUnitLoadError as exc:
        raise ToolchainError(
            f"libclang could not parse {path}",
            code="LIBCLANG_PARSE",
            why=str(exc),
            hint="to check the installation: patchkit doctor",
        ) from exc


class _RangeList(ctypes.Structure):
    """CXSourceRangeList of clang-c/CXSourceLocation.h, which the bindings do not declare."""

    _fields_: ClassVar = [("count", ctypes.c_uint), ("ranges", ctypes.POINTER(cindex.SourceRange))]


@functools.cache
def _range_functions() -> tuple[Callable[..., Any], Callable[..., None]]:
    """The functions for skipped ranges, declared once.

    ctypes keeps no reference to the argument types during a call. Assigning them again while another thread
    calls the same function frees them under that thread.
    """
    library = cindex.conf.lib
    get, dispose = library.clang_getSkippedRanges, library.clang_disposeSourceRangeList
    get.argtypes, get.restype = [cindex.TranslationUnit, cindex.File], ctypes.POINTER(_RangeList)
    dispose.argtypes, dispose.restype = [ctypes.POINTER(_RangeList)], None
    return get, dispose


def skipped_ranges(unit: cindex.TranslationUnit, path: str) -> tuple[Span, ...]:
    """The parts of a file that the preprocessor skipped, each from one directive of its group to the next.

    The unit must have been parsed with PREPROCESSING_RECORD.
    """
    get, dispose = _range_functions()
    found = get(unit, cindex.File.from_name(unit, path))
    try:
        ranges = [found.contents.ranges[i] for i in range(found.contents.count)]
        return tuple(Span(each.start.offset, each.end.offset) for each in ranges)
    finally:
        dispose(found)


_TOKEN = struct.Struct("@4IP")  # CXToken of clang-c/Index.h: {kind, raw location, length, 0} and a pointer


def raw_tokens(
    unit: cindex.TranslationUnit, path: str, size: int
) -> tuple[list[tuple[int, int, int]], Span, Span] | None:
    """The kind, raw location and length of each token in the first ``size`` bytes; None if there is none.

    Only differences of raw locations are meaningful (they are bytes). The two spans are those of the first
    and the last token, from the public API.
    """
    library = cindex.conf.lib
    memory, count = ctypes.POINTER(cindex.Token)(), ctypes.c_uint()
    extent = unit.get_extent(path, (0, size))
    library.clang_tokenize(unit, extent, ctypes.byref(memory), ctypes.byref(count))
    if not count.value:
        return None
    try:
        whole = ctypes.string_at(memory, count.value * _TOKEN.size)
        rows = [row[:3] for row in _TOKEN.iter_unpack(whole)]
        ends = (library.clang_getTokenExtent(unit, memory[at]) for at in (0, count.value - 1))
        first, last = (Span(each.start.offset, each.end.offset) for each in ends)
        return rows, first, last
    finally:
        library.clang_disposeTokens(unit, memory, count)


def library_version() -> str:
    """Version text of the loaded library, e.g. ``clang 18.1.1``."""
    unit = parse_unit("/version.cpp", ["-xc++"], {"/version.cpp": b"char v[] = __clang_version__;\n"}, 0)
    for cursor in unit.cursor.walk_preorder():
        if cursor.kind == cindex.CursorKind.STRING_LITERAL:
            return "clang " + str(cursor.spelling).strip('" ')
    return "clang (unknown version)"
