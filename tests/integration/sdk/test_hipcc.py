"""The prefix's hipcc compiles and links plain HIP programs, with the real compiler and headers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.exported import fetch_folder
from patchkit.toolchain.hip import Toolchain, llvm_tool
from patchkit.toolchain.sdk.install import InstallRequest, install
from patchkit.toolchain.sdk.pins import load_pins
from patchkit.toolchain.sdk.prefix import Prefix, current_prefix

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_PROGRAM = """\
#include <hip/hip_runtime.h>
#include <cstdio>

__global__ void scale(float * x, float by) { x[threadIdx.x] *= sinf(by); }

int main() {
    float * x = nullptr;
    if (hipMalloc(&x, 64 * sizeof(float)) != hipSuccess) {
        return 1;
    }
    scale<<<1, 64>>>(x, 2.0f);
    std::printf("%s\\n", hipGetErrorName(hipDeviceSynchronize()));
}
"""

# Of each pass, what these headers take for the number of lanes.
_WAVES = """\
#include <hip/hip_runtime.h>
#if !defined(__HIP_DEVICE_COMPILE__) || defined(__GFX9__)
constexpr int wanted = 64;
#else
constexpr int wanted = 32;
#endif
static_assert(warpSize == wanted && __AMDGCN_WAVEFRONT_SIZE == wanted);
__global__ void lanes(int * out) { *out = warpSize; }
"""


@pytest.fixture(scope="module")
def prefix(hip_toolchain: Toolchain, test_cache: Path) -> Prefix:
    """The prefix of the test cache, which the toolchain's fixture has brought up to date."""
    found = current_prefix(test_cache / "sdk") if hip_toolchain.kind == "sdk" else None
    if found is None:
        pytest.skip("this machine has a ROCm, with a hipcc of its own")
    return found


def _hipcc(prefix: Prefix, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(prefix.hipcc), *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def _made(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _archs(binary: Path) -> set[str]:
    return set(
        re.findall(r"hip(?:v4)?-amdgcn-amd-amdhsa-[a-z]*-(gfx\w+)", binary.read_bytes().decode("latin-1"))
    )


def _needed(toolchain: Toolchain, binary: Path) -> set[str]:
    argv = [str(llvm_tool(toolchain, "llvm-readelf", NullReporter())), "--dynamic-table", str(binary)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))


@pytest.mark.parametrize(
    "name", ["a.hip", "a.cpp", "a.cc", "a.cxx", "a.c++", "a.C", "a.cu", "my 'own' $program.cpp"]
)
def test_a_program_is_one_command(prefix, hip_toolchain, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(_PROGRAM, "utf-8")
    _made(_hipcc(prefix, tmp_path, "--offload-arch=gfx1151", name, "-o", f"{name} program"))
    assert _archs(tmp_path / f"{name} program") == {"gfx1151"}
    assert "libamdhip64.so.6" in _needed(hip_toolchain, tmp_path / f"{name} program")


def test_each_gpu_of_a_binary_has_its_own_wave_size(prefix, tmp_path: Path) -> None:
    (tmp_path / "waves.hip").write_text(_WAVES, "utf-8")
    archs = ["--offload-arch=gfx1151,gfx90a", "--offload-arch=gfx1030", "--offload-arch=gfx1201"]
    _made(_hipcc(prefix, tmp_path, *archs, "-c", "waves.hip", "-o", "waves.o"))
    assert _archs(tmp_path / "waves.o") == {"gfx1151", "gfx90a", "gfx1030", "gfx1201"}


@pytest.mark.parametrize("flags", [(), ("-O0",), ("-fgpu-rdc",)])
def test_objects_are_linked(prefix, hip_toolchain, tmp_path: Path, flags: tuple[str, ...]) -> None:
    kernel, host = _PROGRAM.split("int main")
    launch = "void launch(float * x) { scale<<<1, 64>>>(x, 2.0f); }\n"
    (tmp_path / "kernel.hip").write_text(kernel + launch, "utf-8")
    main = host.replace("scale<<<1, 64>>>(x, 2.0f)", "launch(x)")
    include = "#include <hip/hip_runtime.h>\n#include <cstdio>\nvoid launch(float *);\nint main"
    (tmp_path / "main.cpp").write_text(include + main, "utf-8")
    arch = "--offload-arch=gfx1151"
    _made(_hipcc(prefix, tmp_path, arch, *flags, "-c", "kernel.hip", "main.cpp"))
    _made(_hipcc(prefix, tmp_path, arch, *flags, "kernel.o", "main.o", "-o", "program"))
    _made(_hipcc(prefix, tmp_path, arch, *flags, "main.cpp", "kernel.o", "-o", "mixed"))
    for name in ("program", "mixed"):
        assert "libamdhip64.so.6" in _needed(hip_toolchain, tmp_path / name)
        assert _archs(tmp_path / name) == {"gfx1151"}


def test_objects_are_linked_without_saying_for_what(prefix, hip_toolchain, tmp_path: Path) -> None:
    (tmp_path / "a.hip").write_text(_PROGRAM, "utf-8")
    _made(_hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "-c", "a.hip"))
    _made(_hipcc(prefix, tmp_path, "a.o", "-lhipblas", "-o", "program"))
    assert {"libamdhip64.so.6", "libhipblas.so.2"} <= _needed(hip_toolchain, tmp_path / "program")


def test_other_outputs_are_clangs(prefix, tmp_path: Path) -> None:
    (tmp_path / "a.hip").write_text(_PROGRAM, "utf-8")
    device = ("--offload-arch=gfx1151", "--offload-device-only")
    _made(_hipcc(prefix, tmp_path, *device, "-S", "a.hip", "-o", "a.s"))
    assert "s_endpgm" in (tmp_path / "a.s").read_text("utf-8")
    shown = _hipcc(prefix, tmp_path, *device, "-E", "a.hip")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "void scale(float * x, float by)" in shown.stdout
    _made(_hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "-c", "a.hip", "-MD", "-MF", "odd name.cpp"))
    assert "a.hip" in (tmp_path / "odd name.cpp").read_text("utf-8")


def test_it_says_what_it_is(prefix, tmp_path: Path) -> None:
    done = _hipcc(prefix, tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert first == f"HIP version: {prefix.record.hip_version}"
    assert f"clang version {prefix.record.compiler_version}" in second


def test_the_compilers_errors_come_through(prefix, tmp_path: Path) -> None:
    (tmp_path / "wrong.hip").write_text("__global__ void scale(float * x) { y = 1; }\n", "utf-8")
    done = _hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "-c", "wrong.hip")
    assert done.returncode == 1
    assert "wrong.hip:1:36: error: use of undeclared identifier 'y'" in done.stderr
    done = _hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "absent.hip")
    assert (done.returncode, done.stderr.count("no such file or directory: 'absent.hip'")) == (1, 1)
    done = _hipcc(prefix, tmp_path)
    assert (done.returncode, done.stderr) == (1, "clang++: error: no input files\n")


@pytest.mark.parametrize(
    ("target", "archs", "why"),
    [
        (None, {"gfx1151"}, "gfx1151 (the default, as this machine has no GPU)"),
        ("gfx1100,gfx90a", {"gfx1100", "gfx90a"}, "gfx1100 gfx90a (from HCC_AMDGPU_TARGET)"),
    ],
)
def test_who_names_no_gpu_is_told_which_one_it_is(
    prefix, tmp_path: Path, monkeypatch, target: str | None, archs: set[str], why: str
) -> None:
    if target is None and list(Path("/sys/class/kfd/kfd/topology/nodes").glob("*")):
        pytest.skip("this machine has a GPU, whose name is taken")
    monkeypatch.delenv("HCC_AMDGPU_TARGET", raising=False)
    if target is not None:
        monkeypatch.setenv("HCC_AMDGPU_TARGET", target)
    (tmp_path / "a.hip").write_text(_PROGRAM, "utf-8")
    done = _hipcc(prefix, tmp_path, "-c", "a.hip")
    assert (done.returncode, done.stderr) == (
        0,
        f"hipcc: no --offload-arch given; compiling for {why}\n",
    )
    assert _archs(tmp_path / "a.o") == archs


_OPENMP = """\
#include <omp.h>
#include <cstdio>
int main() {
    int sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += omp_get_num_threads();
    std::printf("%d\\n", sum);
}
"""


def test_host_code_may_use_openmp(prefix, tmp_path: Path) -> None:
    if not any(package.name.startswith("libomp") for package in prefix.record.compiler_packages):
        pytest.skip("the compiler is this machine's")
    (tmp_path / "a.hip").write_text(_OPENMP, "utf-8")
    # It calls nothing of HIP, whose runtime is not here.
    options = ("--offload-arch=gfx1151", "-fopenmp", "-Wl,--as-needed")
    _made(_hipcc(prefix, tmp_path, *options, "a.hip", "-o", "program"))
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def test_a_compiler_without_openmp_is_told(prefix, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = prefix.hipcc.read_text("utf-8").replace(prefix.record.compiler, "bin/clang++")
    (tmp_path / "bin" / "hipcc").write_text(script, "utf-8")
    (tmp_path / "bin" / "clang++").write_text("#!/bin/sh\necho libomp.so\n", "utf-8")
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)
    argv = [str(tmp_path / "bin" / "hipcc"), "-fopenmp", "a.o"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "hipcc: -fopenmp requires LLVM's OpenMP library" in done.stderr
    assert "patchkit sdk install --again" in done.stderr


def test_genco_makes_device_code_alone(prefix, tmp_path: Path) -> None:
    (tmp_path / "a.hip").write_text(_PROGRAM, "utf-8")
    _made(_hipcc(prefix, tmp_path, "--genco", "--offload-arch=gfx1151", "a.hip", "-o", "a.co"))
    assert _archs(tmp_path / "a.co") == {"gfx1151"}
    assert b"main" not in (tmp_path / "a.co").read_bytes()


def test_a_language_can_be_named_and_c_is_c(prefix, tmp_path: Path) -> None:
    (tmp_path / "plain.c").write_text("int new(void) { int class = 1; return class; }\n", "utf-8")
    _made(_hipcc(prefix, tmp_path, "-c", "plain.c"))
    (tmp_path / "host.cpp").write_text("#ifdef __HIP__\n#error HIP\n#endif\nint x;\n", "utf-8")
    _made(_hipcc(prefix, tmp_path, "-x", "c++", "-c", "host.cpp"))
    (tmp_path / "kernel.txt").write_text(_PROGRAM, "utf-8")
    _made(_hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "-xhip", "-c", "kernel.txt", "-o", "kernel.o"))
    (tmp_path / "last.cpp").write_text(_PROGRAM, "utf-8")
    _made(_hipcc(prefix, tmp_path, "--offload-arch=gfx1151", "-c", "-o", "last.o", "--", "last.cpp"))
    assert _archs(tmp_path / "last.o") == _archs(tmp_path / "kernel.o") == {"gfx1151"}


def test_it_moves_with_its_prefix_and_can_be_linked_to(prefix, tmp_path: Path) -> None:
    moved = tmp_path / "moved 'here' $now"
    (moved / "bin").mkdir(parents=True)
    for entry in prefix.path.iterdir():
        if entry.name != "bin":
            (moved / entry.name).symlink_to(entry)
    for program in (prefix.path / "bin").iterdir():
        if program.is_symlink():
            (moved / "bin" / program.name).symlink_to(program.readlink())
        else:
            shutil.copy2(program, moved / "bin")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "hip").symlink_to("../links/again")
    (tmp_path / "links" / "again").symlink_to(moved / "bin" / "hipcc")
    (tmp_path / "a.hip").write_text(_PROGRAM, "utf-8")
    for hipcc in (moved / "bin" / "hipcc", tmp_path / "links" / "hip"):
        argv = [str(hipcc), "--offload-arch=gfx1151", "a.hip", "-o", "program", "-v"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert str(moved) in done.stderr
        if prefix.record.compiler_packages:
            assert str(prefix.path / "bin") not in done.stderr


def test_a_prefix_of_an_older_patchkit_gets_it_without_being_made_anew(prefix, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old = cache / "sdk" / prefix.path.name
    shutil.copytree(prefix.path, old, copy_function=os.link, symlinks=True)
    (cache / "sdk" / "current").symlink_to(prefix.path.name)
    for name in ("hipcc", "hipcc-wave-size.h"):
        (old / "bin" / name).unlink()
    # No apt to be found: whoever downloads fails.
    request = InstallRequest(
        cache_root=cache, pins=load_pins(), environ={"PATH": str(tmp_path)}, fetch=fetch_folder
    )
    now, made = install(request, NullReporter())
    assert (now.path, now.record, made) == (old, prefix.record, False)
    assert now.hipcc.read_bytes() == prefix.hipcc.read_bytes()
    now.hipcc.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    install(request, NullReporter())
    assert now.hipcc.read_bytes() == prefix.hipcc.read_bytes()
    assert sorted(path.name for path in (old / "bin").glob(".*")) == []
