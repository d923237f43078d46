"""Selectors as data: how a patch names the place of an edit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from patchkit.base.toml import TomlTable, Words

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
    "lines",
    "definition",
    "member",
    "case",
    "include",
    "cmake",
    "start",
    "end",
    "before",
    "after",
    "between",
    "first_of",
)
_NEED_OF = {
    "call_arg": "the name of the called function",
    "table_row": "the name of the row macro, or {}",
    "member": "the name of the struct, class, union or enum",
}
_TAKE_INSIDE = frozenset({"tokens", "statement", "call", "call_arg", "condition", "lines"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector(TomlTable):
    """One selector word, plus ``of``, ``inside``, ``above`` and ``below`` where they apply.

    ``tokens``: each run of code tokens that matches the pattern.
    ``statement``: each smallest statement that contains a match, including its ``;`` or brace.
    ``call``: each call ``name(...)`` or ``name<...>(...)``, from the name to the closing parenthesis.
    ``call_arg``: each argument of a call of ``of`` that equals the pattern, token for token.
    ``template_params``: the matching run in the ``template<...>`` of the entity's own header.
    ``condition``: the condition, without parentheses, of each ``if`` or ``while`` that contains a match.
    ``group``: the lines below each matching preprocessor line, up to its next sibling.
    ``table_row``: each row ``of(table_row...)`` of a table of macro calls; with ``of = "{}"`` each
    ``{table_row...}``.
    ``body``: everything inside the braces of the entity.
    ``lines``: each run of whole lines equal to these, including comments; in code, with any indentation.
    ``exact``: match ``lines`` only with this indentation; they may then be inside a comment.
    ``above``, ``below``: lines that must be directly above and below ``lines``, and are kept.
    ``definition``: each function, struct, class, union, enum or macro of that name.
    ``member``: each declaration of that name in the struct or enum ``of``, including its ``;`` or ``,``.
    ``case``: each label ``case name:``.
    ``include``: each ``#include`` of that header.
    ``cmake``: each equal call of a CMake command; without the final ``)``, each call that begins so.
    ``start``, ``end``: the empty place at the beginning, or the end, of the file.
    ``before``, ``after``: the empty place before, or after, each span of a selector.
    ``between``: from the end of the one span of the first to the start of the one span of the second.
    ``first_of``: the span of the first of these selectors that matches exactly once.
    """

    tokens: Words | None = None
    statement: Words | None = None
    call: Words | None = None
    call_arg: Words | None = None
    template_params: Words | None = None
    condition: Words | None = None
    group: Words | None = None
    table_row: Words | None = None
    body: bool | None = None
    lines: Words | None = None
    definition: Words | None = None
    member: Words | None = None
    case: Words | None = None
    include: Words | None = None
    cmake: Words | None = None
    start: bool | None = None
    end: bool | None = None
    before: Selector | None = None
    after: Selector | None = None
    between: Annotated[tuple[Selector, ...], Field(strict=False, min_length=2, max_length=2)] | None = None
    first_of: Annotated[tuple[Selector, ...], Field(strict=False, min_length=2, max_length=4)] | None = None
    of: Words | None = None
    inside: Selector | None = None
    above: Words | None = None
    below: Words | None = None
    exact: bool | None = None

    def __str__(self) -> str:
        """As written in patch.toml, on one line."""
        words = []
        for name in (*_WORDS, "of", "inside", "above", "below", "exact"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name} = {_in_toml(value)}")
        return f"{{ {', '.join(words)} }}"

    def __post_init__(self) -> None:
        words = [word for word in _WORDS if getattr(self, word) is not None]
        if len(words) != 1:
            found = ", ".join(words) or "none"
            raise ValueError(f"a selector has exactly one of {', '.join(_WORDS)}; found {found}")
        word = words[0]
        if (self.of is not None) != (word in _NEED_OF):
            need = f"'{word}' needs 'of': {_NEED_OF[word]}" if word in _NEED_OF else f"'{word}' takes no 'of'"
            raise ValueError(need)
        if self.inside is not None and word not in _TAKE_INSIDE:
            raise ValueError(f"'{word}' takes no 'inside'")
        if word != "lines" and (self.above, self.below, self.exact) != (None, None, None):
            raise ValueError(f"'{word}' takes no 'above', 'below' or 'exact': they are for 'lines' only")
        for flag in ("body", "start", "end", "exact"):
            if getattr(self, flag) is False:
                raise ValueError(f"'{flag}' must be true or absent")


def _in_toml(value: Selector | tuple[Selector, ...] | str | bool) -> str:  # noqa: FBT001 - a value of TOML
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
