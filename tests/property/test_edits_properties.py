"""Edits as algebra: undoing gives the text back, order does not matter, guards lay out without loss."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.errors import Location
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.expand import (
    Placement,
    apply_placements,
    guard_insertion,
    guard_removal,
    guard_replacement,
)
from patchkit.carry.placing.guard import Guard, GuardedGpu, require_isolated

HERE = Location(path="patch.toml", line=1)
GUARD = Guard(macros=("GGML_USE_HIP",), targets=(GuardedGpu(arch="gfx1151", macro="__gfx1151__", cc=0x1151),))


@st.composite
def placed(draw):
    """A text of any bytes and disjoint placements on it."""
    data = draw(st.binary(max_size=80))
    cuts = sorted(
        draw(st.lists(st.integers(0, len(data)), max_size=8).filter(lambda cuts: len(cuts) % 2 == 0))
    )
    spans = [Span(cuts[i], cuts[i + 1]) for i in range(0, len(cuts), 2)]
    texts = draw(st.lists(st.binary(max_size=6), min_size=len(spans), max_size=len(spans)))
    placements = [
        Placement(span=span, replacement=text, edit=str(i), where=HERE)
        for i, (span, text) in enumerate(zip(spans, texts, strict=True))
    ]
    return SourceText("t.cu", data), placements


@given(placed())
def test_only_the_spans_change_so_that_what_they_held_undoes_it(case):
    source, placements = case
    applied = apply_placements(source, placements)
    undo = [
        replace(placement, span=span, replacement=source.text(placement.span))
        for placement, span in zip(applied.placements, applied.spans, strict=True)
    ]
    assert apply_placements(applied.after, undo).after == source
    assert [applied.after.text(span) for span in applied.spans] == [p.replacement for p in applied.placements]


@given(placed(), st.randoms(use_true_random=False))
def test_the_order_of_disjoint_edits_does_not_matter(case, random):
    source, placements = case
    offsets = [placement.span.start for placement in placements]
    if len(set(offsets)) != len(offsets):
        placements = placements[:1]
    shuffled = list(placements)
    random.shuffle(shuffled)
    assert apply_placements(source, shuffled) == apply_placements(source, placements)


WORDS = st.sampled_from(
    ["a", "b;", "f(x)", "{", "}", "//c", "/* d */", "+", "\t", " ", "é", "\n", "\r\n", "'q'"]
)


@st.composite
def spanned(draw):
    """Code-like text, a code token of it, and new text that is code or not."""
    source = SourceText("t.cu", "".join(draw(st.lists(WORDS, min_size=1, max_size=30))).encode())
    scopes = parse_scopes(source)
    if not scopes.code:
        return scopes, None, b""
    first = draw(st.integers(0, len(scopes.code) - 1))
    last = draw(st.integers(first, len(scopes.code) - 1))
    span = Span(scopes.code[first].span.start, scopes.code[last].span.end)
    return scopes, span, draw(st.sampled_from([b"new;", b"", b"if (a) {\n  b;\n}", b"#pragma unroll\nx"]))


@given(spanned(), st.sampled_from(["replace", "remove", "before", "behind"]))
def test_every_layout_reads_as_before_when_the_guard_is_false(case, how):
    before, span, new = case
    if span is None:
        return
    source = before.source
    if how == "replace":
        where, text = guard_replacement(source, span, new, GUARD.device)
    elif how == "remove":
        where, text = guard_removal(source, span, GUARD.device)
    else:
        where, text = guard_insertion(source, span, new, GUARD.device, after=how == "behind")
    placement = Placement(span=where, replacement=text, edit="e", where=HERE)
    after = apply_placements(source, [placement]).after
    require_isolated(before, parse_scopes(after), GUARD, {}, HERE)
    if b"\r\n" not in source.data:
        assert b"\r" not in after.data
