"""What becomes of an edit or a new file about which clang says something (issue 42)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.base.toml import parse_toml
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import parse_patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import Selected

PLAIN = """\
id = "demo"
title = "a change"
guard = "none"
builds = {{ first = 1, why = "any" }}

[[edit]]
id = "edit-1"
file = "{file}"
function = "f"
at = {{ tokens = "return x" }}
verb = "change_to"
text = '''{text}'''
"""
GUARDED = """\
id = "demo"
title = "a change"
why = "The demo needs one."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "no change"
builds = {{ first = 1, why = "the demo exists" }}
expected = {{ effect = "none", source = "nobody measured it" }}
guard = {{ macros = ["GGML_USE_HIP"] }}

[[edit]]
id = "edit-1"
file = "{file}"
function = "f"
at = {{ tokens = "return x" }}
verb = "change_to"
side = "device"
text = '''{text}'''
"""
CPP = "common/sub/a.cpp"
CUDA = "ggml/src/ggml-cuda/a.cu"
FUNCTION = b"int f(int x) {\n    return x;\n}\nint g(int x) { return x; }\n"
TREE = {
    CPP: b'#include "names.h"\n' + FUNCTION,
    CUDA: b"#pragma once\n__device__ " + FUNCTION,
    "kernels/a.metal": b"kernel void g(device float * x [[buffer(0)]]) { }\n" + FUNCTION,
    "common/names.h": b'typedef long count_t;\n#define SHOWN "ld"\nvoid print(const char *, ...);\n',
}


@pytest.fixture
def place(tmp_path: Path, checkout: Path) -> Callable[..., PlacedPatch]:
    """Places a patch with one edit and, when told so, one new file; only the edited file is read at first."""

    def run(text: str, file: str = CPP, form: str = PLAIN, new: dict[str, str] | None = None) -> PlacedPatch:
        (tmp_path / "0001-demo").mkdir(exist_ok=True)
        body = form.format(file=file, text=text)
        for number, (path, data) in enumerate((new or {}).items()):
            (tmp_path / "0001-demo" / f"{number}.jinja").write_text(data)
            body += f'\n[[file]]\npath = "{path}"\ntemplate = "{number}.jinja"\n'
        patch = parse_patch(parse_toml("patch.toml", body.encode()), folder="0001-demo", number=1)
        files = UpstreamFiles({file: TREE[file]}, TREE, lambda more: {path: TREE[path] for path in more})
        targets = (load_profile(checkout / "arch_profiles", "gfx1151"),)
        return place_patch(Selected(patch=patch, targets=targets, reason=""), files, tmp_path, tmp_path)

    return run


def refused(caught: pytest.ExceptionInfo[ErrorGroup]):
    (error,) = caught.value.errors
    return error


@pytest.mark.parametrize("file", [CPP, CUDA])
def test_right_code_is_placed_without_a_word(place, file) -> None:
    assert place("std::vector<std::pair<int, int>> v; return v.size()", file).warnings == ()


@pytest.mark.parametrize("text", ["return x > 0 ? (count_t) x : 0", 'print("%" SHOWN, x); return x'])
def test_names_of_the_headers_that_a_file_includes_are_known(place, text) -> None:
    assert place(text).warnings == ()
    assert len(place(text, CUDA).warnings) == 1


@pytest.mark.parametrize("file", [CPP, CUDA])
def test_a_syntax_error_that_no_name_explains_is_refused(place, file) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place("int y = 1 y++; return x", file)
    error = refused(caught)
    assert (error.code, error.where[0].line) == ("EDIT_UNPARSABLE", 3)
    assert error.message == "syntax error after the edit: expected ';' at end of declaration"


def test_what_an_unknown_name_may_explain_is_a_warning_of_a_plain_patch(place) -> None:
    (warning,) = place("return x > 0 ? (far_t) x : 0").warnings
    assert warning == (
        "common/sub/a.cpp:3:28: clang reports 'expected ':'', perhaps because no parsed file declares 'far_t'"
    )


def test_what_an_unknown_name_may_explain_is_refused_behind_a_guard(place) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place("return x > 0 ? (far_t) x : 0", CUDA, GUARDED)
    error = refused(caught)
    assert error.code == "EDIT_UNPARSABLE"
    assert error.message.startswith("possible syntax error in the device gfx1151 pass after the edit")
    assert "'far_t'" in (error.why or "")


def test_a_misspelt_keyword_is_a_warning_unless_something_declares_the_name(place) -> None:
    found = place("retrun x", CUDA, GUARDED).warnings
    assert found == (f"{CUDA}:4:5: no parsed file declares 'retrun'; did you mean 'return'?",)
    assert place("int retrun = x; return retrun").warnings == ()


def test_another_language_goes_by_text(place) -> None:
    assert place("return as_type<float>(x) = ;", "kernels/a.metal").warnings == ()


def test_a_new_file_is_held_to_the_same(place) -> None:
    right = '#include "names.h"\ncount_t h(long x) { return (count_t) x; }\n'
    assert place("return 1", new={"common/sub/new.cpp": right}).warnings == ()
    doubtful = place(
        "return 1", new={"common/sub/new.cpp": "int h(int x) { return x > 0 ? (far_t) x : 0; }\n"}
    )
    assert "'far_t'" in doubtful.warnings[0]
    assert doubtful.new_files == ("common/sub/new.cpp",)
    with pytest.raises(ErrorGroup) as caught:
        place("return 1", new={"src/new.h": "int h(int x) { return x }\n"})
    assert refused(caught).code == "NEW_FILE_BAD"


@pytest.mark.parametrize("path", ["a/new.metal", "a/new.cl", "a/new.inc", "a/new.py"])
def test_a_new_file_of_another_language_goes_by_text(place, path) -> None:
    assert place("return 1", new={path: "this is = not (a program\n"}).warnings == ()


def test_what_a_patch_changes_in_one_file_is_known_in_its_others(tmp_path: Path, checkout: Path) -> None:
    # A macro that gets a second argument: its users are in another file, and in a new one (a fork's
    # TurboQuant commit does that with __shfl_xor_sync).
    (tmp_path / "0001-demo").mkdir()
    (tmp_path / "0001-demo" / "new.jinja").write_text(
        '#include "names.h"\nint n(int a) { return TWICE(a, 2); }\n'
    )
    body = PLAIN.format(file=CPP, text="return TWICE(x, 2)") + (
        '\n[[edit]]\nid = "edit-2"\nfile = "common/names.h"\nat = { lines = "#define TWICE(a) a" }\n'
        'verb = "change_to"\ntext = "#define TWICE(a, b) a\\n"\n'
        '\n[[file]]\npath = "common/sub/new.cpp"\ntemplate = "new.jinja"\n'
    )
    patch = parse_patch(parse_toml("patch.toml", body.encode()), folder="0001-demo", number=1)
    tree = {CPP: TREE[CPP], "common/names.h": b"#define TWICE(a) a\n"}
    targets = (load_profile(checkout / "arch_profiles", "gfx1151"),)
    selected = Selected(patch=patch, targets=targets, reason="")
    placed = place_patch(selected, UpstreamFiles(tree), tmp_path, tmp_path)
    assert sorted(placed.changes) == ["common/names.h", CPP, "common/sub/new.cpp"]
    assert placed.warnings == ()
