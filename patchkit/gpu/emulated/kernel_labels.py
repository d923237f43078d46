"""Short names of kernels: ``mul_mat_q Q8_0, 128 columns`` for ``mul_mat_q<(ggml_type)8, 128, false>``.

The template arguments are those of llama.cpp's kernels at builds 6900 and 11549. A kernel that is not in the
table, or has another number of arguments there, keeps its arguments as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

# enum ggml_type of ggml.h; numbers never change, since GGUF files contain them.
_GGML_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0",
}
_PRECISIONS = {"__half": "f16", "float": "f32"}
_ENUM = re.compile(r"\(ggml_type\)(\d+)")
_Text = Callable[[str], str]


def _type(value: str) -> str:
    number = value.removeprefix("(ggml_type)")
    return _GGML_TYPES.get(int(number), value) if number.isdecimal() else value


def _typed(name: str) -> _Text:
    return lambda value: f"{name} {_type(value)}"


def _count(noun: str) -> _Text:
    return lambda value: f"{value} {noun}{'' if value == '1' else 's'}"


def _named(name: str) -> _Text:
    return lambda value: f"{name} {value}"


def _if_true(text: str) -> _Text:
    return lambda value: "" if value == "false" else text if value == "true" else value


def _accumulators(value: str) -> str:
    return f"{_PRECISIONS.get(value, value)} acc"


def _precision(value: str) -> str:
    """``enum ggml_prec``: 10 is GGML_PREC_F32; the default needs no word."""
    number = value.removeprefix("(ggml_prec)")
    return {"0": "", "10": "f32 precision"}.get(number, f"precision {number}")


_SOFTCAP = _if_true("softcap")
_HEAD = _named("head size")
_MATMUL = (_type, _count("column"), _if_true("checked rows"))
_MATVEC = (_type, _count("column"), _if_true("fused"), _if_true("small K"), _if_true("half the iterations"))
_MMA = (_HEAD, _named("V"), _count("token"), _count("head"))

# By name and number of template arguments, which tells builds (and kernels of the same name) apart.
_ARGUMENTS: dict[tuple[str, int], tuple[_Text, ...]] = {
    **{
        (name, len(row)): row
        for name in ("mul_mat_q", "mul_mat_q_stream_k_fixup")
        for row in (_MATMUL, (*_MATMUL[:2], _if_true("fallback"), _precision))
    },
    **{("mul_mat_vec_q", count): _MATVEC[:count] for count in range(2, 6)},
    ("flash_attn_tile", 5): (*_MMA, _SOFTCAP),
    ("flash_attn_ext_vec", 5): (_HEAD, _count("token"), _typed("K"), _typed("V"), _SOFTCAP),
    # rocWMMA; the MMA kernels below have the same name
    ("flash_attn_ext_f16", 6): (
        _HEAD,
        _count("column"),
        _count("warp"),
        _named("stride"),
        _accumulators,
        _SOFTCAP,
    ),
    ("flash_attn_ext_f16", 7): (*_MMA, _SOFTCAP, _if_true("V is K"), _if_true("sparse")),
    ("flash_attn_ext_f16", 8): (*_MMA, _count("warp"), _count("tile"), _SOFTCAP, _if_true("MLA")),
}


@lru_cache(maxsize=8192)
def label_kernel(variant: str) -> str:
    """The short name of a demangled kernel, without parameters; other text is returned unchanged."""
    base, bracket, rest = variant.partition("<")
    if not bracket or not rest.endswith(">"):
        return variant
    values = [value.strip() for value in rest[:-1].split(",")]
    known = _ARGUMENTS.get((base, len(values)))
    if known is None or "<" in rest:
        return _ENUM.sub(lambda found: _type(found[0]), variant)
    texts = [text(value) for text, value in zip(known, values, strict=True)]
    if known[:2] == _MMA[:2] and values[0] == values[1]:
        del texts[1]  # V has the head size of K
    return f"{base} {', '.join(filter(None, texts))}"
