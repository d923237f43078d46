"""Tables of the gates that look at code: anchors, isolation, compile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from patchkit.reports.document import Node
from patchkit.reports.tables import Row, Table, columns, group, was_is

_DIGEST = 12


def anchors_tables(evidence: Node) -> Iterator[Table]:
    """Where each edit lies in the candidate."""
    rows = [
        Row(
            cells=(
                edit.get("patch").text(),
                edit.get("edit").text(),
                edit.get("entity").text(),
                edit.get("confidence").text(),
                group(edit.get("places").texts()),
            )
        )
        for edit in evidence.get("edits").items()
    ]
    yield Table(
        name="edits",
        caption="Edits and the places they resolve to",
        columns=columns("patch", "edit", "in", "found by", "places ~"),
        rows=tuple(rows),
        is_detail=True,
    )


def isolation_tables(evidence: Node) -> Iterator[Table]:
    """Readings by configuration, those that differ in full, and the assembly that was compared."""
    same: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    different: list[Row] = []
    for reading in evidence.get("readings").items():
        name, unit = reading.get("configuration").text(), reading.get("unit").text()
        before, after = (_reading(reading.get(side)) for side in ("baseline", "candidate"))
        (same if before == after else differ)[name] += 1
        if before != after:
            different.append(Row(cells=(name, unit, before, after), state="differs"))
    if different:
        yield Table(
            name="leaks",
            caption="Readings that are not the baseline's",
            columns=columns("configuration", "unit", "baseline", "candidate"),
            rows=tuple(different),
        )
    names = sorted({*same, *differ})
    yield Table(
        name="readings",
        caption="Readings of the touched units by configuration",
        columns=columns("configuration", "identical #", "different #"),
        rows=tuple(
            Row(cells=(name, str(same[name]), str(differ[name])), state="differs" if differ[name] else "same")
            for name in names
        ),
        is_detail=True,
    )
    code = [
        (kind, one)
        for kind, node in (
            ("device", evidence.get("device_code")),
            ("host, branch dead", evidence.get("host_branch").get("branch_dead_assembly")),
        )
        for one in node.items()
    ]
    yield Table(
        name="assembly",
        caption="Assembly compared with the baseline's",
        columns=columns("unit", "GPU", "pass", "lines #", "result ~"),
        rows=tuple(_assembly(kind, one) for kind, one in code),
        is_detail=True,
    )


def _assembly(kind: str, one: Node) -> Row:
    equal, lines = one.get("equal").flag(), one.get("lines").integer()
    told = "same code" if equal else one.get("difference").text()
    if equal and not lines:
        told = "does not compile in either tree"
    cells = (one.get("unit").text(), one.get("arch").text(), kind, str(lines), told)
    return Row(cells=cells, state="same" if equal else "differs")


def _reading(node: Node) -> str:
    """A digest, short, or why there is none."""
    if isinstance(node.value, dict):
        return f"unreadable: {node.get('error').text()}"
    return node.text()[:_DIGEST]


def compile_tables(evidence: Node) -> Iterator[Table]:
    """Passes, and the whole library when it was built."""
    yield Table(
        name="passes",
        caption="Units compiled in both trees",
        columns=columns("unit", "GPU", "pass", "result", "warnings #", "seconds #"),
        rows=tuple(_pass(one) for one in evidence.get("passes").items()),
        is_detail=True,
    )
    libraries = evidence.find("library")
    rows = [
        Row(
            cells=(
                one.get("path").text(),
                str(one.get("units").integer()),
                f"{one.get('size_bytes').integer() / 1e6:.1f} MB",
                f"{one.get('seconds').number():.0f}",
            )
        )
        for one in (libraries.items() if libraries is not None else ())
    ]
    if rows:
        yield Table(
            name="library",
            caption="The whole library, through upstream's CMake",
            columns=columns("file", "units #", "size #", "seconds #"),
            rows=tuple(rows),
            is_detail=True,
        )


def _pass(one: Node) -> Row:
    compiles = one.get("compiles").flag()
    cells = (
        one.get("unit").text(),
        one.get("arch").text(),
        one.get("pass").text(),
        "compiles" if compiles else "FAILS",
        *(_both(one, name) for name in ("warnings", "seconds")),
    )
    return Row(cells=cells, state="compiles" if compiles else "fails")


def _both(one: Node, name: str) -> str:
    """Both sides; a pass that failed has no figures of the candidate."""
    sides = [one.find(f"{name}_{side}") for side in ("baseline", "candidate")]
    told = [f"{side.number():g}" if side is not None else "-" for side in sides]
    return was_is(*told)
