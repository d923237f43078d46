"""The interpreter of GPU code, built by this machine's C++ compiler, without the SDK.

For each family of GPUs instructions leave what AMD's pseudocode says, and Triton's kernels compute what
numpy does. LLVM's disassembly of both is recorded (record.py), and so is what the pseudocode says.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from pseudocode.assembly import Disassembler
from pseudocode.comparison import compare
from pseudocode.emulated import run_cases

from patchkit.base.arch import architecture_of
from patchkit.base.jobs import run_parallel
from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.checks import native_checks
from patchkit.gpu.emulated.emulator import find_disassembler

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "patchkit" / "gpu" / "emulated" / "native" / "emulator"
PROGRAM = HERE.parent / "emulator" / "triton" / "run.py"
GPUS = ("gfx1100", "gfx1151", "gfx1201")
# Unoptimised: it compiles in a third of the time, and what runs here takes two seconds.
FLAGS = (
    *("-std=c++20", "-O0", "-fPIC", "-pthread", "-ffp-contract=off", "-Wno-psabi"),
    *(native_checks(), f"-I{NATIVE}"),
)
KEPT = 4  # builds


@pytest.fixture(scope="module")
def interpreter(test_cache: Path) -> Path:
    """A folder with the program ``alone``, ``libamdhip64.so.6``, and ``libLLVM.so`` with what it knows."""
    compiler = next(path for path in map(shutil.which, ("c++", "g++", "clang++")) if path)
    sources = [*sorted(NATIVE.glob("*.?pp")), *sorted(HERE.glob("*.cpp")), HERE / "recorded.zip"]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + repr(FLAGS).encode())
    for path in sources:
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    builds = test_cache / "interpreter"
    builds.mkdir(exist_ok=True)
    folder = builds / digest.hexdigest()[:16]
    with FileLock(builds / "lock"):
        if not folder.is_dir():
            partial = builds / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _build(compiler, partial)
            partial.rename(folder)
            for old in sorted(builds.glob("*/"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
                shutil.rmtree(old)
    return folder


def _build(compiler: str, folder: Path) -> None:
    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        _run([compiler, *FLAGS, "-c", str(source), "-o", str(made)])
        return made

    def link(name: str, *options: str | Path) -> None:
        _run([compiler, "-pthread", *map(str, options), "-ldl", "-o", str(folder / name)])

    others = [NATIVE / "look.cpp", NATIVE / "coverage.cpp"]
    sources = [path for path in (*NATIVE.glob("*.cpp"), *HERE.glob("*.cpp")) if path not in others]
    sources.sort(key=lambda path: -path.stat().st_size)
    made = run_parallel(sources, compile_one, reporter=NullReporter(), what="interpreter", unit="files")
    of_programs = {folder / f"{name}.o" for name in ("alone", "runtime", "disassembler")}
    core = sorted(set(made) - of_programs)
    link("libLLVM.so", "-shared", folder / "disassembler.o")
    link("libamdhip64.so.6", "-shared", folder / "runtime.o", *core)
    link("alone", folder / "alone.o", *core)
    for path in made:
        path.unlink()
    with zipfile.ZipFile(HERE / "recorded.zip") as archive:
        archive.extractall(folder)


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("gpu", GPUS)
def test_instructions_leave_what_the_pseudocode_says(gpu: str, interpreter: Path) -> None:
    known = {line.split()[0] for line in (interpreter / f"{gpu}.txt").read_text("utf-8").splitlines()}
    lines = (interpreter / f"{architecture_of(gpu).name}.jsonl").read_text("utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if _is_of(case["code"], known)]
    assert len(cases) > len(lines) // 2

    left = run_cases(cases, gpu, program=interpreter / "alone", disassembler=interpreter / "libLLVM.so")

    differences = [line for case, got in zip(cases, left, strict=True) for line in compare(case, got)]
    assert not differences, "\n".join(differences[:12])


def _is_of(code: str, known: set[str]) -> bool:
    """Whether each instruction of a program is one of the GPU."""
    while code:
        size = next((size for size in (8, 16, 24) if code[:size] in known), None)
        if size is None:
            return False
        code = code[size:]
    return True


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul", "attention", "histogram"])
def test_a_program_computes_what_numpy_does(gpu: str, name: str, interpreter: Path) -> None:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(interpreter),
        "PATCHKIT_EMULATOR_DISASSEMBLER": str(interpreter / "libLLVM.so"),
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), gpu, name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.hip
@pytest.mark.parametrize("gpu", GPUS)
def test_what_is_recorded_is_what_llvm_writes(gpu: str, hip_toolchain: Any) -> None:
    disassembler = Disassembler(find_disassembler(hip_toolchain), gpu)
    with zipfile.ZipFile(HERE / "recorded.zip") as archive:
        for line in archive.read(f"{gpu}.txt").decode().splitlines():
            code, _, text = line.partition(" ")
            ((_, written),) = disassembler.disassemble(bytes.fromhex(code))
            assert " ".join(written.split()) == text
