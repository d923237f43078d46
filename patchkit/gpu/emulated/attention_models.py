"""Small models of architectures whose attention or norms differ from Llama's: Gemma 3, gpt-oss, MLA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gguf

from patchkit.gpu.emulated.models import CLASSES, SEED, close_model, open_model, write_feed_forward
from patchkit.gpu.emulated.random_tensors import RandomTensors

Architecture = Literal["gemma3", "gpt-oss", "deepseek2"]

_WIDTH, _LAYERS, _VOCABULARY, _SPREAD = 256, 2, 512, 0.08
_EXPERTS, _EXPERTS_USED = 6, 2
_WINDOW = 32  # tokens of sliding-window attention: fewer than a scene has
_WEIGHTS: dict[Architecture, tuple[str, ...]] = {
    "gemma3": ("Q4_K", "Q6_K"),
    "gpt-oss": ("Q8_0",),  # its experts are MXFP4
    "deepseek2": ("Q8_0",),
}
_GEMMA_HEAD, _GEMMA_HEADS, _GEMMA_KV_HEADS = 256, 2, 1
_OSS_HEAD, _OSS_HEADS, _OSS_KV_HEADS = 64, 8, 1
# As in DeepSeek V2 and V3: K has 512 values that all heads share and 64 with positions; V is the former.
_MLA_HEADS, _MLA_RANK, _MLA_POSITIONS, _MLA_NOPE, _MLA_VALUES, _MLA_QUERY_RANK = 16, 512, 64, 128, 128, 128


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
        classes = 0 if self.architecture == "gemma3" else CLASSES
        tensors.embeddings("token_embd.weight", _VOCABULARY, _WIDTH, classes=classes)
        write = {"gemma3": _gemma3, "gpt-oss": _gpt_oss, "deepseek2": _deepseek2}[self.architecture]
        write(writer, tensors)
        tensors.ones("output_norm.weight", _WIDTH)
        tensors.matrix("output.weight", _VOCABULARY, _WIDTH)
        close_model(writer)


def _attend(writer: gguf.GGUFWriter, head: int, heads: int, kv_heads: int) -> None:
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)


def _gemma3(writer: gguf.GGUFWriter, tensors: RandomTensors) -> None:
    """Norms after attention and after the feed-forward layer, norms of Q and K, a sliding window."""
    inner = 3 * _WIDTH
    _attend(writer, _GEMMA_HEAD, _GEMMA_HEADS, _GEMMA_KV_HEADS)
    writer.add_feed_forward_length(inner)
    writer.add_sliding_window(_WINDOW)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            tensors.ones(f"{block}.{name}.weight", _WIDTH)
        tensors.matrix(f"{block}.attn_q.weight", _GEMMA_HEADS * _GEMMA_HEAD, _WIDTH)
        tensors.matrix(f"{block}.attn_k.weight", _GEMMA_KV_HEADS * _GEMMA_HEAD, _WIDTH)
        tensors.matrix(f"{block}.attn_v.weight", _GEMMA_KV_HEADS * _GEMMA_HEAD, _WIDTH)
        tensors.matrix(f"{block}.attn_output.weight", _WIDTH, _GEMMA_HEADS * _GEMMA_HEAD)
        tensors.ones(f"{block}.attn_q_norm.weight", _GEMMA_HEAD)
        tensors.ones(f"{block}.attn_k_norm.weight", _GEMMA_HEAD)
        write_feed_forward(tensors, block, width=_WIDTH, inner=inner, experts=0)


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
        tensors.ones(f"{block}.attn_norm.weight", _WIDTH)
        tensors.ones(f"{block}.post_attention_norm.weight", _WIDTH)
        for name, heads in (("q", _OSS_HEADS), ("k", _OSS_KV_HEADS), ("v", _OSS_KV_HEADS)):
            tensors.matrix(f"{block}.attn_{name}.weight", heads * _OSS_HEAD, _WIDTH)
            tensors.numbers(f"{block}.attn_{name}.bias", heads * _OSS_HEAD)
        tensors.matrix(f"{block}.attn_output.weight", _WIDTH, _OSS_HEADS * _OSS_HEAD, zeros=CLASSES)
        tensors.numbers(f"{block}.attn_output.bias", _WIDTH, zeros=CLASSES)
        tensors.numbers(f"{block}.attn_sinks.weight", _OSS_HEADS, spread=1.0)
        write_feed_forward(experts, block, width=_WIDTH, inner=_WIDTH, experts=_EXPERTS)
        tensors.numbers(f"{block}.ffn_gate_inp.bias", _EXPERTS, spread=0.0)
        tensors.numbers(f"{block}.ffn_gate_exps.bias", _EXPERTS, _WIDTH)
        tensors.numbers(f"{block}.ffn_up_exps.bias", _EXPERTS, _WIDTH)
        tensors.numbers(f"{block}.ffn_down_exps.bias", _EXPERTS, _WIDTH, zeros=CLASSES)


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
        tensors.matrix(f"{block}.ffn_gate_shexp.weight", _WIDTH, _WIDTH)
        tensors.matrix(f"{block}.ffn_up_shexp.weight", _WIDTH, _WIDTH)
        tensors.matrix(f"{block}.ffn_down_shexp.weight", _WIDTH, _WIDTH, zeros=CLASSES)
