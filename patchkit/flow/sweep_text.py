"""A sweep for people: a matrix for the terminal, the same as a Markdown table, and what is behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from patchkit.classify.model import GOOD, PATCH_CLASSES, Classified
from patchkit.errors import PatchkitError
from patchkit.flow.sweep import Row, Sweep

_CELLS = {"conflict": "CONFLICT", "out of era": "era", "off": "-"}


def text_matrix(sweep: Sweep) -> list[str]:
    """Pins as rows, patches as columns; below, the breaks and what a person has to look at."""
    head = ["pin", *sweep.patches]
    table = [[row.pin.name, *_cells(row)] for row in sweep.rows]
    widths = [max(len(line[column]) for line in [head, *table]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, *table]]  # fmt: skip
    return [*lines, "", _counts(sweep), *_behind(sweep)]


def markdown_matrix(sweep: Sweep) -> list[str]:
    """The same as a table of Markdown; what is behind it is a block of text, in which no mark-up counts."""
    lines = [f"| pin | {' | '.join(sweep.patches)} |", f"|---{'|---' * len(sweep.patches)}|"]
    lines += [f"| {row.pin.name} | {' | '.join(_cells(row))} |" for row in sweep.rows]
    behind = [line for line in _behind(sweep) if line.strip()]
    runs = [len(run) for line in behind for run in re.findall("`+", line)]
    fence = "`" * max(3, *(run + 1 for run in runs)) if runs else "```"
    return [*lines, "", _counts(sweep), *(("", f"{fence}text", *behind, fence) if behind else ())]


def _cells(row: Row) -> list[str]:
    return [_cell(verdict) for verdict in row.verdicts]


def _cell(verdict: Classified) -> str:
    mark = "*" if verdict.drift else ""
    return _CELLS.get(verdict.patch_class, verdict.patch_class) + mark


def _counts(sweep: Sweep) -> str:
    counts = [f"{count} {name}" for name in PATCH_CLASSES if (count := sweep.count(name))]
    return f"{', '.join(counts)}; era: out of its declared builds, -: off, *: the edited function changed"


def _behind(sweep: Sweep) -> Iterator[str]:
    for each in sweep.breaks:
        by = f" by {each.commit}" if each.commit is not None else ""
        yield f"{each.patch}: good until b{each.good}, {each.patch_class} at b{each.bad}{by}: {each.reason}"
    changed = [(row, verdict) for row in sweep.rows for verdict in row.verdicts
               if verdict.patch_class in GOOD and (verdict.moves or verdict.drift)]  # fmt: skip
    if changed:
        yield ""
        yield "placed, but not as on the pin before (each place and change: --json):"
    for row, verdict in changed:
        yield f"  {row.pin.name} {verdict.id}: {verdict.patch_class}: {verdict.reason}"
    for row in sweep.rows:
        for verdict in row.verdicts:
            if verdict.patch_class in {"conflict", "upstreamed", "superseded"}:
                yield ""
                yield from detail_lines(row.pin.name, verdict)


def detail_lines(pin: str, verdict: Classified) -> Iterator[str]:
    """One patch on one pin in full: reason, proof, moves, drift, both sides of each problem, intent."""
    yield f"{pin} {verdict.id}: {verdict.patch_class}: {verdict.reason}"
    for sentence in verdict.proof:
        yield f"  proof: {sentence}"
    for gone in verdict.gone:
        if gone.commit is not None:
            yield f"  {gone} was taken away by {gone.commit}"
    for move in verdict.moves:
        yield f"  {move.edit} ({move.how}): {move.before} -> {move.after}: {move.detail}"
    for drift in verdict.drift:
        yield f"  changed upstream: {drift.entity} in {drift.file}"
        yield from (f"    by {commit}" for commit in drift.commits)
        yield from (f"    - {unit}" for unit in drift.removed)
        yield from (f"    + {unit}" for unit in drift.added)
    for problem in verdict.problems:
        yield from _problem_lines(problem)
    if verdict.patch_class == "conflict":
        yield f"  intent: {' '.join(verdict.intent.split())}"


def _problem_lines(problem: PatchkitError) -> Iterator[str]:
    yield f"  {problem.code}: {problem.message}"
    for place in problem.where:
        yield f"    {place}{f': {place.label}' if place.label else ''}"
    if problem.why:
        yield from (f"    {line}" for line in problem.why.splitlines())
    if problem.hint:
        yield f"    hint: {problem.hint}"
