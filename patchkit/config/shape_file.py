"""A model described by hand, for when its GGUF file is not here.

Vocabulary: a *shape file* states what the header of the GGUF file would: sizes, heads, and every kind of
tensor with its extents, type and how many of it there are; and where all that was taken from.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from patchkit.config.toml import TomlModel, load_toml, validate

_MAX = 2**31


class ShapeTensor(TomlModel):
    """Tensors of one kind. ``*`` in ``name`` stands for the layer; ``shape`` has the row length first."""

    name: str = Field(min_length=1)
    shape: tuple[int, ...] = Field(strict=False, min_length=1, max_length=4)
    type: str = Field(description="As GGUF names it: F16, Q4_K, MXFP4")
    count: int = Field(default=1, gt=0, lt=65536)

    @model_validator(mode="after")
    def _extents(self) -> ShapeTensor:
        if not all(0 < extent < _MAX for extent in self.shape):
            raise ValueError("each extent of a tensor is between 1 and 2147483647")
        return self


class ShapeModel(TomlModel):
    """The file."""

    name: str = Field(min_length=1)
    source: str = Field(min_length=3, description="Where these figures come from")
    layers: int = Field(gt=0, le=1024)
    heads: int = Field(gt=0, lt=_MAX, description="Query heads of a layer")
    kv_heads: int = Field(gt=0, lt=_MAX)
    head_size: int = Field(gt=0, lt=_MAX, description="Values per head of K")
    head_size_v: int | None = Field(default=None, gt=0, lt=_MAX, description="Of V, where it differs")
    window: int | None = Field(default=None, gt=0, lt=_MAX, description="Tokens that a windowed layer sees")
    window_every: int = Field(default=1, gt=0, description="Every n-th layer sees all tokens; 1: each does")
    experts: int = Field(default=0, ge=0, lt=65536)
    experts_used: int = Field(default=0, ge=0, lt=65536)
    tensors: tuple[ShapeTensor, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _agree(self) -> ShapeModel:
        if self.experts_used > self.experts:
            raise ValueError("experts_used is at most experts")
        if self.heads % self.kv_heads:
            raise ValueError("heads is a multiple of kv_heads")
        if self.window is None and self.window_every != 1:
            raise ValueError("window_every needs window")
        return self


def load_shape(path: Path) -> ShapeModel:
    """Read a shape file.

    Raises:
        ConfigError: it is no TOML file.
        ErrorGroup: wrong fields, all of them.
    """
    return validate(load_toml(path), ShapeModel, what="shape file")
