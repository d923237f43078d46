"""A small HIP program of our own on the stub runtime: what it launches is what the log says."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.occupancy import limits_of, waves_by_vgprs
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of, device_text
from patchkit.gpu.emulated.log import Recording, parse_recording
from patchkit.gpu.emulated.runtime import STUB_NAMES, build_stub, cxx_of
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.hip import hip_flags

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_PROGRAM = r"""
#include <hip/hip_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" void patchkit_recorder_mark(const char *);

template <int N> static __global__ void scale(float * x) { x[threadIdx.x] *= N; }
__global__ void plain(float * x) { x[0] = 1.0f; }

static void need(bool held, const char * what) {
    if (!held) { std::fprintf(stderr, "does not hold: %s\n", what); std::exit(1); }
}

int main() {
    hipDeviceProp_t prop;
    need(hipGetDeviceProperties(&prop, 0) == hipSuccess, "properties");
    std::printf("%s %d %d %zu %d %d\n", prop.gcnArchName, prop.warpSize, prop.multiProcessorCount,
                prop.sharedMemPerBlock, prop.major, prop.minor);

    // Address space, not memory: far more than this machine has.
    char * big = nullptr;
    need(hipMalloc((void **) &big, size_t(64) << 30) == hipSuccess, "64 GiB");
    need(hipMemset(big, 0, size_t(64) << 30) == hipSuccess, "zeroed");
    char * more = nullptr;
    need(hipMalloc((void **) &more, size_t(1) << 50) == hipErrorOutOfMemory, "more than the device has");
    size_t free_bytes = 0, total = 0;
    need(hipMemGetInfo(&free_bytes, &total) == hipSuccess, "asked");
    need(total - free_bytes >= size_t(64) << 30, "counted");
    char text[6] = "hello", back[6] = "";
    need(hipMemcpy(big + 12345, text, 6, hipMemcpyHostToDevice) == hipSuccess, "to");
    need(hipMemcpy(back, big + 12345, 6, hipMemcpyDeviceToHost) == hipSuccess, "from");
    need(std::strcmp(text, back) == 0, "copies are real");
    need(hipMemset(big + 12340, 0, 20000) == hipSuccess && big[12345] == 0, "partial pages are zeroed too");
    need(hipFree(big) == hipSuccess, "freed");
    need(hipFree(big) == hipErrorInvalidDevicePointer, "not freed twice");

    hipStream_t stream;
    need(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess, "stream");
    patchkit_recorder_mark("case \"one\"");
    int blocks = 0;
    need(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale<7>, 128, 1000) == hipSuccess, "asked");
    scale<7><<<dim3(2, 3, 4), dim3(32, 4, 1), 1000, stream>>>(nullptr);
    need(hipStreamSynchronize(stream) == hipSuccess, "waited");
    plain<<<1, 64>>>(nullptr);
    need(hipGetLastError() == hipSuccess, "no error");
    need(hipStreamDestroy(stream) == hipSuccess, "stream gone");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, host pass only, with the marker of a unit where device code would be."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "small.hip").write_text(_PROGRAM, "utf-8")
    (folder / "marker").write_text("PATCHKIT-UNIT\nsome/unit.cu\n", "utf-8")
    flags = hip_flags(compiler.toolchain, "gfx1151", which="host")
    embed = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(folder / "marker")]
    stub = build_stub(compiler)
    clang = str(compiler.toolchain.clang)
    compile_argv = [clang, *flags, *embed, "-c", "small.hip", "-o", "small.o"]
    subprocess.run(compile_argv, cwd=folder, check=True)
    link_argv = [*cxx_of(compiler.toolchain), "small.o", f"-L{stub}", "-lamdhip64", "-o", "small"]
    subprocess.run(link_argv, cwd=folder, check=True)
    return folder / "small"


@pytest.fixture
def run(program: Path, compiler: Compiler, checkout: Path, tmp_path: Path):
    """Runs the program; settings replace the variables of the recorder, None takes one away."""
    device = device_of(load_profile(checkout / "arch_profiles", "gfx1151"))
    (tmp_path / "device").write_text(device_text(replace(device, memory_bytes=2**37)), "utf-8")

    def start(**settings: str | None) -> subprocess.CompletedProcess[str]:
        variables: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(build_stub(compiler)),
            "PATCHKIT_RECORDER_DEVICE": str(tmp_path / "device"),
            "PATCHKIT_RECORDER_LOG": str(tmp_path / "log"),
            **settings,
        }
        environment = {name: value for name, value in variables.items() if value is not None}
        return subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=False)

    return start


def _recording(folder: Path) -> Recording:
    return parse_recording((folder / "log").read_text("utf-8").splitlines(), "log")


def test_the_stub_has_the_names_that_real_builds_ask_for(compiler):
    folder = build_stub(compiler)
    assert {path.name for path in folder.iterdir()} == set(STUB_NAMES)
    assert build_stub(compiler) == folder  # not built again


@pytest.mark.parametrize(("largest", "stderr"), [(2**36, ""), (2**36 - 1, "does not hold: 64 GiB\n")])
def test_the_largest_piece_of_device_memory_can_be_limited(run, largest, stderr):
    assert run(PATCHKIT_EMULATOR_LARGEST=str(largest)).stderr == stderr


def test_launches_are_recorded_with_kernel_unit_geometry_and_steps(run, tmp_path):
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gfx1151 32 20 65536 11 5\n"
    before, marked = _recording(tmp_path).sections
    assert (before.mark, before.launches) == ("", ())
    assert marked.mark == 'case "one"'
    (first,), (second,) = marked.steps
    assert (str(first.kernel.name), first.kernel.units) == ("scale<7>", ("some/unit.cu",))
    assert (first.grid, first.block, first.lds) == ((2, 3, 4), (32, 4, 1), 1000)
    assert (str(second.kernel.name), second.grid, second.block) == ("plain", (1, 1, 1), (64, 1, 1))
    # Nobody compiled the kernel: 256 registers are assumed, 5 waves on each of 4 SIMDs, 4 waves per block.
    assert (first.resident, first.assumed) == (5, True)


@pytest.mark.parametrize("vgprs", [24, 96, 97, 192, 256])
@pytest.mark.parametrize("lds", [0, 8192, 30000])
def test_the_answer_about_residency_is_our_model_with_the_runtimes_lds_limit(
    run, tmp_path, checkout, vgprs, lds
):
    run()
    mangled = next(_recording(tmp_path).launches.__iter__()).kernel.name.mangled
    (tmp_path / "log").unlink()
    (tmp_path / "kernels").write_text(f"{mangled} {vgprs} {lds}\n", "utf-8")
    assert run(PATCHKIT_RECORDER_KERNELS=str(tmp_path / "kernels")).returncode == 0
    launch = _recording(tmp_path).launches[0]
    limits = limits_of(load_profile(checkout / "arch_profiles", "gfx1151"))
    by_waves = waves_by_vgprs(vgprs, limits) * limits.simds_per_pool // 4
    by_lds = limits.lds_per_workgroup_bytes // (lds + 1000)
    assert (launch.resident, launch.assumed) == (min(by_waves, by_lds), False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"PATCHKIT_RECORDER_DEVICE": None}, "PATCHKIT_RECORDER_DEVICE is not set"),
        ({"PATCHKIT_RECORDER_LOG": None}, "PATCHKIT_RECORDER_LOG is not set"),
        ({"PATCHKIT_RECORDER_DEVICE": "/nowhere"}, "cannot read the device file /nowhere"),
        ({"PATCHKIT_RECORDER_LOG": "/nowhere/log"}, "cannot write the log /nowhere/log"),
        ({"PATCHKIT_RECORDER_KERNELS": "/nowhere"}, "cannot read the kernel file /nowhere"),
    ],
)
def test_an_unusable_configuration_ends_the_process_and_says_why(run, settings, says):
    done = run(**settings)
    assert done.returncode == 86
    assert says in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name x\n", "lacks arch"),
        ("arch gfx1151\n", "lacks wave_size"),
        ("arch gfx1151\nwave_size many\n", "wave_size of the device file is not a positive number: many"),
    ],
)
def test_a_device_file_that_states_too_little_is_refused(run, tmp_path, text, says):
    (tmp_path / "other").write_text(text, "utf-8")
    done = run(PATCHKIT_RECORDER_DEVICE=str(tmp_path / "other"))
    assert done.returncode == 86
    assert says in done.stderr


def test_a_malformed_kernel_file_is_refused(run, tmp_path):
    (tmp_path / "kernels").write_text("_Z3foov many\n", "utf-8")
    done = run(PATCHKIT_RECORDER_KERNELS=str(tmp_path / "kernels"))
    assert done.returncode == 86
    assert "'name vgprs lds': _Z3foov many" in done.stderr
