"""What people read of a pick: a sentence per patch, a table with intervals, and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchkit.base.files import write_output
from patchkit.base.text import counted
from patchkit.gpu.hardware.bench.plots import PlotFormat, draw_changes
from patchkit.prove.pick.command import MEASURED, PickReport
from patchkit.prove.pick.decide import EffectOnTest

_ELSEWHERE = "name another file with --plot"


def lines(report: PickReport) -> Iterator[str]:
    """The result for a terminal; on what its times rest is said first and last."""
    picked = report.picked
    rounds = ", ".join(f"{count} of {stage}" for stage, count in picked.rounds.items())
    yield f"{report.label} on {report.device}: {counted(sum(picked.rounds.values()), 'round', 'rounds')}"
    yield f"  {rounds or 'no round'}; {picked.seconds / 60:.0f} of {report.minutes:g} minutes"
    yield ""
    width = max((len(one.id) for one in picked.decisions), default=0)
    for one in picked.decisions:
        yield f"{one.verdict:<12}{one.id:<{width}}  {one.why}"
    yield ""
    yield from _table(report, width)
    yield from report.conditions
    if report.label != MEASURED:
        yield f"these times are {report.label}: no GPU was measured"
    if picked.picked:
        checked = "" if picked.is_checked else " (the time was over before it was measured against upstream)"
        yield f"picked: {', '.join(picked.picked)}{checked}"
        yield f"next:   patchkit apply --picked {report.file}"
    else:
        yield "picked: nothing; upstream as it is stays"
    unsure = [one.id for one in picked.decisions if one.verdict == "cannot tell"]
    if unsure:
        yield f"open:   {', '.join(unsure)}; the same command with more --minutes goes on"


def _table(report: PickReport, width: int) -> Iterator[str]:
    """Gain per patch and test, then of the whole sets, then what equal builds differ by."""
    rows = list(_rows(report))
    if not rows:
        return
    tests = list(dict.fromkeys(test for _, test, *_ in rows))
    name_width = max(width, *(len(name) for name, *_ in rows))
    cells = {(name, test): f"{mid:+.1%} ({low:+.1%} to {high:+.1%})" for name, test, low, mid, high in rows}
    widths = [max(len(test), *(len(cells.get((name, test), "-")) for name, *_ in rows)) for test in tests]
    head = "  ".join(test.rjust(wide) for test, wide in zip(tests, widths, strict=True))
    yield f"{'faster with it by':<{name_width}}  {head}"
    for name in dict.fromkeys(name for name, *_ in rows):
        found = (cells.get((name, test), "-").rjust(wide) for test, wide in zip(tests, widths, strict=True))
        yield f"{name:<{name_width}}  {'  '.join(found)}"
    yield "intervals of 95 %; upstream twice: how far two equal builds were apart"


_Row = tuple[str, str, float, float, float]


def _rows(report: PickReport) -> Iterator[_Row]:
    picked = report.picked
    for one in picked.decisions:
        yield from (_row(one.id, effect) for effect in one.effects)
    yield from (_row("all of them", effect) for effect in picked.whole)
    yield from (_row("what was picked", effect) for effect in picked.check)
    yield from (_row("upstream twice", effect) for effect in picked.noise)


def _row(name: str, effect: EffectOnTest) -> _Row:
    return name, f"{effect.model} {effect.test}", effect.low, effect.change, effect.high


def write_picture(report: PickReport, path: Path, form: PlotFormat) -> None:
    """Draw it into a file, whole or not at all. Raises PLOTTING_MISSING, CacheError."""
    noise = {f"{one.model} {one.test}": (one.low, one.high) for one in report.picked.noise}
    rows = [row for row in _rows(report) if row[0] != "upstream twice"]
    about = "; ".join(line for line in report.conditions if line.startswith(("temperatures", "GPU clock")))
    title = f"What each patch brings, {report.label} on {report.device}"
    data = draw_changes(rows, noise, title=f"{title}\n{about}" if about else title, form=form)
    write_output(path, data, "writing the picture", _ELSEWHERE)
