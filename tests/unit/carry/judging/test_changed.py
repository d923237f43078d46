"""Comparing two versions of a change by function."""

from __future__ import annotations

from patchkit.carry.judging.changed import Versions, compare_changes, function_changes

PATH = "src/a.cpp"
BASE = b"int x;\nint f() {\n    a();\n    b();\n}\nint g() {\n    c();\n}\n"


def changed(
    old: bytes, new: bytes, base: bytes = BASE
) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    found = compare_changes([Versions(PATH, BASE, old)], [Versions(PATH, base, new)])
    return [(each.how, each.place, each.removed, each.added) for each in found]


def test_only_differences_of_the_newer_version_are_reported() -> None:
    old = BASE.replace(b"a();", b"a(1);").replace(b"b();", b"b(1);")
    new = old.replace(b"b(1);", b"b(2);")
    assert changed(old, new) == [
        ("changed otherwise", "f in src/a.cpp", ("b ( 1 ) ;",), ("b ( 2 ) ;",)),
    ]


def test_an_added_and_a_removed_function() -> None:
    assert changed(BASE.replace(b"a();", b"a(1);"), BASE.replace(b"c();", b"c(1);")) == [
        ("no longer changed", "f in src/a.cpp", ("a ( 1 ) ;",), ("a ( ) ;",)),
        ("also changed", "g in src/a.cpp", ("c ( ) ;",), ("c ( 1 ) ;",)),
    ]


def test_another_base_comments_and_layout_are_no_difference() -> None:
    base = BASE.replace(b"c();", b"c(7);").replace(b"int x;", b"int x, y;")
    new = base.replace(b"    a();", b"  a(1); // now")
    assert changed(BASE.replace(b"a();", b"a(1);"), new, base) == []


def test_code_outside_of_functions_and_files_that_are_not_code() -> None:
    (outside,) = function_changes([Versions(PATH, BASE, BASE.replace(b"int x;", b"long x;"))])
    assert (outside.function, outside.added) == ("", ("long x ;",))
    (lines,) = function_changes([Versions("a.cmake", b"one\ntwo\n", b"one\n2\n")])
    assert (lines.removed, lines.added) == (("two",), ("2",))
    (new,) = function_changes([Versions("b.txt", None, b"x\n")])
    assert new.added == ("x", "")


def test_binary_files_are_shown_by_size_and_long_files_compared_quickly() -> None:
    (binary,) = function_changes([Versions("m.gguf", b"\0", b"\0\1")])
    assert binary.added == ("2 bytes, not read",)
    many = [b"".join(b"%d\n" % (number * step) for number in range(40_000)) for step in (1, 3)]
    (found,) = function_changes([Versions("a.txt", *many)])
    assert len(found.removed) == len(found.added) == 39_999


def test_a_report_limits_untrusted_text() -> None:
    many = b"int h() {\n" + b"".join(b"    g(%d, %s);\n" % (n, b"x" * 3000) for n in range(300)) + b"}\n"
    ((_, _, _, added),) = changed(BASE, BASE + many)
    assert (len(added), added[-1]) == (201, "... and 102 more")
    assert max(map(len, added)) == 2000
