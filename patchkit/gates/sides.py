"""Which built parts a result on a device rests on, and which of them both sides share."""

from __future__ import annotations

from patchkit.candidate.build import Sides
from patchkit.gates.base import Many, Record


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
