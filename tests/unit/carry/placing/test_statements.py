"""Where statements begin and end, in the shapes kernels are written in."""

from __future__ import annotations

import pytest
from sources import read

from patchkit.base.source import Span
from patchkit.carry.placing.select import (
    covers_controlled,
    ends_controlled,
    is_one_statement,
    starts_controlled,
    statement_around,
)


def around(text):
    """The statement around what stands between the two @ signs."""
    start = text.index("@")
    end = text.index("@", start + 1) - 1
    scopes = read(text.replace("@", ""))
    code = scopes.code_in(Span(start, end))
    first, last = statement_around(scopes, code.start, code.stop - 1)
    return scopes.source.text(Span(scopes.code[first].span.start, scopes.code[last].span.end)).decode()


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("void f() { a; @b@ = c; d; }", "b = c;"),
        ("void f() { a; b = g(1, @c@); d; }", "b = g(1, c);"),
        ("void f() { int x = @foo@{1} + 2; d; }", "int x = foo{1} + 2;"),
        ("void f() { int x = foo{1} @+@ 2; d; }", "int x = foo{1} + 2;"),
        ("void f() { int x{@1@}; d; }", "int x{1};"),
        ("void f() { int x[] = {{1}, {@2@}}; d; }", "int x[] = {{1}, {2}};"),
        ("void f() { { { @x@; } } y; }", "x;"),
        ("void f() { struct p { int @a@; } q; }", "int a;"),
        ("void f() { struct p { int a; } @q@; r; }", "struct p { int a; } q;"),
        ("void f() { if (@a@) { b; } c; }", "if (a) { b; }"),
        ("void f() { if (a) { @b@; } c; }", "b;"),
        ("void f() { if (a) @b@; c; }", "b;"),
        ("void f() { if (@a@) b; else c; d; }", "if (a) b; else c;"),
        ("void f() { if (a) b; else @c@; d; }", "c;"),
        ("void f() { if (a) { b; } @else@ { c; } d; }", "if (a) { b; } else { c; }"),
        ("void f() { if (a) b; @else@ c; d; }", "if (a) b; else c;"),
        ("void f() { if constexpr (a) { b; } @else@ { c; } d; }", "if constexpr (a) { b; } else { c; }"),
        (
            "void f() { if (a) { x; } else if (@b@) { y; } else { z; } w; }",
            "if (b) { y; } else { z; }",
        ),
        (
            "void f() { if (@a@) x; else if (b) y; else if (c) z; else w; v; }",
            "if (a) x; else if (b) y; else if (c) z; else w;",
        ),
        ("void f() { if (a) if (@b@) x; else y; else z; w; }", "if (b) x; else y;"),
        ("void f() { if (@a@) if (b) x; else y; else z; w; }", "if (a) if (b) x; else y; else z;"),
        ("void f() { if constexpr (@a@) { b; } c; }", "if constexpr (a) { b; }"),
        ("void f() { for (int i = 0; i < @n@; ++i) { b; } c; }", "for (int i = 0; i < n; ++i) { b; }"),
        ("void f() { for (int i = 0; i < @n@; ++i) if (x) b; c; }", "for (int i = 0; i < n; ++i) if (x) b;"),
        ("void f() { for (auto x : @y@) z; c; }", "for (auto x : y) z;"),
        ("void f() { while (@a@) b; c; }", "while (a) b;"),
        ("void f() { do { b; } while (@a@); c; }", "do { b; } while (a);"),
        ("void f() { @do@ { b; } while (a); c; }", "do { b; } while (a);"),
        ("void f() { @do@ b; while (a); c; }", "do b; while (a);"),
        ("void f() { do { b; } while (a); @c@; }", "c;"),
        ("void f() { do { b; } while (a)@;@ c; }", "do { b; } while (a);"),
        ("void f() { { b; } while (@a@) c; }", "while (a) c;"),
        ("void f() { try { @a@; } catch (x) { b; } c; }", "a;"),
        (
            "void f() { @try@ { a; } catch (x) { b; } catch (...) { d; } c; }",
            "try { a; } catch (x) { b; } catch (...) { d; }",
        ),
        (
            "void f() { try { a; } catch (x) { b; } catch (@y@ z) { d; } c; }",
            "try { a; } catch (x) { b; } catch (y z) { d; }",
        ),
        ("void f() { switch (@a@) { case 1: b; } c; }", "switch (a) { case 1: b; }"),
        ("void f() { switch (a) { case 1: @b@; break; } }", "b;"),
        ("void f() { switch (a) { case 1: { b; } @c@; } }", "c;"),
        ("void f() { switch (a) { case A ? 1 : 2: @b@; } }", "b;"),
        ("void f() { switch (a) { default: @b@; } }", "b;"),
        ("void f() { x = a ? @b@ : c; d; }", "x = a ? b : c;"),
        ("void f() { x = a ? b : @c@; d; }", "x = a ? b : c;"),
        ("struct s { public: int @a@; };", "int a;"),
        ("void f() { auto g = [&](int x) { return @x@; }; d; }", "return x;"),
        ("void f() { auto g = [&](int x) { return x; }(@1@); d; }", "auto g = [&](int x) { return x; }(1);"),
        ("void f() { auto @g@ = [&] { return x; }; d; }", "auto g = [&] { return x; };"),
        ("void f() { g([&] { @x@; }); d; }", "x;"),
        ("void f() { @g@([&] { x; }); d; }", "g([&] { x; });"),
        ("void f() { a; MACRO(@b@) }", "MACRO(b)"),
        ("void @f@() { a; } void g() { b; }", "void f() { a; }"),
        ("void f() { a; } void @g@() { b; }", "void g() { b; }"),
        ("namespace n { int @x@; }", "int x;"),
        ('extern "C" { int x; } int @y@;', "int y;"),
        ("S::S() : @a@{1}, b(2) { c; } int d;", "S::S() : a{1}, b(2) { c; }"),
        ("void f() { FOREACH(@x@) { a; } b; }", "FOREACH(x) { a; }"),
        ("void f() { w; @a; b@; c; }", "a; b;"),
        ("void f() { w; if (x) { @a; } b@; c; }", "if (x) { a; } b;"),
        ("void f() { w; if (x) { a; @}@ c; }", "if (x) { a; }"),
        ("void f() { w; if (x) @{@ a; } c; }", "if (x) { a; }"),
        ("void f() { w; if (x) { a; } else @{@ a; } c; }", "if (x) { a; } else { a; }"),
        ("void f() { w; do @{@ a; } while (x); c; }", "do { a; } while (x);"),
        ("void f() { w; if constexpr (x) @{@ a; } c; }", "if constexpr (x) { a; }"),
        ("void f() { w; @{@ a; } c; }", "{ a; }"),
        ("int a; @b@", "b"),
        ("@b@ }", "b"),
        ("( @b@", "( b"),
        ("] @b@", "b"),
        ("@else@ a;", "else a;"),
        ("a; @else@ b; c;", "a; else b;"),
        ("try { } @catch@", "try { } catch"),
        ("{ } @catch@ (a) { } b;", "catch (a) { }"),
    ],
)
def test_statement(text, statement):
    assert around(text) == statement


def test_a_thousand_else_ifs_are_one_statement():
    text = "void f() { if (@a@) x;" + " else if (b) y;" * 1000 + " z; }"
    assert around(text).count("else") == 1000


def test_control_words_without_end_do_not_overflow():
    assert around("@if@ " + "if if(a) do for(b) " * 2000).startswith("if if")


def positions(text):
    start = text.index("@")
    scopes = read(text.replace("@", ""))
    return scopes, scopes.first_from(start)


@pytest.mark.parametrize(
    ("text", "controlled"),
    [
        ("if (a) @b;", True),
        ("if constexpr (a) @b;", True),
        ("if (a) { } else @b;", True),
        ("if (a) { } else @if (b) c;", False),
        ("for (;;) @b;", True),
        ("while (a) @b;", True),
        ("do @b; while (a);", True),
        ("do { } while (a)@;", False),
        ("if (a) @{ b; }", True),
        ("if (a) { @b; }", False),
        ("f(a) @b;", False),
        ("@a;", False),
        ("a;@", False),
    ],
)
def test_starts_controlled(text, controlled):
    scopes, position = positions(text)
    assert starts_controlled(scopes, position) is controlled


@pytest.mark.parametrize(
    ("text", "controlled"),
    [
        ("if (a) @b = 1;@", True),
        ("if (a) b @= 1;@", True),
        ("@if (a) b;@", False),
        ("if (a) @b@ = 1;", False),
        ("if (a) { @b;@ }", False),
        ("for (;;) @if (a) b;@", True),
    ],
)
def test_ends_controlled(text, controlled):
    start = text.index("@")
    end = text.index("@", start + 1) - 1
    scopes = read(text.replace("@", ""))
    code = scopes.code_in(Span(start, end))
    assert ends_controlled(scopes, code.start, code.stop - 1) is controlled


def test_covers_controlled():
    scopes = read("if (a) { b; } else c; d;")
    texts = [token.text for token in scopes.code]
    block = (texts.index(b"{"), texts.index(b"}"))
    assert covers_controlled(scopes, *block)
    assert covers_controlled(scopes, texts.index(b"c"), texts.index(b"c") + 1)
    assert not covers_controlled(scopes, texts.index(b"c"), texts.index(b"c"))
    assert not covers_controlled(scopes, texts.index(b"d"), texts.index(b"d") + 1)


def test_no_position_ends_nothing():
    scopes = read("a;")
    assert not ends_controlled(scopes, 0, 5)


@pytest.mark.parametrize(
    ("text", "one"),
    [
        (b"a = 1;", True),
        (b"{ a; b; }", True),
        (b"if (a) b; else c;", True),
        (b"a; b;", False),
        (b"a; // b", True),
        (b"", False),
    ],
)
def test_is_one_statement(text, one):
    assert is_one_statement(text) is one
