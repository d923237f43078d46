"""Turns pydantic's list of failures into our errors: place, value, reason, and what was likely meant.

Vocabulary: a *failure* is one entry of pydantic's list; its *loc* is a key path mixed with names of
union members, which are no keys of the file and are dropped here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from patchkit.config.places import KeyPath
from patchkit.errors import ConfigError, Location

_QUOTED = re.compile(r"'([^']*)'")
EXPLAINED = 100  # a person reads no more, and finding places and near misses takes time
_WIDTH = 80  # longest value shown whole in a message
_CHOICE_FAILURES = {"literal_error": "expected", "enum": "expected", "union_tag_invalid": "expected_tags"}


class UnknownKeyError(ConfigError):
    """A key that the model does not have."""

    code = "CONFIG_UNKNOWN_KEY"


class MissingKeyError(ConfigError):
    """A key that the model needs is not there."""

    code = "CONFIG_MISSING_KEY"


class BadValueError(ConfigError):
    """A value of the wrong type, or one that the model does not allow."""

    code = "CONFIG_BAD_VALUE"


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """A question naming the known word closest to ``word``, or None when none is close."""
    if len(word) > _WIDTH:
        return None
    close = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else None


def explain_failures(
    failures: Sequence[ErrorDetails],
    model: type[BaseModel],
    table: Mapping[str, Any],
    locate: Callable[[KeyPath], Location],
    what: str,
) -> tuple[ConfigError, ...]:
    """One error per failure, for the first hundred, in the order of their places in the file."""
    explained: list[ConfigError] = []
    causes = [failure for failure in failures if not _is_consequence(failure)]
    for failure in causes[:EXPLAINED]:
        path = _path_in_file(table, failure["loc"]) + _discriminator(failure)
        explained.append(_explain(failure, path, model, locate(path), what))
    # Members of a union report the same trouble once each: keep one error per place and text.
    unique = {(error.where, error.message): error for error in explained}
    return tuple(sorted(unique.values(), key=_reading_order))


def _is_consequence(failure: ErrorDetails) -> bool:
    """Whether an array counts as too short only because of items that are wrong themselves."""
    if failure["type"] != "too_short" or not isinstance(failure["input"], list):
        return False
    return len(failure["input"]) >= int(failure.get("ctx", {}).get("min_length", 0))


def _reading_order(error: ConfigError) -> tuple[int, int]:
    return (error.where[0].line or 0, error.where[0].column or 0)


def _explain(
    failure: ErrorDetails, path: KeyPath, model: type[BaseModel], where: Location, what: str
) -> ConfigError:
    name = spell(path)
    kind = failure["type"]
    if kind == "extra_forbidden":
        known = _field_names(model, failure["loc"][:-1])
        hint = near_miss(str(path[-1]), known) or f"known here: {', '.join(sorted(known))}"
        return UnknownKeyError(f"{what}: unknown key '{name}'", where=where, hint=hint)
    if kind in {"missing", "union_tag_not_found"}:
        return MissingKeyError(f"{what}: '{name}' is missing", where=where, hint=f"add '{path[-1]}' here")
    if kind in _CHOICE_FAILURES:
        expected = str(failure.get("ctx", {}).get(_CHOICE_FAILURES[kind], ""))
        choices = _QUOTED.findall(expected) or [expected]  # numbers come without quotes
        value = _chosen(failure, kind)
        return BadValueError(
            f"{what}: '{name}' is {_show(value)}",
            where=where,
            why=f"it must be one of: {', '.join(choices)}",
            hint=near_miss(str(value), choices),
        )
    return BadValueError(
        f"{what}: '{name}' is {_show(failure['input'])}", where=where, why=_reason(failure["msg"])
    )


def spell(path: KeyPath) -> str:
    """A key path as a person writes it: ``tuning.wmma[2].nwarps``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"


def _discriminator(failure: ErrorDetails) -> KeyPath:
    """The key that tells the members of a union apart, when the failure is about that key."""
    if not failure["type"].startswith("union_tag"):
        return ()
    return (str(failure.get("ctx", {}).get("discriminator", "")).strip("'"),)


def _chosen(failure: ErrorDetails, kind: str) -> object:
    return failure.get("ctx", {}).get("tag", "") if kind == "union_tag_invalid" else failure["input"]


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _reason(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return (
        message.replace("Input should", "it should")
        .replace("valid dictionary", "table")
        .replace("valid tuple", "array")
    )


def _path_in_file(table: Mapping[str, Any], loc: tuple[str | int, ...]) -> KeyPath:
    """The loc without the parts that are names of union members or marks of pydantic."""
    path: KeyPath = ()
    value: object = table
    for position, part in enumerate(loc):
        is_table = isinstance(value, Mapping)
        if isinstance(value, Mapping):
            inner = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            inner = value[part]
        else:
            inner = None
        if inner is not None:
            value = inner
        elif not is_table or position < len(loc) - 1 or part == "[key]":
            continue
        path = (*path, part)
    return path


def _field_names(model: type[BaseModel], loc: tuple[str | int, ...]) -> set[str]:
    """Keys allowed at a loc: the fields of every model that may stand there."""
    models = {model}
    for part in loc:
        # Numbers, keys of free tables and names of union members do not lead into a field.
        fields = [m.model_fields[f] for m in models for f in m.model_fields if _key_of(m, f) == part]
        if fields:
            models = {m for each in fields for m in _models_in(each.annotation)}
    return {_key_of(m, f) for m in models for f in m.model_fields}


def _key_of(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].alias or name


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in get_args(annotation) for model in _models_in(part)}
