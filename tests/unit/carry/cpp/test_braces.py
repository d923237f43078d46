"""What a brace opens, by what stands before it."""

from __future__ import annotations

import pytest
from sources import read

from patchkit.carry.placing.select import brace_role


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("@{ }", "block"),
        ("void f() @{ }", "block"),
        ("void f() const @{ }", "block"),
        ("void f() ATTRIBUTE @{ }", "block"),
        ("auto f() -> int @{ }", "block"),
        ("if (a) @{ }", "block"),
        ("if (a) [[likely]] @{ }", "block"),
        ("else @{ }", "block"),
        ("x; @{ }", "block"),
        ("{ } @{ }", "block"),
        ("{ @{ x; } }", "block"),
        ("switch (a) { case 1: @{ } }", "block"),
        ("namespace x @{ }", "block"),
        ('extern "C" @{ }', "block"),
        ("f<int>(a) @{ }", "block"),
        ("[[a]] @{ }", "block"),
        ("struct s : a, b<int> @{ }", "record"),
        ("enum class e : int @{ }", "record"),
        ("auto f = [&] @{ };", "lambda"),
        ("auto f = [&](int a) @{ };", "lambda"),
        ("auto f = [&](int a) mutable @{ };", "lambda"),
        ("auto f = [&](int a) -> v<int> @{ };", "lambda"),
        ("auto f = []<int n>(auto x) @{ };", "lambda"),
        ("g([&] @{ });", "lambda"),
        ("return [] @{ };", "lambda"),
        ("int x @{1};", "value"),
        ("v<v<int>> x = v<v<int>>@{1};", "value"),
        ("int a[2] @{1, 2};", "value"),
        ("int a[] = @{1, 2};", "value"),
        ("int a[] = {@{1}, {2}};", "value"),
        ("int a[] = {{1}, @{2}};", "value"),
        ("f(@{1, 2});", "value"),
        ("f(a, @{1, 2});", "value"),
        ("x = a + @{1};", "value"),
        ("x = (float4) @{1};", "value"),
        ("f(x) + int @{1};", "value"),
        ("if (a) foo @{1};", "value"),
        ("return foo @{1};", "value"),
        ("for (int i : @{1, 2}) { }", "value"),
        ('auto s = "a" @{ };', "value"),
        ("> @{ }", "value"),
        (">(a) @{ }", "block"),
        ("S::S() : a@{1} { }", "value"),
        ("S::S() : a(1) @{ }", "block"),
    ],
)
def test_role(text, role):
    offset = text.index("@")
    scopes = read(text.replace("@", ""))
    opener = scopes.first_from(offset)
    assert scopes.code[opener].text == b"{"
    assert brace_role(scopes.code, scopes.match, opener) == role
