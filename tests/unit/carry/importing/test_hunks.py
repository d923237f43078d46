"""The place of a hunk: its own line, the only match, or an error that lists the candidates."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup, Location
from patchkit.carry.importing.hunks import RenumberedDiff, keep_below, parse_diff, renumber_diff

PATH = "a/tests.cpp"
TESTS = """\
#include "tests.h"

struct test_one : public test_case {
    double error() override {
        return 5e-4;
    }

    int flops(int n) override {
        return n;
    }
};

struct test_two : public test_case {
    double error() override {
        return 5e-4;
    }

    int flops(int n) override {
        return 2*n;
    }
};
"""
FIRST, SECOND = 4, 14  # the lines of error() in both


def hunk(line: int, heading: str = "", *, old: str = "5e-4", new: str = "7e-4") -> str:
    """A change of error() with context that matches in both tests."""
    lines = [
        f"@@ -{line},5 +{line},5 @@{' ' if heading else ''}{heading}",
        "     double error() override {",
        f"-        return {old};",
        f"+        return {new};",
        "     }",
        " ",
        "     int flops(int n) override {",
    ]
    return "\n".join([*lines, ""])


def diff(*hunks: str, path: str = PATH, index: str = "") -> bytes:
    return f"diff --git a/{path} b/{path}\n{index}--- a/{path}\n+++ b/{path}\n{''.join(hunks)}".encode()


def renumbered(data: bytes, text: str | bytes = TESTS, path: str = PATH) -> RenumberedDiff:
    raw = text.encode() if isinstance(text, str) else text
    return renumber_diff(data, 1, {path: raw}, Location(path="the.patch"))


def at(line: int) -> str:
    """The tests with the change of :func:`hunk` at a line."""
    rows = TESTS.split("\n")
    rows[line] = rows[line].replace("5e-4", "7e-4")
    return "\n".join(rows)


def made(found: RenumberedDiff) -> str:
    data = found.files[PATH]
    assert data is not None
    return data.decode()


@pytest.mark.parametrize("line", [FIRST, SECOND])
@pytest.mark.parametrize("named", [True, False])
def test_a_hunk_that_fits_at_its_own_line_is_placed_there(line: int, *, named: bool) -> None:
    heading = {FIRST: "struct test_one : public test_case {", SECOND: "struct test_two : public test_case {"}
    found = renumbered(diff(hunk(line, heading[line] if named else "")))
    assert made(found) == at(line)
    # Without a name only the line number decides between the two, and that is reported.
    assert [each.others for each in found.moved] == ([] if named else [1])


def test_a_line_number_is_ignored_in_another_version_of_the_file() -> None:
    stale = "index f41a6f3..0000001 100644\n"
    with refused("IMPORT_AMBIGUOUS", match="the diff was made from another version of the file"):
        renumbered(diff(hunk(FIRST), index=stale))
    assert made(renumbered(diff(hunk(FIRST, "struct test_one : public test_case {"), index=stale))) == at(
        FIRST
    )
    exact = renumbered(diff(hunk(FIRST), index=f"index {blob(TESTS)[:8]}..0000001 100644\n"))
    assert (made(exact), exact.moved) == (at(FIRST), ())


def test_a_line_number_is_ignored_if_another_hunk_of_the_file_moved() -> None:
    include = '@@ -11,2 +11,3 @@\n #include "tests.h"\n+#include "more.h"\n \n'
    with refused("IMPORT_AMBIGUOUS", match="fits in 2 places"):
        renumbered(diff(include, hunk(SECOND)))


def test_hunks_out_of_order_are_an_error() -> None:
    later = (
        "@@ -17,2 +17,2 @@\n     int flops(int n) override {\n-        return 2*n;\n+        return 3*n;\n"
    )
    with refused("IMPORT_NOT_APPLYING", match="has a lower line number than the hunk before it"):
        renumbered(diff(later, hunk(1)))


def test_a_neighbouring_method_is_another_function() -> None:
    text = (
        "class Model:\n    def first(self):\n        a = 1\n        return a\n\n"
        "    def second(self):\n        b = 1\n        return 1\n"
    )
    rows = "@@ -7,2 +7,2 @@     def first(self):\n         b = 1\n-        return 1\n+        return 2\n"
    with refused("IMPORT_OTHER_FUNCTION"):
        renumbered(diff(rows, path="model.py"), text, "model.py")


def test_huge_numbers_and_headings_are_parsed_quickly() -> None:
    assert parse_diff(diff(f"@@ -1,{'9' * 5000} +1 @@\n x\n"))[0].hunks == ()
    named = "struct test_one : public test_case {" + "x" * 200_000
    assert renumbered(diff(hunk(FIRST, named))).files


def test_a_prefix_skips_files_outside_of_it() -> None:
    below = diff(hunk(FIRST), path=f"vendor/llama.cpp/{PATH}")
    others = (
        (
            b"diff --git a/app/LICENSE b/app/COPYING\nsimilarity index 100%\n"
            b"rename from app/LICENSE\nrename to app/COPYING\n"
        ),
        b"diff --git a/app/x/README.md b/app/x/README.md\nold mode 100644\nnew mode 100755\n",
        b"diff --git a/app/__init__.py b/app/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n",
    )
    kept, skipped = keep_below(b"".join([others[0], below, *others[1:]]), "vendor/llama.cpp", 1)
    assert kept == below
    assert skipped == ("app/COPYING", "app/x/README.md", "app/__init__.py")


@pytest.mark.parametrize("heading", ["", "struct test_two : public test_case {"])
@pytest.mark.parametrize("line", [1, FIRST + 1, SECOND - 1, 200])
def test_a_stale_number_with_several_places_is_an_error_that_lists_them(line: int, heading: str) -> None:
    with refused("IMPORT_AMBIGUOUS", match="fits in 2 places, none of them at its line number") as caught:
        renumbered(diff(hunk(line, heading)))
    assert [(str(place), place.label) for place in caught.value.where] == [
        ("the.patch", None),
        (f"{PATH}:{FIRST + 1}", f"in test_one::error: @@ -{FIRST},5 +{FIRST},5 @@"),
        (f"{PATH}:{SECOND + 1}", f"in test_two::error: @@ -{SECOND},5 +{SECOND},5 @@"),
    ]


@pytest.mark.parametrize(
    "heading",
    [
        "struct test_two : public test_case {",
        "struct test_two",
        "test_two",
        "struct test_three : public test_case {",
        "int flops_of_three(int n) {",
    ],
)
def test_the_right_number_with_the_name_of_another_definition_is_an_error(heading: str) -> None:
    with refused("IMPORT_OTHER_FUNCTION", match=r"line 5 is in 'test_one::error'") as caught:
        renumbered(diff(hunk(FIRST, heading)))
    assert f"{PATH}:{FIRST + 1}" in map(str, caught.value.where)


def test_the_only_place_is_used_and_its_distance_is_reported() -> None:
    text = TESTS.replace("return 2*n", "return 3*n").replace("5e-4", "6e-4", 1)
    found = renumbered(diff(hunk(2, "struct test_two : public test_case {")), text)
    assert made(found) == text.replace("5e-4", "7e-4")
    (moved,) = found.moved
    assert (moved.number, moved.line, moved.offset) == (1, SECOND + 1, SECOND - 2)
    assert (moved.inside, moved.heading) == ("test_two::error", "")
    assert (
        str(moved)
        == f"hunk 1 of {PATH}: at line 15 in test_two::error, 12 lines below the line in its header"
    )
    assert f"@@ -{SECOND},5 +{SECOND},5 @@ struct test_two".encode() in found.data


@pytest.mark.parametrize("heading", ["struct test_one : public test_case {", "struct test_three {"])
def test_the_only_place_is_refused_if_the_heading_names_another_definition(heading: str) -> None:
    # The lines of test_one have changed, and those of test_two happen to match the hunk.
    text = TESTS.replace("5e-4", "6e-4", 1)
    with refused("IMPORT_OTHER_FUNCTION", match="test_two::error"):
        renumbered(diff(hunk(FIRST, heading)), text)


def test_a_function_of_another_name_at_the_exact_line_is_reported() -> None:
    text = TESTS.replace("test_one", "test_first").replace("5e-4", "6e-4").replace("6e-4", "5e-4", 1)
    (moved,) = renumbered(diff(hunk(FIRST, "struct test_one : public test_case {")), text).moved
    assert (moved.offset, moved.heading) == (0, "struct test_one : public test_case {")
    assert "names 'struct test_one : public test_case {', but" in str(moved)


def test_in_the_exact_file_of_the_diff_any_heading_is_accepted() -> None:
    index = "index f41a6f3..0000001 100644\n"
    with refused("IMPORT_AMBIGUOUS"):
        renumbered(diff(hunk(FIRST, "Any(words)"), index=index))
    index = f"index {blob(TESTS)[:8]}..0000001 100644\n"
    assert renumbered(diff(hunk(FIRST, "Any(words)"), index=index)).is_exact
    with refused("IMPORT_OTHER_FUNCTION"):  # but not the name of another definition of the file
        renumbered(diff(hunk(FIRST, "struct test_two : public test_case {"), index=index))


def blob(text: str) -> str:
    from patchkit.carry.series.git_object import object_id

    return object_id("blob", text.encode())


def test_later_hunks_are_placed_below_earlier_ones() -> None:
    # The second hunk is right by its old line number, although its new one does not match the diff any more.
    moved_by_ten = hunk(SECOND, "struct test_two : public test_case {").replace("+14,5", "+24,5")
    found = renumbered(diff(hunk(FIRST), moved_by_ten))
    assert made(found) == TESTS.replace("5e-4", "7e-4")
    again = diff(hunk(FIRST), hunk(FIRST))
    with refused("IMPORT_AMBIGUOUS"):
        renumbered(again.replace(b"@@ -4,5 +4,5 @@", b"@@ -3,5 +3,5 @@", 1))
    with refused("IMPORT_AMBIGUOUS"):
        renumbered(again)  # the second fits below the first only, far from its number


def test_every_ambiguous_hunk_is_reported() -> None:
    with pytest.raises(ErrorGroup) as caught:
        renumbered(diff(hunk(1), path=PATH) + diff(hunk(2)))
    assert [error.code for error in caught.value.errors] == ["IMPORT_AMBIGUOUS"] * 2


def test_a_hunk_without_context_is_refused() -> None:
    for text in ("@@ -2,0 +3 @@\n+int x;\n", '@@ -1 +1 @@\n-#include "tests.h"\n+#include "t.h"\n'):
        with refused("IMPORT_AMBIGUOUS", match="no lines of context"):
            renumbered(diff(text))


def test_a_hunk_between_definitions_is_placed_despite_the_heading_above_it() -> None:
    text = "int a() {\n    return 1;\n}\n\nint b() {\n    return 2;\n}\n\nint d() {\n    return 4;\n}\n"
    rows = [
        "     return 2;",
        " }",
        " ",
        "+int c() {",
        "+    return 3;",
        "+}",
        "+",
        " int d() {",
        "     return 4;",
        " }",
    ]
    added = "\n".join(["@@ -6,6 +6,10 @@ int was_here() {", *rows, ""])
    (moved,) = renumbered(diff(added), text).moved
    assert (moved.offset, moved.inside, moved.heading) == (0, "", "int was_here() {")


def test_a_file_that_occurs_twice_is_changed_twice() -> None:
    first = diff(hunk(FIRST))
    second = diff(hunk(FIRST, old="7e-4", new="8e-4"))
    assert made(renumbered(first + second)) == at(FIRST).replace("7e-4", "8e-4")


def test_line_endings_are_part_of_the_lines() -> None:
    dos = TESTS.replace("\n", "\r\n")
    assert renumbered(diff(hunk(FIRST)), dos).files == {}
    lines = hunk(FIRST).replace("\n", "\r\n").replace("\r\n", "\n", 1)
    assert renumbered(diff(lines), dos).files == {PATH: at(FIRST).replace("\n", "\r\n").encode()}
    end = "@@ -19,3 +19,3 @@\n         return 2*n;\n     }\n-};\n\\ No newline at end of file\n+};\n"
    assert renumbered(diff(end)).files == {}
    assert renumbered(diff(end), TESTS.removesuffix("\n")).files == {PATH: TESTS.encode()}


def test_diffs_are_parsed_like_git_does() -> None:
    quoted = b'--- "a/caf\\303\\251 \\"1\\".txt"\t2026-01-01\n+++ b/x y.txt\t\n@@ -1 +1 @@\n-a\n+--- b\n'
    dated = (
        b"Index: c\n--- c.orig 2026-01-01 10:00:00\n+++ c\n@@ -0,0 +1,2 @@ f\n+@@ -1 +1 @@\n+\n-- \n2.39\n"
    )
    parts = parse_diff(b"words\n" + quoted + dated)
    assert [(part.old, part.new) for part in parts] == [('a/café "1".txt', "b/x y.txt"), ("c.orig", "c")]
    assert [[each.lines for each in part.hunks] for part in parts] == [
        [(b"-a\n", b"+--- b\n")],
        [(b"+@@ -1 +1 @@\n", b"+\n")],
    ]


def test_only_files_below_a_folder_are_kept() -> None:
    outside = diff(hunk(FIRST), path="README.md")
    data = b"words\n" + outside + diff(hunk(FIRST), path="vendor/llama.cpp/a.cpp") + outside
    kept, others = keep_below(data, "vendor/llama.cpp", 1)
    assert kept == b"words\n" + diff(hunk(FIRST), path="vendor/llama.cpp/a.cpp")
    assert others == ("README.md",)
