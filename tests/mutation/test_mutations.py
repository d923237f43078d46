"""Break the series on purpose, one way at a time, and check which gate fails and with which error.

A *mutation* replaces text in one file, exactly once; its *catcher* is ``plan`` or a gate. The table in
docs/records/gates.md lists these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from thorough import ordinary

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import make_plan
from patchkit.prove.gates import touched
from patchkit.prove.gates.base import Gate
from patchkit.prove.gates.isolation.gate import IsolationGate
from patchkit.prove.gates.launch.gate import LaunchGate
from patchkit.prove.gates.registry import REGISTRY, entries, load
from patchkit.prove.subject import Subject

CUDA = "ggml/src/ggml-cuda"
_GUARD = "defined(GGML_USE_HIP) && defined(GGML_HIP_ROCWMMA_FATTN)"
_DEVICE = f"{_GUARD} && defined(__gfx1151__)"
_CC = "cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151"
_HOST = "@{ guard.host('ggml_cuda_info().devices[ctx.device].cc') }@"
_WMMA, _DECODE = "0001-wmma-tile-params", "0003-fattn-decode-tile"
_TUNED = 'head_size = {0}\nncols = {1}\nacc = "{2}"\nkq_stride = {3}\nnwarps = {4}\nmin_waves = {5}'


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """``file`` is of the series or of the candidate; ``units`` limits what is compiled (None: all)."""

    id: str
    about: str
    level: Literal["series", "candidate"]
    file: str
    old: str
    new: str
    catcher: str
    code: str
    says: str
    author: str = "wmma-tile-params"
    units: tuple[str, ...] | None = None


def _tuned(variant: tuple[int, int, str], values: tuple[int, int, int]) -> str:
    return _TUNED.format(*variant, *values)


PLAN = [
    Mutation(
        id="guard-dropped-host",
        about="a host edit does not test for the GPU",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old=f"{_HOST} ?\n    ggml_cuda_fattn_wmma_get_nwarps",
        new="true ?\n    ggml_cuda_fattn_wmma_get_nwarps",
        catcher="plan",
        code="HOST_GUARD_MISSING",
        says="renders without the host guard of gfx1151",
    ),
    Mutation(
        id="pair-split",
        about="the host half of a paired edit is missing",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old='pairs = ["kq-stride"]\ntext = """\n@{ guard',
        new='text = """\n@{ guard',
        catcher="plan",
        code="PATCH_BAD",
        says="kq-stride",
    ),
    Mutation(
        id="wrong-arch-macro",
        about="the profile names another GPU's macro",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old='"__gfx1151__"',
        new='"__gfx1150__"',
        catcher="plan",
        code="PROFILE_BAD",
        says="__gfx1150__",
    ),
    Mutation(
        id="wrong-cc",
        about="the profile has another GPU's compute capability",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old="value = 0x1151",
        new="value = 0x1150",
        catcher="plan",
        code="PROFILE_BAD",
        says="compute_capability",
    ),
    Mutation(
        id="stride-too-small",
        about="64 KQ rows for eight warps of 16",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old=_tuned((64, 16, "f16"), (128, 8, 1)),
        new=_tuned((64, 16, "f16"), (64, 8, 1)),
        catcher="plan",
        code="WMMA_ILLEGAL",
        says="C1",
    ),
    Mutation(
        id="lds-too-large",
        about="sixteen warps need more LDS than a block may have",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old=_tuned((80, 32, "f32"), (256, 8, 1)),
        new=_tuned((80, 32, "f32"), (256, 16, 1)),
        catcher="plan",
        code="WMMA_ILLEGAL",
        says="C8",
    ),
    Mutation(
        id="wrong-cc-by-hand",
        about="a handwritten host guard for the wrong GPU",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old=f"{_HOST} ?\n    ggml_cuda_fattn_wmma_get_nwarps",
        new="(ggml_cuda_info().devices[ctx.device].cc == GGML_CUDA_CC_OFFSET_AMD + 0x1150) ?\n"
        "    ggml_cuda_fattn_wmma_get_nwarps",
        catcher="plan",
        code="HOST_GUARD_MISSING",
        says="gfx1151",
    ),
    Mutation(
        id="unbalanced-endif",
        about="rendered text closes the #if around it",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old="constexpr int VKQ_stride = ggml",
        new="#endif\nconstexpr int VKQ_stride = ggml",
        catcher="plan",
        code="GUARD_LEAK",
        says="outside the guard",
    ),
    Mutation(
        id="edit-in-twin",
        about="an anchor that also matches elsewhere in the function",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old=', inside = { between = [{ statement = "static_assert(D <= FATTN_KQ_STRIDE" }, '
        '{ tokens = "dst_meta[j_dst_unrolled] = dst_meta_val;" }] } }',
        new=" }",
        catcher="plan",
        code="ANCHOR_AMBIGUOUS",
        says="matches 16 places",
    ),
    Mutation(
        id="file-outside-folder",
        about="a new file outside the declared folders",
        level="series",
        file=f"patches/{_WMMA}/patch.toml",
        old=f'path = "{CUDA}/fattn-wmma-config.cuh"',
        new='path = "src/fattn-wmma-config.cuh"',
        catcher="plan",
        code="EDIT_OUTSIDE_FOLDERS",
        says="src/fattn-wmma-config.cuh",
    ),
]

ISOLATION = [
    Mutation(
        id="host-guard-bypassed",
        about="the host guard is joined with or instead of and",
        level="series",
        file=f"patches/{_DECODE}/patch.toml",
        old="}@ && Q->ne[1] == 1",
        new="}@ || Q->ne[1] == 1",
        catcher="isolation",
        code="ISOLATION_HOST",
        says="the host code of GPUs outside of the guard changes",
    ),
    Mutation(
        id="edit-outside-guard",
        about="an unguarded edit of an upstream line",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-f16.cu",
        old="constexpr int D_padded = D + 8;",
        new="constexpr int D_padded = D + 16;",
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="'8' became '16'",
    ),
    Mutation(
        id="include-unguarded",
        about="the patch's header is included without its guard",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-f16.cu",
        old=f"#if {_GUARD} && (!defined(__HIP_DEVICE_COMPILE__) || defined(__gfx1151__))\n"
        '#include "fattn-wmma-config.cuh"\n#endif',
        new='#include "fattn-wmma-config.cuh"',
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="fattn-wmma-f16.cu has different tokens for cuda",
    ),
    Mutation(
        id="guard-dropped-device",
        about="a device edit under #if 1",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old=f"#if !({_DEVICE})",
        new="#if 0",
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="became ''",
        author="fattn-keep-gqa-tiles",
    ),
    Mutation(
        id="arch-too-wide",
        about="a device guard that also covers gfx1100",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old=f"#if !({_DEVICE})",
        new=f"#if !({_GUARD} && (defined(__gfx1151__) || defined(__gfx1100__)))",
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="for hip gfx1100 device, rocWMMA on",
        author="fattn-keep-gqa-tiles",
    ),
    Mutation(
        id="rocwmma-macro-dropped",
        about="a guard that forgets GGML_HIP_ROCWMMA_FATTN",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-f16.cu",
        old=f"#if {_DEVICE}\n    int, int",
        new="#if defined(GGML_USE_HIP) && defined(__gfx1151__)\n    int, int",
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="for hip gfx1151 device, rocWMMA off",
    ),
    Mutation(
        id="endif-missing",
        about="a generated #endif is missing",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old="            (ncols2 != 1 && DV != 40 && DV != 512) ||\n#endif\n",
        new="            (ncols2 != 1 && DV != 40 && DV != 512) ||\n",
        catcher="isolation",
        code="ISOLATION_UNREADABLE",
        says="unterminated conditional directive",
        author="fattn-keep-gqa-tiles",
    ),
    Mutation(
        id="foreign-cc",
        about="generated host code tests for gfx1100",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=f"&& !(({_CC} ",
        new="&& !((cc == GGML_CUDA_CC_OFFSET_AMD + 0x1100 ",
        catcher="isolation",
        code="ISOLATION_FOREIGN_GPU",
        says="tests for 0x1100 (gfx1100), which is not guarded",
        author="fattn-decode-tile",
    ),
    Mutation(
        id="host-test-dropped",
        about="decode avoids WMMA on every GPU",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=f"&& !(({_CC} && ggml_cuda_patches().fattn_decode_tile.use()) && Q->ne[1] == 1)",
        new="&& !(Q->ne[1] == 1)",
        catcher="isolation",
        code="ISOLATION_HOST",
        says="fattn.cu: the host code of GPUs outside of the guard changes",
        author="fattn-decode-tile",
    ),
    Mutation(
        id="tile-row-removed",
        about="a row of upstream's TILE table is missing",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old="    GGML_CUDA_FATTN_TILE_CONFIG_CASE( 64,  64,  2,  64, 8,  32,  64)\n",
        new="",
        catcher="isolation",
        code="ISOLATION_TOKENS",
        says="has different tokens for cuda",
        author="fattn-keep-gqa-tiles",
    ),
    Mutation(
        id="file-unreached",
        about="a change in a file that no GPU unit includes",
        level="candidate",
        file="ggml/src/ggml.c",
        old='#include "ggml-backend.h"\n',
        new='#include "ggml-backend.h"\n\n',
        catcher="isolation",
        code="ISOLATION_UNREACHED",
        says="no unit of a GPU backend includes it",
    ),
    Mutation(
        id="unit-added",
        about="a new .cu file, which every backend's build globs",
        level="candidate",
        file=f"{CUDA}/fattn-extra.cu",
        old="",
        new='#include "common.cuh"\n',
        catcher="isolation",
        code="ISOLATION_UNITS",
        says="the candidate adds ggml/src/ggml-cuda/fattn-extra.cu",
    ),
]

_WMMA_UNIT = f"{CUDA}/fattn-wmma-f16.cu"
_TILE_UNIT = f"{CUDA}/template-instances/fattn-tile-instance-dkq64-dv64.cu"

COMPILED = [
    Mutation(
        id="table-row-missing",
        about="a variant has no row in the patch's table",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-config.cuh",
        old="    GGML_CUDA_FATTN_WMMA_CONFIG_CASE( 64, 16, 2, 128,  8,  1, 32, 65536) // tuned\n",
        new="",
        catcher="compile",
        code="COMPILE_CANDIDATE",
        says="no row for this variant",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="lds-too-large-rendered",
        about="the rendered table requests too much LDS",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-config.cuh",
        old="( 80, 32, 4, 256,  8,",
        new="( 80, 32, 4, 256, 16,",
        catcher="compile",
        code="COMPILE_CANDIDATE",
        says="C8: too much LDS",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="new-warning",
        about="the patch's header has an unused variable",
        level="candidate",
        file=f"{CUDA}/fattn-wmma-config.cuh",
        old="ggml_cuda_fattn_wmma_pow2_factor(const int x) {\n",
        new="ggml_cuda_fattn_wmma_pow2_factor(const int x) {\n    const int forgotten = 2;\n",
        catcher="compile",
        code="COMPILE_NEW_WARNING",
        says="unused variable 'forgotten'",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="waves-lost",
        about="legal parameters that reduce the waves per SIMD",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old=_tuned((128, 16, "f32"), (256, 4, 1)),
        new=_tuned((128, 16, "f32"), (256, 2, 1)),
        catcher="resources",
        code="RESOURCES_WORSE",
        says="flash_attn_ext_f16<128, 16, 4, 64, float, false> on gfx1151 loses 3 waves",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="spilling-parameters",
        about="launch bounds that limit a kernel to 120 registers",
        level="series",
        file="arch_profiles/gfx1151.toml",
        old=_tuned((64, 16, "f16"), (128, 8, 1)),
        new=_tuned((64, 16, "f16"), (128, 8, 12)),
        catcher="resources",
        code="RESOURCES_WORSE",
        says="flash_attn_ext_f16<64, 16, 4, 64, __half, false> on gfx1151 spills",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="softcap-prune-dropped",
        about="soft-cap variants that nothing launches are compiled again",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old="#endif // GGML_USE_WMMA_FATTN\n            (use_logit_softcap && !(DV == 128 || DV == 256))\n",
        new=f"#endif // GGML_USE_WMMA_FATTN\n#if {_DEVICE}\n            false\n#else\n"
        "            (use_logit_softcap && !(DV == 128 || DV == 256))\n#endif\n",
        catcher="resources",
        code="RESOURCES_UNDECLARED_KERNELS",
        says="flash_attn_tile<64, 64, 8, 8, true>",
        author="fattn-keep-gqa-tiles",
        units=(_TILE_UNIT,),
    ),
    Mutation(
        id="kernels-pruned",
        about="the guard prunes kernels that upstream compiles",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old=f"#if !({_DEVICE})\n            (ncols2 != 1 && DV != 40 && DV != 512) ||\n#endif\n",
        new=f"#if {_DEVICE}\n            ncols2 == 1 ||\n#else\n"
        "            (ncols2 != 1 && DV != 40 && DV != 512) ||\n#endif\n",
        catcher="resources",
        code="RESOURCES_PRUNED",
        says="is only a trap in the candidate",
        author="fattn-keep-gqa-tiles",
        units=(_TILE_UNIT,),
    ),
]

_NWARPS_ASKED = "ggml_cuda_fattn_wmma_get_nwarps(D, cols_per_block, sizeof(KQ_acc_t), "
_STRIDE_ASKED = "ggml_cuda_fattn_wmma_get_kq_stride(D, cols_per_block, sizeof(KQ_acc_t), "
_ASKED_CC = "ggml_cuda_info().devices[ctx.device].cc)"
_BATCH_OF_ONE = "&& Q->ne[1] == 1)\n#endif"
_PRUNED = "            (ncols2 != 1 && DV != 40 && DV != 512) ||\n"
_SELECTION = (f"{CUDA}/fattn.cu",)

# What only running the host code shows; plan, isolation, compile and resources let all but one of them pass.
LAUNCH = [
    Mutation(
        id="nwarps-mismatch",
        about="the launch keeps upstream's four warps, the kernel has eight",
        level="candidate",
        file=_WMMA_UNIT,
        old=f"{_NWARPS_ASKED}{_ASKED_CC} : nwarps",
        new="nwarps : nwarps",
        catcher="launch",
        code="LAUNCH_BLOCK_MISMATCH",
        says="with 128 threads per block, compiled for 256",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="stride-not-passed",
        about="the launch does not use the kernel's KQ stride",
        level="candidate",
        file=_WMMA_UNIT,
        old=f"{_STRIDE_ASKED}{_ASKED_CC} : FATTN_KQ_STRIDE",
        new="FATTN_KQ_STRIDE : FATTN_KQ_STRIDE",
        catcher="launch",
        code="LAUNCH_GRANULARITY",
        says="steps of 128 rows fit at once",
        units=_SELECTION,
    ),
    Mutation(
        id="other-columns-asked",
        about="the launch always looks up 16 columns in the table",
        level="candidate",
        file=_WMMA_UNIT,
        old=_NWARPS_ASKED,
        new=_NWARPS_ASKED.replace("cols_per_block", "16"),
        catcher="launch",
        code="LAUNCH_BLOCK_MISMATCH",
        says="waves per block, the table has 8",
        units=_SELECTION,
    ),
    Mutation(
        id="other-accumulator-asked",
        about="the launch always looks up f16 accumulators in the table",
        level="candidate",
        file=_WMMA_UNIT,
        old=_STRIDE_ASKED,
        new=_STRIDE_ASKED.replace("sizeof(KQ_acc_t)", "sizeof(half)"),
        catcher="launch",
        code="LAUNCH_GRANULARITY",
        says="steps of 256 rows",
        units=_SELECTION,
    ),
    Mutation(
        id="kernel-name-split",
        about="host and device pass name different instances of the kernel",
        level="candidate",
        file=_WMMA_UNIT,
        old="    constexpr int nwarps = 4;\n",
        new="#if defined(__HIP_DEVICE_COMPILE__)\n    constexpr int nwarps = 4;\n#else\n"
        "    constexpr int nwarps = 8;\n#endif\n",
        catcher="launch",
        code="LAUNCH_KERNEL_MISSING",
        says="flash_attn_ext_f16<64, 16, 8, 64, float, false> of ggml/src/ggml-cuda/fattn-wmma-f16.cu",
        units=(_WMMA_UNIT,),
    ),
    Mutation(
        id="prune-left-in",
        about="fattn-decode-tile without fattn-keep-gqa-tiles",
        level="candidate",
        file=f"{CUDA}/fattn-tile.cuh",
        old=f"#if !({_DEVICE})\n{_PRUNED}#endif\n",
        new=_PRUNED,
        catcher="launch",
        code="LAUNCH_KERNEL_TRAPS",
        says="flash_attn_tile<64, 64, 1, 4, false>",
        author="fattn-keep-gqa-tiles",
    ),
    Mutation(
        id="decode-condition-inverted",
        about="all batches avoid WMMA except those of one token",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=_BATCH_OF_ONE,
        new=_BATCH_OF_ONE.replace("==", "!="),
        catcher="launch",
        code="LAUNCH_DECODE_WMMA",
        says="flash_attn_ext_f16<80, 16, 4, 16, float, false>",
        author="fattn-decode-tile",
        units=_SELECTION,
    ),
    Mutation(
        id="decode-condition-dropped",
        about="prefill avoids WMMA too",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=_BATCH_OF_ONE,
        new=")\n#endif",
        catcher="launch",
        code="LAUNCH_PREFILL_NOT_WMMA",
        says="flash_attn_tile<64, 64, 4, 1, false>",
        author="fattn-decode-tile",
        units=_SELECTION,
    ),
    Mutation(
        id="decode-condition-too-wide",
        about="batches of two tokens avoid WMMA too, which the patch does not declare",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=_BATCH_OF_ONE,
        new=_BATCH_OF_ONE.replace("== 1", "<= 2"),
        catcher="launch",
        code="LAUNCH_FAMILY_CHANGED",
        says="D=64 gqa=1 kv=256 tokens=2 f16: vec -> tile",
        author="fattn-decode-tile",
        units=_SELECTION,
    ),
    Mutation(
        id="decode-grouped-left-out",
        about="decode with GQA keeps upstream's kernel",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old=_BATCH_OF_ONE,
        new=_BATCH_OF_ONE.replace("== 1", "== 1 && !gqa_opt_applies"),
        catcher="launch",
        code="LAUNCH_DECODE_VEC",
        says="flash_attn_ext_vec<64, 1, 1, 1, false>",
        author="fattn-decode-tile",
        units=_SELECTION,
    ),
    Mutation(
        id="head-size-refused",
        about="a head size is no longer supported (isolation fails too)",
        level="candidate",
        file=f"{CUDA}/fattn.cu",
        old="        case  40:\n        case  64:\n",
        new="        case  64:\n",
        catcher="launch",
        code="LAUNCH_SUPPORT_LOST",
        says="hsk=40,hsv=40",
        author="fattn-decode-tile",
        units=_SELECTION,
    ),
]


def _gate(name: str) -> Gate:
    quick: dict[str, Gate] = {
        "isolation": IsolationGate(device_code="none"),
        "launch": LaunchGate(deep=False, others=()),
    }
    return quick.get(name) or load(next(each.gate for each in REGISTRY if each.name == name))()


def _mutate(text: str, mutation: Mutation) -> str:
    if not mutation.old:
        return mutation.new
    assert text.count(mutation.old) >= 1, f"{mutation.file} no longer has: {mutation.old}"
    return text.replace(mutation.old, mutation.new, 1)


def _change_series(series: SeriesDir, mutation: Mutation) -> None:
    path = series.root / mutation.file
    path.write_text(_mutate(path.read_text("utf-8"), mutation), "utf-8")


def _errors_of_plan(series: SeriesDir, cache: Path) -> Iterator[PatchkitError]:
    workspace = Workspace(series=series, cache_root=cache, reporter=NullReporter())
    try:
        errors: tuple[PatchkitError, ...] = make_plan(
            Request(archs=("gfx1151",), upstream="b6900"), workspace
        ).errors
    except PatchkitError as error:
        errors = (error,)
    for one in errors:
        yield from one.errors if isinstance(one, ErrorGroup) else (one,)


def _expect(problems: list[PatchkitError], mutation: Mutation) -> None:
    found = {problem.code: problem for problem in problems}
    assert mutation.code in found, [f"{problem.code}: {problem.message}" for problem in problems]
    texts = [f"{one.message}\n{one.why}" for one in problems if one.code == mutation.code]
    assert any(mutation.says in text for text in texts), texts


GATED = [*ISOLATION, *COMPILED, *LAUNCH]
# 85 s of processor time (2026-11-25); others of their kind stay.
SLOWEST = ("endif-missing", "tile-row-removed")


@pytest.mark.parametrize("mutation", ordinary(PLAN, PLAN[::3]), ids=lambda mutation: mutation.id)
def test_the_plan_refuses(mutation: Mutation, series: SeriesDir, warm_cache: Path) -> None:
    _change_series(series, mutation)
    _expect(list(_errors_of_plan(series, warm_cache)), mutation)


def _mutant(
    mutation: Mutation,
    request: pytest.FixtureRequest,
    subject_of: Callable[[SeriesDir], Subject],
    edited: Callable[..., Subject],
) -> Subject:
    if mutation.level == "series":
        series: SeriesDir = request.getfixturevalue("series")
        _change_series(series, mutation)
        return subject_of(series)
    shipped: Subject = request.getfixturevalue("shipped")
    file = shipped.candidate / mutation.file
    text = file.read_text("utf-8") if file.is_file() else ""
    return edited(shipped, {mutation.file: _mutate(text, mutation).encode()}, mutation.author)


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    ordinary(GATED, [one for one in GATED if one.id not in SLOWEST], pytest.mark.hours),
    ids=lambda mutation: mutation.id,
)
def test_the_gate_notices(
    mutation: Mutation,
    request: pytest.FixtureRequest,
    subject_of: Callable[[SeriesDir], Subject],
    edited: Callable[..., Subject],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = _mutant(mutation, request, subject_of, edited)
    if mutation.units is not None:
        monkeypatch.setattr(touched, "touched_units", lambda _: mutation.units)
    result = _gate(mutation.catcher).run(subject)
    assert result.verdict == "failed", result.summary
    _expect(list(result.problems), mutation)


@pytest.mark.hip
@pytest.mark.slow
def test_the_unbroken_candidate_passes(shipped: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the mutations above would prove nothing."""
    monkeypatch.setattr(touched, "touched_units", lambda _: (_WMMA_UNIT, _TILE_UNIT))
    for name in (each.name for each in entries("anywhere") if each.compiles):
        result = _gate(name).run(replace(shipped))
        assert result.verdict == "passed", [problem.message for problem in result.problems]
