"""``emulate --coverage``: every instruction of a GPU is emulated, or left out by its reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pseudocode.published import load_pseudocode

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.coverage import InstructionState, instruction_states
from patchkit.gpu.emulated.emulator import build_coverage, find_disassembler, this_level

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module", params=["gfx1100", "gfx1151", "gfx1201"])
def states(request, compiler) -> dict[str, InstructionState]:
    found = instruction_states(
        arch=request.param,
        program=build_coverage(compiler, this_level()),
        disassembler=find_disassembler(compiler.toolchain),
        reporter=NullReporter(),
    )
    return {one.name: one for one in found}


def test_what_computes_or_touches_memory_is_emulated_or_left_out_by_a_reason(states):
    assert len(states) > 900
    assert [one for one in states.values() if one.state == "no"] == []
    assert {name for name, one in states.items() if one.state == "some"} <= {
        "s_getreg_b32",
        "s_denorm_mode",
        "s_sendmsg_rtn_b64",
    }
    assert all(one.why for one in states.values() if one.state == "out")


def test_only_little_of_what_kernels_compute_with_is_left_out(states):
    by_family: dict[str, int] = {}
    for one in states.values():
        by_family[one.family] = by_family.get(one.family, 0) + (one.state == "out")
    assert by_family["VALU"] <= 18
    assert by_family["SALU"] <= 20


@pytest.mark.parametrize("states", ["gfx1151"], indirect=True)
def test_no_vector_instruction_of_the_pseudocode_is_forgotten(states):
    published = load_pseudocode("rdna3")
    names = {
        name.lower().removesuffix("_e32").removesuffix("_e64")
        for encoding in ("VOP1Op", "VOP2Op", "VOP3Op", "VOP3POp", "VOPCOp")
        for name in published[encoding]
    }
    assert sorted(names - set(states)) == []


def test_the_command_counts_them(gates_cache: Path):
    argv = [sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, "--json", "emulate"]
    done = subprocess.run(
        [*map(str, argv), "--arch", "gfx1201", "--coverage"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["lacking"] == []
    assert document["emulated"] + document["not_emulated"] == document["instructions"]
