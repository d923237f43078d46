"""An installed prefix, and the record of what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors

RocWmmaKind = Literal["rocm", "git", "stand-in"]

# What a prefix holds beyond those of the recipe before it, by the number of the recipe. A new row, where an
# installation puts more into a prefix than it did: older prefixes still serve, and are told apart by it.
_ADDED = {2: "thrust's headers, OpenMP for -fopenmp, and hiprtc's functions in libamdhip64"}

# Our own header: part of patchkit, not of a prefix.
STANDIN = Path(__file__).resolve().parent / "standin"


class Package(BaseModel):
    """A package that was unpacked: ``sha256`` and ``size`` in bytes are those of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    sha256: str
    size: int


class Record(BaseModel):
    """What ``sdk.json`` says. Paths are relative to the prefix, but for an installed compiler's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Raised when what an installation makes changes: a prefix of another format is made anew.
    format: Literal[3] = 3
    suite: str
    packages: tuple[Package, ...]
    compiler: str
    compiler_version: str
    compiler_packages: tuple[Package, ...]
    hip_version: str
    device_libs: str
    device_libs_version: str
    rocwmma_kind: Literal["git", "stand-in"]
    rocwmma_version: str
    stubs: tuple[str, ...]
    downloaded: int
    # By which `_ADDED` an installation is made; one that does not say so was made before there was a second.
    recipe: int = 1

    @property
    def id(self) -> str:
        """Twelve hex digits over everything that decides what is in the prefix."""
        content = {**self.model_dump(mode="json"), "downloaded": None}
        return key_of(content)[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prefix and where it is."""

    path: Path
    record: Record

    @property
    def lacks(self) -> str | None:
        """What a prefix made by this version of patchkit has besides; None where that is nothing."""
        newer = [what for recipe, what in _ADDED.items() if recipe > self.record.recipe]
        return "; ".join(newer) or None

    @property
    def root(self) -> Path:
        """The folder with ``include/hip``: what ROCM_PATH would name."""
        return self.path / "usr"

    @property
    def clang(self) -> Path:
        """The compiler, installed or in the prefix."""
        return self.path / self.record.compiler

    @property
    def hipcc(self) -> Path:
        """A compiler of HIP programs for users; a prefix that an older patchkit made may lack it."""
        return self.path / "bin" / "hipcc"

    @property
    def device_libs(self) -> Path:
        """The folder of ``ocml.bc``."""
        return self.path / self.record.device_libs

    @property
    def rocwmma(self) -> Path:
        """The folder that holds ``rocwmma/rocwmma.hpp``."""
        return self.path / "rocwmma" if self.record.rocwmma_kind == "git" else STANDIN


def newest_recipe() -> int:
    """The number of the recipe by which this version of patchkit makes prefixes."""
    return max(_ADDED)


def sdk_folder(cache_root: Path) -> Path:
    """Where the prefixes of a cache are."""
    return cache_root / "sdk"


def current_prefix(cache_root: Path) -> Prefix | None:
    """The prefix to use; None when none is installed.

    Raises:
        SDK_PREFIX_DAMAGED: it lacks something, or the compiler it was made for is gone.
    """
    link = sdk_folder(cache_root) / "current"
    try:
        name = link.readlink()
    except OSError:
        return None
    path = link.parent / name
    prefix = load_prefix(path)
    if prefix is None:
        raise _damaged(path, "it has no sdk.json of this version of patchkit")
    for needed in (
        prefix.root / "include" / "hip" / "hip_runtime.h",
        prefix.device_libs / "ocml.bc",
        prefix.clang,
        prefix.rocwmma / "rocwmma",
    ):
        if not needed.exists():
            raise _damaged(needed, "it is gone")
    return prefix


def load_prefix(path: Path) -> Prefix | None:
    """The prefix at ``path``; None when it is not complete, or of another format."""
    try:
        return Prefix(path=path, record=Record.model_validate_json((path / "sdk.json").read_bytes()))
    except (OSError, ValidationError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Write ``sdk.json`` into a prefix that is being made; it is written last."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    with disk_errors(path, "writing sdk.json"):
        (path / "sdk.json").write_text(text, encoding="utf-8")


def _damaged(path: Path, why: str) -> ToolchainError:
    return ToolchainError(
        "the SDK prefix is damaged",
        code="SDK_PREFIX_DAMAGED",
        where=Location(path=str(path)),
        why=why,
        hint="make it anew: patchkit sdk install",
    )
