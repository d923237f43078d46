"""The ``[gates]`` table of series.toml: which gates a published branch must have passed.

Every gate stands in exactly one of the two lists, so that a new gate is a decision and never an oversight.
Without the table all are required.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from patchkit.config.toml import TomlModel

GateName = Literal[
    "anchors", "isolation", "compile", "resources", "launch", "numerics", "backend-ops", "logits", "bench"
]
GATES: tuple[GateName, ...] = get_args(GateName)
"""Every gate, in order of cost."""

WITHOUT_GPU: tuple[GateName, ...] = GATES[: GATES.index("numerics")]
"""Those that every machine with a compiler can run: nobody has a reason to publish without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """``optional`` gates may not have run when a branch is published, for the reason ``why``."""

    required: tuple[GateName, ...] = GATES
    optional: tuple[GateName, ...] = ()
    why: str = ""


class GatePolicyModel(TomlModel):
    """What the table must be."""

    required: list[GateName] = Field(min_length=1)
    optional: list[GateName] = Field(default_factory=list)
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        named = [*self.required, *self.optional]
        twice = sorted({gate for gate in named if named.count(gate) > 1})
        missing = [gate for gate in GATES if gate not in named]
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        if missing:
            raise ValueError(f"neither required nor optional: {', '.join(missing)}")
        return self

    def build(self) -> GatePolicy:
        """The table as data."""
        return GatePolicy(required=tuple(self.required), optional=tuple(self.optional), why=self.why.strip())
