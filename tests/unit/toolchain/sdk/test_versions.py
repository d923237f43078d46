"""Versions of HIP, clang and device libs, and which work together."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.pins import load_pins
from patchkit.toolchain.sdk.versions import (
    bitcode_llvm,
    check_bitcode,
    check_majors,
    clang_version,
    hip_version,
    known_archs,
)


@pytest.mark.parametrize(
    ("folder", "llvm"),
    [
        ("/p/usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode", 21),
        ("/opt/rocm/lib/llvm/lib/clang/20/lib/amdgcn/bitcode", 20),
        ("/opt/rocm/amdgcn/bitcode", None),
    ],
)
def test_the_llvm_of_bitcode_is_in_its_path(folder: str, llvm: int | None) -> None:
    assert bitcode_llvm(Path(folder)) == llvm


def test_bitcode_is_read_by_its_own_llvm_and_newer_ones() -> None:
    folder = Path("/p/lib/clang/21/amdgcn/bitcode")
    check_bitcode(folder, "21.0.1")
    check_bitcode(folder, "22.1.8")
    with refused("SDK_UNUSABLE") as caught:
        check_bitcode(folder, "20.1.8")
    assert "clang-21" in (caught.value.hint or "")


def test_majors_that_were_measured_are_accepted() -> None:
    accepted = load_pins().goes_with_hip
    check_majors(
        "6.4.43484", {"device libs": "7.0.2+dfsg-3", "hipBLAS headers": "6.4.4-1"}, accepted, Path("/p")
    )
    check_majors("9.0.0", {"device libs": "9.1"}, accepted, Path("/p"))


@pytest.mark.parametrize(("hip", "part"), [("6.4.43484", "5.7.1"), ("7.1.0", "6.4"), ("6.4.43484", "8.0")])
def test_majors_that_were_not_measured_are_rejected(hip: str, part: str) -> None:
    with refused("SDK_UNUSABLE") as caught:
        check_majors(
            hip, {"device libs": part, "hipBLAS headers": hip}, load_pins().goes_with_hip, Path("/p")
        )
    assert f"the device libs are {part}" in caught.value.message
    assert "hipBLAS" not in caught.value.message


def test_the_hip_version_is_read_from_the_header(tmp_path: Path) -> None:
    assert hip_version(tmp_path) is None
    header = tmp_path / "hip/hip_version.h"
    header.parent.mkdir()
    header.write_text("#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 4\n")
    assert hip_version(tmp_path) is None
    header.write_text(header.read_text() + "#define HIP_VERSION_PATCH 43484\n")
    assert hip_version(tmp_path) == "6.4.43484"


def test_a_compiler_prints_its_version_and_archs(tmp_path: Path) -> None:
    tool = tmp_path / "clang++"
    tool.write_text(
        "#!/bin/sh\necho 'Debian clang version 22.1.8 (1~deb12u1)'\n"
        "printf '\\tgfx1151\\n\\tgfx11-generic\\n\\tgfx90a\\n' >&2\n"
    )
    tool.chmod(0o755)
    assert clang_version(tool, NullReporter()) == "22.1.8"
    assert known_archs(tool, NullReporter()) == {"gfx1151", "gfx90a"}
