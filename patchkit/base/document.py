"""Strict parsing of untrusted JSON; errors name the file and the path in it."""

from __future__ import annotations

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from patchkit.base.errors import Location, UsageError
from patchkit.base.text import escape, visible


class EvidenceUnreadable(UsageError):
    """An evidence file is too large, or is not JSON text."""

    code = "EVIDENCE_UNREADABLE"


class EvidenceMalformed(UsageError):
    """A value in an evidence file is missing, of the wrong type, or out of range."""

    code = "EVIDENCE_MALFORMED"


class EvidenceContradicts(UsageError):
    """A report contradicts itself, or a gate's report and its evidence file are of different runs."""

    code = "EVIDENCE_CONTRADICTS"


FILE_BYTES = 32 * 1024 * 1024
"""Largest file accepted, here and by publishing; the largest seen, launch of build 6900, has 0.6 MB."""
TEXT_LENGTH = 20_000
"""Characters kept of one string; the longest of the gates without a GPU at build 6900 has 300."""
_LARGEST = 10**15  # far above the nanoseconds of a day and the bytes of a disk; floats are still exact there
_SHOWN_VALUE = 60
_Model = TypeVar("_Model", bound=BaseModel)
_QUOTED = re.compile(r"'([^']*)'")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,60}")

# Interlinear annotation marks, noncharacters and lone surrogates: not allowed in XML or in UTF-8.
_NO_TEXT = re.compile("[\ufff9-\uffff\ud800-\udfff]")
_HINT = "recreate the evidence with: patchkit verify"


def harmless(text: str) -> str:
    r"""The text with harmful characters escaped (``\x1b``, ``\u202e``), cut at :data:`TEXT_LENGTH`."""
    cut = len(text) - TEXT_LENGTH
    if cut > 0:
        text = f"{text[:TEXT_LENGTH]} [{cut} more characters]"
    return printable(text)


def printable(text: str) -> str:
    r"""The text with harmful characters escaped (``\x1b``, ``\u202e``)."""
    return escape(_NO_TEXT, visible(text))


class _RepeatedKey(ValueError):
    """A duplicate key; JSON allows it, but parsers disagree on its meaning."""


def parse_model(data: bytes, model: type[_Model], source: str, hint: str = _HINT) -> _Model:
    """Parse a JSON document as ``model``, with harmful characters in its strings escaped.

    ``source`` names the file in errors, ``hint`` the command that writes such a file.

    Raises:
        EvidenceUnreadable: too large, not UTF-8, not JSON, nested too deeply, an integer of thousands of
            digits, or a duplicate key.
        EvidenceMalformed: a value is missing, of the wrong type, or out of range.
    """
    return read_model(_parse_json(data, source, hint), model, source, hint=hint)


def _parse_json(data: bytes, source: str, hint: str) -> object:
    if len(data) > FILE_BYTES:
        raise _unreadable(source, hint, f"it has {len(data)} bytes; the limit is {FILE_BYTES}")
    try:
        return _harmless_value(json.loads(data.decode("utf-8"), object_pairs_hook=_unique))
    except json.JSONDecodeError as error:
        raise _unreadable(source, hint, error.msg, line=error.lineno, column=error.colno) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(source, hint, f"byte {error.start} is not UTF-8", line=line) from error
    except RecursionError as error:
        raise _unreadable(source, hint, "it is nested too deeply") from error
    except ValueError as error:  # _unique, and integers of thousands of digits
        raise _unreadable(source, hint, harmless(str(error))) from error


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "extra_forbidden": "a known field",
    "finite_number": "a finite number of at most 10^15",
    "float_type": "a number",
    "greater_than_equal": "a finite number of at most 10^15",
    "int_type": "an integer",
    "less_than_equal": "a finite number of at most 10^15",
    "model_type": "an object",
    "string_type": "a string",
    "too_long": "a list of at most {max_length} items",
    "too_short": "a list of at least {min_length} items",
    "tuple_type": "a list",
}


def read_model(value: object, model: type[_Model], source: str, path: str = "$", hint: str = _HINT) -> _Model:
    """Validate a value of a document against ``model``.

    Raises:
        EvidenceMalformed: it does not match; the message names the file and the path in it.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _malformed(first, value, source, path, hint) from error


def _harmless_value(value: object) -> object:
    match value:
        case str():
            return harmless(value)
        case list():
            return [_harmless_value(each) for each in value]
        case dict():
            return {harmless(key): _harmless_value(each) for key, each in value.items()}
        case _:
            return value


def _malformed(error: ErrorDetails, value: object, source: str, path: str, hint: str) -> EvidenceMalformed:
    """The error for one failure of pydantic; a missing field is reported at the object that lacks it."""
    steps, limits, given = list(error["loc"]), error.get("ctx", {}), error["input"]
    match error["type"]:
        case "missing":
            expected = f"an object with the field '{steps.pop()}'"
        case "literal_error":
            expected = f"one of: {', '.join(_QUOTED.findall(limits['expected']))}"
        case "greater_than_equal" | "less_than_equal" if isinstance(given, int):
            expected = f"an integer from {limits.get('ge', 0)} to 10^15"
        case other:
            expected = _EXPECTED.get(other, "valid: {why}").format(**limits, why=harmless(error["msg"]))
    for step in steps:
        if isinstance(value, list) and isinstance(step, int):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and step in value:
            path, value = path + _step(str(step)), value[step]
        # Otherwise the step names a member of a union, which is not part of the path.
    return EvidenceMalformed(
        f"{source}: {path} is not {expected}",
        where=Location(path=source, label=path),
        why=f"it is {_describe(given)}",
        hint=hint,
    )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _RepeatedKey(f"duplicate key {key[:_SHOWN_VALUE]!r} in one object")
        result[key] = value
    return result


def _unreadable(
    source: str, hint: str, why: str, *, line: int | None = None, column: int | None = None
) -> EvidenceUnreadable:
    return EvidenceUnreadable(
        f"{source} is not a readable evidence file",
        where=Location(path=source, line=line, column=column),
        why=why,
        hint=hint,
    )


def _step(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{harmless(repr(key[:_SHOWN_VALUE]))}]"


def _describe(value: object) -> str:
    match value:
        case dict():
            return f"an object of {len(value)} fields"
        case list():
            return f"a list of {len(value)} items"
        case str():
            cut = "..." if len(value) > _SHOWN_VALUE else ""
            return harmless(repr(value[:_SHOWN_VALUE])) + cut
        case int() if abs(value) > _LARGEST:
            return "an integer beyond 10^15"
        case _:
            return json.dumps(value)
