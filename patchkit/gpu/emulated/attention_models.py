"""Small models of architectures whose attention or norms differ from Llama's, as in Gemma or DeepSeek."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gguf

from patchkit.gpu.emulated.models import CLASSES, SEED, close_model, open_model, write_feed_forward
from patchkit.gpu.emulated.random_tensors import RandomTensors

Architecture = Literal["gemma3", "gemma4", "gpt-oss", "glm4moe", "deepseek2", "deepseek4"]

_WIDTH, _LAYERS, _VOCABULARY, _SPREAD = 256, 2, 512, 0.08
_EXPERTS, _EXPERTS_USED = 6, 2
_WINDOW = 32  # tokens of sliding-window attention: fewer than a scene has
_WEIGHTS: dict[Architecture, tuple[str, ...]] = {
    "gemma3": ("Q4_K", "Q6_K"),
    "gemma4": ("Q4_K", "Q6_K"),
    "glm4moe": ("Q4_K", "Q6_K"),
    "gpt-oss": ("Q8_0",),  # its experts are MXFP4
    "deepseek2": ("Q8_0",),
    "deepseek4": ("Q8_0",),
}
_GEMMA_HEAD, _GEMMA_HEADS, _GEMMA_KV_HEADS = 256, 2, 1
_GEMMA4_HEAD = 512  # of the layers without a window; the others have Gemma 3's
_GLM_HEAD, _GLM_HEADS, _GLM_KV_HEADS = 128, 8, 1
_SIGMOID = 2  # LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID
_OSS_HEAD, _OSS_HEADS, _OSS_KV_HEADS = 64, 8, 1
# As in DeepSeek V2 and V3: K has 512 values that all heads share and 64 with positions; V is the former.
_MLA_HEADS, _MLA_RANK, _MLA_POSITIONS, _MLA_NOPE, _MLA_VALUES, _MLA_QUERY_RANK = 16, 512, 64, 128, 128, 128
# DeepSeek V4: heads share one row for K and V, of which 64 values have positions; the projections of their
# outputs are in groups. One layer compresses 4 tokens to a row, and an indexer selects rows; the other one
# compresses 128. The indexer may select more rows than a scene has, as for Qwen3.8-Flash-Next.
_V4_HEAD, _V4_HEADS, _V4_POSITIONS, _V4_RANK = 512, 8, 64, 128
_V4_GROUPS, _V4_GROUP_RANK, _V4_STREAMS, _V4_RATIOS = 2, 64, 4, (4, 128)
_V4_INDEX_HEADS, _V4_INDEX_HEAD, _V4_INDEX_ROWS = 64, 128, 64
_SQRT_SOFTPLUS = 4  # LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionModel:
    """A model of an ``architecture`` (llama.cpp's name). Tensor names follow upstream's converter."""

    architecture: Architecture

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.architecture

    @property
    def shape(self) -> dict[str, object]:
        """All inputs that its file depends on."""
        return {"attention": self.architecture}

    def write(self, path: Path) -> None:
        """Write its file."""
        writer = open_model(path, self.architecture, layers=_LAYERS, width=_WIDTH, vocabulary=_VOCABULARY)
        tensors = RandomTensors(writer, seed=SEED, spread=_SPREAD, types=_WEIGHTS[self.architecture])
        classes = 0 if self.architecture.startswith("gemma") else CLASSES
        tensors.embeddings("token_embd.weight", _VOCABULARY, _WIDTH, classes=classes)
        _WRITERS[self.architecture](writer, tensors)
        tensors.ones("output_norm.weight", _WIDTH)
        tensors.matrix("output.weight", _VOCABULARY, _WIDTH)
        close_model(writer)


def _attend(
    writer: gguf.GGUFWriter, head: int, heads: int, kv_heads: int, *, rotated: int | None = None
) -> None:
    """Sizes of attention; RoPE turns ``rotated`` values of a head, by default all."""
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(rotated or head)


def _gemma3(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """Norms after attention and after the feed-forward layer, norms of Q and K, a sliding window."""
    inner = 3 * _WIDTH
    _attend(writer, _GEMMA_HEAD, _GEMMA_HEADS, _GEMMA_KV_HEADS)
    writer.add_feed_forward_length(inner)
    writer.add_sliding_window(_WINDOW)
    for layer in range(_LAYERS):
        _gemma_block(tensors, f"blk.{layer}", _GEMMA_HEAD, inner)


def _gemma4(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """As Gemma 3, but the layers without a window have larger heads, and their V is made from K."""
    inner, arch = 3 * _WIDTH, "gemma4"
    _attend(writer, _GEMMA4_HEAD, _GEMMA_HEADS, _GEMMA_KV_HEADS)
    writer.add_feed_forward_length(inner)
    writer.add_sliding_window(_WINDOW)
    has_window = [layer + 1 < _LAYERS for layer in range(_LAYERS)]
    writer.add_array(f"{arch}.attention.sliding_window_pattern", has_window)
    for name in ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"):
        writer.add_uint32(f"{arch}.{name}", _GEMMA_HEAD)
    writer.add_uint32(f"{arch}.embedding_length_per_layer_input", 0)
    tensors.ones("rope_freqs.weight", _GEMMA4_HEAD // 2)
    for layer, is_windowed in enumerate(has_window):
        head = _GEMMA_HEAD if is_windowed else _GEMMA4_HEAD
        _gemma_block(tensors, f"blk.{layer}", head, inner, has_v=is_windowed)


def _gemma_block(tensors: RandomTensors, block: str, head: int, inner: int, *, has_v: bool = True) -> None:
    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        tensors.ones(f"{block}.{name}.weight", _WIDTH)
    tensors.matrix(f"{block}.attn_q.weight", _GEMMA_HEADS * head, _WIDTH)
    for name in ("attn_k", "attn_v") if has_v else ("attn_k",):
        tensors.matrix(f"{block}.{name}.weight", _GEMMA_KV_HEADS * head, _WIDTH)
    tensors.matrix(f"{block}.attn_output.weight", _WIDTH, _GEMMA_HEADS * head)
    tensors.ones(f"{block}.attn_q_norm.weight", head)
    tensors.ones(f"{block}.attn_k_norm.weight", head)
    write_feed_forward(tensors, block, width=_WIDTH, inner=inner, experts=0)


def _attention_with_biases(tensors: RandomTensors, block: str, head: int, heads: int, kv_heads: int) -> None:
    """Norms and projections of a layer; Q, K and V have biases. ``head``: values of a head."""
    tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
    tensors.ones(f"{block}.post_attention_norm.weight", _WIDTH)
    for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        tensors.matrix(f"{block}.attn_{name}.weight", count * head, _WIDTH)
        tensors.numbers(f"{block}.attn_{name}.bias", count * head)
    tensors.matrix(f"{block}.attn_output.weight", _WIDTH, heads * head, zeros=CLASSES)


def _gpt_oss(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """Attention sinks, biases everywhere, and MXFP4 experts."""
    _attend(writer, _OSS_HEAD, _OSS_HEADS, _OSS_KV_HEADS)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_expert_feed_forward_length(_WIDTH)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(_EXPERTS_USED)
    writer.add_sliding_window(_WINDOW)
    experts = RandomTensors(writer, seed=SEED + 1, spread=_SPREAD, types=("MXFP4",))
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        _attention_with_biases(tensors, block, _OSS_HEAD, _OSS_HEADS, _OSS_KV_HEADS)
        tensors.numbers(f"{block}.attn_output.bias", _WIDTH, zeros=CLASSES)
        tensors.numbers(f"{block}.attn_sinks.weight", _OSS_HEADS, spread=1.0)
        write_feed_forward(experts, block, width=_WIDTH, inner=_WIDTH, experts=_EXPERTS)
        tensors.numbers(f"{block}.ffn_gate_inp.bias", _EXPERTS, spread=0.0)
        tensors.numbers(f"{block}.ffn_gate_exps.bias", _EXPERTS, _WIDTH)
        tensors.numbers(f"{block}.ffn_up_exps.bias", _EXPERTS, _WIDTH)
        tensors.numbers(f"{block}.ffn_down_exps.bias", _EXPERTS, _WIDTH, zeros=CLASSES)


def _glm4moe(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """RoPE of half a head, biases of Q, K and V, a dense layer, and a layer with MoE and a shared expert."""
    _attend(writer, _GLM_HEAD, _GLM_HEADS, _GLM_KV_HEADS, rotated=_GLM_HEAD // 2)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(_EXPERTS_USED)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(value=True)
    writer.add_uint32("glm4moe.expert_gating_func", _SIGMOID)
    writer.add_expert_feed_forward_length(_WIDTH)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        _attention_with_biases(tensors, block, _GLM_HEAD, _GLM_HEADS, _GLM_KV_HEADS)
        if layer == 0:
            write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=0, zeros=CLASSES)
            continue
        write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=_EXPERTS)
        tensors.numbers(f"{block}.exp_probs_b.bias", _EXPERTS, spread=0.0)
        _shared_expert(tensors, block)


def _shared_expert(tensors: RandomTensors, block: str) -> None:
    tensors.matrix(f"{block}.ffn_gate_shexp.weight", _WIDTH, _WIDTH)
    tensors.matrix(f"{block}.ffn_up_shexp.weight", _WIDTH, _WIDTH)
    tensors.matrix(f"{block}.ffn_down_shexp.weight", _WIDTH, _WIDTH, zeros=CLASSES)


def _deepseek2(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """Multi-head latent attention (MLA), a dense layer, and a layer with MoE and a shared expert."""
    writer.add_head_count(_MLA_HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(_MLA_RANK + _MLA_POSITIONS)
    writer.add_value_length(_MLA_RANK)
    writer.add_key_length_mla(_MLA_NOPE + _MLA_POSITIONS)
    writer.add_value_length_mla(_MLA_VALUES)
    writer.add_rope_dimension_count(_MLA_POSITIONS)
    writer.add_q_lora_rank(_MLA_QUERY_RANK)
    writer.add_kv_lora_rank(_MLA_RANK)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(_EXPERTS_USED)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_feed_forward_length(_WIDTH)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
        tensors.matrix(f"{block}.attn_q_a.weight", _MLA_QUERY_RANK, _WIDTH)
        tensors.ones(f"{block}.attn_q_a_norm.weight", _MLA_QUERY_RANK)
        tensors.matrix(f"{block}.attn_q_b.weight", _MLA_HEADS * (_MLA_NOPE + _MLA_POSITIONS), _MLA_QUERY_RANK)
        tensors.matrix(f"{block}.attn_kv_a_mqa.weight", _MLA_RANK + _MLA_POSITIONS, _WIDTH)
        tensors.ones(f"{block}.attn_kv_a_norm.weight", _MLA_RANK)
        tensors.matrix(f"{block}.attn_k_b.weight", _MLA_HEADS, _MLA_RANK, _MLA_NOPE)
        tensors.matrix(f"{block}.attn_v_b.weight", _MLA_HEADS, _MLA_VALUES, _MLA_RANK)
        tensors.matrix(f"{block}.attn_output.weight", _WIDTH, _MLA_HEADS * _MLA_VALUES, zeros=CLASSES)
        tensors.ones(f"{block}.ffn_norm.weight", _WIDTH)
        if layer == 0:
            write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=0, zeros=CLASSES)
            continue
        write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=_EXPERTS)
        _shared_expert(tensors, block)


def _deepseek4(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """Compressed and sparse attention, hyper-connections, and MoE with a shared expert."""
    _attend(writer, _V4_HEAD, _V4_HEADS, 1, rotated=_V4_POSITIONS)
    writer.add_q_lora_rank(_V4_RANK)
    writer.add_sliding_window(_WINDOW)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(_EXPERTS_USED)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(value=True)
    writer.add_expert_feed_forward_length(_WIDTH)
    for name, number in (
        ("expert_gating_func", _SQRT_SOFTPLUS),
        ("attention.indexer.head_count", _V4_INDEX_HEADS),
        ("attention.indexer.key_length", _V4_INDEX_HEAD),
        ("attention.indexer.top_k", _V4_INDEX_ROWS),
        ("attention.output_group_count", _V4_GROUPS),
        ("attention.output_lora_rank", _V4_GROUP_RANK),
        ("hyper_connection.count", _V4_STREAMS),
        ("hyper_connection.sinkhorn_iterations", 20),
        ("hash_layer_count", 0),
    ):
        writer.add_uint32(f"deepseek4.{name}", number)
    writer.add_float32("deepseek4.attention.compress_rope_freq_base", 10000.0)
    writer.add_float32("deepseek4.hyper_connection.epsilon", 1e-6)
    writer.add_float32("deepseek4.swiglu_clamp_exp", 10.0)
    writer.add_array("deepseek4.attention.compress_ratios", _V4_RATIOS)
    _streams(tensors, "output_hc", _V4_STREAMS, scales=1)
    for layer, ratio in enumerate(_V4_RATIOS):
        block = f"blk.{layer}"
        tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
        tensors.numbers(f"{block}.attn_sinks.weight", _V4_HEADS, spread=1.0)
        tensors.matrix(f"{block}.attn_q_a.weight", _V4_RANK, _WIDTH)
        tensors.ones(f"{block}.attn_q_a_norm.weight", _V4_RANK)
        tensors.matrix(f"{block}.attn_q_b.weight", _V4_HEADS * _V4_HEAD, _V4_RANK)
        tensors.matrix(f"{block}.attn_kv.weight", _V4_HEAD, _WIDTH)
        tensors.ones(f"{block}.attn_kv_a_norm.weight", _V4_HEAD)
        grouped = _V4_GROUPS * _V4_GROUP_RANK
        tensors.matrix(f"{block}.attn_output_a.weight", grouped, _V4_HEADS * _V4_HEAD // _V4_GROUPS)
        tensors.matrix(f"{block}.attn_output_b.weight", _WIDTH, grouped, zeros=CLASSES)
        for name in ("attn", "ffn"):
            _streams(tensors, f"{block}.hc_{name}", (2 + _V4_STREAMS) * _V4_STREAMS, scales=3)
        _compressor(tensors, f"{block}.attn_compressor", _V4_HEAD, ratio)
        if ratio == min(_V4_RATIOS):
            tensors.matrix(f"{block}.indexer.proj.weight", _V4_INDEX_HEADS, _WIDTH)
            tensors.matrix(f"{block}.indexer.attn_q_b.weight", _V4_INDEX_HEADS * _V4_INDEX_HEAD, _V4_RANK)
            _compressor(tensors, f"{block}.indexer_compressor", _V4_INDEX_HEAD, ratio)
        tensors.ones(f"{block}.ffn_norm.weight", _WIDTH)
        write_feed_forward(tensors, block, width=_WIDTH, inner=_WIDTH, experts=_EXPERTS)
        tensors.numbers(f"{block}.exp_probs_b.bias", _EXPERTS, spread=0.0)
        _shared_expert(tensors, block)


def _streams(tensors: RandomTensors, name: str, outputs: int, *, scales: int) -> None:
    tensors.matrix(f"{name}_fn.weight", outputs, _V4_STREAMS * _WIDTH)
    tensors.numbers(f"{name}_base.weight", outputs)
    tensors.ones(f"{name}_scale.weight", scales)


def _compressor(tensors: RandomTensors, name: str, head: int, ratio: int) -> None:
    """Makes one row of ``ratio`` tokens, or of twice as many where rows overlap, as the smaller ones do."""
    columns = head * (2 if ratio == min(_V4_RATIOS) else 1)
    tensors.matrix(f"{name}_kv.weight", columns, _WIDTH)
    tensors.matrix(f"{name}_gate.weight", columns, _WIDTH)
    tensors.numbers(f"{name}_ape.weight", ratio, columns)
    tensors.ones(f"{name}_norm.weight", head)


_WRITERS: Mapping[Architecture, Callable[[gguf.GGUFWriter, RandomTensors], None]] = {
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "glm4moe": _glm4moe,
    "gpt-oss": _gpt_oss,
    "deepseek2": _deepseek2,
    "deepseek4": _deepseek4,
}
