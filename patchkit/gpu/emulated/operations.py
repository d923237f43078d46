"""Cases of single operations, running them on the recorder, and what their kernels' names reveal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.gpu.emulated.log import Section
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.emulated.runtime import OPERATIONS_DRIVER, build_driver
from patchkit.gpu.emulated.session import RecordedRun, Session

# Both sides of each of upstream's thresholds (up to 8 and 16 tokens for the vector kernels, tiles of 8 to
# 128 columns), and batch sizes of llama-bench.
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 33, 64, 65, 128, 129, 512, 2048)
_FLOATS = ("f32", "f16", "bf16")
_QUANTS = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
    *("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4"),
)
_CACHES = ("f16", "q8_0", "q4_0")
_WIDTH = 4096  # rows and columns of a matrix, as in an 8B model
_EXPERTS, _USED = 32, 4  # gpt-oss-20b
_EXPERT_WIDTH = 2880 + 192  # gpt-oss-20b's, rounded up to blocks of 256 values
_HEAD = 128  # of gated delta nets and of indexers
# Operations of one row per token. With those below, these are the operations that build 11549 computes for
# small models of gpt-oss, GLM-4.5, Gemma 4, Qwen3.5, Qwen3.8-Flash-Next and DeepSeek V4 (GGML_SCHED_DEBUG=2).
_PLAIN = (
    *(
        "RMS_NORM",
        "L2_NORM",
        "ROPE",
        "ROPE_BACK",
        "SOFT_MAX",
        "SWIGLU",
        "SWIGLU_OAI",
        "SWIGLU_CLAMP",
        "GEGLU",
    ),
    *("SIGMOID", "SILU", "SOFTPLUS", "RELU", "TANH", "EXP", "SQRT", "ABS", "SGN", "ADD", "SUB", "MUL", "DIV"),
    *("SCALE", "CLAMP", "FILL", "SUM_ROWS", "CUMSUM", "ARGSORT", "REPEAT", "CONCAT", "CONT", "DUP", "CPY"),
)
_FEW = (1, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCase:
    """One case. ``type`` is that of the weights or the cache; ``rows`` are outputs, ``columns`` inputs.

    For operations on heads, ``rows`` is the number of heads and ``columns`` their size.
    """

    id: str = ""
    op: str
    type: str = "f32"
    tokens: int = 1
    rows: int = _WIDTH
    columns: int = _WIDTH
    experts: int = 1
    used: int = 1

    def __str__(self) -> str:
        return f"{self.op} {self.type} of {self.tokens} tokens"


_MOE = OperationCase(op="MUL_MAT_ID", rows=_EXPERT_WIDTH, columns=_EXPERT_WIDTH, experts=_EXPERTS, used=_USED)
_FLOAT_CASES = (
    *(OperationCase(op=op) for op in _PLAIN),
    replace(_MOE, op="ADD_ID"),
    # DeepSeek V4: 512 rows are selected; its cache has so many for 4096 and 65536 tokens.
    *(OperationCase(op="TOP_K", columns=columns, used=512) for columns in (1024, 16384)),
)
_BY_BATCH = (
    # Qwen3.8 27B. There are a third as many heads of Q and K.
    OperationCase(op="SSM_CONV", columns=10240),
    OperationCase(op="GATED_DELTA_NET", rows=48, columns=_HEAD),
    # DeepSeek V4 and Qwen3.8-Flash-Next
    *(
        OperationCase(op="LIGHTNING_INDEXER", type=kind, rows=heads, columns=_HEAD)
        for heads in (64, 4)
        for kind in _CACHES
    ),
    # Hyper-connections of both
    *(OperationCase(op=f"DSV4_HC_{name}") for name in ("COMB", "PRE", "PRE_GATED", "POST")),
)


def operation_cases() -> tuple[OperationCase, ...]:
    """Every type and batch size for all operations of a language model except attention."""
    return tuple(replace(case, id=f"op-{number}") for number, case in enumerate(_cases()))


def _cases() -> Iterator[OperationCase]:
    for kind in (*_QUANTS, *_FLOATS):
        for tokens in BATCHES:
            yield OperationCase(op="MUL_MAT", type=kind, tokens=tokens)
        for tokens in BATCHES:
            yield replace(_MOE, op="MUL_MAT_ID", type=kind, tokens=tokens)
    for tokens in _FEW:
        for kind in (*_QUANTS, *_FLOATS):
            yield OperationCase(op="GET_ROWS", type=kind, tokens=tokens)
        for kind in _CACHES:
            yield OperationCase(op="SET_ROWS", type=kind, tokens=tokens)
        for case in _FLOAT_CASES:
            yield replace(case, tokens=tokens)
    for tokens in BATCHES:
        for case in _BY_BATCH:
            yield replace(case, tokens=tokens)


def operation_line(case: OperationCase) -> str:
    """The case's line in a case file, parsed by native/drivers/op_cases.cpp."""
    return (
        f"{case.id} op={case.op} type={case.type} rows={case.rows} columns={case.columns} "
        f"tokens={case.tokens} experts={case.experts} used={case.used}\n"
    )


def run_operations(session: Session, cases: Sequence[OperationCase]) -> RecordedRun:
    """Run each case as a separate graph.

    Raises:
        NOT_BUILT: the driver does not compile against this ggml.
        RecordedRunFailed, RecordedRunHangs, RECORDER_MISCONFIGURED: the driver failed.
    """
    side = session.backend
    driver = build_driver(
        session.compiler, side.tree.root, side.programs, side.stub, source=OPERATIONS_DRIVER
    )
    return session.run_lines(driver, "".join(map(operation_line, cases)))


def route_of(section: Section) -> tuple[str, ...]:
    """What ran, each name once: kernels in order (attention with its family), then BLAS calls."""
    names = [
        launch.kernel.name.base
        if launch.kernel.family == "other"
        else f"{launch.kernel.name.base} ({launch.kernel.family.upper()})"
        for launch in section.launches
    ]
    return tuple(dict.fromkeys([*names, *_calls(section)]))


def _calls(section: Section) -> list[str]:
    """The names of BLAS calls, without their sizes."""
    return [product.split(" ")[0] for product in section.products]


def precision_of(section: Section) -> tuple[str, ...]:
    """The precision of the computation as far as kernel and call names show it; may be empty."""
    kernels = [launch.kernel for launch in section.launches]
    names = [kernel.name for kernel in kernels]
    texts = [_PRODUCTS[name.base] for name in names if name.base in _PRODUCTS]
    texts += [f"{weights} weights, {sums} sums" for name in names for weights, sums in _vector_types(name)]
    texts += [
        f"f16 matmuls, {_type(kernel.name.arguments[4])} sums"
        for kernel in kernels
        if kernel.family == "wmma" and kernel.name.arguments and len(kernel.name.arguments) > 4  # noqa: PLR2004
    ]
    calls = _calls(section)
    if any("Sgemm" in call for call in calls):
        texts.append("f32 matmul by the BLAS library")
    if any("GemmEx" in call or "BatchedEx" in call for call in calls):
        inputs = sorted(
            {
                _type(argument)
                for name in names
                if name.base.startswith(("convert_unary", "dequantize_block", "k_get_rows"))
                for argument in name.arguments or ()
                if argument in _TYPES
            }
            - {"f32"}
        )
        of = f" of {'/'.join(inputs)} inputs" if inputs else ""
        texts.append(f"matmul by the BLAS library{of}")
    return tuple(dict.fromkeys(texts))


# Kernels that multiply quantized weights with q8_1 activations, which is their only form (mmvq.cu, mmq.cu).
_PRODUCTS = {
    "mul_mat_vec_q": "weights as stored, activations in blocks of 8-bit integers",
    "mul_mat_q": "weights as stored, activations in blocks of 8-bit integers",
}
_TYPES = {"float": "f32", "half": "f16", "hip_bfloat16": "bf16", "half2": "f16", "nv_bfloat16": "bf16"}


_REPEATED = re.compile(r"mul_mat_vec_fI(\d+)(\w+?)S\d*_")


def _vector_types(name: KernelName) -> list[tuple[str, str]]:
    """Weight and accumulator types of the float mat-vec kernel. Repeated types are mangled as S0_."""
    if name.base != "mul_mat_vec_f":
        return []
    if name.arguments is not None and len(name.arguments) > 1:
        return [(_type(name.arguments[0]), _type(name.arguments[1]))]
    again = _REPEATED.search(name.mangled)
    if again is None or len(again[2]) != int(again[1]):
        return []
    same = _type(again[2].lstrip("_"))
    return [(same, same)]


def _type(argument: str) -> str:
    return _TYPES.get(argument, argument)
