"""The compiler's arguments for one GPU and pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.toolchain.sdk.flags import hip_arguments, leading_number


def arguments(**changes: object) -> list[str]:
    values: dict[str, object] = {
        "root": Path("/p/usr"),
        "device_libs": Path("/p/bitcode"),
        "clang_version": "22.1.8",
        "hip_version": "6.4.43484",
        "arch": "gfx1151",
        "which": "both",
        "rocwmma": Path("/p/rocwmma"),
    }
    return hip_arguments(**{**values, **changes})  # type: ignore[arg-type]


def test_the_wave_macro_is_defined_only_if_it_is_needed() -> None:
    macro = "-D__AMDGCN_WAVEFRONT_SIZE=32"
    assert macro in arguments()
    assert macro not in arguments(clang_version="21.1.0")  # predefined there: a second one is a warning
    assert macro not in arguments(hip_version="7.0.2")
    assert "-D__AMDGCN_WAVEFRONT_SIZE=64" in arguments(arch="gfx90a")


def test_a_pass_is_named_once() -> None:
    assert [flag for flag in arguments(which="host") if "only" in flag] == ["--cuda-host-only"]
    assert [flag for flag in arguments(which="device") if "only" in flag] == ["--cuda-device-only"]
    assert not [flag for flag in arguments() if "only" in flag]


def test_includes_come_as_system_headers_in_order() -> None:
    flags = arguments()
    assert flags[-4:] == ["-isystem", "/p/rocwmma", "-isystem", "/p/usr/include"]


def test_the_system_include_folder_is_left_to_the_compiler() -> None:
    flags = arguments(root=Path("/usr"), rocwmma=None)
    assert "-isystem" not in flags


@pytest.mark.parametrize(("version", "number"), [("22.1.8", 22), ("7", 7), ("", 0), ("git", 0)])
def test_leading_number(version: str, number: int) -> None:
    assert leading_number(version) == number
