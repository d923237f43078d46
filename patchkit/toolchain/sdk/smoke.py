"""Smoke test of a new prefix: compiles and links a small HIP program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_tool
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.base.reporter import Reporter

_COMPILE_S = 120.0


_PROGRAM = """#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hipblas/hipblas.h>
__global__ void scale(float * x, const __half * y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { x[i] = sqrtf(x[i]) * __half2float(y[i]) + __shfl_xor(x[i], 1, 32); }
}
extern "C" hipblasStatus_t patchkit_smoke(float * x, const __half * y, int n, hipblasHandle_t * handle) {
    scale<<<(n + 31) / 32, 32, 0, 0>>>(x, y, n);
    return hipGetLastError() == hipSuccess ? hipblasCreate(handle) : HIPBLAS_STATUS_NOT_INITIALIZED;
}
"""


_WMMA_PROGRAM = """#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <rocwmma/rocwmma.hpp>
using namespace rocwmma;
__global__ void product(const __half * a, const __half * b, float * c) {
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.0f);
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_row_major);
}
"""


def smoke(
    clang: Path, flags: Sequence[str], libraries: Path, scratch: Path, *, wmma: bool, reporter: Reporter
) -> None:
    """Compile a kernel for device and host, link it, and compile a kernel that uses rocWMMA.

    Args:
        clang: the compiler.
        flags: from :func:`patchkit.toolchain.sdk.flags.hip_arguments`, for both passes.
        libraries: the folder of the stub libraries.
        scratch: the folder to write to.
        wmma: whether to test rocWMMA.
        reporter: receives the commands.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: the machine has no C++ headers.
        SDK_UNUSABLE: compiling or linking failed.
    """
    flags = [*flags, "-w"]  # warnings of vendor headers do not matter here
    _compile(clang, [*flags, "-c", "-o", "smoke.o", "-"], _PROGRAM, scratch, reporter)
    link = ["--hip-link", *(flag for flag in flags if flag.startswith(("--rocm", "--hip", "--offload")))]
    link += ["-shared", "-fuse-ld=lld", "-Wl,-z,defs", "--rtlib=compiler-rt", "-unwindlib=libgcc"]
    link += ["-o", "smoke.so", "smoke.o", f"-L{libraries}", "-lamdhip64", "-lhipblas"]
    _compile(clang, link, None, scratch, reporter)
    if wmma:
        _compile(
            clang,
            [*flags, "--cuda-device-only", "-O1", "-S", "-o", "wmma.s", "-"],
            _WMMA_PROGRAM,
            scratch,
            reporter,
        )


def _compile(
    clang: Path, arguments: list[str], program: str | None, scratch: Path, reporter: Reporter
) -> None:
    try:
        run_tool(
            [str(clang), *arguments],
            cwd=scratch,
            stdin=program.encode("ascii") if program is not None else None,
            timeout_s=_COMPILE_S,
            reporter=reporter,
        )
    except (ToolFailed, ToolCrashed) as error:
        refused = disk_error_from_tool(error, scratch, "compiling a kernel")
        if refused is not None:
            raise refused from error
        why = error.why or ""
        missing = [
            line for line in why.splitlines() if "fatal error: 'c" in line and "file not found" in line
        ]
        if missing:
            raise ToolchainError(
                "this machine has no C++ standard library headers",
                code="SDK_PACKAGES_UNAVAILABLE",
                why=missing[0],
                hint="install a C++ compiler (Debian, Ubuntu: apt install g++) and run the command again",
            ) from error
        raise ToolchainError(
            "the new prefix failed to compile a HIP kernel, and was removed",
            code="SDK_UNUSABLE",
            where=Location(path=str(clang)),
            why=why,
            hint=error.hint,
        ) from error
