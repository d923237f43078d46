"""What a plain patch does to whole files, and what keeps it from doing so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.base.toml import parse_toml
from patchkit.carry.placing.files import MAX_BLOB
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import parse_patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import Selected

HEAD = """\
id = "demo"
title = "files"
builds = { first = 1, why = "the demo exists" }
guard = "none"
"""
TOOL = b"int f(int x) {\n    return x;\n}\n"
LOGO = b"\x89PNG\r\n\0\xff"
TREE = {
    "common/tool.cpp": TOOL,
    "run.sh": b"echo\n",
    "logo.png": LOGO,
    "notes/old.md": b"",
    "notes/b.md": b"b\n",
}
MODES = {"run.sh": "100755", "link": "120000", "sub": "160000"}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Place = Callable[..., PlacedPatch]


@pytest.fixture
def place(tmp_path: Path, checkout: Path) -> Place:
    """Places a plain patch with the given tables; files beside its patch.toml are given by name."""

    def run(tables: str, beside: dict[str, bytes] | None = None) -> PlacedPatch:
        folder = tmp_path / "0001-demo"
        folder.mkdir(exist_ok=True)
        for name, data in (beside or {}).items():
            (folder / name).write_bytes(data)
        patch = parse_patch(parse_toml("patch.toml", (HEAD + tables).encode()), folder=folder.name, number=1)
        targets = (load_profile(checkout / "arch_profiles", "gfx1151"),)
        files = UpstreamFiles(TREE, [*TREE, "link", "sub", "big/one.txt"], modes=MODES)
        return place_patch(Selected(patch=patch, targets=targets, reason=""), files, tmp_path, tmp_path)

    return run


def remove(path: str, data: bytes) -> str:
    return f'\n[[remove]]\npath = "{path}"\nsha256 = "{sha256(data)}"\n'


def rename(source: str, to: str) -> str:
    return f'\n[[rename]]\nfrom = "{source}"\nto = "{to}"\n'


def mode(path: str, executable: str) -> str:
    return f'\n[[mode]]\npath = "{path}"\nexecutable = {executable}\n'


def blob(path: str, data: bytes, more: str = "") -> str:
    return f'\n[[file]]\npath = "{path}"\nblob = "a.bin"\nsha256 = "{sha256(data)}"\n{more}\n'


EDIT = """
[[edit]]
id = "twice"
file = "common/tool.cpp"
function = "f"
at = { statement = "return x" }
verb = "change_to"
text = "return 2*x;"
"""


def test_a_removed_file_is_gone_an_empty_one_too(place: Place) -> None:
    placed = place(remove("logo.png", LOGO) + remove("notes/old.md", b""))
    assert (placed.changes, placed.gone) == ({}, ("logo.png", "notes/old.md"))


def test_a_renamed_file_keeps_what_upstream_has_in_it_and_its_mode(place: Place) -> None:
    placed = place(rename("run.sh", "scripts/go.sh") + rename("logo.png", "media/logo.png"))
    assert placed.changes == {"scripts/go.sh": b"echo\n", "media/logo.png": LOGO}
    assert placed.gone == ("logo.png", "run.sh")
    assert placed.modes == {"scripts/go.sh": "100755"}
    assert placed.new_files == ()


def test_edits_and_a_mode_of_a_renamed_file_name_it_where_upstream_has_it(place: Place) -> None:
    placed = place(rename("common/tool.cpp", "tools/tool.cpp") + mode("common/tool.cpp", "true") + EDIT)
    assert placed.changes == {"tools/tool.cpp": TOOL.replace(b"return x;", b"return 2*x;")}
    assert placed.modes == {"tools/tool.cpp": "100755"}
    assert placed.edits[0].file == "common/tool.cpp"


def test_a_mode_changes_no_byte(place: Place) -> None:
    placed = place(mode("common/tool.cpp", "true") + mode("run.sh", "false"))
    assert placed.changes == {"common/tool.cpp": TOOL, "run.sh": b"echo\n"}
    assert placed.modes == {"common/tool.cpp": "100755", "run.sh": "100644"}


def test_an_edit_and_a_mode_of_one_file(place: Place) -> None:
    placed = place(EDIT + mode("common/tool.cpp", "true"))
    assert b"2*x" in placed.changes["common/tool.cpp"]


def test_a_blob_is_taken_as_it_is_and_stands_in_what_was_rendered(place: Place) -> None:
    data = b"\0caf\xe9\r\n@{ nothing }@"
    placed = place(blob("a b/new.bin", data, "executable = true"), {"a.bin": data})
    assert placed.changes == {"a b/new.bin": data}
    assert placed.modes == {"a b/new.bin": "100755"}
    assert placed.rendered == {"a b/new.bin": sha256(data)}


def test_a_file_of_upstreams_gets_the_content_of_a_blob(place: Place) -> None:
    placed = place(blob("logo.png", b"\0new", f'replaces = "{sha256(LOGO)}"'), {"a.bin": b"\0new"})
    assert placed.changes == {"logo.png": b"\0new"}
    assert (placed.replaced, placed.new_files, placed.gone) == (("logo.png",), (), ())


def test_what_goes_makes_room_for_what_comes(place: Place) -> None:
    tables = rename("notes/b.md", "notes/B.md") + remove("run.sh", b"echo\n") + blob("run.sh/a.bin", b"1")
    placed = place(tables, {"a.bin": b"1"})
    assert placed.changes == {"notes/B.md": b"b\n", "run.sh/a.bin": b"1"}


@pytest.mark.parametrize("name", ["table.inc", "kernel.metal", "rows.def", "part.ipp"])
def test_a_new_fragment_need_not_parse_by_itself(place: Place, name: str) -> None:
    text = b"case 1: return 2;\n}\n"
    table = f'\n[[file]]\npath = "ggml/src/ggml-cuda/{name}"\ntemplate = "a.jinja"\n'
    placed = place(table, {"a.jinja": text})
    assert placed.changes == {f"ggml/src/ggml-cuda/{name}": text}


def test_a_new_unit_has_to_parse(place: Place) -> None:
    table = '\n[[file]]\npath = "ggml/src/ggml-cuda/a.cu"\ntemplate = "a.jinja"\n'
    with pytest.raises(ErrorGroup) as caught:
        place(table, {"a.jinja": b"case 1: return 2;\n}\n"})
    assert [error.code for error in caught.value.errors] == ["NEW_FILE_BAD"]


NEW = b"1"
REFUSED = {
    "removed, and not there": (remove("gone.cpp", b""), "UPSTREAM_FILE_MISSING"),
    "removed, and changed": (remove("run.sh", b"else"), "FILE_CHANGED"),
    "removed, and a link": (remove("link", b""), "FILE_IS_LINK"),
    "renamed, and a submodule": (rename("sub", "other"), "FILE_IS_LINK"),
    "renamed, and not there": (rename("a/tool.cpp", "b.cpp"), "UPSTREAM_FILE_MISSING"),
    "renamed to a file": (rename("run.sh", "logo.png"), "NEW_FILE_BAD"),
    "renamed below a file": (rename("run.sh", "logo.png/a"), "NEW_FILE_BAD"),
    "renamed below a link": (rename("run.sh", "link/a"), "NEW_FILE_BAD"),
    "renamed to a folder": (rename("run.sh", "notes"), "NEW_FILE_BAD"),
    "two files that differ in case": (
        rename("run.sh", "Notes/x") + rename("notes/b.md", "d"),
        "NEW_FILE_BAD",
    ),
    "two renamed to names that differ in case": (
        rename("run.sh", "x") + rename("notes/b.md", "X"),
        "NEW_FILE_BAD",
    ),
    "a mode that it has": (mode("run.sh", "true"), "FILE_MODE_ALREADY"),
    "a mode of a link": (mode("link", "true"), "FILE_IS_LINK"),
    "replaced, and changed": (blob("run.sh", NEW, f'replaces = "{sha256(NEW)}"'), "FILE_CHANGED"),
    "a blob that is another one": (blob("x", b"2"), "BLOB_BAD"),
    "a blob in a file that is there": (blob("run.sh", NEW), "NEW_FILE_BAD"),
    "a blob that is not there": (blob("x", NEW).replace("a.bin", "b.bin"), "BLOB_BAD"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_told_with_both_sides(place: Place, what: str) -> None:
    tables, code = REFUSED[what]
    with pytest.raises(ErrorGroup) as caught:
        place(tables, {"a.bin": NEW})
    (error,) = caught.value.errors
    assert error.code == code
    assert error.where[0].path == "patch.toml"
    assert error.hint


def test_a_changed_file_is_told_with_both_digests(place: Place) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place(remove("run.sh", b"else"))
    (error,) = caught.value.errors
    assert error.why is not None
    assert sha256(b"echo\n") in error.why
    assert sha256(b"else") in error.why


def test_a_file_that_moved_upstream_is_told_by_its_name(place: Place) -> None:
    with pytest.raises(ErrorGroup) as caught:
        place(remove("far/away/from/it/run.sh", b""))
    (error,) = caught.value.errors
    assert "run.sh" in [place.path for place in error.where]


def test_a_blob_is_a_file_of_its_folder_and_no_larger_than_it_may_be(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "0001-demo"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(NEW)
    (folder / "a.bin").symlink_to(tmp_path / "secret")
    for code, prepare in (
        ("BLOB_BAD", lambda: None),
        ("BLOB_BAD", lambda: _sparse(folder / "a.bin", 100 * 2**20)),
        ("BLOB_BAD", lambda: _sparse(folder / "a.bin", MAX_BLOB + 1)),
        ("BLOB_BAD", lambda: _folder(folder / "a.bin")),
    ):
        prepare()
        with pytest.raises(ErrorGroup) as caught:
            place(blob("x", NEW))
        assert [error.code for error in caught.value.errors] == [code]
    (folder / ".a.bin").write_bytes(NEW)  # no digest of the lock covers it
    with pytest.raises(ErrorGroup) as caught:
        place(blob("x", NEW).replace("a.bin", ".a.bin"))
    assert [error.code for error in caught.value.errors] == ["BLOB_BAD"]


def _sparse(path: Path, size: int) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_the_files_that_the_patches_before_left_are_what_the_next_one_finds() -> None:
    files = UpstreamFiles(TREE, TREE, modes=MODES)
    files.write({"go.sh": b"echo\n"}, ("run.sh",), {"go.sh": "100755"})
    assert (files.read("run.sh"), files.read("go.sh"), files.mode("go.sh")) == (None, b"echo\n", "100755")
    assert "run.sh" not in files.names | set(files.paths)
    files.write({"run.sh": b"new\n"})
    assert (files.read("run.sh"), files.mode("run.sh")) == (b"new\n", "100644")
    fresh = files.fresh()
    assert (fresh.read("run.sh"), fresh.mode("run.sh")) == (b"echo\n", "100755")
