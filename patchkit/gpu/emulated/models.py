"""Small language models that patchkit writes itself, so that there is something to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol

import gguf

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.store import Store
from patchkit.gpu.emulated.random_tensors import RandomTensors
from patchkit.gpu.gguf import GgufError, load_gguf


def check_model(path: Path) -> None:
    """Raise MODEL_MISSING where a user named no file."""
    if not path.is_file():
        raise UsageError(
            "that is no file" if path.exists() else "there is no such model",
            code="MODEL_MISSING",
            where=Location(path=str(path)),
            hint="--model names a GGUF",
        )


def head_size_of(path: Path) -> int | None:
    """Values per head of the K cache; None when the file does not say.

    Raises:
        MODEL_UNREADABLE: it is no GGUF file.
    """
    try:
        metadata = load_gguf(path).metadata
    except GgufError as error:
        raise UsageError(
            f"{path.name} is no model that can be read",
            code="MODEL_UNREADABLE",
            where=error.where or Location(path=str(path)),
            why=f"{error.message}: {error.why}" if error.why else error.message,
            hint="--model names a GGUF file",
        ) from error
    arch = metadata.get("general.architecture")
    length = metadata.get(f"{arch}.attention.key_length")
    width, heads = metadata.get(f"{arch}.embedding_length"), metadata.get(f"{arch}.attention.head_count")
    if isinstance(length, int):
        return length
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        return width // heads
    return None


_FORMAT = 1  # of the file; a change makes every old one unknown
SEED = 6900
CONTEXT = 2**17 + 2**12  # tokens: the deepest run of the gate and some room
EPSILON = 1e-5
CLASSES = 8  # of tokens, by which they are given to experts
_GAP = 0.5  # between the logits of experts, before the token is scaled
_ALWAYS = ("head_size", "heads", "kv_heads", "layers", "vocabulary")  # part of every file's key
_SPREAD = 0.02  # standard deviation of weights, as models are initialised


class Model(Protocol):
    """What can be written as a GGUF file."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    @property
    def architecture(self) -> str:
        """What llama.cpp calls its kind."""
        ...

    @property
    def shape(self) -> dict[str, object]:
        """All that its file depends on."""
        ...

    def write(self, path: Path) -> None:
        """Write its file."""
        ...


def model_file(model: Model, cache_root: Path, reporter: Reporter) -> Path:
    """The GGUF file of a model, written once. Raises CacheError when the disk refuses."""
    store = Store(root=cache_root / "recorder" / "models")
    key = key_of({"format": _FORMAT, "seed": SEED, **model.shape})

    def fill(folder: Path) -> None:
        reporter.step(f"writing {model.name}.gguf")
        model.write(folder / "model.gguf")

    return store.obtain(key, fill) / "model.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModel:
    """Llama's shape. ``heads`` query heads share ``kv_heads`` KV heads of ``head_size`` values each.

    ``spread`` is the standard deviation of its weights: with larger ones few keys dominate attention. With
    ``reads_bytes`` its vocabulary is the 256 bytes and three marks, so that it can be given any text. With
    ``weights``, names of types as gguf has them, its matrices have these in turn: all zeros, something to
    launch kernels for, or with ``is_filled`` numbers to compute with. Its feed-forward layers are
    ``widening`` times as wide as the rest; with ``experts`` each has so many, ``experts_used`` of them for
    a token.
    """

    head_size: int
    heads: int = 4
    kv_heads: int = 1
    layers: int = 2
    vocabulary: int = 512
    spread: float = _SPREAD
    reads_bytes: bool = False
    weights: tuple[str, ...] = ()
    widening: int = 1
    is_filled: bool = False
    experts: int = 0
    experts_used: int = 0

    @property
    def name(self) -> str:
        """What it is called in reports."""
        types = "".join(f"-{name.lower()}" for name in self.weights)
        experts = f"-moe{self.experts}of{self.experts_used}" if self.experts else ""
        return f"llama-d{self.head_size}-gqa{self.heads // self.kv_heads}{experts}{types}"

    @property
    def architecture(self) -> str:
        """What llama.cpp calls its kind."""
        return "llama"

    @property
    def width(self) -> int:
        """Values per token."""
        return self.heads * self.head_size

    @property
    def shape(self) -> dict[str, object]:
        """All that its file depends on; what is as usual is left out: older files keep their names."""
        usual = {field.name: field.default for field in fields(self) if field.name not in _ALWAYS}
        return {name: value for name, value in asdict(self).items() if usual.get(name, _ALWAYS) != value}

    def write(self, path: Path) -> None:
        """Write its file."""
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_name(self.name)
        writer.add_block_count(self.layers)
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(self.width)
        writer.add_feed_forward_length(self.width * self.widening)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_size)
        writer.add_value_length(self.head_size)
        writer.add_layer_norm_rms_eps(EPSILON)
        writer.add_rope_dimension_count(self.head_size)
        writer.add_vocab_size(self.vocabulary)
        if self.experts:
            writer.add_expert_count(self.experts)
            writer.add_expert_used_count(self.experts_used)
        _write_vocabulary(self, writer)
        self._write_tensors(writer)
        close_model(writer)

    def _write_tensors(self, writer: gguf.GGUFWriter) -> None:
        kv_width = self.kv_heads * self.head_size
        tensors = RandomTensors(
            writer, seed=SEED, spread=self.spread, types=self.weights, are_zeros=not self.is_filled
        )
        classes = CLASSES if self.experts else 0
        tensors.embeddings("token_embd.weight", self.vocabulary, self.width, classes=classes)
        for layer in range(self.layers):
            block = f"blk.{layer}"
            tensors.ones(f"{block}.attn_norm.weight", self.width)
            tensors.matrix(f"{block}.attn_q.weight", self.width, self.width)
            tensors.matrix(f"{block}.attn_k.weight", kv_width, self.width)
            tensors.matrix(f"{block}.attn_v.weight", kv_width, self.width)
            tensors.matrix(f"{block}.attn_output.weight", self.width, self.width, zeros=classes)
            tensors.ones(f"{block}.ffn_norm.weight", self.width)
            write_feed_forward(
                tensors, block, width=self.width, inner=self.width * self.widening, experts=self.experts
            )
        tensors.ones("output_norm.weight", self.width)
        tensors.matrix("output.weight", self.vocabulary, self.width)


def write_feed_forward(tensors: RandomTensors, block: str, *, width: int, inner: int, experts: int) -> None:
    """A gated feed-forward layer, or one per expert.

    Which experts a token gets depends on its class alone, for which a few values of every token are kept.
    """
    many = (experts,) if experts else ()
    kind = "_exps" if experts else ""
    classes = CLASSES if experts else 0
    if experts:
        tensors.routes(f"{block}.ffn_gate_inp.weight", experts, width, classes=classes, gap=_GAP)
    tensors.matrix(f"{block}.ffn_gate{kind}.weight", *many, inner, width)
    tensors.matrix(f"{block}.ffn_up{kind}.weight", *many, inner, width)
    tensors.matrix(f"{block}.ffn_down{kind}.weight", *many, width, inner, zeros=classes)


def close_model(writer: gguf.GGUFWriter) -> None:
    """Write what was added."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_vocabulary(model: SmallModel, writer: gguf.GGUFWriter) -> None:
    """None, or SentencePiece's of single bytes: a text becomes one token per byte."""
    if not model.reads_bytes:
        writer.add_tokenizer_model("no_vocab")
        return

    marks = ["<unk>", "<s>", "</s>"]
    tokens = [*marks, *(f"<0x{byte:02X}>" for byte in range(256))]
    if model.vocabulary != len(tokens):
        raise AssertionError(f"a vocabulary of bytes has {len(tokens)} tokens")
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([*kinds, *([gguf.TokenType.BYTE] * 256)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
