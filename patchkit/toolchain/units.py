"""The translation units of a tree, the files that each can include, and digests of these files."""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from patchkit.base.digests import sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.upstreams import upstream_of

_OPTION = re.compile(r'set\s*\(\s*GGML_CUDA_FA_QUANTS\s+"([^"]+)"')
_TYPES = re.compile(r"set\s*\(\s*FA_TYPES\s+([^)]+)\)")
_CALL = re.compile(r"^\s*ggml_cuda_fattn_vec_instances\s*\(", re.MULTILINE)
_INSTANCE = "template-instances/fattn-vec-instance-{}.cu"


def tree_definitions(tree: Path) -> tuple[str, ...]:
    """The ``-D`` options that depend on the tree: of its project, and :func:`kv_definitions`."""
    return (*(f"-D{one}" for one in upstream_of(tree).cmake.definitions), *kv_definitions(tree))


def kv_definitions(tree: Path) -> tuple[str, ...]:
    """The ``-D`` options of upstream's CMake for GGML_CUDA_FA_QUANTS (KV types); none in older trees."""
    option = _option(tree)
    types = _TYPES.search(_text(tree / upstream_of(tree).ggml_path("cmake/common.cmake")))
    if option is None or types is None:
        return ()
    compiled = _combinations(option)
    macros = [
        f"-DGGML_CUDA_FA_{k.upper()}_{v.upper()}={int(f'{k}-{v}' in compiled)}"
        for v in types[1].split()
        for k in types[1].split()
    ]
    return (f'-DGGML_CUDA_FA_QUANTS="{option.replace(";", ",")}"', *macros)


def kv_units(tree: Path, build_list: str) -> tuple[str, ...]:
    """The units that a backend's CMake text ``build_list`` adds by ggml_cuda_fattn_vec_instances, sorted."""
    option = _option(tree)
    if option is None or _CALL.search(build_list) is None:
        return ()
    upstream = upstream_of(tree)
    names = (upstream.gpu_file(_INSTANCE.format(combination)) for combination in _combinations(option))
    return tuple(sorted(name for name in names if (tree / name).is_file()))


def _option(tree: Path) -> str | None:
    found = _OPTION.search(_text(tree / upstream_of(tree).ggml_options))
    return found[1] if found is not None else None


def _combinations(option: str) -> frozenset[str]:
    """The combinations of K and V types in the option; upstream always adds f16 with f16."""
    return frozenset({"f16-f16", *(part.strip().lower() for part in re.split("[;,]", option))})


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


Platform = Literal["cuda", "hip", "musa"]

# ggml_add_backend_library (src/CMakeLists.txt) gives a backend its parent folder, ggml-base its headers.
_INCLUDE_FOLDERS = ("src", "include")


def library_folder(tree: Path) -> str:
    """The folder with all files that units can include; compiling does not need the rest of the tree."""
    return upstream_of(tree).folders.library


def include_folders(tree: Path) -> tuple[str, ...]:
    """The include folders that upstream's CMake sets for units, in order."""
    upstream = upstream_of(tree)
    return tuple(upstream.ggml_path(name) for name in _INCLUDE_FOLDERS)


_COMMAND = re.compile(r"^\s*(if|elseif|else|endif|file)\s*\(\s*(.*?)\s*\)\s*$", re.IGNORECASE)
_GLOB = re.compile(r'GLOB\s+\w+\s+"([^"]+\.cu)"')
# A unit named on its own line or in list(APPEND ...), as the vector kernels of builds 8672 to 10566.
_NAMED = re.compile(r"^\s*(?:list\s*\(\s*APPEND\s+\w+\s+)?((?:[\w.-]+/)+[\w.-]+\.cu)\s*\)?\s*$")
# Options that would add units, and are off by default.
_OFF = re.compile(r"^(GGML_CUDA_FA_ALL_QUANTS|GGML_MUSA_MUDNN_COPY)$")

# Blank lines and one-line comments, then a quoted include.
_HEAD = re.compile(rb'(?:[ \t]*(?://[^\n\\]*)?\n)*#[ \t]*include[ \t]+"([^"\n]+)"[ \t]*\n')
# Lines that may contain a directive, or affect one: by a block comment, or by a continuation line.
_DIRECTIVE = re.compile(rb"#|/\*|\*/|\\[ \t\r]*$")
# Constructs that a scan by lines cannot handle: raw strings, trigraphs, digraphs, _Pragma, __COUNTER__.
_UNSCANNABLE = re.compile(rb'(?<!\w)(?:u8?|[UL])?R"|\?\?|%:|_Pragma|__COUNTER__')
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+(?:"([^"\n]+)"|(<[^>\n]+>)|(\w+))', re.MULTILINE)


def platform_units(tree: Path, platform: Platform) -> tuple[str, ...]:
    """The units of one backend: those that its CMakeLists.txt adds with default options.

    Raises:
        BUILD_LIST_MISSING: the file is missing, or none of its globs matches.
    """
    path = upstream_of(tree).ggml_path(f"src/ggml-{platform}/CMakeLists.txt")
    file = tree / path
    folder = posixpath.dirname(path)
    units: set[str] = set()
    if file.is_file():
        text = file.read_text("utf-8", "replace")
        units |= set(kv_units(tree, text))
        for pattern in _globs(text.splitlines()):
            joined = posixpath.normpath(posixpath.join(folder, pattern))
            units |= {found.relative_to(tree).as_posix() for found in tree.glob(joined)}
    if not units:
        raise ToolchainError(
            f"no {platform} units found in upstream's CMakeLists.txt",
            code="BUILD_LIST_MISSING",
            where=Location(path=path),
            why="it was expected to list them by file(GLOB ...), as at build 6900",
            hint=f"compare it with: git show b6900:{path}; then adapt patchkit/toolchain/units.py",
        )
    return tuple(sorted(units))


def _globs(lines: Iterable[str]) -> Iterator[str]:
    taken: list[bool] = []  # per open if(): whether its current branch is taken
    for line in lines:
        if all(taken) and (named := _NAMED.match(line)):
            yield named[1]
        found = _COMMAND.match(line)
        if found is None:
            continue
        word, argument = found[1].lower(), found[2]
        if word == "if":
            taken.append(_OFF.match(argument) is None)
        elif word == "else" and taken:
            # Other conditions are about tools, not about files, so both branches are taken.
            taken[-1] = True
        elif word == "endif" and taken:
            taken.pop()
        elif word == "file" and all(taken) and (glob := _GLOB.match(argument)):
            yield glob[1]


class SourceTree:
    """An exported tree with its include graph and digests, each computed once. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders = include_folders(root)
        self._direct: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._files: dict[str, str] = {}
        self._units: dict[str, str] = {}
        self._directives: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self._mentions: dict[tuple[str, bytes], bool] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[Path], SourceTree], tuple[Path]]:
        return _known_tree, (self.root,)

    def has(self, path: str) -> bool:
        """Whether the tree has the file ``path``."""
        return (self.root / path).is_file()

    def read(self, path: str) -> bytes:
        """The bytes of one file."""
        return (self.root / path).read_bytes()

    def closure(self, unit: str) -> tuple[str, ...]:
        """The unit and all files of the tree that it may include, sorted. Raises COMPUTED_INCLUDE."""
        seen = {unit}
        waiting = [unit]
        while waiting:
            for path in self._includes_of(waiting.pop())[0]:
                if path not in seen:
                    seen.add(path)
                    waiting.append(path)
        return tuple(sorted(seen))

    def system_headers(self, unit: str) -> tuple[str, ...]:
        """The names that the closure of a unit includes in angle brackets, sorted."""
        return tuple(sorted({name for path in self.closure(unit) for name in self._includes_of(path)[1]}))

    def digest(self, unit: str, opened: Iterable[str] | None = None) -> str:
        """sha256 over the paths and bytes of a unit's closure, or only of the files in ``opened``."""
        with self._lock:
            if opened is not None:
                return self._over(unit, opened, self._file)
            if unit not in self._units:
                self._units[unit] = self._over(unit, self.closure(unit), self._file)
            return self._units[unit]

    def directives(self, unit: str) -> str:
        """sha256 over the directives of a unit's closure, which decide the files that a pass opens.

        Covers the path of each file, and its lines by :func:`directive_lines`.
        """
        with self._lock:
            if unit not in self._directives:
                self._directives[unit] = self._over(unit, self.closure(unit), self._directives_of)
            return self._directives[unit]

    def _over(self, unit: str, paths: Iterable[str], digest_of: Callable[[str], str]) -> str:
        lines = [f"{path} {digest_of(path)}\n" for path in paths]
        return sha256("".join([unit, "\n", *lines]))

    def _directives_of(self, path: str) -> str:
        if path not in self._lines:
            self._lines[path] = sha256(directive_lines(self.read(path)))
        return self._lines[path]

    def head(self, unit: str) -> tuple[str, bytes] | None:
        """The file that a unit includes first, and the text after that line; None if it is not such a unit.

        The text must have no other directive; nearly all of upstream's template instances are such units.
        """
        text = self.read(unit)
        found = _HEAD.match(text)
        if found is None:
            return None
        rest = text[found.end() :]
        path = self._resolve(unit, found[1].decode("utf-8", "replace"))
        return None if path is None or b"#" in rest or b"\\\n" in rest else (path, rest)

    def mentions(self, unit: str, word: bytes) -> bool:
        """Whether a file of the unit's closure contains ``word``."""
        for path in self.closure(unit):
            if (path, word) not in self._mentions:
                self._mentions[path, word] = word in self.read(path)
            if self._mentions[path, word]:
                return True
        return False

    def _file(self, path: str) -> str:
        if path not in self._files:
            self._files[path] = sha256(self.read(path))
        return self._files[path]

    def _includes_of(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if path not in self._direct:
            self._direct[path] = self._includes(path)
        return self._direct[path]

    def _includes(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        data = (self.root / path).read_bytes()
        own: list[str] = []
        system: list[str] = []
        for found in _INCLUDE.finditer(data):
            quoted, angled, word = found.groups()
            if word is not None:
                line = data.count(b"\n", 0, found.start()) + 1
                raise ToolchainError(
                    f"{path} includes a file by the macro {word.decode('utf-8', 'replace')}",
                    code="COMPUTED_INCLUDE",
                    where=Location(path=path, line=line),
                    why="patchkit cannot determine which files the unit depends on",
                    hint="include the file by its name",
                )
            if angled is not None:
                system.append(angled[1:-1].decode("utf-8", "replace"))
            elif (target := self._resolve(path, quoted.decode("utf-8", "replace"))) is not None:
                own.append(target)
        return tuple(own), tuple(system)

    def _resolve(self, path: str, name: str) -> str | None:
        for folder in (posixpath.dirname(path), *self._folders):
            joined = posixpath.normpath(posixpath.join(folder, name))
            if not joined.startswith("../") and (self.root / joined).is_file():
                return joined
        return None


def directive_lines(text: bytes) -> bytes:
    """The numbered lines of a file that can affect which files are opened; all of it if that is unclear.

    Numbered, because an ``#if`` may use ``__LINE__``. The result may include more lines than needed, such as
    a directive in a comment.
    """
    if _UNSCANNABLE.search(text):
        return text
    kept: list[bytes] = []
    goes_on = False
    for number, line in enumerate(text.split(b"\n"), 1):
        if goes_on or _DIRECTIVE.search(line):
            kept.append(b"%d %b" % (number, line))
        if b"#" in line and line.rfind(b"/*") > line.rfind(b"*/"):
            return text  # a directive that continues after a block comment
        goes_on = line.rstrip(b" \t\r").endswith(b"\\")
    return b"\n".join(kept)


@lru_cache(maxsize=8)
def _known_tree(root: Path) -> SourceTree:
    """The tree of a path, cached for worker processes, so that files are read once. Trees never change."""
    return SourceTree(root)


def units_including(tree: SourceTree, files: Collection[str], units: Iterable[str]) -> tuple[str, ...]:
    """The ``units`` whose closure contains any of ``files``, in order."""
    wanted = frozenset(files)
    return tuple(unit for unit in units if not wanted.isdisjoint(tree.closure(unit)))
