"""Strict reading of JSON that strangers may have written: an error names the file and the path in it."""

from __future__ import annotations

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from patchkit.base.errors import Location, UsageError
from patchkit.base.text import escape, visible


class EvidenceUnreadable(UsageError):
    """A file of evidence is not JSON text of a size that patchkit writes."""

    code = "EVIDENCE_UNREADABLE"


class EvidenceMalformed(UsageError):
    """A value in a file of evidence is missing, of another type, or out of range."""

    code = "EVIDENCE_MALFORMED"


class EvidenceContradicts(UsageError):
    """The report and the file of one gate are not of the same run, or a report cannot be true."""

    code = "EVIDENCE_CONTRADICTS"


FILE_BYTES = 32 * 1024 * 1024
"""As publishing allows; the largest evidence so far, launch of build 6900, has 0.6 MB."""
TEXT_LENGTH = 20_000
"""Characters of one text; the longest of the gates without a GPU at build 6900 has 300."""
_LARGEST = 10**15  # far above nanoseconds of a day and bytes of any disk; floats still count in ones there
_SHOWN_VALUE = 60
_Model = TypeVar("_Model", bound=BaseModel)
_QUOTED = re.compile(r"'([^']*)'")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,60}")

# Marks of interlinear notes, no characters, lone surrogates: not in XML, or not in UTF-8.
_NO_TEXT = re.compile("[\ufff9-\uffff\ud800-\udfff]")
_HINT = "patchkit verify makes the evidence anew"


def harmless(text: str) -> str:
    r"""The text with harmful characters as ``\x1b`` or ``\u202e``, cut at :data:`TEXT_LENGTH`."""
    left_out = len(text) - TEXT_LENGTH
    if left_out > 0:
        text = f"{text[:TEXT_LENGTH]} [{left_out} more characters]"
    return printable(text)


def printable(text: str) -> str:
    r"""The text with harmful characters as ``\x1b`` or ``\u202e``."""
    return escape(_NO_TEXT, visible(text))


class _RepeatedKey(ValueError):
    """JSON allows it, and no two readers agree on what it means."""


def parse_model(data: bytes, model: type[_Model], source: str, hint: str = _HINT) -> _Model:
    """A document as the model says it must be, its texts made harmless.

    ``source`` names its file, ``hint`` the command that makes it.

    Raises:
        EvidenceUnreadable: too large, not UTF-8, not JSON, nested too deeply, an integer of thousands of
            digits, or a key that comes twice.
        EvidenceMalformed: a value in it is missing, of another type, or out of range.
    """
    return read_model(_parse_json(data, source, hint), model, source, hint=hint)


def _parse_json(data: bytes, source: str, hint: str) -> object:
    if len(data) > FILE_BYTES:
        raise _unreadable(source, hint, f"{len(data)} bytes, where patchkit reads {FILE_BYTES}")
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
    "extra_forbidden": "a field that patchkit writes",
    "finite_number": "a finite number of at most 10^15",
    "float_type": "a number",
    "greater_than_equal": "a finite number of at most 10^15",
    "int_type": "a whole number",
    "less_than_equal": "a finite number of at most 10^15",
    "model_type": "an object",
    "string_type": "a text",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}


def read_model(value: object, model: type[_Model], source: str, path: str = "$", hint: str = _HINT) -> _Model:
    """A value of a document as the model says it must be.

    Raises:
        EvidenceMalformed: it is not; the message names the file and the path in it.
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
    """A complaint of pydantic in the words of this module; a missing field is told of its object."""
    steps, limits, given = list(error["loc"]), error.get("ctx", {}), error["input"]
    match error["type"]:
        case "missing":
            expected = f"an object with the field '{steps.pop()}'"
        case "literal_error":
            expected = f"one of: {', '.join(_QUOTED.findall(limits['expected']))}"
        case "greater_than_equal" | "less_than_equal" if isinstance(given, int):
            expected = f"a whole number from {limits.get('ge', 0)} to 10^15"
        case other:
            expected = _EXPECTED.get(other, "as it must be: {why}").format(
                **limits, why=harmless(error["msg"])
            )
    for step in steps:
        if isinstance(value, list) and isinstance(step, int):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and step in value:
            path, value = path + _step(str(step)), value[step]
        # Else it names a member of a union, which is no place in the document.
    return EvidenceMalformed(
        f"{source}: {path} is not {expected}",
        where=Location(path=source, label=path),
        why=f"it is {_told(given)}",
        hint=hint,
    )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in pairs:
        if key in made:
            raise _RepeatedKey(f"the key {key[:_SHOWN_VALUE]!r} comes twice in one object")
        made[key] = value
    return made


def _unreadable(
    source: str, hint: str, why: str, *, line: int | None = None, column: int | None = None
) -> EvidenceUnreadable:
    return EvidenceUnreadable(
        f"{source} cannot be read as evidence",
        where=Location(path=source, line=line, column=column),
        why=why,
        hint=hint,
    )


def _step(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{harmless(repr(key[:_SHOWN_VALUE]))}]"


def _told(value: object) -> str:
    match value:
        case dict():
            return f"an object of {len(value)} fields"
        case list():
            return f"a list of {len(value)}"
        case str():
            cut = "..." if len(value) > _SHOWN_VALUE else ""
            return harmless(repr(value[:_SHOWN_VALUE])) + cut
        case int() if abs(value) > _LARGEST:
            return "a number beyond 10^15"
        case _:
            return json.dumps(value)
