"""The one Jinja environment: sandboxed, strict, with delimiters that C++ and inline assembly never use.

Vocabulary: ``@{ value }@`` prints, ``@% statement %@`` and lines that begin with ``//%`` control,
``@# comment #@`` is dropped. Jinja's own delimiters occur in this code base (``{{`` in initialisers,
``{%0, %1}`` in inline assembly: facts/code-style.md 4.3 counted them), these do not.

A template can neither reach Python's internals nor write: it returns text, and where that text goes
is decided by the patch's data. What it may use, and how much of it, is in :mod:`patchkit.render.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jinja2
import jinja2.meta
import jinja2.sandbox
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

from patchkit.render.bounds import (
    CHARGE,
    FILTERS,
    MAX_OUTPUT,
    METHODS,
    Budget,
    ChargedTree,
    bounded_operands,
    bounded_range,
    printable,
)
from patchkit.series_dir import is_editors


class Unreadable(Exception):
    """A template's file is not text that can be put into a source. Internal: becomes a RenderError."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, plus a budget for each rendering and bounds on single operations."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, loader: jinja2.BaseLoader) -> None:
        super().__init__(
            loader=loader,
            block_start_string="@%",
            block_end_string="%@",
            variable_start_string="@{",
            variable_end_string="}@",
            comment_start_string="@#",
            comment_end_string="#@",
            line_statement_prefix="//%",
            undefined=jinja2.StrictUndefined,
            finalize=_finalize,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            newline_sequence="\n",
        )
        self.budget = Budget()
        self.filters = {**FILTERS, CHARGE: _charge}
        self.globals = {"range": bounded_range}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Refuse operands whose result would be out of proportion."""
        bounded_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        """Of Python's own types only methods that cannot blow up."""
        known = METHODS.get(type(obj))
        return (known is None or attr in known) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:  # noqa: ANN401
        """``'{:>999999999}'.format(x)`` pads without bound, and jinja2 asks here before the check above."""
        if super().wrap_str_format(value) is not None:
            raise SecurityError("'format' is not available as a method: use the filter 'format'")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = ChargedTree().visit(super()._parse(source, name, filename))
        return tree

    def render_bounded(self, template: jinja2.Template, context: Mapping[str, object]) -> str:
        """Render on a fresh budget; raises OutputTooLarge and NotText beside jinja2's errors."""
        self.budget = Budget()
        pieces: list[str] = []
        for piece in template.generate(dict(context)):
            # Values paid when they were printed; the template's own text pays here.
            self.budget.charge(len(piece))
            pieces.append(piece)
        return "".join(pieces)


@jinja2.pass_environment
def _finalize(environment: BoundedEnvironment, value: object) -> object:
    shown = printable(value)
    if isinstance(shown, str):
        environment.budget.charge(len(shown))
    return shown


@jinja2.pass_context
def _charge(context: Context, characters: int) -> str:
    cast("BoundedEnvironment", context.environment).budget.charge(characters, steps=1)
    return ""


class _FolderLoader(jinja2.BaseLoader):
    """Templates of the patch's folder first, shared ones second.

    Links that lead out are not followed, and an editor's files are not there: the lock covers neither.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folder.resolve() for folder in folders)

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """Source and path of one template; raises TemplateNotFound or Unreadable."""
        del environment
        for folder in self._folders:
            path = (folder / template).resolve()
            if path.is_relative_to(folder) and not is_editors(path.relative_to(folder)) and path.is_file():
                return _read(path), str(path), None
        raise jinja2.TemplateNotFound(template)

    def list_templates(self) -> list[str]:
        """Names in all folders."""
        return sorted(set(self._names()))

    def _names(self) -> Iterator[str]:
        for folder in self._folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and not is_editors(path.relative_to(folder)):
                    yield path.relative_to(folder).as_posix()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_OUTPUT + 1)
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Unreadable(path, f"byte {exc.start} is not UTF-8") from exc
    except OSError as exc:
        raise Unreadable(path, exc.strerror or str(exc)) from exc
    if len(data) > MAX_OUTPUT:
        raise Unreadable(path, f"it has more than {MAX_OUTPUT} bytes")
    if text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        raise Unreadable(path, "it begins with a byte order mark, which would end up in the source")
    if "\0" in text:
        raise Unreadable(path, "it contains a zero byte: not a text file")
    return text.replace("\r\n", "\n")


def make_environment(folders: Sequence[Path]) -> BoundedEnvironment:
    """The environment for one patch: ``folders`` in order of precedence."""
    return BoundedEnvironment(_FolderLoader(folders))


def undeclared_names(environment: BoundedEnvironment, source: str, filename: str | None = None) -> set[str]:
    """Context names a template uses, those of the templates it includes among them.

    ``filename`` is the file that ``source`` was read from, for errors.

    Raises jinja2's TemplateSyntaxError and TemplateNotFound, and Unreadable.
    """
    pending: list[tuple[str, str | None]] = [(source, filename)]
    seen: set[str] = set()
    names: set[str] = set()
    while pending:
        text, path = pending.pop()
        tree = environment.parse(text, filename=path)
        names |= jinja2.meta.find_undeclared_variables(tree)
        for reference in jinja2.meta.find_referenced_templates(tree):
            if reference is not None and reference not in seen and environment.loader is not None:
                seen.add(reference)
                pending.append(environment.loader.get_source(environment, reference)[:2])
    return names - set(environment.globals)
