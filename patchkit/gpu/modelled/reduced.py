"""A model reduced to a few representative layers, as a GGUF file without weight data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, UsageError
from patchkit.base.store import Store
from patchkit.base.toml import load_toml, validate
from patchkit.gpu.emulated.sparse_model import Stored, write_sparse_model
from patchkit.gpu.gguf import GgufHeader, Value, tensor_kinds_by_name
from patchkit.gpu.modelled.shape import PATTERNS, ShapeModel, is_windowed

_FORMAT = 1  # of the file; raise it to write all of them anew
_IN_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_CONTEXT = 2**18
_EPSILON = 1e-6
_ROPE_SECTIONS = (
    11,
    11,
    10,
    0,
)  # of Qwen 3.5 (mrope_section in config.json); for text, all positions are equal
# Architectures whose layers or metadata a shape file does not describe as a whole; a GGUF file does.
_NOT_DESCRIBED = ("deepseek4", "gemma4", "glm4moe", "qwen4exp")
# Keys that count layers (inconsistent in a reduced file) or that are written separately.
_LEFT_OUT = ("nextn_predict_layers", "block_count", "vocab_size", "context_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """All tensors of a model. Keys of ``metadata`` exclude the architecture's prefix.

    ``patterns``: for each pattern, every n-th layer has no window, or has attention.
    """

    name: str
    architecture: str
    metadata: Mapping[str, Value]
    outside: tuple[Stored, ...]
    layers: tuple[tuple[Stored, ...], ...]
    patterns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedModel:
    """``chosen``: the layers of ``whole`` in the file. ``counts``: how many layers each represents.

    The last one is the model's last layer, which processes fewer tokens after its attention.
    """

    whole: WholeModel
    chosen: tuple[int, ...]
    counts: tuple[int, ...]

    def file(self, cache_root: Path) -> Path:
        """Its GGUF file, written once. Raises CacheError if it cannot be written."""
        store = Store(root=cache_root / "recorder" / "models")
        tensors = [f"{one.name} {one.shape} {one.kind.name}" for one in self._tensors()]
        metadata = {name: str(value) for name, value in sorted(self._metadata().items())}
        key = key_of({"reduced": _FORMAT, "metadata": metadata, "tensors": tensors})
        return store.obtain(key, lambda folder: self._write(folder / "model.gguf")) / "model.gguf"

    def window_of(self, place: int) -> int | None:
        """Tokens that a layer of the file attends to; None: all."""
        window = self.whole.metadata.get("attention.sliding_window")
        pattern = self.whole.metadata.get("attention.sliding_window_pattern")
        if not isinstance(window, int) or not window:
            return None
        if isinstance(pattern, tuple) and len(pattern) == len(self.whole.layers):
            return window if pattern[self.chosen[place]] else None
        return window if is_windowed(place, self.whole.patterns[0]) else None

    def _tensors(self) -> list[Stored]:
        inside = [
            Stored(name=f"blk.{place}.{one.name}", shape=one.shape, kind=one.kind)
            for place, layer in enumerate(self.chosen)
            for one in self.whole.layers[layer]
        ]
        return [*self.whole.outside, *inside]

    def _metadata(self) -> dict[str, Value]:
        count = len(self.whole.layers)
        found: dict[str, Value] = {}
        for name, value in self.whole.metadata.items():
            if isinstance(value, tuple) and len(value) == count:
                found[name] = tuple(value[layer] for layer in self.chosen)
            else:
                found[name] = value
        return found

    def _write(self, path: Path) -> None:
        arch = self.whole.architecture
        embedding = next(one for one in self.whole.outside if one.name == "token_embd.weight")
        own = {
            "block_count": len(self.chosen),
            "context_length": _CONTEXT,
            "vocab_size": embedding.shape[1],
            **self._metadata(),
        }
        metadata = {f"{arch}.{name}": value for name, value in own.items()}
        write_sparse_model(path, arch, self.whole.name, metadata, self._tensors())


def reduced(whole: WholeModel) -> ReducedModel:
    """Select representative layers: one of each kind, in an order that is consistent for llama.cpp.

    llama.cpp derives from a layer's index whether it has a window or is recurrent, so a layer is only placed
    at an index for which these properties are the same.
    """
    last = len(whole.layers) - 1
    kinds = Counter(_kind(whole, layer) for layer in range(last))
    missing = dict.fromkeys(kinds)
    chosen: list[int] = []
    counts: list[int] = []
    while missing or _of_patterns(whole, len(chosen)) != _of_patterns(whole, last):
        place = _of_patterns(whole, len(chosen))
        here = [layer for layer in range(last) if _of_patterns(whole, layer) == place]
        layer = next((layer for layer in here if _kind(whole, layer) in missing), here[0] if here else last)
        kind = _kind(whole, layer)
        counts.append(kinds[kind] if kind in missing else 0)
        missing.pop(kind, None)
        chosen.append(layer)
    return ReducedModel(whole=whole, chosen=(*chosen, last), counts=(*counts, 1))


def _of_patterns(whole: WholeModel, layer: int) -> tuple[bool, ...]:
    return tuple(is_windowed(layer, every) for every in whole.patterns)


def _kind(whole: WholeModel, layer: int) -> tuple[object, ...]:
    count = len(whole.layers)
    of_layer = [
        (name, value[layer])
        for name, value in whole.metadata.items()
        if isinstance(value, tuple) and len(value) == count
    ]
    return (_of_patterns(whole, layer), *of_layer, *whole.layers[layer])


def whole_of_header(header: GgufHeader, path: Path) -> WholeModel:
    """Read all tensors of a GGUF file. ``path`` is used in messages. Raises MODEL_MISSING."""
    arch = header.metadata.get("general.architecture")
    count = header.metadata.get(f"{arch}.block_count")
    if not isinstance(arch, str) or not isinstance(count, int):
        raise _not_described(path, "it has no general.architecture or block_count")
    drafts = header.metadata.get(f"{arch}.nextn_predict_layers")
    trunk = count - drafts if isinstance(drafts, int) and 0 < drafts < count else count

    def of_trunk(value: Value) -> Value:
        return value[:trunk] if isinstance(value, tuple) and len(value) == count else value

    metadata = {
        name.removeprefix(f"{arch}."): of_trunk(value)
        for name, value in header.metadata.items()
        if name.startswith(f"{arch}.")
        and name.removeprefix(f"{arch}.") not in _LEFT_OUT
        and isinstance(value, bool | int | float | str | tuple)
    }
    layers: list[list[Stored]] = [[] for _ in range(trunk)]
    outside = []
    for tensor in header.tensors:
        found = _IN_LAYER.fullmatch(tensor.name)
        if found is None:
            outside.append(Stored(name=tensor.name, shape=tensor.shape, kind=tensor.kind))
        elif int(found[1]) < trunk:
            layers[int(found[1])].append(Stored(name=found[2], shape=tensor.shape, kind=tensor.kind))
    _check(outside, layers, path)
    interval = metadata.get("full_attention_interval")
    pattern = PATTERNS.get(arch, 1) if metadata.get("attention.sliding_window") else 1
    if isinstance(metadata.get("attention.sliding_window_pattern"), tuple):
        pattern = 1  # the pattern lists each layer
    name = header.metadata.get("general.name")
    return WholeModel(
        name=name if isinstance(name, str) and name.isprintable() and name else path.name,
        architecture=arch,
        metadata=metadata,
        outside=tuple(outside),
        layers=tuple(map(tuple, layers)),
        patterns=(pattern, interval if isinstance(interval, int) and interval > 0 else 1),
    )


def whole_of_shape(path: Path) -> WholeModel:
    """All tensors of a model from a shape file; the first word of its name is its architecture.

    If a tensor has several types, they are assigned in layer order: the total time does not depend on which
    layer has which type.

    Raises:
        ConfigError, ErrorGroup: the file is invalid.
        MODEL_MISSING: it is unclear which layers have a tensor, or llama.cpp needs more than such a file has.
    """
    stated = validate(load_toml(path), ShapeModel, what="shape file")
    architecture = stated.name.split()[0]
    if architecture in _NOT_DESCRIBED:
        raise _not_described(path, f"a shape file lacks metadata that llama.cpp needs for {architecture}")
    kinds = tensor_kinds_by_name()
    outside: list[Stored] = []
    of_layers: dict[str, list[Stored]] = {}
    for tensor in stated.tensors:
        if tensor.type not in kinds:
            raise _not_described(path, f"{tensor.name} has the unknown type {tensor.type}")
        found = re.fullmatch(r"blk\.\*\.(.+)", tensor.name)
        one = Stored(name=found[1] if found else tensor.name, shape=tensor.shape, kind=kinds[tensor.type])
        if found is None:
            outside.append(one)
        else:
            of_layers.setdefault(one.name, []).extend([one] * tensor.count)
    layers: list[list[Stored]] = [[] for _ in range(stated.layers)]
    attending = [i for i in range(stated.layers) if not is_windowed(i, stated.attention_every)]
    others = [i for i in range(stated.layers) if i not in set(attending)]
    for name, tensors in of_layers.items():
        choices = (list(range(stated.layers)), attending, others)
        places = next((each for each in choices if len(each) == len(tensors)), None)
        if places is None:
            why = f"{len(tensors)} of {stated.layers} layers have {name}, and it is unclear which"
            raise _not_described(path, why)
        for place, one in zip(places, tensors, strict=True):
            layers[place].append(one)
    _check(outside, layers, path)
    return WholeModel(
        name=stated.name,
        architecture=architecture,
        metadata=_metadata_of(stated, outside, layers),
        outside=tuple(outside),
        layers=tuple(map(tuple, layers)),
        patterns=(stated.window_every, stated.attention_every),
    )


def _metadata_of(
    stated: ShapeModel, outside: Sequence[Stored], layers: Sequence[Sequence[Stored]]
) -> dict[str, Value]:
    """The metadata that llama.cpp needs for such a model, as far as it affects the launches."""
    shapes = {one.name: one.shape for layer in layers for one in layer}
    width = next(one.shape[0] for one in outside if one.name == "token_embd.weight")
    size_v = stated.head_size_v or stated.head_size
    found: dict[str, Value] = {
        "embedding_length": width,
        "feed_forward_length": shapes.get("ffn_up.weight", (0, width))[1],
        "attention.head_count": stated.heads,
        "attention.head_count_kv": stated.kv_heads,
        "attention.key_length": stated.head_size,
        "attention.value_length": size_v,
        "attention.layer_norm_rms_epsilon": _EPSILON,
        "rope.dimension_count": stated.head_size,
    }
    if stated.window is not None:
        found["attention.sliding_window"] = stated.window
    if stated.experts:
        found["expert_count"] = stated.experts
        found["expert_used_count"] = stated.experts_used
        found["expert_feed_forward_length"] = shapes["ffn_up_exps.weight"][1]
    if "ffn_up_shexp.weight" in shapes:
        found["expert_shared_feed_forward_length"] = shapes["ffn_up_shexp.weight"][1]
    if "ssm_conv1d.weight" in shapes:
        convolved, inner = shapes["ssm_conv1d.weight"], shapes["ssm_out.weight"][0]
        state = shapes["ssm_norm.weight"][0]
        found["ssm.conv_kernel"] = convolved[0]
        found["ssm.inner_size"] = inner
        found["ssm.state_size"] = state
        found["ssm.time_step_rank"] = inner // state
        found["ssm.group_count"] = (convolved[1] - inner) // (2 * state)
        found["full_attention_interval"] = stated.attention_every
        found["rope.dimension_count"] = stated.head_size // 4  # partial_rotary_factor of these models
        found["rope.dimension_sections"] = _ROPE_SECTIONS
    return found


def _check(outside: Sequence[Stored], layers: Sequence[Sequence[Stored]], path: Path) -> None:
    if not layers or not all(layers):
        raise _not_described(path, "a layer has no tensors")
    embedding = next((one for one in outside if one.name == "token_embd.weight"), None)
    if embedding is None or len(embedding.shape) != 2:  # noqa: PLR2004 - columns and rows
        raise _not_described(path, "it has no token_embd.weight")
    for one in (*outside, *(one for layer in layers for one in layer)):
        if one.shape[0] % one.kind.block:
            raise _not_described(
                path, f"a row of {one.name} is not a multiple of {one.kind.name}'s block size"
            )


def _not_described(path: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot reduce {path.name} to a few layers",
        code="MODEL_MISSING",
        where=Location(path=str(path)),
        why=why,
        hint="without --timeline, patchkit lists the model's operations itself",
    )
