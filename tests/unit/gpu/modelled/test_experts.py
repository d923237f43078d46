"""Products of experts: which of their blocks have work."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from patchkit.gpu.modelled.operation import attention_case, drawn_tiles, matrix_case, working_of
from patchkit.gpu.modelled.recording import Recorded, TraceHead
from patchkit.gpu.modelled.roofline import distinct_experts

MMQ = "_Z9mul_mat_qIL9ggml_type12ELi128ELb0EL9ggml_prec10EEvPKc"


def _working(tokens: int, grid: tuple[int, int, int], experts: int = 128, used: int = 8) -> float:
    case = matrix_case("q4_K", 768, 2048, tokens, experts=experts, used=used)
    return working_of(case, TraceHead(kernel=MMQ, grid=grid))


def test_experts_without_tokens_have_no_work():
    # 2 tokens of 8 experts each: 16 of 128 experts have one.
    assert _working(2, (6, 1, 128)) == pytest.approx(16 / 128)
    assert _working(16, (6, 1, 128)) == 1.0


def test_blocks_beyond_the_tokens_of_an_expert_have_no_work():
    # 512 tokens: 32 for each expert, in one of four tiles of 128.
    assert _working(512, (6, 4, 128)) == pytest.approx(1 / 4)
    assert _working(2048, (6, 16, 128)) == pytest.approx(1 / 16)


def test_experts_that_are_drawn_need_tiles_for_more_than_the_mean():
    # Two tokens take one of two experts: both the same one, or one each.
    assert drawn_tiles(2, 1 / 2, 1) == pytest.approx(1)
    assert drawn_tiles(2, 1 / 2, 2) == pytest.approx(3 / 4)
    assert drawn_tiles(96, 1.0, 32) == 3
    # What a batch touches, as the bound has it.
    assert drawn_tiles(4, 8 / 128, 128) == pytest.approx(distinct_experts(128, 8, 4) / 128)
    # 512 tokens, 32 for each of 128 experts on average: with tiles of 32 nearly every second one has two.
    case = matrix_case("q4_K", 768, 2048, 512, experts=128, used=8)
    head = TraceHead(kernel=MMQ.replace("Li128E", "Li32E"), grid=(12, 16, 128))
    assert working_of(case, head) * 16 == pytest.approx(1)
    assert working_of(case, head, is_drawn=True) * 16 == pytest.approx(1.455, abs=0.01)


def test_our_own_kernel_has_its_tiles_of_columns_first():
    case = matrix_case("q4_K", 768, 2048, 512, experts=128, used=8)
    own = "_ZL15mul_mat_promptsIL9ggml_type12ELi64ELb1EEvPKc"
    head = TraceHead(kernel=own, grid=(8, 6, 128))
    assert working_of(case, head) * 8 == pytest.approx(1)
    assert working_of(case, head, is_drawn=True) * 8 == pytest.approx(1, abs=0.001)


def test_other_launches_stand_for_themselves():
    experts = matrix_case("q4_K", 768, 2048, 2, experts=128, used=8)
    for case, kernel, grid in (
        (matrix_case("q4_K", 768, 2048, 2), MMQ, (6, 1, 1)),
        (experts, MMQ.replace("mul_mat_q", "mul_mat_x"), (6, 1, 128)),
        (experts, MMQ, (40, 1, 1)),  # a kernel that splits the work of all experts itself
        (attention_case(64, 8, 8, kv=256, tokens=1), MMQ, (6, 1, 128)),
    ):
        assert working_of(case, TraceHead(kernel=kernel, grid=grid)) == 1.0


def test_a_trace_says_what_ran(tmp_path: Path):
    path = tmp_path / "0.trace"
    path.write_bytes(
        f"patchkit-trace 4\nkernel {MMQ}\ngrid 6 4 128\nblock 32 8 1\n".encode()
        + b"vgprs 64\nlds 4096\nsampled 0 20 40\nend\n\xff\0"
    )
    (head,) = Recorded(traces=(path,), products=()).heads
    assert head == TraceHead(kernel=MMQ, grid=(6, 4, 128), block=(32, 8, 1), lds=4096)
    packed = lzma.compress(path.read_bytes())
    path.write_bytes(packed)
    assert Recorded(traces=(path,), products=()).heads == (head,)
    for nothing in (b"nothing", packed[:20]):
        path.write_bytes(nothing)
        (head,) = Recorded(traces=(path,), products=()).heads
        assert head == TraceHead(kernel="", grid=(1, 1, 1))
