"""Generated lines around an edit, and not a byte more."""

from __future__ import annotations

import pytest

from patchkit.base.source import SourceText, Span
from patchkit.carry.placing.expand import guard_insertion, guard_removal, guard_replacement


def lay(how, text, new=b"", **kwargs):
    """The text after one guarded edit of what stands between the two @ signs."""
    data = text.encode()
    start = data.index(b"@")
    end = data.index(b"@", start + 1) - 1
    source = SourceText("t.cu", data.replace(b"@", b""))
    arguments = (source, Span(start, end)) if how is guard_removal else (source, Span(start, end), new)
    span, replacement = how(*arguments, "C", **kwargs)
    return (source.data[: span.start] + replacement + source.data[span.end :]).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  @a;@\nb;\n", "#if C\n  new;\n#else\n  a;\n#endif\nb;\n"),
        ("@a;@", "#if C\nnew;\n#else\na;\n#endif"),
        ("\t@a;@ // c\nb;", "#if C\n\tnew;\n#else\n\ta; // c\n#endif\nb;"),
        ("  @a;@  \nb;", "#if C\n  new;\n#else\n  a;  \n#endif\nb;"),
        ("  f(@a@, b);\n", "  f(\n#if C\n      new;\n#else\n      a\n#endif\n      , b);\n"),
        ("  f(x, @a@);\n", "  f(x,\n#if C\n      new;\n#else\n      a\n#endif\n      );\n"),
        ("  x = @a@\n  + b;\n", "  x =\n#if C\n      new;\n#else\n      a\n#endif\n  + b;\n"),
        ("  @a@ b;\n", "#if C\n  new;\n#else\n  a\n#endif\n      b;\n"),
        ("  @a(\n    b);@\n", "#if C\n  new;\n#else\n  a(\n    b);\n#endif\n"),
        ("x;\r\n  @a;@\r\nb;\r\n", "x;\r\n#if C\r\n  new;\r\n#else\r\n  a;\r\n#endif\r\nb;\r\n"),
        ("@  a;\n  b;@\n", "#if C\n  new;\n#else\n  a;\n  b;\n#endif\n"),
        ("@@\nb;", "#if C\nnew;\n#else\n\n#endif\nb;"),
    ],
)
def test_replacement(before, after):
    assert lay(guard_replacement, before, b"new;") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  @a;@\nb;\n", "#if !(C)\n  a;\n#endif\nb;\n"),
        ("f(@a,@ b);", "f(\n#if !(C)\n    a,\n#endif\n    b);"),
        ("\t@#if A\n\t#endif@\r\n", "#if !(C)\n\t#if A\n\t#endif\n#endif\r\n"),
    ],
)
def test_removal(before, after):
    assert lay(guard_removal, before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  @a;@\nb;\n", "#if C\n  new;\n#endif\n  a;\nb;\n"),
        ("  x; @a;@ b;\n", "  x;\n#if C\n      new;\n#endif\n      a; b;\n"),
        ("@@  a;\n", "#if C\n  new;\n#endif\n  a;\n"),
    ],
)
def test_insertion_in_front(before, after):
    assert lay(guard_insertion, before, b"new;", after=False) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  @a;@\nb;\n", "  a;\n#if C\n  new;\n#endif\nb;\n"),
        ("  @a;@ // c\nb;\n", "  a; // c\n#if C\n  new;\n#endif\nb;\n"),
        ("  @a;@ b;\n", "  a;\n#if C\n  new;\n#endif\n      b;\n"),
        ("  x; @a;@", "  x; a;\n#if C\n  new;\n#endif"),
        ("x;\r\n@a;@\r\n", "x;\r\na;\r\n#if C\r\nnew;\r\n#endif\r\n"),
    ],
)
def test_insertion_behind(before, after):
    assert lay(guard_insertion, before, b"new;", after=True) == after


def test_new_text_loses_its_own_margin_and_keeps_its_shape():
    new = b"\n    if (a) {\r\n        b;   \n\n#define X 1\n    }\n\n"
    assert lay(guard_insertion, "  @a;@\n", new, after=False) == (
        "#if C\n  if (a) {\n      b;\n\n#define X 1\n  }\n#endif\n  a;\n"
    )
