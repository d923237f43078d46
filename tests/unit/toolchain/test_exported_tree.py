"""Exported trees: the files of a commit, written once and atomically."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import CacheError
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.toolchain.tree import overlay_tree


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return create_repository(tmp_path / "upstream.git", NullReporter())


def _commit(repository: Repository, entries: list[tuple[str, bytes, bytes]]) -> str:
    """A commit of a tree whose entries are (mode, path, bytes)."""
    lines = b"".join(
        mode.encode() + b" " + repository.write_object("blob", data).encode() + b" 0\t" + path + b"\0"
        for mode, path, data in entries
    )
    index = repository.path / "test-index"
    environ = {**os.environ, "GIT_INDEX_FILE": str(index)}
    run = ["git", f"--git-dir={repository.path}"]
    subprocess.run([*run, "update-index", "-z", "--index-info"], input=lines, env=environ, check=True)
    tree = subprocess.run([*run, "write-tree"], env=environ, check=True, capture_output=True).stdout.decode()
    index.unlink()
    author = "A <a@example.org> 0 +0000"
    text = f"tree {tree.strip()}\nauthor {author}\ncommitter {author}\n\nx\n"
    return repository.write_object("commit", text.encode())


def test_files_modes_and_links_are_as_git_has_them(repository: Repository, tmp_path: Path) -> None:
    commit = _commit(
        repository,
        [
            ("100644", b"a/plain.cu", b"int x;\r\n"),
            ("100755", b"run.sh", b"#!/bin/sh\n"),
            ("120000", b"a/link", b"../run.sh"),
            ("100644", b"a/caf\xe9.txt", b"latin-1 name"),
        ],
    )
    exported = export_tree(repository, commit, tmp_path / "trees")
    assert exported.root == tmp_path / "trees" / repository.tree_of(commit)
    assert (exported.root / "a/plain.cu").read_bytes() == b"int x;\r\n"
    assert os.access(exported.root / "run.sh", os.X_OK)
    assert (exported.root / "a/link").readlink() == Path("../run.sh")
    assert (exported.root / os.fsdecode(b"a/caf\xe9.txt")).read_bytes() == b"latin-1 name"
    assert not stat.S_IMODE((exported.root / "a/plain.cu").stat().st_mode) & 0o222


def test_an_existing_tree_is_not_written_again(repository: Repository, tmp_path: Path) -> None:
    commit = _commit(repository, [("100644", b"a", b"1")])
    first = export_tree(repository, commit, tmp_path / "trees")
    marker = first.root / "marker"
    marker.write_text("kept")
    assert export_tree(repository, commit, tmp_path / "trees") == first
    assert marker.read_text() == "kept"
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [first.tree]


def test_files_of_a_like_tree_are_linked_unless_they_are_no_longer_what_git_says(
    repository: Repository, tmp_path: Path
) -> None:
    files = {
        name: b"%s of upstream\n" % name for name in (b"a/same", b"a/altered", b"a/gone", b"a/linked", b"run")
    }
    upstream = [("100755" if name == b"run" else "100644", name, data) for name, data in files.items()]
    patched = [("100644", b"new", b"ours\n"), *upstream]
    patched = [(mode, name, b"ours\n" if name == b"run" else data) for mode, name, data in patched]
    like = export_tree(repository, _commit(repository, upstream), tmp_path / "trees")
    (like.root / "a/altered").chmod(0o644)
    (like.root / "a/altered").write_bytes(b"a stranger's\n")
    (like.root / "a/gone").unlink()
    (like.root / "a/linked").unlink()
    (tmp_path / "elsewhere").write_bytes(files[b"a/linked"])
    (like.root / "a/linked").symlink_to(tmp_path / "elsewhere")
    made = export_tree(repository, _commit(repository, patched), tmp_path / "trees", like=like)
    for _, name, data in patched:
        assert (made.root / name.decode()).read_bytes() == data
        assert not (made.root / name.decode()).is_symlink()
    assert (made.root / "a/same").samefile(like.root / "a/same")
    assert (made.root / "run").stat().st_mode & 0o777 == 0o555
    assert not (made.root / "a/linked").samefile(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("mode", "path", "data"),
    [
        ("120000", b"a/link", b"../../outside"),
        ("120000", b"link", b"/etc/passwd"),
        ("160000", b"sub", None),
    ],
    ids=["link out", "absolute link", "submodule"],
)
def test_paths_outside_of_the_folder_are_rejected(
    repository: Repository, tmp_path: Path, mode: str, path: bytes, data: bytes | None
) -> None:
    if data is None:
        inner = _commit(repository, [("100644", b"x", b"y")])
        index = {**os.environ, "GIT_INDEX_FILE": str(tmp_path / "index")}
        run = ["git", f"--git-dir={repository.path}"]
        subprocess.run(
            [*run, "update-index", "--add", "--cacheinfo", f"160000,{inner},sub"], env=index, check=True
        )
        tree = subprocess.run([*run, "write-tree"], env=index, check=True, capture_output=True)
        commit = tree.stdout.decode().strip()
        line = "author A <a@example.org> 0 +0000\ncommitter A <a@example.org> 0 +0000\n\nx\n"
        commit = repository.write_object("commit", f"tree {commit}\n{line}".encode())
    else:
        commit = _commit(repository, [(mode, path, data)])
    with refused("TREE_ENTRY_REFUSED") as caught:
        export_tree(repository, commit, tmp_path / "trees")
    assert caught.value.where[0].path == path.decode()
    assert list((tmp_path / "trees").glob("*")) == []


def test_a_missing_commit_and_a_full_disk_have_their_errors(repository: Repository, tmp_path: Path) -> None:
    with refused("GIT_OBJECT_MISSING"):
        export_tree(repository, "0" * 40, tmp_path / "trees")
    commit = _commit(repository, [("100644", b"a", b"1")])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CacheError):
        export_tree(repository, commit, tmp_path / "file")


def test_an_overlay_differs_in_the_named_files_only(repository: Repository, tmp_path: Path) -> None:
    commit = _commit(
        repository, [("100644", b"ggml/a", b"1"), ("100644", b"ggml/b", b"2"), ("100644", b"other", b"3")]
    )
    base = export_tree(repository, commit, tmp_path / "trees").root
    made = overlay_tree(base, {"ggml/a": b"9", "ggml/new": b"8"}, "v", below="ggml")
    assert (made / "ggml/a").read_bytes() == b"9"
    assert (made / "ggml/new").read_bytes() == b"8"
    assert (made / "ggml/b").stat().st_ino == (base / "ggml/b").stat().st_ino
    assert not (made / "other").exists()
    assert (base / "ggml/a").read_bytes() == b"1"


def test_a_variant_lacks_removed_files_and_their_empty_folders(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for path in ("a/b/one.txt", "a/two.txt", "c/three.txt"):
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(path)
    changes = {"c": b"a file now"}
    made = overlay_tree(base, changes, "plain", below=".", gone=("a/b/one.txt", "c/three.txt"))
    assert sorted(path.relative_to(made).as_posix() for path in made.rglob("*")) == ["a", "a/two.txt", "c"]
    assert (base / "c/three.txt").is_file()
    assert overlay_tree(base, changes, "plain", below=".", gone=("c/three.txt", "a/two.txt")) != made
