"""A pass of the real compiler in two steps: what comes out, and what makes it do a step again."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.process import run_tool
from patchkit.base.reporter import NullReporter
from patchkit.prove.verify.timings import Stopwatch
from patchkit.toolchain.compile import (
    LINE_TABLES,
    CompiledUnit,
    CompileFailed,
    Job,
    compile_unit,
    compiler_argv,
    ir_digest,
)
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.remarks import parse_diagnostics
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

FOLDER = "ggml/src/ggml-cuda"
UNIT = f"{FOLDER}/scale.cu"
HEADER = """\
#pragma once
#include <hip/hip_runtime.h>
static __device__ float scaled(float x) { return expf(x) * 2.0f; }
static int blocks_of(int n) { return (n + 63) / 64; }
"""
SOURCE = """\
#include "scale.cuh"
static __global__ void scale(const float * x, float * y, int n) {
    __shared__ float buffer[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    buffer[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 64; ++k) {
        sum += buffer[k ^ (threadIdx.x & 31)];
    }
    if (i < n) {
        y[i] = scaled(sum);
    }
}
void run(const float * x, float * y, int n) { scale<<<blocks_of(n), 64>>>(x, y, n); }
"""

Compile = Callable[..., tuple[CompiledUnit, tuple[int, int]]]


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    folder = tmp_path / "baseline" / FOLDER
    folder.mkdir(parents=True)
    (folder / "scale.cuh").write_text(HEADER)
    (folder / "scale.cu").write_text(SOURCE)
    return SourceTree(tmp_path / "baseline")


@pytest.fixture
def compile_(tree: SourceTree, tmp_path: Path, hip_toolchain: Toolchain) -> Compile:
    """Compiles in a tree with other texts; the unit, and how often the front end and the generator ran."""
    watch = Stopwatch(NullReporter())
    trees = iter(range(100))

    def run(
        *changes: tuple[str, str], options: tuple[str, ...] = (), **job: object
    ) -> tuple[CompiledUnit, tuple[int, int]]:
        root = tmp_path / f"candidate-{next(trees)}"
        shutil.copytree(tree.root, root)
        for path in (root / FOLDER).iterdir():
            text = path.read_text()
            for old, new in changes:
                text = text.replace(old, new)
            path.write_text(text)
        chain = replace(hip_toolchain, device_options=options)
        compiler = open_compiler(chain, tmp_path / "cache", watch)
        with watch.stage("compile"):
            told: dict[str, object] = {"arch": "gfx1151", "which": "device", "rocwmma": False, **job}
            made = compile_unit(Job(tree=SourceTree(root), unit=UNIT, **told), compiler)  # type: ignore[arg-type]
        count = {each.work: each.tools for each in watch.stages[-1].spent}
        return made, (count.get("compile", 0), count.get("generate", 0))

    return run


def _code(assembly: str) -> str:
    """Without comments, in which clang names basic blocks by what it still knows of them."""
    lines = (re.sub(r"\s*[;#].*", "", line) for line in assembly.splitlines())
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize("which", ["device", "host"])
def test_two_steps_give_the_code_that_one_gives(
    tree: SourceTree, compile_: Compile, hip_toolchain: Toolchain, tmp_path: Path, which: str
) -> None:
    made, _ = compile_(which=which)
    job = Job(tree=tree, unit=UNIT, arch="gfx1151", which=which, rocwmma=False)  # type: ignore[arg-type]
    whole = tmp_path / "whole.s"
    own = hashlib.sha256(UNIT.encode()).hexdigest()[:16]  # else it is made of the folder
    argv = [*compiler_argv(hip_toolchain, job), f"-cuid={own}", "-o", str(whole)]
    run_tool(argv, cwd=tree.root, reporter=NullReporter())
    assert _code(made.output.read_text()) == _code(whole.read_text())


def test_line_tables_change_no_instruction(compile_: Compile) -> None:
    with_lines, without = compile_(flags=LINE_TABLES)[0], compile_()[0]
    own = re.compile(r"^\s+[a-z]\w+ .*$", re.MULTILINE)
    told = [own.findall(_code(each.output.read_text())) for each in (with_lines, without)]
    assert told[0] == told[1]
    assert with_lines.kernels == without.kernels


def test_what_reads_alike_is_generated_once(compile_: Compile) -> None:
    first, ran = compile_()
    assert ran == (1, 1)
    assert compile_() == (replace(first, cached=True), (0, 0))
    # Another comment: other bytes, the same to the front end.
    again, ran = compile_(("#pragma once", "#pragma once  // a comment"))
    assert (ran, again.key, again.output) == ((1, 0), first.key, first.output)


def test_each_pass_is_generated_for_what_it_sees(compile_: Compile) -> None:
    device, host = compile_()[0], compile_(which="host", form="object")[0]
    blocks = ("(n + 63) / 64", "(n + 64) / 64")
    assert compile_(blocks)[0].key == device.key
    assert compile_(blocks, which="host", form="object")[0].key != host.key


@pytest.mark.parametrize(
    "change",
    [("* 2.0f", "* 3.0f"), ("#pragma unroll", "#pragma unroll 1"), ("float buffer[64]", "float buffer[65]")],
    ids=["a number", "a pragma", "an array"],
)
def test_no_change_of_the_code_is_taken_for_none(compile_: Compile, change: tuple[str, str]) -> None:
    first, (changed, ran) = compile_()[0], compile_(change)
    assert ran == (1, 1)
    assert changed.key != first.key
    assert _code(changed.output.read_text()) != _code(first.output.read_text())


def test_an_option_of_the_generator_leaves_the_front_end_alone(compile_: Compile) -> None:
    first = compile_()[0]
    other, ran = compile_(options=("-mllvm", "-amdgpu-unroll-threshold-local=300"))
    assert ran == (0, 1)
    assert other.key != first.key


def test_a_warning_of_the_generator_is_kept_with_its_line(compile_: Compile) -> None:
    asked = ("#pragma unroll", "#pragma clang loop distribute(enable)")
    made, _ = compile_(asked, ("k < 64", "k < n"), flags=LINE_TABLES)
    flag = "-Wpass-failed=transform-warning"
    assert [str(found.where) for found in made.diagnostics if found.flag == flag] == [f"{UNIT}:9:5"]


HEAD = f"{FOLDER}/all.cuh"
HEADER_FILE = f"{FOLDER}/scale.cuh"
INSTANCES = {"one": "run_all<32>", "two": "run_all<64>"}


@pytest.fixture
def instances(tree: SourceTree) -> SourceTree:
    """Two units that only include a file, with a kernel and warnings in it, and instantiate a template."""
    text = SOURCE.replace("void run(", "template <int n> void run_all(").replace(
        "int n) { scale", "int m) { scale"
    )
    text = text.replace("(x, y, n); }", "(x, y, m + n); int unused; }").replace(
        "blocks_of(n)", "blocks_of(m)"
    )
    (tree.root / HEAD).write_text("#pragma once\n" + text + "static int nobody_calls() { return 1; }\n")
    for name, call in INSTANCES.items():
        body = f"template void {call}(const float *, float *, int);\n"
        (tree.root / FOLDER / f"{name}.cu").write_text(
            f'// One of the instances.\n#include "all.cuh"\n\n{body}'
        )
    return SourceTree(tree.root)


@pytest.mark.parametrize("which", ["device", "host"])
def test_the_head_of_units_is_parsed_once_and_changes_no_code(
    instances: SourceTree, hip_toolchain: Toolchain, tmp_path: Path, which: str
) -> None:
    watch = Stopwatch(NullReporter())
    compiler = open_compiler(hip_toolchain, tmp_path / "cache", watch)
    with watch.stage("compile"):
        for name in INSTANCES:
            unit = f"{FOLDER}/{name}.cu"
            told: dict[str, object] = {"arch": "gfx1151", "which": which, "rocwmma": False}
            job = Job(tree=instances, unit=unit, **told)  # type: ignore[arg-type]
            made = compile_unit(job, compiler)
            whole = tmp_path / f"{name}.s"
            own = hashlib.sha256(unit.encode()).hexdigest()[:16]
            argv = [*compiler_argv(hip_toolchain, job), f"-cuid={own}", "-o", str(whole)]
            said = run_tool(argv, cwd=instances.root, reporter=NullReporter()).stderr.decode()
            assert _code(made.output.read_text()) == _code(whole.read_text())
            assert set(made.diagnostics) == {
                each for each in parse_diagnostics(said) if each.kind == "warning"
            }
            assert any(each.where.path == HEAD for each in made.diagnostics)
    (count,) = (each.tools for each in watch.stages[-1].spent if each.work == "compile")
    assert count == 1 + len(INSTANCES)


@pytest.mark.parametrize("which", ["device", "host"])
def test_a_unit_with_a_line_before_its_head_is_compared_with_one_that_does_not_share_it(
    instances: SourceTree, hip_toolchain: Toolchain, tmp_path: Path, which: str
) -> None:
    edited = tmp_path / "edited"
    shutil.copytree(instances.root, edited)
    unit = edited / FOLDER / "one.cu"
    unit.write_text(unit.read_text().replace("#include", "#if NOT_HERE\n#include <none>\n#endif\n#include"))
    compiler = open_compiler(hip_toolchain, tmp_path / "cache", NullReporter())
    job = Job(tree=instances, unit=f"{FOLDER}/one.cu", arch="gfx1151", which="device", rocwmma=False)
    job = replace(job, which=which)  # type: ignore[arg-type]
    alike = replace(job, shares_head=False)
    assert ir_digest(alike, compiler) == ir_digest(replace(job, tree=SourceTree(edited)), compiler)
    if which == "device":  # it names another source file
        assert ir_digest(job, compiler) != ir_digest(alike, compiler)


@pytest.mark.parametrize("path", [HEAD, f"{FOLDER}/one.cu"], ids=["head", "rest"])
def test_an_error_is_told_where_it_is_with_a_head_as_without(
    instances: SourceTree, hip_toolchain: Toolchain, tmp_path: Path, path: str
) -> None:
    file = instances.root / path
    file.write_text(f"{file.read_text()}int broken = nothing;\n")
    line = file.read_text().count("\n")
    compiler = open_compiler(hip_toolchain, tmp_path / "cache", NullReporter())
    job = Job(tree=instances, unit=f"{FOLDER}/one.cu", arch="gfx1151", which="device", rocwmma=False)
    with pytest.raises(CompileFailed) as caught:
        compile_unit(job, compiler)
    assert str(caught.value.where[0]).startswith(f"{path}:{line}:")
    assert "nothing" in caught.value.message


def test_a_head_that_changed_is_parsed_again(
    instances: SourceTree, hip_toolchain: Toolchain, tmp_path: Path
) -> None:
    compiler = open_compiler(hip_toolchain, tmp_path / "cache", NullReporter())
    job = Job(tree=instances, unit=f"{FOLDER}/one.cu", arch="gfx1151", which="device", rocwmma=False)
    first = compile_unit(job, compiler)
    header = instances.root / HEADER_FILE
    header.write_text(header.read_text().replace("* 2.0f", "* 3.0f"))
    second = compile_unit(replace(job, tree=SourceTree(instances.root)), compiler)
    assert second.key != first.key
    assert _code(second.output.read_text()) != _code(first.output.read_text())
