"""Trees that are kept on disk: used where nothing changed, and never where something did."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patchkit.carry.cpp.ast import Preprocessing, Tree, _obtain, parse_tree, parser_digest

FILES: Mapping[str, bytes] = {
    "ggml/src/ggml-cuda/a.cu": b"""#include "b.cuh"
#ifdef ONE
int one() { return 1; }
#else
int two(MADE x) { return 2; }
#endif
__device__ int three() { return 3; }
""",
    "ggml/src/ggml-cuda/b.cuh": b"#define MADE int\n",
}
PATH = "ggml/src/ggml-cuda/a.cu"


def ask(kept: Path | None, **options: Any) -> Tree:
    asked = {"files": FILES, "arch": "gfx1151", "which": "host", **options}
    _obtain.cache_clear()  # as another process would
    return parse_tree(PATH, asked.pop("files"), kept=kept, **asked)


def entries(kept: Path) -> list[Path]:
    return sorted(kept.rglob("text"))


def test_what_was_kept_is_what_is_parsed(tmp_path: Path) -> None:
    for options in ({}, {"with_names": True}, {"with_skipped": False}, {"which": "device"}):
        parsed = ask(None, **options)
        assert ask(tmp_path, **options) == parsed
        assert ask(tmp_path, **options) == parsed
    assert len(entries(tmp_path)) == 4


def test_it_is_read_and_not_parsed_again(tmp_path: Path) -> None:
    ask(tmp_path)
    (entry,) = entries(tmp_path)
    body = entry.read_bytes().partition(b"\n")[2].replace(b'"two"', b'"other"')
    entry.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert [one.name for one in ask(tmp_path).definitions] == ["other", "three"]


@pytest.mark.parametrize("kind", ["flipped", "cut", "empty", "another", "folder"])
def test_an_entry_that_was_spoiled_is_parsed_again(tmp_path: Path, kind: str) -> None:
    ask(tmp_path)
    (entry,) = entries(tmp_path)
    text = entry.read_bytes()
    if kind == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        body = b'{"definitions": 1}'
        entry.write_bytes(
            {
                "flipped": text.replace(b'"two"', b'"tww"'),
                "cut": text[:-3],
                "empty": b"",
                "another": hashlib.sha256(body).hexdigest().encode() + b"\n" + body,
            }[kind]
        )
    assert ask(tmp_path) == ask(None)
    assert ask(tmp_path) == ask(None)


@pytest.mark.parametrize(
    "changed",
    [
        {"files": {**FILES, PATH: FILES[PATH].replace(b"two", b"ten")}},
        {"files": {**FILES, "ggml/src/ggml-cuda/b.cuh": b"#define ONE\n"}},
        {"files": {PATH: FILES[PATH]}},
        {"preprocessing": Preprocessing(defines=("ONE",))},
        {"which": "device"},
        {"arch": "gfx1201"},
        {"with_names": True},
        {"with_skipped": False},
    ],
    ids=["text", "header", "no header", "macro", "pass", "GPU", "names", "skipped"],
)
def test_anything_else_that_a_parse_can_see_is_another_entry(tmp_path: Path, changed: dict[str, Any]) -> None:
    before = ask(tmp_path)
    assert ask(tmp_path, **changed) == ask(None, **changed)
    assert ask(tmp_path) == before
    assert len(entries(tmp_path)) == 2


def test_a_folder_that_takes_nothing_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert ask(tmp_path / "file" / "below") == ask(None)
    assert (tmp_path / "file").read_text() == "mine"


def test_where_clang_looks_into_other_folders_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert ask(tmp_path / "kept") == ask(None)
    assert not (tmp_path / "kept").exists()


def test_another_library_or_machine_finds_nothing_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "another")
    parser_digest.cache_clear()
    try:
        ask(tmp_path)
        assert len(entries(tmp_path)) == 2
    finally:
        parser_digest.cache_clear()
