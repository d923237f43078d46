"""Draws a timeline as SVG: a bar per kernel, its bound dark and the time above it light, one side per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from patchkit.gpu.modelled.timeline import Line, Timeline

_MOST = 12  # bars per test
_WIDTH, _NAMES, _ROW, _GAP = 860, 330, 18, 26
_BOUND, _ABOVE = "#0072B2", "#E69F00"  # Okabe and Ito's palette for colour blindness


def draw_timelines(model: str, tests: Mapping[str, Mapping[str, Timeline]]) -> str:
    """An SVG file. Each test has its own scale, shared by its sides."""
    parts: list[str] = []
    y = 2 * _ROW
    for test, sides in tests.items():
        lines = {side: timeline.merged() for side, timeline in sides.items()}
        longest = max((line.all_us for each in lines.values() for line in each), default=1.0)
        for side, timeline in sides.items():
            y += _GAP
            head = f"{test}, {side}: {timeline.rates}, {timeline.bound_us / timeline.us:.0%} of the bound"
            parts.append(_text(0, y, head, weight="bold"))
            for line in sorted(lines[side], key=lambda line: -line.all_us)[:_MOST]:
                y += _ROW
                parts += _bar(line, y, longest)
    title = f"{model}: modelled, not measured; dark: the bound, light: above it"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + _ROW}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{_text(0, _ROW, title)}\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _bar(line: Line, y: int, longest: float) -> Iterator[str]:
    scale = (_WIDTH - _NAMES - 90) / longest
    bound = min(line.count * line.bound_us, line.all_us) * scale
    yield _text(0, y, f"{line.kernel}, {line.what}"[:52])
    for start, width, color in ((0.0, bound, _BOUND), (bound, line.all_us * scale - bound, _ABOVE)):
        yield (
            f'<rect x="{_NAMES + start:.1f}" y="{y - _ROW + 6}" width="{width:.1f}" height="{_ROW - 6}" '
            f'fill="{color}"/>'
        )
    yield _text(_NAMES + line.all_us * scale + 4, y, f"{line.all_us:.0f} us")


def _text(x: float, y: int, text: str, *, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" fill="#010203">{escape(text)}</text>'
