"""What a branch must have passed before it is published: the ``[gates]`` table of series.toml."""

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
        missing = [gate for gate in self.asked_of_all() if gate not in named]
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        not_required = [gate for gate in self.hardware if gate not in self.required]
        if not_required:
            raise ValueError(f"of hardware, but not required: {', '.join(not_required)}")
        if missing:
            raise ValueError(
                f"every gate is required or optional, and these are neither: {', '.join(missing)}"
            )

    @classmethod
    def asked_of_all(cls) -> tuple[str, ...]:
        """The gates that are not optional where nobody names them.

        One that runs on the emulated GPU only cannot be asked of hardware, and one that looks at plain
        patches says nothing of others.
        """
        return tuple(entry.name for entry in entries("anywhere", "device") if not entry.plain_only)

    def of(self, archs: Sequence[str]) -> GatePolicy:
        """What is asked of a candidate of these GPUs; of one for none whatever looks at plain patches."""
        if tuple(archs) != (PLAIN,):
            return self
        asked = PlainGatePolicy.asked_of_all()
        return PlainGatePolicy(
            required=tuple(
                name
                for name in plain_names()
                if name in self.required or (name in asked and name not in self.optional)
            ),
            optional=tuple(name for name in plain_names() if name in self.optional),
            why=self.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainGatePolicy(GatePolicy):
    """``[gates]`` of a plain series: it has no other gates than those that look at plain patches."""

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one that this was written in.
        GatePolicy.__post_init__(self)
        others = [gate for gate in (*self.required, *self.optional) if gate not in plain_names()]
        if others:
            raise ValueError(
                f"a plain series has no gate {', '.join(others)}; it has: {', '.join(plain_names())}"
            )

    @classmethod
    def asked_of_all(cls) -> tuple[str, ...]:
        """Those that look at plain patches, but for upstream's tests: most of its files have none."""
        return tuple(name for name in plain_names() if name != CPU_TESTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWithPolicy(Series):
    """series.toml as a whole; a series without ``[gates]`` asks for every gate that hardware can run."""

    gates: GatePolicy = field(default_factory=lambda: GatePolicy(required=GatePolicy.asked_of_all(), why=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSeriesWithPolicy(SeriesWithPolicy):
    """series.toml of a plain series."""

    gates: PlainGatePolicy = field(
        default_factory=lambda: PlainGatePolicy(required=PlainGatePolicy.asked_of_all(), why="")
    )


def load_proven_series(folder: Path) -> SeriesWithPolicy:
    """The series with its policy; raises as :func:`patchkit.carry.series.catalogue.load_series_as`."""
    return load_series_as(folder, PlainSeriesWithPolicy if declares_plain(folder) else SeriesWithPolicy)
