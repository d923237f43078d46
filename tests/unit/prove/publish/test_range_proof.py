"""What counts as outside of the declared entities, on small files and on the shipped candidate."""

from __future__ import annotations

import pytest

from patchkit.prove.publish.range_proof import stray_lines

_BASE = b"""#include "a.h"

static int twin_a(int x) {
    return x;
}

static int twin_b(int x) {
    return x;
}
int table[] = { 1, 2 };
"""


def _stray(tip: bytes, *functions: str) -> tuple[str, ...]:
    return stray_lines("f.cu", _BASE, tip, functions)


def test_a_declared_function_may_change_and_no_other() -> None:
    tip = _BASE.replace(b"twin_b(int x) {\n    return x;", b"twin_b(int x) {\n    return 2*x;\n    // more")
    assert _stray(tip, "twin_b") == ()
    assert _stray(tip, "twin_a") == ("- return x;", "+ return 2*x;")
    assert _stray(tip) == ("- return x;", "+ return 2*x;")


def test_lines_of_the_preprocessor_may_be_added_anywhere() -> None:
    lines = b'#if defined(X)\n#include "ours.h"\n#define ALIAS \\\n    (1 + 2)\n#endif // defined(X)\n'
    assert _stray(_BASE.replace(b"static int twin_b", lines + b"static int twin_b")) == ()


@pytest.mark.parametrize(
    ("old", "new", "stray"),
    [
        (b"{ 1, 2 }", b"{ 1, 3 }", ("- int table[] = { 1, 2 };", "+ int table[] = { 1, 3 };")),
        (b'#include "a.h"\n', b"", ('- #include "a.h"',)),
        (b"int table", b"int more;\nint table", ("+ int more;",)),
        (b"static int twin_a(int x) {\n    return x;\n}\n", b"", ("- static int twin_a(int x) {", "- }")),
    ],
    ids=["a value", "an include gone", "a declaration", "a function gone"],
)  # fmt: skip
def test_anything_else_is_a_stray(old: bytes, new: bytes, stray: tuple[str, ...]) -> None:
    found = _stray(_BASE.replace(old, new), "twin_b")
    assert set(stray) <= set(found)


def test_a_declared_function_that_vanishes_is_seen() -> None:
    tip = _BASE.replace(b"static int twin_b(int x) {\n    return x;\n}\n", b"")
    assert _stray(tip, "twin_b")
