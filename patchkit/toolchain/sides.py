"""Builds the parts of a tree for this machine, and assembles them into one folder with its programs."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from patchkit.base.digests import key_of
from patchkit.base.files import disk_errors, mark_used, write_whole
from patchkit.base.locks import locked
from patchkit.base.reporter import Reporter
from patchkit.toolchain.cmake import BuildFailed, NotConfigured, Project, build_targets
from patchkit.toolchain.parts import (
    BACKEND_LIBRARIES,
    LEAN,
    LEAN_ENTRY,
    NOTE,
    NOTE_ENTRY,
    BackendName,
    Part,
)
from patchkit.toolchain.tree import follow_tree

BUILDS = "builds"
"""The folder of all builds below the cache folder, and the name of their store."""
_STAMP = "built.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The settings for building: the cache folder (builds are in ``<cache>/builds``) and the reporter.

    ``in_turns``: build parts that differ only in their sources and in what programs print as their version
    one after the other in the same folder, so that only the units with changes are recompiled.
    """

    cache_root: Path
    reporter: Reporter
    stop: threading.Event | None = None
    in_turns: bool = False

    @property
    def root(self) -> Path:
        """The folder of all builds."""
        return self.cache_root / BUILDS


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPart:
    """A part with its build ``folder`` and logs; ``seconds`` is the build time, 0 if it was built already."""

    part: Part
    folder: Path
    seconds: float
    uses_ccache: bool

    @property
    def files(self) -> Path:
        """The folder of programs and libraries."""
        return self.folder / "build" / "bin"

    @property
    def log(self) -> Path:
        """The output of Ninja and the compilers."""
        return self.folder / "build.log"


class CachedRun(Protocol):
    """A program run that may be cached."""

    def take(self, out: Path, err: Path) -> float | None:
        """Restore the output of a cached run and return its duration in seconds, or None if not cached."""
        ...

    def running(self) -> AbstractContextManager[Mapping[str, str]]:
        """A context for the run, with additional environment variables."""
        ...

    def keep(self, seconds: float, out: Path, err: Path) -> None:
        """Store the output of the run in the cache."""
        ...


class RunCache(Protocol):
    """A cache of the program runs of a side."""

    def watch(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> CachedRun | None:
        """A run with its outputs in ``folder``; None if it cannot be cached."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSide:
    """One side (baseline or candidate), built and ready to run in ``folder``.

    ``module`` is the backend under test, ``cpu`` the CPU backend. ``environment`` has additional variables
    for its programs. ``kept`` is a cache of earlier runs, if those can be reused.
    """

    tree: str
    backend: BackendName
    folder: Path
    module: Path
    cpu: Path
    parts: tuple[BuiltPart, ...]
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    kept: RunCache | None = field(default=None, compare=False, repr=False)

    def program(self, name: str) -> Path:
        """The path of one program."""
        return self.folder / name

    @property
    def identity(self) -> str:
        """A digest of all parts: sides with the same identity are the same build."""
        return key_of({"parts": [built.part.key for built in self.parts]})


def build_part(part: Part, tree: Path, targets: Sequence[str], workshop: Workshop) -> BuiltPart:
    """Build ``targets`` of a part, unless they are built already.

    Raises as :func:`patchkit.toolchain.cmake.build_targets`.
    """
    folder = workshop.root / part.folder_name
    with _held(folder, workshop.reporter):
        done = _built(folder)
        if set(targets) <= set(done):
            mark_used(folder / _STAMP)
            return BuiltPart(part=part, folder=folder, seconds=0.0, uses_ccache=False)
        ccache = shutil.which("ccache")
        project = Project(
            source=folder / "source",
            folder=folder,
            entries={**part.entries, **_launcher(part, ccache), **_included(part)},
            environment={**part.environment, **_ccache_environment(workshop)},
        )
        if workshop.in_turns:
            seconds = _build_in_turn(part, tree, targets, project, workshop)
        else:
            with disk_errors(folder, "preparing a build"):
                if not project.source.exists():  # the tree may have been pruned; any with equal sources works
                    project.source.unlink(missing_ok=True)
                    # A link with the same name in every folder, so that ccache sees the same paths.
                    project.source.symlink_to(os.path.relpath(tree, folder), target_is_directory=True)
            seconds = _build(project, targets, workshop)
        write_whole(folder / _STAMP, json.dumps(sorted({*done, *targets})), "preparing a build")
    return BuiltPart(part=part, folder=folder, seconds=round(seconds, 1), uses_ccache=ccache is not None)


def _build(project: Project, targets: Sequence[str], workshop: Workshop) -> float:
    def build(project: Project) -> float:
        seconds = build_targets(
            project,
            targets,
            what=f"building {', '.join(targets)}",
            reporter=workshop.reporter,
            stop=workshop.stop,
        )
        with disk_errors(project.folder, "collecting the libraries of a build"):
            _collect_libraries(project.build)
        return seconds

    try:
        return build(project)
    except (BuildFailed, NotConfigured) as error:
        if not project.entries.get(_INCLUDED):
            raise
        # Upstream's programs now call excluded code, or the tree does not build at all.
        workshop.reporter.info(
            f"building with patchkit's CMake code failed, trying without it: {error.message}"
        )
        return build(replace(project, entries={**project.entries, _INCLUDED: ""}))


def _collect_libraries(build: Path) -> None:
    """Put shared libraries next to the programs: only llama.cpp's CMake builds all of them in ``bin``."""
    for path in sorted(build.rglob("lib*.so*")):
        if path.parent != build / "bin":
            put_file(path, build / "bin" / path.name)


def _build_in_turn(
    part: Part, tree: Path, targets: Sequence[str], project: Project, workshop: Workshop
) -> float:
    """Build in the folder shared by all parts that differ only in sources and labels; copy the results."""
    options = key_of(
        {
            "name": part.name,
            "entries": {name: value for name, value in project.entries.items() if name not in part.labels},
            "environment": dict(part.environment),
            "compiler": part.compiler,
        }
    )
    what = part.backend if part.name == "gpu" else part.name
    shared = workshop.root / f"turns-{what}-{options[:16]}"
    with _held(shared, workshop.reporter):
        with disk_errors(shared, "preparing a build"):
            follow_tree(tree, shared / "source", shared / "build")
        turn = replace(project, source=shared / "source", folder=shared)
        seconds = _build(turn, targets, workshop)
        with disk_errors(project.folder, "saving a build"):
            shutil.copytree(
                turn.build / "bin",
                project.build / "bin",
                symlinks=True,
                dirs_exist_ok=True,
                copy_function=_copy_anew,
            )
            shutil.copy2(turn.log, project.log)
    return seconds


def assemble(
    tree: str,
    backend: BackendName,
    parts: Sequence[BuiltPart],
    programs: Sequence[str],
    workshop: Workshop,
) -> BuiltSide:
    """Assemble the parts of one side in one folder. Raises CacheError."""
    key = key_of({"parts": [built.part.key for built in parts]})
    folder = workshop.root / "sides" / f"{backend}-{key[:16]}"
    modules: dict[str, Path] = {}
    with disk_errors(folder, "assembling a build"):
        folder.mkdir(parents=True, exist_ok=True)
        for built in parts:
            if built.part.library is None:
                for name in programs:
                    put_file(built.files / name, folder / name)
                for path in _libraries(built.files):
                    put_file(path, folder / path.name)
            else:
                name = f"lib{built.part.library}.so"
                modules[built.part.name] = folder / name
                put_file(built.files / name, folder / name)
    return BuiltSide(
        tree=tree,
        backend=backend,
        folder=folder,
        module=modules.get("gpu", modules["cpu"]),
        cpu=modules["cpu"],
        parts=tuple(parts),
    )


def put_file(source: Path, target: Path) -> None:
    """Put a file at ``target``: a hard link, or a copy if that fails; symbolic links are kept.

    The file is replaced by a rename, and only if it differs: another run may create the same folder while a
    program loads from it.
    """
    is_link = source.is_symlink()
    if is_link and target.is_symlink() and target.readlink() == source.readlink():
        return
    if not is_link and target.exists() and target.samefile(source):
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        if is_link:
            partial.symlink_to(source.readlink())
        else:
            try:
                os.link(source, partial)
            except OSError:
                shutil.copy2(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)  # rename does nothing if another run has linked the same file


def _copy_anew(source: str, target: str) -> str:
    """Copy a file to a new inode: the one at ``target`` may be linked to an installed build that is running.

    Raises OSError.
    """
    partial = f"{target}.{secrets.token_hex(4)}.partial"
    try:
        shutil.copy2(source, partial)
        Path(partial).replace(target)
    finally:
        Path(partial).unlink(missing_ok=True)
    return target


def _libraries(folder: Path) -> Iterator[Path]:
    """The shared libraries that programs link, without the backends, which are separate parts."""
    for path in sorted(folder.glob("lib*.so*")):
        if path.name.startswith(BACKEND_LIBRARIES):
            continue
        yield path


def _built(folder: Path) -> list[str]:
    try:
        targets = json.loads((folder / _STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in targets] if isinstance(targets, list) else []


def _launcher(part: Part, ccache: str | None) -> dict[str, str]:
    if ccache is None:
        return {}
    languages = ["C", "CXX"]
    if part.name == "gpu":
        languages.append("HIP" if part.backend == "hip" else "CUDA")
    return {f"CMAKE_{language}_COMPILER_LAUNCHER": ccache for language in languages}


_INCLUDED = "CMAKE_PROJECT_INCLUDE"


def _included(part: Part) -> dict[str, str]:
    """The path depends on the machine, so it is added here and is not part of the key."""
    for entry, path in ((LEAN_ENTRY, LEAN), (NOTE_ENTRY, NOTE)):
        if entry in part.entries:
            return {_INCLUDED: str(path)}
    return {}


def _ccache_environment(workshop: Workshop) -> dict[str, str]:
    """A separate ccache; paths below the builds are made relative, so that trees share objects."""
    return {
        "CCACHE_DIR": str(workshop.cache_root / "ccache"),
        "CCACHE_BASEDIR": str(workshop.root),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_MAXSIZE": "4G",
    }


def _held(folder: Path, reporter: Reporter) -> AbstractContextManager[int]:
    """Lock a build folder, because Ninja must not run twice in the same folder."""
    text = f"waiting for another patchkit that is building in {folder.name}"
    return locked(folder / "lock", waiting=lambda: reporter.info(text), doing="preparing a build")
