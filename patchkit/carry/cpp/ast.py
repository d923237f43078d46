"""Parse one file for the host or the device with clang: definitions with extents, and syntax errors.

No compiler and no library need be installed. The declarations that the parser needs are in two headers next
to this module, ``prelude.h`` (macros of HIP) and ``declarations.h`` (names of the C++ library and of HIP).
Without the latter, clang took ``std::pair<A, B>`` for two comparisons and ``(uint64_t) x`` for a value and a
stray name: 3284 false syntax errors in 293 of build 8672's 1026 files (issue 42). With it they remain only
in the backends for SYCL, OpenVINO, Vulkan, CANN, OpenCL and Hexagon, whose libraries are not declared here.

Trees are cached on disk: parsing the edited files took 2.6 of the 4 s in which the default series is placed
at build 11549 (two cores, 2026-11-28).
"""

from __future__ import annotations

import hashlib
import os
import platform
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from clang import cindex
from pydantic import TypeAdapter

from patchkit.base.errors import CacheError
from patchkit.base.source import Span
from patchkit.base.store import Store
from patchkit.carry.cpp.libclang import (
    INCOMPLETE,
    KEEP_GOING,
    PREPROCESSING_RECORD,
    parse_unit,
    skipped_ranges,
)

Pass = Literal["host", "device"]

_ROOT = "/upstream/"
_HEADERS = ("prelude.h", "declarations.h")

_CPP = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hip", ".hpp")

# libclang 18 (LLVM 18) predates these targets. They are parsed as the related target given here, with the
# arch macro replaced: the instruction family is the same, and only extents and syntax are read.
_RELATED_TARGETS = {"gfx1152": "gfx1150", "gfx1153": "gfx1150", "gfx950": "gfx942"}

# ``#include`` and ``__has_include``; the last group matches an argument without quotes or angles: a macro.
_INCLUDE = re.compile(
    rb'(?:#[ \t]*|__has_)(?:include(?:_next)?|import)[ \t(]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w))'
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """``defines``: macros set to 1; ``folders``: include folders, searched after the file's own folder."""

    defines: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


NOTHING = Preprocessing()


@dataclass(frozen=True, slots=True)
class Definition:
    """``name`` without template arguments and scopes; ``span`` from the first token to the last.

    ``sides``: where the function runs, by its attributes. Kernels run on the device; without an attribute it
    is the host.
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
    """One pass over one file; ``skipped`` are the parts that its preprocessor skipped.

    ``unknown`` are names that clang found no declaration of, ``declared`` those for which the files contain
    something that looks like a declaration. Both are set if there are issues, or on request.
    """

    definitions: tuple[Definition, ...]
    issues: tuple[ParseIssue, ...]
    skipped: tuple[Span, ...]
    unknown: frozenset[bytes] = frozenset()
    declared: frozenset[bytes] = frozenset()

    def compiles(self, offset: int) -> bool:
        """Whether this pass compiles the code at ``offset``, i.e. it is not in a skipped branch."""
        return not any(span.start < offset < span.end for span in self.skipped)


# Variables with further include folders of clang, whose content is not part of the cache key.
_MORE_INCLUDES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH")
_TREE: TypeAdapter[Tree] = TypeAdapter(Tree)


def is_cpp(path: str) -> bool:
    """Whether a C or C++ compiler for the host or for HIP reads the file, by its ending.

    Metal, OpenCL, Objective-C and shaders are different languages, and a fragment (``.inc``) is not compiled
    on its own.
    """
    return path.endswith(_CPP)


def has_device_pass(path: str) -> bool:
    """Whether HIP also compiles the file for the device, by its ending."""
    return path.endswith((".cu", ".cuh", ".hip"))


def parse_tree(
    path: str,
    files: Mapping[str, bytes],
    *,
    arch: str,
    which: Pass,
    preprocessing: Preprocessing = NOTHING,
    with_skipped: bool = True,
    with_names: bool = False,
    kept: Path | None = None,
) -> Tree:
    """Parse ``files[path]`` as HIP, or as C, for one pass; includes are resolved among ``files`` only.

    ``files`` maps paths relative to upstream's root to bytes. Without ``with_skipped`` the tree has no
    skipped ranges; with ``with_names`` it lists unknown names even if there is no issue. ``kept`` is a
    folder with cached trees of earlier runs. Raises the errors of
    :func:`patchkit.carry.cpp.libclang.parse_unit`.
    """
    read = tuple(sorted(reachable_files(path, files).items()))
    return _obtain(
        path,
        read,
        arch,
        which,
        preprocessing,
        with_skipped=with_skipped,
        with_names=with_names,
        kept=kept,
    )


def read_includes(
    paths: Sequence[str],
    known: Mapping[str, bytes],
    others: frozenset[str],
    read: Callable[[Sequence[str]], Mapping[str, bytes]],
    folders: Sequence[str],
) -> dict[str, bytes]:
    """The files that ``paths`` include, recursively, if they are in ``others`` and not yet ``known``."""
    found: dict[str, bytes] = {}
    seen, waiting = set[str](), set(paths)
    while waiting:
        seen |= waiting
        named = {
            place
            for path in waiting
            for place in _places(path, found[path] if path in found else known[path], folders)
        }
        missing = sorted(named & others - known.keys() - found.keys())
        found |= read(missing) if missing else {}
        waiting = {place for place in named if place in known or place in found} - seen
    return found


def _places(path: str, data: bytes, folders: Sequence[str]) -> Iterator[str]:
    """Every path at which an include of a file may be, in clang's search order."""
    for quoted, angled, _ in _INCLUDE.findall(data):
        name = (quoted or angled).decode("utf-8", "replace")
        for folder in (posixpath.dirname(path), *folders):
            place = posixpath.normpath(posixpath.join(folder, name))
            if not place.startswith(".."):
                yield place


def _spelled(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files under the names that ``#include "../x.h"`` gives them, as clang does not normalise paths."""
    for path, data in files.items():
        for quoted, _, _ in _INCLUDE.findall(data):
            if b".." in quoted:
                spelled = posixpath.join(posixpath.dirname(path), quoted.decode("utf-8", "replace"))
                target = files.get(posixpath.normpath(spelled))
                if target is not None:
                    yield spelled, target


def reachable_files(path: str, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files that a parse of ``path`` may read: all files whose name is included, in any branch.

    Most files of a tree are not among them, so changing those does not change the cache key.
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
    """File names, without folders, of a file's includes; None if a macro gives one of them."""
    words = [quoted or angled for quoted, angled, _ in _INCLUDE.findall(data)]
    return (
        frozenset(word.rpartition(b"/")[2].decode("utf-8", "replace") for word in words)
        if all(words)
        else None
    )


# A bump parses the same versions of a file for every set of patches, and gates parse the candidate's again.
@lru_cache(maxsize=256)
def _obtain(
    path: str,
    files: tuple[tuple[str, bytes], ...],
    arch: str,
    which: Pass,
    preprocessing: Preprocessing,
    *,
    with_skipped: bool,
    with_names: bool,
    kept: Path | None,
) -> Tree:
    """The tree from memory, from ``kept``, or parsed. The key covers every input of the parse."""
    arguments = _arguments(path, arch, which, preprocessing)
    if kept is None or any(os.environ.get(name) for name in _MORE_INCLUDES):
        return _parse(path, files, arguments, with_skipped=with_skipped, with_names=with_names)
    key = hashlib.sha256(parser_digest())
    for part in (path, *arguments, f"{with_skipped} {with_names}", *(name for name, _ in files)):
        key.update(f"{len(part)} {part}".encode("utf-8", "surrogatepass"))
    for _, data in files:
        key.update(b"%d " % len(data))
        key.update(data)
    store, name = Store(root=kept), key.hexdigest()
    tree = _load(store, name)
    if tree is None:
        tree = _parse(path, files, arguments, with_skipped=with_skipped, with_names=with_names)
        # A full or read-only disk only means parsing again; a name that is not valid UTF-8 is not cached.
        with suppress(CacheError, ValueError):
            store.write(name, _TREE.dump_json(tree))
    return tree


def _load(store: Store, name: str) -> Tree | None:
    try:
        text = store.read(name)
        return None if text is None else _TREE.validate_json(text)
    except ValueError:
        return None


@cache
def parser_digest() -> bytes:
    """Digest of the code that makes a tree: this package, the library by version and size, the machine."""
    folder = resources.files("patchkit.carry.cpp")
    parts = [folder.joinpath(name).read_bytes() for name in ("ast.py", "libclang.py", *_HEADERS)]
    library = Path(cindex.conf.get_filename())
    size = library.stat().st_size if library.is_file() else 0
    platform_text = f"{version('libclang')} {library.name} {size} {platform.machine()} {sys.platform}"
    state = hashlib.sha256(platform_text.encode())
    for part in parts:
        state.update(hashlib.sha256(part).digest())
    return state.digest()


def _parse(
    path: str,
    files: tuple[tuple[str, bytes], ...],
    arguments: Sequence[str],
    *,
    with_skipped: bool,
    with_names: bool,
) -> Tree:
    unsaved = {_ROOT + name: data for name, data in (*_spelled(dict(files)), *files)}
    unsaved.update(_own_headers())
    # Recording skipped ranges costs half as much again as the parse itself. Templates are parsed but not
    # instantiated: with the library's names declared, instantiation would be most of the work (0.9 s instead
    # of 0.07 s for fattn-tile-instance-dkq128-dv128.cu at build 8672).
    flags = KEEP_GOING | INCOMPLETE | (PREPROCESSING_RECORD if with_skipped else 0)
    unit = parse_unit(_ROOT + path, arguments, unsaved, flags)
    main = _ROOT + path
    definitions = tuple(_definitions(unit.cursor, main))
    issues = tuple(
        ParseIssue(diagnostic.location.offset, str(diagnostic.spelling))
        for diagnostic in unit.diagnostics
        if _is_syntax(diagnostic) and str(diagnostic.location.file) == main
    )
    skipped = skipped_ranges(unit, main) if with_skipped else ()
    if not issues and not with_names:
        return Tree(definitions, issues, skipped)
    declared = {name for _, data in files for name in declared_words(data)}
    return Tree(definitions, issues, skipped, _unknown(unit), frozenset(declared | _own_names()))


def _arguments(path: str, arch: str, which: Pass, preprocessing: Preprocessing) -> list[str]:
    if path.endswith(".c"):
        arguments = ["-xc", "-std=gnu11"]
    else:
        target = _RELATED_TARGETS.get(arch, arch)
        arguments = ["-xhip", "-nogpuinc", "-nogpulib", f"--offload-arch={target}", f"--cuda-{which}-only"]
        arguments += ["-std=c++17", "-nostdinc++"]
        if target != arch and which == "device":
            arguments += [f"-U__{target}__", f"-D__{arch}__=1"]
    # clang's spelling suggestions cost time, and are guesses.
    arguments += ["-ferror-limit=0", "-w", "-nostdinc", "-fno-spell-checking"]
    arguments += ["-D__HIP_PLATFORM_AMD__", *(f"-D{name}=1" for name in preprocessing.defines)]
    for header in _own_headers():
        arguments += ["-include", header]
    arguments += [f"-I{_ROOT}{folder}" for folder in preprocessing.folders]
    return arguments


@cache
def _own_headers() -> Mapping[str, bytes]:
    folder = resources.files("patchkit.carry.cpp")
    return {f"/patchkit/{name}": folder.joinpath(name).read_bytes() for name in _HEADERS}


@cache
def _own_names() -> frozenset[bytes]:
    """Every word of our own headers, with the suffixes that their macros add: ``is_same_v``, ``float4``."""
    words = {word for text in _own_headers().values() for word in _WORD.findall(_without_prose(text))}
    ends = (b"", b"_t", b"_v", b"1", b"2", b"3", b"4")
    return frozenset(word + end for word in words for end in ends)


# clang's messages about undeclared names. Those about members are ignored, because ``a.b`` parses the same
# whatever ``b`` is.
_UNKNOWN = re.compile(
    r"(?:undeclared identifier|unknown type name|unknown class name|no type named|no template named"
    r"|undeclared function) '([^']+)'|no member named '([^']+)' in (?:namespace|the global)"
)


def _unknown(unit: cindex.TranslationUnit) -> frozenset[bytes]:
    found = (_UNKNOWN.search(str(diagnostic.spelling)) for diagnostic in unit.diagnostics)
    return frozenset((match[1] or match[2]).encode() for match in found if match)


# Looks like a declaration: a name after a type, a ``*``, a ``&`` or the ``>`` of a template, a name defined
# as a macro, the names of a structured binding, or those in an enum. This is used only where clang did not
# look up a name because it had given up on the statement. Missing one only makes a verdict more cautious.
_AFTER_TYPE = re.compile(
    rb"""
    \b(?!(?:return|else|case|goto|throw|new|delete|sizeof|if|while|not|and|or|in|do|co_return|co_yield
        |static|inline|const|constexpr|extern|volatile|virtual|explicit|friend|mutable|thread_local
        |__device__|__global__|__host__|__forceinline__)\b)
    \w+ \s+ (?=([A-Za-z_]\w*))
    | [\w>] [ \t]* (?:[*&]+ [ \t]* (?:const[ \t]+)? | >[ \t]*) (?=([A-Za-z_]\w*))
    | \} \s* ([A-Za-z_]\w*) \s* ; | \( \s* [*&]+ \s* ([A-Za-z_]\w*) \s* \)
    | \#[ \t]* define [ \t]+ ([A-Za-z_]\w*)
    """,
    re.VERBOSE,
)
# An unclosed comment ends with the file, an unclosed string with the line, and the length of an enum is
# limited: untrusted text must not make a search quadratic.
_PROSE = re.compile(rb'(//[^\n]*|/\*.*?(?:\*/|\Z))|"(?:\\.|[^"\\\n])*"?', re.DOTALL)
_BINDING = re.compile(rb"\bauto[ \t]*(?:const[ \t]*)?&{0,2}[ \t]*\[([\w, \t]+)\]")
_ENUM = re.compile(rb"\benum\b[^;{}()]{0,200}\{([^{}]{0,20000})\}")
_WORD = re.compile(rb"[A-Za-z_]\w*")


def _without_prose(data: bytes) -> bytes:
    return _PROSE.sub(lambda match: b" " if match[1] else b'""', data)


@lru_cache(maxsize=1024)
def declared_words(data: bytes) -> frozenset[bytes]:
    """The words for which a text has something that looks like a declaration."""
    data = _without_prose(data)
    found = {word for match in _AFTER_TYPE.findall(data) for word in match if word}
    for inside in (*_BINDING.findall(data), *_ENUM.findall(data)):
        found.update(_WORD.findall(inside))
    return frozenset(found)


def _is_syntax(diagnostic: cindex.Diagnostic) -> bool:
    """Whether it is a syntax error; as warnings are off (``-w``), everything in these categories is one."""
    if diagnostic.category_name == "Lexical or Preprocessor Issue":
        return "not found" not in diagnostic.spelling
    return diagnostic.category_name == "Parse Issue" or "to follow '#pragma" in diagnostic.spelling


def _plain_name(spelling: str) -> str:
    """The name without template arguments: clang spells a constructor of a template ``Foo<T>``."""
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
