"""Compile one unit's kernels with AMD's LLVM of several ROCm versions, without a ROCm.

    pip download --no-deps rocm-llvm-python==7.1.1.562.45    (and others; each is a zip)
    python benchmarks/amd_backend.py TREE UNIT --clang CLANG --llvm rocm/llvm/librocmllvm.so [--llvm ...]

The package `rocm-llvm-python` contains AMD's LLVM as a library, for ROCm 6.2 to 7.2.2 (its commit is that of
the `amdclang` of that ROCm), but no clang. So one clang generates the bitcode, and each library optimises it
and writes the assembly, as in `clang -O3`. CLANG must not be newer than the oldest of these LLVMs, which
otherwise cannot read its bitcode: LLVM 19 (`zig clang` of the package ziglang 0.14) for ROCm 6.3 to 7.1, LLVM
20 (ziglang 0.15) for 7.2. For ROCm 10.0 use the SDK's clang: `libLLVM.so` of the package
`rocm-bindings-compiler` is LLVM 23, and needs two compression libraries (in LD_LIBRARY_PATH).
`--device-libs`: the folder of an ocml.bc that CLANG can read.

Prints each kernel's VGPRs, spilled VGPRs, bytes of scratch memory and of code, instructions, and those of its
main loop. Results: docs/records/timing-model.md.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import default_cache_root
from patchkit.toolchain.compile import Job, compiler_argv, kernel_code
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.units import SourceTree
from patchkit.tune.isa import loop_lines

_EMIT = "--emit"
_PASSES = b"default<O3>"
_TUNED = ("LoopVectorization", "SLPVectorization", "LoopInterleaving", "LoopUnrolling", "CallGraphProfile")
_AGGRESSIVE, _PIC, _DEFAULT_MODEL, _ASSEMBLY = 3, 2, 0, 0  # of llvm-c/TargetMachine.h
_INSTRUCTION = re.compile(r"^\t[a-z]")
_FIELDS = ("vgpr_count", "vgpr_spill_count", "private_segment_fixed_size")


def main() -> None:
    """Print one line for each kernel and library."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a llama.cpp source tree")
    parser.add_argument("unit", help="for example ggml/src/ggml-cuda/fattn-tile.cu")
    parser.add_argument("--clang", required=True, help='a command, for example "zig clang"')
    parser.add_argument("--llvm", required=True, action="append", type=Path, help="librocmllvm.so")
    parser.add_argument("--device-libs", type=Path)
    parser.add_argument("--rocwmma", action="store_true", help="with GGML_HIP_ROCWMMA_FATTN")
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--kernel", default="", help="a regular expression on mangled names")
    options = parser.parse_args()
    chain = find_toolchain(default_cache_root(), {}, NullReporter())
    chain = replace(chain, device_libs=options.device_libs or chain.device_libs)
    job = Job(
        tree=SourceTree(options.tree.resolve()),
        unit=options.unit,
        arch=options.arch,
        which="device",
        rocwmma=options.rocwmma,
        form="object",
    )
    with tempfile.TemporaryDirectory() as folder:
        start, out = Path(folder, "start.bc"), Path(folder, "out.s")
        asked = [str(chain.clang), "-print-resource-dir"]
        resources = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        argv = [
            *shlex.split(options.clang),
            *compiler_argv(chain, job)[1:],
            *("-resource-dir", resources, "-w", "-emit-llvm", "-Xclang", "-disable-llvm-passes"),
            *("--no-gpu-bundle-output", "-o", str(start)),
        ]
        _run(argv, options.tree)
        for library in options.llvm:
            # One process each: two LLVMs in a process would register their options twice.
            own = [sys.executable, str(Path(__file__).resolve()), _EMIT, str(library.resolve())]
            _run([*own, options.arch, str(start), str(out)], Path(folder))
            for line in _kernels(out.read_text("utf-8"), options.kernel):
                print(f"{library}: {line}")


def _run(argv: Sequence[str], folder: Path) -> None:
    if status := subprocess.run(argv, cwd=folder, check=False).returncode:  # it printed the reason
        raise SystemExit(status)


def _kernels(assembly: str, wanted: str) -> Iterator[str]:
    for fields in kernel_fields(assembly):
        name = fields["name"]
        if not re.search(wanted, name):
            continue
        size = re.search(r"^; codeLenInByte = (\d+)$", assembly[assembly.find(f"\n{name}:") :], re.MULTILINE)
        numbers = {
            **{field: int(fields[field]) for field in _FIELDS},
            "bytes": int(size[1]) if size else None,
            "instructions": _instructions(kernel_code(assembly, name).splitlines()),
            "in_main_loop": _instructions(loop_lines(assembly, name)),
        }
        yield f"{name}: {numbers}"


def kernel_fields(assembly: str) -> Iterator[dict[str, str]]:
    """The metadata of each kernel, by the names of its fields."""
    metadata = assembly[assembly.find("\namdhsa.kernels:") :]
    for entry in metadata.split("\n  - ")[1:]:
        fields = dict(re.findall(r"^ +\.(\w+): +(\S+)$", entry, re.MULTILINE))
        if "name" in fields:  # entries after the kernels have none
            yield fields


def _instructions(lines: Iterable[str]) -> int:
    return sum(bool(_INSTRUCTION.match(line)) for line in lines)


def emit(library: str, arch: str, source: str, out: str) -> None:
    """Optimise bitcode with one LLVM and write the assembly, through LLVM's C interface."""
    try:
        llvm = ctypes.CDLL(library)
    except OSError as refused:
        raise SystemExit(f"{library} cannot be loaded: {refused}") from None

    def call(name: str, result: type[Any] | None = None) -> Callable[..., Any]:
        function = getattr(llvm, f"LLVM{name}")
        function.restype = result
        return function  # type: ignore[no-any-return]

    for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
        one = f"InitializeAMDGPU{part}"  # LLVM up to ROCm 7.1 exports only that of all targets
        call(one if hasattr(llvm, f"LLVM{one}") else f"InitializeAll{part}s")()
    pointer, why = ctypes.c_void_p, ctypes.c_char_p()
    context, buffer, module, target = (pointer() for _ in range(4))
    context.value = call("ContextCreate", pointer)()

    def check(failed: int) -> None:
        if failed:
            raise SystemExit(f"{library}: {(why.value or b'cannot read the bitcode').decode()}")

    ref = ctypes.byref
    check(call("CreateMemoryBufferWithContentsOfFile")(source.encode(), ref(buffer), ref(why)))
    check(call("ParseBitcodeInContext2")(context, buffer, ref(module)))
    triple = call("GetTarget", ctypes.c_char_p)(module)
    check(call("GetTargetFromTriple")(triple, ref(target), ref(why)))
    settings = (_AGGRESSIVE, _PIC, _DEFAULT_MODEL)
    machine = pointer(call("CreateTargetMachine", pointer)(target, triple, arch.encode(), b"", *settings))
    call("SetTargetMachineAsmVerbosity")(machine, 1)  # includes the size of the code
    tuned = pointer(call("CreatePassBuilderOptions", pointer)())
    for name in _TUNED:
        call(f"PassBuilderOptionsSet{name}")(tuned, 1)
    if error := call("RunPasses", pointer)(module, _PASSES, machine, tuned):
        why.value = call("GetErrorMessage", ctypes.c_char_p)(pointer(error))
        check(1)
    check(call("TargetMachineEmitToFile")(machine, module, out.encode(), _ASSEMBLY, ref(why)))


if __name__ == "__main__":
    if sys.argv[1:2] == [_EMIT]:
        emit(*sys.argv[2:])
    else:
        main()
