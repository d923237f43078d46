"""The parts that upstream is built in, each with a key over sources and options, so that sides share them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from patchkit.base.digests import key_of, sha256
from patchkit.base.upstreams import Upstream, llama_cpp, upstream_of

BackendName = Literal["cpu", "hip", "cuda"]
PartName = Literal["programs", "cpu", "gpu"]

_FORMAT = 1  # of a build folder; a change makes every old one unknown
_BACKENDS = "src"  # in ggml's own repository; below it, every folder "ggml-*" is a backend
_GPU_FOLDERS: Mapping[BackendName, frozenset[str]] = {
    "cpu": frozenset(),
    "hip": frozenset({"ggml-cuda", "ggml-hip"}),
    "cuda": frozenset({"ggml-cuda"}),
}
GPU_LIBRARIES: Mapping[BackendName, str] = {"hip": "ggml-hip", "cuda": "ggml-cuda"}

CPU_LIBRARY = "ggml-cpu"
BACKEND_LIBRARIES = tuple(f"lib{name}" for name in (CPU_LIBRARY, *GPU_LIBRARIES.values()))
"""How the file names of the backends' libraries begin."""
OPERATION_TESTS = "test-backend-ops"
"""ggml's own tests of operations: every project on ggml can build them."""
GATE_PROGRAMS = (OPERATION_TESTS, llama_cpp().programs.bench)
"""What the gates run of upstream's programs."""

# Programs that load their backends at run time, and need nothing but a C++ library.
_MODULES: Mapping[str, bool] = {
    "BUILD_SHARED_LIBS": True,
    "GGML_BACKEND_DL": True,
    "GGML_NATIVE": False,  # upstream refuses it with GGML_BACKEND_DL
    "GGML_OPENMP": False,  # ggml's own threads: one library less to find at run time
    "GGML_CCACHE": False,  # where there is one we set the launcher ourselves, with the folders it needs
}
_EVERYWHERE: Mapping[str, str | bool] = {
    **_MODULES,
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": True,
    "CMAKE_INSTALL_RPATH": "$ORIGIN",  # programs and libraries lie in one folder, wherever that is
}
# Measured on build 11549: two thirds of the time of a compiler, and nothing that is computed changes.
_UNTIMED: Mapping[str, str | bool] = {
    "CMAKE_C_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
}
LEAN = Path(__file__).with_name("lean.cmake")
"""Leaves out of the programs what :data:`GATE_PROGRAMS` never call, and of a backend's build ggml-base."""
LEAN_ENTRY = "PATCHKIT_LEAN"
"""The entry of parts that are built with it: ``programs`` or ``backend``."""
_LEAN_DIGEST = "PATCHKIT_LEAN_DIGEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of one tree. ``library`` is the target of a backend; the programs' are chosen when built.

    ``sources`` is the digest of what it reads; ``environment`` goes to CMake.
    """

    name: PartName
    backend: BackendName
    sources: str
    entries: Mapping[str, str | bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    compiler: str

    @property
    def key(self) -> str:
        """64 hex digits over everything that determines the part."""
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
) -> Part:
    """llama.cpp's programs and the libraries they link; ``build`` and ``commit`` are what they print.

    Those whose times nobody looks at need not be ``is_timed``: they are built with less optimization, and
    where none but :data:`GATE_PROGRAMS` are ``wanted``, without what those never call. The CPU backend is a
    part of its own and always built as upstream builds it; with ``has_cpu`` it can be built in this build,
    too, for upstream's own tests, which CTest runs where they lie.
    """
    upstream = upstream_of(tree)
    entries = {
        **_everywhere(upstream),
        **upstream.cmake.with_programs,
        "GGML_CPU": has_cpu,  # without, it is a part of its own
        upstream.cmake.build_number: str(build),
        upstream.cmake.build_commit: commit,
    }
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
    )


def cpu_part(tree: Path, *, compiler: str) -> Part:
    """The CPU backend, for the instructions that upstream takes when it must not ask this machine."""
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
    """The backend of a GPU, with the entries of its toolchain."""
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


def sources_digest(tree: Path, names: Sequence[str], is_left_out: Callable[[Path], bool]) -> str:
    """sha256 over the paths and bytes of all files of ``tree`` in the folders and files ``names``."""
    digest = hashlib.sha256()
    for path in _files(tree, names):
        if not is_left_out(path):
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
    """Of the backends' folders only those in ``backends``."""
    above = tree / upstream_of(tree).ggml_path(_BACKENDS)

    def is_other_backend(path: Path) -> bool:
        if above not in path.parents:
            return False
        first = path.relative_to(above).parts[0]
        return first.startswith("ggml-") and (above / first).is_dir() and first not in backends

    return sources_digest(tree, names, is_other_backend)
