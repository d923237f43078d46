"""Descriptions of the projects built on ggml, read from ``upstreams/<project>.toml``.

Folders, targets, tags and programs of upstream come from these files and are not hard-coded. What all copies
of ggml have in common is in the code, such as :data:`GPU_FOLDER`: a path in ggml's own repository, which
:meth:`Upstream.ggml_path` maps to the project's.
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
    """Prefixes of upstream's tags: of builds (``b`` in ``b11549``) and of releases (``v`` in ``v0.5.0``)."""

    build: _TagPrefix
    release: _TagPrefix

    def build_number(self, name: str) -> int | None:
        """11549 for ``b11549``; None for any other name."""
        found = re.fullmatch(rf"{self.build}({_BUILD})", name)
        return int(found[1]) if found is not None else None

    def is_release(self, name: str) -> bool:
        """Whether ``name`` has the form of a release, such as ``v0.5.0``."""
        return re.fullmatch(rf"{self.release}({_NUMBER})(\.({_NUMBER})){{2}}", name) is not None

    def is_tag(self, name: str) -> bool:
        """Whether ``name`` has the form of a build's or a release's tag."""
        return self.build_number(name) is not None or self.is_release(name)

    def parse_build(self, text: str) -> int | None:
        """The build number in ``b11549`` or ``11549``; None for any other text."""
        return self.build_number(f"{self.build}{text.removeprefix(self.build)}")

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

    project: VersionFile
    ggml: VersionFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders(TomlTable):
    """Folders and files of the tree, by use."""

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
    """Names of upstream's CMake options, and values for builds with and without its programs."""

    build_number: Words
    build_commit: Words
    always: Mapping[str, bool]
    with_programs: Mapping[str, bool]
    without_programs: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets(TomlTable):
    """CMake targets: by path prefix of a file, for all other files, and of the project's library."""

    by_path: Several[Annotated[tuple[str, str], Field(strict=False)]]
    common: Words
    library: Words

    def of(self, path: str) -> str | None:
        """The target of a file by its path prefix, or None."""
        return next((target for start, target in self.by_path if path.startswith(start)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs(TomlTable):
    """Names of the programs that gates run, and of those for users."""

    bench: Words
    perplexity: Words
    for_users: Several[Words]


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
    maps the top-level entries of ggml's own repository to paths in this project. ``rules``: None if they were
    not read.
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
    rules: Rules | None = None

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


@cache
def load_upstreams() -> tuple[Upstream, ...]:
    """All described projects, llama.cpp first, whose commits number builds and eras.

    Raises ConfigError or ErrorGroup if a description is missing or invalid.
    """
    folder = find_upstreams()
    found = [load_upstream(path) for path in sorted(folder.glob("*.toml"))]
    return tuple(sorted(found, key=lambda each: each.name != "llama.cpp"))


def load_upstream(path: Path) -> Upstream:
    """Read one description. Raises ConfigError, ErrorGroup."""
    return validate(load_toml(path), Upstream, what="description of an upstream project")


def recognise(has: Callable[[str], bool]) -> Upstream:
    """Identify the project of a tree by the paths that it ``has``; llama.cpp if none matches."""
    known = load_upstreams()
    return next((each for each in known if any(map(has, each.identity))), known[0])


def upstream_of(tree: Path) -> Upstream:
    """The project of the source tree in folder ``tree``."""
    return recognise(lambda path: (tree / path).exists())


def llama_cpp() -> Upstream:
    """The description of llama.cpp, whose commits number the builds for all projects."""
    return load_upstreams()[0]


def build_name(build: int | str) -> str:
    """The name of a build, such as ``b11549``."""
    return f"{llama_cpp().tags.build}{build}"
