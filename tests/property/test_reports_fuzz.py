"""Evidence from anybody: every report is made whole, or refused by an error that names file and path.

The kept corpus is ``tests/corpus/evidence/hostile``: ``<what comes of it>--<gate>--<what is odd>.json`` takes
the place of that gate's file, or of the report, in the whole evidence. ``PATCHKIT_FUZZ=5000`` runs that many
examples of each kind.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from patchkit.base.document import EvidenceContradicts, EvidenceMalformed, EvidenceUnreadable
from patchkit.base.errors import ExitCode, PatchkitError
from patchkit.prove.report.evidence import parse_evidence
from patchkit.prove.report.registry import format_names
from patchkit.prove.report.write import make_report

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "evidence"
WHOLE = {path.name: path.read_bytes() for path in sorted((CORPUS / "whole").glob("*.json"))}
HOSTILE = sorted((CORPUS / "hostile").glob("*.json"))
GATES = tuple(sorted(name for name in WHOLE if name not in {"report.json", "numerics.json"}))
DOCUMENTS = {name: json.loads(data) for name, data in WHOLE.items()}
_REFUSALS = (EvidenceContradicts, EvidenceMalformed, EvidenceUnreadable)
# Many examples are one call each, but a first one may meet a machine that is busy with compilers.
_SETTINGS = settings(
    max_examples=int(os.environ.get("PATCHKIT_FUZZ", "50")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _refused(error: PatchkitError) -> str:
    assert isinstance(error, _REFUSALS)
    assert error.exit_code is ExitCode.USAGE
    assert error.where[0].path.startswith("evidence/")
    assert error.hint
    assert error.why
    assert len(error.message) + len(error.why) < 50_000
    if isinstance(error, EvidenceMalformed):
        assert (error.where[0].label or "").startswith("$")
    return error.code


def outcome(files: dict[str, bytes]) -> str:
    """What comes of it: ``fine``, or the code of the refusal. Anything else is an error of the test."""
    try:
        evidence = parse_evidence(files, "evidence")
        texts = {form: make_report(evidence, form) for form in format_names()}
    except PatchkitError as error:
        return _refused(error)
    for text in texts.values():
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]", text)
    assert ET.fromstring(texts["junit"]).tag == "testsuites"
    assert json.loads(texts["sarif"])["version"] == "2.1.0"
    return "fine"


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.stem)
def test_the_kept_corpus_comes_out_as_it_is_named(path: Path) -> None:
    expected, name, _ = path.stem.split("--")
    assert outcome({**WHOLE, f"{name}.json": path.read_bytes()}) == expected


def test_the_corpus_has_something_of_everything() -> None:
    assert len(HOSTILE) > 40
    outcomes = {path.stem.split("--")[0] for path in HOSTILE}
    assert outcomes == {"fine", *(kind.code for kind in _REFUSALS)}
    assert outcome(WHOLE) == "fine"


_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            '" onmouseover="x',
            "]]></system-out>",
            "\ud800\u202e\x1b[0m\x00",
            "`|@a\n# b",
            "x" * 30_000,
            "../../x.c:1",
            "a.cu:99999999999999:0",
            "passed",
            "not run",
        ]
    ),
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**15, 10**16, 2**63, 10**400, 1e308, 1e-308, 0.5]),
    st.floats(allow_nan=True, allow_infinity=True),
    _TEXTS,
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)


def _changed(document: object, draw: st.DataObject) -> object:
    """The document with one value replaced, removed or doubled, anywhere in it."""
    document = copy.deepcopy(document)
    node: object = document
    while True:
        if not isinstance(node, dict | list) or not node:
            return draw.draw(_VALUES)
        key = draw.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(min(len(node), 8))))
        inner = node[key]  # type: ignore[index]
        if isinstance(inner, dict | list) and inner and draw.draw(st.integers(0, 4)):
            node = inner
            continue
        how = draw.draw(st.sampled_from(["replace", "remove", "double"]))
        if how == "replace":
            node[key] = draw.draw(_VALUES)  # type: ignore[index]
        elif how == "remove":
            del node[key]  # type: ignore[arg-type]
        elif isinstance(node, list):
            node.append(inner)
        else:
            node[draw.draw(_TEXTS)] = inner
        return document


def _alone(gate: str) -> dict[str, object]:
    """The report with this gate only, so that an example is fast."""
    report = copy.deepcopy(DOCUMENTS["report.json"])
    report["gates"] = [row for row in report["gates"] if f"{row['gate']}.json" == gate]
    return report


@given(st.sampled_from(GATES), st.booleans(), st.data())
@_SETTINGS
def test_a_value_changed_anywhere_is_shown_or_refused(
    gate: str, in_report: bool, draw: st.DataObject
) -> None:
    report: object = _alone(gate)
    document: object = DOCUMENTS[gate]
    if in_report:
        report = _changed(report, draw)
    else:
        document = _changed(document, draw)
    event(outcome({"report.json": json.dumps(report).encode(), gate: json.dumps(document).encode()}))


@given(st.sampled_from(GATES), st.data())
@_SETTINGS
def test_bytes_changed_anywhere_are_shown_or_refused(gate: str, draw: st.DataObject) -> None:
    data = bytearray(WHOLE[gate])
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(data)))
        how = draw.draw(st.sampled_from(["cut", "insert", "overwrite", "repeat"]))
        if how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = draw.draw(st.binary(max_size=6))
        elif how == "overwrite":
            piece = draw.draw(
                st.sampled_from([b"null", b"-1", b"[", b"{", b'"', b"NaN", b"1e999", b"\xff", b"\\u0000"])
            )
            data[at : at + len(piece)] = piece
        else:
            data[at:at] = data[at : at + 40]
    event(outcome({"report.json": json.dumps(_alone(gate)).encode(), gate: bytes(data)}))


@given(st.binary(max_size=300))
@_SETTINGS
def test_any_bytes_at_all_are_refused(data: bytes) -> None:
    event(outcome({"report.json": data}))


def test_numbers_that_are_none_are_words_in_every_table() -> None:
    document = copy.deepcopy(DOCUMENTS["logits@cpu.json"])
    document["evidence"]["scenes"][0]["candidate"]["nmse"] = math.nan
    files = {
        "report.json": json.dumps(_alone("logits@cpu.json")).encode(),
        "logits@cpu.json": json.dumps(document).encode(),
    }
    assert "1.3e-05 -> nan" in make_report(parse_evidence(files, "e"), "terminal")
