"""Which gates a branch must pass before it is published: the ``[gates]`` table of series.toml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from patchkit.base.series_folder import PLAIN, declares_plain
from patchkit.base.toml import Prose, Several, TomlTable
from patchkit.carry.series.catalogue import Series, load_series_as
from patchkit.prove.gates.registry import CPU_TESTS, NO_LONGER, entries, gate_names, plain_names

if TYPE_CHECKING:
    GateName = str
    DeviceGateName = str
else:  # a Literal, so that errors suggest similar names and the schema lists all
    GateName = Literal[gate_names()]
    DeviceGateName = Literal[gate_names("device")]


def _of_today(names: object) -> object:
    """The names in a list without those of gates that no longer exist."""
    return [name for name in names if name not in NO_LONGER] if isinstance(names, list) else names


GateNames = Annotated[Several[GateName], BeforeValidator(_of_today)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy(TomlTable):
    """``[gates]``: which gates must have passed when a branch is published.

    ``optional`` gates need not have run, for the reason ``why``. Of the ``required`` gates that run on a
    device, those in ``hardware`` must have passed on the GPU itself; the others may be emulated.
    """

    required: Annotated[GateNames, Field(min_length=1)]
    hardware: Several[DeviceGateName] = ()
    optional: GateNames = ()
    why: Prose

    def __post_init__(self) -> None:
        named = [*self.required, *self.optional]
        twice = sorted({gate for gate in named if named.count(gate) > 1})
        missing = [gate for gate in self.must_name() if gate not in named]
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        not_required = [gate for gate in self.hardware if gate not in self.required]
        if not_required:
            raise ValueError(f"in hardware, but not required: {', '.join(not_required)}")
        if missing:
            raise ValueError(f"gates that are neither required nor optional: {', '.join(missing)}")

    @classmethod
    def must_name(cls) -> tuple[str, ...]:
        """The gates that ``[gates]`` has to name, as required or optional.

        Not those for the emulated GPU only, which hardware cannot run, nor those for plain patches only.
        """
        return tuple(entry.name for entry in entries("anywhere", "device") if not entry.plain_only)

    def of(self, archs: Sequence[str]) -> GatePolicy:
        """The policy for a candidate of these GPUs; for a plain one only gates for plain patches."""
        if tuple(archs) != (PLAIN,):
            return self
        named = PlainGatePolicy.must_name()
        return PlainGatePolicy(
            required=tuple(
                name
                for name in plain_names()
                if name in self.required or (name in named and name not in self.optional)
            ),
            optional=tuple(name for name in plain_names() if name in self.optional),
            why=self.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainGatePolicy(GatePolicy):
    """``[gates]`` of a plain series, which has only gates for plain patches."""

    def __post_init__(self) -> None:
        # Not super(): dataclass(slots=True) replaces the class, so the implicit __class__ cell is wrong.
        GatePolicy.__post_init__(self)
        others = [gate for gate in (*self.required, *self.optional) if gate not in plain_names()]
        if others:
            raise ValueError(
                f"a plain series cannot run gate {', '.join(others)}; it has: {', '.join(plain_names())}"
            )

    @classmethod
    def must_name(cls) -> tuple[str, ...]:
        """The gates for plain patches except upstream's tests, since most upstream files have none."""
        return tuple(name for name in plain_names() if name != CPU_TESTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWithPolicy(Series):
    """The whole series.toml; without ``[gates]`` every gate that hardware can run is required."""

    gates: GatePolicy = field(default_factory=lambda: GatePolicy(required=GatePolicy.must_name(), why=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSeriesWithPolicy(SeriesWithPolicy):
    """The whole series.toml of a plain series."""

    gates: PlainGatePolicy = field(
        default_factory=lambda: PlainGatePolicy(required=PlainGatePolicy.must_name(), why="")
    )


def load_proven_series(folder: Path) -> SeriesWithPolicy:
    """The series with its policy; raises as :func:`patchkit.carry.series.catalogue.load_series_as`."""
    return load_series_as(folder, PlainSeriesWithPolicy if declares_plain(folder) else SeriesWithPolicy)
