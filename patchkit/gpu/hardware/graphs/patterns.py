"""Graphs that llama.cpp's models contain: the seeds of random graphs.

Each has the operations that a fused kernel or a special path of the HIP backend matches (read at build
11549), at the smallest sizes that reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from patchkit.gpu.hardware.graphs.description import Extent, Graph, LeafKind, Tensor

_ROPE_NORMAL, _ROPE_NEOX, _ROPE_MROPE, _ROPE_IMROPE = 0, 2, 8, 40
_EPS = 1e-5
_HEADS = 4
_HEAD = 128  # size of a head of delta nets, which the fused kernel requires


class Builder:
    """Collects the tensors of a graph; each method returns the name of a new tensor."""

    def __init__(self, name: str, **dims: int) -> None:
        self._name, self._dims = name, dims
        self._tensors: list[Tensor] = []

    def leaf(  # noqa: PLR0913 - one for each property of a leaf
        self,
        kind: LeafKind,
        *ne: Extent,
        type: str = "f32",  # noqa: A002 - as in the description
        runs: tuple[tuple[Extent, int], ...] = (),
        start: Extent = 0,
        modulo: Extent = 0,
        step: int = 0,
        seen: str = "causal",
        filled: bool = False,
        negative: bool = False,
        shift: float = 0.0,
    ) -> str:
        """A leaf."""
        return self._add(
            Tensor(
                name=self._next(kind[0]),
                leaf=kind,
                type=type,
                ne=ne,
                runs=runs,
                start=start,
                modulo=modulo,
                step=step,
                seen=seen,
                filled=filled,
                negative=negative,
                shift=shift,
            )
        )

    def weight(self, type: str, *ne: Extent) -> str:  # noqa: A002 - as in the description
        """Constant weights."""
        return self.leaf("weight", *ne, type=type)

    def computed(self, *ne: Extent) -> str:
        """Activations that the graph computes, so that the allocator may reuse their memory."""
        return self.op("scale", self.leaf("input", *ne), f=(2.0, 0.0))

    def op(
        self,
        op: str,
        *of: str,
        ne: tuple[Extent, ...] = (),
        i: tuple[Extent, ...] = (),
        f: tuple[float, ...] = (),
        nb: tuple[str, ...] = (),
        at: str = "",
        output: bool = False,
    ) -> str:
        """A node."""
        return self._add(
            Tensor(name=self._next("t"), op=op, of=of, ne=ne, i=i, f=f, nb=nb, at=at, output=output)
        )

    def norm(self, x: str, *ne: Extent) -> str:
        """RMSNorm with weights of that shape."""
        return self.op("mul", self.op("rms_norm", x, f=(_EPS,)), self.weight("f32", *ne))

    def product(self, x: str, *ne: Extent, type: str = "q4_K", output: bool = False) -> str:  # noqa: A002
        """A matmul with weights of that shape."""
        return self.op("mul_mat", self.weight(type, *ne), x, output=output)

    def graph(self, memory: Literal["apart", "reused"] = "reused", rounds: int = 1) -> Graph:
        """The graph."""
        return Graph(
            name=self._name, dims=self._dims, memory=memory, rounds=rounds, tensors=tuple(self._tensors)
        )

    def ended(self, total: str, rows: Extent = "rows") -> Graph:
        """The graph, with a norm of its last sum, a matmul that reads it, and another reader of the sum."""
        self.product(self.norm(total, "width"), "width", rows, output=True)
        self.op("scale", total, f=(0.5, 0.0), output=True)
        return self.graph()

    def _next(self, letter: str) -> str:
        return f"{letter}{len(self._tensors)}"

    def _add(self, one: Tensor) -> str:
        self._tensors.append(one)
        return one.name


def _of_some(name: str, tokens: int) -> str:
    return name if tokens == 1 else f"{name}-{tokens}"


def _norm_matmul(tokens: int = 1) -> Graph:
    b = Builder(_of_some("norm-matmul", tokens), width=512, rows=64, tokens=tokens)
    x = b.computed("width", "tokens")
    b.product(b.norm(x, "width"), "width", "rows", output=True)
    b.op("scale", x, f=(0.5, 0.0), output=True)
    return b.graph()


def _add_norm(tokens: int = 1) -> Graph:
    b = Builder(_of_some("add-norm", tokens), width=512, rows=64, tokens=tokens)
    total = b.op("add", b.computed("width", "tokens"), b.computed("width", "tokens"))
    return b.ended(total)


def _norm_add_norm(tokens: int = 1) -> Graph:
    b = Builder(_of_some("norm-add-norm", tokens), width=512, rows=64, tokens=tokens)
    begun = b.computed("width", "tokens")
    total = b.op("add", b.norm(b.computed("width", "tokens"), "width"), begun)
    return b.ended(total)


def _shared(tokens: int) -> Graph:
    b = Builder("shared-activation" if tokens == 1 else "shared-prompt", width=512, rows=64, tokens=tokens)
    x = b.leaf("input", "width", "tokens")
    for kind in ("q4_K", "q5_K", "q4_K"):
        b.product(x, "width", "rows", type=kind, output=True)
    return b.graph(rounds=2)


def _two_matmuls() -> Graph:
    """A matmul that reads the result of another one, as the two matrices of a LoRA adapter."""
    b = Builder("two-matmuls", width=512, rank=256, rows=64, tokens=1)
    b.product(b.product(b.computed("width", "tokens"), "width", "rank"), "rank", "rows", output=True)
    return b.graph()


def _in_place() -> Graph:
    b = Builder("in-place", width=512, rows=64, tokens=1)
    x = b.computed("width", "tokens")
    b.product(x, "width", "rows", output=True)
    b.product(b.op("scale_inplace", x, f=(3.0,)), "width", "rows", output=True)
    return b.graph()


def _stores(b: Builder, cache: str, *, is_turned_v: bool) -> tuple[list[str], list[str]]:
    """Row numbers and caches of K and V."""
    rows = [b.leaf("numbers", "tokens", type="i64", start=3, step=1)]
    caches = [b.leaf("cache", "head*kv_heads", "cells", type=cache)]
    if is_turned_v:
        rows.append(b.leaf("numbers", "head*kv_heads*tokens", type="i64", start=3))
        caches.append(b.leaf("cache", 1, "head*kv_heads*cells", type="f16"))
    else:
        rows.append(b.leaf("numbers", "tokens", type="i64", start=3, step=1))
        caches.append(b.leaf("cache", "head*kv_heads", "cells", type=cache))
    return rows, caches


def _attention_inputs(  # noqa: PLR0913 - one for each property in which models differ
    like: str = "",
    *,
    heads: int = _HEADS,
    kv_heads: int = 2,
    tokens: int = 1,
    head: int = 64,
    norms: Literal["none", "head", "row"] = "none",
    has_bias: bool = False,
    mode: int = _ROPE_NORMAL,
    factors: bool = False,
    is_joined: bool = False,
    is_gated: bool = False,
    is_turned_v: bool = False,
    cache: str = "f16",
) -> Graph:
    """Q, K and V of a layer, up to the stores to the KV cache.

    ``like`` names the models that have this form. ``norms`` of Q and K: of each head, or of the whole row.
    ``is_joined``: one matmul for Q, K and V. ``is_gated``: in the result of the matmul the gate of each head
    of Q follows the head. ``is_turned_v``: the V cache has a row for each channel, as without flash
    attention.
    """
    name = f"qkv-rope-store{like}"
    b = Builder(name, head=head, heads=heads, kv_heads=kv_heads, width=512, tokens=tokens, cells=16)
    x = b.computed("width", "tokens")
    positions: Extent = "4*tokens" if mode & _ROPE_MROPE else "tokens"
    position = b.leaf("numbers", positions, type="i32", start=3, step=1)
    factor = (b.leaf("weight", "head", shift=2.0),) if factors else ()
    rows, caches = _stores(b, cache, is_turned_v=is_turned_v)
    joined = b.product(x, "width", "head*heads+2*head*kv_heads") if is_joined else ""

    def projected(count: str, at: str) -> str:
        if is_joined:
            return b.op("view", joined, ne=("head", count, "tokens"), nb=("head.0", "1.1", "1.2"), at=at)
        if is_gated and count == "heads":
            made = b.product(x, "width", "2*head*heads")
            return b.op("view", made, ne=("head", count, "tokens"), nb=("2*head.0", "1.1", "1.2"), at="0.0")
        made = b.product(x, "width", f"head*{count}")
        return b.op("add", made, b.weight("f32", f"head*{count}")) if has_bias else made

    def turned(made: str, count: str) -> str:
        if norms == "row":
            made = b.norm(made, f"head*{count}")
        if not (is_joined or (is_gated and count == "heads")):
            made = b.op("reshape", made, ne=("head", count, "tokens"))
        if norms == "head":
            made = b.norm(made, "head")
        return b.op("rope", made, position, *factor, i=("head", mode))

    b.op("scale", turned(projected("heads", "0.0"), "heads"), f=(0.25, 0.0), output=True)
    v = projected("kv_heads", "head*heads+head*kv_heads.0")
    k = turned(projected("kv_heads", "head*heads.0"), "kv_heads")
    flat = b.op("reshape", k, ne=("head*kv_heads", "tokens"))
    if is_turned_v:
        v = b.op("reshape", v, ne=(1, "head*kv_heads*tokens"))
    elif is_joined:
        v = b.op("view", v, ne=("head*kv_heads", "tokens"), nb=("1.2", "1.2", "1.2"), at="0.0")
    b.op("set_rows", caches[0], flat, rows[0])
    b.op("set_rows", caches[1], v, rows[1])
    b.product(x, "width", 64, type="q8_0", output=True)
    return b.graph(rounds=2)


def _gate_up(tokens: int, glu: str = "swiglu", *, has_bias: bool = False) -> Graph:
    name = ("gate-up" if glu == "swiglu" else f"gate-up-{glu}") + ("-prompt" if tokens > 1 else "")
    b = Builder(name + ("-biased" if has_bias else ""), width=512, inner=256, rows=64, tokens=tokens)
    x = b.computed("width", "tokens")

    def projected() -> str:
        made = b.product(x, "width", "inner")
        return b.op("add", made, b.weight("f32", "inner")) if has_bias else made

    gate, up = projected(), projected()
    f = {"glu_oai": (1.702, 7.0), "glu_clamp": (0.5,)}.get(glu, ())
    b.product(b.op(glu, gate, up, f=f), "inner", "rows", type="q8_0", output=True)
    b.op("scale", x, f=(0.5, 0.0), output=True)
    return b.graph()


def _experts(tokens: int, *, has_bias: bool = False) -> Graph:
    """A MoE layer: gate and up projections of experts, GLU, down projection, weighted sum.

    With biases as in gpt-oss.
    """
    name = ("experts" if tokens == 1 else "experts-prompt") + ("-biased" if has_bias else "")
    b = Builder(name, width=256, inner=256, experts=4, used=2, tokens=tokens)
    ids = b.leaf("numbers", "used", "tokens", type="i32", start=1, modulo="experts")
    x = b.computed("width", "tokens")
    each = b.op("reshape", x, ne=("width", 1, "tokens"))

    def of_experts(of: str, *ne: str) -> str:
        made = b.op("mul_mat_id", b.weight("q4_K", *ne, "experts"), of, ids)
        return b.op("add_id", made, b.weight("f32", ne[1], "experts"), ids) if has_bias else made

    gate = of_experts(each, "width", "inner")
    up = of_experts(each, "width", "inner")
    joined = b.op("glu_oai", gate, up, f=(1.702, 7.0)) if has_bias else b.op("swiglu", gate, up)
    down = of_experts(joined, "inner", "width")
    weighed = b.op("mul", down, b.leaf("input", 1, "used", "tokens"))
    _summed(b, weighed)
    b.op("scale", x, f=(0.5, 0.0), output=True)
    return b.graph()


def _summed(b: Builder, weighed: str, used: int = 2, *, output: bool = True) -> str:
    parts = [
        b.op("view", weighed, ne=("width", "tokens"), nb=("1.2", "1.2", "1.2"), at=f"{n}.1")
        for n in range(used)
    ]
    total = parts[0]
    for n, part in enumerate(parts[1:], start=2):
        total = b.op("add", total, part, output=output and n == used)
    return b.op("cont", total, output=output) if used == 1 else total


def _moe_layer(tokens: int) -> Graph:
    """A MoE layer with a shared expert and its gate, as in Qwen MoE models, up to the next norm."""
    name = "moe-layer" if tokens == 1 else "moe-layer-prompt"
    b = Builder(name, width=256, inner=64, experts=4, used=2, tokens=tokens)
    begun = b.computed("width", "tokens")
    x = b.norm(begun, "width")
    ids = b.leaf("numbers", "used", "tokens", type="i32", start=1, modulo="experts")
    each = b.op("reshape", x, ne=("width", 1, "tokens"))
    gate, up = (
        b.op("mul_mat_id", b.weight("q8_0", "width", "inner", "experts"), each, ids) for _ in range(2)
    )
    down = b.op("mul_mat_id", b.weight("q8_0", "inner", "width", "experts"), b.op("swiglu", gate, up), ids)
    routed = _summed(b, b.op("mul", down, b.leaf("input", 1, "used", "tokens")), output=False)
    gate, up = (b.product(x, "width", "inner", type="q8_0") for _ in range(2))
    shared = b.product(b.op("swiglu", gate, up), "inner", "width", type="q8_0")
    opened = b.op("sigmoid", b.product(x, "width", 1, type="f32"))
    total = b.op("add", b.op("add", routed, b.op("mul", shared, opened)), begun)
    return b.ended(total, rows=64)


def _shared_gate(tokens: int = 1, *, is_whole: bool = False) -> Graph:
    """The gated shared expert, added to the sum of the others and the residual before a norm.

    ``is_whole``: a gate for each value, not for each row.
    """
    name = _of_some("shared-gate" + ("-whole" if is_whole else ""), tokens)
    b = Builder(name, width=512, rows=64, tokens=tokens)
    routed, begun = b.computed("width", "tokens"), b.computed("width", "tokens")
    made = b.computed("width", "tokens")
    opened = b.op("sigmoid", b.leaf("input", "width" if is_whole else 1, "tokens"))
    gated = b.op("mul", made, opened)
    total = b.op("add", b.op("add", routed, gated), begun)
    return b.ended(total)


def _experts_norm(tokens: int) -> Graph:
    """The weighted sum over experts, the residual add and the next norm."""
    b = Builder(
        "experts-norm" + ("" if tokens == 1 else "-prompt"), width=256, rows=64, used=2, tokens=tokens
    )
    begun = b.computed("width", "tokens")
    given = b.op("scale", b.leaf("input", "width", "used", "tokens"), f=(2.0, 0.0))
    weighed = b.op("mul", given, b.leaf("input", 1, "used", "tokens"))
    total = b.op("add", _summed(b, weighed, output=False), begun)
    return b.ended(total)


def _gated(tokens: int = 1) -> Graph:
    """Attention's result times the sigmoid of its gate, as in Qwen3-Next."""
    b = Builder(_of_some("gated", tokens), width=512, rows=64, tokens=tokens)
    gate = b.op("sigmoid", b.leaf("input", "width", "tokens"))
    b.product(b.op("mul", b.leaf("input", "width", "tokens"), gate), "width", "rows", output=True)
    return b.graph()


def _expert_sum(used: int, *, has_scales: bool = False) -> Graph:
    b = Builder(f"expert-sum-{used}" + ("-scaled" if has_scales else ""), width=128, used=used, tokens=3)
    given = b.op("scale", b.leaf("input", "width", "used", "tokens"), f=(2.0, 0.0))
    if has_scales:
        given = b.op("mul", given, b.leaf("input", 1, "used", "tokens"))
    total = _summed(b, b.op("mul", given, b.leaf("input", 1, "used", "tokens")), used)
    b.op("scale", total, f=(0.5, 0.0), output=True)
    return b.graph()


def _experts_in_a_row() -> Graph:
    """Two matmuls with experts, for which upstream sorts activations into memory of its own."""
    b = Builder("experts-in-a-row", width=256, rows=64, experts=4, few=64, many=136)
    ids = b.leaf("numbers", 1, "few+many", type="i32", runs=(("few", 0), ("many", 1)))
    for _ in range(2):
        x = b.leaf("input", "width", 1, "few+many")
        b.op("mul_mat_id", b.weight("q2_K", "width", "rows", "experts"), x, ids, output=True)
    return b.graph()


def _attention(tokens: int, *, sequences: int = 1, heads: int = 4) -> Graph:
    name = f"attention-{tokens}" + (f"-of-{sequences}" if sequences > 1 else "")
    dims = {"head": 64, "heads": heads, "kv_heads": 2, "kv": 256, "tokens": tokens, "sequences": sequences}
    b = Builder(name, **dims)
    q = b.op("permute", b.computed("head", "heads", "tokens", "sequences"), i=(0, 2, 1, 3))
    k, v = (
        b.op(
            "permute",
            b.leaf("cache", "head", "kv_heads", "kv", "sequences", type="f16", filled=True),
            i=(0, 2, 1, 3),
        )
        for _ in "kv"
    )
    mask = b.leaf("mask", "kv", "tokens", 1, "sequences", type="f16", seen="padded")
    made = b.op("attention", q, k, v, mask, f=(0.125, 0.0, 0.0), i=(1,), output=True)
    flat = b.op("reshape", made, ne=("head*heads", "tokens*sequences"))
    b.product(flat, "head*heads", 64, type="q8_0", output=True)
    return b.graph(memory="apart")


def _soft_max() -> Graph:
    b = Builder("soft-max", head=64, heads=4, kv=96, tokens=3)
    q = b.computed("head", "tokens", "heads")
    k = b.weight("f16", "head", "kv", "heads")
    v = b.weight("f16", "kv", "head", "heads")
    mask = b.leaf("mask", "kv", "tokens", type="f16")
    shown = b.op("soft_max", b.op("mul_mat", k, q), mask, f=(0.125, 0.0))
    made = b.op("permute", b.op("mul_mat", v, shown), i=(0, 2, 1, 3))
    b.product(b.op("reshape", b.op("cont", made), ne=("head*heads", "tokens")), "head*heads", 64, output=True)
    return b.graph(memory="apart")


def _turned() -> Graph:
    b = Builder("norm-rope", head=128, heads=4, tokens=3, cells=16)
    position = b.leaf("numbers", "tokens", type="i32", start=3, step=1)
    x = b.computed("head", "heads", "tokens")
    turned = b.op("rope", b.norm(x, "head"), position, i=("head", _ROPE_NEOX))
    rows = b.leaf("numbers", "tokens", type="i64", start=2, step=1)
    cache = b.leaf("cache", "head*heads", "cells", type="f16")
    b.op("set_rows", cache, b.op("reshape", turned, ne=("head*heads", "tokens")), rows)
    return b.graph(rounds=2)


def _delta_net(tokens: int, *, is_l2: bool = False) -> Graph:
    """A gated delta net from its projections to its gated output.

    Q and K have an RMSNorm and a scale, as in Qwen3.5, or an L2 norm, as in Qwen3-Next (``is_l2``).
    """
    name = ("delta-net" if tokens == 1 else "delta-net-prompt") + ("-l2" if is_l2 else "")
    b = Builder(name, head=_HEAD, k_heads=1, v_heads=2, width=256, tokens=tokens, past=3)
    channels = "2*head*k_heads+head*v_heads"
    spread = "2*past*head*k_heads+past*head*v_heads"
    state_size = "head*head*v_heads"
    x = b.computed("width", "tokens")
    cache = b.leaf("cache", spread, 4, filled=True)
    states = b.leaf("cache", state_size, 2, filled=True)
    row = b.leaf("numbers", 1, type="i32", start=1)
    first = b.leaf("numbers", 1, type="i32")
    before = b.op("reshape", b.op("get_rows", cache, row), ne=("past", channels))
    given = b.op("transpose", b.product(x, "width", channels, type="q8_0"))
    joined = b.op("concat", before, given, i=(0,))
    last = b.op("view", joined, ne=("past", channels), nb=("1.1", "1.2", "1.3"), at="tokens.0")
    kept = b.op("view", cache, ne=(spread, 1), at="2.1")
    b.op("cpy", last, kept)
    state = b.op("reshape", b.op("get_rows", states, first), ne=("head", "head", "v_heads"))
    made = b.op("silu", b.op("ssm_conv", joined, b.weight("f32", "past+1", channels)))

    def part(heads: str, at: str) -> str:
        return b.op("view", made, ne=("head", heads, "tokens"), nb=("head.0", "1.1", "1.2"), at=at)

    # Q and K of length 1, as in models: else the state grows, and so does any rounding error.
    def normed(at: str) -> str:
        if is_l2:
            return b.op("l2_norm", part("k_heads", at), f=(_EPS,))
        return b.op("scale", b.op("rms_norm", part("k_heads", at), f=(_EPS,)), f=(_HEAD**-0.5, 0.0))

    q, k = normed("0.0"), normed("head*k_heads.0")
    v = part("v_heads", "2*head*k_heads.0")
    alpha = b.op("reshape", b.product(x, "width", "v_heads", type="q8_0"), ne=("v_heads", "tokens"))
    opened = b.op("softplus", b.op("add", alpha, b.weight("f32", "v_heads")))
    gate = b.op("mul", opened, b.leaf("weight", "v_heads", negative=True))
    gate = b.op("reshape", gate, ne=(1, "v_heads", "tokens"))
    beta = b.op("reshape", b.product(x, "width", "v_heads", type="q8_0"), ne=(1, "v_heads", "tokens"))
    net = b.op("gated_delta_net", q, k, v, gate, b.op("sigmoid", beta), state, i=(1,), output=True)
    output = b.op("view", net, ne=("head", "v_heads", "tokens"), nb=("head.0", "head*v_heads.0", "1.2"))
    z = b.op("reshape", b.product(x, "width", "head*v_heads", type="q8_0"), ne=("head", "v_heads", "tokens"))
    gated = b.op("mul", b.norm(output, "head"), b.op("silu", z))
    b.product(
        b.op("reshape", gated, ne=("head*v_heads", "tokens")), "head*v_heads", 64, type="q8_0", output=True
    )
    return b.graph()


def _delta_net_inputs(*, is_vector: bool = False) -> Graph:
    """Q, K and the gate of a gated delta net for one token of each sequence.

    ``is_vector``: a gate for each value, as in Kimi Linear, not for each head.
    """
    name = "delta-net-inputs" + ("-vector" if is_vector else "")
    b = Builder(name, head=_HEAD, k_heads=1, v_heads=2, sequences=1)
    gates = "head*v_heads" if is_vector else "v_heads"
    alpha = b.computed(gates, 1, "sequences")

    def normed() -> str:
        x = b.leaf("input", "head", "k_heads", 1, "sequences")
        return b.op("scale", b.op("rms_norm", x, f=(_EPS,)), f=(_HEAD**-0.5, 0.0))

    q, k = normed(), normed()
    v = b.leaf("input", "head", "v_heads", 1, "sequences")
    biased = b.op("add", alpha, b.weight("f32", gates, 1, "sequences"))
    decay = b.leaf("weight", gates, 1, "sequences", negative=True)
    gate = b.op("mul", b.op("softplus", biased), decay)
    gate = b.op("reshape", gate, ne=("head" if is_vector else 1, "v_heads", 1, "sequences"))
    beta = b.op("sigmoid", b.leaf("input", 1, "v_heads", 1, "sequences"))
    state = b.leaf("input", "head", "head", "v_heads", "sequences")
    b.op("gated_delta_net", q, k, v, gate, beta, state, i=(1,), output=True)
    return b.graph()


def _low_rank() -> Graph:
    """Three projections of low rank with a norm in between, as in MLA; their activations have a LayerNorm.

    The norms are outputs, so the allocator does not reuse their memory, and one of them is read again later.
    """
    b = Builder("low-rank", width=256, rank=64, rows=64, tokens=1)
    begun = b.product(b.leaf("input", "width", "tokens"), "width", "width", type="q8_0")
    normed = b.op("mul", b.op("norm", begun, f=(_EPS,)), b.weight("f32", "width"))
    x = b.op("add", normed, b.weight("f32", "width"))
    between = ""
    parts: list[str] = []
    for _ in range(3):
        normed = b.op("rms_norm", b.product(x, "width", "rank", type="q8_0"), f=(_EPS,))
        between = b.op("mul", normed, b.weight("f32", "rank"), output=True)
        parts.append(b.product(between, "rank", "rows", type="q8_0"))
    b.op("add", b.op("add", parts[0], parts[1]), parts[2], output=True)
    b.product(between, "rank", "rows", type="q8_0", output=True)
    return b.graph()


def _layer() -> Graph:
    """A layer of a dense model for one token: norm, attention, residual add, norm, feed-forward, add."""
    b = Builder("layer", head=64, heads=4, kv_heads=2, kv=64, width=256, inner=512, tokens=1)
    x = b.computed("width", "tokens")
    position = b.leaf("numbers", "tokens", type="i32", start=5, step=1)
    rows = [b.leaf("numbers", "tokens", type="i64", start=5, step=1) for _ in "kv"]
    caches = [b.leaf("cache", "head*kv_heads", "kv", type="f16", filled=True) for _ in "kv"]
    normed = b.norm(x, "width")

    def turned(count: str) -> str:
        made = b.product(normed, "width", f"head*{count}")
        return b.op("rope", b.op("reshape", made, ne=("head", count, "tokens")), position, i=("head", 0))

    q = turned("heads")
    v = b.product(normed, "width", "head*kv_heads", type="q6_K")
    k = b.op("reshape", turned("kv_heads"), ne=("head*kv_heads", "tokens"))
    stored = [b.op("set_rows", caches[0], k, rows[0]), b.op("set_rows", caches[1], v, rows[1])]
    seen = [
        b.op("permute", b.op("reshape", one, ne=("head", "kv_heads", "kv")), i=(0, 2, 1, 3)) for one in stored
    ]
    mask = b.leaf("mask", "kv", "tokens", type="f16")
    q = b.op("permute", q, i=(0, 2, 1, 3))
    made = b.op("attention", q, *seen, mask, f=(0.125, 0.0, 0.0), i=(1,))
    flat = b.op("reshape", made, ne=("head*heads", "tokens"))
    x = b.op("add", b.product(flat, "head*heads", "width"), x)
    normed = b.norm(x, "width")
    gate = b.product(normed, "width", "inner")
    up = b.product(normed, "width", "inner")
    x = b.op("add", b.product(b.op("swiglu", gate, up), "inner", "width", type="q6_K"), x)
    b.product(b.norm(x, "width"), "width", 64, output=True)
    return b.graph(rounds=2)


PATTERNS: tuple[Callable[[], Graph], ...] = (
    _norm_matmul,
    lambda: _norm_matmul(4),
    _add_norm,
    lambda: _add_norm(4),
    _norm_add_norm,
    lambda: _norm_add_norm(4),
    lambda: _shared(1),
    lambda: _shared(64),
    _two_matmuls,
    _in_place,
    _attention_inputs,
    lambda: _attention_inputs("-mha", kv_heads=_HEADS),
    lambda: _attention_inputs("-qwen3", kv_heads=_HEADS, norms="head", mode=_ROPE_NEOX),
    lambda: _attention_inputs("-qwen2", kv_heads=_HEADS, has_bias=True, mode=_ROPE_NEOX),
    lambda: _attention_inputs("-olmo2", kv_heads=_HEADS, norms="row", mode=_ROPE_NEOX),
    lambda: _attention_inputs("-llama3", factors=True),
    lambda: _attention_inputs("-phi3", is_joined=True, mode=_ROPE_NEOX),
    lambda: _attention_inputs("-qwen3next", is_gated=True, norms="head", mode=_ROPE_NEOX),
    lambda: _attention_inputs("-qwen2vl", has_bias=True, mode=_ROPE_MROPE),
    lambda: _attention_inputs("-qwen3vl", norms="head", mode=_ROPE_IMROPE),
    lambda: _attention_inputs("-turned-v", is_turned_v=True),
    lambda: _attention_inputs("-q8_0-cache", cache="q8_0"),
    lambda: _attention_inputs("-large-heads", head=320),
    lambda: _attention_inputs("-many-heads", head=2, heads=1024),
    lambda: _attention_inputs("-tokens", tokens=3),
    lambda: _gate_up(1),
    lambda: _gate_up(1, "geglu"),
    lambda: _gate_up(1, "glu_oai", has_bias=True),
    lambda: _gate_up(64),
    lambda: _experts(1),
    lambda: _experts(1, has_bias=True),
    lambda: _experts(17),
    lambda: _moe_layer(1),
    lambda: _moe_layer(3),
    _shared_gate,
    lambda: _shared_gate(4),
    lambda: _shared_gate(is_whole=True),
    lambda: _experts_norm(1),
    lambda: _experts_norm(3),
    _gated,
    lambda: _gated(4),
    lambda: _expert_sum(1),
    lambda: _expert_sum(2),
    lambda: _expert_sum(3, has_scales=True),
    lambda: _expert_sum(15),
    lambda: _expert_sum(16),
    _experts_in_a_row,
    lambda: _attention(1),
    lambda: _attention(3),
    lambda: _attention(64),
    lambda: _attention(64, sequences=2, heads=2),
    _soft_max,
    _turned,
    lambda: _delta_net(1),
    lambda: _delta_net(1, is_l2=True),
    lambda: _delta_net(9),
    _delta_net_inputs,
    lambda: _delta_net_inputs(is_vector=True),
    _low_rank,
    _layer,
)
"""Functions, because a graph is only built when it is needed."""


def pattern_graphs() -> tuple[Graph, ...]:
    """All patterns."""
    return tuple(make() for make in PATTERNS)
