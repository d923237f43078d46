"""The pinned tree in memory: the files that the series needs, with the changes of earlier patches."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from patchkit.base.errors import CacheError
from patchkit.base.source import SourceText
from patchkit.base.store import Store
from patchkit.base.upstreams import GPU_FOLDER, Upstream, recognise
from patchkit.carry.cpp.ast import (
    Pass,
    Preprocessing,
    Tree,
    has_device_pass,
    parse_tree,
    reachable_files,
    read_includes,
)
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.carry.upstream.repository import Repository

_GGML_HEADERS = ("include", "src", GPU_FOLDER, f"{GPU_FOLDER}/vendors")

REGULAR, EXECUTABLE = "100644", "100755"
"""Git's file modes."""

_SOURCES = (".cu", ".cuh", ".h", ".hpp")

Search = Callable[[Sequence[str]], Mapping[str, Sequence[tuple[str, int]]]]

# The host and the device pass of a file run in parallel, as libclang releases the interpreter lock.
_PARSERS = 2

# A HIP file is always parsed for some GPU, but a plain series may name none.
_ANY_ARCH = "gfx1151"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A record in the cache that clang has accepted a change; without ``store``, it is never there."""

    store: Store | None = None
    name: str = ""

    @property
    def exists(self) -> bool:
        """Whether an earlier run, or an earlier step of this one, has recorded it."""
        return self.store is not None and self.store.read(self.name) is not None

    def record(self) -> None:
        """Record it; a full or read-only disk only means parsing again."""
        if self.store is not None:
            with suppress(CacheError):
                self.store.write(self.name, b"")


class UpstreamFiles:
    """Files of one tree. ``base`` maps paths to bytes and is never changed.

    ``others`` are further paths of the tree; ``read_more`` reads those of them that a parse includes.
    ``modes`` lists modes other than 100644. ``parses`` is a folder with cached parses. ``search`` finds
    texts in all files of the tree, like :meth:`patchkit.carry.upstream.repository.Repository.search`.
    ``project`` is recognised from the paths if it is not given. ``origin`` identifies the content of all
    these files, None if nothing does.
    """

    def __init__(
        self,
        base: Mapping[str, bytes],
        others: Iterable[str] = (),
        read_more: Callable[[Sequence[str]], Mapping[str, bytes]] | None = None,
        *,
        modes: Mapping[str, str] = MappingProxyType({}),
        parses: Path | None = None,
        search: Search | None = None,
        project: Upstream | None = None,
        origin: str | None = None,
    ) -> None:
        self._base = base
        self._origin = origin
        self._search = search
        self._others = frozenset(others)
        self.project = project or recognise(self._others.union(base))
        # Vendored code is not parsed: nlohmann/json alone has 25000 lines, and declarations.h has its names.
        vendored = self.project.folders.vendored
        self._readable = (
            frozenset(path for path in self._others if not path.startswith(f"{vendored}/"))
            if vendored is not None
            else self._others
        )
        self._read_more = read_more
        self._included: dict[str, bytes] = {}
        self._base_modes = modes
        self._parses = parses
        self._overlay: dict[str, bytes] = {}
        self._modes: dict[str, str] = {}
        self._gone: set[str] = set()

    def read(self, path: str) -> bytes | None:
        """Current bytes of a file, None if it does not exist."""
        if path in self._gone:
            return None
        return self._overlay.get(path, self._base.get(path))

    def mode(self, path: str) -> str:
        """The mode of an existing path, as git writes it."""
        return self._modes.get(path, self._base_modes.get(path, REGULAR))

    def fresh(self) -> UpstreamFiles:
        """The same upstream without any changes written to it."""
        fresh = UpstreamFiles(
            self._base,
            self._others,
            self._read_more,
            modes=self._base_modes,
            parses=self._parses,
            search=self._search,
            project=self.project,
            origin=self._origin,
        )
        fresh._included = self._included  # upstream's own files, so they can be shared
        return fresh

    def without_any(self) -> UpstreamFiles:
        """An empty upstream, for a parse that sees only the files passed to it."""
        return UpstreamFiles({}, parses=self._parses, project=self.project)

    def with_others(self, files: Mapping[str, bytes | None], modes: Mapping[str, str]) -> UpstreamFiles:
        """Another upstream with these contents and modes; content None means that it lacks the file."""
        base = {path: data for path, data in self._base.items() if path not in files}
        gone = {path for path, data in files.items() if data is None}
        other = UpstreamFiles(
            base | {path: data for path, data in files.items() if data is not None},
            self._others - gone,
            self._read_more,
            modes={**self._base_modes, **modes},
            parses=self._parses,
            search=self._search,
            project=self.project,
        )
        other._included = {path: data for path, data in self._included.items() if path not in files}
        return other

    def contents(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Upstream's files at these paths, also ones that are not read otherwise; without missing ones."""
        wanted = tuple(paths)
        more = [path for path in wanted if path in self._others and path not in self._base]
        found = self._read_more(more) if self._read_more is not None and more else {}
        return {**found, **{path: self._base[path] for path in wanted if path in self._base}}

    def reading(self, paths: Iterable[str]) -> UpstreamFiles:
        """The same upstream, with these files read, too."""
        return self.with_others(self.contents(paths), {})

    def upstream_scopes(self, path: str) -> ScopeMap:
        """The structure of a file as it is upstream."""
        return parse_scopes(SourceText(path, self._base[path]))

    @property
    def base(self) -> Mapping[str, bytes]:
        """The files as they are upstream."""
        return self._base

    def confirmation(self, parts: Iterable[str | bytes]) -> Confirmation:
        """The record that clang accepts a change of the files as they are; ``parts`` identify it."""
        if self._origin is None or self._parses is None:
            return Confirmation()
        state = hashlib.sha256(self._origin.encode())
        for path, data in sorted(self._overlay.items()):
            state.update(f"{len(path)} {path} {len(data)} ".encode("utf-8", "surrogatepass"))
            state.update(data)
        for part in (*sorted(self._gone), b"", *parts):
            text = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            state.update(b"%d " % len(text) + text)
        return Confirmation(Store(root=self._parses), state.hexdigest())

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path whose content is available, sorted."""
        return tuple(sorted({*self._base, *self._overlay} - self._gone))

    @property
    def names(self) -> frozenset[str]:
        """Every existing path, including files whose content is not read."""
        return self._others.union(self._base, self._overlay) - self._gone

    def search(self, texts: Sequence[str]) -> Mapping[str, Sequence[tuple[str, int]]]:
        """Where upstream has each text on a line of any file, including files that are not read otherwise."""
        return self._search(texts) if self._search is not None and texts else dict.fromkeys(texts, ())

    def unpatched(self, path: str) -> bytes | None:
        """A file as it is upstream, also one that is only included; None if it was not read."""
        return self._base.get(path, self._included.get(path))

    def visible(self, path: str) -> Mapping[str, bytes]:
        """The file and the files that it includes, directly or not, in any branch; empty if it is gone."""
        data = self.read(path)
        if data is None:
            return {}
        files = {**self._base, **self._included, **self._overlay}
        if not path.startswith(f"{self.project.gpu_folder}/"):
            files |= self._read_includes({path: data}, files)
        return reachable_files(path, {name: each for name, each in files.items() if name not in self._gone})

    def write(
        self,
        changes: Mapping[str, bytes],
        gone: Iterable[str] = (),
        modes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Apply the file changes of one patch; paths in ``gone`` are removed first."""
        for path in gone:
            self._gone.add(path)
            self._overlay.pop(path, None)
            self._modes[path] = REGULAR
        self._gone.difference_update(changes)
        self._overlay.update(changes)
        self._modes.update(modes)

    def trees(
        self,
        sources: Sequence[SourceText],
        archs: Sequence[str],
        defines: Sequence[str],
        added: Mapping[str, bytes],
        *,
        with_names: bool = False,
    ) -> list[dict[tuple[Pass, str], Tree]]:
        """Host and device AST of each version for each arch; ``added`` are new files that includes may find.

        The host pass is the same for every arch, so it is parsed for the first one only. ``with_names`` as
        for :func:`patchkit.carry.cpp.ast.parse_tree`.
        """
        passes: list[tuple[Pass, str]] = [("host", archs[0]), *(("device", arch) for arch in archs)]
        return self._parse(sources, [passes] * len(sources), defines, added, with_names=with_names)

    def plain_trees(
        self,
        sources: Sequence[SourceText],
        archs: Sequence[str],
        added: Mapping[str, bytes],
        *,
        with_names: bool = False,
    ) -> list[dict[tuple[Pass, str], Tree]]:
        """As :meth:`trees`, for a patch without a guard; files that are host code only get the host pass."""
        first = archs[0] if archs else _ANY_ARCH
        host: list[tuple[Pass, str]] = [("host", first)]
        both: list[tuple[Pass, str]] = [*host, ("device", first)]
        passes = [both if has_device_pass(source.path) else host for source in sources]
        return self._parse(sources, passes, ("GGML_USE_HIP",), added, with_names=with_names)

    def _parse(
        self,
        sources: Sequence[SourceText],
        passes: Sequence[Sequence[tuple[Pass, str]]],
        defines: Sequence[str],
        added: Mapping[str, bytes],
        *,
        with_names: bool,
    ) -> list[dict[tuple[Pass, str], Tree]]:
        files = {**self._base, **self._included, **self._overlay, **added}
        folders = self.project.folders.include
        seen = Preprocessing(defines=tuple(defines), folders=folders)
        kernels = f"{self.project.gpu_folder}/"  # the folders of its includes are always read
        if not all(source.path.startswith(kernels) for source in sources):
            files |= self._read_includes({source.path: source.data for source in sources}, files)
        for path in self._gone - added.keys():
            files.pop(path, None)

        def parse(job: tuple[SourceText, tuple[Pass, str]]) -> Tree:
            source, (which, arch) = job
            return parse_tree(
                source.path,
                {**files, source.path: source.data},
                arch=arch,
                which=which,
                preprocessing=seen,
                # Skipped branches matter only in the edited version of an upstream file.
                with_skipped=source.path in self._base and self._base[source.path] != source.data,
                with_names=with_names,
                kept=self._parses,
            )

        jobs = [(source, one) for source, some in zip(sources, passes, strict=True) for one in some]
        with ThreadPoolExecutor(_PARSERS) as pool:
            parsed = pool.map(parse, jobs)
            return [{one: next(parsed) for one in some} for some in passes]

    def _read_includes(self, sources: Mapping[str, bytes], files: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The sources, and upstream's files that they include and that are not in ``files``."""
        found = {**files, **sources}
        if self._read_more is None:
            return sources
        readable, folders = self._readable - self._gone, self.project.folders.include
        more = read_includes([*sources], found, readable, self._read_more, folders)
        self._included |= more
        return {**sources, **more}


def header_folders(project: Upstream) -> tuple[str, ...]:
    """The folders with the headers that GPU kernels include, at builds 6628 to 11549."""
    return tuple(project.ggml_path(folder) for folder in _GGML_HEADERS)


ROCWMMA_OPTION = "GGML_HIP_ROCWMMA_FATTN"
"""Upstream's option and macro for its rocWMMA attention kernel: builds 6900 to 10068, until PR 26046."""


def declares_option(name: str, cmake: bytes) -> bool:
    """Whether upstream's CMake file declares this option; rocWMMA's was removed by PR 26046."""
    return re.search(rb"\boption\(" + re.escape(name.encode()) + rb"\b", cmake) is not None


def read_upstream(
    repository: Repository,
    commit: str,
    read: Sequence[str],
    project: Upstream | None = None,
    *,
    shown_as: Upstream | None = None,
) -> UpstreamFiles:
    """Every file that edits and includes may need, in one read.

    ``read`` has files, and folders, which end with a slash and of which only the sources are read.
    ``project`` is recognised if it is not given. ``shown_as``: for a commit of llama.cpp, name its files as
    this project does, so that the two can be compared; ``read`` then has such names too.

    Raises GIT_OBJECT_MISSING, GitError.
    """
    entries = repository.list_files(commit)
    if shown_as is None:
        project = project or recognise(frozenset(entry.path for entry in entries))
        origin = {entry.path: entry for entry in entries}
    else:
        project = shown_as
        origin = {shown_as.place(entry.path) or entry.path: entry for entry in entries}
    wanted = frozenset([*(f"{folder}/" for folder in header_folders(project)), *read])
    regular = {path: entry.path for path, entry in origin.items() if entry.mode in (REGULAR, EXECUTABLE)}
    here = {entry.path: path for path, entry in origin.items()}

    def read_blobs(paths: Iterable[str]) -> dict[str, bytes]:
        names = {regular[path]: path for path in paths if path in regular}
        return {names[path]: data for path, data in repository.read_blobs(commit, names).items()}

    def search(texts: Sequence[str]) -> Mapping[str, Sequence[tuple[str, int]]]:
        found = repository.search(commit, texts)
        return {text: tuple((here.get(path, path), line) for path, line in at) for text, at in found.items()}

    return UpstreamFiles(
        read_blobs(
            sorted(
                path
                for path in regular
                if path in wanted or (path.rpartition("/")[0] + "/" in wanted and path.endswith(_SOURCES))
            )
        ),
        frozenset(origin),
        read_blobs,
        modes={path: entry.mode for path, entry in origin.items() if entry.mode != REGULAR},
        parses=repository.parses,
        search=search,
        project=project,
        origin="\n".join((commit, project.name, str(shown_as is not None), *sorted(wanted))),
    )
