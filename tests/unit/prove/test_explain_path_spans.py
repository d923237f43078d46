"""Spans of batches with one route, as text and as JSON."""

from __future__ import annotations

from launches import launch_of

from patchkit.cli.verbs.explain import path_lines
from patchkit.gpu.emulated.log import Section
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.emulated.session import CaseRecord
from patchkit.prove.explain import PathLine, PathReport, _spans

_Found = CaseRecord[OperationCase]


def _found(tokens: int, *names: str, is_supported: bool = True) -> _Found:
    launches = tuple(launch_of(f"_ZL{len(name)}{name}Pv") for name in names)
    section = Section(mark="case x", steps=(launches,), products=())
    case = OperationCase(id="x", op="MUL_MAT", type="f16", tokens=tokens)
    return CaseRecord(case=case, is_supported=is_supported, section=section)


def _line(what: str, before: list[_Found], after: list[_Found]) -> PathLine:
    return PathLine(
        gpu="gfx1151", op="MUL_MAT", what=what, sizes="4 x 4", before=_spans(before), after=_spans(after)
    )


def test_neighbouring_batches_with_one_route_are_one_span():
    spans = _spans([_found(8, "b"), _found(1, "a"), _found(2, "a"), _found(9, "a"), _found(16, "a")])
    assert [(span.first, span.last, span.route) for span in spans] == [
        (1, 2, ("a",)),
        (8, 8, ("b",)),
        (9, 16, ("a",)),
    ]


def test_what_is_not_supported_has_no_route():
    (span,) = _spans([_found(1, is_supported=False)])
    assert span.route == ()


def _report(*lines: PathLine) -> PathReport:
    return PathReport(branch="candidate/x", build=6900, tools="clang", remarks=("played",), lines=lines)


def test_types_alike_share_a_block_and_a_change_shows_both_sides():
    same = [_line(kind, [_found(1, name)], [_found(1, name)]) for kind, name in (
        ("q4_0", "dequantize_block_q4_0"), ("q8_0", "dequantize_block_q8_0"))]  # fmt: skip
    changed = _line("f16", [_found(1, "old")], [_found(1, "new"), _found(2, is_supported=False)])
    lines = [line.strip() for line in path_lines(_report(*same, changed))]
    assert "gfx1151: 3 operations and types; the patches change the kernels of 1" in lines
    assert lines[lines.index("q4_0 q8_0") + 1] == "1  dequantize"
    at = lines.index("f16")
    assert lines[at + 1 : at + 5] == [
        "1  new",
        "2  not on the GPU: not supported there, or not in this build",
        "before the patches:",
        "1  old",
    ]
    assert "note: played" in lines
    assert lines[-1] == "times"


def test_the_json_has_the_launches_of_both_sides_once_and_how_often():
    document = _report(_line("f16", [_found(1, "old")], [_found(1, "new", "new")])).model_dump(mode="json")
    (line,) = document["lines"]
    assert line["changed"] is True
    assert line["before"][0]["route"] == ["old"]
    (launch,) = line["after"][0]["launches"]
    assert (launch["kernel"], launch["times"]) == ("new", 2)
    assert document["not_known"]
