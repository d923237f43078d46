"""Applying placements."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.source import SourceText, Span
from patchkit.carry.placing.expand import Placement, apply_placements


@pytest.fixture
def place(here):
    def make(start, end, text, name="e"):
        return Placement(span=Span(start, end), replacement=text, edit=name, where=here)

    return make


SOURCE = SourceText("t.cu", b"\xef\xbb\xbfint a;\r\n\tint b; // \xc3\xa4  \r\nint c;")


def test_only_the_spans_change_and_they_are_known_afterwards(place):
    first, second = place(7, 8, b"xyz"), place(16, 16, b"!")
    applied = apply_placements(SOURCE, [second, first])
    assert applied.after.data == b"\xef\xbb\xbfint xyz;\r\n\tint !b; // \xc3\xa4  \r\nint c;"
    assert applied.placements == (first, second)
    assert [applied.after.text(span) for span in applied.spans] == [b"xyz", b"!"]


def test_insertions_at_one_place_keep_their_order_and_touching_replacements_do_not_overlap(place):
    placements = [place(3, 3, b"1"), place(3, 3, b"2"), place(3, 6, b"3"), place(6, 7, b"")]
    assert apply_placements(SOURCE, placements).after.data.startswith(b"\xef\xbb\xbf123a;")


@pytest.mark.parametrize("spans", [((3, 8), (7, 9)), ((3, 8), (5, 5)), ((3, 8), (3, 8)), ((3, 9), (4, 5))])
def test_overlaps_are_refused_with_both_places(place, spans, here):
    with refused("EDIT_CONFLICT") as caught:
        apply_placements(SOURCE, [place(*span, b"x", f"edit-{i}") for i, span in enumerate(spans)])
    assert "edits 'edit-0' and 'edit-1' overlap in t.cu" in caught.value.message
    assert caught.value.where[:2] == (here, here)
    assert caught.value.where[2].path == "t.cu"
