"""When git's merge of a patch is accepted automatically, and why it is not."""

from __future__ import annotations

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.carry.judging.merge import MergedFile, merge_rendering
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import BuildRange, Edit, Patch
from patchkit.carry.series.selection import Selected
from patchkit.carry.series.selector import Selector

BODY = "    begin(n);\n    first(n);\n    middle(n);\n    last(n);\n    end(n);\n"
TWO, SIX = "int two(int n) {\n    return n;\n}\n", "int\nsix(int n) {\n    return 6;\n}\n"
OLD = f"int one(int n) {{\n{BODY}}}\n\n{TWO}\n{SIX}"
PATCHED = OLD.replace("middle(n)", "middle(2*n)")
ADDED = OLD.replace(SIX, "int five(int n) {\n    return 5;\n}\n\n" + SIX)


def merged(new: str | None, patched: str = PATCHED, old: str | None = OLD, path: str = "a.cpp") -> MergedFile:
    edit = Edit(id="e", file=path, at=Selector(end=True), verb="remove")
    patch = Patch(id="p", title="t", builds=BuildRange(first=1, why="w"), guard="none", edits=(edit,))
    base = {path: old.encode()} if old is not None else {}
    last = Rendering(
        selected=Selected(patch=patch, targets=(), reason=""),
        upstream=UpstreamFiles(base),
        before=base,
        placed=PlacedPatch(
            changes={path: patched.encode()}, edits=(), new_files=(), rendered={}, entities={}
        ),
    )
    files = UpstreamFiles({path: new.encode()} if new is not None else {})
    (found,) = merge_rendering(last, files, ("p", "old", "new"), NullReporter())
    return found


@pytest.mark.parametrize(
    "new",
    [
        OLD.replace("begin(n)", "begin(1)"),
        "// new\n" + OLD.replace("return n;", "return -n;"),
        f"int zero(int n) {{\n{BODY}}}\n\n{OLD}",
        OLD.replace("int one(int n)", "int one(const int n)"),
        OLD.replace("int one(", "int uno("),  # renamed, with the same lines
    ],
)
def test_a_change_in_the_same_function_is_accepted(new: str) -> None:
    found = merged(new)
    assert (found.doubt, found.conflicts) == ("", 0)
    assert found.merged.decode() == new.replace("middle(n)", "middle(2*n)") or new.count("middle(n)") == 2


def test_between_two_definitions_one_common_neighbour_is_enough() -> None:
    new = OLD.replace("int two", "int too(int n) {\n    return 2;\n}\n\nint two")
    assert merged(new, ADDED).doubt == ""
    assert merged(OLD.replace("int two", "int too"), ADDED).doubt == ""


@pytest.mark.parametrize(
    ("new", "patched", "why"),
    [
        (OLD.replace("middle(n)", "middle(3*n)"), PATCHED, "a conflict"),
        (
            OLD.replace("int one(", "int uno(").replace("begin(", "start(").replace(" end(", " stop("),
            PATCHED,
            "a change that was in 'one' is now in 'uno'",
        ),
        (
            OLD.replace("int two", "int too").replace("six", "ten"),
            ADDED,
            "a change that was after 'two' and before 'six' is now after 'too' and before 'ten'",
        ),
        (
            PATCHED.replace("begin(n)", "begin(1)"),
            PATCHED.replace("end(n)", "end(2)"),
            "upstream already has a part",
        ),
        (None, PATCHED, "upstream no longer has this file"),
    ],
)
def test_a_doubtful_merge_is_left_to_the_user(new: str | None, patched: str, why: str) -> None:
    assert merged(new, patched).doubt.startswith(why)


def test_a_change_that_upstream_has_leaves_nothing() -> None:
    found = merged(PATCHED)
    assert (found.doubt, found.is_left) == ("", False)


def test_an_added_file_is_kept_unless_upstream_has_one() -> None:
    assert merged(None, "int x;\n", None).is_new
    assert merged("int x;\n", "int x;\n", None).is_left is False
    assert merged("int y;\n", "int x;\n", None).doubt == "upstream now has a file of this name"


def test_files_that_are_not_code_have_no_functions() -> None:
    assert merged(OLD.replace("int one(", "int uno("), path="a.txt").doubt == ""
