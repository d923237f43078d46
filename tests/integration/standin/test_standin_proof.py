"""The stand-in's layouts are those of the matrix instruction, and a header that is wrong is found out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from stand_in_proof.cases import all_cases
from stand_in_proof.isa import Family
from stand_in_proof.order import Ordering
from stand_in_proof.proof import prove

pytestmark = pytest.mark.hip

STANDIN = Path(__file__).resolve().parents[3] / "patchkit" / "build" / "sdk" / "standin"
EXACT = "-DROCWMMA_STAND_IN_EXACT_COPIES"


def _family(arch: str) -> Family:
    return "gfx11" if arch.startswith("gfx11") else "gfx12"


@pytest.mark.parametrize(
    ("arch", "extra", "ordering"),
    [
        ("gfx1151", (), "half wave"),
        ("gfx1151", (EXACT,), "guide"),
        ("gfx1100", (), "half wave"),
        ("gfx1201", (), "wave"),
    ],
)
def test_every_case_hands_over_what_the_guide_asks_for(
    compile_cases, arch: str, extra: tuple[str, ...], ordering: Ordering
) -> None:
    functions = compile_cases(STANDIN, arch, ("-Wall", "-Wextra", "-Werror", *extra))
    proof = prove(functions, _family(arch))
    assert proof.failures == ()
    assert proof.functions == len(all_cases()) + 2
    assert proof.ordering == ordering


@dataclass(frozen=True, kw_only=True)
class Mutation:
    what: str
    old: str
    new: str
    arch: str = "gfx1151"
    extra: tuple[str, ...] = ()


MUTATIONS = (
    Mutation(what="lanes hold other lines", old="return lane() % 16;", new="return lane() / 2;"),
    Mutation(
        what="both half waves hold the first half of k",
        old="first_k() {\n    return lane() / 16 * kept;",
        new="first_k() {\n    return 0;",
    ),
    Mutation(what="half waves swap their rows", old="return lane() / 16;\n", new="return 1 - lane() / 16;\n"),
    Mutation(what="gfx11 rows as in gfx12", old="row_step = 2;", new="row_step = 1;"),
    Mutation(what="gfx12 rows as in gfx11", old="row_step = 1;", new="row_step = 2;", arch="gfx1201"),
    Mutation(
        what="gfx12 begins at gfx11's rows",
        old="first_row() {\n    return lane() / 16 * kept;",
        new="first_row() {\n    return lane() / 16;",
        arch="gfx1201",
    ),
    Mutation(what="the halves come from 8 lanes away", old="0x401f", new="0x201f"),
    Mutation(what="no halves are exchanged", old="0x401f", new="0x001f"),
    Mutation(
        what="one register of a line comes twice", old="0, 4, 1, 5, 2, 6, 3, 7", new="0, 4, 1, 5, 2, 6, 3, 3"
    ),
    Mutation(
        what="the low half of a line is never the other's",
        old="low = upper ? other : own;",
        new="low = own;",
        extra=(EXACT,),
    ),
    Mutation(
        what="A and B swapped", old="whole_line(a), whole_line(b), c)", new="whole_line(b), whole_line(a), c)"
    ),
    Mutation(
        what="A taken for B",
        old="w32_gfx12(a, b, c);\n}\n\nROCWMMA",
        new="w32_gfx12(a, a, c);\n}\n\nROCWMMA",
        arch="gfx1201",
    ),
    Mutation(what="two accumulator elements swapped before", old="0, -1, 1, -1, 2", new="1, -1, 0, -1, 2"),
    Mutation(
        what="two accumulator elements swapped after",
        old="0, 2, 4, 6, 8, 10, 12, 14",
        new="0, 2, 4, 8, 6, 10, 12, 14",
    ),
    Mutation(what="the other half of accumulator registers", old="lower, false)", new="lower, true)"),
    Mutation(
        what="lines read crosswise", old="(line() * stride + first_k())", new="(first_k() * stride + line())"
    ),
    Mutation(
        what="columns read as rows",
        old="(first_k() * stride + line());",
        new="(line() * stride + first_k());",
    ),
    Mutation(
        what="the second element skipped",
        old="++i, element += stride) {",
        new="++i, element += i * stride) {",
    ),
    Mutation(
        what="row-major accumulators stored as column-major",
        old="first_row() * stride + line() : line() * stride + first_row()",
        new="line() * stride + first_row() : first_row() * stride + line()",
    ),
    Mutation(what="the stride left out", old="row_step * stride : row_step", new="row_step : row_step"),
    Mutation(
        what="a fill that forgets one",
        old="stand_in::kept; ++i) {\n        filled",
        new="stand_in::kept - 1; ++i) {\n        filled",
    ),
    Mutation(what="alignment promised that is not asked for", old="aligned(16)", new="aligned(64)"),
)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.what.replace(" ", "-"))
def test_a_wrong_header_is_found_out(compile_cases, tmp_path: Path, mutation: Mutation) -> None:
    functions = compile_cases(_mutated(tmp_path, mutation), mutation.arch, mutation.extra)
    assert prove(functions, _family(mutation.arch)).failures


REORDERINGS = (
    Mutation(
        what="two registers of a line swapped", old="0, 1, 2, 3, 4, 5, 6, 7", new="0, 1, 3, 2, 4, 5, 6, 7"
    ),
    Mutation(
        what="half waves hold each other's half of k",
        old="first_k() {\n    return lane() / 16 * kept;",
        new="first_k() {\n    return (1 - lane() / 16) * kept;",
    ),
)


@pytest.mark.parametrize("reordering", REORDERINGS, ids=lambda one: one.what.replace(" ", "-"))
def test_another_order_of_k_is_right_but_not_the_guides(
    compile_cases, tmp_path: Path, reordering: Mutation
) -> None:
    """What is changed in A and B alike changes no product; that the order is another one is noticed."""
    proof = prove(compile_cases(_mutated(tmp_path, reordering), "gfx1151", (EXACT,)), "gfx11")
    assert proof.failures == ()
    assert proof.ordering == "wave"


def _mutated(folder: Path, mutation: Mutation) -> Path:
    include = folder / "mutated"
    shutil.copytree(STANDIN, include)
    holders = [path for path in (include / "rocwmma").iterdir() if mutation.old in path.read_text("utf-8")]
    assert len(holders) == 1
    text = holders[0].read_text("utf-8")
    assert text.count(mutation.old) == 1
    holders[0].write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return include
