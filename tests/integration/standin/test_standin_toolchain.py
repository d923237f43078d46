"""The proof with real HIP headers; and rocWMMA itself, which shows what the proof is worth."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_in_proof.cases import all_cases
from stand_in_proof.isa import Family
from stand_in_proof.order import Ordering
from stand_in_proof.proof import operands_given, prove

from patchkit.build.toolchain import Toolchain, knows_arch

pytestmark = pytest.mark.hip

STANDIN = Path(__file__).resolve().parents[3] / "patchkit" / "build" / "sdk" / "standin"
EXACT = "-DROCWMMA_STAND_IN_EXACT_COPIES"


@pytest.mark.parametrize(
    ("arch", "family", "extra", "ordering"),
    [
        ("gfx1151", "gfx11", (), "half wave"),
        ("gfx1151", "gfx11", (EXACT,), "guide"),
        ("gfx1201", "gfx12", (), "wave"),
    ],
)
def test_real_headers_change_nothing(
    compile_with_toolchain, arch: str, family: Family, extra: tuple[str, ...], ordering: Ordering
) -> None:
    proof = prove(compile_with_toolchain(STANDIN, arch, extra), family)
    assert proof.failures == ()
    assert proof.ordering == ordering


def test_rocwmma_itself_passes_with_the_same_operands(compile_with_toolchain, toolchain: Toolchain) -> None:
    """AMD tests it on the hardware: would it fail, then the model or the interpreter were wrong."""
    found = toolchain.rocwmma
    if found is None or found.kind == "stand-in" or not knows_arch(found, "gfx1151"):
        pytest.skip("this toolchain has no rocWMMA for gfx1151")
    theirs = compile_with_toolchain(found.include, "gfx1151", ("-include", "string"))
    proof = prove(theirs, "gfx11")
    assert proof.failures == ()
    assert proof.ordering == "half wave"
    ours = compile_with_toolchain(STANDIN, "gfx1151")
    for case in all_cases():
        given = zip(
            operands_given(ours[case.name], case), operands_given(theirs[case.name], case), strict=True
        )
        assert all((one.a, one.b) == (other.a, other.b) for one, other in given), case.name
