"""Selectors as data: the words a patch uses to say where an edit goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeAlias

from pydantic import Field, model_validator

from patchkit.series.toml import TomlModel


@dataclass(frozen=True, slots=True)
class Tokens:
    """Each run of code tokens that matches ``pattern``."""

    pattern: str
    inside: Selector | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """Each smallest statement with a run that matches ``pattern``, its ``;`` or brace included."""

    pattern: str
    inside: Selector | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Each call ``name(...)`` or ``name<...>(...)``, from the name to the closing parenthesis."""

    name: str
    inside: Selector | None = None


@dataclass(frozen=True, slots=True)
class CallArg:
    """Each argument of a call of ``call`` that is, token for token, ``pattern``."""

    pattern: str
    call: str
    inside: Selector | None = None


@dataclass(frozen=True, slots=True)
class TemplateParams:
    """The run ``pattern`` within the ``template<...>`` of the entity's own header."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition, without parentheses, of each ``if`` or ``while`` in which ``pattern`` matches."""

    pattern: str
    inside: Selector | None = None


@dataclass(frozen=True, slots=True)
class GroupLines:
    """The lines below each preprocessor line that reads ``condition``, up to its next sibling."""

    condition: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """Each row ``table(leading...)`` of a table of macro calls; for ``{}`` each ``{leading...}``."""

    leading: str
    table: str


@dataclass(frozen=True, slots=True)
class Body:
    """Everything inside the braces of the entity."""


@dataclass(frozen=True, slots=True)
class Before:
    """The empty place in front of each span of a selector."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class After:
    """The empty place behind each span of a selector."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class Between:
    """From the end of the one span of ``first`` to the start of the one span of ``last``."""

    first: Selector
    last: Selector


Selector: TypeAlias = (
    Tokens
    | Statement
    | Call
    | CallArg
    | TemplateParams
    | Condition
    | GroupLines
    | TableRow
    | Body
    | Before
    | After
    | Between
)

_WORDS = (
    "tokens",
    "statement",
    "call",
    "call_arg",
    "template_params",
    "condition",
    "group",
    "table_row",
    "body",
    "before",
    "after",
    "between",
)
_TAKE_OF = {"call_arg": "the name of the called function", "table_row": "the name of the row macro, or {}"}
_TAKE_INSIDE = frozenset({"tokens", "statement", "call", "call_arg", "condition"})


class SelectorModel(TomlModel):
    """A selector as TOML writes it: one selector word, plus ``of`` and ``inside`` where they apply."""

    tokens: str | None = Field(default=None, min_length=1)
    statement: str | None = Field(default=None, min_length=1)
    call: str | None = Field(default=None, min_length=1)
    call_arg: str | None = Field(default=None, min_length=1)
    template_params: str | None = Field(default=None, min_length=1)
    condition: str | None = Field(default=None, min_length=1)
    group: str | None = Field(default=None, min_length=1)
    table_row: str | None = Field(default=None, min_length=1)
    body: bool | None = None
    before: SelectorModel | None = None
    after: SelectorModel | None = None
    between: list[SelectorModel] | None = Field(default=None, min_length=2, max_length=2)
    of: str | None = Field(default=None, min_length=1)
    inside: SelectorModel | None = None

    @model_validator(mode="after")
    def _one_word(self) -> Self:
        words = [word for word in _WORDS if getattr(self, word) is not None]
        if len(words) != 1:
            found = ", ".join(words) or "none"
            raise ValueError(f"a selector has exactly one word of {', '.join(_WORDS)}; found {found}")
        word = words[0]
        if (self.of is not None) != (word in _TAKE_OF):
            need = f"'{word}' needs 'of': {_TAKE_OF[word]}" if word in _TAKE_OF else f"'{word}' takes no 'of'"
            raise ValueError(need)
        if self.inside is not None and word not in _TAKE_INSIDE:
            raise ValueError(f"'{word}' takes no 'inside'")
        if self.body is False:
            raise ValueError("'body' is true or absent")
        return self

    def build(self) -> Selector:
        """The selector this table says."""
        inside = self.inside.build() if self.inside is not None else None
        of = self.of or ""
        built: list[Selector] = []
        built += [Tokens(self.tokens, inside)] if self.tokens is not None else []
        built += [Statement(self.statement, inside)] if self.statement is not None else []
        built += [Call(self.call, inside)] if self.call is not None else []
        built += [CallArg(self.call_arg, of, inside)] if self.call_arg is not None else []
        built += [Condition(self.condition, inside)] if self.condition is not None else []
        built += [TemplateParams(self.template_params)] if self.template_params is not None else []
        built += [GroupLines(self.group)] if self.group is not None else []
        built += [TableRow(self.table_row, of)] if self.table_row is not None else []
        built += [Before(self.before.build())] if self.before is not None else []
        built += [After(self.after.build())] if self.after is not None else []
        built += [Between(*(part.build() for part in self.between))] if self.between is not None else []
        return built[0] if built else Body()
