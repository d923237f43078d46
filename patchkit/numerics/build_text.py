"""What is compiled for a bundle, as text for Ninja: pure, so that a test can read it.

Vocabulary: a *side* is a tree of the bundle: ``forced`` (the kernel on), ``baseline`` and ``candidate``
(as they are). Only what FLASH_ATTN_EXT needs of the CUDA backend is compiled; the linker leaves the rest
open, so a call of anything else ends the program, which fails the measurement and can never pass it.

Objects of ``baseline`` and ``candidate`` are compiled with ``__LINE__`` as 0 and with kept intermediate
files: a patch moves lines, and nvcc otherwise writes the number of its process into the object. What is
left must be equal byte for byte. Objects hold machine code and no PTX (``code=sm_*``): the order of PTX
changed between runs of nvcc 13.0 over one input (3 of 12 runs, 2026-11-21), the machine code made of it
did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchkit.numerics.sets import Program

SELECTION = "ggml/src/ggml-cuda/fattn.cu"
# Beside the attention units: the backend itself and what its graph runner asks (build 6900).
BASE_UNITS = tuple(f"ggml/src/ggml-cuda/{name}.cu" for name in ("ggml-cuda", "convert", "topk-moe"))

_COMMON = (
    "-DGGML_USE_CPU",
    "-DGGML_USE_CUDA",
    "-DGGML_SCHED_MAX_COPIES=4",
    "-DNDEBUG",
    "-D_GNU_SOURCE",
    "-D_XOPEN_SOURCE=600",
    '-DGGML_VERSION=\\"0\\"',
    '-DGGML_COMMIT=\\"0\\"',
)
# Without VMM and CUDA graphs libcuda is not needed at link time, and one graph is one launch after the other.
_CUDA = ("-DGGML_CUDA_NO_VMM", "-DGGML_CUDA_PEER_MAX_BATCH_SIZE=128")
# Flags of upstream's CMakeLists.txt for CUDA in a Release build.
_NVCC = "-std=c++17 -O3 -use_fast_math -extended-lambda -w"
_WRAPPED = ("__cudaRegisterFunction", "__cudaGetKernel", "__cudaLaunchKernel", "cudaLaunchKernel")
_FOLDERS = ("ggml/include", "ggml/src", "ggml/src/ggml-cpu")
_LOG = "o/launch_log.o"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInputs:
    """What one bundle compiles.

    ``sources`` are the C and C++ files of ggml and its CPU backend; ``attention`` the units of attention,
    ``touched`` those of them that a patch can change, ``kernel`` the one that a program is about.
    ``definitions`` belong to the forced side.
    """

    sources: Sequence[str]
    attention: Sequence[str]
    touched: frozenset[str]
    kernel: str
    programs: Sequence[Program]
    definitions: Sequence[str]
    isolation: bool


def base_sources(paths: Iterable[str], machine: str) -> tuple[str, ...]:
    """Of a tree's files, the C and C++ sources of ggml and of its CPU backend for ``machine``.

    ``machine`` is ``x86_64`` or ``aarch64``: upstream keeps the parts for a processor in ``arch/``.
    """
    arch = "arm" if machine in {"aarch64", "arm64"} else "x86"
    found = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        if not name.endswith((".c", ".cpp")) or name == "cpu-feats.cpp":
            continue
        if folder in {
            "ggml/src",
            "ggml/src/ggml-cpu",
            "ggml/src/ggml-cpu/amx",
            f"ggml/src/ggml-cpu/arch/{arch}",
        }:
            found.append(path)
    return tuple(sorted(path for path in found if not path.endswith("ggml-backend-dl.cpp")))


def build_text(inputs: BuildInputs) -> str:
    """The text of ``build.ninja``; paths are relative to the bundle."""
    lines = [*_rules(), *_base(inputs), *_forced(inputs)]
    if inputs.isolation:
        lines += _isolation(inputs)
    return "\n".join(lines) + "\n"


def _rules() -> list[str]:
    includes = " ".join(f"-I$side/{folder}" for folder in _FOLDERS)
    wraps = " ".join(f"-Xlinker --wrap={name}" for name in _WRAPPED)
    tail = ["  depfile = $out.d", "  deps = gcc"]
    end = f"$common {includes} $more -MMD -MF $out.d -c $in -o $out"
    return [
        "# Made by patchkit. settings.ninja, of run.sh: nvcc, cc, cxx, cuda_arch, cuda_flags, cpu_flags.",
        "include settings.ninja",
        f"common = {' '.join(_COMMON)}",
        f"cuda = {_NVCC} {' '.join(_CUDA)} $cuda_flags $cuda_arch",
        "rule c",
        f"  command = $cc -O3 $cpu_flags -std=gnu11 -w {end}",
        *tail,
        "rule cxx",
        f"  command = $cxx -O3 $cpu_flags -std=gnu++17 -w {end}",
        *tail,
        "rule cuda",
        f"  command = $nvcc $cuda {end}",
        *tail,
        # In the tree's own folder, so that __FILE__ is the same word on both sides.
        "rule equal",
        (
            "  command = mkdir -p $out.keep && cd $side && $nvcc $cuda $common -Iggml/include -Iggml/src "
            "-D__LINE__=0 --keep --keep-dir ../$out.keep -c $unit -o ../$out && rm -rf ../$out.keep"
        ),
        "rule link",
        (
            "  command = $nvcc $cuda_arch $in -o $out -Xcompiler -no-pie -Xlinker -z -Xlinker lazy "
            f"-Xlinker --unresolved-symbols=ignore-all {wraps} -lpthread -ldl -lrt"
        ),
        "",
    ]


def _base(inputs: BuildInputs) -> list[str]:
    """What all programs share; no patch reaches it, so the baseline's files serve."""
    lines = []
    for path in inputs.sources:
        lines += _compile("c" if path.endswith(".c") else "cxx", f"baseline/{path}", _object(path))
    for path in BASE_UNITS:
        lines += _compile("cuda", f"baseline/{path}", _object(path))
    lines += _compile("cuda", "native/launch_log.cpp", _LOG)
    lines += _compile("cxx", "native/attention_check.cpp", "o/attention_check.o")
    lines += _compile("cxx", "baseline/tests/test-backend-ops.cpp", "o/test-backend-ops.o")
    return [*lines, ""]


def _forced(inputs: BuildInputs) -> list[str]:
    more = " ".join(f"-D{name}" for name in inputs.definitions)
    shared = _shared(inputs)
    choice = "o/forced_selection.o"
    lines = _compile("cuda", f"forced/{SELECTION}", choice, side="forced", more=more)
    for program in inputs.programs:
        kernel = f"o/{program.name}.o"
        source = f"forced/{inputs.kernel}"
        lines += _compile("cuda", source, kernel, side="forced", more=f"{more} -Irows/{program.name}")
        for main in ("attention_check", "test-backend-ops"):
            name = f"bin/{program.name}-{'check' if main == 'attention_check' else 'ops'}"
            lines.append(f"build {name}: link o/{main}.o {_LOG} {choice} {kernel} {shared}")
    return [*lines, ""]


def _isolation(inputs: BuildInputs) -> list[str]:
    lines = []
    objects: dict[str, list[str]] = {"baseline": [], "candidate": []}
    for unit in inputs.attention:
        for side in ("baseline", "candidate") if unit in inputs.touched else ("baseline",):
            folder = side if unit in inputs.touched else "shared"
            made = f"equal/{folder}/{unit.rpartition('/')[2]}.o"
            lines += [f"build {made}: equal {side}/{unit}", f"  side = {side}", f"  unit = {unit}"]
            for name in (side,) if unit in inputs.touched else objects:
                objects[name].append(made)
    shared = _shared(inputs)
    for side, made_of in objects.items():
        names = " ".join(made_of)
        lines.append(f"build bin/{side}-ops: link o/test-backend-ops.o {_LOG} {names} {shared}")
    return lines


def _compile(rule: str, source: str, made: str, *, side: str = "baseline", more: str = "") -> list[str]:
    return [f"build {made}: {rule} {source}", f"  side = {side}", *([f"  more = {more}"] if more else [])]


def _shared(inputs: BuildInputs) -> str:
    return " ".join(_object(path) for path in (*inputs.sources, *BASE_UNITS))


def _object(path: str) -> str:
    return f"o/{path.replace('/', '_')}.o"
