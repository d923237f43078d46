"""What doctor says about ROCm, the SDK and rocWMMA, on folders laid out as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.build.toolchain import places
from patchkit.cli.doctor import Check, check_toolchain


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("patchkit.cli.doctor", "patchkit.build.toolchain"):
        monkeypatch.setattr(f"{module}.places", lambda environ: places(environ, system=tmp_path / "system"))

    def checks(*archs: str, **environ: str) -> dict[str, Check]:
        found = check_toolchain(
            tmp_path / "cache", archs=archs or ("gfx1151",), environ=environ, reporter=NullReporter()
        )
        return {
            f"{check.name} {check.detail.partition(':')[0]}" if check.name == "rocwmma" else check.name: check
            for check in found
        }

    return checks


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    root = tmp_path / "rocm"
    files = {
        "include/hip/hip_version.h": "#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 1\n"
        "#define HIP_VERSION_PATCH 5\n",
        "amdgcn/bitcode/ocml.bc": "",
        ".info/version": "7.1.0\n",
        "include/rocwmma/rocwmma.hpp": "",
        "include/rocwmma/internal/config.hpp": "defined(__gfx1151__)",
        "include/rocwmma/rocwmma-version.hpp": "#define ROCWMMA_VERSION_MAJOR 2\n"
        "#define ROCWMMA_VERSION_MINOR 0\n#define ROCWMMA_VERSION_PATCH 1\n",
        "lib/llvm/bin/clang++": "#!/bin/sh\necho clang version 20.0.0\nprintf '\\tgfx1151\\n\\tgfx1201\\n'\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "lib/llvm/bin/clang++").chmod(0o755)
    return root


def test_nothing_there_says_how_to_get_it(look) -> None:
    found = look()
    assert {name: check.state for name, check in found.items()} == {
        "rocm": "absent",
        "sdk": "absent",
        "hip toolchain": "absent",
    }
    assert all("patchkit sdk install" in (check.hint or "") for check in found.values())


def test_a_whole_rocm_is_named_with_version_and_rocwmma(look, rocm: Path) -> None:
    found = look(ROCM_PATH=str(rocm))
    assert found["rocm"].detail == f"7.1.0, {rocm} (ROCM_PATH)"
    assert found["hip toolchain"].detail.startswith("rocm: clang 20.0.0, HIP 7.1.5")
    assert found["rocwmma rocm 2.0.1 knows gfx1151"].state == "ok"


def test_a_rocwmma_that_does_not_know_the_gpu_is_said(look, rocm: Path) -> None:
    (check,) = (
        one for name, one in look("gfx1201", ROCM_PATH=str(rocm)).items() if name.startswith("rocwmma")
    )
    assert check.state == "absent"
    assert check.detail.startswith("gfx1201: rocm 2.0.1 does not know gfx1201")
    assert "rocwmma-dev" in (check.hint or "")


def test_a_compiler_that_does_not_know_the_gpu_is_said(look, rocm: Path) -> None:
    check = look("gfx1151", "gfx1250", ROCM_PATH=str(rocm))["hip toolchain"]
    assert check.state == "absent"
    assert check.detail.endswith("its compiler does not know gfx1250")


def test_a_named_rocm_without_device_libs_is_a_failure(look, rocm: Path) -> None:
    (rocm / "amdgcn/bitcode/ocml.bc").unlink()
    found = look(ROCM_PATH=str(rocm))
    assert "lacks the device libs" in found["rocm"].detail
    assert found["hip toolchain"].error is not None
    assert found["hip toolchain"].error.code == "ROCM_UNUSABLE"


def test_a_damaged_prefix_is_a_failure(look, tmp_path: Path) -> None:
    (tmp_path / "cache/sdk").mkdir(parents=True)
    (tmp_path / "cache/sdk/current").symlink_to("gone")
    check = look()["sdk"]
    assert check.error is not None
    assert check.error.code == "SDK_PREFIX_DAMAGED"
    assert check.hint == "make it anew: patchkit sdk install"
