"""What registers hold when a kernel begins: what it asks for, and nothing that the GPU would not set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.hip import llvm_tool

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1100", "gfx1151", "gfx1201"]
# Of 3 x 4 x 5 blocks of 8 x 4 x 2 threads: how often each number came.
_NUMBERS = {
    "thread x": [60 * 8] * 8,
    "thread y": [60 * 16] * 4,
    "thread z": [60 * 32] * 2,
    "block x": [20 * 64] * 3,
    "block y": [15 * 64] * 4,
    "block z": [12 * 64] * 5,
    "block x, y": [5 * 64] * 12,
    "block of a call": [3 * 64] * 20,
}


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("launch_state", arch=arch) for arch in _ARCHS}


@pytest.mark.parametrize("arch", _ARCHS)
def test_each_kernel_gets_the_numbers_that_it_asks_for(emulate, programs, arch):
    for name, counts in _NUMBERS.items():
        done = emulate(programs[arch], name, arch=arch)
        assert done.stdout.split() == list(map(str, counts)), (name, done.stderr)


def test_rdna4_has_the_block_and_the_wave_in_trap_registers(emulate, programs):
    program = programs["gfx1201"]
    assert emulate(program, "ttmp9", arch="gfx1201").stdout.split() == [str(20 * 64)] * 3
    assert emulate(program, "ttmp8", arch="gfx1201").stdout.split() == [str(60 * 32)] * 2


@pytest.mark.parametrize(
    ("arch", "name", "why"),
    [
        ("gfx1201", "ttmp6", "it reads ttmp6, a register that the GPU does not set for this kernel"),
        ("gfx1201", "ttmp7", "it reads ttmp7, a register that the GPU does not set for this kernel"),
        ("gfx1151", "ttmp8", "it reads ttmp8, a register that the GPU does not set for this kernel"),
        ("gfx1100", "ttmp9", "it reads ttmp9, a register that the GPU does not set for this kernel"),
        ("gfx1201", "write", "it writes ttmp8, which only a trap handler can"),
    ],
)
def test_a_trap_register_that_the_gpu_does_not_set_is_refused(emulate, programs, arch, name, why):
    done = emulate(programs[arch], name, arch=arch)
    assert (done.returncode < 0, done.stdout) == (True, "")
    assert why in done.stderr


# A kernel by hand: each thread stores `count` SGPRs from s0 on. Its one argument says where to.
_KERNEL = """\
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl state
.p2align 8
.type state,@function
state:
    s_load_b64 s[30:31], s[{arguments}:{arguments}+1], 0x0
    {wait}
    v_mul_u32_u24 v1, 4*{count}, v0
    .set n, 0
    .rept {count}
    v_mov_b32 v2, s[n]
    global_store_b32 v1, v2, s[30:31] offset:4*n
    .set n, n + 1
    .endr
    s_endpgm
.size state, .-state
.rodata
.p2align 6
.amdhsa_kernel state
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_private_segment_fixed_size 16
    .amdhsa_next_free_vgpr 8
    .amdhsa_next_free_sgpr 32
    .amdhsa_wavefront_size32 1
    {asked}
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: state
    .symbol: state.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 16
    .wavefront_size: 32
    .sgpr_count: 32
    .vgpr_count: 8
    .max_flat_workgroup_size: 1024
    .args: [{{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}]
.end_amdgpu_metadata
"""
# Launches it twice with the sizes that are given, and prints what the last thread of the last block stored.
_LAUNCH = """\
import ctypes, sys
hip = ctypes.CDLL("libamdhip64.so.6")
count, threads, *grid = map(int, sys.argv[2:])
place, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
seen = (ctypes.c_uint32 * (count * threads))()
def call(name, *arguments):
    if status := getattr(hip, name)(*arguments):
        sys.exit(f"{name} answers {status}")
call("hipMalloc", ctypes.byref(place), ctypes.c_size_t(ctypes.sizeof(seen)))
call("hipModuleLoad", ctypes.byref(module), sys.argv[1].encode())
call("hipModuleGetFunction", ctypes.byref(function), module, b"state")
given = (ctypes.c_void_p * 1)(ctypes.addressof(place))
for _ in range(2):
    call("hipModuleLaunchKernel", function, *grid, threads, 1, 1, 0, None, given, None)
call("hipMemcpy", seen, place, ctypes.c_size_t(ctypes.sizeof(seen)), 2)
print(*seen[-count:])
"""


@pytest.fixture
def launch(hip_toolchain, emulate, tmp_path: Path):
    """The SGPRs that the last thread of the last block stored, of 2 x 3 x 4 blocks of 96 threads."""

    def run(arch: str, *asked: str, arguments: int, count: int) -> subprocess.CompletedProcess[str]:
        source, linked = tmp_path / "state.s", tmp_path / "state.co"
        wait = "s_wait_kmcnt 0x0" if arch.startswith("gfx12") else "s_waitcnt lgkmcnt(0)"
        lines = "\n    ".join(f".amdhsa_{one}" for one in asked)
        text = _KERNEL.format(arch=arch, arguments=arguments, count=count, wait=wait, asked=lines)
        source.write_text(text, "utf-8")
        target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-x", "assembler"]
        made = str(tmp_path / "state.o")
        subprocess.run([str(hip_toolchain.clang), *target, "-c", str(source), "-o", made], check=True)
        linker = str(llvm_tool(hip_toolchain, "ld.lld", NullReporter()))
        subprocess.run([linker, "-shared", made, "-o", str(linked)], check=True)
        sizes = [str(size) for size in (count, 96, 2, 3, 4)]
        arguments_of = ("-c", _LAUNCH, str(linked), *sizes)
        return emulate(Path(sys.executable), *arguments_of, arch=arch, PATCHKIT_EMULATOR_THREADS="1")

    return run


@pytest.mark.parametrize("arch", _ARCHS)
def test_user_sgprs_come_in_the_order_of_the_abi(launch, arch):
    names = ("dispatch_ptr", "queue_ptr", "dispatch_id", "private_segment_size")
    done = launch(arch, *(f"user_sgpr_{name} 1" for name in names), arguments=4, count=9)
    assert done.returncode == 0, done.stderr
    packet_low, packet_high, queue_low, queue_high, *_, id_low, id_high, size = map(int, done.stdout.split())
    assert (packet_low % 64, packet_high > 0) == (0, True)
    assert (queue_low | queue_high << 32) == 0x2B0000000000  # which stands for the hardware queue
    assert (id_low, id_high) == (1, 0)  # it is the second launch
    assert size == 16


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151"])
def test_the_numbers_of_a_block_come_behind_them(launch, arch):
    asked = [f"system_sgpr_workgroup_id_{axis} 1" for axis in "xyz"]
    done = launch(arch, *asked, "system_sgpr_workgroup_info 1", arguments=0, count=6)
    assert done.returncode == 0, done.stderr
    # The last of three waves: its number in bits 20 to 24, how many there are in bits 0 to 5.
    assert done.stdout.split()[2:] == ["1", "2", "3", str(2 << 20 | 3)]


def test_what_rdna4_does_not_set_is_refused(launch):
    done = launch("gfx1201", "system_sgpr_workgroup_info 1", arguments=0, count=3)
    assert (
        "it requires information on its block in an SGPR (TG_SIZE), which RDNA4 does not set" in done.stderr
    )
