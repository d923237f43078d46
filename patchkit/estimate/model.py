"""A model as far as its speed depends on it: what is read, what is multiplied, who attends to what.

Vocabulary: a *weight* is one kind of tensor; its *role* says when it is used: ``lookup`` (some rows per
token), ``matrix`` (multiplied with every token), ``experts`` (some of it per token), ``vector`` (norms,
biases: read, not multiplied). What comes *after the last attention* is computed only for the tokens whose
logits are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.gguf_file.kinds import Kind

Role = Literal["lookup", "matrix", "experts", "vector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """``count`` tensors of one shape (row length first) and type."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    role: Role
    count: int = 1
    after_last_attention: bool = False

    @property
    def values(self) -> int:
        """Of all ``count`` tensors."""
        total = self.count
        for extent in self.shape:
            total *= extent
        return total

    @property
    def bytes(self) -> int:
        """Of all ``count`` tensors."""
        return self.kind.size(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer that attends. ``window``: the last so many tokens, itself included; None: all before.

    ``shares_v``: V is a part of what is kept as K (multi-head latent attention), and read with it.
    """

    heads: int
    kv_heads: int
    head_size_k: int
    head_size_v: int
    window: int | None = None
    shares_v: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model. ``layers`` are those that attend; ``notes`` say what was assumed; ``source``: where from."""

    name: str
    source: str
    layers: tuple[Layer, ...]
    weights: tuple[Weight, ...]
    experts: int = 0
    experts_used: int = 0
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> int:
        """All weights; a tied output counts once."""
        return sum(weight.values for weight in self.weights if weight.name != _TIED)

    @property
    def bytes(self) -> int:
        """As stored; a tied output counts once."""
        return sum(weight.bytes for weight in self.weights if weight.name != _TIED)


_TIED = "output.weight (token_embd.weight)"
_LOOKUPS = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")


def role_of(name: str, shape: Sequence[int]) -> Role:
    """When a tensor is used, by the names that llama.cpp gives (llama-arch.cpp)."""
    if name in _LOOKUPS:
        return "lookup"
    if "_exps." in name:
        return "experts"
    return "matrix" if len(shape) > 1 and name.endswith(".weight") and "norm" not in name else "vector"


def with_output(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """The weights, and the embedding a second time as the output where the model has no other."""
    names = {weight.name for weight in weights}
    embedding = next((weight for weight in weights if weight.name == _LOOKUPS[0]), None)
    if "output.weight" in names or embedding is None:
        return tuple(weights)
    tied = Weight(
        name=_TIED, shape=embedding.shape, kind=embedding.kind, role="matrix", after_last_attention=True
    )
    return (*weights, tied)
