"""Instructions of the emulated GPU leave what AMD's pseudocode says, on random operands.

tests/support/pseudocode evaluates that pseudocode, corrected where it is wrong (its ``corrections`` say why
and what decides). An instruction that the emulator leaves out by its reason is no wrong answer, unless
llama.cpp's kernels have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pseudocode import used
from pseudocode.assembly import Assembler
from pseudocode.cases import FAMILIES, generate, instructions_of
from pseudocode.comparison import compare
from pseudocode.emulated import run_cases
from thorough import ordinary

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import build_alone, find_disassembler, this_level
from patchkit.toolchain.compiler import open_compiler

pytestmark = pytest.mark.hip
PROCESSORS = ("gfx1151", "gfx1201")  # RDNA3.5, and RDNA4 by its own pseudocode
SHOWN = 12

Case = dict[str, Any]
RunVectors = Callable[[list[Case], str], list[Case]]
FindAssembler = Callable[[str], Assembler]


@pytest.fixture(scope="module")
def assembler(hip_toolchain) -> FindAssembler:
    """The assembler for a processor."""
    library = find_disassembler(hip_toolchain)
    places = (*library.parent.parent.glob("llvm-*/bin/llvm-mc"), hip_toolchain.clang.parent / "llvm-mc")
    program = next((path for path in places if path.is_file()), None)
    if program is None:
        pytest.skip("the toolchain has no llvm-mc")
    return partial(Assembler, program, library)


@pytest.fixture(scope="module")
def run_vectors(hip_toolchain, test_cache: Path) -> RunVectors:
    """Runs cases on the emulator of a processor and gives what each left."""
    compiler = open_compiler(hip_toolchain, test_cache / "gates", NullReporter())
    program = build_alone(compiler, this_level())
    return partial(run_cases, program=program, disassembler=find_disassembler(hip_toolchain))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_instructions_leave_what_the_pseudocode_says(
    family: str, processor: str, assembler: FindAssembler, run_vectors: RunVectors
) -> None:
    cases = generate(family, seed=1, count=2, assembler=assembler(processor))
    assert cases
    _check(cases, processor, run_vectors)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_so_do_those_of_a_gpu_without_scalar_floats(
    family: str, assembler: FindAssembler, run_vectors: RunVectors
) -> None:
    _check(generate(family, seed=4, count=1, assembler=assembler("gfx1100")), "gfx1100", run_vectors)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("seed", ordinary([2, 3], 1, pytest.mark.hours))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_instructions_leave_it_on_many_more_operands(
    family: str, seed: int, processor: str, assembler: FindAssembler, run_vectors: RunVectors
) -> None:
    _check(generate(family, seed=seed, count=8, assembler=assembler(processor)), processor, run_vectors)


def test_every_instruction_of_the_kernels_has_cases(assembler: FindAssembler) -> None:
    one = assembler(PROCESSORS[0])
    written = {used.bare(name) for family in FAMILIES for name in instructions_of(family, one)}

    assert used.load_names() - written == set()


def _check(cases: list[Case], processor: str, run_vectors: RunVectors) -> None:
    left = run_vectors(cases, processor)
    assert [case["name"] for case in left] == [case["name"] for case in cases]
    known = used.load_names()
    differences = [
        difference
        for case, got in zip(cases, left, strict=True)
        if not _is_refused(case, got, known)
        for difference in compare(case, got)
    ]
    shown = "\n".join(differences[:SHOWN])
    assert not differences, f"{len(differences)} differences in {len(cases)} cases:\n{shown}"


def _is_refused(case: Case, got: Case, known: set[str]) -> bool:
    """The emulator says why it leaves an instruction out, which the kernels do not have."""
    names = {used.bare(part.split()[0]) for part in re.split("; | :: ", case["text"])}
    return "not emulated (" in got.get("fault", "") and not names <= known
