"""Reads ``pins.toml``: what an installation fetches, and the rules that what came must meet."""

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
    """``tree`` is git's hash of ``folder`` at ``commit``; ``same_as`` maps an arch to one it knows."""

    url: str
    commit: str
    folder: str
    tree: str
    version: str
    same_as: Mapping[str, str]


class Pins(_Table):
    """The file, as it is explained there; ``download_limit`` in bytes."""

    suites: tuple[str, ...]
    packages: tuple[str, ...]
    device_libs_prefix: str
    download_limit: int
    minimum_clang: int
    smoke_arch: str
    goes_with_hip: Mapping[str, tuple[int, ...]]
    rocwmma: RocWmmaPin


def load_pins(path: Path = PINS_FILE) -> Pins:
    """The pins of ``path``.

    Raises:
        SDK_PINS_BROKEN: it cannot be read, is no TOML, or lacks a key.
    """
    try:
        return Pins.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(
            "the pins of the SDK cannot be read",
            code="SDK_PINS_BROKEN",
            where=Location(path=str(path)),
            why=str(error),
            hint="the file is part of patchkit: install patchkit anew, or restore it with git checkout",
        ) from error
