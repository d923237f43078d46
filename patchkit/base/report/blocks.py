"""A report as data: sections of tables, changes, curves and findings, which every format renders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchkit.base.errors import Location
from patchkit.base.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that is ``numeric`` is aligned to the right; one of ``prose`` may be broken into lines."""

    title: str
    numeric: bool = False
    prose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One text per column; a reader can filter rows by their ``state``."""

    cells: tuple[str, ...]
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order of a table's rows: ``label`` says what comes first, ``rows`` has the index of each."""

    label: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts; ``name`` is unique in a report and fit for an address, ``note`` a sentence below.

    ``is_detail``: a reader asks for it; the short formats leave it out.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    orders: tuple[Order, ...] = ()
    is_detail: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """Every state, in order of appearance."""
        return tuple(dict.fromkeys(row.state for row in self.rows if row.state))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How much one test changed, as a fraction, with its interval and that of the baseline against itself."""

    test: str
    change: float
    low: float
    high: float
    noise: tuple[float, float]
    verdict: str
    judgement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Tokens per second at a depth; ``low`` and ``high`` of all rounds, None where there was one."""

    depth: int
    speed: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Speed by depth of one side, ``arm``; ``setting`` is what else the tests of ``title`` have in common."""

    title: str
    arm: str
    setting: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Location):
    """A place in a report; ``root`` names the folder that its path is relative to.

    ``root`` is None for the user's own repository. Not every place ``is_file``: one may be a byte of a
    function, or a file outside of all roots.
    """

    root: str | None = None
    is_file: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault, or a note: its places, the most important first, the reason and the next command.

    ``fingerprint`` is the same for the same fault after lines moved.
    """

    code: str
    message: str
    places: tuple[Place, ...] = ()
    why: str | None = None
    hint: str | None = None
    level: Literal["error", "note"] = "error"
    fingerprint: str = ""

    @property
    def files(self) -> list[Place]:
        """Its places in files that a viewer can open."""
        return [place for place in self.places if place.is_file]


Block = Table | Change | Curve | Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report; that of a gate has a ``verdict``.

    ``open`` is what it did not prove, ``lines`` what the gate printed.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    verdict: Verdict | None = None
    summary: str = ""
    seconds: float = 0.0
    open: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """Its findings."""
        return [block for block in self.blocks if isinstance(block, Finding)]

    @property
    def tables(self) -> list[Table]:
        """Its tables, but for empty ones."""
        return [block for block in self.blocks if isinstance(block, Table) and block.rows]

    @property
    def has_broken(self) -> bool:
        """Whether a gate could not be run, which is neither a failure nor a choice."""
        return self.verdict == "not run" and bool(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report of one ``command``.

    ``headline`` is one sentence, ``notes`` are further ones. ``open`` is everything that was not proven, each
    with the name of its gate; None where the command proves nothing. ``provenance`` is what the figures rest
    on, by name. ``is_complete``: the command reached its end. ``roots`` describes the folders that places
    name, ``rules`` the codes of findings that are known beforehand. ``folder`` is where the evidence lies on
    this machine, which only the terminal shows.
    """

    command: str
    title: str
    headline: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    open: tuple[tuple[str, str], ...] | None = None
    provenance: tuple[tuple[str, str], ...] = ()
    is_complete: bool = True
    roots: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    footer: str = ""
    folder: str = ""
    version: str = ""

    @property
    def gates(self) -> list[Section]:
        """The sections of gates."""
        return [section for section in self.sections if section.verdict is not None]

    @property
    def findings(self) -> Iterator[tuple[Section, Finding]]:
        """Every finding with its section."""
        for section in self.sections:
            for finding in section.findings:
                yield section, finding

    @property
    def state(self) -> str:
        """What a reader sees first: the least that any part of it deserves."""
        verdicts = {section.verdict for section in self.gates}
        if "failed" in verdicts or not self.is_complete:
            return "failed"
        if any(finding.level == "error" for _, finding in self.findings if not verdicts):
            return "failed"
        if "not run" in verdicts:
            return "not-run"
        return "passed" if verdicts == {"passed"} else "passed-emulated"


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns by title; one that ends with ``#`` is numeric, with ``~`` prose."""
    return tuple(
        Column(title=title.rstrip("#~ "), numeric=title.endswith("#"), prose=title.endswith("~"))
        for title in titles
    )


def was_is(before: object, after: object) -> str:
    """``245 -> 187``, or one value when nothing changed."""
    return str(before) if before == after else f"{before} -> {after}"


def percent(fraction: float, digits: int = 1) -> str:
    """``+12.3 %``; the sign is always there."""
    return f"{fraction * 100:+.{digits}f} %"


def figure(value: float) -> str:
    """A measured value with the digits that a table wants: three significant ones below 100."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - as said
        return f"{value:.1f}"
    return f"{value:.3g}"


def group(items: Sequence[str], most: int = 8) -> str:
    """Texts in one cell, the rest counted."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
