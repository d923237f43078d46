"""Changes in the style of the public pull requests for gfx1151, written for this test, on the pin.

Each comes out byte for byte as a plain patch. For the GPU alone it becomes guarded edits, or is refused with
the reason that stands here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from round_trip import placed

from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import is_code
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts
from patchkit.carry.lifting.guarded import guard_draft
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.lifting.tokens import lift_tokens
from patchkit.carry.upstream.cache import open_cache

GPU = "ggml/src/ggml-cuda"
ATTENTION, KERNEL, TILE = f"{GPU}/fattn.cu", f"{GPU}/fattn-wmma-f16.cu", f"{GPU}/fattn-tile.cuh"
CHOICE = r"(static best_fattn_kernel ggml_cuda_get_best_fattn_kernel\()"
SIDES, OUTSIDE, NAMES, LINE = "host and device", "outside of functions", "declares names", "preprocessor"
LABEL = "switch label"


@dataclass(frozen=True)
class Case:
    """A change: where ``pattern`` is found first comes ``text``. ``alone`` is why it is not for one GPU."""

    name: str
    path: str
    pattern: str
    text: str
    alone: str | None = None


CASES = [
    Case(
        "one condition",
        ATTENTION,
        r"can_use_vector_kernel && Q->ne\[1\] <= 2\b",
        "can_use_vector_kernel && Q->ne[1] == 1",
    ),
    Case("a longer condition", ATTENTION, r"Q->ne\[0\] != 576\) \{", "Q->ne[0] != 576 && Q->ne[1] > 1) {"),
    Case(
        "an initialiser",
        ATTENTION,
        r"gqa_ratio = Q->ne\[2\] / K->ne\[2\];",
        "gqa_ratio = (Q->ne[2] + 1) / K->ne[2];",
    ),
    Case(
        "a way out before the end",
        ATTENTION,
        r"(    return BEST_FATTN_KERNEL_TILE;\n\})",
        r"    if (Q->ne[0] == 576) {\n        return BEST_FATTN_KERNEL_VEC;\n    }\n\1",
    ),
    Case("a test taken away", ATTENTION, r"    if \(mask && mask->ne\[2\] != 1\) \{\n.*?\n    \}\n\n", ""),
    Case(
        "a way out in front of a line of the preprocessor",
        f"{GPU}/ggml-cuda.cu",
        r"(a->type != GGML_TYPE_F16\) \{\n +return false;\n +\}\n)(#ifdef GGML_USE_MUSA)",
        r"\1                if (b->ne[2] > 1024) {\n                    return false;\n                }\n\2",
    ),
    Case(
        "half a statement in front of one",
        f"{GPU}/ggml-cuda.cu",
        r"(a->type != GGML_TYPE_F16\) \{\n +return false;\n +\}\n)(#ifdef GGML_USE_MUSA)",
        r"\1                if (b->ne[2] > 1024)\n\2",
        "not a whole statement",
    ),
    Case("a number", ATTENTION, r"K->ne\[1\] >= 8192", "K->ne[1] >= 16384"),
    Case(
        "words of a comment",
        ATTENTION,
        r"// Use the WMMA kernel if possible:",
        "// Use the WMMA kernel where it wins:",
        LINE,
    ),
    Case("a head size", ATTENTION, r"(        case 256:\n)", r"        case 192:\n\1", LABEL),
    Case(
        "a statement behind a label",
        f"{GPU}/mmvq.cu",
        r"(        case GGML_TYPE_Q4_1:\n)(            mul_mat_vec_q_switch_ncols_dst)",
        r"\1            if (ncols_dst > 4) {\n                return;\n            }\n\2",
    ),
    Case(
        "a label with its statement",
        f"{GPU}/mmvq.cu",
        r"(        case GGML_TYPE_Q4_1:\n)",
        r"        case GGML_TYPE_F16:\n            return;\n\1",
        LABEL,
    ),
    Case(
        "a line of the preprocessor",
        ATTENTION,
        r"#ifndef FLASH_ATTN_AVAILABLE\n(    GGML_UNUSED)",
        r"#if !defined(FLASH_ATTN_AVAILABLE) || defined(OURS)\n\1",
        LINE,
    ),
    Case(
        "an enumerator",
        ATTENTION,
        r"(    BEST_FATTN_KERNEL_MMA_F16  = 400,\n)",
        r"\1    BEST_FATTN_KERNEL_OURS     = 500,\n",
        OUTSIDE,
    ),
    Case(
        "a new function",
        ATTENTION,
        CHOICE,
        r"static bool ours(const int cc) {\n    return cc > 0;\n}\n\n\1",
        OUTSIDE,
    ),
    Case("an include", ATTENTION, r'(#include "fattn.cuh"\n)', r'\1#include "fattn-ours.cuh"\n'),
    Case(
        "a name in host code",
        ATTENTION,
        r"(    const int cc = ggml_cuda_info\(\)\.devices\[device\]\.cc;\n\n    switch)",
        r"    const bool ours = true;\n\1",
        NAMES,
    ),
    Case(
        "launch bounds",
        KERNEL,
        r"(__launch_bounds__\(nwarps\*ggml_cuda_get_physical_warp_size\(\), )1\)",
        r"\g<1>2)",
    ),
    Case(
        "a constant of a kernel",
        KERNEL,
        r"kqs_padded = FATTN_KQ_STRIDE \+ 8;",
        "kqs_padded = FATTN_KQ_STRIDE + 16;",
    ),
    Case(
        "a static assertion",
        KERNEL,
        r"static_assert\(D <= FATTN_KQ_STRIDE, ",
        "static_assert(2*D <= FATTN_KQ_STRIDE, ",
    ),
    Case(
        "a step of a loop",
        KERNEL,
        r"k_VKQ_0 \+= gridDim\.y\*FATTN_KQ_STRIDE",
        "k_VKQ_0 += 2*gridDim.y*FATTN_KQ_STRIDE",
    ),
    Case(
        "an initial value",
        KERNEL,
        r"KQ_rowsum_f\[ncols/nwarps\] = \{0\.0f\};",
        "KQ_rowsum_f[ncols/nwarps] = {1.0f};",
    ),
    Case(
        "statements in a kernel",
        KERNEL,
        r"(                KQ_max_f\[j0/nwarps\] = KQ_max_new;\n)",
        r"\1                __builtin_amdgcn_sched_barrier(0);\n",
    ),
    Case(
        "the prune of a kernel",
        TILE,
        r"#ifdef GGML_USE_WMMA_FATTN\n",
        "#if defined(GGML_USE_WMMA_FATTN) && !defined(GGML_USE_HIP)\n",
        alone=LINE,
    ),
    Case("a row of a table", TILE, r"(CONFIG_CASE\(256, 256, 32, )256, (\d), ", r"\g<1>128, \2, ", SIDES),
    Case(
        "a line of a build file",
        "ggml/src/ggml-hip/CMakeLists.txt",
        r"(add_compile_definitions\(GGML_USE_HIP\)\n)",
        r"\1add_compile_definitions(GGML_HIP_OURS)\n",
        OUTSIDE,
    ),
    Case(
        "a test of a build file",
        "ggml/src/ggml-hip/CMakeLists.txt",
        r"if \(GGML_HIP_GRAPHS\)",
        "if (GGML_HIP_GRAPHS OR GGML_HIP_OURS)",
        OUTSIDE,
    ),
    Case(
        "a message of a build file",
        "ggml/src/ggml-hip/CMakeLists.txt",
        r"message\(FATAL_ERROR \"Static",
        'message(WARNING "Static',
        OUTSIDE,
    ),
    Case(
        "a macro of everybody",
        f"{GPU}/common.cuh",
        r"(#define GGML_CUDA_CC_IS_RDNA\(cc\) [^\n]*)",
        r"\1 /* ours */",
        "a macro is neither host nor device code",
    ),
    Case("a default", f"{GPU}/softmax.cu", r"float scale    = 1\.0f;", "float scale    = 2.0f;"),
    Case(
        "an argument of the programs",
        "common/arg.cpp",
        r"(#include \"arg\.h\"\n)",
        r'\1#include "ours.h"\n',
    ),
    Case(
        "a default of a tool",
        "tools/llama-bench/llama-bench.cpp",
        r"/\* n_prompt( +)\*/ \{ 512 \}",
        r"/* n_prompt\1*/ { 1024 }",
        OUTSIDE,
    ),
    Case(
        "a script",
        "convert_hf_to_gguf.py",
        r"(import argparse\n)",
        r"\1import collections\n",
        OUTSIDE,
    ),
    Case("a document", "README.md", r"(# llama\.cpp\n)", r"\1\nWith patches.\n", OUTSIDE),
]


@pytest.fixture(scope="session")
def pin_file(warm_cache):
    """Reads a file of the pin."""
    repository = open_cache(warm_cache).peek(NullReporter())
    return lambda path: repository.read_blobs("refs/patchkit/pin/b6900", [path])[path]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_comes_out_and_is_guarded_or_refused(pin_file, case: Case) -> None:
    old = pin_file(case.path)
    text, count = re.subn(case.pattern, case.text, old.decode(), count=1, flags=re.DOTALL)
    assert count == 1
    plain = lift_lines(case.path, old, text.encode())
    guarded = lift_tokens(case.path, old, text.encode(), []) if is_code(case.path) else plain
    for drafts in (plain, guarded):
        assert apply_drafts(old, drafts) == text.encode()
        made = old
        for draft in drafts:
            put = placed(made, draft)
            assert put is not None
            made = put
        assert made == text.encode()
    source = SourceText(case.path, old)
    refused = [reason for draft in guarded if (reason := why_not_alone(source, draft)) is not None]
    assert (len(refused) > 0) == (case.alone is not None), refused
    assert case.alone is None or case.alone in refused[0]


def why_not_alone(source: SourceText, draft: Draft) -> str | None:
    """Why a draft cannot be for one GPU."""
    try:
        assert guard_draft(source, draft)
    except NotLifted as error:
        return str(error)
    return None
