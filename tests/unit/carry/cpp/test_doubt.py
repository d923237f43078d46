"""Which name that nothing declares may be the reason for a message of clang's."""

from __future__ import annotations

import pytest

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.ast import parse_tree
from patchkit.carry.cpp.doubt import Names, find_doubt, find_misspelt, touched
from patchkit.carry.cpp.scopes import parse_scopes

PATH = "src/t.cpp"


def doubt(text, before=None):
    tree, base = (
        parse_tree(PATH, {PATH: each.encode()}, arch="gfx1151", which="host", with_names=True)
        for each in (text, before or text)
    )
    scopes = parse_scopes(SourceText(PATH, text.encode()))
    known = frozenset() if before is None else frozenset(before.encode().replace(b";", b" ").split())
    names = Names(tree, None if before is None else base, known)
    assert tree.issues
    return find_doubt(scopes, tree.issues[0].offset, names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Right, where these names are a macro, a type or a template of some header.
        ('void f(int x) { print("%" FORMAT, x); }', "FORMAT"),
        ("long f(long x) { return x > 0 ? (count_t) x : 0; }", "count_t"),
        ("void f(int x) { check(other::thing<int>(x)); }", "other"),
        ("API(int) f(int x) { return 1; }", "API"),
        ("struct s : base::type<int> { int x; };", "base"),
        ("void f(int x) { call(int, x); }", "call"),
        ('#define MINE(x) print("%" FORMAT, x)\nvoid f(int x) { MINE(x); }', "FORMAT"),
        ("struct s { int a; }; void f(struct s x) { x.member<int>(1); }", "member"),
        ("EXPORT void f(int x) { int y = 1; for (;;) { y++ } }", "EXPORT"),
        # Wrong, whatever any name is.
        ("void f(int x) { int y = 1 y++; }", None),
        ("void f(int x) { if (x) { x++ } }", None),
        ("void f(int x) { x = (x + 1; }", None),
        ("void f(int x) { unknown_call(x) x++; }", None),
        ("void f(int x) { unknown_call([&]() { int y = ; }); }", None),
        ("void f(int x) { int = x; } void g(odd_t y) { y.any<int>(); }", None),
        ("struct s { int a; int b }; struct t { odd_t c; };", None),
        ("enum e { A, B }; enum e f() { return A B; }", None),
        ("void f(char * d) { snprintf(d, 3 4); }", None),
        # Wrong, but it could be a macro, and then it would not be.
        ("void f(int x) { MACRO(x) x++ }", "MACRO"),
    ],
)
def test_only_an_unknown_name_in_the_statement_or_around_it_explains_a_message(text, expected):
    assert doubt(text + "\n") == expected


def test_a_name_that_was_known_before_the_edit_is_no_reason():
    before = "int f(int x) { const int y = x ; return y ; }\n"
    after = "int f(int x) { const int = x + y ; return y ; }\n"
    assert doubt(after, before) is None
    assert doubt(after) == "y"


def test_an_edit_touches_its_definitions_and_the_lines_around_it():
    text = "int a;\nint b;\nint c;\nint f() { return 1; }\nint g() { return 2; }\n"
    scopes = parse_scopes(SourceText(PATH, text.encode()))

    def found(what):
        at = text.index(what)
        return [text[each.start : each.end] for each in touched(scopes, [Span(at, at + len(what))])]

    assert found("return 1") == ["{ return 1;", "int f() { return 1; }"]
    assert found("int b;") == ["; int b;\nint".replace("; ", ";\n")]


def test_an_edit_of_a_macro_touches_every_use():
    scopes = parse_scopes(SourceText(PATH, b"#define M 1\nint f() { return M; }\n"))
    assert touched(scopes, [Span(10, 11)]) is None


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("retrun", "return"), ("fro", "for"), ("fi", "if"), ("cosnt", "const"), ("sttaic", "static"),
        ("sturct", "struct"), ("retur", "return"), ("returns", "return"), ("whilf", "while"),
        ("it", None), ("fr", None), ("ints", None), ("elsa", None), ("size", None), ("state", None),
        ("constant", None), ("known", None),
    ],
)  # fmt: skip
def test_a_keyword_with_one_slip_in_it(name, keyword):
    scopes = parse_scopes(SourceText(PATH, f"int f() {{ {name} x; return 1; }}\n".encode()))
    found = [(token.text.decode(), word) for token, word in find_misspelt(scopes, {b"known", b"x", b"f"})]
    assert found == ([(name, keyword)] if keyword else [])
