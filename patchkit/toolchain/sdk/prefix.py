"""An installed SDK prefix, and the record of its contents."""

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

# What each recipe added to the previous one. Add a row if installations put more into a prefix: older
# prefixes remain usable, and users are informed of what they lack.
_ADDED = {2: "thrust's headers, OpenMP for -fopenmp, and hiprtc's functions in libamdhip64"}

# The stand-in for rocWMMA: part of patchkit, not of a prefix.
STANDIN = Path(__file__).resolve().parent / "standin"


class Package(BaseModel):
    """An unpacked package; ``sha256`` and ``size`` (in bytes) are of the package file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    sha256: str
    size: int


class Record(BaseModel):
    """The content of ``sdk.json``. Paths are relative to the prefix, except that of an installed compiler."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Increase it for incompatible changes: a prefix of another format must be installed again.
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
    # The newest row of `_ADDED` at installation; records without it are from before recipe 2.
    recipe: int = 1

    @property
    def id(self) -> str:
        """The digest, 12 hex digits, of everything that determines the contents of the prefix."""
        content = {**self.model_dump(mode="json"), "downloaded": None}
        return key_of(content)[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prefix: its path and its record."""

    path: Path
    record: Record

    @property
    def lacks(self) -> str | None:
        """What a prefix installed by this version of patchkit has in addition, or None."""
        newer = [what for recipe, what in _ADDED.items() if recipe > self.record.recipe]
        return "; ".join(newer) or None

    @property
    def root(self) -> Path:
        """The folder that contains ``include/hip``: a value for ROCM_PATH."""
        return self.path / "usr"

    @property
    def clang(self) -> Path:
        """The compiler, installed or in the prefix."""
        return self.path / self.record.compiler

    @property
    def hipcc(self) -> Path:
        """The hipcc script for users; a prefix installed by an older patchkit may lack it."""
        return self.path / "bin" / "hipcc"

    @property
    def device_libs(self) -> Path:
        """The folder of ``ocml.bc``."""
        return self.path / self.record.device_libs

    @property
    def rocwmma(self) -> Path:
        """The folder that contains ``rocwmma/rocwmma.hpp``."""
        return self.path / "rocwmma" if self.record.rocwmma_kind == "git" else STANDIN


def newest_recipe() -> int:
    """The recipe number of prefixes that this version of patchkit installs."""
    return max(_ADDED)


def sdk_folder(cache_root: Path) -> Path:
    """The folder of the prefixes in a cache folder."""
    return cache_root / "sdk"


def current_prefix(cache_root: Path) -> Prefix | None:
    """The installed prefix; None if there is none.

    Raises:
        SDK_UNUSABLE: a part is missing, or the installed compiler that it uses.
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
            raise _damaged(needed, "it is missing")
    return prefix


def load_prefix(path: Path) -> Prefix | None:
    """The prefix at ``path``; None if its record is missing or of another format."""
    try:
        return Prefix(path=path, record=Record.model_validate_json((path / "sdk.json").read_bytes()))
    except (OSError, ValidationError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Write ``sdk.json``, as the last step of creating a prefix."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    with disk_errors(path, "writing sdk.json"):
        (path / "sdk.json").write_text(text, encoding="utf-8")


def _damaged(path: Path, why: str) -> ToolchainError:
    return ToolchainError(
        "the SDK prefix is damaged",
        code="SDK_UNUSABLE",
        where=Location(path=str(path)),
        why=why,
        hint="install it again: patchkit sdk install",
    )
