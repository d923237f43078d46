"""A sweep as text and as Markdown: moves are listed, and upstream's code is not parsed as markup."""

from __future__ import annotations

import pytest

from patchkit.base.errors import AnchorError, Location
from patchkit.carry.judging.classes import Classified, Drift
from patchkit.carry.series.lock import Pin
from patchkit.carry.sweep.run import Sweep, SweepRow, markdown_matrix, text_matrix

PIN = Pin(name="b7", build=7, commit=None, tree="1" * 40, committed="x", commit_object=None, sources=())
DRIFT = Drift(file="a.cu", entity="run", before="1", after="2", removed=(), added=("x",))


def matrix(**fields):
    verdict = Classified(id="demo", title="t", intent="to test", reason="see", **fields)
    row = SweepRow(pin=PIN, before=None, verdicts=(verdict,))
    return Sweep(archs=("gfx1151",), patches=("demo",), rows=(row,), breaks=())


def test_a_patch_in_a_changed_function_is_listed_below_the_matrix():
    lines = text_matrix(matrix(patch_class="clean", drift=(DRIFT,)))
    assert "b7   clean*" in lines
    assert "  b7 demo: clean: see" in lines


def test_an_unchanged_patch_has_only_its_cell():
    assert not [line for line in text_matrix(matrix(patch_class="clean")) if "see" in line]


def test_a_conflict_shows_the_hint_of_its_error():
    problem = AnchorError("no place", where=Location(path="a.cu", line=3), hint="change the selector")
    lines = text_matrix(matrix(patch_class="conflict", problems=(problem,)))
    assert "    hint: change the selector" in lines


@pytest.mark.parametrize(("label", "fence"), [("a | <b> @you #12", "```"), ("```sh", "````")])
def test_upstreams_code_is_not_parsed_as_markup(label, fence):
    problem = AnchorError("no place", where=Location(path="a.cu", line=3, label=label))
    lines = markdown_matrix(matrix(patch_class="conflict", problems=(problem,)))
    assert lines[2] == "| b7 | CONFLICT |"
    begin, end = lines.index(f"{fence}text"), len(lines) - 1
    assert lines[end] == fence
    assert [number for number, line in enumerate(lines) if label in line and not begin < number < end] == []
