"""What a GGUF file says of its model: the head size, which decides which attention kernel runs."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import Location, UsageError
from patchkit.gguf_file.errors import GgufError
from patchkit.gguf_file.header import load_gguf


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
