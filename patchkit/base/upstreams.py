"""Descriptions of the projects built on ggml, read from ``upstreams/<project>.toml``.

Folders, targets, tags and programs of upstream come from these files and are not hard-coded. What all copies
of ggml have in common is in the code, such as :data:`GPU_FOLDER`: a path in ggml's own repository, which
:meth:`Upstream.ggml_path` maps to the project's.

A series names files as llama.cpp does. :meth:`Upstream.place` maps such a path to another project, and
:meth:`Upstream.below` a project to a folder that another repository keeps it in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from patchkit.base.series_folder import find_upstreams
from patchkit.base.toml import NotInFile, Several, TomlTable, Words, load_toml, validate

GPU_FOLDER = "src/ggml-cuda"
"""The kernels of CUDA, HIP and MUSA, in ggml's own repository."""

GPU_SOURCE = f"{GPU_FOLDER}/common.cuh"
"""A file that every copy of ggml with GPU kernels has, since they are in a folder of their own."""

_TagPrefix = Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
_NUMBER = r"0|[1-9][0-9]{0,5}"
_BUILD = r"[1-9][0-9]{0,8}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags(TomlTable):
    """Prefixes of upstream's tags: of builds (``b`` in ``b11549``) and of releases (``v`` in ``v0.5.0``).

    None: the project has no such tags.
    """

    build: _TagPrefix | None = None
    release: _TagPrefix | None = None

    def build_number(self, name: str) -> int | None:
        """11549 for ``b11549``; None for any other name."""
        if self.build is None:
            return None
        found = re.fullmatch(rf"{self.build}({_BUILD})", name)
        return int(found[1]) if found is not None else None

    def is_release(self, name: str) -> bool:
        """Whether ``name`` has the form of a release, such as ``v0.5.0``."""
        number = rf"({_NUMBER})(\.({_NUMBER})){{2}}"
        return self.release is not None and re.fullmatch(f"{self.release}{number}", name) is not None

    def is_tag(self, name: str) -> bool:
        """Whether ``name`` has the form of a build's or a release's tag."""
        return self.build_number(name) is not None or self.is_release(name)

    def parse_build(self, text: str) -> int | None:
        """The build number in ``b11549`` or ``11549``; None for any other text."""
        return self.build_number(f"{self.build}{text.removeprefix(self.build)}") if self.build else None

    @property
    def build_glob(self) -> str:
        """A glob that matches the tags of all builds, and possibly other tags."""
        return f"{self.build}*"

    @property
    def release_glob(self) -> str:
        """A glob that matches the tags of all releases, and possibly other tags."""
        return f"{self.release}*"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFile(TomlTable):
    """A CMake file that sets ``<prefix>_VERSION_MAJOR``, ``_MINOR`` and ``_PATCH``."""

    file: Words
    prefix: Words

    def read(self, cmake: bytes) -> str | None:
        """The version in the file, such as ``0.9.4``; None unless it sets all three numbers."""
        row = rf"^[ \t]*set\({self.prefix}_VERSION_(MAJOR|MINOR|PATCH)[ \t]+([0-9]{{1,6}})\)"
        parts = {
            name.decode(): value.decode() for name, value in re.findall(row.encode(), cmake, re.MULTILINE)
        }
        found = [parts.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
        return ".".join(part for part in found if part is not None) if None not in found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(TomlTable):
    """The files with the versions of the project and of its copy of ggml."""

    project: VersionFile | None = None
    ggml: VersionFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders(TomlTable):
    """Folders and files of the tree, by use."""

    include: Several[Words]
    api: Several[Words]
    programs: Several[Words]
    backends: Several[Words]
    library: Words
    vendored: Words | None = None
    tests: Words | None = None
    tools: Words | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeOptions(TomlTable):
    """Names of upstream's CMake options, and values for builds with and without its programs.

    ``build_number`` and ``build_commit``: None if the project has no such option. ``definitions``: macros
    that the project's CMake sets for ggml, as ``NAME=VALUE``. Units that are compiled without CMake need
    them, too.
    """

    build_number: Words | None = None
    build_commit: Words | None = None
    definitions: Several[Words] = ()
    always: Mapping[str, bool]
    with_programs: Mapping[str, bool]
    without_programs: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets(TomlTable):
    """CMake targets: by path prefix of a file, for all other files, and of the project's library."""

    by_path: Several[Annotated[tuple[str, str], Field(strict=False)]]
    common: Words | None = None
    library: Words

    def of(self, path: str) -> str | None:
        """The target of a file by its path prefix, or None."""
        return next((target for start, target in self.by_path if path.startswith(start)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs(TomlTable):
    """Names of the programs that gates run, and of those for users; empty: the project has none."""

    bench: str = ""
    perplexity: str = ""
    for_users: Several[Words] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSign(TomlTable):
    """A token pattern that is in a function of a file, or with ``absent`` is not.

    ``file`` is named as in llama.cpp. ``function`` None: anywhere in the file, preprocessor lines included.
    A function that the file lacks has no code; with ``absent`` the sign then does not hold either, because
    it is a statement about code that exists. A sign without ``tokens`` is about the file or the function.
    """

    file: Words
    function: Words | None = None
    tokens: Words | None = None
    absent: bool = False

    def __post_init__(self) -> None:
        if self.absent and self.tokens is None:
            raise ValueError("'absent' needs 'tokens': the code that is not there")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(TomlTable):
    """``[[mark]]``: code that llama.cpp has in the builds ``first`` to ``last``, both included, and no other.

    ``last`` None: up to the newest build that was read. From the marks follows the build of a copy of ggml
    that has no history of llama.cpp.
    """

    first: Annotated[int, Field(ge=1)]
    last: Annotated[int, Field(ge=1)] | None = None
    why: Words
    file: Words
    function: Words | None = None
    tokens: Words | None = None

    @property
    def sign(self) -> CodeSign:
        """The code."""
        return CodeSign(file=self.file, function=self.function, tokens=self.tokens)

    def covers(self, build: int) -> bool:
        """Whether llama.cpp has the code at that build."""
        return self.first <= build and (self.last is None or build <= self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedUpstream(TomlTable):
    """``[fetches]``: the project has no copy of ggml, and its build fetches llama.cpp.

    ``file`` contains the build or commit that it fetches, and nothing else.
    """

    file: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(TomlTable):
    """What the project asks of contributors: files with their sha256 when they were read.

    ``read_at`` is the build. ``template`` is the text of a new pull request, and ``disclosure`` the start of
    its line about use of AI.
    """

    read_at: Words
    template: Words
    disclosure: Words
    sha256: Mapping[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream(TomlTable):
    """One project. Each of its commits has at least one of the files in ``identity``.

    ``architectures`` is the source file that lists the model architectures, each name in quotes. ``ggml``
    maps the top-level entries of ggml's own repository to paths in this project. ``submodule`` is the path
    of ggml's repository, if some commits of the project have it as a submodule. ``root`` is the folder of
    the project in the repository; it ends with a slash unless it is empty. ``rules``: None if they were not
    read.
    """

    name: Words
    url: Words
    identity: Annotated[Several[Words], Field(min_length=1)]
    architectures: Words | None = None
    submodule: Words | None = None
    tags: Tags = Tags()
    versions: Versions
    ggml: Mapping[str, Words]
    folders: Folders
    cmake: CMakeOptions
    targets: Targets
    programs: Programs = Programs()
    rules: Rules | None = None
    fetches: FetchedUpstream | None = None
    marks: Annotated[Several[Mark], Field(alias="mark")] = ()
    root: NotInFile[str] = ""

    def ggml_path(self, path: str) -> str:
        """Map a path of ggml's own repository to this project: ``src`` is ``ggml/src`` in llama.cpp.

        Raises KeyError if the description does not map the path's first part.
        """
        first, slash, rest = path.partition("/")
        return f"{self.ggml[first]}{slash}{rest}"

    def gpu_file(self, name: str) -> str:
        """The path of the file ``name`` in the folder of GPU kernels."""
        return self.ggml_path(f"{GPU_FOLDER}/{name}")

    @property
    def gpu_folder(self) -> str:
        """The folder of GPU kernels."""
        return self.ggml_path(GPU_FOLDER)

    @property
    def ggml_options(self) -> str:
        """The CMake file that declares ggml's build options."""
        return self.ggml_path("CMakeLists.txt")

    @property
    def title(self) -> str:
        """The name, with the folder if the repository keeps the project in one."""
        return f"{self.name} in {self.root}" if self.root else self.name

    def place(self, path: str) -> str | None:
        """The path that a file or folder of llama.cpp has here; None if it does not belong to ggml.

        A folder's final slash is kept.
        """
        if self.is_laid_out_as(llama_cpp()):
            return path
        for first, folder in sorted(llama_cpp().ggml.items(), key=lambda each: -len(each[1])):
            if path == folder or path.startswith(f"{folder}/"):
                return f"{self.ggml[first]}{path.removeprefix(folder)}" if first in self.ggml else None
        return None

    def is_laid_out_as(self, other: Upstream) -> bool:
        """Whether both are the same project in the same folder, so that no path differs."""
        return (self.name, self.root) == (other.name, other.root)

    def below(self, root: str) -> Upstream:
        """The project in the folder ``root`` of another repository, which ends with a slash or is empty."""
        if not root:
            return self

        def moved(paths: Iterable[str]) -> tuple[str, ...]:
            return tuple(f"{root}{path}" for path in paths)

        def one(path: str | None) -> str | None:
            return f"{root}{path}" if path is not None else None

        folders = replace(
            self.folders,
            include=moved(self.folders.include),
            api=moved(self.folders.api),
            programs=moved(self.folders.programs),
            backends=moved(self.folders.backends),
            library=f"{root}{self.folders.library}".removesuffix("/."),
            vendored=one(self.folders.vendored),
            tests=one(self.folders.tests),
            tools=one(self.folders.tools),
        )
        stated = self.versions
        return replace(
            self,
            root=f"{root}{self.root}",
            identity=moved(self.identity),
            architectures=one(self.architectures),
            submodule=one(self.submodule),
            versions=replace(
                stated,
                project=replace(stated.project, file=f"{root}{stated.project.file}")
                if stated.project is not None
                else None,
                ggml=replace(stated.ggml, file=f"{root}{stated.ggml.file}"),
            ),
            ggml={first: f"{root}{path}" for first, path in self.ggml.items()},
            folders=folders,
            targets=replace(
                self.targets,
                by_path=tuple((f"{root}{start}", target) for start, target in self.targets.by_path),
            ),
        )


@cache
def load_upstreams() -> tuple[Upstream, ...]:
    """All described projects: llama.cpp, whose commits number builds and eras, first, and ggml itself last.

    ggml is last because the other projects contain its files too.

    Raises ConfigError or ErrorGroup if a description is missing or invalid.
    """
    folder = find_upstreams()
    found = [load_upstream(path) for path in sorted(folder.glob("*.toml"))]
    return tuple(sorted(found, key=lambda each: (each.name != "llama.cpp", each.name == "ggml", each.name)))


def load_upstream(path: Path) -> Upstream:
    """Read one description. Raises ConfigError, ErrorGroup."""
    return validate(load_toml(path), Upstream, what="description of an upstream project")


def recognise(names: Iterable[str]) -> Upstream:
    """Identify the project of a tree by its paths; llama.cpp if none matches.

    If several folders of the tree have a copy of ggml, the project is that of the first one.
    """
    paths = names if isinstance(names, frozenset) else frozenset(names)
    return _recognise(paths.__contains__, lambda: [each for each in paths if _is_gpu_source(each)])


def upstream_of(tree: Path) -> Upstream:
    """The project of the source tree in folder ``tree``, recognised as by :func:`recognise`."""

    def find() -> list[str]:
        return [path.relative_to(tree).as_posix() for path in tree.rglob(GPU_SOURCE)]

    return _recognise(lambda path: (tree / path).exists(), find)


def find_projects(names: frozenset[str]) -> tuple[Upstream, ...]:
    """Every copy of ggml with GPU kernels among the paths of a tree, with the project that it belongs to.

    In the order of their folders. A copy in a folder of no known project counts as ggml itself, there.
    """
    return _find_projects([each for each in names if _is_gpu_source(each)], names.__contains__)


def _is_gpu_source(path: str) -> bool:
    return path == GPU_SOURCE or path.endswith(f"/{GPU_SOURCE}")


def _recognise(has: Callable[[str], bool], find_sources: Callable[[], Iterable[str]]) -> Upstream:
    known = load_upstreams()
    for project in known:
        if any(map(has, project.identity)) and has(project.ggml_path(GPU_SOURCE)):
            return project
    found = _find_projects(find_sources(), has)
    # Trees without GPU kernels: of tests, and of llama.cpp before they were in a folder of their own.
    return found[0] if found else next((each for each in known if any(map(has, each.identity))), known[0])


def _find_projects(sources: Iterable[str], has: Callable[[str], bool]) -> tuple[Upstream, ...]:
    found: dict[str, Upstream] = {}
    for path in sorted(sources):
        for project in load_upstreams():
            inside = project.ggml_path(GPU_SOURCE)
            there = project.below(path.removesuffix(inside)) if _ends_with(path, inside) else None
            if there is not None and any(map(has, there.identity)):
                found.setdefault(path, there)
    return tuple(found.values())


def _ends_with(path: str, inside: str) -> bool:
    return path == inside or path.endswith(f"/{inside}")


@cache
def llama_cpp() -> Upstream:
    """The description of llama.cpp, whose commits number the builds for all projects."""
    return load_upstreams()[0]


def build_name(build: int | str) -> str:
    """The name of a build, such as ``b11549``."""
    return f"{llama_cpp().tags.build}{build}"
