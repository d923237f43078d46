"""What patchkit knows of each project built on ggml: ``upstreams/<project>.toml``, one file per project.

Code that needs a folder, a target, a tag or a program of upstream asks its description and names none.
What every copy of ggml has in common is code, such as :data:`GPU_FOLDER`: a path of ggml's own repository,
which :meth:`Upstream.ggml_path` maps to that of a project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from patchkit.base.series_folder import find_upstreams
from patchkit.base.toml import Several, TomlTable, Words, load_toml, validate

GPU_FOLDER = "src/ggml-cuda"
"""The kernels of CUDA, HIP and MUSA, in ggml's own repository."""

_TagPrefix = Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
_NUMBER = r"0|[1-9][0-9]{0,5}"
_BUILD = r"[1-9][0-9]{0,8}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags(TomlTable):
    """How upstream names its commits: what comes before a build's number, and before a release's three."""

    build: _TagPrefix
    release: _TagPrefix

    def build_number(self, name: str) -> int | None:
        """11549 of ``b11549``; None for any other name."""
        found = re.fullmatch(rf"{self.build}({_BUILD})", name)
        return int(found[1]) if found is not None else None

    def is_release(self, name: str) -> bool:
        """Whether ``name`` has the form of a release, such as ``v0.5.0``."""
        return re.fullmatch(rf"{self.release}({_NUMBER})(\.({_NUMBER})){{2}}", name) is not None

    def asked_build(self, text: str) -> int | None:
        """The build number that a user means by ``b11549`` or ``11549``; None for any other text."""
        return self.build_number(f"{self.build}{text.removeprefix(self.build)}")

    @property
    def build_glob(self) -> str:
        """A glob that matches the tag of every build, and maybe others."""
        return f"{self.build}*"

    @property
    def release_glob(self) -> str:
        """A glob that matches the tag of every release, and maybe others."""
        return f"{self.release}*"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFile(TomlTable):
    """A CMake file that sets ``<prefix>_VERSION_MAJOR`` and its like."""

    file: Words
    prefix: Words

    def read(self, cmake: bytes) -> str | None:
        """``0.9.4`` from the bytes of the file; None where it does not set all three numbers."""
        row = rf"^[ \t]*set\({self.prefix}_VERSION_(MAJOR|MINOR|PATCH)[ \t]+([0-9]{{1,6}})\)"
        parts = {
            name.decode(): value.decode() for name, value in re.findall(row.encode(), cmake, re.MULTILINE)
        }
        found = [parts.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
        return ".".join(part for part in found if part is not None) if None not in found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(TomlTable):
    """Where the project and its copy of ggml state their versions."""

    project: VersionFile
    ggml: VersionFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders(TomlTable):
    """Folders and files of the tree, by what reads them."""

    include: Several[Words]
    api: Several[Words]
    programs: Several[Words]
    backends: Several[Words]
    library: Words
    vendored: Words
    tests: Words
    tools: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeOptions(TomlTable):
    """Names of upstream's CMake options, and those that a build with or without its programs sets."""

    build_number: Words
    build_commit: Words
    always: Mapping[str, bool]
    with_programs: Mapping[str, bool]
    without_programs: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets(TomlTable):
    """CMake targets: of a file by the beginning of its path, of the rest, and the library of the project."""

    by_path: Several[Annotated[tuple[str, str], Field(strict=False)]]
    common: Words
    library: Words

    def of(self, path: str) -> str | None:
        """The target that a file belongs to by its path alone."""
        return next((target for start, target in self.by_path if path.startswith(start)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs(TomlTable):
    """Names of the programs that gates run and that users want."""

    bench: Words
    perplexity: Words
    for_users: Several[Words]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream(TomlTable):
    """One project. ``identity``: files of which a commit of this project has at least one.

    ``architectures`` is the source file that lists the architectures of models, each name in quotes.
    ``ggml`` maps the entries at the top of ggml's own repository to paths in this one.
    """

    name: Words
    url: Words
    identity: Annotated[Several[Words], Field(min_length=1)]
    architectures: Words
    tags: Tags
    versions: Versions
    ggml: Mapping[str, Words]
    folders: Folders
    cmake: CMakeOptions
    targets: Targets
    programs: Programs

    def ggml_path(self, path: str) -> str:
        """Where a path of ggml's own repository is in this project: ``src`` is ``ggml/src`` in llama.cpp.

        Raises KeyError: the description does not map the path's first part.
        """
        first, slash, rest = path.partition("/")
        return f"{self.ggml[first]}{slash}{rest}"

    def gpu_file(self, name: str) -> str:
        """The path of a file in the folder of GPU kernels."""
        return self.ggml_path(f"{GPU_FOLDER}/{name}")

    @property
    def gpu_folder(self) -> str:
        """The folder of GPU kernels."""
        return self.ggml_path(GPU_FOLDER)

    @property
    def ggml_options(self) -> str:
        """The CMake file that declares ggml's build options."""
        return self.ggml_path("CMakeLists.txt")


@cache
def load_upstreams() -> tuple[Upstream, ...]:
    """Every project that is described, llama.cpp first: builds and eras are counted in its commits.

    Raises ConfigError, ErrorGroup: a description is missing or wrong.
    """
    folder = find_upstreams()
    found = [load_upstream(path) for path in sorted(folder.glob("*.toml"))]
    return tuple(sorted(found, key=lambda each: each.name != "llama.cpp"))


def load_upstream(path: Path) -> Upstream:
    """One description. Raises ConfigError, ErrorGroup."""
    return validate(load_toml(path), Upstream, what="description of an upstream project")


def recognise(has: Callable[[str], bool]) -> Upstream:
    """The project that a tree is of, by which paths it ``has``; llama.cpp where nothing identifies it."""
    known = load_upstreams()
    return next((each for each in known if any(map(has, each.identity))), known[0])


def upstream_of(tree: Path) -> Upstream:
    """The project that the files in ``tree`` are of."""
    return recognise(lambda path: (tree / path).exists())


def llama_cpp() -> Upstream:
    """The project whose commits number the builds, whichever project's tree is worked on."""
    return load_upstreams()[0]


def build_name(build: int) -> str:
    """``b11549``: the name of a build."""
    return f"{llama_cpp().tags.build}{build}"
