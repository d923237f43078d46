"""A small language model that patchkit writes itself, so that llama-bench has something to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.base.errors import Location, UsageError
from patchkit.base.gguf import GgufError, load_gguf
from patchkit.base.reporter import Reporter
from patchkit.build.store import Store, key_of


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


if TYPE_CHECKING:
    import gguf

_FORMAT = 1  # of the file; a change makes every old one unknown
_SEED = 6900
_CONTEXT = 2**17 + 2**12  # tokens: the deepest run of the gate and some room
_EPSILON = 1e-5
_LOOKED_UP = "token_embd"  # no matrix is multiplied by it
_SPREAD = 0.02  # standard deviation of weights, as models are initialised


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModel:
    """Its shape. ``heads`` query heads share ``kv_heads`` KV heads of ``head_size`` values each.

    ``spread`` is the standard deviation of its weights: with larger ones few keys dominate attention. With
    ``reads_bytes`` its vocabulary is the 256 bytes and three marks, so that it can be given any text. With
    ``weights``, names of quantizations as gguf has them, its matrices have these types in turn and are all
    zeros: something to launch kernels for, nothing to compute with. Its feed-forward layers are ``widening``
    times as wide as the rest.
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

    @property
    def name(self) -> str:
        """What it is called in reports."""
        types = "".join(f"-{name.lower()}" for name in self.weights)
        return f"llama-d{self.head_size}-gqa{self.heads // self.kv_heads}{types}"

    @property
    def width(self) -> int:
        """Values per token."""
        return self.heads * self.head_size


def model_file(model: SmallModel, cache_root: Path, reporter: Reporter) -> Path:
    """The GGUF file of a model, written once. Raises CacheError when the disk refuses."""
    store = Store(root=cache_root / "recorder" / "models")
    shape = asdict(model)
    if model.spread == _SPREAD:
        del shape["spread"]  # files of the usual kind keep the names they had
    if not model.reads_bytes:
        del shape["reads_bytes"]
    if not model.weights:
        del shape["weights"]
    if model.widening == 1:
        del shape["widening"]
    key = key_of({"format": _FORMAT, "seed": _SEED, **shape})

    def fill(folder: Path) -> None:
        reporter.step(f"writing {model.name}.gguf")
        _write(model, folder / "model.gguf")

    return store.obtain(key, fill) / "model.gguf"


def _write(model: SmallModel, path: Path) -> None:
    import gguf  # noqa: PLC0415  # with numpy 0.3 s; most commands never write a model
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(_SEED)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(model.name)
    writer.add_block_count(model.layers)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(model.width * model.widening)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_layer_norm_rms_eps(_EPSILON)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_vocab_size(model.vocabulary)
    _write_vocabulary(model, writer)

    types = cycle([gguf.GGMLQuantizationType[name] for name in model.weights])

    def weight(name: str, rows: int, columns: int) -> None:
        if model.weights and not name.startswith(_LOOKED_UP):
            kind = next(types)
            block, size = gguf.GGML_QUANT_SIZES[kind]
            zeros = np.zeros((rows, columns // block * size), dtype=np.uint8)
            writer.add_tensor(name, zeros, raw_dtype=kind)
            return
        values = random.standard_normal((rows, columns), dtype=np.float32) * model.spread
        writer.add_tensor(name, values.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(model.width, dtype=np.float32))

    kv_width = model.kv_heads * model.head_size
    weight("token_embd.weight", model.vocabulary, model.width)
    for layer in range(model.layers):
        norm(f"blk.{layer}.attn_norm.weight")
        weight(f"blk.{layer}.attn_q.weight", model.width, model.width)
        weight(f"blk.{layer}.attn_k.weight", kv_width, model.width)
        weight(f"blk.{layer}.attn_v.weight", kv_width, model.width)
        weight(f"blk.{layer}.attn_output.weight", model.width, model.width)
        norm(f"blk.{layer}.ffn_norm.weight")
        weight(f"blk.{layer}.ffn_gate.weight", model.width * model.widening, model.width)
        weight(f"blk.{layer}.ffn_up.weight", model.width * model.widening, model.width)
        weight(f"blk.{layer}.ffn_down.weight", model.width, model.width * model.widening)
    norm("output_norm.weight")
    weight("output.weight", model.vocabulary, model.width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_vocabulary(model: SmallModel, writer: gguf.GGUFWriter) -> None:
    """None, or SentencePiece's of single bytes: a text becomes one token per byte."""
    if not model.reads_bytes:
        writer.add_tokenizer_model("no_vocab")
        return
    import gguf  # noqa: PLC0415  # as above

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
