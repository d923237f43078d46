"""The main loop of a kernel and its instructions, from assembly as clang 22 writes it."""

from __future__ import annotations

from refusing import refused

from patchkit.tune.isa import loop_lines, mix_of

# Made by hand in the layout of clang 22: a prologue, a small loop, the main loop with an inner one, an end.
ASSEMBLY = """
	.section	.text._Z1kv,"axG",@progbits,_Z1kv,comdat
_Z1kv:                                  ; @_Z1kv
; %bb.0:
	s_load_b64 s[0:1], s[0:1], 0x0
	ds_store_b32 v1, v2
	s_branch .LBB0_2
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	v_add_nc_u32_e32 v1, 1, v1
	s_cbranch_scc1 .LBB0_1
.LBB0_2:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_3 Depth 2
	ds_load_b128 v[4:7], v1
	ds_load_2addr_b32 v[8:9], v1 offset1:32
	s_waitcnt lgkmcnt(0)
	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
	s_barrier
.LBB0_3:                                ;   Parent Loop BB0_2 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	global_load_d16_b16 v34, v[36:37], off
	scratch_store_b32 off, v1, s0
	s_cbranch_scc1 .LBB0_3
; %bb.4:                                ;   in Loop: Header=BB0_2 Depth=1
	v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v3, v4
	ds_swizzle_b32 v32, v10 offset:swizzle(SWAP,16)
	s_cbranch_scc1 .LBB0_2
; %bb.5:
	global_store_b32 v0, v1, s[0:1]
	s_endpgm
	.section	.rodata,"a",@progbits
"""


def test_the_loop_with_matrix_instructions_is_the_main_one() -> None:
    mix = mix_of(ASSEMBLY, "_Z1kv")
    assert (mix.matrix, mix.barriers, mix.loads, mix.stores, mix.scratch) == (1, 1, 1, 0, 1)
    assert mix.lds == 3
    assert mix.lds_bytes == 16 + 8 + 4
    assert mix.instructions == 10  # s_waitcnt takes no unit
    assert mix.valu == 2


def test_blocks_of_inner_loops_belong_to_the_outermost() -> None:
    lines = loop_lines(ASSEMBLY, "_Z1kv")
    assert any("BB0_3:" in line for line in lines)
    assert not any("s_endpgm" in line or "v_add_nc" in line for line in lines)


def test_without_a_loop_the_whole_body_counts() -> None:
    straight = "\n_Z1kv:\n; %bb.0:\n\tv_mov_b32_e32 v0, 0\n\ts_endpgm\n\t.section\t.rodata\n"
    assert mix_of(straight, "_Z1kv").instructions == 2


def test_a_missing_kernel_is_an_error() -> None:
    with refused("COMPILER_OUTPUT_UNREADABLE", match="_Z5otherv"):
        mix_of(ASSEMBLY, "_Z5otherv")
