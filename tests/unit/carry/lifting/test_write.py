"""The files that ``import`` and ``new`` write, byte for byte."""

from __future__ import annotations

from patchkit.carry.lifting.write import Body, NewEdit, NewPatch, folder_files, patch_id, profile_line
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.selector import Selector

WHOLE = """\
id = "more-columns"
title = 'the "limit"'
why = '''
Two lines,
with a C:\\path.
'''
links = ["https://one", "https://two"]
authors = ["A B <a@b>"]
status = "submitted"
context = ["guard", "values"]

[builds]
first = 11549
why = "imported from b11549; other builds were not checked"

[upstream]
url = "https://there/pull/7"
head = "2222"
base = "1111"
digest = "297bc0e2548eba0748c69e322d563844f2186989c741be6a363801ef96d25633"

[guard]
macros = ["GGML_USE_HIP", "MORE"]

[[file]]
path = "new/a.h"
template = "a.h.jinja"

[[file]]
path = "other/a.h"
template = "_a.h.jinja"

# A hunk of text: the tokens are there twice
[[edit]]
id = "one"
file = "a.cu"
function = "f"
parameters = "int x"
at = { lines = '''
    a;
    b;
''' }
verb = "change_to"
side = "host"
text = "@{ guard.host('cc') }@ ? @{ values['n'] }@ : 1"

[[edit]]
id = "two"
file = "a.cu"
at = { tokens = 'x = "a"', inside = { tokens = "f ( x )" } }
verb = "insert_after"
template = "two.jinja"

[[edit]]
id = "three"
file = "a.cu"
verb = "add_include"
header = "a.h"
"""

PLAIN = """\
id = "mine"
title = "mine"
guard = "none"

[builds]
first = 1
why = "written on b1"

[[edit]]
id = "mine"
file = "a.txt"
at = { lines = "a" }
verb = "remove"
"""

LONG = "a line\n" * 61


def test_a_patch_with_everything() -> None:
    edits = (
        NewEdit(
            id="one", file="a.cu", selector=Selector(lines="    a;\n    b;\n"), verb="change_to",
            function="f", parameters="int x", side="host",
            text="@{ guard.host('cc') }@ ? @{ values['n'] }@ : 1", note="the tokens are there twice",
        ),
        NewEdit(
            id="two", file="a.cu", selector=Selector(tokens='x = "a"', inside=Selector(tokens="f ( x )")),
            verb="insert_after", text=LONG,
        ),
        NewEdit(id="three", file="a.cu", selector=None, verb="add_include", header="a.h"),
    )  # fmt: skip
    patch = NewPatch(
        id="more-columns",
        title='the "limit"',
        first_build=11549,
        builds_why="imported from b11549; other builds were not checked",
        archs=("gfx1151",),
        body=Body(edits=edits, files={"new/a.h": "one\n", "other/a.h": "two\n"}),
        why="Two lines,\nwith a C:\\path.\n",
        links=("https://one", "https://two"),
        authors=("A B <a@b>",),
        upstream_url="https://there/pull/7",
        upstream_ends=("1111", "2222"),
        macros=("MORE",),
    )
    found = folder_files(patch)
    assert found.pop("patch.toml") == WHOLE
    assert found == {"a.h.jinja": "one\n", "_a.h.jinja": "two\n", "two.jinja": LONG}
    assert profile_line(patch, 'a "source"') == (
        'more-columns = { default = "opt-in", why = "Written on this machine; nobody measured it yet.", '
        "source = 'a \"source\"' }\n"
    )


def test_a_patch_without_optional_parts() -> None:
    edit = NewEdit(id="mine", file="a.txt", selector=Selector(lines="a"), verb="remove")
    body = Body(edits=(edit,))
    patch = NewPatch(
        id="mine", title="mine", first_build=1, builds_why="written on b1", archs=None, body=body
    )
    assert folder_files(patch) == {"patch.toml": PLAIN}


def test_long_texts_are_written() -> None:
    text = "x" * (2 * 1024 * 1024)
    edit = NewEdit(id="mine", file="a.txt", selector=Selector(lines=text), verb="remove")
    patch = NewPatch(id="p", title="p", first_build=1, builds_why="w", archs=None, body=Body(edits=(edit,)))
    assert f'at = {{ lines = "{text}" }}' in folder_files(patch)["patch.toml"]


def test_an_id_from_a_long_title_ends_with_a_whole_word() -> None:
    none = Series(folders=("ggml/src/ggml-cuda",))
    assert patch_id(None, "A title that goes on for a while, until it is too long", none) == (
        "a-title-that-goes-on-for-a-while-until"
    )
    assert patch_id(None, "x" * 50, none) == "x" * 40
