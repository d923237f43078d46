"""Small models of recurrent architectures: state-space models, RWKV, and gated delta nets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import gguf

from patchkit.gpu.emulated.models import CLASSES, EPSILON, SEED, close_model, open_model, write_feed_forward
from patchkit.gpu.emulated.random_tensors import RandomTensors

Architecture = Literal["mamba", "mamba2", "rwkv6", "rwkv7", "qwen3next", "qwen35", "qwen35moe", "qwen4exp"]

_WIDTH, _LAYERS, _VOCABULARY, _SPREAD = 256, 2, 512, 0.08
_CONVOLVED = 4  # tokens, the convolution's kernel size
_MAMBA_STATE, _RANK = 16, 16  # state size that upstream's kernel supports
_MAMBA2_STATE, _MAMBA2_HEADS, _MAMBA2_GROUPS = 128, 8, 2
_HEAD = 64  # head size of RWKV, and of Qwen3-Next's delta net and attention
_HEAD_35 = 128  # head size of Qwen3.5's delta net, as in the released models
_ROPE_SECTIONS = (3, 3, 2, 0)  # of Qwen3.5, which has several positions per token; for text they are equal
_LOW_RANK = 32  # of RWKV's low-rank matrices
_DELTA_KEYS, _DELTA_VALUES = 2, 4  # heads
_ATTENTION_HEADS, _ATTENTION_KV_HEADS = 4, 1
_EXPERTS, _EXPERTS_USED = 6, 2
# Qwen3.8-Flash-Next: hyper-connections, and an indexer that selects rows of the KV cache by blocks. It may
# select more than a scene has, because a row that is selected in only one of two runs changes the result.
_STREAMS, _STREAM_RANK = 4, 32
_INDEX_HEADS, _INDEX_HEAD, _INDEX_BLOCK, _INDEX_ROWS = 2, 64, 4, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentModel:
    """A model of an ``architecture`` (llama.cpp's name).

    Tensor names, and which tensors are f32, follow upstream's converter.
    """

    architecture: Architecture

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.architecture

    @property
    def shape(self) -> dict[str, object]:
        """All inputs that its file depends on."""
        return {"recurrent": self.architecture}

    def write(self, path: Path) -> None:
        """Write its file."""
        writer = open_model(path, self.architecture, layers=_LAYERS, width=_WIDTH, vocabulary=_VOCABULARY)
        has_delta_net = self.architecture.startswith("qwen")
        # Quantized, because matmuls with quantized weights can be fused with the operation before them.
        types = ("Q8_0",) if self.architecture.startswith(("qwen35", "qwen4")) else ()
        tensors = RandomTensors(writer, seed=SEED, spread=_SPREAD, types=types)
        classes = CLASSES if has_delta_net and self.architecture != "qwen35" else 0
        tensors.embeddings("token_embd.weight", _VOCABULARY, _WIDTH, classes=classes)
        write: Mapping[str, Callable[[gguf.GGUFWriter, RandomTensors], None]] = {
            "mamba": _mamba,
            "mamba2": _mamba2,
            "rwkv6": _rwkv6,
            "rwkv7": _rwkv7,
            "qwen3next": _qwen3next,
            "qwen35": partial(_qwen35, experts=0),
            "qwen35moe": partial(_qwen35, experts=_EXPERTS),
            "qwen4exp": _qwen4exp,
        }
        write[self.architecture](writer, tensors)
        if self.architecture != "qwen4exp":  # the last hyper-connection has its norm
            tensors.ones("output_norm.weight", _WIDTH)
        tensors.matrix("output.weight", _VOCABULARY, _WIDTH)
        close_model(writer)


def _blocks() -> list[str]:
    return [f"blk.{layer}" for layer in range(_LAYERS)]


def _state_space(writer: gguf.GGUFWriter, *, inner: int, state: int, rank: int) -> None:
    writer.add_ssm_conv_kernel(_CONVOLVED)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)


def _convolution(tensors: RandomTensors, block: str, columns: int) -> None:
    tensors.numbers(f"{block}.ssm_conv1d.weight", columns, _CONVOLVED, spread=0.5)
    tensors.numbers(f"{block}.ssm_conv1d.bias", columns)


def _mamba(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    inner = 2 * _WIDTH
    _without_attention(writer, inner=0)
    _state_space(writer, inner=inner, state=_MAMBA_STATE, rank=_RANK)
    for block in _blocks():
        tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
        tensors.matrix(f"{block}.ssm_in.weight", 2 * inner, _WIDTH)
        _convolution(tensors, block, inner)
        tensors.matrix(f"{block}.ssm_x.weight", _RANK + 2 * _MAMBA_STATE, inner)
        tensors.matrix(f"{block}.ssm_dt.weight", inner, _RANK)
        tensors.numbers(f"{block}.ssm_dt.bias", inner, mean=-2.0, spread=1.0)
        tensors.numbers(f"{block}.ssm_a", inner, _MAMBA_STATE, mean=-1.0, spread=0.2)
        tensors.ones(f"{block}.ssm_d", inner)
        tensors.matrix(f"{block}.ssm_out.weight", _WIDTH, inner)


def _mamba2(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    inner = 2 * _WIDTH
    convolved = inner + 2 * _MAMBA2_GROUPS * _MAMBA2_STATE
    _without_attention(writer, inner=0, heads=_MAMBA2_HEADS)  # build 9538 reads the SSM heads from there
    _state_space(writer, inner=inner, state=_MAMBA2_STATE, rank=_MAMBA2_HEADS)
    writer.add_ssm_group_count(_MAMBA2_GROUPS)
    for block in _blocks():
        tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
        tensors.matrix(f"{block}.ssm_in.weight", inner + convolved + _MAMBA2_HEADS, _WIDTH)
        _convolution(tensors, block, convolved)
        tensors.numbers(f"{block}.ssm_dt.bias", _MAMBA2_HEADS, mean=-2.0, spread=1.0)
        tensors.numbers(f"{block}.ssm_a", _MAMBA2_HEADS, 1, mean=-1.0, spread=0.2)
        tensors.ones(f"{block}.ssm_d", _MAMBA2_HEADS, 1)
        tensors.ones(f"{block}.ssm_norm.weight", _MAMBA2_GROUPS, inner // _MAMBA2_GROUPS)
        tensors.matrix(f"{block}.ssm_out.weight", _WIDTH, inner)


def _without_attention(writer: gguf.GGUFWriter, *, inner: int, heads: int = 0) -> None:
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)


def _norm(tensors: RandomTensors, name: str) -> None:
    tensors.ones(f"{name}.weight", _WIDTH)
    tensors.numbers(f"{name}.bias", _WIDTH)


def _rwkv(writer: gguf.GGUFWriter, tensors: RandomTensors, inner: int) -> None:
    """What RWKV6 and RWKV7 have in common."""
    _without_attention(writer, inner=inner)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_wkv_head_size(_HEAD)
    writer.add_token_shift_count(2)
    _norm(tensors, "token_embd_norm")
    tensors.numbers("output_norm.bias", _WIDTH)
    for block in _blocks():
        _norm(tensors, f"{block}.attn_norm")
        _norm(tensors, f"{block}.attn_norm_2")
        _norm(tensors, f"{block}.time_mix_ln")
        for name in ("key", "value", "receptance", "output"):
            tensors.matrix(f"{block}.time_mix_{name}.weight", _WIDTH, _WIDTH)
        tensors.numbers(f"{block}.channel_mix_lerp_k.weight", 1, 1, _WIDTH, mean=0.5)
        tensors.matrix(f"{block}.channel_mix_key.weight", inner, _WIDTH)
        tensors.matrix(f"{block}.channel_mix_value.weight", _WIDTH, inner)


def _rwkv6(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    _rwkv(writer, tensors, 3 * _WIDTH)
    writer.add_time_mix_extra_dim(_LOW_RANK)
    writer.add_time_decay_extra_dim(_LOW_RANK)
    for block in _blocks():
        tensors.matrix(f"{block}.time_mix_w1.weight", 5 * _LOW_RANK, _WIDTH)
        tensors.matrix(f"{block}.time_mix_w2.weight", 5, _WIDTH, _LOW_RANK)
        tensors.numbers(f"{block}.time_mix_lerp_x.weight", 1, 1, _WIDTH, mean=0.5)
        tensors.numbers(f"{block}.time_mix_lerp_fused.weight", 5, 1, 1, _WIDTH, mean=0.5)
        tensors.numbers(f"{block}.time_mix_first.weight", _WIDTH // _HEAD, _HEAD)
        tensors.numbers(f"{block}.time_mix_decay.weight", _WIDTH, mean=-2.0, spread=1.0)
        tensors.matrix(f"{block}.time_mix_decay_w1.weight", _LOW_RANK, _WIDTH)
        tensors.matrix(f"{block}.time_mix_decay_w2.weight", _WIDTH, _LOW_RANK)
        tensors.matrix(f"{block}.time_mix_gate.weight", _WIDTH, _WIDTH)
        tensors.numbers(f"{block}.channel_mix_lerp_r.weight", 1, 1, _WIDTH, mean=0.5)
        tensors.matrix(f"{block}.channel_mix_receptance.weight", _WIDTH, _WIDTH)


def _rwkv7(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    _rwkv(writer, tensors, 3 * _WIDTH)
    writer.add_decay_lora_rank(_LOW_RANK)
    writer.add_iclr_lora_rank(_LOW_RANK)
    writer.add_value_residual_mix_lora_rank(_LOW_RANK)
    writer.add_gate_lora_rank(_LOW_RANK)
    for block in _blocks():
        for name, mean in (("w", -2.0), ("a", 0.0), ("v", 0.0)):
            tensors.numbers(f"{block}.time_mix_{name}0.weight", _WIDTH, mean=mean)
            tensors.matrix(f"{block}.time_mix_{name}1.weight", _LOW_RANK, _WIDTH)
            tensors.matrix(f"{block}.time_mix_{name}2.weight", _WIDTH, _LOW_RANK)
        tensors.matrix(f"{block}.time_mix_g1.weight", _LOW_RANK, _WIDTH)
        tensors.matrix(f"{block}.time_mix_g2.weight", _WIDTH, _LOW_RANK)
        tensors.numbers(f"{block}.time_mix_lerp_fused.weight", 6, 1, 1, _WIDTH, mean=0.5)
        for name in ("k_k", "k_a", "r_k"):
            tensors.numbers(f"{block}.time_mix_{name}.weight", _WIDTH, mean=0.8)


def _qwen3next(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    _delta_net(writer, tensors, _HEAD, ("ssm_ba",))


def _qwen35(writer: gguf.GGUFWriter, tensors: RandomTensors, *, experts: int) -> None:
    writer.add_rope_dimension_sections(_ROPE_SECTIONS)
    _delta_net(writer, tensors, _HEAD_35, ("ssm_beta", "ssm_alpha"), experts=experts)


def _qwen4exp(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """As Qwen3.5, with hyper-connections instead of norms, and sparse attention."""
    writer.add_rope_dimension_sections(_ROPE_SECTIONS)
    for name, number in (
        ("hyper_connection.count", _STREAMS),
        ("hyper_connection.low_rank", _STREAM_RANK),
        ("attention.indexer.head_count", _INDEX_HEADS),
        ("attention.indexer.key_length", _INDEX_HEAD),
        ("attention.indexer.top_k", _INDEX_ROWS),
    ):
        writer.add_uint32(f"qwen4exp.{name}", number)
    ratios = [_INDEX_BLOCK * (layer % 2) for layer in range(_LAYERS)]  # of the layers that attend
    writer.add_array("qwen4exp.attention.compress_ratios", ratios)
    _delta_net(writer, tensors, _HEAD_35, ("ssm_beta", "ssm_alpha"), has_norms=False)
    _hyper_connection(tensors, "output_hc")
    for layer, block in enumerate(_blocks()):
        for name in ("attn", "ffn"):
            _hyper_connection(tensors, f"{block}.hc_{name}")
            tensors.matrix(f"{block}.hc_{name}_inject.weight", _STREAMS, _STREAMS * _WIDTH)
        if layer % 2:
            tensors.matrix(f"{block}.indexer.q_proj.weight", _INDEX_HEADS * _INDEX_HEAD, _WIDTH)
            tensors.matrix(f"{block}.indexer.k_proj.weight", _INDEX_HEAD, _WIDTH)
            tensors.ones(f"{block}.indexer.q_norm.weight", _INDEX_HEAD)
            tensors.ones(f"{block}.indexer.k_norm.weight", _INDEX_HEAD)


def _hyper_connection(tensors: RandomTensors, name: str) -> None:
    tensors.ones(f"{name}_norm.weight", _STREAMS * _WIDTH)
    tensors.matrix(f"{name}_down.weight", _STREAM_RANK, _STREAMS * _WIDTH)
    tensors.matrix(f"{name}_up.weight", _STREAMS * _WIDTH, _STREAM_RANK)


def _delta_net(
    writer: gguf.GGUFWriter,
    tensors: RandomTensors,
    head: int,
    openings: tuple[str, ...],
    *,
    experts: int = _EXPERTS,
    has_norms: bool = True,
) -> None:
    """One gated delta net layer and one attention layer, each with MoE and a shared expert if ``experts``.

    ``head``: head size of the delta net; ``openings``: the matrices that compute its gate and beta.
    """
    zeros = CLASSES if experts else 0
    keys, values = _DELTA_KEYS * head, _DELTA_VALUES * head
    _state_space(writer, inner=values, state=head, rank=_DELTA_VALUES)
    writer.add_ssm_group_count(_DELTA_KEYS)
    writer.add_full_attention_interval(2)
    writer.add_head_count(_ATTENTION_HEADS)
    writer.add_head_count_kv(_ATTENTION_KV_HEADS)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_feed_forward_length(_WIDTH)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(_EXPERTS_USED)
        writer.add_expert_feed_forward_length(_WIDTH)
        writer.add_expert_shared_feed_forward_length(_WIDTH)
    for layer, block in enumerate(_blocks()):
        for name in ("attn_norm", "post_attention_norm") if has_norms else ():
            tensors.ones(f"{block}.{name}.weight", _WIDTH)
        if layer % 2:
            tensors.matrix(f"{block}.attn_q.weight", 2 * _ATTENTION_HEADS * _HEAD, _WIDTH)
            tensors.matrix(f"{block}.attn_k.weight", _ATTENTION_KV_HEADS * _HEAD, _WIDTH)
            tensors.matrix(f"{block}.attn_v.weight", _ATTENTION_KV_HEADS * _HEAD, _WIDTH)
            tensors.matrix(f"{block}.attn_output.weight", _WIDTH, _ATTENTION_HEADS * _HEAD, zeros=zeros)
            tensors.ones(f"{block}.attn_q_norm.weight", _HEAD)
            tensors.ones(f"{block}.attn_k_norm.weight", _HEAD)
        else:
            tensors.matrix(f"{block}.attn_qkv.weight", 2 * keys + values, _WIDTH)
            tensors.matrix(f"{block}.attn_gate.weight", values, _WIDTH)
            tensors.numbers(f"{block}.ssm_conv1d.weight", 2 * keys + values, _CONVOLVED, spread=0.5)
            tensors.numbers(f"{block}.ssm_dt.bias", _DELTA_VALUES, mean=-2.0, spread=1.0)
            tensors.numbers(f"{block}.ssm_a", _DELTA_VALUES, mean=-1.0, spread=0.2)
            for name in openings:
                tensors.matrix(f"{block}.{name}.weight", 2 * _DELTA_VALUES // len(openings), _WIDTH)
            tensors.ones(f"{block}.ssm_norm.weight", head)
            tensors.matrix(f"{block}.ssm_out.weight", _WIDTH, values, zeros=zeros)
        write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=experts)
        if not experts:
            continue
        tensors.numbers(f"{block}.ffn_gate_inp_shexp.weight", _WIDTH)
        tensors.matrix(f"{block}.ffn_gate_shexp.weight", _WIDTH, _WIDTH)
        tensors.matrix(f"{block}.ffn_up_shexp.weight", _WIDTH, _WIDTH)
        tensors.matrix(f"{block}.ffn_down_shexp.weight", _WIDTH, _WIDTH, zeros=CLASSES)
