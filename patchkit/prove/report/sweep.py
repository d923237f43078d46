"""Tables of ``patchkit sweep --json``: the class of every patch on many upstream builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from patchkit.base.document import parse_model
from patchkit.base.report.blocks import Row, Table, columns
from patchkit.base.upstreams import build_name
from patchkit.carry.series.lock import Release, name_pin
from patchkit.prove.gates.base import Count, Many, Record

_MOST_PATCHES = 500  # far above any series
_MOST_PINS = 5000  # there are 4649 build numbers from b6900 to b11549
_HINT = "create it with: patchkit sweep --arch gfx1151 --json > FILE"


class _Cell(Record, extra="ignore"):
    """The class of one patch on one upstream build."""

    id: str
    word: str = Field(validation_alias="class")
    drift: Many[object]


class _Pin(Record, extra="ignore"):
    build: Count
    releases: Many[Release] = ()
    patches: Many[_Cell]


class _Break(Record, extra="ignore"):
    patch: str
    good: Count
    bad: Count
    word: str = Field(validation_alias="class")
    reason: str

    @property
    def ends(self) -> tuple[int, int]:
        return (self.good, self.bad)


class _Matrix(Record, extra="ignore"):
    archs: Many[str]
    patches: Annotated[Many[str], Field(max_length=_MOST_PATCHES)]
    pins: Annotated[Many[_Pin], Field(max_length=_MOST_PINS)]
    breaks: Many[_Break]


def sweep_tables(data: bytes, source: str) -> Iterator[Table]:
    """The matrix, and the builds where patches break. Raises EvidenceUnreadable, EvidenceMalformed."""
    matrix = parse_model(data, _Matrix, source, hint=_HINT)
    yield Table(
        name="sweep",
        caption=f"Patches on {len(matrix.pins)} upstreams, for {', '.join(matrix.archs)}",
        columns=columns("pin", *matrix.patches),
        rows=tuple(_row(pin, matrix.patches) for pin in matrix.pins),
        note="*: the edited function changed upstream. off: not for these GPUs.",
    )
    titles = {pin.build: name_pin(build_name(pin.build), pin.releases) for pin in matrix.pins}
    if matrix.breaks:
        yield Table(
            name="sweep-breaks",
            caption="Builds at which a patch stops to apply cleanly",
            columns=columns("patch", "good until", "then", "class", "reason"),
            rows=tuple(
                Row(
                    cells=(
                        each.patch,
                        *(titles.get(at, build_name(at)) for at in each.ends),
                        each.word,
                        each.reason,
                    )
                )
                for each in matrix.breaks
            ),
        )


def _row(pin: _Pin, patches: tuple[str, ...]) -> Row:
    found = {one.id: one for one in pin.patches}
    cells = [_class_text(found[patch]) if patch in found else "-" for patch in patches]
    return Row(cells=(name_pin(build_name(pin.build), pin.releases), *cells))


def _class_text(one: _Cell) -> str:
    return ("CONFLICT" if one.word == "conflict" else one.word) + ("*" if one.drift else "")
