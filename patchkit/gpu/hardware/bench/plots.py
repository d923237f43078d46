"""Draws plots: speed against depth (a panel per kind of test, a line per label, with ranges), and others.

matplotlib is optional. It is imported only for drawing, because it takes half a second and most commands draw
nothing. Equal tables give identical bytes with the same matplotlib: no dates, random ids or user settings.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from patchkit.base.errors import ToolchainError
from patchkit.gpu.hardware.bench.rows import BenchModel
from patchkit.gpu.hardware.bench.tables import Cell, Line, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotFormat = Literal["svg", "png"]
PLOT_FORMATS: tuple[PlotFormat, ...] = ("svg", "png")

# Okabe and Ito's palette for colour blindness, without black, because the page may be dark.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")  # so that lines can be distinguished without colours
_STYLES = ("-", "--", "-.", ":")
_INK = "#010203"  # text and axes
_PANEL = (5.4, 3.6)  # inches
_SQUARE = (7.0, 6.4)
_BESIDE = 1.25
_COLUMNS = 2
_MOST_PANELS = 24  # more would be unreadable
_KIB = 1024

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "patchkit",  # otherwise ids are random
    "svg.fonttype": "none",  # keeps text searchable, in the reader's fonts
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}

_Kind = tuple[BenchModel, str, str]


def draw_plot(table: Table, form: PlotFormat) -> bytes:
    """Plot a table, on white. Raises LIBRARY_MISSING."""
    kinds = _kinds(table)
    columns = min(_COLUMNS, len(kinds))
    rows = -(-len(kinds) // columns)

    def panels(figure: Figure) -> None:
        for number, (kind, lines) in enumerate(kinds.items(), start=1):
            _panel(figure.add_subplot(rows, columns, number), table, kind, lines)

    return _drawn(panels, (_PANEL[0] * columns, _PANEL[1] * rows), form)


def draw_scatter(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    axes_are: tuple[str, str],
    form: PlotFormat,
) -> bytes:
    """Points of several kinds on logarithmic axes, with lines at equality and at factors of 1.25.

    Raises:
        LIBRARY_MISSING: matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        every = [value for points in series.values() for point in points for value in point]
        ends = [min(every), max(every)]
        for factor, style in ((1.0, "-"), (_BESIDE, "--"), (1 / _BESIDE, "--")):
            line = [factor * value for value in ends]
            axes.plot(ends, line, color=_INK, linewidth=0.7, linestyle=style, alpha=0.5)
        for number, (kind, points) in enumerate(sorted(series.items())):
            axes.scatter(
                [first for first, _ in points],
                [second for _, second in points],
                s=22,
                alpha=0.75,
                color=_COLORS[number % len(_COLORS)],
                marker=_MARKERS[number % len(_MARKERS)],
                label=_plain(f"{kind}, {len(points)} points"),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(axes_are[0])
        axes.set_ylabel(axes_are[1])
        axes.set_title(_plain(title), fontsize="medium")
        axes.legend(frameon=False)

    return _drawn(draw, _SQUARE, form)


def draw_changes(
    rows: Sequence[tuple[str, str, float, float, float]],
    noise: Mapping[str, tuple[float, float]],
    *,
    title: str,
    form: PlotFormat,
) -> bytes:
    """Changes in percent with intervals, a panel per test, with the machine's noise in grey.

    A row has its name, the test, and low, middle and high as fractions.

    Raises:
        LIBRARY_MISSING: matplotlib is not installed.
    """
    tests = list(dict.fromkeys(test for _, test, *_ in rows))[:_MOST_PANELS]
    names = list(dict.fromkeys(name for name, *_ in rows))
    height = 0.9 + 0.32 * len(names)

    def draw(figure: Figure) -> None:
        figure.suptitle(_plain(title), fontsize="medium")
        for number, test in enumerate(tests):
            axes = figure.add_subplot(len(tests), 1, number + 1)
            axes.set_title(_plain(test), fontsize="medium")
            if test in noise:
                axes.axvspan(*(100 * end for end in noise[test]), color=_INK, alpha=0.12, linewidth=0)
            axes.axvline(0.0, color=_INK, linewidth=0.7)
            here = {name: ends for name, where, *ends in rows if where == test}
            for at, name in enumerate(names):
                if name in here:
                    low, middle, high = (100 * end for end in here[name])
                    axes.errorbar(
                        [middle], [at], xerr=[[middle - low], [high - middle]],
                        color=_COLORS[0], marker="o", markersize=5, capsize=3,
                    )  # fmt: skip
            axes.set_yticks(range(len(names)), [_plain(name) for name in names])
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_xlabel("speedup in percent")

    return _drawn(draw, (7.0, max(1, len(tests)) * height), form)


def _drawn(onto: Callable[[Figure], None], inches: tuple[float, float], form: PlotFormat) -> bytes:
    """Draw a picture of the given width and height with a function.

    Raises:
        LIBRARY_MISSING: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415  # see above
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ToolchainError(
            "drawing needs matplotlib, which is not installed",
            code="LIBRARY_MISSING",
            why=str(error),
            hint="pip install 'patchkit[plots]', or omit --plot",
        ) from error
    with mpl.rc_context():
        mpl.rcdefaults()
        for name, value in _STYLE.items():
            mpl.rcParams[name] = value  # type: ignore[index]  # its stubs require literal names
        figure = Figure(figsize=inches, layout="constrained")
        onto(figure)
        out = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        figure.savefig(out, format=form, dpi=120, metadata=metadata)
    return out.getvalue()


def _kinds(table: Table) -> dict[_Kind, list[Line]]:
    """The lines of each panel, prefill first; limited to a readable number of panels."""
    kinds: dict[_Kind, list[Line]] = {}
    for line in sorted(table.lines, key=lambda line: (line.model, not line.prompt)):
        apart = [line.unusual, *(f"{name} {line.shared[name]}" for name in table.varying)]
        kinds.setdefault((line.model, line.kind, " ".join(filter(None, apart))), []).append(line)
    return dict(list(kinds.items())[:_MOST_PANELS])


def _panel(axes: Axes, table: Table, kind: _Kind, lines: Sequence[Line]) -> None:
    model, test, unusual = kind
    axes.set_title(_plain(f"{model.kind}: {test} {unusual}".rstrip()), fontsize="medium")
    axes.set_xlabel("depth (tokens)")
    axes.set_ylabel("tokens per second")
    for index, label in enumerate(table.labels):
        points = [(line.depth, cell) for line in lines if (cell := line.cells[index]) is not None]
        if not points:
            continue
        axes.errorbar(
            [float(depth) for depth, _ in points],
            [cell.speed for _, cell in points],
            yerr=_errors([cell for _, cell in points]),
            label=_plain(label),
            color=_COLORS[index % len(_COLORS)],
            marker=_MARKERS[index % len(_MARKERS)],
            linestyle=_STYLES[index % len(_STYLES)],
            markersize=5,
            capsize=3,
        )
    depths = sorted({line.depth for line in lines})
    if depths[-1]:
        # Depths are usually multiples of four, so this axis spaces them evenly and includes depth 0.
        axes.set_xscale("symlog", base=4, linthresh=min(depth for depth in depths if depth))
    axes.set_xticks([float(depth) for depth in depths], [_depth(depth) for depth in depths])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _errors(cells: Sequence[Cell]) -> list[list[float]] | None:
    """Distances down and up to the ends of each range (0 if it has none); None if no cell has a range."""
    if not any(cell.range for cell in cells):
        return None
    ranges = [cell.range or (cell.speed, cell.speed) for cell in cells]
    down = [cell.speed - low for cell, (low, _) in zip(cells, ranges, strict=True)]
    up = [high - cell.speed for cell, (_, high) in zip(cells, ranges, strict=True)]
    return [[max(0.0, value) for value in down], [max(0.0, value) for value in up]]


def _depth(tokens: int) -> str:
    return f"{tokens // _KIB}k" if tokens and tokens % _KIB == 0 else str(tokens)


def _plain(text: str) -> str:
    """Escape text for matplotlib: no formulas, and labels that start with ``_`` are not hidden."""
    shown = text.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown
