"""Reading ``pins.toml``: what an installation fetches, and the rules that what came must meet."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ConfigError, Location

PINS_FILE = Path(__file__).resolve().parent / "pins.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocWmmaPin:
    """``tree`` is git's hash of ``folder`` at ``commit``; ``same_as`` maps an arch to one it knows."""

    url: str
    commit: str
    folder: str
    tree: str
    version: str
    same_as: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
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
        data = tomllib.loads(path.read_text("utf-8"))
        rocwmma = data["rocwmma"]
        return Pins(
            suites=tuple(map(str, data["suites"])),
            packages=tuple(map(str, data["packages"])),
            device_libs_prefix=str(data["device-libs-prefix"]),
            download_limit=int(data["download-limit"]),
            minimum_clang=int(data["minimum-clang"]),
            smoke_arch=str(data["smoke-arch"]),
            goes_with_hip={hip: tuple(map(int, majors)) for hip, majors in data["goes-with-hip"].items()},
            rocwmma=RocWmmaPin(
                url=str(rocwmma["url"]),
                commit=str(rocwmma["commit"]),
                folder=str(rocwmma["folder"]),
                tree=str(rocwmma["tree"]),
                version=str(rocwmma["version"]),
                same_as=dict(rocwmma["same-as"]),
            ),
        )
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _broken(path, str(error)) from error
    except KeyError as error:
        raise _broken(path, f"the key {error} is missing") from error


def _broken(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "the pins of the SDK cannot be read",
        code="SDK_PINS_BROKEN",
        where=Location(path=str(path)),
        why=why,
        hint="the file is part of patchkit: install patchkit anew, or restore it with git checkout",
    )
