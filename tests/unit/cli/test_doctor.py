"""What doctor finds on good and bad machines; ROCm, the SDK and rocWMMA on folders laid out as they are."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import CommitStream
from patchkit.carry.upstream.refs import update_ref
from patchkit.carry.upstream.repository import Repository
from patchkit.cli import doctor
from patchkit.cli.doctor import Check, check_toolchain, run_doctor
from patchkit.toolchain.hip import rocm_locations

ROOT = Path(__file__).resolve().parents[3]


def _look(tmp_path: Path, *, series: Path = ROOT, **environ: str) -> dict[str, Check]:
    checks = run_doctor(
        series_dir=series,
        cache_root=tmp_path / "cache",
        environ={"PATH": os.environ["PATH"], **environ},
        reporter=NullReporter(),
    )
    return {check.name: check for check in checks}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A cache that has a pin."""
    made = create_repository(tmp_path / "cache" / "upstream.git", NullReporter())
    with CommitStream(made) as stream:
        stream.begin(message="upstream\n", date="2025-10-31T10:54:19+02:00", parent=None)
        stream.put_file("src/a.cu", "100644", b"one\n")
        (base,) = stream.finish()
    update_ref(made, "refs/patchkit/pin/b6900", base.commit, None)
    return made


def test_a_machine_that_can_run_the_tests_can_run_patchkit(tmp_path: Path) -> None:
    found = _look(tmp_path)
    assert {found[name].state for name in ("python", "git", "libclang", "cache", "series")} == {"ok"}
    assert found["libclang"].detail.startswith("clang 18.1")
    patches = len([*(ROOT / "patches").glob("*/patch.toml")])
    gpus = len([*(ROOT / "arch_profiles").glob("gfx*.toml")])
    assert f"{patches} patches, {gpus} GPUs" in found["series"].detail
    assert found["pins"].state == "absent"


@pytest.mark.usefixtures("repository")
def test_a_cached_pin_is_seen(tmp_path: Path) -> None:
    assert _look(tmp_path)["pins"].detail == "downloaded: b6900"


@pytest.mark.parametrize(
    ("name", "code", "broken"),
    [
        ("git", "GIT_MISSING", lambda patch: patch.setenv("PATH", "/nowhere")),
        ("cache", "CACHE_LOW_SPACE", lambda patch: patch.setattr(doctor, "_FREE_BYTES", 10**18)),
        ("python", "PYTHON_UNSUPPORTED", lambda patch: patch.setattr(doctor, "_OLDEST_PYTHON", (3, 99))),
    ],
)
def test_a_failure_has_a_code_of_its_own(tmp_path: Path, monkeypatch, name: str, code: str, broken) -> None:
    broken(monkeypatch)
    check = _look(tmp_path)[name]
    assert (check.state, check.error and check.error.code) == ("failed", code)
    assert check.hint


def test_every_broken_file_of_the_series_counts(tmp_path: Path) -> None:
    series = tmp_path / "series"
    for name in ("patches", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    (series / "arch_profiles" / "gfx1151.toml").write_text("arch = ")
    (series / "patches" / "upstream.lock").write_text("version = 2")
    check = _look(tmp_path, series=series)["series"]
    assert check.state == "failed"
    assert check.error is not None
    codes = str([str(place) for error in check.error.errors for place in error.where])
    assert "gfx1151.toml" in codes
    assert check.detail.startswith("the series has errors: ")


def test_build_tools_are_only_absent(tmp_path: Path) -> None:
    found = _look(tmp_path, PATH=str(tmp_path))
    assert found["cmake"].state == "absent"
    assert found["cmake"].hint
    assert "cpu-build and cpu-tests" in (found["c++ compiler"].hint or "")
    assert found["sdk"].hint == "to compile without ROCm: patchkit sdk install"


def test_build_tools_are_found_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "cmake").touch(mode=0o755)
    (tmp_path / "cc").touch(mode=0o755)
    assert _look(tmp_path, PATH=str(tmp_path))["cmake"].detail == str(tmp_path / "cmake")
    assert _look(tmp_path, PATH=str(tmp_path))["c++ compiler"].detail == "no c++ on PATH"
    (tmp_path / "c++").touch(mode=0o755)
    assert _look(tmp_path, PATH=str(tmp_path))["c++ compiler"].state == "ok"


def test_a_damaged_cache_is_a_failure_that_says_what_to_delete(
    repository: Repository, tmp_path: Path
) -> None:
    blob = repository.write_object("blob", b"good")
    place = repository.path / "objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob 4\0evil"))
    check = _look(tmp_path)["pins"]
    assert check.error is not None
    assert check.error.code == "GIT_OBJECT_DAMAGED"
    assert "hash-path mismatch" in (check.error.why or "")
    assert "hint:" not in (check.error.why or "")
    assert f"delete {repository.path} " in (check.hint or "")


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("patchkit.cli.doctor", "patchkit.toolchain.hip"):
        monkeypatch.setattr(
            f"{module}.rocm_locations", lambda environ: rocm_locations(environ, system=tmp_path / "system")
        )

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
        "lib/cmake/hip-lang/hip-lang-config.cmake": "",
        "lib/cmake/hip/hip-config.cmake": "",
        "lib/cmake/hipblas/hipblas-config.cmake": "",
        "lib/cmake/rocblas/rocblas-config.cmake": "",
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


@pytest.mark.parametrize("has_apt", [True, False])
def test_nothing_there_says_how_to_get_it(look, tmp_path: Path, has_apt: bool) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if has_apt:
        (programs / "apt-get").write_text("#!/bin/sh\n")
        (programs / "apt-get").chmod(0o755)
    found = look(PATH=str(programs))
    assert {name: check.state for name, check in found.items()} == {
        "rocm": "absent",
        "sdk": "absent",
        "hip toolchain": "absent",
    }
    hint = found["hip toolchain"].hint or ""
    assert "install ROCm" in hint
    assert ("patchkit sdk install" in hint) == has_apt  # it is made of packages that apt downloads


def test_a_whole_rocm_is_named_with_version_and_rocwmma(look, rocm: Path) -> None:
    found = look(ROCM_PATH=str(rocm))
    assert found["rocm"].detail == f"7.1.0, {rocm} (ROCM_PATH)"
    assert found["hip toolchain"].detail.startswith("rocm: clang 20.0.0, HIP 7.1.5")
    assert found["rocwmma rocm 2.0.1 supports gfx1151"].state == "ok"


@pytest.mark.parametrize("package", ["hip-lang", "hip", "hipblas", "rocblas"])
def test_a_rocm_that_cannot_build_llama_cpp_is_not_ok(look, rocm: Path, package: str) -> None:
    shutil.rmtree(rocm / "lib/cmake" / package)
    found = look(ROCM_PATH=str(rocm))
    for check in (found["rocm"], found["hip toolchain"]):
        assert check.state == "absent"
        assert check.detail.endswith(f"missing: {package}")
        assert "hipblas-dev" in (check.hint or "")


@pytest.mark.parametrize("folder", ["lib64", "lib/x86_64-linux-gnu"])
def test_the_cmake_packages_are_found_where_distributions_have_them(look, rocm: Path, folder: str) -> None:
    (rocm / folder).mkdir(exist_ok=True)
    (rocm / "lib/cmake").rename(rocm / folder / "cmake")
    assert look(ROCM_PATH=str(rocm))["rocm"].state == "ok"


@pytest.mark.parametrize(
    ("version", "state", "says"),
    [
        ("6.2.4-139", "absent", "too old to build llama.cpp"),
        ("6.3.4-76", "absent", "too old to build llama.cpp"),
        ("6.4.0-47", "ok", ""),
        ("7.1.1-38", "ok", ""),
        ("7.2.0-43", "ok", ""),
        ("7.2.1-81", "ok", ""),
        ("7.10.0a20251120", "ok", ""),
        ("10.0.0", "ok", ""),
    ],
)
def test_what_is_known_of_a_release_of_rocm_is_said(look, rocm: Path, version, state, says) -> None:
    (rocm / ".info/version").write_text(f"{version}\n")
    found = look(ROCM_PATH=str(rocm))
    check = found["rocm"]
    assert (check.state, check.error) == (state, None)
    assert found["hip toolchain"].state == ("absent" if state == "absent" else "ok")
    assert check.detail.startswith(version)
    assert says in check.detail
    assert (check.hint is None) == (state == "ok")


def test_headers_tell_how_old_a_rocm_is_where_nothing_else_does(look, rocm: Path) -> None:
    (rocm / ".info/version").unlink()
    assert look(ROCM_PATH=str(rocm))["rocm"].state == "ok"
    header = rocm / "include/hip/hip_version.h"
    header.write_text(header.read_text().replace("MAJOR 7", "MAJOR 5"))
    assert "too old" in look(ROCM_PATH=str(rocm))["rocm"].detail


def test_a_rocwmma_that_does_not_know_the_gpu_is_said(look, rocm: Path) -> None:
    (check,) = (
        one for name, one in look("gfx1201", ROCM_PATH=str(rocm)).items() if name.startswith("rocwmma")
    )
    assert check.state == "absent"
    assert check.detail.startswith("gfx1201: rocm 2.0.1 does not support gfx1201")
    assert "rocwmma-dev" in (check.hint or "")


def test_a_compiler_that_does_not_know_the_gpu_is_said(look, rocm: Path) -> None:
    check = look("gfx1151", "gfx1250", ROCM_PATH=str(rocm))["hip toolchain"]
    assert check.state == "absent"
    assert check.detail.endswith("its compiler does not support gfx1250")


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
    assert check.error.code == "SDK_UNUSABLE"
    assert check.hint == "install it again: patchkit sdk install"
