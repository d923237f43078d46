"""The form of a lock file, field by field. Vocabulary: see :mod:`patchkit.config.lock`."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from patchkit.config.toml import TomlModel

ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, StringConstraints(min_length=1)]
_PART = r"\.?[A-Za-z0-9_+-][A-Za-z0-9_.+-]*"  # neither . nor ..
TreePath = Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART})*$")]


def _no_truth(value: object) -> object:
    """Python takes true for 1."""
    if isinstance(value, bool):
        raise ValueError("it must be the number 1")  # noqa: TRY004  # pydantic wants this one
    return value


Version = Annotated[Literal[1], BeforeValidator(_no_truth)]


class GitModel(TomlModel):
    """[[pin.source]] with kind = "git"."""

    kind: Literal["git"]
    url: Words


class SdistModel(TomlModel):
    """[[pin.source]] with kind = "sdist"."""

    kind: Literal["sdist"]
    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    version: Words
    sha256: Sha256
    subdir: TreePath
    omit: tuple[TreePath, ...] = Field(default=(), strict=False)


class FollowedModel(TomlModel):
    """[[pin.followed]]."""

    file: TreePath
    function: Words
    now_file: TreePath
    now_function: Words


class PinModel(TomlModel):
    """[[pin]]."""

    build: int = Field(gt=0)
    commit: ObjectId | None = None
    tree: ObjectId
    committed: str
    commit_object: str | None = None
    source: tuple[Annotated[GitModel | SdistModel, Field(discriminator="kind")], ...] = Field(
        min_length=1, strict=False
    )
    followed: tuple[FollowedModel, ...] = Field(default=(), strict=False)
    ggml: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){2}$")] | None = None


class ResultModel(TomlModel):
    """[[result]]."""

    build: int = Field(gt=0)
    archs: tuple[Words, ...] = Field(min_length=1, strict=False)
    patches: tuple[Words, ...] = Field(strict=False)
    tree: ObjectId
    commit: ObjectId
    inputs: dict[str, Sha256]
    rendered: dict[str, Sha256]
    entities: dict[str, str]


class LockModel(TomlModel):
    """The whole file."""

    version: Version
    default: int = Field(gt=0)
    pin: tuple[PinModel, ...] = Field(min_length=1, strict=False)
    result: tuple[ResultModel, ...] = Field(default=(), strict=False)


def decode_object(text: str | None) -> bytes | None:
    """The bytes of a commit object written as base64 in lines.

    Raises:
        ValueError: it is not base64.
    """
    return None if text is None else base64.b64decode("".join(text.split()), validate=True)
