"""A table of llama-bench's results on the terminal, in Markdown, CSV or JSON."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from patchkit.cli.settings import Settings
from patchkit.cli.terminal import wants_color
from patchkit.visible import visible

if TYPE_CHECKING:
    from rich.text import Text

    from patchkit.bench.table_text import Section
    from patchkit.bench.tables import Table

TableFormat = Literal["terminal", "markdown", "csv"]
_WIDE = 10_000  # columns where nobody looks: what goes into a pipe is never folded


def show_table(settings: Settings, table: Table, form: TableFormat) -> None:
    """The result on stdout; for CSV, which has no place for them, the notes on stderr."""
    from patchkit.bench.table_notes import table_notes
    from patchkit.bench.table_text import csv_table, markdown_table, sections

    if form == "markdown":
        settings.terminal.data(markdown_table(table))
    elif form == "csv":
        settings.terminal.data(csv_table(table), as_is=True)
        reporter = settings.reporter()
        for note in table_notes(table):
            reporter.info(note)
    else:
        blocks = [_rendered(settings, section) for section in sections(table)]
        settings.terminal.data("\n".join([*blocks, *map(visible, table_notes(table))]), as_is=True)


def _rendered(settings: Settings, section: Section) -> str:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table as RichTable
    from rich.text import Text

    on_screen = bool(sys.stdout) and sys.stdout.isatty()
    shown = RichTable(title=visible(section.title), box=box.SIMPLE_HEAD, title_justify="left")
    for title, how in zip(section.titles, section.aligned, strict=True):
        # A number that is folded reads as three others.
        shown.add_column(
            Text(visible(title)),
            justify="left" if how == "left" else "right",
            overflow="fold",
            no_wrap=how != "left",
        )
    for row in section.rows:
        shown.add_row(*(_painted(row, column) for column in range(len(row))))
    out = io.StringIO()
    needed = Measurement.get(wide := Console(width=_WIDE), wide.options, shown).minimum
    console = Console(
        file=out,
        # rich leaves out what does not fit; a terminal that is too narrow breaks the lines instead.
        width=max(shutil.get_terminal_size().columns, needed) if on_screen else _WIDE,
        force_terminal=on_screen and wants_color(settings.color),
        color_system="standard" if on_screen and wants_color(settings.color) else None,
    )
    console.print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _painted(row: Sequence[str], column: int) -> Text:
    """Green and red are for changes whose whole interval says so; without an interval there is no colour."""
    from rich.text import Text

    interval = row[column + 1] if column + 1 < len(row) else ""
    low, found, high = interval.partition(" to ")
    if not found or low.startswith("-") != high.startswith("-"):
        return Text(visible(row[column]))
    return Text(visible(row[column]), style="red" if low.startswith("-") else "green")
