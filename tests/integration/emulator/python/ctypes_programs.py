"""HIP through ctypes: ``ctypes_programs.py NAME [GPU]``; ends with 1 if a result is wrong."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

HIP = ctypes.CDLL("libamdhip64.so")
RTC = ctypes.CDLL("libhiprtc.so")
COUNT = 100

SCALE = b"""
extern "C" __global__ void scale(float * values, int count, float factor) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < count) { values[n] *= factor; }
}
"""
# In two programs that are linked.
CALLER = b"""
__device__ float changed(float, float);
extern "C" __global__ void scale(float * values, int count, float factor) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < count) { values[n] = changed(values[n], factor); }
}
"""
CALLED = b"__device__ float changed(float value, float factor) { return value * factor; }"


def check(status: int) -> None:
    if status:
        raise SystemExit(f"a call returned {status}")


def compiled(source: bytes, *options: bytes, to: str = "Code") -> bytes:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(RTC.hiprtcCreateProgram(ctypes.byref(program), source, b"scale.hip", 0, None, None))
    status = RTC.hiprtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if status:
        check(RTC.hiprtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        check(RTC.hiprtcGetProgramLog(program, log))
        raise SystemExit(f"not compiled: {log.value.decode()}")
    check(getattr(RTC, f"hiprtcGet{to}Size")(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    check(getattr(RTC, f"hiprtcGet{to}")(program, code))
    check(RTC.hiprtcDestroyProgram(ctypes.byref(program)))
    return code.raw


def linked(*bitcode: bytes) -> bytes:
    state, code, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    check(RTC.hiprtcLinkCreate(0, None, None, ctypes.byref(state)))
    for one in bitcode:
        check(RTC.hiprtcLinkAddData(state, 100, one, ctypes.c_size_t(len(one)), b"one", 0, None, None))
    check(RTC.hiprtcLinkComplete(state, ctypes.byref(code), ctypes.byref(size)))
    result = ctypes.string_at(code, size.value)
    check(RTC.hiprtcLinkDestroy(state))
    return result


class Comgr:
    """The calls of tinygrad's HIP compiler, in its order, by the path that it uses."""

    def __init__(self) -> None:
        self.dll = ctypes.CDLL(str(Path(os.environ["ROCM_PATH"]) / "lib" / "libamd_comgr.so"))

    def made(self, name: str, *arguments: object) -> ctypes.c_uint64:
        handle = ctypes.c_uint64()
        check(getattr(self.dll, f"amd_comgr_create_{name}")(*arguments, ctypes.byref(handle)))
        return handle

    def options(self, info: ctypes.c_uint64, *options: bytes) -> None:
        words = (ctypes.c_char_p * len(options))(*options)
        check(self.dll.amd_comgr_action_info_set_option_list(info, words, ctypes.c_size_t(len(options))))

    def compile(self, source: bytes, arch: bytes) -> bytes:
        info, text = self.made("action_info"), self.made("data", 1)
        check(self.dll.amd_comgr_action_info_set_language(info, 3))
        check(self.dll.amd_comgr_action_info_set_isa_name(info, b"amdgcn-amd-amdhsa--" + arch))
        sets = [self.made("data_set") for _ in range(4)]
        check(self.dll.amd_comgr_set_data(text, ctypes.c_size_t(len(source)), source))
        check(self.dll.amd_comgr_set_data_name(text, b"<null>"))
        check(self.dll.amd_comgr_data_set_add(sets[0], text))
        self.options(info, b"-O3", b"-std=c++14", b"-nogpuinc", b"--offload-arch=" + arch)
        check(self.dll.amd_comgr_do_action(12, info, sets[0], sets[1]))  # source to bitcode
        self.options(info, b"-O3")
        check(self.dll.amd_comgr_do_action(4, info, sets[1], sets[2]))  # to an object
        self.options(info)
        check(self.dll.amd_comgr_do_action(7, info, sets[2], sets[3]))  # to an executable
        result, size = ctypes.c_uint64(), ctypes.c_size_t()
        check(self.dll.amd_comgr_action_data_get_data(sets[3], 8, ctypes.c_size_t(0), ctypes.byref(result)))
        check(self.dll.amd_comgr_get_data(result, ctypes.byref(size), None))
        code = ctypes.create_string_buffer(size.value)
        check(self.dll.amd_comgr_get_data(result, ctypes.byref(size), code))
        return code.raw


# Without HIP's headers, as tinygrad writes it.
BARE = b"""
extern "C" __attribute__((device, const)) unsigned long __ockl_get_group_id(unsigned);
extern "C" __attribute__((device, const)) unsigned long __ockl_get_local_id(unsigned);
extern "C" __attribute__((global)) void scale(float * values, int count, float factor) {
    const int n = __ockl_get_group_id(0) * 32 + __ockl_get_local_id(0);
    if (n < count) { values[n] *= factor; }
}
"""


def run(code: bytes) -> None:
    """Multiply the numbers below COUNT by 3 with the kernel ``scale``, and compare."""
    module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    numbers = (ctypes.c_float * COUNT)(*range(COUNT))
    size = ctypes.c_size_t(ctypes.sizeof(numbers))
    check(HIP.hipModuleLoadData(ctypes.byref(module), code))
    check(HIP.hipModuleGetFunction(ctypes.byref(kernel), module, b"scale"))
    check(HIP.hipMalloc(ctypes.byref(memory), size))
    check(HIP.hipMemcpy(memory, numbers, size, 1))
    values = [memory, ctypes.c_int(COUNT), ctypes.c_float(3)]
    places = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in values))
    check(HIP.hipModuleLaunchKernel(kernel, 4, 1, 1, 32, 1, 1, 0, None, places, None))
    check(HIP.hipMemcpy(numbers, memory, size, 2))
    check(HIP.hipFree(memory))
    check(HIP.hipModuleUnload(module))
    if list(numbers) != [3.0 * n for n in range(COUNT)]:
        raise SystemExit("wrong")


PROGRAMS = {
    "compiled": lambda: run(compiled(SCALE)),
    "linked": lambda: run(linked(*(compiled(one, b"-fgpu-rdc", to="Bitcode") for one in (CALLER, CALLED)))),
    "comgr": lambda: run(Comgr().compile(BARE, sys.argv[2].encode())),
    "wave64": lambda: run(compiled(SCALE, b"-mwavefrontsize64")),
}
PROGRAMS[sys.argv[1]]()
sys.stdout.write("right\n")
