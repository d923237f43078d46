"""The models and scenes of gate ``logits``, and which of them a series needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.upstreams import upstream_of
from patchkit.gpu.emulated.models import Model, SmallModel
from patchkit.gpu.emulated.recurrent import RecurrentModel
from patchkit.gpu.hardware.logits import Scene, scenes
from patchkit.prove.gates.touched import match_changed_files

Kind = Literal["attention", "depth", "weights", "experts", "recurrent"]

# Spread of the weights, so that few keys dominate attention; with the usual spread, errors hardly show.
_SPREAD = 0.08
# Feed-forward layers are wider than the rest, as in every real model. At equal width a fused kernel of build
# 6900 overwrites input that its other blocks still read (docs/records/emulator.md). With a head size of 256
# it also does so at three times the width.
_WIDENING, _WIDENING_256 = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGroup:
    """Models, each of which runs in every scene. A sample skips groups without ``is_default``."""

    kind: Kind
    models: tuple[Model, ...]
    scenes: tuple[Scene, ...]
    is_default: bool = True

    @property
    def label(self) -> str:
        """Its models and scenes as text."""
        names = ", ".join(scene.name for scene in self.scenes)
        return f"{', '.join(model.name for model in self.models)}: {names}"


def _llama(
    head_size: int,
    heads: int = 4,
    kv_heads: int = 1,
    *,
    weights: tuple[str, ...] = (),
    experts: int = 0,
    experts_used: int = 0,
) -> SmallModel:
    return SmallModel(
        head_size=head_size,
        heads=heads,
        kv_heads=kv_heads,
        spread=_SPREAD,
        widening=_WIDENING_256 if head_size == 256 else _WIDENING,  # noqa: PLR2004
        weights=weights,
        is_filled=bool(weights),
        experts=experts,
        experts_used=experts_used,
    )


_D64, _D96, _D128, _D256 = _llama(64, 8, 2), _llama(96, 4, 4), _llama(128), _llama(256)


def _deep(name: str, depth: int, kv: str = "f16") -> Scene:
    """Prompts longer than a physical batch, then generation, at a depth of KV rows that were not computed."""
    return Scene(
        name=f"deep-{name}", tokens=40, steps=3, ubatch=32, stride=7, depth=depth, type_k=kv, type_v=kv
    )


_DEEP = _deep("32768", 32768)
_DEEP_Q8 = _deep("16384-q8_0", 16384, "q8_0")
_DEEP_Q4 = _deep("4096-q4_0", 4096, "q4_0")
# Two physical batches, the second one partly filled, then generation.
_SHORT = Scene(name="short", tokens=40, steps=3, ubatch=32, stride=7)
_SHORT_PAIR = Scene(name="short-two", tokens=30, sequences=2, steps=3, ubatch=32, stride=7)
# One token at a time, which avoids upstream's races between the tokens of a batch.
_SINGLE = Scene(name="single", tokens=12, steps=4, ubatch=1, stride=3)

# Assigned in turn, so that each type of a group is used by attention, by experts and in both layers.
_QUANTIZED = (
    ("BF16", "F32"),
    ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
    ("IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "MXFP4"),
)


def groups() -> tuple[ModelGroup, ...]:
    """All groups."""
    quantized = tuple(_llama(64, weights=types, experts=6, experts_used=2) for types in _QUANTIZED)
    recurrent = tuple(
        RecurrentModel(architecture=one)
        for one in ("mamba", "mamba2", "rwkv6", "rwkv7", "qwen3next", "qwen35moe")
    )
    return (
        ModelGroup(kind="attention", models=(_D64, _D96, _D128, _D256), scenes=scenes()),
        ModelGroup(kind="depth", models=(_D128,), scenes=(_DEEP,)),
        ModelGroup(kind="depth", models=(_D64,), scenes=(_DEEP_Q8,)),
        ModelGroup(kind="depth", models=(_D256,), scenes=(_DEEP_Q4,)),
        ModelGroup(kind="depth", models=(_D64, _D96, _D256), scenes=(_DEEP,), is_default=False),
        ModelGroup(kind="depth", models=(_D96, _D128, _D256), scenes=(_DEEP_Q8,), is_default=False),
        ModelGroup(kind="depth", models=(_D64, _D96, _D128), scenes=(_DEEP_Q4,), is_default=False),
        ModelGroup(kind="weights", models=quantized, scenes=(_SHORT, _SHORT_PAIR)),
        # A fused kernel selects experts if their number is a power of two; otherwise several kernels do.
        ModelGroup(
            kind="experts",
            models=tuple(_llama(64, experts=count, experts_used=2) for count in (4, 6)),
            scenes=(_SHORT, _SHORT_PAIR, _SINGLE),
        ),
        ModelGroup(kind="recurrent", models=recurrent, scenes=(_SHORT, _SHORT_PAIR, _SINGLE)),
    )


# File name prefixes in ggml-cuda, and the kinds of models that exercise their code most.
_TOUCHED: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("fattn", ("attention", "depth")),
    ("mm", ("weights", "experts")),
    ("topk-moe", ("experts",)),
    ("ssm", ("recurrent",)),
    ("wkv", ("recurrent",)),
    ("gla", ("recurrent",)),
    ("gated_delta", ("recurrent",)),
)


def kinds_of(changed: Sequence[str]) -> frozenset[Kind]:
    """The kinds of models to test changed files with: by file name; every kind if a name is unknown."""
    matched = match_changed_files(changed, _TOUCHED)
    if matched is None:
        return frozenset(group.kind for group in groups())
    return frozenset(kind for kinds in matched for kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The groups to ``run``, and those that are skipped (``left``)."""

    run: tuple[ModelGroup, ...]
    left: tuple[ModelGroup, ...]

    def not_run(self) -> Iterator[str]:
        """A line for each kind with skipped groups."""
        for kind in dict.fromkeys(group.kind for group in self.left):
            labels = "; ".join(group.label for group in self.left if group.kind == kind)
            yield f"small models, {kind} ({labels}) (--full runs them)"


def choose(changed: Sequence[str], *, is_sample: bool) -> Chosen:
    """All groups; as a sample, the default groups of the kinds that changed files need."""
    every, kinds = groups(), kinds_of(changed)
    run = tuple(one for one in every if not is_sample or (one.kind in kinds and one.is_default))
    return Chosen(run=run, left=tuple(one for one in every if one not in run))


def knows(tree: Path, model: Model) -> bool:
    """Whether that version of llama.cpp has the model's architecture."""
    listed = upstream_of(tree).architectures
    names = (tree / listed).read_text("utf-8", "replace") if listed is not None else ""
    return f'"{model.architecture}"' in names
