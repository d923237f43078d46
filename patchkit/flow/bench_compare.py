"""``bench compare``: files of llama-bench side by side, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.bench.plots import PLOT_FORMATS, PlotFormat, draw_plot
from patchkit.bench.tables import Series, Table, compare_series
from patchkit.errors import Location, UsageError
from patchkit.flow.bench_files import load_rows
from patchkit.vcs.output import check_output, write_output

_ELSEWHERE = "name another file with --plot"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """``labels`` empty: the files' names; ``baseline`` None: the first label; ``across`` as in tables."""

    files: tuple[Path, ...]
    labels: tuple[str, ...] = ()
    baseline: str | None = None
    across: tuple[str, ...] = ()
    plot: Path | None = None


def run_bench_compare(request: CompareRequest) -> Table:
    """Read, compare, and draw if that was asked for.

    Raises:
        BENCH_LABELS_CLASH, BENCH_PLOT_FORMAT_UNKNOWN: before anything is read.
        BENCH_FILE_MISSING and its like, BenchGarbage and its like: a file is not what it must be.
        BENCH_NOTHING_SHARED, BENCH_AMBIGUOUS: there is nothing to compare.
        PLOTTING_MISSING: matplotlib is not installed.
        CacheError: the disk refused the picture.
    """
    labels = _labels(request)
    base = _base(labels, request.baseline)
    if request.plot is not None:
        _format(request.plot)
        check_output(request.plot, "writing the picture", _ELSEWHERE)
    series = [
        Series(label=label, source=str(path), rows=load_rows(path))
        for label, path in zip(labels, request.files, strict=True)
    ]
    table = compare_series(series, base=base, across=request.across)
    if request.plot is not None:
        write_plot(table, request.plot)
    return table


def write_plot(table: Table, path: Path) -> None:
    """Draw into a file, which is there whole or not at all.

    Raises:
        BENCH_PLOT_FORMAT_UNKNOWN, PLOTTING_MISSING, CacheError: as they say.
    """
    data = draw_plot(table, _format(path))
    write_output(path, data, "writing the picture", _ELSEWHERE)


def _labels(request: CompareRequest) -> tuple[str, ...]:
    labels = request.labels or tuple(path.name.removesuffix(".jsonl") for path in request.files)
    if len(labels) != len(request.files):
        raise UsageError(
            f"{len(request.files)} files have {len(labels)} labels",
            code="BENCH_LABELS_CLASH",
            hint="give --label once per file, in their order, or not at all",
        )
    odd = next((label for label in labels if not label.strip() or not label.isprintable()), None)
    if odd is not None:
        raise UsageError(
            f"{odd!r} is no label",
            code="BENCH_LABELS_CLASH",
            hint="--label takes a word for the title of a column",
        )
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        places = zip(labels, request.files, strict=True)
        raise UsageError(
            f"two files have the label '{twice}'",
            code="BENCH_LABELS_CLASH",
            where=[Location(path=str(path)) for label, path in places if label == twice],
            hint="name them apart: --label ONE --label OTHER, in the order of the files",
        )
    return labels


def _base(labels: Sequence[str], named: str | None) -> int:
    if named is None:
        return 0
    if named not in labels:
        raise UsageError(
            f"no file has the label '{named}'",
            code="BENCH_LABELS_CLASH",
            hint=f"--baseline takes one of: {', '.join(labels)}",
        )
    return labels.index(named)


def _format(path: Path) -> PlotFormat:
    for form in PLOT_FORMATS:
        if path.suffix.lower() == f".{form}":
            return form
    raise UsageError(
        f"'{path.name}' does not say what kind of picture it should be",
        code="BENCH_PLOT_FORMAT_UNKNOWN",
        where=Location(path=str(path)),
        hint=f"name it with {' or '.join(f'.{form}' for form in PLOT_FORMATS)} at the end",
    )
