"""``patchkit bisect`` with git, cmake and a compiler, on an upstream with a program of a few lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from demo_world import make_upstream, pin_text

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main

pytestmark = pytest.mark.cpu_build

_CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(tiny C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(ggml-cpu SHARED ggml/cpu.c)
add_executable(llama-cli tools/main.c)
"""
_MAIN = """\
#include <stdio.h>

static int one(void) {{
    return 1;
}}

static int two(void) {{
    return 2;
}}

static int three(void) {{
    return 3;
}}

int main(void) {{
    printf("%d\\n", one() + two() + three() + {0});
    return 0;
}}
"""
_PATCH = """\
id = "{0}"
title = "{0}"
guard = "none"
why = "planted"

[builds]
first = 1
why = "planted"

[[edit]]
id = "edit"
file = "tools/main.c"
function = "{1}"
at = {{ tokens = "{2}" }}
verb = "change_to"
text = "{3}"
"""
_IS_SIX = 'test "$(llama-cli)" = 6'


def make_world(root: Path, *, added: dict[int, str], patches: dict[str, tuple[str, str, str]]) -> list[str]:
    """Builds 101 to 112, the series with its lock at 112, and the options that select them.

    ``added``: what is added in main from that build on; it may be no C at all.
    """
    builds: dict[int, dict[str, str | None]] = {build: {"README.md": str(build)} for build in range(101, 113)}
    builds[101] |= {"CMakeLists.txt": _CMAKE, "include/llama.h": "\n", "ggml/cpu.c": "int cpu;\n"}
    for build, text in {101: "0", **added}.items():
        builds[build]["tools/main.c"] = _MAIN.format(text)
    make_upstream(root / "upstream", builds)
    folder = root / "series" / "patches"
    folder.mkdir(parents=True)
    (folder / "series.toml").write_text("plain = true\n")
    (folder / "upstream.lock").write_text(pin_text(root / "upstream", 112))
    for number, (name, edit) in enumerate(patches.items(), start=1):
        (folder / f"{number:04}-{name}").mkdir()
        (folder / f"{number:04}-{name}" / "patch.toml").write_text(_PATCH.format(name, *edit))
    return ["--series-dir", str(root / "series"), "--cache-dir", str(root / "cache")]


def found(capsys, *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["bisect", *words, "--program", "llama-cli", "--json", "--", "sh", "-c", _IS_SIX]) == code
    return json.loads(capsys.readouterr().out)


def test_the_first_bad_build_next_to_builds_that_do_not_compile(tmp_path: Path, capsys) -> None:
    where = make_world(
        tmp_path,
        added={105: "undeclared", 106: "0", 108: "1"},
        patches={"same": ("one", "return 1", "return 1 + 0")},
    )
    told = found(capsys, *where, "--good", "b101", "--no-patches")
    assert (told["good"], told["bad"], told["skipped"], told["patch"]) == ("b107", "b108", [], None)
    assert len(told["commit"]) == 40
    # Builds before the range are not tested; with patches the search goes on in the same list.
    more = found(capsys, *where, "--good", "b103")
    assert more["bad"] == "b108"
    error = found(capsys, *where, "--good", "b112", "--no-patches", code=ExitCode.USAGE)["error"]
    assert "is not before" in error["message"]
    error = found(capsys, *where, "--good", "b109", "--no-patches", code=ExitCode.USAGE)["error"]
    assert (error["code"], "the first candidate, is bad" in error["message"]) == ("BISECT_ENDS", True)


def test_a_fault_at_a_build_that_does_not_compile_is_not_blamed_on_one(tmp_path: Path, capsys) -> None:
    where = make_world(tmp_path, added={106: "undeclared", 107: "1"}, patches={})
    told = found(capsys, *where, "--good", "b101", "--no-patches")
    assert (told["good"], told["bad"], told["skipped"]) == ("b105", "b107", ["b106"])
    skipped = next(each for each in told["tested"] if each["outcome"] == "skip")
    assert "undeclared" in skipped["why"]
    error = found(capsys, *where, code=ExitCode.USAGE)["error"]
    assert error["code"] == "NOTHING_SELECTED"


def test_the_first_bad_patch(tmp_path: Path, capsys) -> None:
    where = make_world(
        tmp_path,
        added={},
        patches={
            "same-one": ("one", "return 1", "return 1 + 0"),
            "wrong-two": ("two", "return 2", "return 2 + 1"),
            "same-three": ("three", "return 3", "return 3 + 0"),
        },
    )
    told = found(capsys, *where)
    assert (told["good"], told["bad"]) == ("b112 + same-one", "b112 + wrong-two")
    assert (told["patch"], told["without"]) == ("wrong-two", "good")
    again = found(capsys, *where)
    assert again["kept"] == len(told["tested"])
    assert again["tested"] == told["tested"]
    # The builds are kept as well: after a loss of all outcomes nothing is compiled.
    shutil.rmtree(tmp_path / "cache" / "bisect")
    logs = {path: path.stat().st_size for path in (tmp_path / "cache").rglob("build.log")}
    assert found(capsys, *where)["bad"] == told["bad"]
    assert {path: path.stat().st_size for path in (tmp_path / "cache").rglob("build.log")} == logs
