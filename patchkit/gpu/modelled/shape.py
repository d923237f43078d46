"""The shape of a model, from a GGUF header or from a shape file: its weights and its attention layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.series_folder import find_series_dir
from patchkit.base.text import near_miss
from patchkit.base.toml import Several, TomlTable, Words, load_toml, validate
from patchkit.gpu.gguf import GgufHeader, Kind, Value, tensor_kinds_by_name

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
        return self.count * math.prod(self.shape)

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
    """A model. ``layers`` are those that attend; ``notes`` say what was assumed; ``source``: where from.

    ``also`` are other names under which it was measured.
    """

    json_keys: ClassVar = (
        "name source bytes parameters=values attending_layers windowed_layers experts experts_used notes"
    )

    name: str
    source: str
    layers: tuple[Layer, ...]
    weights: tuple[Weight, ...]
    experts: int = 0
    experts_used: int = 0
    notes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def attending_layers(self) -> int:
        """How many layers attend."""
        return len(self.layers)

    @property
    def windowed_layers(self) -> int:
        """How many of them see a window only."""
        return sum(layer.window is not None for layer in self.layers)

    @property
    def family(self) -> str:
        """What llama-bench calls it without the type of the file: llama 8B."""
        return self.name.removesuffix(" Q4_K - Medium")

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
    if "norm" in name or "conv1d" in name:  # a convolution over four tokens is no product of matrices
        return "vector"
    return "matrix" if len(shape) > 1 and name.endswith(".weight") else "vector"


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


# Files in which every matrix has one type, by the file's own (llama_tensor_get_type of build 11549).
_ONE_TYPE = {
    **{name: name for name in ("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q8_0")},
    "Q3_K_S": "Q3_K",
    "Q5_K_S": "Q5_K",
}
_OUTPUT_AS_IT_IS = frozenset({"F16", "Q8_0"})  # the output of all others has Q6_K


def of_one_type(model: ModelShape, name: str) -> ModelShape | None:
    """The same model in a file whose matrices all have one type, as ``Q4_0``; None for others."""
    wanted = _ONE_TYPE.get(name)
    if wanted is None:
        return None
    kinds = tensor_kinds_by_name()
    output = kinds[wanted if wanted in _OUTPUT_AS_IT_IS else "Q6_K"]

    def kind_of(weight: Weight) -> Kind:
        if weight.role == "vector" or weight.kind.name == "F32":
            return weight.kind
        return output if weight.name.startswith("output") else kinds[wanted]

    weights = tuple(replace(weight, kind=kind_of(weight)) for weight in model.weights)
    return replace(model, name=f"{model.family} {name}", weights=weights)


_MAX = 2**31


_Count = Annotated[int, Field(gt=0, lt=_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTensor(TomlTable):
    """Tensors of one kind. ``*`` in ``name`` stands for the layer; ``shape`` has the row length first."""

    name: Words
    shape: Annotated[Several[int], Field(min_length=1, max_length=4)]
    type: Annotated[str, Field(description="As GGUF names it: F16, Q4_K, MXFP4")]
    count: Annotated[int, Field(gt=0, lt=65536)] = 1

    def __post_init__(self) -> None:
        if not all(0 < extent < _MAX for extent in self.shape):
            raise ValueError("each extent of a tensor is between 1 and 2147483647")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeModel(TomlTable):
    """A shape file: a model described by hand."""

    name: Words
    also: Annotated[Several[str], Field(description="Other names under which it was measured")] = ()
    source: Annotated[str, Field(min_length=3, description="Where these figures come from")]
    layers: Annotated[int, Field(gt=0, le=1024)]
    heads: Annotated[_Count, Field(description="Query heads of a layer")]
    kv_heads: _Count
    head_size: Annotated[_Count, Field(description="Values per head of K")]
    head_size_v: Annotated[_Count | None, Field(description="Of V, where it differs")] = None
    window: Annotated[_Count | None, Field(description="Tokens that a windowed layer sees")] = None
    window_every: Annotated[
        int, Field(gt=0, description="Every n-th layer sees all tokens; 1: each does")
    ] = 1
    attention_every: Annotated[
        int, Field(gt=0, description="Every n-th layer attends, the others keep a state; 1: each does")
    ] = 1
    experts: Annotated[int, Field(ge=0, lt=65536)] = 0
    experts_used: Annotated[int, Field(ge=0, lt=65536)] = 0
    tensors: Annotated[Several[ShapeTensor], Field(min_length=1)]

    def __post_init__(self) -> None:
        if self.experts_used > self.experts:
            raise ValueError("experts_used is at most experts")
        if self.heads % self.kv_heads:
            raise ValueError("heads is a multiple of kv_heads")
        if self.window is None and self.window_every != 1:
            raise ValueError("window_every needs window")
        if self.attention_every > self.layers:
            raise ValueError("attention_every is at most layers")


_MAX_LAYERS = 1024  # several times what the deepest models have
_MAX_EXPERTS = 65536
# Every n-th layer sees all tokens: set_swa_pattern in llama-model.cpp of build 6900.
PATTERNS = {
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "olmo2": 4,
}
_LAST_FFN = "ffn_"


def _hint_of_shipped(path: Path) -> str:
    folder = find_series_dir(None).profiles / "models"
    same = folder / path.name
    return f"--shape {same}" if same.is_file() else f"ls {folder} shows those that come with patchkit"


def shape_of_file(path: Path) -> ModelShape:
    """A model from a shape file.

    Raises:
        TOML_MISSING: there is no such file; the hint names one that patchkit brings.
        ConfigError, ErrorGroup: the file is wrong.
        TENSOR_TYPE_UNKNOWN: there is no such type of tensor.
    """
    try:
        document = load_toml(path)
    except ConfigError as error:
        if error.code == "TOML_MISSING":
            error.hint = _hint_of_shipped(path)
        raise
    stated = validate(document, ShapeModel, what="shape file")
    kinds = tensor_kinds_by_name()
    weights = []
    for tensor in stated.tensors:
        kind = kinds.get(tensor.type)
        if kind is None:
            raise UsageError(
                f"{tensor.name} is said to be {tensor.type}",
                code="TENSOR_TYPE_UNKNOWN",
                where=Location(path=str(path)),
                hint=near_miss(tensor.type, kinds) or f"known: {', '.join(kinds)}",
            )
        weight = Weight(
            name=tensor.name,
            shape=tensor.shape,
            kind=kind,
            role=role_of(tensor.name, tensor.shape),
            count=tensor.count,
            after_last_attention=tensor.name.startswith("output"),
        )
        if tensor.name.startswith(f"blk.*.{_LAST_FFN}") and tensor.count > 1:
            # One of them is the last layer's; which of two types it has is not told, and matters little.
            weights.append(replace(weight, count=tensor.count - 1))
            weight = replace(weight, count=1, after_last_attention=tensor.count == stated.layers)
        weights.append(weight)
    layers = tuple(
        Layer(
            heads=stated.heads,
            kv_heads=stated.kv_heads,
            head_size_k=stated.head_size,
            head_size_v=stated.head_size_v or stated.head_size,
            window=stated.window if is_windowed(index, stated.window_every) else None,
        )
        for index in range(stated.layers)
        if not is_windowed(index, stated.attention_every)
    )
    notes = ["described by hand, not read from the file"]
    if len(layers) < stated.layers:
        notes.append(_not_attending(stated.layers - len(layers), stated.layers))
    return ModelShape(
        name=stated.name,
        source=stated.source,
        layers=layers,
        weights=with_output(weights),
        experts=stated.experts,
        experts_used=stated.experts_used,
        notes=tuple(notes),
        also=stated.also,
    )


def load_models(profiles: Path) -> tuple[ModelShape, ...]:
    """The models of a folder of profiles, by the names of their files. Raises as :func:`shape_of_file`."""
    return tuple(shape_of_file(path) for path in sorted((profiles / "models").glob("*.toml")))


def shape_of_header(header: GgufHeader, path: Path) -> ModelShape:
    """A model from its GGUF header. ``path`` is for messages.

    Raises:
        MODEL_NOT_DESCRIBED: metadata that every language model has are not there, or cannot be.
    """
    reader = _Metadata(header.metadata, path)
    count = reader.number("block_count")
    if not 0 < count <= _MAX_LAYERS:
        raise reader.refused(f"it has {count} layers")
    notes: list[str] = []
    layers = _layers(reader, count, notes)
    last = f"blk.{count - 1}.{_LAST_FFN}"
    weights = [
        Weight(
            name=tensor.name,
            shape=tensor.shape,
            kind=tensor.kind,
            role=role_of(tensor.name, tensor.shape),
            after_last_attention=tensor.name.startswith((last, "output")),
        )
        for tensor in header.tensors
    ]
    experts, used = reader.optional("expert_count", 0), reader.optional("expert_used_count", 0)
    if used > experts or experts > _MAX_EXPERTS:
        raise reader.refused(f"{used} of {experts} experts are used")
    if not weights:
        raise reader.refused("it has no tensors")
    return ModelShape(
        name=reader.name,
        source=f"header of {path.name}",
        layers=layers,
        weights=with_output(weights),
        experts=experts,
        experts_used=used,
        notes=tuple(notes),
    )


class _Metadata:
    """Asks for numbers by the names below the architecture's."""

    def __init__(self, metadata: Mapping[str, Value], path: Path) -> None:
        self._metadata = metadata
        self._path = path
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str):
            raise self.refused("it states no general.architecture")
        self.arch = arch
        name = metadata.get("general.name")
        self.name = name if isinstance(name, str) and name.isprintable() and name else path.name

    def refused(self, why: str) -> UsageError:
        """The error that the model cannot be estimated."""
        return UsageError(
            f"no estimate can be made from {self._path.name}",
            code="MODEL_NOT_DESCRIBED",
            where=Location(path=str(self._path)),
            why=why,
            hint="--model names the GGUF file of a language model; --shape takes a description instead",
        )

    def value(self, name: str) -> Value | None:
        """The value as the file has it, or None."""
        return self._metadata.get(f"{self.arch}.{name}")

    def optional(self, name: str, default: int) -> int:
        """A number of at least zero; the default when it is not stated."""
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**31:
            raise self.refused(f"{self.arch}.{name} is {str(found)[:60]}")
        return found

    def number(self, name: str) -> int:
        """A number above zero that must be there."""
        found = self.optional(name, 0)
        if not found:
            raise self.refused(f"it does not state {self.arch}.{name}")
        return found

    def per_layer(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """A number for each layer, whether the file states one for all or a list."""
        found = self.value(name)
        if not isinstance(found, tuple):
            return (self.optional(name, default),) * count
        numbers = tuple(n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**31)
        if len(numbers) != count or len(found) != count:
            raise self.refused(f"{self.arch}.{name} has {len(found)} entries for {count} layers")
        return numbers


def _layers(reader: _Metadata, count: int, notes: list[str]) -> tuple[Layer, ...]:
    heads = reader.per_layer("attention.head_count", count, 0)
    kv_heads = reader.per_layer("attention.head_count_kv", count, heads[0])
    if not any(heads):
        raise reader.refused(f"it does not state {reader.arch}.attention.head_count")
    width = reader.number("embedding_length")
    usual = width // max(heads)
    size_k = reader.optional("attention.key_length", usual)
    size_v = reader.optional("attention.value_length", usual)
    latent = reader.value("attention.key_length_mla") is not None
    if not size_k or not size_v:
        raise reader.refused("its heads have no values")
    windows = _windows(reader, count, notes)
    layers = tuple(
        Layer(
            heads=heads[index],
            kv_heads=kv_heads[index],
            head_size_k=size_k,
            head_size_v=size_v,
            window=windows[index],
            shares_v=latent,
        )
        for index in range(count)
        if heads[index] and kv_heads[index]
    )
    if len(layers) < count:
        notes.append(_not_attending(count - len(layers), count))
    if latent:
        notes.append("latent attention: V is read as part of K")
    return layers


def _windows(reader: _Metadata, count: int, notes: list[str]) -> tuple[int | None, ...]:
    window = reader.optional("attention.sliding_window", 0)
    if not window:
        return (None,) * count
    stated = reader.value("attention.sliding_window_pattern")
    if isinstance(stated, tuple) and len(stated) == count:
        notes.append(
            f"window of {window} tokens in {sum(map(bool, stated))} of {count} layers, as the file says"
        )
        return tuple(window if has_one else None for has_one in stated)
    every = PATTERNS.get(reader.arch)
    if every is None:
        notes.append(f"a window of {window} tokens is stated, but not for which layers: taken as none")
        return (None,) * count
    notes.append(f"window of {window} tokens, every {every}. layer without, as llama.cpp runs {reader.arch}")
    return tuple(window if is_windowed(index, every) else None for index in range(count))


def is_windowed(index: int, every: int) -> bool:
    """llama_hparams::set_swa_pattern; which layers keep a state goes by the same rule."""
    return index % every < every - 1


def _not_attending(several: int, count: int) -> str:
    return f"{several} of {count} layers do not attend; what they keep is left out"
