"""The one Jinja environment: sandboxed, strict, with delimiters that C++ and inline assembly never use.

Vocabulary: ``@{ value }@`` prints, ``@% statement %@`` and lines that begin with ``//%`` control,
``@# comment #@`` is dropped. Jinja's own delimiters occur in this code base (``{{`` in initialisers,
``{%0, %1}`` in inline assembly: facts/code-style.md 4.3 counted them), these do not.

A template can neither reach Python's internals nor write: it returns text, and where that text goes
is decided by the patch's data. Output and repetition are bounded, so a hostile template is an error
and not a full disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.sandbox
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

__all__ = ["MAX_OUTPUT_BYTES", "BoundedEnvironment", "OutputTooLarge", "make_environment", "undeclared_names"]

MAX_OUTPUT_BYTES = 1024 * 1024
"""Far above any edit: the largest file of ggml-cuda at build 6900 has about 200 kB."""
_MAX_OPERAND = 100_000  # what range() of the sandbox allows, too


class OutputTooLarge(Exception):
    """More text than any edit needs. Internal to this package: turned into a RenderError."""


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, plus bounds on the operators that can blow up."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Refuse powers, formatting and repetition that would not fit an edit."""
        if operator == "**" and isinstance(right, int) and abs(right) > 64:  # noqa: PLR2004 - 64-bit masks
            raise SecurityError(f"exponent {right} is too large")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("'%' formatting is not available: use @{ }@")
        if operator == "*":
            sequence, times = (left, right) if hasattr(left, "__len__") else (right, left)
            if hasattr(sequence, "__len__") and len(sequence) * int(times) > _MAX_OPERAND:
                raise SecurityError("repetition is too long")
        return super().call_binop(context, operator, left, right)

    def render_bounded(self, template: jinja2.Template, context: Mapping[str, object]) -> str:
        """Render, stopping at MAX_OUTPUT_BYTES; raises OutputTooLarge."""
        pieces: list[str] = []
        size = 0
        for piece in template.generate(dict(context)):
            size += len(piece)
            if size > MAX_OUTPUT_BYTES:
                raise OutputTooLarge
            pieces.append(piece)
        return "".join(pieces)


class _FolderLoader(jinja2.BaseLoader):
    """Templates of the patch's folder first, shared ones second; links that lead out are not followed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folder.resolve() for folder in folders)

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """Source and path of one template; raises TemplateNotFound."""
        del environment
        for folder in self._folders:
            path = (folder / template).resolve()
            if path.is_relative_to(folder) and path.is_file():
                return path.read_text(encoding="utf-8"), str(path), None
        raise jinja2.TemplateNotFound(template)

    def list_templates(self) -> list[str]:
        """Names in all folders."""
        return sorted(set(self._names()))

    def _names(self) -> Iterator[str]:
        for folder in self._folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    yield path.relative_to(folder).as_posix()


def make_environment(folders: Sequence[Path]) -> BoundedEnvironment:
    """The environment for one patch: ``folders`` in order of precedence."""
    return BoundedEnvironment(
        loader=_FolderLoader(folders),
        block_start_string="@%",
        block_end_string="%@",
        variable_start_string="@{",
        variable_end_string="}@",
        comment_start_string="@#",
        comment_end_string="#@",
        line_statement_prefix="//%",
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
    )


def undeclared_names(environment: BoundedEnvironment, source: str) -> set[str]:
    """Context names a template uses, those of the templates it includes among them.

    Raises jinja2's TemplateSyntaxError and TemplateNotFound.
    """
    pending = [source]
    seen: set[str] = set()
    names: set[str] = set()
    while pending:
        tree = environment.parse(pending.pop())
        names |= jinja2.meta.find_undeclared_variables(tree)
        for reference in jinja2.meta.find_referenced_templates(tree):
            if reference is not None and reference not in seen and environment.loader is not None:
                seen.add(reference)
                pending.append(environment.loader.get_source(environment, reference)[0])
    return names - set(environment.globals)
