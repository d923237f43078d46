"""A header that parses but states nonsense gives an estimate or an error of ours, soon."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.errors import PatchkitError
from patchkit.base.plain import fields_of
from patchkit.gpu.gguf import GgufHeader, LongArray, Tensor, tensor_kinds
from patchkit.gpu.modelled.roofline import Figure, Peaks, bound_of
from patchkit.gpu.modelled.roofline import Test as Run
from patchkit.gpu.modelled.shape import shape_of_header

_NAMES = (
    "block_count",
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_mla",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "expert_count",
    "expert_used_count",
    "attention.key_length_swa",
    "attention.shared_kv_layers",
    "attention.recurrent_layers",
    "attention.compress_ratios",
    "attention.indexer.top_k",
    "full_attention_interval",
    "nextn_predict_layers",
)
_NUMBERS = st.integers(0, 8) | st.sampled_from([-1, 64, 1024, 2**31 - 1, 2**32, 2**63])
_VALUES = (
    _NUMBERS
    | st.booleans()
    | st.floats()
    | st.text(max_size=3)
    | st.lists(_NUMBERS | st.booleans(), max_size=6).map(tuple)
    | st.just(LongArray(length=2**31))
)
_TENSORS = st.builds(
    Tensor,
    name=st.sampled_from(
        ["token_embd.weight", "output.weight", "blk.0.ffn_up_exps.weight", "blk.1.attn_q.weight", "x", ""]
    ),
    shape=st.lists(st.integers(1, 2**12), max_size=4).map(tuple),
    kind=st.sampled_from(list(tensor_kinds().values())),
)
_PEAKS = Peaks(
    bandwidth=Figure(value=212, unit="GB/s", kind="given", source="test", confidence="-"),
    compute=Figure(value=60, unit="TFLOPS", kind="given", source="test", confidence="-"),
)


@given(
    arch=st.sampled_from(["llama", "gpt-oss", "qwen4exp", "deepseek4", "", "\0", 3]),
    fields=st.dictionaries(st.sampled_from(_NAMES), _VALUES),
    sane=st.booleans(),
    tensors=st.lists(_TENSORS, max_size=4).map(tuple),
    kv=st.sampled_from(list(tensor_kinds().values())),
)
def test_any_metadata_give_a_bound_or_an_error(arch, fields, sane, tensors, kv):
    usual = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4} if sane else {}
    metadata = {f"{arch}.{name}": value for name, value in {**fields, **usual}.items()}
    header = GgufHeader(metadata={"general.architecture": arch, **metadata}, tensors=tensors)
    try:
        model = shape_of_header(header, Path("m.gguf"))
    except PatchkitError as error:
        told = error.hint, error.why
        assert all(told)
        return
    for batch in (1, 8):
        bound = bound_of(model, Run(tokens=16, depth=100, batch=batch), _PEAKS, kv)
        assert 0 <= bound.share <= 1
        assert math.isfinite(bound.seconds)
        assert bound.seconds > 0
        assert fields_of(bound)
