"""What gates on a device do with the two sides: say what was built of each, and blame the candidate."""

from __future__ import annotations

from typing import TypeVar

from patchkit.base.errors import GateError, ToolchainError
from patchkit.candidate.build import Sides
from patchkit.gates.base import Many, Record

_Broken = TypeVar("_Broken", bound=GateError)


class BuiltPart(Record):
    """A part of llama.cpp that was built; ``shared``: it is one build for both sides."""

    part: str
    key: str
    shared: bool
    log: str
    compiler: str


BuiltSides = dict[str, Many[BuiltPart]]


def built_sides(sides: Sides) -> BuiltSides:
    """The parts of ``baseline`` and ``candidate``."""
    shared = {one.part.key for one in sides.before.parts} & {one.part.key for one in sides.after.parts}
    return {
        name: tuple(
            BuiltPart(
                part=built.part.name,
                key=built.part.key,
                shared=built.part.key in shared,
                log=str(built.log),
                compiler=built.part.compiler,
            )
            for built in side.parts
        )
        for name, side in (("baseline", sides.before), ("candidate", sides.after))
    }


def blame_candidate(error: ToolchainError, kind: type[_Broken], doing: str = "") -> _Broken:
    """The error of a run as a finding: the same run of the baseline came to its end."""
    what = f"only on the candidate, {doing}" if doing else "only on the candidate"
    return kind(f"{what}: {error.message}", where=error.where, why=error.why, hint=error.hint)
