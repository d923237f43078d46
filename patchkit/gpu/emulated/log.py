"""Parses the launch recorder's log: launches by kernel and geometry, in sections."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from patchkit.base.errors import Location, ToolchainError
from patchkit.gpu.emulated.names import Family, KernelName, family_of, read_name

Triple = tuple[int, int, int]


class RecordingUnreadable(ToolchainError):
    """A line of a launch log has an unexpected form."""

    code = "RECORDING_UNREADABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel and the units that register it; an empty unit was not compiled by patchkit.

    ``family`` says which attention kernel it is. It is computed once, because kernels have many launches.
    """

    name: KernelName
    units: tuple[str, ...]
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", family_of(self.name, self.units))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch: grid in blocks, block in threads, dynamic LDS in bytes.

    ``resident`` is the result of the occupancy query that host code made just before the launch: how many
    such blocks fit on one multiprocessor. None if there was no query. ``assumed``: the result was not based
    on compiled code.
    """

    kernel: Kernel
    grid: Triple
    block: Triple
    lds: int
    resident: int | None = None
    assumed: bool = False

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The events after ``mark`` (empty: before the first mark) until the next mark.

    ``steps`` are the launches, split where the host synchronised.
    """

    mark: str
    steps: tuple[tuple[Launch, ...], ...]
    products: tuple[str, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, in order."""
        return tuple(launch for step in self.steps for launch in step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All launches of one process."""

    sections: tuple[Section, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, in order."""
        return tuple(launch for section in self.sections for launch in section.launches)


class _Reader:
    """Processes events one by one; ``sections`` has the finished sections."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._kernels: dict[int, Kernel] = {}
        self._answers: dict[int, tuple[int | None, bool]] = {}
        self._open("")

    def take(self, event: dict[str, Any]) -> None:
        """Process an event. Raises KeyError, TypeError or ValueError if the recorder does not write such."""
        match event:  # the most frequent first
            case {"launch": which, "grid": [x, y, z], "block": [bx, by, bz], "lds": lds}:
                resident, assumed = self._answers.pop(which, (None, False))
                self._steps[-1].append(
                    Launch(
                        kernel=self._kernels[which],
                        grid=(x, y, z),
                        block=(bx, by, bz),
                        lds=lds,
                        resident=resident,
                        assumed=assumed,
                    )
                )
            case {"kernel": which, "name": name, "units": units}:
                self._kernels[which] = Kernel(name=read_name(name), units=tuple(dict.fromkeys(units)))
            case {"occupancy": which, "blocks": blocks, "assumed": assumed}:
                self._answers[which] = (blocks, assumed)
            case {"sync": _}:
                self._steps.append([])
            case {"mark": mark}:
                self.close()
                self._open(mark)
            case {"blas": call, "m": m, "n": n, "k": k}:
                self._products.append(f"{call} {m}x{n}x{k}")
            case {"unregistered": _}:
                raise ValueError("launch of an unregistered kernel")
            case _:
                raise ValueError("unknown event")

    def close(self) -> None:
        """End the open section."""
        self.sections.append(
            Section(
                mark=self._mark,
                steps=tuple(tuple(step) for step in self._steps if step),
                products=tuple(self._products),
            )
        )

    def _open(self, mark: str) -> None:
        self._mark = mark
        self._steps: list[list[Launch]] = [[]]
        self._products: list[str] = []


def parse_recording(lines: Iterable[str], path: str) -> Recording:
    """Parse a log; ``path`` is used in messages.

    Raises:
        RecordingUnreadable: a line is not an event of the recorder, or refers to an undeclared kernel.
    """
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        try:
            reader.take(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing or not declared" if isinstance(error, KeyError) else str(error)
            raise RecordingUnreadable(
                "a line in the log of kernel launches is damaged",
                where=Location(path=path, line=number),
                why=f"{what}; the line begins {line[:80]!r}",
                hint="delete that file's folder and run the command again; patchkit then records again",
            ) from error
    reader.close()
    return Recording(sections=tuple(reader.sections))
