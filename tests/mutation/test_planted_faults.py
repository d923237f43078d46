"""Plant faults in kernels, run them on the emulated GPU, and check that ``backend-ops`` fails.

No other gate sees most of them: the code compiles, spills nothing, launches the right kernels, is guarded for
gfx1151 only, and computes wrong results. The table in docs/records/gates.md lists these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from thorough import ordinary

from patchkit.gpu.hardware.attention import gate_cases
from patchkit.prove.build import Machine
from patchkit.prove.gates import touched
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.base import Gate, GateResult
from patchkit.prove.gates.compile import CompileGate
from patchkit.prove.gates.isolation.gate import IsolationGate
from patchkit.prove.gates.launch.gate import LaunchGate
from patchkit.prove.gates.resources import ResourcesGate
from patchkit.prove.subject import Subject

CUDA = "ggml/src/ggml-cuda"
_GPU = Machine(backend="hip", emulates="gfx1151")
_DEVICE = "defined(GGML_USE_HIP) && defined(GGML_HIP_ROCWMMA_FATTN) && defined(__gfx1151__)"
_TILE, _WMMA, _VEC = "fattn-tile.cuh", "fattn-wmma-f16.cu", "fattn-vec.cuh"
_BARRIER = "__syncthreads();"
_HEAD_64 = "hsk=64,.*max_bias=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``old`` becomes ``new`` in the first line that contains it after the text ``after``, for gfx1151 only.

    The gates that compile compile ``unit`` (None: another gate fails too); ``sample`` selects a part of the
    default cases. ``code`` is the error of ``backend-ops``.
    """

    id: str
    about: str
    file: str
    old: str
    new: str
    after: str = ""
    unit: str | None
    sample: str | None = None
    code: str = "BACKEND_OPS_FAILED"


_TILE_64 = "template-instances/fattn-tile-instance-dkq64-dv64.cu"
_VEC_Q8 = "template-instances/fattn-vec-instance-q8_0-q8_0.cu"

FAULTS = [
    Fault(
        id="tile-load-no-barrier",
        about="TILE: keys are read from LDS before all waves have loaded theirs",
        file=_TILE,
        after="(K_h2 + int64_t(k_VKQ_0)*stride_K2",
        old=_BARRIER,
        new="",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-values-no-barrier",
        about="TILE: a wave loads the next values over those that others still read",
        file=_TILE,
        after="i0/warp_size].y += V_k[i0/warp_size].y",
        old=_BARRIER,
        new="",
        unit=_TILE_64,
        sample=_HEAD_64,
        code="BACKEND_OPS_INEXACT",  # upstream has no case of more than one tile
    ),
    Fault(
        id="tile-lds-stride",
        about="TILE: keys are read from LDS with a stride without its padding",
        file=_TILE,
        old="KV_tmp[i_KQ*(nbatch_K/2 + cpy_ne)",
        new="KV_tmp[i_KQ*(nbatch_K/2)",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-last-tile",
        about="TILE: keys after the last complete tile are skipped",
        file=_TILE,
        old="if (k_VKQ_0 < k_VKQ_max) {",
        new="if (k_VKQ_0 + nbatch_fa <= k_VKQ_max) {",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-half-a-wave",
        about="TILE: the sum of a row uses half of the lanes",
        file=_TILE,
        old="warp_reduce_sum<warp_size>(KQ_sum[jc0])",
        new="warp_reduce_sum<warp_size/2>(KQ_sum[jc0])",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-sum-not-rescaled",
        about="TILE: a new maximum rescales the values, but not the sum",
        file=_TILE,
        old="KQ_sum[jc]*KQ_max_scale + KQ_sum_add",
        new="KQ_sum[jc] + KQ_sum_add",
        unit=_TILE_64,
        sample=_HEAD_64,
        code="BACKEND_OPS_INEXACT",  # upstream has no case of more than one tile
    ),
    Fault(
        id="tile-values-of-other-head",
        about="TILE: grouped heads use the values of another KV head",
        file=_TILE,
        old="nb22*(head0 / gqa_ratio)",
        new="nb22*(head0 % ne12)",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-mask-of-first-tile",
        about="TILE: every tile uses the mask of the first",
        file=_TILE,
        old="mask[j*stride_mask + k_VKQ_0 + i_KQ]",
        new="mask[j*stride_mask + i_KQ]",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-blocks-in-one-place",
        about="TILE: blocks that share a column store their results in the same place",
        file=_TILE,
        old="head0 + c)*gridDim.y + blockIdx.y",
        new="head0 + c)*gridDim.y",
        unit=_TILE_64,
        sample=_HEAD_64,
    ),
    Fault(
        id="tile-slope-of-other-head",
        about="TILE: ALiBi uses the slope of the next head",
        file=_TILE,
        old="get_alibi_slope(max_bias, head0,",
        new="get_alibi_slope(max_bias, head0 + 1,",
        unit=_TILE_64,
        sample="hsk=64,.*max_bias=8",
    ),
    Fault(
        id="wmma-fragment-layout",
        about="WMMA: the fragment of V is loaded by rows",
        file=_WMMA,
        old="wmma::col_major> frag_a_V",
        new="wmma::row_major> frag_a_V",
        unit=_WMMA,
        sample=_HEAD_64,
    ),
    Fault(
        id="wmma-kq-stride",
        about="WMMA: KQ is f32 and is read with the stride of f16",
        file=_WMMA,
        after="KQ + j0*(kqar*kqs_padded) + k,",
        old="kqar*kqs_padded",
        new="kqs_padded",
        unit=_WMMA,
        sample=_HEAD_64,
    ),
    Fault(
        id="wmma-no-barrier",
        about="WMMA: softmax reads KQ before all waves have stored theirs",
        file=_WMMA,
        after="wmma::store_matrix_sync((KQ_acc_t *) KQ",
        old=_BARRIER,
        new="",
        unit=_WMMA,
        sample=_HEAD_64,
    ),
    Fault(
        id="wmma-parts-overlap",
        about="WMMA: waves store their parts of the result in each other's places",
        file=_WMMA,
        old="offset_k = (threadIdx.y % VKQ_ratio)",
        new="offset_k = (threadIdx.y / VKQ_ratio)",
        unit=_WMMA,
        sample=_HEAD_64,
    ),
    Fault(
        id="wmma-result-not-rescaled",
        about="WMMA: a new maximum does not rescale the result so far",
        file=_WMMA,
        old="VKQ_scale*VKQ2[j*(D_padded/2) + i] + VKQ_add",
        new="VKQ2[j*(D_padded/2) + i] + VKQ_add",
        unit=_WMMA,
        sample=_HEAD_64,
    ),
    Fault(
        id="vec-wrong-lane",
        about="VEC: the maximum is exchanged with the wrong lane",
        file=_VEC,
        old="KQ_max_new[j], offset, WARP_SIZE)",
        new="KQ_max_new[j], 1, WARP_SIZE)",
        unit=_VEC_Q8,
        sample="hsk=64,.*q8_0",
    ),
    Fault(
        id="vec-neighbours-exchanged",
        about="VEC: neighbours in a quantized block of Q are exchanged",
        file=_VEC,
        old="= tmp_q_i32[i];",
        new="= tmp_q_i32[i ^ 1];",
        unit=_VEC_Q8,
        sample="hsk=64,.*q8_0",
    ),
    Fault(
        id="mmvq-half-a-wave",
        about="mmvq: the sum of a row uses half of the lanes",
        file="mmvq.cu",
        old="tmp[j][i] = warp_reduce_sum<warp_size>(tmp[j][i])",
        new="tmp[j][i] = warp_reduce_sum<warp_size/2>(tmp[j][i])",
        unit="mmvq.cu",
        sample="type_a=q8_0",
    ),
    Fault(
        id="mmvq-wrong-block",
        about="mmvq: the block of y after the right one is used",
        file="mmvq.cu",
        old="kbx * (qk/QK8_1);",
        new="kbx * (qk/QK8_1) + 1;",
        unit="mmvq.cu",
        sample="type_a=q4_0",
    ),
    Fault(
        id="quantize-half-a-block",
        about="quantize: the scale of a block is computed from half of it",
        file="quantize.cu",
        old="warp_reduce_max<QK8_1>(amax)",
        new="warp_reduce_max<QK8_1/2>(amax)",
        unit="quantize.cu",
        sample="type_a=q4_0",
    ),
    Fault(
        id="quantize-scale",
        about="quantize: the largest value becomes 128, which int8 does not have",
        file="quantize.cu",
        old="amax / 127.0f",
        new="amax / 128.0f",
        unit="quantize.cu",
        sample="type_a=q4_0",
    ),
    Fault(
        id="softmax-no-barrier",
        about="softmax: the maximum of the block is read before all waves have theirs",
        file="softmax.cu",
        after="buf_iw[warp_id] = max_val;",
        old=_BARRIER,
        new="",
        unit="softmax.cu",
        sample=r"ne=\[(1023,15|16,2|32,2),",
    ),
    Fault(
        id="softmax-sink-of-other-head",
        about="softmax: every head uses the sink of the first",
        file="softmax.cu",
        old="expf(sinks[i02] - max_val)",
        new="expf(sinks[0] - max_val)",
        unit="softmax.cu",
        sample=r"ne=\[(1023,15|16,2|32,2),",
    ),
    Fault(
        id="softmax-mask-not-repeated",
        about="softmax: a mask shared by heads is indexed as if each had its own",
        file="softmax.cu",
        old="i12 = i02 % p.ne12",
        new="i12 = i02 / p.ne12",
        unit="softmax.cu",
        sample=r"ne=\[(1023,15|16,2|32,2),",
    ),
    Fault(
        id="norm-no-barrier",
        about="norm: sums of waves are read before all have stored theirs",
        file="norm.cu",
        after="static __global__ void rms_norm_f32",
        old=_BARRIER,
        new="",
        unit="norm.cu",
    ),
    Fault(
        id="norm-last-wave",
        about="norm: the sum omits the last wave",
        file="norm.cu",
        after="static __global__ void rms_norm_f32",
        old="lane_id < (block_size / WARP_SIZE)",
        new="lane_id < (block_size / WARP_SIZE) - 1",
        unit="norm.cu",
    ),
    Fault(
        id="norm-fused-row",
        about="norm: the fused multiplication indexes rows by channel",
        file="norm.cu",
        old="fastmodulo(row, mul_nrows_packed)",
        new="fastmodulo(channel, mul_nrows_packed)",
        unit="norm.cu",
    ),
    Fault(
        id="rope-turned-back",
        about="RoPE: one value of each pair is rotated the wrong way",
        file="rope.cu",
        old="x0*sin_theta + x1*cos_theta",
        new="x1*cos_theta - x0*sin_theta",
        unit="rope.cu",
    ),
    Fault(
        id="getrows-halves-exchanged",
        about="get_rows: the upper half of a block is stored next to the lower",
        file="getrows.cu",
        old="qr == 1 ? 1 : qk/2",
        new="1",
        unit="getrows.cu",
    ),
    Fault(
        id="argsort-no-barrier",
        about="argsort: the next step starts before all waves have finished this one",
        file="argsort.cu",
        after="x_row[dst_row[col]] > x_row[dst_row[ixj]]))",
        old=_BARRIER,
        new="",
        unit="argsort.cu",
    ),
    Fault(
        id="ssm-conv-ring",
        about="ssm_conv: the ring of inputs is read from its start",
        file="ssm-conv.cu",
        old="x[(i + j) % d_conv]",
        new="x[j]",
        unit="ssm-conv.cu",
    ),
    Fault(
        id="ssm-conv-accumulator",
        about="ssm_conv: the sum is an integer",
        file="ssm-conv.cu",
        old="float sumf",
        new="int sumf",
        unit=None,  # a new warning
    ),
    Fault(
        id="pair-apart",
        about="WMMA: the host launches four waves, the kernel is compiled for eight",
        file=_WMMA,
        old="ggml_cuda_fattn_wmma_get_nwarps(D, cols_per_block, sizeof(KQ_acc_t), "
        "ggml_cuda_info().devices[ctx.device].cc) : nwarps",
        new="nwarps : nwarps",
        unit=None,  # the gate launch, LAUNCH_BLOCK_MISMATCH
        sample=_HEAD_64,
    ),
]


QUICK = [fault for fault in FAULTS if fault.id == "quantize-scale"]


def _planted(text: str, fault: Fault) -> str:
    """The file with the fault in it; device code stands beside the right line, under the guard."""
    start = text.index(fault.after)
    at = text.index(fault.old, start)
    begin, end = text.rindex("\n", 0, at) + 1, text.index("\n", at) + 1
    line = text[begin:end]
    wrong = line.replace(fault.old, fault.new, 1)
    if fault.id == "pair-apart":  # host code, guarded by its line
        return text[:begin] + wrong + text[end:]
    return f"{text[:begin]}#if {_DEVICE}\n{wrong}#else\n{line}#endif\n{text[end:]}"


@pytest.fixture
def planted(shipped: Subject, edited: Callable[..., Subject]) -> Callable[[Fault], Subject]:
    """The candidate with one fault."""

    def make(fault: Fault) -> Subject:
        path = f"{CUDA}/{fault.file}"
        text = (shipped.candidate / path).read_text("utf-8")
        return edited(shipped, {path: _planted(text, fault).encode()}, "fattn-keep-gqa-tiles")

    return make


def _backend_ops(sample: str | None) -> BackendOpsGate:
    """The gate as ``verify`` runs it on the emulated GPU, on a part of its cases."""
    own = [case for case in gate_cases(is_sample=True) if case.head_size == 64]
    kept = [case for case in own if case.tokens == 512 or case.kv > 512 or case.gqa == 8]
    return BackendOpsGate(machine=_GPU, is_sample=True, pattern=sample, cases=kept)


def _codes(result: GateResult) -> list[str]:
    return [problem.code for problem in result.problems]


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize("fault", ordinary(FAULTS, QUICK, pytest.mark.hours), ids=lambda fault: fault.id)
def test_backend_ops_notices(fault: Fault, planted: Callable[[Fault], Subject]) -> None:
    result = _backend_ops(fault.sample).run(planted(fault))
    assert result.verdict == "failed", result.summary
    assert fault.code in _codes(result), [f"{one.code}: {one.message}\n{one.why}" for one in result.problems]


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    ordinary([fault for fault in FAULTS if fault.unit is not None], [], pytest.mark.hours),
    ids=lambda fault: fault.id,
)
def test_no_other_gate_does(
    fault: Fault, planted: Callable[[Fault], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = planted(fault)
    monkeypatch.setattr(touched, "touched_units", lambda _: (f"{CUDA}/{fault.unit}",))
    gates: tuple[Gate, ...] = (
        IsolationGate(device_code="none"),
        CompileGate(),
        ResourcesGate(),
        LaunchGate(deep=False, others=()),
    )
    for gate in gates:
        result = gate.run(subject)
        assert result.verdict == "passed", (gate.name, _codes(result), result.summary)


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.hours
def test_without_a_fault_the_same_cases_pass(shipped: Subject) -> None:
    result = _backend_ops("hsk=64").run(shipped)
    assert result.verdict == "passed (emulated)", _codes(result)
