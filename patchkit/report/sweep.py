"""The matrix of ``patchkit sweep --json`` as tables: what became of every patch on many upstreams."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.gates.blocks import Row, Table, columns
from patchkit.gates.document import Node, parse_document

_MOST_PATCHES = 500  # far above any series
_MOST_PINS = 5000  # there are 4649 build numbers from b6900 to b11549
_HINT = "patchkit sweep --arch gfx1151 --json > FILE makes it"


def sweep_tables(data: bytes, source: str) -> Iterator[Table]:
    """The matrix, and where patches leave the good classes. Raises EvidenceUnreadable, EvidenceMalformed."""
    document = parse_document(data, source, hint=_HINT)
    patches = document.get("patches").texts(most=_MOST_PATCHES)
    pins = list(document.get("pins").items(most=_MOST_PINS))
    yield Table(
        name="sweep",
        caption=f"Patches on {len(pins)} upstreams, for {', '.join(document.get('archs').texts())}",
        columns=columns("pin", *patches),
        rows=tuple(_row(pin, patches) for pin in pins),
        note="A star: the edited function changed upstream. 'off': not for these GPUs.",
    )
    breaks = [
        Row(
            cells=(
                each.get("patch").text(),
                f"b{each.get('good').integer()}",
                f"b{each.get('bad').integer()}",
                each.get("class").text(),
                each.get("reason").text(),
            )
        )
        for each in document.get("breaks").items()
    ]
    if breaks:
        yield Table(
            name="sweep-breaks",
            caption="Where a patch leaves the good classes",
            columns=columns("patch", "good until", "then", "class", "reason ~"),
            rows=tuple(breaks),
        )


def _row(pin: Node, patches: tuple[str, ...]) -> Row:
    found = {one.get("id").text(): one for one in pin.get("patches").items()}
    cells = [_cell(found[patch]) if patch in found else "-" for patch in patches]
    return Row(cells=(f"b{pin.get('build').integer()}", *cells))


def _cell(one: Node) -> str:
    word = one.get("class").text()
    told = "CONFLICT" if word == "conflict" else word
    return told + ("*" if list(one.get("drift").items()) else "")
