"""Installing from a mirror made for the tests, with everything that can go wrong on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from recorder import Recorder
from refusing import refused

from patchkit.base.errors import PatchkitError
from patchkit.base.process import run_tool
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.cmake import cmake_settings
from patchkit.toolchain.hip import find_toolchain, hip_flags, llvm_tool
from patchkit.toolchain.sdk import apt
from patchkit.toolchain.sdk.apt import AvailablePackage, make_client
from patchkit.toolchain.sdk.compiler import obtain_compiler
from patchkit.toolchain.sdk.flags import hip_arguments
from patchkit.toolchain.sdk.install import install, remove
from patchkit.toolchain.sdk.packages import unpack
from patchkit.toolchain.sdk.pins import RocWmmaPin
from patchkit.toolchain.sdk.prefix import STANDIN, Prefix, current_prefix
from patchkit.toolchain.sdk.smoke import smoke

pytestmark = [pytest.mark.hip, pytest.mark.network, pytest.mark.slow]

QUIET = NullReporter()


def refuse(request, *codes: str) -> PatchkitError:
    """The install fails with one of these errors and leaves nothing to see."""
    with pytest.raises(PatchkitError, check=lambda error: error.code in codes) as caught:
        install(request, QUIET)
    folder = request.cache_root / "sdk"
    assert sorted(path.name for path in folder.iterdir()) == ["lock"]
    assert caught.value.hint
    return caught.value


def test_what_is_installed_is_recorded_and_used(request_of, mirror) -> None:
    request = request_of()
    prefix, made = install(request, QUIET)
    assert made
    assert [path.name for path in prefix.path.iterdir() if path.name == "scratch"] == []
    recorded = {one.name: one for one in prefix.record.packages}
    for path in mirror.root.glob("pool/*.deb"):
        name = path.name.partition("_")[0]
        assert recorded[name].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert prefix.record.suite == "forky"
    assert "libhipblas.so.2" in prefix.record.stubs
    toolchain = find_toolchain(request.cache_root, {}, QUIET)
    assert (toolchain.kind, toolchain.root) == ("sdk", prefix.root)
    assert toolchain.rocwmma is not None
    assert toolchain.rocwmma.kind == "stand-in"
    again, made = install(request, QUIET)
    assert (again, made) == (prefix, False)


def test_installing_again_gives_the_same_prefix_until_a_package_changes(request_of, mirror) -> None:
    first, _ = install(request_of(), QUIET)
    second, made = install(request_of(again=True), QUIET)
    assert made
    assert second.path == first.path
    next(mirror.root.glob("pool/libhipcub-dev_*")).unlink()
    mirror.build("libhipcub-dev", "6.4.9-1")
    mirror.publish("forky")
    third, _ = install(request_of(again=True), QUIET)
    assert third.path != first.path
    assert not first.path.exists()
    assert current_prefix(third.path.parents[1]) == third


def test_a_damaged_prefix_is_made_anew_and_remove_takes_everything(request_of) -> None:
    first, _ = install(request_of(), QUIET)
    shutil.rmtree(first.root / "include" / "hip")
    second, made = install(request_of(), QUIET)
    assert made
    assert (second.root / "include" / "hip" / "hip_runtime.h").is_file()
    cache = second.path.parents[1]
    assert remove(cache, QUIET) == (second.path,)
    assert current_prefix(cache) is None
    assert remove(cache, QUIET) == ()
    assert remove(cache / "none", QUIET) == ()


def test_a_suite_that_is_not_signed_is_refused(request_of, mirror) -> None:
    (mirror.root / "dists/forky/InRelease").unlink()
    refuse(request_of(), "SDK_PACKAGE_DAMAGED")


def test_a_suite_signed_by_a_stranger_is_refused(request_of, mirror, tmp_path: Path) -> None:
    stranger = replace(mirror, gnupg=tmp_path / "stranger")
    stranger.gnupg.mkdir(mode=0o700)
    stranger.gpg("--quick-generate-key", "stranger <stranger@localhost>", "ed25519", "sign", "never")
    stranger.sign("forky")
    error = refuse(request_of(), "SDK_PACKAGE_DAMAGED")
    assert "forky" in error.message


def test_an_index_changed_after_signing_is_refused(request_of, mirror) -> None:
    for path in mirror.root.glob("dists/forky/main/*/Packages*"):
        path.write_bytes(path.read_bytes()[:-40] + b"0" * 40)
    refuse(request_of(), "SDK_PACKAGE_DAMAGED", "SDK_PACKAGE_DAMAGED")


def test_a_package_changed_after_indexing_is_refused(request_of, mirror) -> None:
    path = next(mirror.root.glob("pool/librocblas-dev*"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refuse(request_of(), "SDK_PACKAGE_DAMAGED")


def test_a_suite_that_lacks_a_package_is_passed_over_for_the_next(request_of, mirror) -> None:
    mirror.publish("sid")
    mirror.publish("forky", without="libhipblas-dev")
    reporter = Recorder()
    prefix, _ = install(request_of(), reporter)
    assert prefix.record.suite == "sid"
    assert any(
        "libhipblas-dev" in text and "trying the suite sid" in text for text in reporter.said("info", "warn")
    )


@pytest.mark.parametrize("lost", ["libhipblas-dev", "rocm-device-libs"])
def test_a_package_no_suite_has_is_named(request_of, mirror, lost: str) -> None:
    mirror.publish("forky", without=lost)
    error = refuse(request_of(suites=("forky",)), "SDK_PACKAGE_MISSING")
    assert lost in f"{error.message} {error.why}"


def test_a_suite_that_is_not_there_is_named(request_of) -> None:
    assert "nosuch" in refuse(request_of(suites=("nosuch",)), "SDK_PACKAGE_MISSING").message


def test_a_mirror_that_does_not_answer_is_unreachable(request_of, mirror) -> None:
    entry = replace(mirror.entry, uris=("http://127.0.0.1:9/debian",))
    refuse(request_of(entries=(entry,)), "SDK_PACKAGES_UNAVAILABLE")


def test_a_mirror_that_never_finishes_is_too_slow(request_of, mirror, monkeypatch) -> None:
    monkeypatch.setattr(apt, "_UPDATE_S", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        entry = replace(mirror.entry, uris=(f"http://127.0.0.1:{server.getsockname()[1]}/debian",))
        refuse(request_of(entries=(entry,)), "SDK_PACKAGES_UNAVAILABLE")


def test_no_mirror_at_all(request_of) -> None:
    refuse(request_of(entries=()), "SDK_PACKAGES_UNAVAILABLE")


def test_packages_far_larger_than_expected_are_not_fetched(request_of) -> None:
    error = refuse(request_of(pins={"download_limit": 1000}), "SDK_PACKAGES_UNAVAILABLE")
    assert "the largest is" in (error.why or "")


def test_libraries_of_another_major_version_are_refused(request_of, mirror) -> None:
    next(mirror.root.glob("pool/libhipblas-dev*")).unlink()
    mirror.build("libhipblas-dev", "5.7.1-1")
    mirror.publish("forky")
    error = refuse(request_of(), "SDK_UNUSABLE")
    assert "hipBLAS headers are 5.7.1-1" in error.message


def test_packages_without_headers_are_refused(request_of, mirror) -> None:
    next(mirror.root.glob("pool/libamdhip64-dev*")).unlink()
    mirror.build("libamdhip64-dev", "6.4.3-5")
    mirror.publish("forky")
    assert "no HIP headers found" in refuse(request_of(), "SDK_UNUSABLE").message


def test_a_prefix_that_does_not_compile_is_not_kept(request_of, mirror, real: Prefix, tmp_path: Path) -> None:
    shutil.copytree(real.root / "include", tmp_path / "usr/include")
    (tmp_path / "usr/include/hip/hip_fp16.h").write_text("#error broken\n")
    shutil.copytree(real.root / "lib", tmp_path / "usr/lib", symlinks=True)
    shutil.rmtree(tmp_path / "usr/lib/llvm-21")
    for stub in tmp_path.glob("usr/lib/*-linux-gnu/*.so.*"):
        stub.unlink()
    next(mirror.root.glob("pool/libamdhip64-dev*")).unlink()
    mirror.build("libamdhip64-dev", "6.4.3-5", {"usr": tmp_path / "usr"})
    mirror.publish("forky")
    assert "broken" in (refuse(request_of(), "SDK_UNUSABLE").why or "")


def test_a_machine_without_cxx_headers_is_told_so(real: Prefix, tmp_path: Path) -> None:
    flags = hip_arguments(
        root=real.root,
        device_libs=real.device_libs,
        clang_version=real.record.compiler_version,
        hip_version=real.record.hip_version,
        arch="gfx1151",
        which="both",
        rocwmma=STANDIN,
    )
    with refused("SDK_PACKAGES_UNAVAILABLE") as caught:
        smoke(real.clang, [*flags, "-nostdinc++"], tmp_path, tmp_path, wmma=False, reporter=QUIET)
    assert "apt install g++" in (caught.value.hint or "")


def test_without_apt_the_error_says_what_else_to_do(request_of, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refuse(request_of(), "SDK_PACKAGES_UNAVAILABLE")


def test_a_file_that_is_no_package_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a_1_all.deb").write_bytes(b"!<arch>\nnothing")
    with refused("SDK_PACKAGE_DAMAGED"):
        unpack(tmp_path, [AvailablePackage(name="a", version="1", size=1)], tmp_path / "out", QUIET)


def test_a_package_nobody_asked_for_is_damaged(mirror, tmp_path: Path) -> None:
    folder = tmp_path / "debs"
    folder.mkdir()
    shutil.copy(next(mirror.root.glob("pool/libhipcub-dev*")), folder)
    with refused("SDK_PACKAGE_DAMAGED") as caught:
        unpack(folder, [AvailablePackage(name="other", version="1", size=1)], tmp_path / "out", QUIET)
    assert "was not requested" in (caught.value.why or "")


@pytest.mark.parametrize(
    ("offered", "code"), [((), "SDK_PACKAGES_UNAVAILABLE"), (("clang-15",), "SDK_UNUSABLE")]
)
def test_suites_without_a_new_enough_compiler(
    mirror, tmp_path: Path, offered: tuple[str, ...], code: str
) -> None:
    for name in offered:
        mirror.build(name, "1-1")
    mirror.publish("forky")
    stanza = mirror.entry.for_suite("forky").as_stanza()
    client = make_client(tmp_path / "apt", stanza, environ={}, reporter=QUIET)
    client.update("the suite")
    with refused(code) as caught:
        obtain_compiler(client, tmp_path, minimum=20, at_least=21, rejections=("/bin/clang++: too old",))
    assert "/bin/clang++: too old" in (caught.value.why or "")


@pytest.fixture
def rocwmma(tmp_path: Path) -> tuple[str, RocWmmaPin]:
    """A repository laid out as rocWMMA's, and the pin of its commit."""
    source = tmp_path / "rocwmma"
    include = source / "library/include/rocwmma"
    (include / "internal").mkdir(parents=True)
    shutil.copy(STANDIN / "rocwmma/rocwmma.hpp", include / "rocwmma.hpp")
    for path in (STANDIN / "rocwmma").glob("*.hpp"):
        shutil.copy(path, include)
    (include / "rocwmma-version.hpp").unlink(missing_ok=True)
    (include / "internal/rocwmma-version.hpp.in").write_text(
        "#pragma once\n#define ROCWMMA_VERSION_MAJOR       @rocwmma_VERSION_MAJOR@\n"
        "#define ROCWMMA_VERSION_MINOR       @rocwmma_VERSION_MINOR@\n"
        "#define ROCWMMA_VERSION_PATCH       @rocwmma_VERSION_PATCH@\n"
    )
    (include / "internal/config.hpp").write_text(
        "#elif defined(__gfx1102__) && ROCWMMA_DEVICE_COMPILE\n#define ROCWMMA_ARCH_GFX1102 __gfx1102__\n"
    )

    def git(*args: str) -> str:
        argv = ["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@localhost", *args]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    git("add", ".")
    git("commit", "--quiet", "--message", "x")
    return str(source), RocWmmaPin(
        url=str(tmp_path / "nowhere"),
        commit=git("rev-parse", "HEAD"),
        folder="library/include",
        tree=git("rev-parse", "HEAD:library/include"),
        version="1.6.0",
        same_as={"gfx1151": "gfx1102"},
    )


def test_rocwmma_comes_from_git_and_is_said(request_of, rocwmma) -> None:
    url, pin = rocwmma
    request = request_of(rocwmma="auto", rocwmma_url=url, pins={"rocwmma": pin})
    prefix, _ = install(request, QUIET)
    assert prefix.record.rocwmma_kind == "git"
    assert prefix.record.rocwmma_version.startswith(f"1.6.0 (git {pin.commit[:12]}, with gfx1151 as")
    toolchain = find_toolchain(request.cache_root, {}, QUIET)
    flags = hip_flags(toolchain, "gfx1151", which="device")
    assert str(prefix.path / "rocwmma") in flags
    assert str(STANDIN) in hip_flags(toolchain, "gfx1201", which="device")


def test_without_its_repository_rocwmma_is_the_stand_in_and_that_is_said(request_of, rocwmma) -> None:
    reporter = Recorder()
    prefix, _ = install(request_of(rocwmma="auto", pins={"rocwmma": rocwmma[1]}), reporter)
    assert prefix.record.rocwmma_kind == "stand-in"
    assert any("stand-in" in text for text in reporter.said("info", "warn"))


def test_rocwmma_that_must_come_from_git_and_cannot_is_an_error(request_of, rocwmma) -> None:
    refuse(request_of(rocwmma="git", pins={"rocwmma": rocwmma[1]}), "REMOTE_UNREACHABLE")


def test_a_rocwmma_that_is_not_the_pinned_tree_is_refused_even_when_it_is_optional(
    request_of, rocwmma
) -> None:
    url, pin = rocwmma
    wrong = pin.model_copy(update={"tree": "0" * 40})
    refuse(request_of(rocwmma="auto", rocwmma_url=url, pins={"rocwmma": wrong}), "SDK_ROCWMMA_MISMATCH")


def test_the_real_prefix_compiles_with_its_own_tools(real: Prefix, sdk_cache: Path, tmp_path: Path) -> None:
    toolchain = find_toolchain(sdk_cache, {}, QUIET)
    (tmp_path / "k.hip").write_text(
        "#include <hip/hip_runtime.h>\n__global__ void scale(float * x) { x[threadIdx.x] *= 2.0f; }\n"
    )
    for arch in ("gfx1151", "gfx1201", "gfx90a"):
        argv = [
            str(toolchain.clang),
            *hip_flags(toolchain, arch, which="device"),
            "-S",
            "-o",
            f"{arch}.s",
            "k.hip",
        ]
        run_tool(argv, cwd=tmp_path, reporter=QUIET)
        assert f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}' in (tmp_path / f"{arch}.s").read_text()
    filt = llvm_tool(toolchain, "llvm-cxxfilt", QUIET)
    assert filt is not None
    assert run_tool([str(filt)], stdin=b"_Z5scalePf\n", reporter=QUIET).stdout == b"scale(float*)\n"
    assert llvm_tool(toolchain, "llvm-nothing", QUIET) is None


def test_cmake_knows_the_compiler_and_builds_a_library(real: Prefix, sdk_cache: Path, tmp_path: Path) -> None:
    """With the languages and packages of upstream's build, and whatever cmake this machine has."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake on this machine")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(t LANGUAGES C CXX HIP)\n"
        "find_package(hip REQUIRED)\nfind_package(hipblas REQUIRED)\nfind_package(rocblas REQUIRED)\n"
        "add_library(k SHARED k.cu)\nset_source_files_properties(k.cu PROPERTIES LANGUAGE HIP)\n"
        "target_link_libraries(k PRIVATE hip::host roc::rocblas roc::hipblas)\n"
    )
    (tmp_path / "k.cu").write_text(
        "#include <hip/hip_runtime.h>\n#include <hipblas/hipblas.h>\n#include <rocwmma/rocwmma-version.hpp>\n"
        "__global__ void k(float * x) { x[threadIdx.x] *= 2.0f; }\n"
        'extern "C" int run(float * x, hipblasHandle_t * h) { k<<<1, 32>>>(x); return hipblasCreate(h); }\n'
    )
    settings = cmake_settings(find_toolchain(sdk_cache, {}, QUIET), ["gfx1151"])
    env = {**os.environ, **settings.environment}
    options = [f"-D{name}={value}" for name, value in settings.cache.items()]
    log = ""
    for argv in (
        ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "b"), "-DCMAKE_BUILD_TYPE=Release", *options],
        ["cmake", "--build", str(tmp_path / "b")],
    ):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        log += done.stdout + done.stderr
        assert done.returncode == 0, log
    assert "The HIP compiler identification is Clang" in log
    needed = run_tool(
        [str(real.clang.with_name("llvm-readelf")), "-d", str(tmp_path / "b/libk.so")], reporter=QUIET
    )
    assert b"libhipblas.so.2" in needed.stdout
