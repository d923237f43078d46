"""Programs with the Python packages that people launch HIP kernels with: ``packages.py NAME``."""

from __future__ import annotations

import os
import sys

COUNT = 100
SOURCE = """
extern "C" __global__ void scale(float * values, int count, float factor) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < count) { values[n] *= factor; }
}
"""


def hip_python() -> list[float]:
    import ctypes

    import numpy as np
    from hip import hip, hiprtc

    def given(answer):
        assert int(answer[0]) == 0, answer
        return answer[1] if len(answer) == 2 else answer[1:]

    program = given(hiprtc.hiprtcCreateProgram(SOURCE.encode(), b"scale", 0, [], []))
    given(hiprtc.hiprtcCompileProgram(program, 0, []))
    code = bytearray(given(hiprtc.hiprtcGetCodeSize(program)))
    given(hiprtc.hiprtcGetCode(program, code))
    kernel = given(hip.hipModuleGetFunction(given(hip.hipModuleLoadData(code)), b"scale"))
    numbers = np.arange(COUNT, dtype=np.float32)
    memory = given(hip.hipMalloc(numbers.nbytes))
    given(hip.hipMemcpy(memory, numbers, numbers.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice))
    given(
        hip.hipModuleLaunchKernel(
            kernel,
            *(4, 1, 1, 32, 1, 1),
            sharedMemBytes=0,
            stream=None,
            kernelParams=None,
            extra=(memory, ctypes.c_int(COUNT), ctypes.c_float(3)),
        )
    )
    given(hip.hipMemcpy(numbers, memory, numbers.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    return numbers.tolist()


def cupy() -> list[float]:
    import cupy as cp

    numbers = cp.arange(COUNT, dtype=cp.float32)
    cp.RawKernel(SOURCE, "scale")((4,), (32,), (numbers, cp.int32(COUNT), cp.float32(3)))
    return cp.asnumpy(numbers).tolist()


def tinygrad() -> list[float]:
    os.environ["DEV"] = "HIP"
    from tinygrad import Tensor

    return (Tensor(list(map(float, range(COUNT)))) * 3).tolist()


found = {"hip": hip_python, "cupy": cupy, "tinygrad": tinygrad}[sys.argv[1]]()
if found != [3.0 * n for n in range(COUNT)]:
    raise SystemExit(f"wrong: {found[:5]}")
sys.stdout.write("right\n")
