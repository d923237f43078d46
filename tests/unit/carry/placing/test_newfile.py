"""New files of a patch: what may stand at their path, and what they must be to be added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup, Location, PatchkitError
from patchkit.base.toml import parse_toml
from patchkit.carry.placing.files import check_place
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import NewFile, parse_patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import Selected

HOME = "ggml/src/ggml-cuda"
TREE = (f"{HOME}/a.cu", f"{HOME}/CMakeLists.txt", f"{HOME}/instances/b.cu")
PATCH = """\
id = "demo"
title = "a new file"
why = "The demo needs one."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "no file"
builds = {{ first = 1, why = "the demo exists" }}
expected = {{ effect = "none", source = "nobody measured it" }}
guard = {{ macros = ["GGML_USE_HIP"] }}

[[file]]
path = "ggml/src/ggml-cuda/new{suffix}"
template = "new.jinja"

[[edit]]
id = "scale"
file = "ggml/src/ggml-cuda/a.cu"
function = "f"
at = {{ statement = "return x" }}
verb = "change_to"
side = "device"
text = "{text}"
"""


@pytest.mark.parametrize(
    "path", [f"{HOME}/new.cuh", f"{HOME}/instances/new.cu", f"{HOME}/new/deep.cuh", "b.cu"]
)
def test_a_free_path(path: str) -> None:
    assert check_place(_file(path), TREE) is None


@pytest.mark.parametrize(
    ("path", "code", "found"),
    [
        (f"{HOME}/a.cu", "NEW_FILE_BAD", f"{HOME}/a.cu"),
        (f"{HOME}/CMakeLists.txt", "NEW_FILE_BAD", f"{HOME}/CMakeLists.txt"),
        (f"{HOME}/a.cu/new.cuh", "NEW_FILE_BAD", f"{HOME}/a.cu"),
        (f"{HOME}/instances", "NEW_FILE_BAD", f"{HOME}/instances/"),
        (f"{HOME}/A.CU", "NEW_FILE_BAD", f"{HOME}/a.cu"),
        (f"{HOME}/Instances/new.cu", "NEW_FILE_BAD", f"{HOME}/instances/"),
    ],
)
def test_a_path_that_is_taken(path: str, code: str, found: str) -> None:
    error = check_place(_file(path), TREE)
    assert error is not None
    assert error.code == code
    assert [place.path for place in error.where] == ["patch.toml", found]


def _file(path: str) -> NewFile:
    return NewFile(path=path, template="t", where=Location(path="patch.toml", line=1))


@pytest.fixture
def place(tmp_path: Path, checkout: Path) -> Callable[..., PlacedPatch]:
    """Places a patch whose one new file has the given text."""

    def run(new: str, *, suffix: str = ".cuh", text: str = "return 2*x;") -> PlacedPatch:
        (tmp_path / "0001-demo").mkdir(exist_ok=True)
        (tmp_path / "0001-demo" / "new.jinja").write_text(new)
        document = parse_toml("patch.toml", PATCH.format(suffix=suffix, text=text).encode())
        patch = parse_patch(document, folder="0001-demo", number=1)
        files = UpstreamFiles(
            {
                f"{HOME}/a.cu": b"static __device__ int f(int x) {\n    return x;\n}\n",
                f"{HOME}/common.cuh": b"#pragma once\nstruct known { int member; };\n",
            },
            TREE,
        )
        targets = (load_profile(checkout / "arch_profiles", "gfx1151"),)
        selected = Selected(patch=patch, targets=targets, reason="")
        return place_patch(selected, files, tmp_path, tmp_path)

    return run


def _only(caught: pytest.ExceptionInfo[ErrorGroup]) -> PatchkitError:
    (error,) = caught.value.errors
    return error


@pytest.mark.parametrize(
    "text",
    [
        '#pragma once\n#include "common.cuh"\nstatic __device__ int g(known k) { return k.member; }\n',
        "#if defined(A)\n#elif B\n#else\n#endif\n/* #if in a comment */\n",
        "#pragma once\n#include <hip/never_there.h>\n",
        "",
    ],
)
def test_a_new_file_that_parses(place, text: str) -> None:
    assert place(text).changes[f"{HOME}/new.cuh"] == text.encode()


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        ("#pragma once\nthis is not a program\n", 2, "this is not a program"),
        ("int a;\nint f() { return 1\n", 2, "int f() { return 1"),
        ("#if defined(__HIP_DEVICE_COMPILE__)\n}\n#endif\n", 2, "}"),
        ("#ifndef __HIP_DEVICE_COMPILE__\nint = 3;\n#endif\n", 2, "int = 3;"),
    ],
)
def test_garbage_is_refused_with_its_line(place, text: str, line: int, shown: str) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place(text)
    error = _only(caught)
    assert error.code == "NEW_FILE_BAD"
    assert (error.where[0].path, error.where[0].line) == (f"{HOME}/new.cuh", line)
    assert error.where[0].label == shown
    assert error.where[1].path == "patch.toml"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int a;\n#endif\n", 2),
        ("int a;\n#else\n", 2),
        ("#if A\nint a;\n", 1),
        ("#if A\n#if B\n#endif\n", 1),
        ("#if A\n#endif\n#endif\n#if B\n", 3),
    ],
)
def test_an_if_without_partner_is_refused(place, text: str, line: int) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place(text)
    error = _only(caught)
    assert error.code == "NEW_FILE_BAD"
    assert error.where[0].line == line


def test_every_name_but_that_of_prose_is_taken_for_code(place) -> None:
    with pytest.raises(ErrorGroup):
        place("not code at all", suffix=".inc")
    assert place("not code at all #if", suffix=".md").new_files == (f"{HOME}/new.md",)


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [("return (x;", "EDIT_UNPARSABLE", "return (x;"), ("#endif", "GUARD_LEAK", "#else")],
)
def test_text_that_breaks_its_surroundings_is_shown(place, text: str, code: str, shown: str) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place("", text=text)
    error = _only(caught)
    assert error.code == code
    assert error.where[0].label == shown
    assert error.hint == "correct the text in patch.toml or in its template"
