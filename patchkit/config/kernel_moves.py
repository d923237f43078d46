"""The ``[[moves]]`` tables of patch.toml: which attention kernels a patch takes its GPUs away from.

Vocabulary: a *family* of attention kernels is one of upstream's implementations: ``wmma`` (rocWMMA),
``mma``, ``tile`` and ``vec``. A *move* says from which family to which. Without one no case may launch
another family than before; with one the cases it names must leave the old family, every one of them, unless
the move says that some *may stay*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from patchkit.config.toml import TomlModel

_Family = Literal["wmma", "mma", "tile", "vec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMove:
    """Cases with one of ``head_sizes`` (empty: every one) go from ``origin`` to one of ``to``.

    ``may_stay``: some do; which ones is upstream's choice.
    """

    origin: str
    to: tuple[str, ...]
    head_sizes: tuple[int, ...]
    why: str
    may_stay: bool = False

    def covers(self, head_size: int) -> bool:
        """Whether the move is about cases of that head size."""
        return not self.head_sizes or head_size in self.head_sizes

    def allows(self, head_size: int, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a case may launch the families ``after`` where it launched ``before``."""
        return self.covers(head_size) and self.origin in before and set(after) <= {*self.to}


class KernelMoveModel(TomlModel):
    """What a table must be."""

    origin: _Family = Field(alias="from")
    to: list[_Family] = Field(min_length=1)
    head_sizes: list[int] = Field(default_factory=list)
    may_stay: bool = False
    why: str = Field(min_length=1)

    def build(self) -> KernelMove:
        """The table as data."""
        return KernelMove(
            origin=self.origin,
            to=tuple(self.to),
            head_sizes=tuple(self.head_sizes),
            may_stay=self.may_stay,
            why=self.why.strip(),
        )
