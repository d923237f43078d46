"""Instructions that the pseudocode's families have not.

Those of RDNA4 alone, and those that move registers by M0, count lanes, go by a buffer or call. What they must
leave was worked out by hand from the ISA guides.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from pseudocode.assembly import Assembler
from pseudocode.emulated import run_cases

from patchkit.gpu.emulated.emulator import build_alone, find_disassembler, this_level

pytestmark = [pytest.mark.hip, pytest.mark.slow]

Run = Callable[..., dict[str, Any]]

_LANES = 32
_NAN, _ANY_NAN = 0x7FA00000, "nan"


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f16(value: float) -> int:
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


@pytest.fixture(scope="module")
def run(compiler) -> Run:
    """What a program leaves in lane 0 of v0 to v9, or in all lanes; in s0 to s9 and EXEC."""
    disassembler = find_disassembler(compiler.toolchain)
    program = build_alone(compiler, this_level())
    assemblers: dict[str, Assembler] = {}

    def go(
        arch: str,
        lines: str,
        *,
        v: dict[int, Any] | None = None,
        s: dict[int, int] | None = None,
        **more: int,
    ):
        one = assemblers.setdefault(
            arch, Assembler(compiler.toolchain.clang.parent / "llvm-mc", disassembler, arch)
        )
        made = one.assemble([line.strip() for line in lines.split(";")])
        assert all(made), lines
        before = {
            "exec": f"{more.get('exec', 0xFFFFFFFF):x}",
            "vcc": "0",
            "m0": f"{more.get('m0', 0):x}",
            "scc": f"{more.get('scc', 0)}",
            "v": {
                str(n): [f"{each:x}" for each in values] if isinstance(values, list) else f"{values:x}"
                for n, values in (v or {}).items()
            },
            "s": {str(n): f"{bits:x}" for n, bits in (s or {}).items()},
        }
        code = b"".join(code for code, _ in made).hex()
        case = {"name": "one", "lanes": _LANES, "code": code, "mode": "f0", "before": before}
        (left,) = run_cases([case], arch, program=program, disassembler=disassembler)
        assert "fault" not in left, left
        return left

    return go


def _lanes(left: dict[str, Any], number: int) -> list[int]:
    held = left["after"]["v"].get(str(number), "0")
    return [int(held, 16)] * _LANES if isinstance(held, str) else [int(one, 16) for one in held]


def _scalar(left: dict[str, Any], number: int) -> int:
    return int(left["after"]["s"].get(str(number), "0"), 16)


def _is_nan_32(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


# ---- RDNA4


@pytest.mark.parametrize(
    ("text", "sources", "wanted"),
    [
        ("v_maximum_f32 v0, v1, v2", (f32(1), f32(2)), f32(2)),
        ("v_maximum_f32 v0, v1, v2", (f32(-0.0), f32(0)), f32(0)),
        ("v_maximum_f32 v0, v1, v2", (f32(1), _NAN), _ANY_NAN),
        ("v_minimum_f32 v0, v1, v2", (f32(0), f32(-0.0)), f32(-0.0)),
        ("v_minimum_f32 v0, v1, v2", (_NAN, f32(1)), _ANY_NAN),
        ("v_maximum3_f32 v0, v1, v2, v3", (f32(1), f32(7), f32(3)), f32(7)),
        ("v_maximum3_f32 v0, v1, v2, v3", (f32(1), f32(7), _NAN), _ANY_NAN),
        ("v_minimum3_f32 v0, v1, v2, v3", (f32(4), f32(7), f32(3)), f32(3)),
        ("v_maximumminimum_f32 v0, v1, v2, v3", (f32(4), f32(7), f32(5)), f32(5)),
        ("v_minimummaximum_f32 v0, v1, v2, v3", (f32(4), f32(7), f32(5)), f32(5)),
        ("v_minimummaximum_f32 v0, v1, v2, v3", (f32(4), _NAN, f32(5)), _ANY_NAN),
        ("v_maximum_f16 v0, v1, v2", (f16(1), f16(2)), f16(2)),
        ("v_minimum_f16 v0, v1, v2", (f16(1), f16(2)), f16(1)),
        ("v_maximum3_f16 v0, v1, v2, v3", (f16(1), f16(2), f16(9)), f16(9)),
        ("v_minimum3_f16 v0, v1, v2, v3", (f16(1), f16(2), f16(-9)), f16(-9)),
        ("v_maximumminimum_f16 v0, v1, v2, v3", (f16(1), f16(2), f16(9)), f16(2)),
        ("v_minimummaximum_f16 v0, v1, v2, v3", (f16(1), f16(2), f16(9)), f16(9)),
        (
            "v_pk_maximum_f16 v0, v1, v2",
            (f16(1) | f16(5) << 16, f16(2) | f16(4) << 16),
            f16(2) | f16(5) << 16,
        ),
        (
            "v_pk_minimum_f16 v0, v1, v2",
            (f16(1) | f16(5) << 16, f16(2) | f16(4) << 16),
            f16(1) | f16(4) << 16,
        ),
        ("v_pk_maximum_f16 v0, v1, v2", (0x7D00, f16(2)), 0x7F00),
        ("v_cvt_f32_fp8 v0, v1", (0x38,), f32(1)),
        ("v_cvt_f32_fp8 v0, v1", (0x01,), f32(2**-9)),
        ("v_cvt_f32_fp8 v0, v1", (0xFE,), f32(-448)),
        ("v_cvt_f32_fp8 v0, v1", (0x7F,), _ANY_NAN),
        ("v_cvt_f32_fp8_e64 v0, v1 byte_sel:2", (0x00B80000,), f32(-1)),
        ("v_cvt_f32_bf8 v0, v1", (0x3C,), f32(1)),
        ("v_cvt_f32_bf8 v0, v1", (0x01,), f32(2**-16)),
        ("v_cvt_f32_bf8 v0, v1", (0x7B,), f32(57344)),
        ("v_cvt_f32_bf8 v0, v1", (0xFC,), f32(-math.inf)),
        ("v_cvt_f32_bf8_e64 v0, v1 byte_sel:3", (0xC0000000,), f32(-2)),
        ("v_cvt_pk_fp8_f32 v0, v1, v2", (f32(1), f32(-448)), 0xFE38),
        ("v_cvt_pk_fp8_f32 v0, v1, v2", (f32(1.0625), f32(1.1875)), 0x3A38),  # ties go to even
        ("v_cvt_pk_fp8_f32 v0, v1, v2", (f32(2**-9), f32(2**-10)), 0x0001),
        ("v_cvt_pk_fp8_f32 v0, v1, v2", (f32(3 * 2**-11), f32(1e-30)), 0x0001),
        ("v_cvt_pk_fp8_f32 v0, v1, v2", (f32(1e6), f32(math.inf)), 0x7F7F),
        ("v_cvt_pk_bf8_f32 v0, v1, v2", (f32(1), f32(-2)), 0xC03C),
        ("v_cvt_pk_bf8_f32 v0, v1, v2", (f32(2**-16), f32(1e9)), 0x7C01),
        ("v_cvt_sr_fp8_f32 v0, v1, v2", (f32(1.0625), 0), 0x38),
        ("v_cvt_sr_fp8_f32 v0, v1, v2", (f32(1.0625), 0xFFFFFFFF), 0x39),
        ("v_cvt_sr_bf8_f32 v0, v1, v2 byte_sel:1", (f32(1), 0), 0x3C00),
        ("v_dot4_f32_fp8_fp8 v0, v1, v2, v3", (0x38383838, 0x40404040, f32(3)), f32(11)),
        ("v_dot4_f32_fp8_bf8 v0, v1, v2, v3", (0x00000038, 0x000000C0, f32(3)), f32(1)),
        ("v_dot4_f32_bf8_fp8 v0, v1, v2, v3", (0x3C000000, 0x40000000, f32(3)), f32(5)),
        ("v_dot4_f32_bf8_bf8 v0, v1, v2, v3", (0x3C3C3C3C, 0x3C3C3C3C, 0), f32(4)),
    ],
)
def test_floats_of_rdna4(run, text, sources, wanted):
    left = _lanes(run("gfx1201", text, v=dict(enumerate(sources, 1))), 0)[0]
    assert _is_nan_32(left) if wanted == _ANY_NAN else left == wanted, hex(left)


def test_two_bytes_of_either_half_become_floats(run):
    left = run(
        "gfx1201",
        "v_cvt_pk_f32_fp8_e64 v[4:5], v1 op_sel:[1,0]; v_cvt_pk_f32_bf8 v[6:7], v1",
        v={1: 0xB838403C},
    )
    assert [_lanes(left, n)[0] for n in (4, 5, 6, 7)] == [f32(1), f32(-1), f32(1), f32(2)]


def test_doubles_of_rdna4(run):
    one, nan = 0x3FF0000000000000, 0x7FF4000000000000
    for name, a, b, wanted in (
        ("v_maximum_f64", one, 0, one),
        ("v_minimum_f64", one, 0, 0),
        ("v_maximum_f64", one, nan, 0x7FFC000000000000),
    ):
        registers = {2: a & 0xFFFFFFFF, 3: a >> 32, 4: b & 0xFFFFFFFF, 5: b >> 32}
        left = run("gfx1201", f"{name} v[0:1], v[2:3], v[4:5]", v=registers)
        assert _lanes(left, 0)[0] | _lanes(left, 1)[0] << 32 == wanted


@pytest.mark.parametrize(
    ("text", "sources", "wanted"),
    [
        ("s_maximum_f32 s0, s1, s2", (f32(1), f32(2)), f32(2)),
        ("s_minimum_f32 s0, s1, s2", (f32(0), f32(-0.0)), f32(-0.0)),
        ("s_maximum_f32 s0, s1, s2", (f32(1), _NAN), 0x7FE00000),
        ("s_maximum_f16 s0, s1, s2", (f16(1), f16(2)), f16(2)),
        ("s_minimum_f16 s0, s1, s2", (f16(1), 0x7D00), 0x7F00),
    ],
)
def test_scalar_floats_of_rdna4(run, text, sources, wanted):
    assert _scalar(run("gfx1201", text, s=dict(enumerate(sources, 1))), 0) == wanted


def test_a_matrix_of_bytes(run):
    # A is the unit matrix of fp8 (row n in lane n, k 0 to 7 in the lower half of the wave), B is 2.
    a = [0] * 64
    for row in range(16):
        lane = row + (16 if row >= 8 else 0)
        a[lane * 2 + row % 8 // 4] = 0x38 << 8 * (row % 4)
    left = run(
        "gfx1201",
        "v_wmma_f32_16x16x16_fp8_bf8 v[0:7], v[8:9], v[10:11], v[12:19]",
        v={8: a[0::2], 9: a[1::2], 10: 0x40404040, 11: 0x40404040, **{12 + n: f32(n) for n in range(8)}},
    )
    assert [_lanes(left, n)[0] for n in range(8)] == [f32(2 + n) for n in range(8)]


@pytest.mark.parametrize(
    ("name", "there", "data", "wanted"),
    [
        ("ds_sub_clamp_rtn_u32", 5, 3, 2),
        ("ds_sub_clamp_rtn_u32", 2, 3, 0),
        ("ds_cond_sub_rtn_u32", 5, 3, 2),
        ("ds_cond_sub_rtn_u32", 2, 3, 2),
        ("ds_pk_add_rtn_bf16", 0x3F804000, 0x3F803F80, 0x40004040),
    ],
)
def test_atomics_of_rdna4(run, name, there, data, wanted):
    text = f"ds_store_b32 v1, v2; {name} v4, v1, v3; ds_load_b32 v5, v1"
    left = run("gfx1201", text, v={1: 64, 2: there, 3: data}, exec=1)
    assert (_lanes(left, 4)[0], _lanes(left, 5)[0]) == (there, wanted)


# ---- Registers that M0 moves


def test_m0_moves_the_source_and_the_target(run):
    values = {n: 100 + n for n in range(1, 9)}
    left = run("gfx1151", "v_movrelsd_b32 v1, v2", v=values, m0=2)
    assert _lanes(left, 3)[0] == 104
    left = run("gfx1151", "v_movrelsd_2_b32 v1, v2", v=values, m0=4 << 16 | 3)
    assert _lanes(left, 5)[0] == 105
    left = run("gfx1151", "v_swaprel_b32 v1, v2", v=values, m0=4 << 16 | 1)
    assert (_lanes(left, 5)[0], _lanes(left, 3)[0]) == (103, 105)


def test_m0_moves_scalars(run):
    values = {n: 100 + n for n in range(2, 10)}
    assert _scalar(run("gfx1151", "s_movrels_b32 s0, s2", s=values, m0=3), 0) == 105
    left = run("gfx1151", "s_movrels_b64 s[0:1], s[2:3]", s=values, m0=2)
    assert (_scalar(left, 0), _scalar(left, 1)) == (104, 105)
    assert _scalar(run("gfx1151", "s_movreld_b32 s2, s9", s=values, m0=3), 5) == 109
    left = run("gfx1151", "s_movreld_b64 s[2:3], s[8:9]", s=values, m0=2)
    assert (_scalar(left, 4), _scalar(left, 5)) == (108, 109)
    assert _scalar(run("gfx1151", "s_movrelsd_2_b32 s2, s3", s=values, m0=1 << 16 | 4), 3) == 107


# ---- EXEC, a half of registers, a pair whose field means nothing


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("and", 0x0000_00F0),
        ("or", 0xFFFF_FFFF),
        ("xor", 0xFFFF_FF0F),
        ("nand", 0xFFFF_FF0F),
        ("nor", 0),
        ("xnor", 0x0000_00F0),
        ("and_not1", 0),
        ("or_not1", 0x0000_00F0),
        ("and_not0", 0xFFFF_FF0F),
        ("or_not0", 0xFFFF_FFFF),
    ],
)
def test_exec_is_saved_as_64_bits(run, name, wanted):
    left = run("gfx1151", f"s_{name}_saveexec_b64 s[0:1], s[2:3]", s={2: 0xF0})
    assert (int(left["after"]["exec"], 16), _scalar(left, 0)) == (wanted, 0xFFFFFFFF)


def test_exec_is_written_as_64_bits(run):
    left = run("gfx1151", "s_and_not0_wrexec_b64 s[0:1], s[2:3]", s={2: 0xF0})
    assert (int(left["after"]["exec"], 16), _scalar(left, 0)) == (0xFFFFFF0F, 0xFFFFFF0F)
    left = run("gfx1151", "s_and_not1_wrexec_b64 s[0:1], s[2:3]", s={2: 0xF0}, exec=0xF)
    assert (int(left["after"]["exec"], 16), _scalar(left, 0)) == (0xF0, 0xF0)


def test_halves_are_swapped(run):
    left = run("gfx1151", "v_swap_b16 v1.l, v2.h", v={1: 0x11112222, 2: 0x33334444})
    assert (_lanes(left, 1)[0], _lanes(left, 2)[0]) == (0x11113333, 0x22224444)


def test_a_comparison_behind_a_lane_pattern_leaves_exec(run):
    values = {1: list(range(_LANES)), 2: 4}
    text = "v_cmpx_gt_u32_dpp v1, v2 row_shr:1 row_mask:0x1 bank_mask:0xf"
    # Lane n compares what lane n - 1 has; lane 0 has no source and the second row is left out.
    assert int(run("gfx1151", text, v=values)["after"]["exec"], 16) == 0xFFC0


# ---- Counters, places by lane, calls


def test_lanes_are_counted_in_lds(run):
    text = "ds_append v1 offset:8; ds_append v2 offset:8; ds_consume v3 offset:8; ds_load_b32 v4, v5 offset:8"
    left = run("gfx1151", text, v={5: 16}, m0=16, exec=0x7)
    assert [_lanes(left, n)[0] for n in (1, 2, 3, 4)] == [0, 3, 6, 3]


def test_each_lane_has_its_own_dword(run):
    text = "ds_store_addtid_b32 v1 offset:4; ds_load_b32 v2, v3; ds_load_addtid_b32 v4 offset:4"
    values = [7 * n for n in range(_LANES)]
    left = run("gfx1151", text, v={1: values, 3: 4 + 64 + 5 * 4}, m0=64)
    assert (_lanes(left, 2)[0], _lanes(left, 4)) == (35, values)
    text = (
        "s_load_b64 s[0:1], s[80:81], null; s_waitcnt lgkmcnt(0);"
        "global_store_addtid_b32 v1, s[0:1] offset:4;"
        "global_load_addtid_b32 v4, s[0:1] offset:4; v_mov_b32 v5, 24; global_load_b32 v6, v5, s[0:1]"
    )
    left = run("gfx1151", text, v={1: values})
    assert (_lanes(left, 4), _lanes(left, 6)[0]) == (values, 35)


def test_a_call_goes_on_behind_what_it_jumps_over_and_leaves_the_way_back(run):
    left = run("gfx1151", "s_getpc_b64 s[4:5]; s_call_b64 s[2:3], 1; s_mov_b32 s0, 5; s_mov_b32 s1, 7")
    assert (_scalar(left, 0), _scalar(left, 1)) == (0, 7)
    assert (_scalar(left, 2) - _scalar(left, 4), _scalar(left, 3)) == (4, _scalar(left, 5))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ds_mskor_b64 v1, v[2:3], v[4:5]", (0xF0F5, 0x9)),
        ("ds_condxchg32_rtn_b64 v[6:7], v1, v[8:9]", (5, 9)),
        ("ds_cmpstore_rtn_f64 v[6:7], v1, v[4:5], v[10:11]", (0xF5, 0x0)),
        ("ds_wrap_rtn_b32 v6, v1, v12, v13", (0xEF, 9)),
    ],
)
def test_atomics_of_lds(run, text, wanted):
    store = "ds_store_b64 v1, v[10:11]; " if "mskor" not in text else "ds_store_b64 v1, v[14:15]; "
    left = run(
        "gfx1151",
        f"{store}{text}; ds_load_b64 v[20:21], v1",
        v={
            1: 64, 2: 0xF, 3: 0xF, 4: 0xF5 if "mskor" not in text else 5, 5: 0 if "mskor" not in text else 9,
            8: 0x80000005, 9: 0x80000009, 10: 0xFF, 11: 9 if "condxchg" in text or "wrap" in text else 0,
            12: 0x10, 13: 3, 14: 0xF0FF, 15: 0xF,
        },
        exec=1,
    )  # fmt: skip
    assert (_lanes(left, 20)[0], _lanes(left, 21)[0]) == wanted


# ---- Buffers


def _buffer(words: str, arch: str = "gfx1151") -> str:
    wait = "s_waitcnt lgkmcnt(0)" if arch == "gfx1151" else "s_wait_kmcnt 0x0"
    return f"s_load_b64 s[4:5], s[80:81], null; {wait}; s_mov_b32 s6, 64; s_mov_b32 s7, 0x30000000; {words}"


def test_a_buffer_ends_where_its_description_says(run):
    text = _buffer(
        "buffer_store_b32 v1, v2, s[4:7], s8 offen offset:4;"
        "buffer_load_b32 v3, v2, s[4:7], s8 offen offset:4;"
        "s_buffer_load_b64 s[0:1], s[4:7], 0x3c"
    )
    values, offsets = [n + 1 for n in range(_LANES)], [4 * n for n in range(_LANES)]
    left = run("gfx1151", text, v={1: values, 2: offsets, 3: 99})
    # 64 bytes: the dwords at 4 to 60 are of lanes 0 to 14, the others read 0.
    assert _lanes(left, 3) == [*values[:15], *[0] * 17]
    assert (_scalar(left, 0), _scalar(left, 1)) == (15, 0)


def test_atomics_go_by_buffers(run):
    for arch, flag in (("gfx1151", "glc"), ("gfx1201", "th:TH_ATOMIC_RETURN")):
        text = _buffer(
            f"buffer_atomic_add_u32 v1, v2, s[4:7], null offen {flag};buffer_load_b32 v3, off, s[4:7], null",
            arch,
        )
        left = run(arch, text, v={1: 5, 2: [0, 0, 0, *[4096] * 29]})
        assert _lanes(left, 1)[:4] == [0, 5, 10, 0]
        assert _lanes(left, 3)[0] == 15


def test_parts_of_a_register_go_by_buffers(run):
    text = _buffer(
        "buffer_store_b8 v1, off, s[4:7], 0 offset:3; buffer_load_u8 v3, off, s[4:7], 0 offset:3;"
        "buffer_load_d16_hi_b16 v4, off, s[4:7], 0 offset:2; buffer_load_b128 v[5:8], off, s[4:7], 0"
    )
    left = run("gfx1151", text, v={1: 0x1234, 4: 0x7777}, exec=1)
    assert [_lanes(left, n)[0] for n in (3, 4, 5)] == [0x34, 0x34007777, 0x34000000]


def test_fields_that_mean_nothing_in_a_dual_move_are_ignored(run, compiler):
    # v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v4, v3 with a second source in both halves.
    code = [0xCA100102 | 0x55 << 9, 0x01040103 | 0x33 << 9]
    case = {
        "name": "one",
        "lanes": _LANES,
        "code": struct.pack("<2I", *code).hex(),
        "mode": "f0",
        "before": {"exec": "1", "vcc": "0", "m0": "0", "scc": "0", "v": {"2": "7", "3": "9"}, "s": {}},
    }
    disassembler = find_disassembler(compiler.toolchain)
    program = build_alone(compiler, this_level())
    (left,) = run_cases([case], "gfx1151", program=program, disassembler=disassembler)
    assert "fault" not in left, left
    assert (_lanes(left, 1)[0], _lanes(left, 4)[0]) == (7, 9)


# ---- The float mode

_SMALL = 1 << 20  # a subnormal f32


@pytest.mark.parametrize("arch", ["gfx1151", "gfx1201"])
def test_subnormals_are_flushed_from_one_denorm_mode_to_the_next(run, arch):
    text = (
        "v_add_f32 v0, v1, v1; s_denorm_mode 12; v_add_f32 v2, v1, v1;"
        "s_denorm_mode 15; v_add_f32 v3, v1, v1; s_denorm_mode 15; v_add_f32 v4, v1, v1"
    )
    left = run(arch, text, v={1: _SMALL})
    assert [_lanes(left, n)[0] for n in (0, 2, 3, 4)] == [2 * _SMALL, 0, 2 * _SMALL, 2 * _SMALL]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s_denorm_mode 12; s_branch 0", "a jump after s_denorm_mode is not emulated"),
        ("s_branch 1; s_denorm_mode 12; s_nop 0; s_denorm_mode 15", "code after an s_denorm_mode"),
        ("s_denorm_mode 0", "a denormal mode that is not emulated"),
        ("s_denorm_mode 13", "a denormal mode that is not emulated"),
    ],
)
def test_code_whose_denorm_mode_is_not_known_is_refused(run, text, why):
    with pytest.raises(AssertionError, match=why):
        run("gfx1151", text)
