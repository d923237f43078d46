"""The pinned tree in memory, as far as the series touches it, with what earlier patches changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from patchkit.base.source import SourceText
from patchkit.carry.cpp.ast import Pass, Tree, parse_tree
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.carry.upstream.repository import Repository

HEADER_FOLDERS = ("ggml/include", "ggml/src", "ggml/src/ggml-cuda", "ggml/src/ggml-cuda/vendors")
"""Where the includes of ggml-cuda's own files are found at builds 6628 to 11549."""

OPTIONS_FILE = "ggml/CMakeLists.txt"
"""Where ggml's build options are declared at builds 6628 to 11549."""

_SOURCES = (".cu", ".cuh", ".h", ".hpp")

# Host pass and device pass of one file run side by side: libclang releases the interpreter lock.
_PARSERS = 2


class UpstreamFiles:
    """Files of one tree. ``base`` maps paths to bytes and is never changed.

    ``others`` are paths that the tree has, too, and that nobody reads.
    """

    def __init__(self, base: Mapping[str, bytes], others: Iterable[str] = ()) -> None:
        self._base = base
        self._others = frozenset(others)
        self._overlay: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        """Current bytes of a file, None when there is none."""
        return self._overlay.get(path, self._base.get(path))

    def fresh(self) -> UpstreamFiles:
        """The same upstream without what was written over it."""
        return UpstreamFiles(self._base, self._others)

    def upstream_scopes(self, path: str) -> ScopeMap:
        """Structure of a file as upstream has it."""
        return parse_scopes(SourceText(path, self._base[path]))

    @property
    def base(self) -> Mapping[str, bytes]:
        """The files as upstream has them."""
        return self._base

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that can be read, sorted."""
        return tuple(sorted({*self._base, *self._overlay}))

    @property
    def names(self) -> frozenset[str]:
        """Every path that is taken, those of files nobody reads among them."""
        return self._others.union(self._base, self._overlay)

    def write(self, changes: Mapping[str, bytes]) -> None:
        """Put the files of one patch over what is there."""
        self._overlay.update(changes)

    def trees(
        self,
        sources: Sequence[SourceText],
        archs: Sequence[str],
        defines: Sequence[str],
        added: Mapping[str, bytes],
    ) -> list[dict[tuple[Pass, str], Tree]]:
        """Host and device AST of each version for each arch; ``added`` are new files includes may find.

        The host pass is the same for every arch, so it is parsed for the first one only.
        """
        passes: list[tuple[Pass, str]] = [("host", archs[0]), *(("device", arch) for arch in archs)]
        files = {**self._base, **self._overlay, **added}

        def parse(job: tuple[SourceText, tuple[Pass, str]]) -> Tree:
            source, (which, arch) = job
            return parse_tree(
                source.path,
                {**files, source.path: source.data},
                arch=arch,
                which=which,
                defines=defines,
                # What the preprocessor leaves out matters only in an edited version of upstream's file.
                with_skipped=source.path in self._base and self._base[source.path] != source.data,
            )

        with ThreadPoolExecutor(_PARSERS) as pool:
            parsed = pool.map(parse, product(sources, passes))
            return [{one: next(parsed) for one in passes} for _ in sources]


ROCWMMA_OPTION = "GGML_HIP_ROCWMMA_FATTN"
"""Upstream's option, and macro, for its attention kernel on rocWMMA: builds 6900 to 10068, until PR 26046."""


def declares_option(name: str, cmake: bytes) -> bool:
    """Whether upstream's file of options has this one: rocWMMA's ended with PR 26046."""
    return re.search(rb"\boption\(" + re.escape(name.encode()) + rb"\b", cmake) is not None


def read_upstream(repository: Repository, commit: str, read: Sequence[str]) -> UpstreamFiles:
    """Every file that edits and includes may look at, in one read.

    ``read`` are folders, which end with a slash and of which the sources are read, and files.

    Raises GIT_OBJECT_MISSING, GitError.
    """
    wanted = frozenset([*(f"{folder}/" for folder in HEADER_FOLDERS), *read])
    entries = repository.list_files(commit)
    paths = [
        entry.path
        for entry in entries
        if (
            entry.path in wanted
            or (entry.path.rpartition("/")[0] + "/" in wanted and entry.path.endswith(_SOURCES))
        )
        and entry.mode in ("100644", "100755")
    ]
    return UpstreamFiles(repository.read_blobs(commit, sorted(paths)), (entry.path for entry in entries))
