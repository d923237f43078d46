"""What a template may use and how much: no expression, loop or macro can run away.

Vocabulary: the *budget* of one rendering counts steps (loop iterations and macro calls) and printed
characters; *charging* takes from it. Filters and methods are a list of what is known to be small:
everything that pads, repeats or replaces is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jinja2.filters
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.visitor import NodeTransformer

MAX_OUTPUT = 1024 * 1024
"""Characters. Far above any edit: the largest file of ggml-cuda at build 6900 has about 200 kB."""
_MAX_STEPS = 100_000  # a tenth of a second; the largest table of the series takes 30 per GPU
_MAX_LENGTH = 100_000  # of one string, list or range made by an operator
_MAX_BITS = 4096  # of one integer

# Names that a template cannot spell: only the tree transformation below uses these filters.
CHARGE = "@charge"
JOIN = "@join"

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {"count", "endswith", "lower", "lstrip", "rstrip", "split", "startswith", "strip", "upper"}
    ),
    bytes: frozenset(),
    int: frozenset(),
    float: frozenset({"is_integer"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
    dict: frozenset({"get", "items", "keys", "values"}),
}
"""Methods of Python's own types that cannot blow up; types not listed are views made for templates."""

_LISTS = ("first", "last", "length", "count", "list", "map", "max", "min", "reverse", "sort", "unique")
_CHOICES = ("default", "d", "reject", "rejectattr", "select", "selectattr")
_VALUES = ("abs", "float", "int", "lower", "trim", "upper")

Charged = TypeVar("Charged", nodes.For, nodes.Macro, nodes.CallBlock)

_WIDE = re.compile(r"%[^%A-Za-z]*(?:\d{4}|\*)")


class OutputTooLarge(Exception):
    """More text or more steps than any edit needs. Internal: turned into a RenderError."""


class NotText(Exception):
    """Something other than text or a number would be printed. Internal: turned into a RenderError."""


class Budget:
    """What is left of one rendering."""

    def __init__(self) -> None:
        self._steps = _MAX_STEPS
        self._characters = MAX_OUTPUT

    def charge(self, characters: int, steps: int = 0) -> None:
        """Take from the budget; raises OutputTooLarge when it is used up."""
        self._steps -= steps
        self._characters -= characters
        if self._steps < 0 or self._characters < 0:
            raise OutputTooLarge


class ChargedTree(NodeTransformer):
    """Makes every loop iteration and macro call pay, and joins by ``~`` with a bound."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2's naming
        """Charge each iteration."""
        return self._charged(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802
        """Charge each call."""
        return self._charged(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        """Charge each ``caller()``."""
        return self._charged(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        """``a ~ b`` as a filter that bounds the result."""
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, JOIN, [], [], None, None, lineno=node.lineno)

    def _charged(self, node: Charged) -> Charged:
        self.generic_visit(node)
        static = sum(len(data.data) for part in node.body for data in _data(part))
        price = nodes.Filter(nodes.Const(static), CHARGE, [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.Output([price], lineno=node.lineno))
        return node


def _data(node: nodes.Node) -> Iterable[nodes.TemplateData]:
    return node.find_all(nodes.TemplateData)


def printable(value: object) -> object:
    """What ``@{ }@`` may print: text, numbers, and undefined values, which raise their own error."""
    if isinstance(value, (str, Undefined)) or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    ):
        return value
    raise NotText(f"@{{ }}@ would print a {type(value).__name__}, not text or a number")


def bounded_operands(operator: str, left: Any, right: Any) -> None:  # noqa: ANN401
    """Refuse operands whose result would not fit an edit; raises SecurityError."""
    if operator == "%" and isinstance(left, str):
        raise SecurityError("'%' formatting is not available: use the filter 'format'")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > _MAX_BITS:
            raise SecurityError(f"the result of '{operator}' is too large")
    elif operator == "*":
        sequence, times = (left, right) if hasattr(left, "__len__") else (right, left)
        if hasattr(sequence, "__len__") and isinstance(times, int) and len(sequence) * times > _MAX_LENGTH:
            raise SecurityError("repetition is too long")
    elif hasattr(left, "__len__") and hasattr(right, "__len__") and len(left) + len(right) > _MAX_LENGTH:
        raise SecurityError("concatenation is too long")


def bounded_range(*arguments: int) -> range:
    """``range`` of at most 100000 numbers; raises SecurityError."""
    numbers = range(*arguments)
    if len(numbers) > _MAX_LENGTH:
        raise SecurityError("range is too long")
    return numbers


def join_texts(values: Iterable[object], d: str = "") -> str:
    """``join`` with a bound; raises NotText or OutputTooLarge."""
    texts = [str(printable(value)) for value in values]
    if sum(map(len, texts)) + len(d) * len(texts) > MAX_OUTPUT:
        raise OutputTooLarge
    return d.join(texts)


def _format(value: str, *args: object, **kwargs: object) -> str:
    if _WIDE.search(value):
        raise SecurityError("the width of a format is too large")
    return jinja2.filters.do_format(value, *args, **kwargs)


FILTERS: dict[str, Callable[..., Any]] = {
    **{name: jinja2.filters.FILTERS[name] for name in (*_LISTS, *_CHOICES, *_VALUES)},
    "format": _format,
    "join": join_texts,
    JOIN: join_texts,
}
"""Every filter there is, by name."""
