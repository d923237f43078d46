"""The chart of the README: prompt speed of upstream, of the default and of the optional patches.

Everything in it is modelled, so all bars but upstream's are hatched. A bar of the default patches ends at the
modelled gain; its whisker is the error of ratios of that kernel. A bar of the optional patches ends in the
middle of the expected range, the whisker spans that range, and a tick marks what the model itself says.
Values come from :mod:`gains`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gains import PROMPT, ROOT, Model, models

PICTURE = ROOT / "docs" / "prompt-speed.svg"

_TEST = "pp512 at depth 0, -ub 512, build 11549, gfx1151"
_WIDTH = 760
_LEFT = 190  # of the bars; names of models are left of it
_PIXELS = 185  # per 100 % of upstream's speed
_BAR, _GAP, _GROUP, _TOP = 16, 3, 78, 84
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .small { font-size: 11.5px; fill: #57606a }
.upstream { fill: #8c959f } .default { fill: url(#default) } .optional { fill: url(#optional) }
.line { stroke: #24292f; stroke-width: 1.5 } .axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .line { stroke: #e6edf3 } .axis { stroke: #3d444d }
}
"""


def draw() -> str:
    """The SVG text."""
    shown = [model for model in models() if model.is_in_chart]
    height = _TOP + _GROUP * len(shown) + 8
    body = list(_legend())
    for number, model in enumerate(shown):
        body += _group(_TOP + number * _GROUP, model)
    label = f"Prompt speed relative to upstream, {_TEST}; modelled and expected, not measured"
    named = f'role="img" aria-label="{label}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {named}>',
            f"<style>{_STYLE}</style>",
            _hatching("default", "#1f883d"),
            _hatching("optional", "#0969da"),
            f'<text x="8" y="20" font-weight="600">{label.partition(";")[0]}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _hatching(name: str, colour: str) -> str:
    return (
        f'<pattern id="{name}" width="6" height="6" patternTransform="rotate(45)"'
        f' patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="{colour}" fill-opacity="0.25"/>'
        f'<rect width="3" height="6" fill="{colour}"/></pattern>'
    )


def _legend() -> Iterator[str]:
    entries = (
        ("upstream", "upstream"),
        ("default", "default patches"),
        ("optional", "with optional patches"),
    )
    for number, (name, text) in enumerate(entries):
        x = 8 + number * 150
        yield f'<rect class="{name}" x="{x}" y="34" width="14" height="12"/>'
        yield f'<text class="small" x="{x + 20}" y="44">{text}</text>'
    note = "Green: modelled; whisker: its error. Blue: middle and range of what we expect; dotted: modelled."
    yield f'<text class="small" x="8" y="66">{note} Nothing is measured.</text>'


def _group(top: int, model: Model) -> Iterator[str]:
    default, optional = (model.gain(PROMPT, side) for side in ("default", "optional"))
    if default is None or optional is None or default.error is None or model.expected is None:
        raise ValueError(f"{model.name} is in the chart and lacks a gain, an error or an expected range")
    yield f'<text x="8" y="{top + _BAR + _GAP + 12}">{model.name}</text>'
    low, high = model.expected
    whisker = (default.value - default.error, default.value + default.error)
    bars = (
        ("upstream", 0.0, None, None),
        ("default", default.value, whisker, None),
        ("optional", (low + high) / 2, model.expected, optional.value),
    )
    for number, (name, value, span, tick) in enumerate(bars):
        y = top + number * (_BAR + _GAP)
        end = _x(value)
        yield f'<rect class="{name}" x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR}"/>'
        right = end
        if span is not None:
            middle = y + _BAR / 2
            first, last = _x(span[0]), _x(span[1])
            right = max(right, last)
            yield f'<path class="line" d="M{first:.1f} {middle}H{last:.1f}" />'
            yield from (f'<path class="line" d="M{x:.1f} {middle - 4}v8" />' for x in (first, last))
        if tick is not None:
            right = max(right, _x(tick))
            yield f'<path class="line" stroke-dasharray="2 2" d="M{_x(tick):.1f} {y - 1}v{_BAR + 2}" />'
        if name != "upstream":
            text = (
                f"+{value:.0%}" if tick is None else f"+{100 * low:.0f} to +{high:.0%} (model: +{tick:.0%})"
            )
            yield f'<text class="small" x="{right + 8:.1f}" y="{y + 12}">{text.replace("%", " %")}</text>'
    yield f'<path class="axis" d="M{_LEFT} {top - 4}v{3 * (_BAR + _GAP) + 6}" />'


def _x(gain: float) -> float:
    """Pixels from the left; upstream's speed is 1."""
    return _LEFT + (1 + gain) * _PIXELS
