"""The CMake settings for a toolchain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toolchains import toolchain_in

from patchkit.toolchain.cmake import _compiler_cache, cmake_settings
from patchkit.toolchain.machine import _runtime
from patchkit.toolchain.sdk.prefix import STANDIN

SDK = replace(toolchain_in(Path("/p/usr")), device_libs=Path("/p/bitcode"))


def test_cmake_gets_compiler_root_and_device_libs() -> None:
    settings = cmake_settings(SDK, ["gfx1151", "gfx1100"])
    assert settings.cache["CMAKE_HIP_ARCHITECTURES"] == "gfx1151;gfx1100"
    assert settings.cache["CMAKE_HIP_COMPILER"] == "/p/usr/clang++"
    assert settings.environment["ROCM_PATH"] == "/p/usr"
    flags = settings.cache["CMAKE_HIP_FLAGS"].split()
    assert "--rocm-device-lib-path=/p/bitcode" in flags
    assert "-D__AMDGCN_WAVEFRONT_SIZE=32" in flags
    assert flags[-2:] == ["-isystem", str(STANDIN)]


def test_a_rocm_needs_no_macro_and_no_stand_in() -> None:
    rocm = replace(SDK, kind="rocm", hip_version="7.1.0")
    flags = cmake_settings(rocm, ["gfx906"]).cache["CMAKE_HIP_FLAGS"]
    assert "WAVEFRONT" not in flags
    assert "isystem" not in flags


def test_a_library_does_not_look_for_its_runtime_among_the_stubs() -> None:
    assert _runtime(SDK) == Path("/opt/rocm/lib")
    assert _runtime(replace(SDK, kind="rocm", root=Path("/opt/rocm-6.4.1"))) == Path("/opt/rocm-6.4.1/lib")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("GGML_CCACHE_FOUND:FILEPATH=/usr/bin/ccache", "ccache"),
        ("GGML_SCCACHE_FOUND:FILEPATH=/opt/sccache", "sccache"),
        ("GGML_CCACHE_FOUND:FILEPATH=GGML_CCACHE_FOUND-NOTFOUND", None),
        ("GGML_CCACHE:BOOL=ON", None),
    ],
)
def test_upstreams_compiler_cache_is_reported(tmp_path: Path, line: str, found: str | None) -> None:
    (tmp_path / "CMakeCache.txt").write_text(f"# a comment\nCMAKE_HOME:PATH=/x\n{line}\n")
    assert _compiler_cache(tmp_path) == found
