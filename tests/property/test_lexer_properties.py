"""Tokens, scopes and statements hold on any bytes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import lex
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.select import ends_controlled, starts_controlled, statement_around

# What may stand between two tokens: blanks, continuations, and the mark that may begin a file.
_GAP = re.compile(rb"(?:[ \t\n\r\v\f\x00\x1a]|\\[ \t\v\f\x00]*(?:\r\n?|\n|\Z)|\xef\xbb\xbf)*")

_WORDS = """
if else for while do switch case default: try catch struct enum class namespace template operator return
extern constexpr [&] ( ) [ ] { } < > >> ; , : :: = == ? -> ~ ... a b f x1 1 0x2 'c' "s" R"(r)" /*c*/ public:
#if #else #elif #endif #define #include #pragma // /* */ R"( <% %> <: :> é
"""
PIECES = st.sampled_from([*_WORDS.split(), "\n", "\r\n", "\t", "\\\n"])
CODE = st.lists(PIECES, max_size=60).map(lambda pieces: " ".join(pieces).encode())
CONDITIONAL = st.tuples(CODE, CODE).map(lambda both: b"#if A\n%b\n#else\n%b\n#endif\n" % both)
ANY = st.one_of(st.binary(max_size=60), CODE, CONDITIONAL)


@given(ANY)
def test_tokens_lie_on_the_bytes_in_order_with_nothing_but_blanks_between(data):
    source = SourceText("t.cu", data)
    position = 0
    for token in lex(source):
        assert position <= token.span.start < token.span.end <= len(data)
        assert source.text(token.span) == token.text
        assert _GAP.fullmatch(data[position : token.span.start]), data[position : token.span.start]
        position = token.span.end
    # A comment that is never closed gives no token, nor does anything behind it.
    assert _GAP.fullmatch(data[position:].partition(b"/*")[0]), data[position:]


@given(ANY)
def test_the_structure_of_any_bytes_is_consistent(data):
    scopes = parse_scopes(SourceText("t.cu", data))
    whole = Span(0, len(data))
    assert all(scopes.match[scopes.match[p]] is not None for p in scopes.match)
    assert len(scopes.parents) == len(scopes.code)
    assert all(parent is None or parent < p < scopes.match[parent] for p, parent in enumerate(scopes.parents))
    for entity in scopes.entities:
        assert whole.contains(entity.span)
        assert entity.span.contains(entity.header)
        assert entity.span.contains(entity.body)
        assert scopes.enclosing(entity.span) is not None
    for group in scopes.groups:
        assert all(group.span.start <= branch.body.start <= branch.body.end for branch in group.branches)
        assert len(group.branches) > 0
    inside = {token.span.start for token in scopes.code}
    assert not any(line.span.start < start < line.span.end for line in scopes.directives for start in inside)


@given(CODE, st.data())
def test_a_statement_contains_its_run(data, draw):
    scopes = parse_scopes(SourceText("t.cu", data))
    if not scopes.code:
        return
    first = draw.draw(st.integers(0, len(scopes.code) - 1))
    last = draw.draw(st.integers(first, len(scopes.code) - 1))
    start, end = statement_around(scopes, first, last)
    assert 0 <= start <= first <= last <= end < len(scopes.code)
    again = statement_around(scopes, start, end)
    assert again[0] <= start
    assert again[1] >= end
    starts_controlled(scopes, first)
    ends_controlled(scopes, first, last)
