"""The shape of a model (its weights and attention layers), from a GGUF header or a shape file."""

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
    """``count`` tensors of the same shape (row length first) and type."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    role: Role
    count: int = 1
    after_last_attention: bool = False

    @property
    def values(self) -> int:
        """Number of values in all ``count`` tensors."""
        return self.count * math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of all ``count`` tensors."""
        return self.kind.size(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One attention layer. ``window``: tokens that it attends to, including the current one; None: all.

    ``shares_v``: V is part of the stored K (multi-head latent attention) and is read with it.
    ``compressed``: besides the window, it stores one more row for so many tokens (DeepSeek V4).
    ``selected``: sparse attention reads at most so many rows, of the compressed ones if there are any.
    ``reuses_kv``: it reads the KV cache of an earlier layer and stores none of its own.
    """

    heads: int
    kv_heads: int
    head_size_k: int
    head_size_v: int
    window: int | None = None
    shares_v: bool = False
    compressed: int | None = None
    selected: int | None = None
    reuses_kv: bool = False

    @property
    def values_per_row(self) -> int:
        """Values of K and V that are stored for one row."""
        return self.kv_heads * (self.head_size_k + (0 if self.shares_v else self.head_size_v))

    @property
    def visible(self) -> int | None:
        """Uncompressed rows that it reads at most; None: all."""
        if self.window is not None or self.compressed is not None:
            return self.window
        return self.selected

    def compressed_rows(self, tokens: int) -> int:
        """Compressed rows that it reads after ``tokens`` tokens."""
        rows = tokens // self.compressed if self.compressed is not None else 0
        return rows if self.selected is None else min(rows, self.selected)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model. ``layers`` has its attention layers; ``notes`` are assumptions; ``source`` is its origin.

    ``also``: other names under which it was measured. ``is_unchecked``: its size was not compared with a
    file's.
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
    is_unchecked: bool = False

    @property
    def attending_layers(self) -> int:
        """Number of layers with attention."""
        return len(self.layers)

    @property
    def windowed_layers(self) -> int:
        """Number of layers with a sliding window."""
        return sum(layer.window is not None for layer in self.layers)

    @property
    def family(self) -> str:
        """llama-bench's name without the file type, such as llama 8B."""
        return self.name.removesuffix(" Q4_K - Medium")

    @property
    def values(self) -> int:
        """Number of weights; a tied output counts once."""
        return sum(weight.values for weight in self.weights if weight.name != _TIED)

    @property
    def bytes(self) -> int:
        """Size of the weights; a tied output counts once."""
        return sum(weight.bytes for weight in self.weights if weight.name != _TIED)


_TIED = "output.weight (token_embd.weight)"
_LOOKUPS = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")


def role_of(name: str, shape: Sequence[int]) -> Role:
    """How a tensor is used, derived from llama.cpp's tensor names (llama-arch.cpp)."""
    if name in _LOOKUPS or name.endswith("nextn.embed_tokens.weight"):
        return "lookup"
    if "_exps." in name:
        return "experts"
    if "norm" in name or "conv1d" in name:  # a convolution over four tokens is not a matmul
        return "vector"
    return "matrix" if len(shape) > 1 and name.endswith(".weight") else "vector"


def with_output(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """The weights, with the embedding a second time as the output if the model has no other."""
    names = {weight.name for weight in weights}
    embedding = next((weight for weight in weights if weight.name == _LOOKUPS[0]), None)
    if "output.weight" in names or embedding is None:
        return tuple(weights)
    tied = Weight(
        name=_TIED, shape=embedding.shape, kind=embedding.kind, role="matrix", after_last_attention=True
    )
    return (*weights, tied)


# File types in which all matrices have one tensor type (llama_tensor_get_type of build 11549).
_ONE_TYPE = {
    **{name: name for name in ("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q8_0")},
    "Q3_K_S": "Q3_K",
    "Q5_K_S": "Q5_K",
}
_OUTPUT_AS_IT_IS = frozenset({"F16", "Q8_0"})  # in all others, the output matrix is Q6_K


def of_one_type(model: ModelShape, name: str) -> ModelShape | None:
    """The model in a file whose matrices all have one type, such as ``Q4_0``; None for other file types."""
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
    """Tensors of one kind. ``*`` in ``name`` stands for the layer; ``shape`` is row length first."""

    name: Words
    shape: Annotated[Several[int], Field(min_length=1, max_length=4)]
    type: Annotated[str, Field(description="GGUF type name, such as F16, Q4_K or MXFP4")]
    count: Annotated[int, Field(gt=0, lt=65536)] = 1

    def __post_init__(self) -> None:
        if not all(0 < extent < _MAX for extent in self.shape):
            raise ValueError("each dimension of a tensor must be between 1 and 2147483647")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeModel(TomlTable):
    """A shape file: a model described by hand."""

    name: Words
    also: Annotated[Several[str], Field(description="Other names under which it was measured")] = ()
    source: Annotated[str, Field(min_length=3, description="Source of these figures")]
    unchecked: Annotated[
        bool,
        Field(description="Its size was not compared with a file's. tune and model --against do not use it"),
    ] = False
    layers: Annotated[int, Field(gt=0, le=1024)]
    heads: Annotated[_Count, Field(description="Query heads per layer")]
    kv_heads: _Count
    head_size: Annotated[_Count, Field(description="Head size of K")]
    head_size_v: Annotated[_Count | None, Field(description="Head size of V, if it differs")] = None
    window: Annotated[_Count | None, Field(description="Tokens that a sliding-window layer attends to")] = (
        None
    )
    window_every: Annotated[
        int, Field(gt=0, description="Every n-th layer has no window; 1: none has a window")
    ] = 1
    window_kv_heads: Annotated[
        _Count | None, Field(description="KV heads of layers with a window, if they differ")
    ] = None
    window_head_size: Annotated[
        _Count | None, Field(description="Head size of layers with a window, if it differs")
    ] = None
    shares_v: Annotated[bool, Field(description="V is part of the stored K")] = False
    compress: Annotated[
        Several[int],
        Field(description="For each layer, the tokens of a compressed row of the KV cache; 0: none"),
    ] = ()
    selected: Annotated[
        _Count | None,
        Field(description="Rows that sparse attention reads at most, of the compressed ones if any"),
    ] = None
    attention_every: Annotated[
        int,
        Field(gt=0, description="Every n-th layer has attention, the others are recurrent; 1: all have it"),
    ] = 1
    experts: Annotated[int, Field(ge=0, lt=65536)] = 0
    experts_used: Annotated[int, Field(ge=0, lt=65536)] = 0
    tensors: Annotated[Several[ShapeTensor], Field(min_length=1)]

    def __post_init__(self) -> None:
        if self.experts_used > self.experts:
            raise ValueError("experts_used must be at most experts")
        if self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        if self.window is None and (
            self.window_every != 1 or self.window_kv_heads is not None or self.window_head_size is not None
        ):
            raise ValueError("window_every, window_kv_heads and window_head_size need window")
        if self.heads % (self.window_kv_heads or 1):
            raise ValueError("heads must be a multiple of window_kv_heads")
        if self.compress and len(self.compress) != self.layers:
            raise ValueError("compress needs one number for each layer")
        if not all(0 <= tokens < _MAX for tokens in self.compress):
            raise ValueError("each number of compress must be between 0 and 2147483647")
        if self.attention_every > self.layers:
            raise ValueError("attention_every must be at most layers")


_MAX_LAYERS = 1024  # several times the depth of the deepest models
_MAX_EXPERTS = 65536
# Every n-th layer has no window: set_swa_pattern in llama-model.cpp of build 6900.
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
_DRAFT_LAYERS = "nextn_predict_layers"
_DRAFTS = "llama.cpp loads them only for --spec-type draft-mtp"


def _hint_of_shipped(path: Path) -> str:
    folder = find_series_dir(None).profiles / "models"
    same = folder / path.name
    return f"--shape {same}" if same.is_file() else f"ls {folder} lists the shape files of patchkit"


def shape_of_file(path: Path) -> ModelShape:
    """Read a model from a shape file.

    Raises:
        TOML_MISSING: the file does not exist; the hint names one that patchkit ships.
        ConfigError, ErrorGroup: the file is invalid.
        TENSOR_TYPE_UNKNOWN: a tensor type does not exist.
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
                f"{tensor.name} has the unknown type {tensor.type}",
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
            # One of them is in the last layer. If they have two types, which one is unknown; it matters
            # little.
            weights.append(replace(weight, count=tensor.count - 1))
            weight = replace(weight, count=1, after_last_attention=tensor.count == stated.layers)
        weights.append(weight)
    layers = tuple(
        _stated_layer(stated, index)
        for index in range(stated.layers)
        if not is_windowed(index, stated.attention_every)
    )
    notes = ["from a shape file, not from the model itself"]
    if stated.unchecked:
        notes.append("tensor types by llama.cpp's rules; its size was not compared with that of a file")
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
        is_unchecked=stated.unchecked,
    )


def _stated_layer(stated: ShapeModel, index: int) -> Layer:
    # window_every 1: no layer has a window; without window_every but with compress, all have it
    has_window = is_windowed(index, stated.window_every) or (
        bool(stated.compress) and stated.window is not None
    )
    head_size = (stated.window_head_size if has_window else None) or stated.head_size
    return Layer(
        heads=stated.heads,
        kv_heads=(stated.window_kv_heads if has_window else None) or stated.kv_heads,
        head_size_k=head_size,
        head_size_v=stated.head_size_v or head_size,
        window=stated.window if has_window else None,
        shares_v=stated.shares_v,
        compressed=(stated.compress[index] or None) if stated.compress else None,
        selected=_selects(stated.selected, stated.compress, index),
    )


def _selects(selected: int | None, ratios: Sequence[int], index: int) -> int | None:
    """The rows that a layer selects: with compressed rows, only layers of the smallest ratio select any.

    deepseek4.cpp of build 11549: layers of ratio 4 have an indexer, those of ratio 128 read all their rows.
    """
    smallest = min((ratio for ratio in ratios if ratio), default=None)
    if smallest is not None and ratios[index] != smallest:
        return None
    return selected


def load_models(profiles: Path) -> tuple[ModelShape, ...]:
    """The checked models in a folder of profiles, sorted by file name. Raises as :func:`shape_of_file`.

    Tensor types of the others follow llama.cpp's rules; files that people measure may have other ones.
    """
    found = [shape_of_file(path) for path in sorted((profiles / "models").glob("*.toml"))]
    return tuple(model for model in found if not model.is_unchecked)


def shape_of_header(header: GgufHeader, path: Path) -> ModelShape:
    """Read a model from its GGUF header, without its layers for drafts. ``path`` is used in messages.

    Raises:
        MODEL_MISSING: metadata that every language model has is missing or invalid.
    """
    return _shape(header, path, is_draft=False)


def draft_shape_of_header(header: GgufHeader, path: Path) -> ModelShape | None:
    """What drafts a token: a model's layers for drafts (MTP) with the output matrix; None without them.

    Raises:
        MODEL_MISSING: as :func:`shape_of_header`.
    """
    reader = _Metadata(header.metadata, path)
    return _shape(header, path, is_draft=True) if reader.optional(_DRAFT_LAYERS, 0) else None


def _shape(header: GgufHeader, path: Path, *, is_draft: bool) -> ModelShape:
    reader = _Metadata(header.metadata, path)
    count = reader.number("block_count")
    if not 0 < count <= _MAX_LAYERS:
        raise reader.refused(f"it has {count} layers")
    notes: list[str] = []
    drafts = reader.optional(_DRAFT_LAYERS, 0)
    trunk = count - drafts
    if trunk <= 0:
        raise reader.refused(f"{drafts} of its {count} layers are for drafts")
    chosen = slice(trunk, count) if is_draft else slice(trunk)
    layers = _layers(reader, count, notes)[chosen]
    last = f"blk.{trunk - 1}.{_LAST_FFN}"
    used = tuple(f"blk.{index}." for index in range(count)[chosen])
    # Layers for drafts may have an output matrix of their own.
    has_output = not is_draft or not any("nextn.shared_head_head" in tensor.name for tensor in header.tensors)
    shared = ("token_embd", "output") if is_draft else ("",)
    weights = [
        Weight(
            name=tensor.name,
            shape=tensor.shape,
            kind=tensor.kind,
            role=role_of(tensor.name, tensor.shape),
            after_last_attention=tensor.name.startswith((last, "output")),
        )
        for tensor in header.tensors
        if tensor.name.startswith(used)
        or (has_output and not tensor.name.startswith("blk.") and tensor.name.startswith(shared))
    ]
    if drafts:
        notes.append(f"{drafts} of {count} layers are for drafts (MTP) and not counted: {_DRAFTS}")
    experts, used_experts = reader.optional("expert_count", 0), reader.optional("expert_used_count", 0)
    if used_experts > experts or experts > _MAX_EXPERTS:
        raise reader.refused(f"{used_experts} of {experts} experts are used")
    if not weights:
        raise reader.refused("it has no tensors")
    return ModelShape(
        name=reader.name,
        source=f"header of {path.name}",
        layers=tuple(layer for layer in layers if layer is not None),
        weights=with_output(weights),
        experts=experts,
        experts_used=used_experts,
        notes=tuple(notes),
    )


class _Metadata:
    """Reads numbers from metadata with the architecture's prefix."""

    def __init__(self, metadata: Mapping[str, Value], path: Path) -> None:
        self._metadata = metadata
        self._path = path
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str):
            raise self.refused("it has no general.architecture")
        self.arch = arch
        name = metadata.get("general.name")
        self.name = name if isinstance(name, str) and name.isprintable() and name else path.name

    def refused(self, why: str) -> UsageError:
        """The error that this model cannot be estimated."""
        return UsageError(
            f"cannot estimate {self._path.name}",
            code="MODEL_MISSING",
            where=Location(path=str(self._path)),
            why=why,
            hint="--model takes the GGUF file of a language model, --shape a description of one",
        )

    def value(self, name: str) -> Value | None:
        """The value in the file, or None."""
        return self._metadata.get(f"{self.arch}.{name}")

    def optional(self, name: str, default: int) -> int:
        """A number of at least zero, or the default if it is missing."""
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**31:
            raise self.refused(f"{self.arch}.{name} is {str(found)[:60]}")
        return found

    def number(self, name: str) -> int:
        """A required number above zero."""
        found = self.optional(name, 0)
        if not found:
            raise self.refused(f"it has no {self.arch}.{name}")
        return found

    def per_layer(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """A number for each layer, from a single number for all or from a list."""
        found = self.value(name)
        if not isinstance(found, tuple):
            return (self.optional(name, default),) * count
        numbers = tuple(n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**31)
        if len(numbers) != count or len(found) != count:
            raise self.refused(f"{self.arch}.{name} has {len(found)} entries for {count} layers")
        return numbers


def _layers(reader: _Metadata, count: int, notes: list[str]) -> tuple[Layer | None, ...]:
    """All layers in order; None for those without attention."""
    heads = reader.per_layer("attention.head_count", count, 0)
    kv_heads = reader.per_layer("attention.head_count_kv", count, heads[0])
    if not any(heads):
        raise reader.refused(f"it has no {reader.arch}.attention.head_count")
    width = reader.number("embedding_length")
    usual = width // max(heads)
    size_k = reader.optional("attention.key_length", usual)
    size_v = reader.optional("attention.value_length", usual)
    window_k = reader.optional("attention.key_length_swa", size_k)
    window_v = reader.optional("attention.value_length_swa", size_v)
    latent = reader.value("attention.key_length_mla") is not None
    if not (size_k and size_v and window_k and window_v):
        raise reader.refused("its head size is 0")
    windows = _windows(reader, count, notes)
    recurrent = _recurrent(reader, count)
    shared = reader.optional("attention.shared_kv_layers", 0)
    ratios, selected = _sparse(reader, count, notes)
    is_v4 = reader.arch == "deepseek4"
    layers = tuple(
        Layer(
            heads=heads[index],
            kv_heads=kv_heads[index],
            head_size_k=size_k if windows[index] is None else window_k,
            head_size_v=size_v if windows[index] is None else window_v,
            window=windows[index],
            shares_v=latent or is_v4,  # deepseek4.cpp of build 11549 stores one row of attn_kv
            compressed=(ratios[index] or None) if is_v4 and ratios else None,
            selected=_selects(selected, ratios, index) if any(ratios) else None,
            reuses_kv=index >= count - shared,
        )
        if heads[index] and kv_heads[index] and not recurrent[index]
        else None
        for index in range(count)
    )
    several = sum(layer is None for layer in layers)
    if several:
        notes.append(_not_attending(several, count))
    if latent:
        notes.append("multi-head latent attention: V is read as part of K")
    if shared:
        notes.append(f"{min(shared, count)} of {count} layers read the KV cache of an earlier layer")
    return layers


# Every fourth layer attends, unless the file has another number (load_arch_hparams of build 11549).
_INTERVALS = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}


def _recurrent(reader: _Metadata, count: int) -> tuple[bool, ...]:
    """Which layers have a recurrent state instead of a KV cache; layers for drafts attend."""
    stated = reader.value("attention.recurrent_layers")
    if isinstance(stated, tuple) and len(stated) == count:
        return tuple(map(bool, stated))
    every = reader.optional("full_attention_interval", _INTERVALS.get(reader.arch, 1))
    if every == 0:
        raise reader.refused(f"{reader.arch}.full_attention_interval is 0")
    trunk = count - reader.optional(_DRAFT_LAYERS, 0)
    return tuple(index < trunk and is_windowed(index, every) for index in range(count))


def _sparse(reader: _Metadata, count: int, notes: list[str]) -> tuple[tuple[int, ...], int | None]:
    """The compression ratio of each layer, empty if there is none, and the rows that an indexer selects."""
    stated = reader.value("attention.compress_ratios")
    if not isinstance(stated, tuple):
        return (), None
    ratios = tuple(one for one in stated if isinstance(one, int) and not isinstance(one, bool) and one >= 0)
    if len(ratios) != len(stated) or len(ratios) < count:
        raise reader.refused(
            f"{reader.arch}.attention.compress_ratios has {len(stated)} entries for {count} layers"
        )
    selected = reader.optional("attention.indexer.top_k", 0) or None
    if selected is not None:
        notes.append(
            f"sparse attention reads {selected} selected rows; the indexer that selects is not counted"
        )
    return ratios[:count], selected


def _windows(reader: _Metadata, count: int, notes: list[str]) -> tuple[int | None, ...]:
    window = reader.optional("attention.sliding_window", 0)
    if not window:
        return (None,) * count
    if reader.arch == "deepseek4":
        notes.append(f"sliding window of {window} tokens in all layers, and compressed rows")
        return (window,) * count
    stated = reader.value("attention.sliding_window_pattern")
    if isinstance(stated, tuple) and len(stated) == count:
        notes.append(
            f"sliding window of {window} tokens in {sum(map(bool, stated))} of {count} layers, from the file"
        )
        return tuple(window if has_one else None for has_one in stated)
    every = PATTERNS.get(reader.arch)
    if every is None:
        notes.append(f"the file has a window of {window} tokens, but not for which layers: assumed unused")
        return (None,) * count
    notes.append(f"sliding window of {window} tokens in all but every {every}. layer, as for {reader.arch}")
    return tuple(window if is_windowed(index, every) else None for index in range(count))


def is_windowed(index: int, every: int) -> bool:
    """Whether a layer has a window (llama_hparams::set_swa_pattern), or is recurrent, by the same rule."""
    return index % every < every - 1


def _not_attending(several: int, count: int) -> str:
    return f"{several} of {count} layers have no attention; their state is not counted"
