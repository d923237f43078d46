"""Parses one file for the host or the device with clang: definitions with extents, and syntax errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Literal

from clang import cindex

from patchkit.base.source import Span
from patchkit.carry.cpp.libclang import KEEP_GOING, PREPROCESSING_RECORD, parse_unit, skipped_ranges

Pass = Literal["host", "device"]

_ROOT = "/upstream/"
_PRELUDE = "/patchkit/prelude.h"

# libclang 18 (LLVM 18) predates these targets. Their parse runs as the named relative, with the
# arch macro swapped: same instruction family, and only extents and syntax are read.
_STAND_INS = {"gfx1152": "gfx1150", "gfx1153": "gfx1150", "gfx950": "gfx942"}

# ``#include`` and ``__has_include``; the last group is what is neither in quotes nor in angles: a macro.
_INCLUDE = re.compile(rb'(?:#[ \t]*|__has_)include(?:_next)?[ \t(]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w))')

_KINDS = cindex.CursorKind
_CONTAINERS = frozenset(
    {
        _KINDS.NAMESPACE,
        _KINDS.LINKAGE_SPEC,
        _KINDS.UNEXPOSED_DECL,
        _KINDS.STRUCT_DECL,
        _KINDS.CLASS_DECL,
        _KINDS.CLASS_TEMPLATE,
        _KINDS.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
    }
)
_FUNCTIONS = frozenset(
    {
        _KINDS.FUNCTION_DECL,
        _KINDS.FUNCTION_TEMPLATE,
        _KINDS.CXX_METHOD,
        _KINDS.CONSTRUCTOR,
        _KINDS.DESTRUCTOR,
        _KINDS.CONVERSION_FUNCTION,
    }
)


@dataclass(frozen=True, slots=True)
class Definition:
    """``name`` without template arguments and scopes; ``span`` from the first token to the last.

    ``sides`` is where a function runs, by its attributes: a kernel is the device's, no attribute the host's.
    """

    name: str
    span: Span
    sides: frozenset[Pass]


@dataclass(frozen=True, slots=True)
class ParseIssue:
    """One syntax error of the main file, at byte ``offset``."""

    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class Tree:
    """One pass over one file; ``skipped`` is what its preprocessor left out."""

    definitions: tuple[Definition, ...]
    issues: tuple[ParseIssue, ...]
    skipped: tuple[Span, ...]

    def compiles(self, offset: int) -> bool:
        """Whether this pass reaches ``offset``: no false branch begins before it and ends behind it."""
        return not any(span.start < offset < span.end for span in self.skipped)


def parse_tree(
    path: str,
    files: Mapping[str, bytes],
    *,
    arch: str,
    which: Pass,
    defines: Sequence[str],
    with_skipped: bool = True,
) -> Tree:
    """Parse ``files[path]`` as HIP for one pass; includes are looked up among ``files`` only.

    ``files`` maps paths relative to upstream's root to bytes; ``defines`` are macro names set to 1;
    without ``with_skipped`` the tree does not know what the preprocessor left out.
    Raises the errors of :func:`patchkit.carry.cpp.libclang.parse_unit`.
    """
    read = tuple(sorted(_reachable(path, files).items()))
    return _parse(path, read, arch, which, tuple(defines), with_skipped=with_skipped)


def _reachable(path: str, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files that a parse of one of them may read: whatever has the name of an include, in any branch.

    Most files of a tree are none of it, and a change of theirs leaves the parse what it was.
    """
    named: dict[str, list[str]] = {}
    for name in files:
        named.setdefault(name.rpartition("/")[2], []).append(name)
    found, waiting = set[str](), [path]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            includes = _included(files[name])
            if includes is None:
                return files
            waiting += [each for base in includes for each in named.get(base, ())]
    return {name: files[name] for name in found}


@lru_cache(maxsize=1024)
def _included(data: bytes) -> frozenset[str] | None:
    """Names without folders of what a file includes or asks for; None when a macro says what."""
    words = [quoted or angled for quoted, angled, _ in _INCLUDE.findall(data)]
    return (
        frozenset(word.rpartition(b"/")[2].decode("utf-8", "replace") for word in words)
        if all(words)
        else None
    )


# A bump parses the same versions of a file for every set of patches, the gates those of the candidate again.
@lru_cache(maxsize=256)
def _parse(
    path: str,
    files: tuple[tuple[str, bytes], ...],
    arch: str,
    which: Pass,
    defines: tuple[str, ...],
    *,
    with_skipped: bool,
) -> Tree:
    unsaved = {_ROOT + name: data for name, data in files}
    unsaved[_PRELUDE] = _prelude()
    # The record that skipped ranges need costs half as much again as the parse itself.
    flags = KEEP_GOING | (PREPROCESSING_RECORD if with_skipped else 0)
    unit = parse_unit(_ROOT + path, _arguments(arch, which, defines), unsaved, flags)
    main = _ROOT + path
    definitions = tuple(_definitions(unit.cursor, main))
    issues = tuple(
        ParseIssue(diagnostic.location.offset, str(diagnostic.spelling))
        for diagnostic in unit.diagnostics
        if _is_syntax(diagnostic) and str(diagnostic.location.file) == main
    )
    return Tree(definitions, issues, skipped_ranges(unit, main) if with_skipped else ())


def _arguments(arch: str, which: Pass, defines: Sequence[str]) -> list[str]:
    target = _STAND_INS.get(arch, arch)
    arguments = ["-xhip", "-nogpuinc", "-nogpulib", f"--offload-arch={target}", f"--cuda-{which}-only"]
    arguments += ["-std=c++17", "-ferror-limit=0", "-w", "-nostdinc", "-nostdinc++"]
    arguments += ["-D__HIP_PLATFORM_AMD__", *(f"-D{name}=1" for name in defines)]
    if target != arch and which == "device":
        arguments += [f"-U__{target}__", f"-D__{arch}__=1"]
    arguments += ["-include", _PRELUDE]
    arguments += [f"-I{_ROOT}{folder}" for folder in ("ggml/include", "ggml/src", "ggml/src/ggml-cuda")]
    return arguments


@cache
def _prelude() -> bytes:
    return resources.files("patchkit.carry.cpp").joinpath("prelude.h").read_bytes()


def _is_syntax(diagnostic: cindex.Diagnostic) -> bool:
    """Warnings are off (``-w``), so everything of these categories is an error."""
    if diagnostic.category_name == "Lexical or Preprocessor Issue":
        return "not found" not in diagnostic.spelling
    return diagnostic.category_name == "Parse Issue" or "to follow '#pragma" in diagnostic.spelling


def _plain_name(spelling: str) -> str:
    """``Foo<T>`` is how clang spells a constructor of a template; ``operator<`` is a name."""
    return spelling if spelling.startswith("operator") else spelling.split("<", maxsplit=1)[0]


def _sides(function: cindex.Cursor) -> frozenset[Pass]:
    kinds = {child.kind for child in function.get_children()}
    sides: set[Pass] = set()
    if kinds & {_KINDS.CUDADEVICE_ATTR, _KINDS.CUDAGLOBAL_ATTR}:
        sides.add("device")
    if _KINDS.CUDAHOST_ATTR in kinds or not sides:
        sides.add("host")
    return frozenset(sides)


def _definitions(cursor: cindex.Cursor, main: str) -> Iterator[Definition]:
    for child in cursor.get_children():
        if str(child.location.file) != main:
            continue
        if child.kind in _FUNCTIONS:
            extent = child.extent
            span = Span(extent.start.offset, max(extent.start.offset, extent.end.offset))
            yield Definition(_plain_name(str(child.spelling)), span, _sides(child))
        elif child.kind in _CONTAINERS:
            yield from _definitions(child, main)
