"""The model of a GPU's time gives for small kernels what others measured of such kernels on a gfx1151."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.errors import ToolchainError
from patchkit.base.store import Store
from patchkit.gpu.modelled.machine import KernelTime, Machine, Played, load_machine, play
from patchkit.toolchain.compiler import Compiler

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_MACS_OF_WMMA = 16 * 16 * 16
_TURNS, _WAVES = 64, 160 * 8  # of timed_kernels.hip: blocks of 256 threads
_SIMDS = 80
_RESULT_BYTES = 1024  # that a block of 256 threads stores at its end


@pytest.fixture
def machine(checkout: Path, device) -> Machine:
    return load_machine(checkout / "arch_profiles", device)


@pytest.fixture
def timed(compile_program, emulate, compiler, machine, tmp_path: Path):
    """``timed(name)`` is the modelled time of one of the kernels; ``cold``: with nothing in a cache."""

    def run(name: str, *, cold: float = 0.0, working: float = 1.0, at: Machine = machine) -> KernelTime:
        folder = tmp_path / name
        if not folder.exists():
            folder.mkdir()
            recorded = {
                "PATCHKIT_EMULATOR_RECORD": str(folder),
                "PATCHKIT_EMULATOR_SAMPLED": "4",
                "PATCHKIT_EMULATOR_SEEN": "512",
                "PATCHKIT_EMULATOR_LATER": "8",
            }
            done = emulate(compile_program("timed_kernels", "-O3"), name, **recorded)
            assert (done.returncode, done.stderr) == (0, "")
        (trace,) = folder.glob("*.trace")
        (found,) = play(at, [Played(trace=trace, cold=cold, working=working)], compiler)
        return found

    return run


# Published: 24.2 (shcherbakov22), 27.6 (rdna-boosts) and 27.7 TMAC/s (rocm-cpp).
@pytest.mark.parametrize("kernel", ["wmma_f16", "wmma_iu8"])
def test_matrix_instructions_come_at_the_published_rate(timed, kernel):
    found = timed(kernel)
    rate = _WAVES * _TURNS * 8 * _MACS_OF_WMMA / found.us / 1e6
    assert 24.0 < rate < 27.8
    assert found.busy.wmma > 0.9


def test_under_a_power_limit_matmuls_get_slower_and_reading_memory_hardly_does(timed, machine):
    limited = machine.at_power(80)
    cool, warm = timed("wmma_f16"), timed("wmma_f16", at=limited)
    assert warm.us / cool.us == pytest.approx(1 / limited.sustained, rel=0.03)
    read, read_warm = timed("rows_beside", cold=1.0), timed("rows_beside", cold=1.0, at=limited)
    assert read_warm.us / read.us < 1.06


def test_loads_from_lds_beside_them_cost_what_was_published(timed):
    alone, beside = timed("wmma_iu8"), timed("wmma_and_lds")
    per_wmma = beside.cycles * _SIMDS / (_WAVES * _TURNS * 2) - alone.cycles * _SIMDS / (_WAVES * _TURNS * 8)
    # 7.7 cycles for each of the four loads (shcherbakov22/strix-halo-inference docs/hardware.md).
    assert 4 * 5.5 < per_wmma < 4 * 8.5


def test_dot_products_come_at_the_published_rate(timed):
    found = timed("dot4")
    rate = _WAVES * _TURNS * 8 * 32 * 4 / found.us / 1e6
    # 14.48 TMAC/s (shcherbakov22/strix-halo-inference docs/kernel-tuning.md); its clock was not recorded.
    assert 10.5 < rate < 15.5


def test_rows_in_one_channel_of_the_memory_have_that_ones_bandwidth(timed):
    # Rows of 256 bytes are each in another channel, 4096 bytes apart all in one of 16 (llama.cpp PR 27703)
    beside, apart = timed("rows_beside", cold=1.0), timed("rows_apart", cold=1.0)
    assert (beside.channels, apart.channels) == (pytest.approx(16, abs=0.5), pytest.approx(1, abs=0.2))
    assert beside.dram_bytes == pytest.approx(apart.dram_bytes)
    assert 14 < apart.us / beside.us < 24


def test_rows_that_are_a_third_of_each_page_come_slower_from_dram(timed, machine):
    whole, pieces = timed("rows_beside", cold=1.0), timed("rows_in_thirds", cold=1.0)
    assert pieces.dram_bytes == pytest.approx(whole.dram_bytes)
    assert pieces.channels == pytest.approx(16, abs=0.5)
    slower = machine.file.figures.dram_gb_s.value / machine.file.figures.dram_pieces_gb_s.value
    assert pieces.us / whole.us == pytest.approx(slower, rel=0.1)


def test_rows_that_share_a_set_of_the_vector_cache_push_each_other_out(timed):
    # 128 lines of the 256 that it has. 1024 bytes apart they are in one set of 64.
    assert timed("again_apart").l1_bytes > 20 * timed("again_beside").l1_bytes


def test_what_the_blocks_want_more_of_than_l2_holds_comes_from_behind_it_again(timed):
    # 160 blocks: 1.3 MB stay in the 2 MiB of L2, 10.5 MB in the 32 MiB of the memory-side cache.
    little, much = timed("own_8k", cold=1.0), timed("own_64k", cold=1.0)
    assert little.dram_bytes == pytest.approx(160 * (8192 + _RESULT_BYTES), rel=0.02)
    assert much.dram_bytes == pytest.approx(160 * (65536 + _RESULT_BYTES), rel=0.02)
    assert little.busy.mall < 0.002
    assert much.busy.mall > 0.02


def test_what_all_blocks_share_comes_once_and_then_from_l1(timed):
    shared, own = timed("shared_64k", cold=1.0), timed("own_64k", cold=1.0)
    assert shared.dram_bytes == pytest.approx(65536 + 160 * _RESULT_BYTES, rel=0.02)
    assert shared.busy.l1 > 8 * shared.busy.l2
    assert own.busy.l1 < 3 * own.busy.l2


def test_whoever_shares_lines_waits_for_them_as_long_as_the_first(timed, machine):
    far, near = timed("shared_64k", cold=1.0), timed("shared_64k", cold=0.0)
    figures = machine.file.figures
    each = figures.dram_latency_ns.value - figures.mall_latency_ns.value
    # All 160 blocks run at a time; 256 threads take two steps through the 512 lines in the first pass, and
    # at the end each stores its result.
    assert 2 * each < 1e3 * (far.us - near.us) < 3.2 * each


def test_what_the_round_before_had_comes_from_the_first_cache_that_keeps_it_that_long(timed):
    # Four rounds of 160 blocks. A round wants 1.3 MB, less than the 2 MiB of L2, or 5.2 MB, or 42 MB, more
    # than the 32 MiB of the memory-side cache.
    again, others = timed("round_again_32k", cold=1.0), timed("rounds_32k", cold=1.0)
    small, large = timed("round_again_8k", cold=1.0), timed("round_again_256k", cold=1.0)
    results = 640 * _RESULT_BYTES
    assert others.dram_bytes - results == pytest.approx(640 * 32768, rel=0.02)
    assert again.dram_bytes - results == pytest.approx(160 * 32768, rel=0.1)
    assert small.dram_bytes - results == pytest.approx(160 * 8192, rel=0.1)
    assert large.dram_bytes - results == pytest.approx(640 * 262144, rel=0.02)
    assert again.busy.mall > 0.02
    assert small.busy.mall < 0.002
    assert again.us < 0.8 * others.us


def test_a_channel_gives_one_line_after_the_other(timed, machine):
    # 64 rows of 256 bytes that one block wants at a time, all in one channel or four in each of 16.
    beside, apart = timed("row_beside", cold=1.0), timed("row_apart", cold=1.0)
    assert apart.dram_bytes == beside.dram_bytes
    longer = 64 * 256 / machine.file.figures.dram_gb_s.value * (16 - 1)  # ns
    assert 1e3 * (apart.us - beside.us) == pytest.approx(longer, rel=0.15)


def test_blocks_that_want_more_of_the_memory_than_others_get_more_of_it(timed):
    # All blocks of the WGP that is played want twice as much as those of the other 19.
    even, uneven = timed("even", cold=1.0), timed("uneven", cold=1.0)
    assert uneven.instructions > 1.5 * even.instructions
    assert 1.0 < uneven.us / even.us < 1.25


def test_a_last_round_of_few_blocks_takes_no_longer_than_memory_needs_for_all(timed):
    # 160 blocks run at a time. Of 180 the busiest WGP has ten, the mean is nine.
    whole, more = timed("even", cold=1.0), timed("more_than_a_round", cold=1.0)
    assert more.dram_bytes / whole.dram_bytes == pytest.approx(180 / 160, rel=0.01)
    assert more.busy.dram > 0.9
    assert more.us / whole.us == pytest.approx(180 / 160, rel=0.04)


def test_a_loop_that_the_instruction_cache_does_not_hold_waits_for_its_code(timed):
    small, large = timed("loop_16k"), timed("loop_30k")
    assert large.instructions / small.instructions == pytest.approx(3800 / 2000, rel=0.01)
    # Once through each loop is fetched in any case, a sixteenth of the turns.
    assert small.busy.code < 0.02
    assert large.busy.code > 3 * small.busy.code
    assert large.us / small.us > 1.05 * 3800 / 2000


def test_blocks_without_work_take_no_time(timed):
    all_work, some = timed("dot4"), timed("dot4_of_some", working=1 / 8)
    assert (all_work.blocks, some.blocks) == (160, 20)  # eight and one of each WGP
    assert 1 / 8 < some.us / all_work.us < 1 / 4


def test_whole_blocks_are_those_that_begin_on_one_wgp(timed, tmp_path: Path):
    timed("dot4")
    (trace,) = (tmp_path / "dot4").glob("*.trace")
    # 160 blocks on 20 WGPs, eight of which are held by each; four were asked for.
    assert b"\nsampled 0 20 40 60\n" in trace.read_bytes()


def _keeping_in(folder: Path, compiler: Compiler) -> Compiler:
    """With the store's programs and nothing that was played."""
    (folder / "objects").symlink_to(compiler.store.root)
    return replace(compiler, store=Store(root=folder / "objects"))


def test_a_trace_says_what_ran_and_is_played_the_same_each_time(timed, compiler, machine, tmp_path: Path):
    first = timed("dot4")
    (trace,) = (tmp_path / "dot4").glob("*.trace")
    text = trace.read_bytes().partition(b"\nend\n")[0].decode()
    assert text.startswith("patchkit-trace 4\nkernel ")
    assert "grid 160 1 1\nblock 256 1 1\n" in text
    assert sum("v_dot4_i32_iu8" in line for line in text.splitlines()) == 8
    assert "blocks 4\nseen 160" in text
    assert play(machine, [Played(trace=trace, cold=0.0)], _keeping_in(tmp_path, compiler)) == (first,)


def test_a_packed_trace_is_played_like_the_plain_one_and_a_damaged_one_is_told(
    timed, compiler, machine, tmp_path: Path
):
    first = timed("dot4")
    (trace,) = (tmp_path / "dot4").glob("*.trace")
    packed = tmp_path / "packed.trace"
    whole = lzma.compress(trace.read_bytes())
    packed.write_bytes(whole)
    empty = _keeping_in(tmp_path, compiler)
    assert play(machine, [Played(trace=packed, cold=0.0)], empty) == (first,)
    for damaged in (whole[:-100], whole[:100] + b"\0" * 100 + whole[200:]):
        packed.write_bytes(damaged)
        with pytest.raises(ToolchainError) as caught:
            play(machine, [Played(trace=packed, cold=0.0)], empty)
        assert caught.value.code == "TRACE_UNREADABLE"
    assert not list((tmp_path / "timing").glob("playing-*"))


def test_a_trace_that_would_lead_beyond_its_own_end_is_told(timed, compiler, machine, tmp_path: Path):
    first = timed("dot4")
    (trace,) = (tmp_path / "dot4").glob("*.trace")
    whole = trace.read_bytes()
    head, end, words = whole.partition(b"\nend\n")
    empty = _keeping_in(tmp_path, compiler)
    no_waves = head + end + words[:12] + bytes(4) + words[16:]
    for why, wrong in (
        ("a block has no waves", no_waves),
        ("a wave does not reach its end", whole.replace(b" s_endpgm", b" s_nop 0")),
    ):
        trace.write_bytes(wrong)
        with pytest.raises(ToolchainError) as caught:
            play(machine, [Played(trace=trace, cold=0.0)], empty)
        assert caught.value.code == "TRACE_UNREADABLE"
        assert why in (caught.value.why or "")
    # Of an instruction that is none nothing is taken, and no more comes again than was touched.
    trace.write_bytes(head + b"\nagain 4000000000 1 1\nagain 0 1 900" + end + words)
    assert play(machine, [Played(trace=trace, cold=0.0)], empty) == (first,)


def test_what_was_played_is_kept_until_a_figure_or_the_trace_is_another(
    timed, compiler, machine, tmp_path: Path
):
    timed("dot4")
    (trace,) = (tmp_path / "dot4").glob("*.trace")
    empty = _keeping_in(tmp_path, compiler)

    def kept() -> list[Path]:
        return sorted(tmp_path.glob("timing/played/*/*/time.json"))

    first = play(machine, [Played(trace=trace, cold=0.0)] * 2, empty)
    (entry,) = kept()
    entry.write_text(first[0].model_copy(update={"us": 4711.0}).model_dump_json())
    assert play(machine, [Played(trace=trace, cold=0.0)], empty)[0].us == 4711
    entry.write_text("{}")  # not whole: played again, and mended
    assert play(machine, [Played(trace=trace, cold=0.0)] * 2, empty) == first
    assert KernelTime.model_validate_json(entry.read_bytes()) == first[0]
    play(machine, [Played(trace=trace, cold=1.0)], empty)
    play(machine, [Played(trace=trace, cold=0.0, working=0.5)], empty)
    play(machine, [Played(trace=trace, cold=0.0)], empty, most=1000)
    faster = replace(machine.file.figures, dot=replace(machine.file.figures.dot, value=0.5))
    other = replace(machine, file=replace(machine.file, figures=faster))
    assert play(other, [Played(trace=trace, cold=0.0)], empty) != first[:1]
    copy = tmp_path / "another.trace"
    copy.write_bytes(trace.read_bytes().replace(b"\ngrid 160 1 1\n", b"\ngrid 320 1 1\n", 1))
    play(machine, [Played(trace=copy, cold=0.0)], empty)
    assert len(kept()) == 6
