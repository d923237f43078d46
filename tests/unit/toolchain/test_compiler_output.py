"""Remarks, diagnostics and assembly as written by clang 22; anything else is an error."""

from __future__ import annotations

from refusing import refused

from patchkit.toolchain.compile import parse_kernels
from patchkit.toolchain.remarks import parse_diagnostics, parse_remarks

_AT = "ggml/src/ggml-cuda/template-instances/../fattn-tile.cuh:719:1"
_TAIL = "[-Rpass-analysis=kernel-resource-usage]"


def _remarks(name: str, **changed: str) -> str:
    fields = {
        "TotalSGPRs": "36",
        "VGPRs": "41",
        "AGPRs": "0",
        "ScratchSize [bytes/lane]": "16",
        "Dynamic Stack": "False",
        "Occupancy [waves/SIMD]": "16",
        "SGPRs Spill": "1",
        "VGPRs Spill": "2",
        "LDS Size [bytes/block]": "128",
    } | changed
    lines = [f"{_AT}: remark: Function Name: {name} {_TAIL}", "  719 | source text {", "      | ^"]
    return "\n".join(
        [*lines, *(f"{_AT}: remark:     {key}: {value} {_TAIL}" for key, value in fields.items())]
    )


def test_every_figure_of_every_kernel_is_read() -> None:
    first, second = parse_remarks(_remarks("_Z1av") + "\n" + _remarks("_Z1bv", VGPRs="256"))
    assert (first.name, first.vgprs, first.sgprs, first.scratch_bytes) == ("_Z1av", 41, 36, 16)
    assert (first.waves, first.sgpr_spills, first.vgpr_spills, first.lds_bytes) == (16, 1, 2, 128)
    assert (second.name, second.vgprs) == ("_Z1bv", 256)
    assert parse_remarks("nothing here") == ()


def test_a_remark_without_a_number_is_an_error() -> None:
    with refused("COMPILER_OUTPUT_UNREADABLE", match=r"_Z1av lack Occupancy \[waves/SIMD\]"):
        parse_remarks(_remarks("_Z1av", **{"Occupancy [waves/SIMD]": "many"}))


def test_diagnostics_have_places_and_come_once() -> None:
    text = (
        "In file included from x.cu:1:\n"
        "a/b/../c.cuh:3:7: warning: unused variable 'x' [-Wunused-variable]\n"
        "   3 | int x;\n"
        "a/b/../c.cuh:3:7: warning: unused variable 'x' [-Wunused-variable]\n"
        "a/c.cuh:9:1: fatal error: 'mma.h' file not found\n"
    )
    warning, error = parse_diagnostics(text)
    assert (warning.kind, str(warning.where), warning.flag) == ("warning", "a/c.cuh:3:7", "-Wunused-variable")
    assert (error.kind, error.text, error.flag) == ("error", "'mma.h' file not found", None)


_BODY = """
\t.text
{name}:
\tv_mov_b32_e32 v0, 0
{end}
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel {name}
\t.end_amdhsa_kernel
"""
_METADATA = """
amdhsa.kernels:
  - .args:
      - .offset:         0
        .name:           inner
    .max_flat_workgroup_size: 128
    .name:           _Z1av
  - .group_segment_fixed_size: 0
    .max_flat_workgroup_size: 64
    .name:           _Z1bv
"""


def _kernels(assembly: str, *names: str):
    remarks = parse_remarks("\n".join(map(_remarks, names)))
    return parse_kernels(assembly, remarks, unit="k.cu", arch="gfx1151")


def test_a_kernel_without_an_end_is_a_trap() -> None:
    text = _BODY.format(name="_Z1av", end="\ts_endpgm") + _BODY.format(name="_Z1bv", end="\ts_trap 2")
    good, trap = _kernels(text + _METADATA, "_Z1av", "_Z1helperv", "_Z1bv")
    assert (good.name, good.threads, good.is_trap) == ("_Z1av", 128, False)
    assert (trap.name, trap.threads, trap.is_trap) == ("_Z1bv", 64, True)


def test_a_kernel_without_metadata_body_or_remarks_is_an_error() -> None:
    text = _BODY.format(name="_Z1av", end="\ts_endpgm")
    with refused("COMPILER_OUTPUT_UNREADABLE", match="_Z1av"):
        _kernels(text, "_Z1av")
    with refused("COMPILER_OUTPUT_UNREADABLE"):
        _kernels("\t.amdhsa_kernel _Z1av\n" + _METADATA, "_Z1av")
    with refused("COMPILER_OUTPUT_UNREADABLE", match="remarks for 0 kernels, but code for 1"):
        _kernels(text + _METADATA, "_Z1helperv")
