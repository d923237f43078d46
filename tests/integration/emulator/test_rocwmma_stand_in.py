"""The stand-in for rocWMMA does what rocWMMA does, and a header that is wrong is found out.

Kernels over the header run on the emulated GPU, whose matrix instruction takes and leaves elements where
AMD's guides put them.
"""

from __future__ import annotations

import functools
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from thorough import ordinary

from patchkit.toolchain.hip import Toolchain, knows_arch
from patchkit.toolchain.sdk.prefix import STANDIN

pytestmark = [pytest.mark.hip, pytest.mark.slow]

EXACT = "-DROCWMMA_STAND_IN_EXACT_COPIES"
STRICT = ("-Wall", "-Wextra", "-Werror")
CLAIMS = ("-Xclang", "-fsanitize=alignment", "-Xclang", "-fsanitize-trap=alignment")

WRONG_PRODUCT = "product in (half|float), |which are outside of any allocation"
WRONG_COPIES = "lanes 16 to 31 of A and B do not repeat lanes 0 to 15"

RunOver = Callable[..., "CompletedProcess[str]"]


@pytest.fixture(scope="module")
def host_part(compile_program) -> Callable[[str], Path]:
    """A program without its device code. Optimised, so many templates would take ten seconds."""
    return functools.cache(lambda name: compile_program.bare(name, name, "-O0"))


@pytest.fixture
def run_over(host_part, compile_program, emulate, tmp_path: Path) -> RunOver:
    """Compile the kernels of a program over the header in a folder and run it."""

    def run(
        name: str, *, include: Path = STANDIN, arch: str = "gfx1151", extra: Sequence[str] = ()
    ) -> CompletedProcess[str]:
        flags = ("-O3", "-I", str(include), *extra)
        compile_program.device(name, tmp_path / name, *flags, arch=arch)
        return emulate(host_part(name), arch=arch, PATCHKIT_EMULATOR_UNITS=str(tmp_path))

    return run


@pytest.mark.parametrize(
    ("arch", "extra"),
    [
        ("gfx1151", ()),
        ("gfx1151", (EXACT,)),
        ("gfx1100", ()),
        ("gfx1201", ()),
        ("gfx1151", CLAIMS),
        ("gfx1201", CLAIMS),
    ],
)
def test_fragments_are_loaded_multiplied_and_stored_in_every_layout(
    run_over: RunOver, arch: str, extra
) -> None:
    done = run_over("rocwmma_fragments", arch=arch, extra=(*STRICT, *extra))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")


@dataclass(frozen=True, kw_only=True)
class Mutation:
    what: str
    old: str
    new: str
    arch: str = "gfx1151"
    extra: tuple[str, ...] = ()
    says: str = WRONG_PRODUCT


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
    Mutation(what="the halves come from 8 lanes away", old="0x401f", new="0x201f", says=WRONG_COPIES),
    Mutation(what="no halves are exchanged", old="0x401f", new="0x001f", says=WRONG_COPIES),
    Mutation(
        what="one register of a line comes twice",
        old="0, 4, 1, 5, 2, 6, 3, 7",
        new="0, 4, 1, 5, 2, 6, 3, 3",
        says=WRONG_COPIES,
    ),
    Mutation(
        what="the low half of a line is never the other's",
        old="low = upper ? other : own;",
        new="low = own;",
        extra=(EXACT,),
        says=WRONG_COPIES,
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
        says="accumulator in half by rows, filled",
    ),
    Mutation(
        what="one register of the other half comes twice",
        old="swizzle(own[3]",
        new="swizzle(own[2]",
        says=WRONG_COPIES,
    ),
    Mutation(what="the lower half wave's half for both", old="0x401f", new="0x000f", says=WRONG_COPIES),
    Mutation(
        what="gfx11 has all of gfx12's rows",
        old="row_step = 2;\nROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {\n    return lane() / 16;",
        new="row_step = 1;\nROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {\n    return lane() / 16 * kept;",
    ),
    Mutation(
        what="gfx12 has all of gfx11's rows",
        old="row_step = 1;\nROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {\n    return lane() / 16 * kept;",
        new="row_step = 2;\nROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {\n    return lane() / 16;",
        arch="gfx1201",
    ),
    Mutation(
        what="B's halves of k swapped and A's not",
        old="f32_16x16x16_f16_w32(whole_line(a), whole_line(b), c)",
        new="f32_16x16x16_f16_w32(whole_line(a), __builtin_shufflevector(whole_line(b), whole_line(b), "
        "8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7), c)",
        extra=(EXACT,),
    ),
    Mutation(
        what="two elements of B swapped along k and A's not",
        old="f16_16x16x16_f16_w32_gfx12(a, b, c)",
        new="f16_16x16x16_f16_w32_gfx12(a, __builtin_shufflevector(b, b, 1, 0, 2, 3, 4, 5, 6, 7), c)",
        arch="gfx1201",
    ),
    Mutation(
        what="each half wave's halves of k swapped in A alone",
        old="f32_16x16x16_f16_w32(whole_line(a), ",
        new="f32_16x16x16_f16_w32(__builtin_shufflevector(whole_line(a), whole_line(a), "
        "2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13), ",
    ),
    Mutation(
        what="gfx12 half waves overlap in k",
        old="first_k() {\n    return lane() / 16 * kept;",
        new="first_k() {\n    return lane() / 16 * 4;",
        arch="gfx1201",
    ),
    Mutation(
        what="lanes of the block, not of the wave", old="workitem_id_x() % 32", new="workitem_id_x() % 64"
    ),
    Mutation(
        what="what was there already is left out",
        old="multiply_add(a.x, b.x, c.x);",
        new="multiply_add(a.x, b.x, c.x - c.x);",
        arch="gfx1201",
    ),
    Mutation(
        what="column-major B read along its rows",
        old="matrix_b, 16, 16, 16, __half, col_major> & loaded, const __half * matrix, uint32_t stride) {\n"
        "    loaded.x = stand_in::load_along_line",
        new="matrix_b, 16, 16, 16, __half, col_major> & loaded, const __half * matrix, uint32_t stride) {\n"
        "    loaded.x = stand_in::load_across_lines",
    ),
    Mutation(
        what="an accumulator of seven elements",
        old="kept_type x;\n    static constexpr uint32_t num_elements = stand_in::kept;",
        new="kept_type x;\n    static constexpr uint32_t num_elements = stand_in::kept - 1;",
        says="element by element",
    ),
    Mutation(
        what="a stride off by one",
        old="row_step * stride : row_step",
        new="row_step * stride + (stride > 16) : row_step",
    ),
    Mutation(
        what="half a line from the element before",
        old="stride + first_k()));",
        new="stride + first_k() - 8));",
    ),
)


@pytest.mark.parametrize(
    "mutation",
    ordinary(MUTATIONS, MUTATIONS[::12], pytest.mark.hours),
    ids=lambda one: one.what.replace(" ", "-"),
)
def test_a_wrong_header_is_found_out(run_over: RunOver, tmp_path: Path, mutation: Mutation) -> None:
    include = _mutated(tmp_path, mutation)
    done = run_over("rocwmma_fragments", include=include, arch=mutation.arch, extra=mutation.extra)
    assert done.returncode in {1, -signal.SIGABRT}
    assert re.search(mutation.says, done.stdout + done.stderr), done.stdout + done.stderr


def test_a_header_that_claims_more_alignment_than_is_asked_for_is_found_out(
    run_over: RunOver, tmp_path: Path
) -> None:
    """The machine code is the same; with CLAIMS, the compiler has each access checked for what is claimed."""
    mutation = Mutation(what="alignment promised that is not asked for", old="aligned(16)", new="aligned(64)")
    done = run_over("rocwmma_fragments", include=_mutated(tmp_path, mutation), extra=CLAIMS)
    assert done.returncode == -signal.SIGABRT
    assert "the kernel trapped" in done.stderr


IN_ORDER = " ".join(map(str, range(16)))


def _orders(*halves: str) -> str:
    return "".join(f"order of k in lanes {half}\n" for half in halves) + "0 wrong\n"


@pytest.mark.parametrize(
    ("arch", "extra", "orders"),
    [
        (
            "gfx1151",
            (),
            _orders(
                "0 to 15: 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15",
                "16 to 31: 8 9 0 1 10 11 2 3 12 13 4 5 14 15 6 7",
            ),
        ),
        ("gfx1151", (EXACT,), _orders(f"0 to 15: {IN_ORDER}", f"16 to 31: {IN_ORDER}")),
        ("gfx1201", (), "order of k: 0 1 2 3 8 9 10 11 4 5 6 7 12 13 14 15\n0 wrong\n"),
    ],
)
def test_operands_and_accumulators_reach_the_instruction_as_the_guide_says_but_for_the_order_of_k(
    run_over: RunOver, arch: str, extra: tuple[str, ...], orders: str
) -> None:
    done = run_over("matrix_instruction", arch=arch, extra=extra)
    assert (done.returncode, done.stdout, done.stderr) == (0, orders, "")


REORDERINGS = (
    (
        Mutation(
            what="two registers of a line swapped",
            old="0, 1, 2, 3, 4, 5, 6, 7",
            new="0, 1, 3, 2, 4, 5, 6, 7",
        ),
        "0 1 2 3 6 7 4 5 8 9 10 11 12 13 14 15",
    ),
    (
        Mutation(
            what="half waves hold each other's half of k",
            old="first_k() {\n    return lane() / 16 * kept;",
            new="first_k() {\n    return (1 - lane() / 16) * kept;",
        ),
        "8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7",
    ),
)


@pytest.mark.parametrize(("reordering", "order"), REORDERINGS, ids=["registers", "half-waves"])
def test_another_order_of_k_is_right_but_not_the_guides(
    run_over: RunOver, tmp_path: Path, reordering: Mutation, order: str
) -> None:
    """What is changed in A and B alike changes no product."""
    include = _mutated(tmp_path, reordering)
    done = run_over("rocwmma_fragments", include=include, extra=(EXACT,))
    assert (done.returncode, done.stdout) == (0, "0 wrong\n")
    done = run_over("matrix_instruction", include=include, extra=(EXACT,))
    assert done.stdout == _orders(f"0 to 15: {order}", f"16 to 31: {order}")


def test_rocwmma_itself_passes_with_the_same_operands(run_over: RunOver, hip_toolchain: Toolchain) -> None:
    """AMD tests it on the hardware: would it fail, then the emulator or these programs were wrong."""
    found = hip_toolchain.rocwmma
    if found is None or found.kind == "stand-in" or not knows_arch(found, "gfx1151"):
        pytest.skip("this toolchain has no rocWMMA for gfx1151")
    theirs = {"include": found.include, "extra": ("-w", "-include", "string")}
    done = run_over("rocwmma_fragments", **theirs)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n")
    handed_over = [run_over("matrix_instruction", **options).stdout for options in (theirs, {})]
    assert handed_over[0] == handed_over[1]


def _mutated(folder: Path, mutation: Mutation) -> Path:
    include = folder / "mutated"
    shutil.copytree(STANDIN, include)
    holders = [path for path in (include / "rocwmma").iterdir() if mutation.old in path.read_text("utf-8")]
    assert len(holders) == 1
    text = holders[0].read_text("utf-8")
    assert text.count(mutation.old) == 1
    holders[0].write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return include
