"""The models and operations that gate ``width`` runs, and which of them a series needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.text import counted
from patchkit.gpu.emulated.attention_models import Architecture, AttentionModel
from patchkit.gpu.emulated.models import Model, SmallModel
from patchkit.gpu.emulated.recurrent import Architecture as Recurrent
from patchkit.gpu.emulated.recurrent import RecurrentModel
from patchkit.gpu.hardware.logits import Scene
from patchkit.gpu.hardware.operation_widths import WidthCase
from patchkit.prove.gates.logits_scenes import Kind, kinds_of
from patchkit.prove.gates.operations import ops_of

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 16)
"""Tokens per batch: those of speculative decoding, and one where upstream uses its kernels for prompts."""
DRAFT = 3
"""Proposed tokens per batch of speculative decoding: a batch of four."""

# As many steps as the largest width, after a prompt of one physical batch.
SCENE = Scene(name="widths", tokens=24, steps=max(WIDTHS), ubatch=32, stride=24, widths=WIDTHS, draft=DRAFT)


_RECURRENT: tuple[Recurrent, ...] = (
    "mamba",
    "mamba2",
    "rwkv6",
    "rwkv7",
    "qwen3next",
    "qwen35",
    "qwen35moe",
    "qwen4exp",
)
_GEMMA: tuple[Architecture, ...] = ("gemma3", "gemma4")
_WITH_EXPERTS: tuple[Architecture, ...] = ("gpt-oss", "deepseek2", "deepseek4", "glm4moe")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOf:
    """A model, and the kinds of code that it is for."""

    kinds: frozenset[Kind]
    model: Model


def _llama(weights: tuple[str, ...] = (), experts: int = 0, *, head_size: int = 64) -> SmallModel:
    return SmallModel(
        head_size=head_size,
        heads=4,
        kv_heads=1,
        spread=0.08,
        widening=3,
        weights=weights,
        is_filled=bool(weights),
        experts=experts,
        experts_used=2 if experts else 0,
    )


def models() -> tuple[ModelOf, ...]:
    """Dense models, MoE models, and each recurrent architecture."""
    dense = (_llama(), _llama(("Q4_K", "Q6_K", "Q5_K"), head_size=128), _llama(("Q8_0", "Q4_0")))
    experts = (_llama(experts=4), _llama(("Q4_K", "Q6_K"), 6), _llama(("MXFP4", "Q8_0"), 6))
    recurrent = tuple(RecurrentModel(architecture=name) for name in _RECURRENT)
    gemma, others = (
        tuple(AttentionModel(architecture=name) for name in names) for names in (_GEMMA, _WITH_EXPERTS)
    )
    by_kind: tuple[tuple[tuple[Kind, ...], tuple[Model, ...]], ...] = (
        (("attention",), dense[:1]),
        (("attention", "weights"), (*dense[1:], *gemma)),
        (("attention", "experts"), others),
        (("experts",), experts),
        (("recurrent",), recurrent),
    )
    return tuple(ModelOf(kinds=frozenset(kinds), model=one) for kinds, some in by_kind for one in some)


_LEGACY = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
_K = ("q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
_CODEBOOKS = ("iq1_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4")
_FLOATS = ("f32", "f16", "bf16")
_ATTENTION = WidthCase(
    op="FLASH_ATTN_EXT", type="f16", head_size=128, head_size_v=128, heads=8, kv_heads=2, kv=512
)


def cases() -> tuple[tuple[WidthCase, ...], ...]:
    """Single operations, in groups that run in one process each."""
    one = WidthCase(op="MUL_MAT", type="", rows=96, columns=1024)
    routed = WidthCase(op="MUL_MAT_ID", type="", rows=96, columns=512, experts=8, used=2)
    return (
        *(tuple(replace(one, type=kind) for kind in kinds) for kinds in (_FLOATS, _LEGACY, _K, _CODEBOOKS)),
        tuple(replace(routed, type=kind) for kind in ("f16", "q4_0", "q8_0", "mxfp4", "q4_K", "q6_K")),
        tuple(_attention()),
        tuple(
            WidthCase(op=op, type=kind, rows=256, columns=512)
            for op in ("NORM", "NORM_ADD_NORM", "GLU")
            for kind in ("f16", "q8_0", "q4_K")
        ),
    )


def _attention() -> Iterator[WidthCase]:
    for size in (64, 128, 256):
        yield replace(_ATTENTION, head_size=size, head_size_v=size)
    yield replace(_ATTENTION, kv_heads=8)
    yield replace(_ATTENTION, type="q8_0")
    yield replace(_ATTENTION, kv=1024)
    yield replace(_ATTENTION, head_size=64, head_size_v=64, kv_heads=1, sinks=True)  # gpt-oss
    yield replace(_ATTENTION, head_size=256, head_size_v=256, kv_heads=4, softcap=50.0)  # Gemma 2
    yield replace(_ATTENTION, head_size=576, head_size_v=512, heads=16, kv_heads=1)  # MLA


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The models and groups of cases to run, and names of those that are skipped."""

    models: tuple[ModelOf, ...]
    cases: tuple[tuple[WidthCase, ...], ...]
    left: tuple[str, ...] = ()


def choose(changed: Sequence[str], *, is_sample: bool) -> Chosen:
    """All models and cases; as a sample, those that changed files serve."""
    every, groups = models(), cases()
    if not is_sample:
        return Chosen(models=every, cases=groups)
    kinds = kinds_of(changed)
    names = sorted({name for group in groups for case in group for name in case.operations})
    ops = ops_of(changed, names) or names
    run = tuple(one for one in every if one.kinds & kinds)
    kept = tuple(tuple(case for case in group if set(case.operations) & set(ops)) for group in groups)
    skipped = [
        case.op for group, some in zip(groups, kept, strict=True) for case in group if case not in some
    ]
    left = [one.model.name for one in every if one not in run]
    left += [f"{op} ({counted(count, 'case')})" for op, count in Counter(skipped).items()]
    return Chosen(models=run, cases=tuple(group for group in kept if group), left=tuple(left))
