"""Tokens: exact bytes, every branch, and an error when libclang's layout is another."""

from __future__ import annotations

import struct

import pytest
from refusing import refused

from patchkit.base.source import SourceText
from patchkit.carry.cpp import lexer, libclang
from patchkit.carry.cpp.lexer import TokenKind, lex, lex_by_clang, lex_pattern


def texts(data: bytes) -> list[bytes]:
    return [token.text for token in lex(SourceText("t.cu", data))]


@pytest.mark.parametrize("data", [b"", b" ", b"\n\r\n\t", b"\\\n", b"\xef\xbb\xbf"])
def test_nothing_to_read_gives_no_tokens(data):
    assert texts(data) == []


def test_each_token_is_the_bytes_of_its_span():
    source = SourceText("t.cu", "int grösse = 1; // größer\r\n\tfoo<<<1, 2>>>(x);".encode())
    tokens = lex(source)
    assert [source.text(token.span) for token in tokens] == [token.text for token in tokens]
    assert tokens[1].text == "grösse".encode()
    assert tokens[-1].text == b";"


def test_code_under_a_false_condition_is_read_like_any_other():
    assert texts(b"#if 0\nint a;\n#else\nint b;\n#endif\n").count(b"int") == 2


def test_a_byte_order_mark_shifts_nothing():
    (first, *_) = lex(SourceText("t.cu", b"\xef\xbb\xbfint a;\n"))
    assert (first.text, first.span.start) == (b"int", 3)


def test_raw_strings_inline_assembly_and_digraphs_are_single_tokens():
    assert b'R"(a\n#if 0\n{)"' in texts(b'auto s = R"(a\n#if 0\n{)";')
    assert b'"ld.global {%0, %1}, [%2];"' in texts(b'asm volatile("ld.global {%0, %1}, [%2];" : "=r"(x));')
    assert texts(b"int a<:2:>;")[2] == b"<:"


def test_prose_with_an_apostrophe_ends_with_its_line():
    assert texts(b"#if 0\ndon't\n#endif\nint a;")[-3:] == [b"int", b"a", b";"]


@pytest.mark.parametrize("data", [b'R"(abc', b'a R"x(a)"', b"//\\", b"'a"])
def test_what_the_file_does_not_end_ends_with_the_file(data):
    (*_, last) = lex(SourceText("t.cu", data))
    assert (last.span.end, last.text) == (len(data), data[last.span.start :])


def test_a_last_line_without_newline_keeps_its_last_token():
    assert texts(b"int a;\nfoo")[-1] == b"foo"


@pytest.mark.parametrize("end", [b"\\\n", b"\\\r\n", b"\\ \n", b"\\\n\\\n"])
def test_a_token_at_the_start_of_a_continued_line_is_only_itself(end):
    source = SourceText("t.cu", b"int " + end + b"foo;")
    assert [token.text for token in lex(source)] == [b"int", b"foo", b";"]


def test_kinds_follow_clang():
    kinds = [token.kind for token in lex(SourceText("t.cu", b'int a = "x"; // c'))]
    assert kinds == [
        TokenKind.KEYWORD,
        TokenKind.IDENTIFIER,
        TokenKind.PUNCTUATION,
        TokenKind.LITERAL,
        TokenKind.PUNCTUATION,
        TokenKind.COMMENT,
    ]


def test_a_pattern_has_no_comments():
    assert [token.text for token in lex_pattern("a /* b */ + c // d")] == [b"a", b"+", b"c"]


def test_another_layout_of_cxtoken_is_an_error_that_names_the_file(monkeypatch):
    monkeypatch.setattr(libclang, "_TOKEN", struct.Struct("@I4xIIP"))  # as if the location stood elsewhere
    with refused("LEXER_MISMATCH") as caught:
        lex(SourceText("ggml/x.cu", b"0x1p+3;"))  # no words, which are lexed first
    assert "ggml/x.cu" in caught.value.message


ORDINARY = """\
#include <a/b.h> // it's
#define TWICE(x) \\
    ((x) + \\
     (x))
static const char * raw = R"x(a "quoted" ))x" u8"b" L'c' "d\\"e" ;
auto n = 0x1E+2 + 1'000'000.5e-3f + .5 + 1.f + a->*b ... <<= x >>= y <=> z;
/* two
   lines */ typename T::type t{co_await, constexpr, __attribute__((x)), override};
"""


@pytest.mark.parametrize(
    "data",
    [
        ORDINARY,
        ORDINARY.replace("\n", "\r\n"),
        '"%"PRIu64',
        '"a"_s 1_km 0x1p+3',
        "a\\\nb",
        "// ends \\\n here",
        "#error don't\nint x;",
        "#if 0\nisn't it, it's\n#endif",
        "int a = 'x",
        '"open',
        "/* open",
        'R"(open',
        'R"ab(x)b)ab"',
        "a\rb",
        "a\f\vb",
        "<:x:> %:%: %> <::y",
        "<<<<<<< ours\n=======\n>>>>>>> theirs\n",
        "x = <#name#>;",
        "gr\u00f6\u00dfe",
        "a$b @c `d`",
        "\\",
        "x \\",
        "'' ??/ ??=",
        'operator""_x',
        'u8R"(a)"b',
        "1..2 ... .. a.*b .5.6",
        ' R"x(open)"',
        ' R"$(a)$" b',
        ' R"a"b(x)a"b" c',
        ' R"0123456789abcdefg(too long)0123456789abcdefg"',
        "=0x1_p+3 - 0x1gP-3 + 1p+3 + 1'e+3",
        " struct __is_void {}; __is_void x;",
        " using A = __remove_cv(int);",
    ],
)
def test_ordinary_code_is_lexed_as_libclang_does(data):
    source = SourceText("t.cu", data.encode())
    assert lex(source) == lexer.lex_by_clang(source)


def test_what_is_ordinary_is_not_asked_of_libclang(monkeypatch):
    texts(ORDINARY.encode())  # its words are known from here on
    monkeypatch.setattr(lexer, "lex_by_clang", None)
    assert texts(ORDINARY.encode())


FUNCTION = b"int f(int x) {\n    return x;\n}\n\n"


@pytest.mark.parametrize(
    "between",
    [
        b"int g;\n",
        b"/* a\n}\n comment */\n",
        b'const char * text = R"(\n}\n)";\n',
        b"#define M(x) {\\\n}\\\n x\n",
        b"// ends with a brace \\\n}\n",
        b"\n}\n}\n",
    ],
)
def test_tokens_that_are_kept_of_an_earlier_version_are_those_of_a_new_one(between: bytes) -> None:
    lex(SourceText("a.cpp", FUNCTION * 3))
    for data in (FUNCTION + between + FUNCTION * 2, between + FUNCTION * 3, FUNCTION * 2 + between):
        source = SourceText("a.cpp", data)
        assert lex(source) == lex_by_clang(source)
        assert all(token.text == source.text(token.span) for token in lex(source))
