"""``patchkit bisect`` with git, cmake and a compiler, on an upstream with a program of a few lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_upstream import make_tiny_world

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main

pytestmark = pytest.mark.cpu_build

_IS_SIX = 'test "$(llama-cli)" = 6'


def found(capsys, *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["bisect", *words, "--program", "llama-cli", "--json", "--", "sh", "-c", _IS_SIX]) == code
    return json.loads(capsys.readouterr().out)


def test_the_first_bad_build_next_to_builds_that_do_not_compile(tmp_path: Path, capsys) -> None:
    where = make_tiny_world(
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
    where = make_tiny_world(tmp_path, added={106: "undeclared", 107: "1"}, patches={})
    told = found(capsys, *where, "--good", "b101", "--no-patches")
    assert (told["good"], told["bad"], told["skipped"]) == ("b105", "b107", ["b106"])
    skipped = next(each for each in told["tested"] if each["outcome"] == "skip")
    assert "undeclared" in skipped["why"]
    error = found(capsys, *where, code=ExitCode.USAGE)["error"]
    assert error["code"] == "NOTHING_SELECTED"


def test_the_first_bad_patch(tmp_path: Path, capsys) -> None:
    where = make_tiny_world(
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
