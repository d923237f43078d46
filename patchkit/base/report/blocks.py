"""A report as data: a short summary, then sections of tables and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchkit.base.errors import Location
from patchkit.base.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: ``numeric`` is aligned to the right."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One text per column."""

    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts with a ``note`` below them. ``name`` is unique in a report.

    ``is_detail``: only the terminal's report has this table, not Markdown.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    is_detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Location):
    """A place that a finding names. Its path is relative to ``root``, None for the user's own repository.

    A place that is not ``is_file`` is a byte of a function, for example, or a file outside of all roots.
    """

    root: str | None = None
    is_file: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An error or a note: its places, the most important first, the reason, and what to do next.

    ``fingerprint`` stays the same when lines move.
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
        """The places that a viewer can open."""
        return [place for place in self.places if place.is_file]


Block = Table | Finding

AnswerState = Literal["yes", "partly", "no", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One of the first lines of a report: a question that every reader has, and the answer in one line.

    ``partly``: as far as it was checked, or checked on no hardware; ``unknown``: nothing was checked.
    """

    question: str
    text: str
    state: AnswerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """Things that were not proven for the same reason.

    ``command`` would prove them; empty where patchkit cannot. ``details`` are (gate, text) pairs, one per
    thing.
    """

    what: str
    command: str
    details: tuple[tuple[str, str], ...]

    @property
    def listed(self) -> tuple[tuple[str, str], ...]:
        """The details to list below ``what``: none if ``what`` already has the only one."""
        is_repeated = len(self.details) == 1 and self.details[0][1].removeprefix("not run: ") in self.what
        return () if is_repeated else self.details


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to do next, and the command for it."""

    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSummary:
    """One patch of the candidate. ``gain``: its measured or modelled gain on these GPUs, and the source."""

    name: str
    title: str
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report. The section of a gate has a ``verdict``.

    ``open`` lists what the gate did not prove, ``lines`` its output. ``is_skipped``: the gate was not
    selected, or an earlier gate failed.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    verdict: Verdict | None = None
    summary: str = ""
    seconds: float = 0.0
    open: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    is_skipped: bool = False

    @property
    def state(self) -> str:
        """The verdict in words, ``skipped`` for a gate that was not to run; empty if this is not a gate."""
        return "skipped" if self.is_skipped else self.verdict or ""

    @property
    def findings(self) -> list[Finding]:
        """Its findings."""
        return [block for block in self.blocks if isinstance(block, Finding)]

    @property
    def tables(self) -> list[Table]:
        """Its tables that have rows."""
        return [block for block in self.blocks if isinstance(block, Table) and block.rows]

    @property
    def has_broken(self) -> bool:
        """Whether the gate ended with an error of its own (no compiler, disk full), so it did not run."""
        return self.verdict == "not run" and bool(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report of one ``command``.

    A renderer shows, in this order: ``title``, ``headline`` and ``notes`` (one sentence each), ``answers``,
    ``unproven``, the gates, then the rest.

    ``open`` is everything that was not proven, as (gate, text); None where the command proves nothing.
    ``unproven`` has the same, grouped by what would prove it. ``steps``: what to do now. ``provenance``:
    commits, tools, machines and settings that the figures depend on, by name. ``is_complete``: the command
    reached its end. ``roots`` describes the folders that paths of findings are relative to, ``rules`` the
    finding codes known in advance. ``folder`` is where the evidence is on this machine; only the terminal
    shows it. ``data`` says where the full tables are.
    """

    command: str
    title: str
    headline: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    answers: tuple[Answer, ...] = ()
    patches: tuple[PatchSummary, ...] = ()
    open: tuple[tuple[str, str], ...] | None = None
    unproven: tuple[Unproven, ...] = ()
    steps: tuple[Step, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    is_complete: bool = True
    roots: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    footer: str = ""
    folder: str = ""
    data: str = ""
    version: str = ""

    @property
    def gates(self) -> list[Section]:
        """The sections that are gates."""
        return [section for section in self.sections if section.verdict is not None]

    @property
    def findings(self) -> Iterator[tuple[Section, Finding]]:
        """Every finding with its section."""
        for section in self.sections:
            for finding in section.findings:
                yield section, finding

    @property
    def state(self) -> str:
        """The overall state, the worst of all gates: failed, not-run, passed-emulated or passed."""
        verdicts = {section.verdict for section in self.gates}
        if "failed" in verdicts or not self.is_complete:
            return "failed"
        if any(finding.level == "error" for _, finding in self.findings if not verdicts):
            return "failed"
        if "not run" in verdicts:
            return "not-run"
        return "passed" if verdicts == {"passed"} else "passed-emulated"


def columns(*titles: str) -> tuple[Column, ...]:
    """Make columns from titles: a trailing ``#`` makes a column numeric."""
    return tuple(Column(title=title.rstrip("# "), numeric=title.endswith("#")) for title in titles)


def was_is(before: object, after: object) -> str:
    """``245 -> 187``, or the one value if nothing changed."""
    return str(before) if before == after else f"{before} -> {after}"


def percent(fraction: float, digits: int = 1) -> str:
    """Format a fraction as ``+12.3 %``, always with its sign."""
    return f"{fraction * 100:+.{digits}f} %"


def figure(value: float) -> str:
    """Format a measured value: three significant digits below 100, else one decimal."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - see above
        return f"{value:.1f}"
    return f"{value:.3g}"


def group(items: Sequence[str], most: int = 8) -> str:
    """Join texts for one cell; those beyond ``most`` are only counted."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
