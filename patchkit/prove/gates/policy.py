"""What a branch must have passed before it is published: the ``[gates]`` table of series.toml."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from patchkit.base.toml import Prose, Several, TomlTable
from patchkit.carry.series.catalogue import Series, load_series_as
from patchkit.prove.gates.registry import NO_LONGER, entries, gate_names

if TYPE_CHECKING:
    GateName = str
    DeviceGateName = str
else:  # so that an error names what is near, and the schema has all of them
    GateName = Literal[gate_names()]
    DeviceGateName = Literal[gate_names("device")]


def _of_today(names: object) -> object:
    """Names in a list but for those of gates that an earlier version had."""
    return [name for name in names if name not in NO_LONGER] if isinstance(names, list) else names


GateNames = Annotated[Several[GateName], BeforeValidator(_of_today)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy(TomlTable):
    """``[gates]``: ``optional`` ones may not have run when a branch is published, for the reason ``why``.

    Of the ``required`` ones that run on a device, those of ``hardware`` must have passed on the GPU itself;
    for the others the emulated GPU is enough.
    """

    required: Annotated[GateNames, Field(min_length=1)]
    hardware: Several[DeviceGateName] = ()
    optional: GateNames = ()
    why: Prose

    def __post_init__(self) -> None:
        named = [*self.required, *self.optional]
        twice = sorted({gate for gate in named if named.count(gate) > 1})
        missing = [gate for gate in _asked_of_all() if gate not in named]
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        not_required = [gate for gate in self.hardware if gate not in self.required]
        if not_required:
            raise ValueError(f"of hardware, but not required: {', '.join(not_required)}")
        if missing:
            raise ValueError(f"neither required nor optional: {', '.join(missing)}")


def _asked_of_all() -> tuple[str, ...]:
    """The gates that are not optional where nobody names them.

    One that runs on the emulated GPU only cannot be asked of hardware, and one that looks at plain patches
    says nothing of others.
    """
    return tuple(entry.name for entry in entries("anywhere", "device") if not entry.plain_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWithPolicy(Series):
    """series.toml as a whole; a series without ``[gates]`` asks for every gate that hardware can run."""

    gates: GatePolicy = field(default_factory=lambda: GatePolicy(required=_asked_of_all(), why=""))


def load_proven_series(folder: Path) -> SeriesWithPolicy:
    """The series with its policy; raises as :func:`patchkit.carry.series.catalogue.load_series_as`."""
    return load_series_as(folder, SeriesWithPolicy)
