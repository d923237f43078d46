"""The result of a pick as text: a sentence per patch, and a table with intervals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from patchkit.base.text import counted
from patchkit.gpu.hardware.bench.statistics import fewest_rounds
from patchkit.prove.pick.command import MEASURED, PickReport
from patchkit.prove.pick.decide import SHOWN_CHANCE, EffectOnTest


def lines(report: PickReport) -> Iterator[str]:
    """The result for a terminal; the source of its times comes first and last."""
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
    if report.drafts:
        yield f"pp{report.drafts + 1} is the batch that verifies {counted(report.drafts, 'draft')}"
    if report.label != MEASURED:
        yield f"these times are {report.label}: no GPU was measured"
    if picked.picked:
        checked = "" if picked.is_checked else " (not measured against upstream: the time ran out)"
        yield f"picked: {', '.join(picked.picked)}{checked}"
        yield f"next:   {_next(report)}"
    else:
        yield "picked: nothing; upstream stays unchanged"
    unsure = [one.id for one in picked.decisions if one.verdict == "unclear"]
    if unsure:
        yield f"open:   {', '.join(unsure)}; to continue, run the same command with more --minutes"


def _next(report: PickReport) -> str:
    """The command that applies the picked patches to the same base, which may be the user's clone."""
    words = ["patchkit", "apply", "--picked", str(report.file)]
    if (onto := report.onto) is not None:
        words += ["--onto", onto.revision, "--repo", str(onto.directory)]
        words += ["--as-build", str(onto.as_build)] if onto.as_build is not None else []
    return shlex.join(words)


def _table(report: PickReport, width: int) -> Iterator[str]:
    """The gain per patch and test, then of the whole sets, then the difference between equal builds."""
    rows = list(_rows(report))
    if not rows:
        return
    tests = list(dict.fromkeys(test for _, test, *_ in rows))
    name_width = max(width, *(len(name) for name, *_ in rows))
    cells = {(name, f"{one.model} {one.test}"): one.text for name, one in _effects(report)}
    widths = [max(len(test), *(len(cells.get((name, test), "-")) for name, *_ in rows)) for test in tests]
    head = "  ".join(test.rjust(wide) for test, wide in zip(tests, widths, strict=True))
    yield f"{'speedup':<{name_width}}  {head}"
    for name in dict.fromkeys(name for name, *_ in rows):
        found = (cells.get((name, test), "-").rjust(wide) for test, wide in zip(tests, widths, strict=True))
        yield f"{name:<{name_width}}  {'  '.join(found)}"
    if report.label == MEASURED:
        few = f"of fewer than {fewest_rounds(SHOWN_CHANCE)} pairs: the whole range"
        yield f"intervals of 95 % ({few}); 'upstream twice' is the difference between two equal builds"


_Row = tuple[str, str, float, float, float]


def _effects(report: PickReport) -> Iterator[tuple[str, EffectOnTest]]:
    picked = report.picked
    for one in picked.decisions:
        yield from ((one.id, effect) for effect in one.effects)
    yield from (("all patches", effect) for effect in picked.whole)
    yield from (("picked patches", effect) for effect in picked.check)
    yield from (("upstream twice", effect) for effect in picked.noise)


def _rows(report: PickReport) -> Iterator[_Row]:
    return (_row(name, effect) for name, effect in _effects(report))


def _row(name: str, effect: EffectOnTest) -> _Row:
    return name, f"{effect.model} {effect.test}", effect.low, effect.change, effect.high
