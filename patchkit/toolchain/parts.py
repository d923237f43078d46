"""The parts of an upstream build, keyed by sources and options, so that baseline and candidate share them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from patchkit.base.digests import key_of, sha256
from patchkit.base.upstreams import Upstream, build_name, llama_cpp, upstream_of

BackendName = Literal["cpu", "hip", "cuda"]
PartName = Literal["programs", "cpu", "gpu"]

_FORMAT = 1  # of build folders; a new number invalidates all older ones
_BACKENDS = "src"  # in ggml's own repository; every folder "ggml-*" below it is a backend
_GPU_FOLDERS: Mapping[BackendName, frozenset[str]] = {
    "cpu": frozenset(),
    "hip": frozenset({"ggml-cuda", "ggml-hip"}),
    "cuda": frozenset({"ggml-cuda"}),
}
GPU_LIBRARIES: Mapping[BackendName, str] = {"hip": "ggml-hip", "cuda": "ggml-cuda"}

CPU_LIBRARY = "ggml-cpu"
BACKEND_LIBRARIES = tuple(f"lib{name}" for name in (CPU_LIBRARY, *GPU_LIBRARIES.values()))
"""Prefixes of the file names of backend libraries."""
OPERATION_TESTS = "test-backend-ops"
"""ggml's own operation tests, which all projects on ggml can build."""
GATE_PROGRAMS = (OPERATION_TESTS, llama_cpp().programs.bench)
"""The upstream programs that gates run."""

# Options for programs that load their backends at run time, and depend only on the C++ library.
_MODULES: Mapping[str, bool] = {
    "BUILD_SHARED_LIBS": True,
    "GGML_BACKEND_DL": True,
    "GGML_NATIVE": False,  # upstream does not allow it with GGML_BACKEND_DL
    "GGML_OPENMP": False,  # ggml's own threads instead: one library less to find at run time
    "GGML_CCACHE": False,  # patchkit sets the launcher itself, with the folders that ccache needs
}
_EVERYWHERE: Mapping[str, str | bool] = {
    **_MODULES,
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": True,
    "CMAKE_INSTALL_RPATH": "$ORIGIN",  # programs and libraries share a folder, which can be moved
}
# Takes two thirds of the compile time (measured on build 11549), and computes the same results.
_UNTIMED: Mapping[str, str | bool] = {
    "CMAKE_C_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
}
LEAN = Path(__file__).with_name("lean.cmake")
"""CMake code that excludes sources which :data:`GATE_PROGRAMS` never call, and ggml-base from backends."""
LEAN_ENTRY = "PATCHKIT_LEAN"
"""Cache entry of parts that are built with it; its value is ``programs`` or ``backend``."""
_LEAN_DIGEST = "PATCHKIT_LEAN_DIGEST"
NOTE = Path(__file__).with_name("note.cmake")
"""CMake code that makes llama-server print :data:`NOTE_ENTRY` when it starts."""
NOTE_ENTRY = "PATCHKIT_NOTE"
"""Cache entry of programs that are built with it: the build, the commit and its patches."""
_NOTE_DIGEST = "PATCHKIT_NOTE_DIGEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a tree's build. ``library`` is the target of a backend; those of programs are chosen later.

    ``sources`` is the digest of the files it is built from; ``environment`` is for CMake. ``labels`` names
    the entries that programs only print.
    """

    name: PartName
    backend: BackendName
    sources: str
    entries: Mapping[str, str | bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    compiler: str
    labels: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The digest, 64 hex digits, of everything that determines the part."""
        return key_of(
            {
                "format": _FORMAT,
                "name": self.name,
                "sources": self.sources,
                "entries": dict(self.entries),
                "environment": dict(self.environment),
                "compiler": self.compiler,
            }
        )

    @property
    def folder_name(self) -> str:
        """The name of its build folder."""
        what = self.backend if self.name == "gpu" else self.name
        return f"{what}-{self.key[:16]}"


def programs_part(
    tree: Path,
    *,
    build: int,
    commit: str,
    compiler: str,
    is_timed: bool = True,
    wanted: Sequence[str] = (),
    has_cpu: bool = False,
    has_note: bool = False,
) -> Part:
    """llama.cpp's programs and the libraries that they link; they print ``build`` and ``commit``.

    If their speed does not matter (``is_timed`` is false), they are built with less optimization, and if
    only :data:`GATE_PROGRAMS` are ``wanted``, without code that those never call. The CPU backend is a
    separate part, always built as upstream builds it. With ``has_cpu`` it can also be built here, for
    upstream's own tests, which CTest runs in the build folder. With ``has_note`` llama-server prints both
    when it starts.
    """
    upstream = upstream_of(tree)
    entries = {
        **_everywhere(upstream),
        **upstream.cmake.with_programs,
        "GGML_CPU": has_cpu,  # otherwise it is a separate part
    }
    labels = {
        option: value
        for option, value in (
            (upstream.cmake.build_number, str(build)),
            (upstream.cmake.build_commit, commit),
        )
        if option is not None
    }
    if has_note:
        labels[NOTE_ENTRY] = f"{build_name(build)}, commit {commit}"
        entries[_NOTE_DIGEST] = sha256(NOTE.read_bytes())[:16]
    entries |= labels
    if not is_timed:
        entries |= _UNTIMED
        if wanted and set(wanted) <= set(GATE_PROGRAMS):
            entries |= _lean("programs")
    return Part(
        name="programs",
        backend="cpu",
        sources=_digest(tree, upstream.folders.programs, frozenset({CPU_LIBRARY} if has_cpu else ())),
        entries=entries,
        compiler=compiler,
        labels=frozenset(labels),
    )


def cpu_part(tree: Path, *, compiler: str) -> Part:
    """The CPU backend, for upstream's default instruction set (not GGML_NATIVE)."""
    upstream = upstream_of(tree)
    return Part(
        name="cpu",
        backend="cpu",
        sources=_digest(tree, upstream.folders.backends, frozenset({CPU_LIBRARY})),
        entries={**_everywhere(upstream), **upstream.cmake.without_programs, **_lean("backend")},
        library=CPU_LIBRARY,
        compiler=compiler,
    )


def gpu_part(
    tree: Path,
    backend: BackendName,
    *,
    entries: Mapping[str, str | bool],
    environment: Mapping[str, str],
    compiler: str,
) -> Part:
    """A GPU backend, with the cache entries and environment of its toolchain."""
    upstream = upstream_of(tree)
    return Part(
        name="gpu",
        backend=backend,
        sources=_digest(tree, upstream.folders.backends, _GPU_FOLDERS[backend]),
        entries={**_everywhere(upstream), **upstream.cmake.without_programs, "GGML_CPU": False, **entries},
        environment=environment,
        library=GPU_LIBRARIES[backend],
        compiler=compiler,
    )


def _everywhere(upstream: Upstream) -> dict[str, str | bool]:
    return {**_EVERYWHERE, **upstream.cmake.always}


def _lean(kind: Literal["programs", "backend"]) -> dict[str, str]:
    return {LEAN_ENTRY: kind, _LEAN_DIGEST: sha256(LEAN.read_bytes())[:16]}


def sources_digest(tree: Path, names: Sequence[str], is_excluded: Callable[[Path], bool]) -> str:
    """sha256 over the paths and bytes of all files of ``tree`` in the folders and files ``names``."""
    digest = hashlib.sha256()
    for path in _files(tree, names):
        if not is_excluded(path):
            name = path.relative_to(tree).as_posix()
            digest.update(f"{name} {sha256(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def _files(tree: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        top = tree / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file():
                yield path


def _digest(tree: Path, names: Sequence[str], backends: frozenset[str]) -> str:
    """The digest of ``names``, without the folders of backends that are not in ``backends``."""
    above = tree / upstream_of(tree).ggml_path(_BACKENDS)

    def is_other_backend(path: Path) -> bool:
        if above not in path.parents:
            return False
        first = path.relative_to(above).parts[0]
        return first.startswith("ggml-") and (above / first).is_dir() and first not in backends

    return sources_digest(tree, names, is_other_backend)
