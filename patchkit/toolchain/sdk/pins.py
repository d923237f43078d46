"""Reads ``pins.toml``: what an installation of the SDK fetches, and the rules for accepting it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from patchkit.base.errors import ConfigError, Location

PINS_FILE = Path(__file__).resolve().parent / "pins.toml"


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )


class RocWmmaPin(_Table):
    """The pinned rocWMMA: ``tree`` is git's hash of ``folder`` at ``commit``; ``same_as`` aliases archs."""

    url: str
    commit: str
    folder: str
    tree: str
    version: str
    same_as: Mapping[str, str]


class Pins(_Table):
    """The content of ``pins.toml``, which explains each key; ``download_limit`` is in bytes."""

    suites: tuple[str, ...]
    packages: tuple[str, ...]
    device_libs_prefix: str
    download_limit: int
    minimum_clang: int
    smoke_arch: str
    goes_with_hip: Mapping[str, tuple[int, ...]]
    rocwmma: RocWmmaPin


def load_pins(path: Path = PINS_FILE) -> Pins:
    """Read the pins.

    Raises:
        SDK_UNUSABLE: the file cannot be read, is not TOML, or lacks a key.
    """
    try:
        return Pins.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(
            "cannot read the pins of the SDK",
            code="SDK_UNUSABLE",
            where=Location(path=str(path)),
            why=str(error),
            hint="the file is part of patchkit: reinstall patchkit, or restore the file with git checkout",
        ) from error
