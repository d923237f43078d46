"""The choice of a ROCm or the SDK, and the errors of unusable ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorder import Recorder
from refusing import refused

from patchkit.base.errors import ExitCode
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.hip import (
    RocWmma,
    Toolchain,
    ToolchainMissing,
    check_archs,
    find_toolchain,
    hip_flags,
    inspect_rocm,
    knows_arch,
    rocm_locations,
    rocwmma_for,
)
from patchkit.toolchain.sdk.prefix import STANDIN, Package, Record, write_record
from patchkit.toolchain.sdk.versions import rocwmma_version


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def put_clang(path: Path, version: str) -> Path:
    """A program that prints the version of a clang."""
    put(path, f"#!/bin/sh\necho 'AMD clang version {version} (a build)'\n").chmod(0o755)
    return path


def put_hip(root: Path, version: str = "7.1.12345") -> None:
    major, minor, patch = version.split(".")
    text = (
        f"#define HIP_VERSION_MAJOR {major}\n#define HIP_VERSION_MINOR {minor}\n"
        f"#define HIP_VERSION_PATCH {patch}\n"
    )
    put(root / "include/hip/hip_version.h", text)
    put(root / "include/hip/hip_runtime.h")


def put_rocwmma(include: Path, archs: tuple[str, ...], version: str = "2.0.1") -> None:
    put(include / "rocwmma/rocwmma.hpp")
    put(
        include / "rocwmma/internal/config.hpp",
        "".join(f"#if defined(__{arch}__)\n#endif\n" for arch in archs),
    )
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    put(
        include / "rocwmma/rocwmma-version.hpp",
        "".join(f"#define ROCWMMA_VERSION_{name}       {number}\n" for name, number in parts),
    )


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    """A ROCm with the layout of AMD's packages."""
    root = tmp_path / "rocm"
    put_hip(root)
    put(root / "amdgcn/bitcode/ocml.bc")
    put(root / ".info/version", "7.1.0-42\n")
    put_clang(root / "lib/llvm/bin/clang++", "20.0.0git")
    put_rocwmma(root / "include", ("gfx1100", "gfx1151"))
    return root


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    """A cache with an installed prefix."""
    cache = tmp_path / "cache"
    prefix = cache / "sdk/0123456789ab"
    put_hip(prefix / "usr", "6.4.43484")
    put(prefix / "usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode/ocml.bc")
    put_clang(tmp_path / "bin/clang++-22", "22.1.8")
    put_rocwmma(prefix / "rocwmma", ("gfx1151",), "1.6.0")
    record = Record(
        suite="forky",
        packages=(Package(name="libamdhip64-dev", version="6.4.3-5", sha256="0" * 64, size=1),),
        compiler=str(tmp_path / "bin/clang++-22"),
        compiler_version="22.1.8",
        compiler_packages=(),
        hip_version="6.4.43484",
        device_libs="usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode",
        device_libs_version="7.0.2",
        rocwmma_kind="git",
        rocwmma_version="1.6.0",
        stubs=("libamdhip64.so.6",),
        downloaded=1,
    )
    write_record(prefix, record)
    (cache / "sdk/current").symlink_to("0123456789ab")
    return cache


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Toolchain]:
    """Looks for a toolchain on a machine whose whole file system is below ``system``."""
    system = tmp_path / "system"
    monkeypatch.setattr(
        "patchkit.toolchain.hip.rocm_locations", lambda environ: rocm_locations(environ, system=system)
    )  # the machine that runs the tests may have a ROCm

    def look(
        cache: Path, environ: dict[str, str] | None = None, reporter: NullReporter | None = None
    ) -> Toolchain:
        return find_toolchain(cache, environ or {}, reporter or NullReporter())

    return look


def test_a_rocm_that_is_named_is_used(find, rocm: Path, tmp_path: Path) -> None:
    toolchain = find(tmp_path, {"ROCM_PATH": str(rocm)})
    assert toolchain == Toolchain(
        kind="rocm",
        root=rocm,
        clang=rocm / "lib/llvm/bin/clang++",
        clang_version="20.0.0",
        hip_version="7.1.12345",
        device_libs=rocm / "amdgcn/bitcode",
        rocwmma=RocWmma(kind="rocm", include=rocm / "include", version="2.0.1"),
    )


def test_a_rocm_is_preferred_over_the_sdk(find, rocm: Path, sdk: Path, tmp_path: Path) -> None:
    assert find(sdk).kind == "sdk"
    (tmp_path / "system/opt").mkdir(parents=True)
    rocm.rename(tmp_path / "system/opt/rocm-7.1.0")
    assert find(sdk).root == tmp_path / "system/opt/rocm-7.1.0"


def test_the_newest_of_several_rocms_wins_as_numbers_do(find, rocm: Path, tmp_path: Path) -> None:
    import shutil

    for version in ("6.9.0", "6.10.2"):
        shutil.copytree(rocm, tmp_path / f"system/opt/rocm-{version}")
    assert find(tmp_path).root.name == "rocm-6.10.2"


def test_the_sdk_is_described_with_its_rocwmma(find, sdk: Path) -> None:
    toolchain = find(sdk)
    assert (toolchain.clang_version, toolchain.hip_version) == ("22.1.8", "6.4.43484")
    include = sdk / "sdk/0123456789ab/rocwmma"
    assert toolchain.rocwmma == RocWmma(kind="git", include=include, version="1.6.0")


def test_without_any_the_error_names_the_command_to_run(find, tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissing) as caught:
        find(tmp_path)
    assert caught.value.hint == "patchkit sdk install"
    assert caught.value.exit_code is ExitCode.TOOLCHAIN


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("include/hip/hip_version.h", "HIP headers"),
        ("amdgcn/bitcode/ocml.bc", "device libs"),
        ("lib/llvm/bin/clang++", "clang ("),
    ],
)
def test_a_named_rocm_that_lacks_a_part_is_an_error(
    find, rocm: Path, tmp_path: Path, part: str, words: str
) -> None:
    (rocm / part).unlink()
    with refused("ROCM_UNUSABLE") as caught:
        find(tmp_path, {"ROCM_PATH": str(rocm)})
    assert words in caught.value.message
    assert caught.value.where[0].path == str(rocm)


def test_an_incomplete_rocm_is_skipped_with_a_warning(find, rocm: Path, sdk: Path, tmp_path: Path) -> None:
    (rocm / "amdgcn/bitcode/ocml.bc").unlink()
    (tmp_path / "system/opt").mkdir(parents=True)
    rocm.rename(tmp_path / "system/opt/rocm")
    warnings = Recorder()
    assert find(sdk, reporter=warnings).kind == "sdk"
    assert len(warnings.said("warn")) == 1
    assert "device libs" in warnings.said("warn")[0]


@pytest.mark.parametrize("named", ["current", "current/usr", "0123456789ab/usr"])
def test_rocm_path_may_name_the_sdk(find, sdk: Path, named: str) -> None:
    # Makefiles that ask for /opt/rocm otherwise are given the prefix by it, and it is no whole ROCm.
    assert find(sdk, {"ROCM_PATH": str(sdk / "sdk" / named)}).kind == "sdk"


def test_a_compiler_that_is_not_clang_is_an_error(find, rocm: Path, tmp_path: Path) -> None:
    put(rocm / "lib/llvm/bin/clang++", "#!/bin/sh\necho 'gcc (GCC) 12'\n")
    with refused("ROCM_UNUSABLE") as caught:
        find(tmp_path, {"ROCM_PATH": str(rocm)})
    assert caught.value.where[0].path == str(rocm / "lib/llvm/bin/clang++")


def test_device_libs_newer_than_the_compiler_are_rejected(find, sdk: Path, tmp_path: Path) -> None:
    put_clang(tmp_path / "bin/clang++-22", "20.1.0")
    with refused("SDK_UNUSABLE") as caught:
        find(sdk)
    assert "LLVM 21" in caught.value.message


def test_a_compiler_too_old_for_the_gpu_is_rejected_before_compiling(
    find, rocm: Path, tmp_path: Path
) -> None:
    old = "echo 'clang version 16.0.6'; echo '  gfx1100' >&2; echo '  gfx1103' >&2"
    put(rocm / "lib/llvm/bin/clang++", f"#!/bin/sh\n{old}\n")
    toolchain = find(tmp_path, {"ROCM_PATH": str(rocm)})
    check_archs(toolchain, ["gfx1100"], NullReporter())
    with refused("SDK_UNUSABLE", match=r"clang 16\.0\.6 does not support gfx1151") as caught:
        check_archs(toolchain, ["gfx1100", "gfx1151"], NullReporter())
    assert caught.value.exit_code is ExitCode.TOOLCHAIN
    assert caught.value.why == "it supports gfx1100, gfx1103"
    assert caught.value.where[0].path == str(rocm / "lib/llvm/bin/clang++")
    assert "patchkit sdk install" in (caught.value.hint or "")


@pytest.mark.parametrize("gone", ["usr/include/hip/hip_runtime.h", "rocwmma/rocwmma/rocwmma.hpp", "sdk.json"])
def test_a_damaged_prefix_reports_the_install_command(find, sdk: Path, gone: str) -> None:
    path = sdk / "sdk/0123456789ab" / gone
    path.unlink()
    if "rocwmma" in gone:
        import shutil

        shutil.rmtree(path.parent)
    with refused("SDK_UNUSABLE") as caught:
        find(sdk)
    assert "patchkit sdk install" in (caught.value.hint or "")


def test_a_prefix_whose_compiler_was_removed_is_damaged(find, sdk: Path, tmp_path: Path) -> None:
    (tmp_path / "bin/clang++-22").unlink()
    with refused("SDK_UNUSABLE") as caught:
        find(sdk)
    assert caught.value.where[0].path == str(tmp_path / "bin/clang++-22")


@pytest.mark.parametrize(
    ("device_libs", "clang"),
    [
        ("usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode", "bin/clang++-21"),  # Debian
        ("usr/lib/clang/19/amdgcn/bitcode", "bin/clang++-19"),  # Fedora
    ],
)
def test_a_rocm_of_the_distribution_uses_the_clang_of_its_device_libs(
    find, tmp_path: Path, device_libs: str, clang: str
) -> None:
    system = tmp_path / "system"
    put_hip(system / "usr", "6.4.1")
    put(system / device_libs / "ocml.bc")
    for version in ("19", "21", "22"):
        put_clang(tmp_path / f"bin/clang++-{version}", f"{version}.1.0")
    toolchain = find(tmp_path, {"PATH": str(tmp_path / "bin")})
    assert (toolchain.kind, toolchain.clang, toolchain.root) == ("rocm", tmp_path / clang, system / "usr")
    assert toolchain.rocwmma is None


def test_therock_wheels_are_found(find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "site/_rocm_sdk_devel"
    put(root / "__init__.py")
    put_hip(root)
    put(root / "lib/llvm/amdgcn/bitcode/ocml.bc")
    put_clang(root / "lib/llvm/bin/clang++", "22.0.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    (place,) = tuple(rocm_locations({}, system=tmp_path / "system"))
    assert place.origin == "TheRock's wheels"
    assert find(tmp_path).device_libs == root / "lib/llvm/amdgcn/bitcode"


def test_the_version_of_rocm_is_read_from_its_own_file(rocm: Path) -> None:
    (place,) = rocm_locations({"ROCM_PATH": str(rocm)}, system=rocm / "none")
    assert inspect_rocm(place, os.environ).version == "7.1.0-42"


def test_a_rocwmma_without_the_arch_is_not_used_for_it(rocm: Path, find, tmp_path: Path) -> None:
    toolchain = find(tmp_path, {"ROCM_PATH": str(rocm)})
    assert toolchain.rocwmma is not None
    assert knows_arch(toolchain.rocwmma, "gfx1151")
    assert not knows_arch(toolchain.rocwmma, "gfx115")
    chosen = rocwmma_for(toolchain, "gfx1201")
    assert chosen is None or chosen.kind == "stand-in"
    assert rocwmma_for(toolchain, "gfx906") is None


def test_the_stand_in_supports_only_its_two_families(tmp_path: Path) -> None:
    put(tmp_path / "rocwmma/rocwmma.hpp")
    standin = RocWmma(kind="stand-in", include=tmp_path, version="1")
    known = [
        arch for arch in ("gfx906", "gfx1030", "gfx1100", "gfx1151", "gfx1201") if knows_arch(standin, arch)
    ]
    assert known == ["gfx1100", "gfx1151", "gfx1201"]


def test_flags_put_rocwmma_before_the_hip_headers(rocm: Path, find, tmp_path: Path) -> None:
    flags = hip_flags(find(tmp_path, {"ROCM_PATH": str(rocm)}), "gfx1151", which="device")
    assert "--cuda-device-only" in flags
    assert "--offload-arch=gfx1151" in flags
    assert flags[-2:] == ["-isystem", str(rocm / "include")]  # both are one folder here: named once
    assert flags.count("-isystem") == 1


def test_the_stand_in_precedes_a_rocwmma_that_lacks_the_arch(rocm: Path, find, tmp_path: Path) -> None:
    flags = hip_flags(find(tmp_path, {"ROCM_PATH": str(rocm)}), "gfx1201", which="host")
    includes = [flags[i + 1] for i, flag in enumerate(flags) if flag == "-isystem"]
    assert includes == [
        *([str(STANDIN)] if (STANDIN / "rocwmma/rocwmma.hpp").is_file() else []),
        str(rocm / "include"),
    ]
    assert "--cuda-host-only" in flags


def test_version_of_a_header_without_one_is_unknown(tmp_path: Path) -> None:
    assert rocwmma_version(tmp_path) == "unknown"
