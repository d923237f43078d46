"""A run of ``verify`` as one HTML page that needs nothing but itself: no network, no script, no other file.

What is in evidence can only ever be text there: the environment escapes it, and the page forbids scripts,
pictures, forms and connections to itself (Content-Security-Policy). Sorting and filtering tables is done with
radio buttons and check boxes that the style sheet looks at, so it works by keyboard and without scripts; a
browser that lacks ``:has()`` shows all rows in the first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.render.html import render_page
from patchkit.reports.charts import CurveChart, StripChart, curve_charts, strip_chart
from patchkit.reports.model import Evidence, GateReport
from patchkit.reports.section_bench import bench_of
from patchkit.reports.sections import provenance, tables_of
from patchkit.reports.tables import Order, Row, Table

_FOLDER = Path(__file__).parent / "page"
_ROWS = 2000  # of one table; the largest of build 6900 has 559
_MOST = 1000  # problems, and points that were not proven
_MARKS = {"passed": "✓", "failed": "✗", "not run": "-"}
_MOST_STATES = 8  # as page/style.css has rules for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A table as the page draws it: ``key`` is its address; ``bodies`` are the same rows in each order."""

    key: str
    table: Table
    head: int
    states: tuple[str, ...]
    bodies: tuple[tuple[str, tuple[Row, ...]], ...]
    left_out: int

    def state_number(self, row: Row) -> int:
        """Which filter hides the row; beyond the last there is none."""
        return self.states.index(row.state) if row.state in self.states else _MOST_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A gate with what is shown of it."""

    key: str
    gate: GateReport
    tables: tuple[_Shown, ...]
    strips: StripChart | None
    curves: tuple[CurveChart, ...]


def html_report(evidence: Evidence, *, sweep: Sequence[Table] = (), version: str = "") -> str:
    """The page as text; ``sweep`` are the tables of a matrix. Raises EvidenceMalformed."""
    sections = [_section(number, gate) for number, gate in enumerate(evidence.gates)]
    still_open, problems = list(evidence.open), list(evidence.problems)
    context = {
        "evidence": evidence,
        "open": still_open[:_MOST],
        "open_left_out": max(0, len(still_open) - _MOST),
        "problems": problems[:_MOST],
        "problems_left_out": max(0, len(problems) - _MOST),
        "sections": sections,
        "sweep": [_shown(f"sweep-{number}", table) for number, table in enumerate(sweep)],
        "provenance": provenance(evidence),
        "state": _state(evidence),
        "marks": _MARKS,
        "version": version,
    }
    return render_page(_FOLDER, "report.html", context)


def _state(evidence: Evidence) -> str:
    if evidence.count("failed") or evidence.stopped is not None:
        return "failed"
    return "not-run" if evidence.count("not run") else "passed"


def _section(number: int, gate: GateReport) -> _Section:
    key = f"gate-{number}"
    strips: StripChart | None = None
    curves: tuple[CurveChart, ...] = ()
    if gate.evidence is not None and gate.name.partition("@")[0] == "bench" and gate.evidence.value:
        bench = bench_of(gate.evidence)
        strips, curves = strip_chart(bench.strips), tuple(curve_charts(bench.curves))
    tables = tuple(_shown(f"{key}-{at}", table) for at, table in enumerate(tables_of(gate)) if table.rows)
    return _Section(key=key, gate=gate, tables=tables, strips=strips, curves=curves)


def _shown(key: str, table: Table) -> _Shown:
    orders = table.orders or (Order(label="", rows=tuple(range(len(table.rows)))),)
    states = table.states if len(table.states) > 1 else ()
    return _Shown(
        key=key,
        table=table,
        head=1 if table.columns[0].title in {"state", "result"} else 0,
        states=states[:_MOST_STATES],
        bodies=tuple((order.label, tuple(table.rows[at] for at in order.rows[:_ROWS])) for order in orders),
        left_out=max(0, len(table.rows) - _ROWS),
    )
