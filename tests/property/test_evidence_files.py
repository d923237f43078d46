"""Evidence files that somebody doctored: whatever is done to one, it is refused or it says the same."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_files import lock, made, measured

from patchkit.base.errors import PatchkitError
from patchkit.base.evidence import EvidenceFile, parse_evidence_file
from patchkit.carry.series.profile import load_profile
from patchkit.prove.evidence.check import Checker

ROOT = Path(__file__).resolve().parents[2]
GOOD = measured(rounds=8)
CHECKER = Checker(
    lock=lock(),
    profiles={"gfx1151": load_profile(ROOT / "arch_profiles", "gfx1151")},
    today=dt.date(2026, 11, 30),
    place=made,
)
# What may be another without a contradiction: the same rounds on another machine, or of another day.
_FREE = {"by", "day", "machine", "patchkit"}


def said(file: EvidenceFile) -> object:
    """What a file says of patches."""
    return file.build, file.arms, file.verdicts


def taken(data: bytes) -> EvidenceFile | None:
    """The file, where it passes; anything but one of our errors is a fault of the reader."""
    try:
        file = parse_evidence_file(data, "x.json")
        CHECKER.check(file, "x.json")
    except PatchkitError:
        return None
    return file


@settings(max_examples=150)
@given(st.data())
def test_bytes_that_are_changed_change_nothing_that_counts(data: st.DataObject) -> None:
    text = bytearray(GOOD.text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        how = data.draw(st.sampled_from(["put", "take", "add"]))
        byte = data.draw(st.sampled_from(b'0123456789{}[],:"\\ nulltrue-.eE\n\x00\xff'))
        match how:
            case "put":
                text[place] = byte
            case "take":
                del text[place]
            case "add":
                text.insert(place, byte)
    found = taken(bytes(text))
    # The last digit of a time may be another one where no figure that is told of it changes.
    assert found is None or said(found) == said(GOOD)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a document that holds something other than an object or a list."""
    match value:
        case dict():
            return [each for key, inner in value.items() for each in places(inner, (*path, key))]
        case list():
            return [each for at, inner in enumerate(value) for each in places(inner, (*path, at))]
        case _:
            return [path]


PLACES = [path for path in places(json.loads(GOOD.text)) if path[0] not in _FREE]
ANYTHING = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=50),
    st.sampled_from(["none", "all", "faster", "slower", "a" * 40, "first", []]),
)


@settings(max_examples=150)
@given(st.sampled_from(PLACES), ANYTHING)
def test_a_value_that_is_exchanged_is_refused_or_was_the_same(
    path: tuple[str | int, ...], value: object
) -> None:
    """By somebody who writes the form well."""
    document: Any = json.loads(GOOD.text)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    try:
        text = EvidenceFile.model_validate(document).text
    except ValueError:
        text = json.dumps(document, indent=1, sort_keys=True).encode("utf-8", "surrogatepass") + b"\n"
    found = taken(text)
    assert found is None or said(found) == said(GOOD) or _within_rounding(found)


def _within_rounding(found: EvidenceFile) -> bool:
    """A figure in its last digit may be another library's: the words must be the same."""
    return [one.verdict for one in found.verdicts] == [one.verdict for one in GOOD.verdicts]


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(PatchkitError):
        parse_evidence_file(data, "x.json")
