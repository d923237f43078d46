"""Stub libraries: which are needed, and what is in them."""

from __future__ import annotations

from pathlib import Path

from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.stubs import (
    Library,
    build_stubs,
    declared_functions,
    named_libraries,
    stub_source,
)

TARGETS = """set_target_properties(hip::amdhip64 PROPERTIES
  IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/lib/x86_64-linux-gnu/libamdhip64.so.6.4.43484"
  IMPORTED_SONAME_RELEASE "libamdhip64.so.6"
  )
set_target_properties(evil PROPERTIES
  IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/lib/../../../libevil.so.1"
  )
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_libraries_are_those_that_the_package_files_name(tmp_path: Path) -> None:
    put(tmp_path / "lib/x86_64-linux-gnu/cmake/hip/hip-targets-release.cmake", TARGETS)
    put(tmp_path / "lib/x86_64-linux-gnu/cmake/hip-lang/again.cmake", TARGETS)
    assert named_libraries(tmp_path) == (
        Library(file="lib/x86_64-linux-gnu/libamdhip64.so.6.4.43484", soname="libamdhip64.so.6"),
    )


def test_functions_are_the_names_before_brackets(tmp_path: Path) -> None:
    put(
        tmp_path / "a.h",
        "hipError_t hipMalloc(void **p);\nconst char *hipGetErrorString (hipError_t e);\n"
        "typedef int hipFoo_t;\nstatic int chipSelect(int);\n",
    )
    names = declared_functions([tmp_path / "a.h"], r"\bhip[A-Z]\w*")
    assert names == {"hipMalloc", "hipGetErrorString"}


def test_stubs_fail_as_without_a_gpu_and_texts_are_texts() -> None:
    source = stub_source({"hipMalloc", "hipGetErrorString"})
    assert "int hipMalloc(void) { return 100; }\n" in source
    assert "const char *hipGetErrorString(void)" in source


def test_package_files_without_libraries_are_an_error(tmp_path: Path) -> None:
    with refused("SDK_UNUSABLE"):
        build_stubs(tmp_path, Path("/none"), NullReporter())


def test_headers_without_functions_are_an_error(tmp_path: Path) -> None:
    put(tmp_path / "lib/x86_64-linux-gnu/cmake/hip/hip-targets-release.cmake", TARGETS)
    put(tmp_path / "include/hip/hip_runtime_api.h", "int nothing;\n")
    with refused("SDK_UNUSABLE") as caught:
        build_stubs(tmp_path, Path("/none"), NullReporter())
    assert caught.value.where[0].path == str(tmp_path / "include/hip")


def test_the_runtime_has_the_functions_of_hiprtc_as_up_to_rocm_6(tmp_path: Path) -> None:
    # HIP-Basic/runtime_compilation of rocm-examples links no library for them.
    put(tmp_path / "lib/x86_64-linux-gnu/cmake/hip/hip-targets-release.cmake", TARGETS)
    put(tmp_path / "include/hip/hip_runtime_api.h", "hipError_t hipMalloc(void **p);\n")
    put(tmp_path / "include/hip/hiprtc.h", "hiprtcResult hiprtcCreateProgram(int);\n")
    keeps_source = tmp_path / "clang"
    put(keeps_source, f"#!/bin/sh\ncat > {tmp_path}/source.c\n")
    keeps_source.chmod(0o755)
    assert build_stubs(tmp_path, keeps_source, NullReporter()) == ("libamdhip64.so.6",)
    source = (tmp_path / "source.c").read_text()
    assert "int hipMalloc(void)" in source
    assert "int hiprtcCreateProgram(void)" in source
