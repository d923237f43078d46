"""Preprocessor lines: where they begin, where they end, and how they group."""

from __future__ import annotations

import pytest
from sources import read


def test_a_directive_ends_before_its_newline():
    scopes = read(b"#define A 1\r\nint b;\r\n")
    (line,) = scopes.directives
    assert scopes.source.text(line.span) == b"#define A 1"
    assert line.condition == b"define A 1"
    assert [token.text for token in scopes.code] == [b"int", b"b", b";"]


@pytest.mark.parametrize("end", [b"\\\n", b"\\\r\n", b"\\ \t\n"])
def test_a_continued_line_belongs_to_its_directive(end):
    scopes = read(b"#define A(x) " + end + b"  #x " + end + b"  x\nint b;\n")
    (line,) = scopes.directives
    assert [token.text for token in line.tokens] == [b"A", b"(", b"x", b")", b"#", b"x", b"x"]
    assert scopes.code[0].text == b"int"


def test_a_hash_on_a_continued_code_line_is_no_directive():
    scopes = read(b"#if A\nfoo \\\n#else\nold\n#endif\n")
    assert [line.keyword for line in scopes.directives] == [b"if", b"endif"]
    assert [token.text for token in scopes.code] == [b"foo", b"#", b"else", b"old"]


def test_a_comment_may_precede_and_prolong_a_directive():
    scopes = read(b"/* a */ # /* b */ define X /* c\n d */ 1\nint b;\n")
    (line,) = scopes.directives
    assert line.condition == b"define X 1"
    assert [token.text for token in scopes.code] == [b"int", b"b", b";"]


def test_a_raw_string_prolongs_its_directive():
    scopes = read('#define X R"(a\n#if b\n)" 1\nint c;\n#define\x00R"\n')
    first, second = scopes.directives
    assert first.condition.endswith(b'" 1')
    assert scopes.code[0].text == b"int"
    assert second.span.end == len(scopes.source.data)


def test_a_comment_behind_code_does_not_hide_the_directive_below():
    scopes = read("int a; // one\n/* two */\n#define X\n")
    assert [line.keyword for line in scopes.directives] == [b"define"]


def test_an_if_inside_a_comment_or_raw_string_is_no_directive():
    scopes = read(b'/*\n#if A\n*/\nauto s = R"(\n#endif\n)";\n')
    assert scopes.directives == ()


def test_a_lone_hash_is_a_directive_without_keyword():
    (line,) = read(b"#\nint a;\n").directives
    assert (line.keyword, line.tokens) == (b"", ())


def test_a_directive_on_the_last_line_needs_no_newline():
    (line,) = read(b"#define A \\").directives
    assert line.span.end == 11


def test_groups_hold_whole_lines_and_nest():
    scopes = read("#if A\na;\n# if B\nb;\n# endif\n#elif C\nc;\n#else\n#endif\n")
    outer, inner = scopes.groups
    bodies = [scopes.source.text(branch.body) for branch in outer.branches]
    assert bodies == [b"a;\n# if B\nb;\n# endif\n", b"c;\n", b""]
    assert scopes.source.text(inner.branches[0].body) == b"b;\n"
    assert scopes.source.text(inner.span).endswith(b"# endif")


def test_unclosed_groups_and_stray_ends_are_left_out():
    assert read("#endif\n#else\n#if A\na;\n").groups == ()


def test_include_of_angle_brackets_is_seen_in_tokens():
    (line,) = read("#include <cuda/x.h>\n").directives
    assert b"".join(token.text for token in line.tokens) == b"<cuda/x.h>"
