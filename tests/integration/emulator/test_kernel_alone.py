"""A kernel that is compiled without the others of its unit: the same code, and programs run with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from emulated_trees import EmulatedTrees
from right_kernels import RIGHT_KERNELS

from patchkit.gpu.emulated.emulator import DeviceUnits
from patchkit.toolchain import compile as compiling
from patchkit.toolchain.compile import CompiledKernel, compile_kernel, compile_unit, device_job, kernel_code
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

HERE = Path(__file__).parent
FOLDER = "ggml/src/ggml-cuda"
UNIT = f"{FOLDER}/kernels.cu"
SOURCE = """\
#include <hip/hip_runtime.h>
static __constant__ float powers[4] = {1, 2, 4, 8};
static __device__ int counted = 0;
static __device__ __noinline__ float slow(float x, int n) { return n ? x * slow(x + n, n - 1) : 1.0f; }
template <int n> __global__ void scale(float * x) { x[threadIdx.x] *= powers[(threadIdx.x + n) % 4]; }
__global__ void count(int * to) { *to = atomicAdd(&counted, 1); }
__global__ void reduce(float * x) {
    __shared__ float all[64];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 64; ++i) sum += all[i ^ threadIdx.x];
    x[threadIdx.x] = sum;
}
__global__ void calls(float * x) { x[threadIdx.x] = slow(x[threadIdx.x], 3); }
#define TEN(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
#define SCALE(n) template __global__ void scale<n>(float *);
TEN(SCALE)
"""


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """These units are small, and would be compiled whole."""
    monkeypatch.setattr(compiling, "_WORTH_PARTS", 0)


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    folder = tmp_path / "tree" / FOLDER
    folder.mkdir(parents=True)
    (folder / "kernels.cu").write_text(SOURCE)
    return SourceTree(tmp_path / "tree")


@pytest.fixture
def own(compiler: Compiler, tmp_path: Path) -> Compiler:
    """With nothing compiled yet."""
    return open_compiler(compiler.toolchain, tmp_path / "cache", compiler.reporter)


def code(assembly: str, name: str) -> str:
    """A kernel's instructions, without comments, places, and the numbers of labels."""
    text = re.sub(r"\.LBB\d+_", ".LBB_", kernel_code(assembly, name))
    text = re.sub(r"\.L(?:tmp|func_begin|func_end)\d+", ".L", text)
    lines = (re.sub(r"\s*;.*", "", line) for line in text.splitlines())
    return "\n".join(
        line for line in lines if line.strip() and not re.match(r"\s*\.(loc|file|cfi)|\.L:", line)
    )


def differing(tree: SourceTree, unit: str, compiler: Compiler, own: Compiler, every: int) -> list[str]:
    """Kernels that have other code alone than in their unit; those that only trap call what prints that."""
    job = device_job(tree, unit, "gfx1151", rocwmma=True)
    whole = compile_unit(job, compiler)
    text = whole.output.read_text("utf-8")
    found = []
    for kernel in whole.kernels[::every]:
        alone = compile_kernel(replace(job, form="object"), kernel.name, own)
        if alone is None:
            assert kernel.is_trap
            continue
        assert list(kernels_of(alone.kernels)) == [kernel.name]
        (made,) = own.store.root.glob(f"*/{compiling_key(job, kernel.name, own)}/output")
        is_same = code(text, kernel.name) == code(made.read_text("utf-8"), kernel.name)
        if not is_same or alone.kernels != (kernel,):
            found.append(kernel.name)
    return found


def kernels_of(kernels: tuple[CompiledKernel, ...]) -> Iterator[str]:
    return (kernel.name for kernel in kernels)


def compiling_key(job: compiling.Job, kernel: str, compiler: Compiler) -> str:
    work = compiling._Work(job=job, compiler=compiler, timeout_s=100)
    return work.code_key(work.front()[0], kernel)


@pytest.mark.parametrize(
    ("unit", "every"),
    [
        (f"{FOLDER}/norm.cu", 3),
        (f"{FOLDER}/template-instances/mmq-instance-q4_k.cu", 7),
        (f"{FOLDER}/template-instances/fattn-vec-instance-f16-f16.cu", 5),
    ],
)
def test_its_code_is_the_one_that_it_has_in_its_unit(
    gates_cache: Path, compiler: Compiler, own: Compiler, unit: str, every: int
) -> None:
    tree = SourceTree(EmulatedTrees(gates_cache, compiler).root(6900))
    assert differing(tree, unit, compiler, own, every) == []


@pytest.mark.parametrize(
    "kernel",
    ["_Z5countPi", "_Z5callsPf", "_Z5nobodyPi"],
    ids=["data of others", "a call", "no such kernel"],
)
def test_what_cannot_be_alone_is_compiled_with_its_unit(tree: SourceTree, own: Compiler, kernel: str) -> None:
    job = replace(device_job(tree, UNIT, "gfx1151", rocwmma=True), form="object")
    assert compile_kernel(job, kernel, own) is None
    assert compile_kernel(job, kernel, own) is None  # as is kept


def test_a_unit_that_is_there_is_taken(tree: SourceTree, own: Compiler) -> None:
    job = replace(device_job(tree, UNIT, "gfx1151", rocwmma=True), form="object")
    compile_unit(job, own)
    assert compile_kernel(job, "_Z6reducePf", own) is None


def test_a_change_of_the_unit_is_seen(tree: SourceTree, own: Compiler, tmp_path: Path) -> None:
    other = tmp_path / "other" / FOLDER
    other.mkdir(parents=True)
    (other / "kernels.cu").write_text(SOURCE.replace("i ^ threadIdx.x", "i + 0 * threadIdx.x"))
    jobs = [
        replace(device_job(one, UNIT, "gfx1151", rocwmma=True), form="object")
        for one in (tree, SourceTree(tmp_path / "other"))
    ]
    before, after = (compile_kernel(job, "_Z6reducePf", own) for job in jobs)
    assert before is not None
    assert after is not None
    assert before.output.read_bytes() != after.output.read_bytes()


def test_after_some_kernels_the_unit_is_compiled(tree: SourceTree, own: Compiler, tmp_path: Path) -> None:
    units = DeviceUnits(tree, "gfx1151", own, tmp_path / "units", whole=())
    units.folder.mkdir()
    files = [units.provide(UNIT, kernel=f"_Z5scaleILi{n}EEvPf") for n in range(10)]
    whole = UNIT.replace("/", "_")
    assert [file.name == whole for file in files] == [False] * 8 + [True] * 2
    assert len({file.name for file in files}) == 9
    assert units.provide(UNIT, kernel="_Z5scaleILi0EEvPf").name == whole


@pytest.mark.parametrize("whole", [None, (UNIT,)])
def test_a_unit_whose_code_is_to_be_proven_is_compiled(
    tree: SourceTree, own: Compiler, tmp_path: Path, whole: tuple[str, ...] | None
) -> None:
    units = DeviceUnits(tree, "gfx1151", own, tmp_path / "units", whole=whole)
    units.folder.mkdir()
    assert units.provide(UNIT, kernel="_Z6reducePf").name == UNIT.replace("/", "_")
    # What ran with kernels that were compiled alone is not taken for a run of this code.
    assert units.key(UNIT) != DeviceUnits(tree, "gfx1151", own, units.folder, whole=()).key(UNIT)


def test_programs_run_with_kernels_that_are_alone(
    compile_program, emulate, own: Compiler, tmp_path: Path
) -> None:
    folder = tmp_path / "tree" / FOLDER
    folder.mkdir(parents=True)
    (folder / "kernels.cu").write_bytes((HERE / "emulated_kernels.hip").read_bytes())
    units = DeviceUnits(SourceTree(tmp_path / "tree"), "gfx1151", own, tmp_path / "units", whole=())
    program = compile_program.bare("emulated_kernels", UNIT)
    with units.served() as variables:
        for name in RIGHT_KERNELS:
            if name == "calls":  # through pointers: of such a kernel clang says no registers
                continue
            if name == "patterns":  # so many kernels that the whole unit is compiled, with calls
                continue
            done = emulate(program, name, **variables)
            assert done.stdout.splitlines()[-1:] == ["right"], (name, done.stderr)
    assert len({path.name for path in units.folder.iterdir()}) >= 8
