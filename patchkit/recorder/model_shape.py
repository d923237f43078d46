"""What a GGUF file says of its model: the head size, which decides which attention kernel runs."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import Location, UsageError

__all__ = ["ModelUnreadable", "head_size_of"]


class ModelUnreadable(UsageError):
    """The file that was named as a model is no GGUF file, or a damaged one."""

    code = "MODEL_UNREADABLE"


def head_size_of(path: Path) -> int | None:
    """Values per head of the K cache; None when the file does not say.

    Raises:
        ModelUnreadable: it is no GGUF file.
    """
    import gguf  # noqa: PLC0415  # with numpy 0.3 s; most commands never read a model

    try:
        fields = gguf.GGUFReader(path).fields
        arch = str(fields["general.architecture"].contents())
        length = fields.get(f"{arch}.attention.key_length")
        if length is not None:
            return int(length.contents())
        width, heads = fields.get(f"{arch}.embedding_length"), fields.get(f"{arch}.attention.head_count")
        if width is None or heads is None or isinstance(heads.contents(), list):
            return None
        return int(width.contents()) // int(heads.contents())
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelUnreadable(
            f"{path.name} is no model that can be read",
            where=Location(path=str(path)),
            why=f"{type(error).__name__}: {error}",
            hint="--model names a GGUF file",
        ) from error
