"""Render the texts of one patch in a sandbox, with precise errors."""

from __future__ import annotations

import functools
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import jinja2
import jinja2.filters
import jinja2.meta
import jinja2.sandbox
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.visitor import NodeTransformer

from patchkit.base.errors import Location, RenderError
from patchkit.base.series_folder import find_texts, is_no_template
from patchkit.base.text import near_miss
from patchkit.carry.series.patch import Edit, Patch

MAX_OUTPUT = 8 * 1024 * 1024
"""In characters; equal to the limit in bytes of an imported patch.

Upstream's own commits rewrite whole tables of docs/ops: 1.2 million characters of Vulkan.csv in 1568d13c2c
(build 7066).
"""
_MAX_STEPS = 100_000  # takes a tenth of a second; the largest table of the series needs 30 per GPU
_MAX_LENGTH = 100_000  # elements of one string, list or range made by an operator
_MAX_BITS = 4096  # of one integer
_COUNTS = re.compile(r"^[ \t]*@\{ *switch\.ran *\}@[ \t]*\n", re.MULTILINE)

# Filter names that a template cannot spell; only the tree transformation below uses them.
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
"""Methods of Python's own types with bounded results. Unlisted types are views made for templates."""

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
    """The remaining steps and characters of one rendering."""

    def __init__(self, steps: int = _MAX_STEPS, characters: int = MAX_OUTPUT) -> None:
        self._steps = steps
        self._characters = characters

    def charge(self, characters: int, steps: int = 0) -> None:
        """Subtract from the budget; raises OutputTooLarge if it is exceeded."""
        self._steps -= steps
        self._characters -= characters
        if self._steps < 0 or self._characters < 0:
            raise OutputTooLarge


class ChargedTree(NodeTransformer):
    """Charges every loop iteration and macro call to the budget, and bounds concatenation with ``~``."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        """``a ~ b`` as a filter that bounds the result."""
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, JOIN, [], [], None, None, lineno=node.lineno)

    def _charged(self, node: Charged) -> Charged:
        self.generic_visit(node)
        static = sum(len(data.data) for part in node.body for data in part.find_all(nodes.TemplateData))
        price = nodes.Filter(nodes.Const(static), CHARGE, [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.Output([price], lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _charged  # noqa: N815 - jinja2's naming


def printable(value: object) -> object:
    """The value, if ``@{ }@`` may print it: text, a number, or an undefined value, which raises an error."""
    if isinstance(value, (str, Undefined)) or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    ):
        return value
    raise NotText(f"@{{ }}@ would print a {type(value).__name__}, not text or a number")


def bounded_operands(operator: str, left: Any, right: Any) -> None:  # noqa: ANN401
    """Reject operands whose result would be too large; raises SecurityError."""
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
    """``join`` with a bound on the result; raises NotText or OutputTooLarge."""
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
"""Every available filter, by name."""


class Unreadable(Exception):
    """A template file is not valid text. Internal: turned into a RenderError."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox for the templates of one patch: a budget for each rendering, and bounds on operations.

    ``folders`` contain the templates, in order of precedence.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, folders: Sequence[Path]) -> None:
        self._loader = _FolderLoader(folders)
        super().__init__(
            loader=self._loader,
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

    def preprocess(self, source: str, name: str | None = None, filename: str | None = None) -> str:
        """Leave out a line that only counts the uses of a switch, rather than leave it blank, without one."""
        source = super().preprocess(source, name, filename)
        # In one line, so that errors name the right lines; the "+" keeps the text after it as it is.
        return _COUNTS.sub(r"@% if switch.ran %@\g<0>@% endif +%@", source)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Reject operands whose result would be too large."""
        bounded_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        """Of Python's own types, allow only methods with bounded results."""
        known = METHODS.get(type(obj))
        return (known is None or attr in known) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:  # noqa: ANN401
        """Reject ``'{:>999999999}'.format(x)``: it pads without bound. jinja2 calls this before the above."""
        if super().wrap_str_format(value) is not None:
            raise SecurityError("'format' is not available as a method: use the filter 'format'")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = ChargedTree().visit(super()._parse(source, name, filename))
        return tree

    def read(self, name: str) -> tuple[str, str]:
        """Source and path of one template; raises TemplateNotFound or Unreadable."""
        return self._loader.get_source(self, name)[:2]

    def undeclared_names(self, source: str, filename: str | None = None) -> set[str]:
        """Context names that a template uses, including those in templates that it includes.

        ``filename`` is the file that ``source`` was read from, for errors.

        Raises jinja2's TemplateSyntaxError and TemplateNotFound, and Unreadable.
        """
        pending: list[tuple[str, str | None]] = [(source, filename)]
        seen: set[str] = set()
        names: set[str] = set()
        while pending:
            text, path = pending.pop()
            tree = self.parse(text, filename=path)
            names |= jinja2.meta.find_undeclared_variables(tree)
            for reference in jinja2.meta.find_referenced_templates(tree):
                if reference is not None and reference not in seen:
                    seen.add(reference)
                    pending.append(self.read(reference))
        return names - set(self.globals)

    def render_bounded(
        self, template: jinja2.Template, context: Mapping[str, object], budget: Budget | None = None
    ) -> str:
        """Render with a new budget; raises OutputTooLarge, NotText and jinja2's errors."""
        self.budget = budget if budget is not None else Budget()
        pieces: list[str] = []
        for piece in template.generate(dict(context)):
            # Values are charged when they are printed; this charges the template's own text.
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
    """Loads templates from the patch's folder, then from the shared one.

    Links to outside, editors' files and texts that patchkit itself writes are not available, because the lock
    does not cover them.
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
            if path.is_relative_to(folder) and _may_be_used(path, folder):
                return _read(path), str(path), None
        raise jinja2.TemplateNotFound(template)

    def list_templates(self) -> list[str]:
        """Names in all folders."""
        return sorted(set(self._names()))

    def _names(self) -> Iterator[str]:
        for folder in self._folders:
            for path in sorted(folder.rglob("*")):
                if _may_be_used(path, folder):
                    yield path.relative_to(folder).as_posix()


def _may_be_used(path: Path, folder: Path) -> bool:
    return path.is_file() and not is_no_template(path, folder)


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
        raise Unreadable(path, f"it is larger than {MAX_OUTPUT} bytes")
    if text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        raise Unreadable(path, "it begins with a byte order mark, which would be copied into the source")
    if "\0" in text:
        raise Unreadable(path, "it contains a NUL byte, so it is not a text file")
    return text.replace("\r\n", "\n")


def written_text(name: str, **values: object) -> str:
    """A text that patchkit itself writes, from its own template ``name`` in templates/patchkit/.

    Its length is not limited, because its values were limited when they were read. Raises
    SERIES_DIR_MISSING.
    """
    environment = _environment_of(find_texts())
    unlimited = Budget(steps=sys.maxsize, characters=sys.maxsize)
    return environment.render_bounded(environment.get_template(name), values, unlimited)


@functools.cache
def _environment_of(folder: Path) -> BoundedEnvironment:
    """The environment, cached with its compiled templates: import uses the same for each patch of a queue."""
    return BoundedEnvironment([folder])


class PatchRenderer:
    """Renders the templates of one patch.

    ``folder`` is the patch's own, ``shared`` contains templates that several patches use.
    """

    def __init__(self, patch: Patch, folder: Path, shared: Path, context: Mapping[str, object]) -> None:
        self._patch = patch
        self._environment = BoundedEnvironment([folder, shared])
        self._context = {name: context[name] for name in patch.context if name in context}
        self._available = tuple(sorted(context))

    def text(self, source: str, where: Location) -> str:
        """Render a template given inline; ``where`` is its place in patch.toml. Raises RenderErrors."""
        with self._explained(where):
            return self._environment.render_bounded(self._environment.from_string(source), self._context)

    def file(self, name: str, where: Location) -> str:
        """Render a template file. Raises RenderErrors."""
        with self._explained(where):
            return self._environment.render_bounded(self._environment.get_template(name), self._context)

    def check_context(self) -> None:
        """Check that all templates of the patch use exactly the declared names. Raises RenderErrors."""
        patch = self._patch
        parts = (*patch.files, *patch.edits, *patch.of_other_builds)  # 'context' has the names of all builds
        files = [(each.template, each.where) for each in parts if each.template is not None]
        edits = [each for each in parts if isinstance(each, Edit)]
        texts = [(edit.text, edit.where) for edit in edits if edit.text is not None]
        texts += [(alias.device, alias.where) for alias in patch.aliases]
        used: set[str] = set()
        for name, where in files:
            with self._explained(where):
                used |= self._environment.undeclared_names(*self._environment.read(name))
        for source, where in texts:
            with self._explained(where):
                used |= self._environment.undeclared_names(source)
        declared = set(patch.context)
        problems = [f"'{name}' is used but not declared" for name in sorted(used - declared)]
        problems += [f"'{name}' is declared but not used" for name in sorted(declared - used)]
        problems += [f"'{name}' does not exist" for name in sorted(declared - set(self._available))]
        if problems:
            raise RenderError(
                f"patch '{patch.id}': {'; '.join(problems)}",
                code="TEMPLATE_BAD",
                where=patch.where,
                hint=f"set context = {sorted(used)}; available: {', '.join(self._available)}",
            )

    @contextmanager
    def _explained(self, where: Location) -> Iterator[None]:
        """Turn any exception of the block into a RenderError; ``where`` is its place in patch.toml."""
        try:
            yield
        except Exception as exc:
            raise self._explain(exc, where) from exc

    def _explain(self, exc: Exception, where: Location) -> RenderError:  # noqa: PLR0911 - one per kind
        failure = functools.partial(
            RenderError, where=[place for place in (_template_place(exc, where), where) if place is not None]
        )
        match exc:
            case jinja2.TemplateSyntaxError():
                line = exc.lineno if exc.filename else None
                place = Location(path=exc.filename or where.path, line=line or where.line, label=exc.message)
                return failure(
                    f"template syntax: {exc.message}",
                    code="TEMPLATE_BAD",
                    where=[place, where],
                    hint="delimiters are @{ value }@, @% statement %@, //% line statement, @# comment #@",
                )
            case jinja2.TemplateNotFound():
                known = self._environment.list_templates()
                return failure(
                    f"no template '{exc.name}'",
                    code="TEMPLATE_BAD",
                    where=where,
                    hint=near_miss(str(exc.name), known) or f"templates here: {', '.join(known) or 'none'}",
                )
            case jinja2.UndefinedError():
                hint = f"names in the patch's context: {', '.join(self._patch.context) or 'none'}"
                return failure(str(exc.message), code="TEMPLATE_BAD", hint=hint)
            case SecurityError():
                hint = "templates can only format the declared context"
                return failure(f"not allowed in a template: {exc}", code="TEMPLATE_BAD", hint=hint)
            case OutputTooLarge():
                return failure(
                    f"the template needs more than {MAX_OUTPUT} characters, or too many steps",
                    code="TEMPLATE_BAD",
                    hint="look for a loop or macro that repeats",
                )
            case NotText():
                hint = "print a field of it, or choose a text with 'if' and 'else'"
                return failure(str(exc), code="TEMPLATE_BAD", hint=hint)
            case Unreadable():
                return failure(
                    "a template cannot be read as text",
                    code="TEMPLATE_BAD",
                    where=[Location(path=str(exc.path)), where],
                    why=exc.why,
                    hint="save the file as UTF-8 text without a byte order mark",
                )
            case _:
                return failure(
                    f"the template raised {type(exc).__name__}: {exc}",
                    code="TEMPLATE_BAD",
                    hint="correct the expression on that line, then run patchkit plan again",
                )


def _template_place(exc: Exception, where: Location) -> Location | None:
    """The innermost template line of a traceback; jinja2 rewrites frames to point into templates."""
    for frame in reversed(traceback.extract_tb(exc.__traceback__)):
        if frame.filename == "<template>":
            return Location(
                path=where.path, line=where.line, label=f"line {frame.lineno} of the text: {frame.line}"
            )
        if not frame.filename.endswith(".py"):
            return Location(path=frame.filename, line=frame.lineno, label=frame.line)
    return None
