from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import CacheError, UsageError
from patchkit.carry.upstream.checkout import check_out
from patchkit.carry.upstream.commits import CommitStream, NewCommit, Written, write_commits
from patchkit.carry.upstream.export import format_patches
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"


@pytest.fixture
def tip(repo: Repository, base: Written) -> Written:
    commits = [
        NewCommit(message="0001-one: table\n\nWhy.\n\nPatchkit-Id: 0001-one\n", changes={"src/a.cu": b"x\n"}),
        NewCommit(
            message="0002-two: caf\u00e9", changes={"src/new.cuh": b"no newline", "run.sh": b"#!/bin/sh\n:\n"}
        ),
    ]
    return write_commits(repo, base.commit, commits, date=DATE)[-1]


@pytest.fixture
def export(repo: Repository, base: Written, tip: Written, tmp_path: Path) -> Callable[..., tuple[Path, ...]]:
    """Export both commits into the folder ``out``, or another one."""

    def run(directory: Path = tmp_path / "out", **options: object) -> tuple[Path, ...]:
        return format_patches(repo, base.commit, tip.commit, directory, **options)

    return run


def _content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_two_exports_are_the_same_bytes(export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export(tmp_path / "a" / "b")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    export(tmp_path / "c")
    assert _content(tmp_path / "a" / "b") == _content(tmp_path / "c")
    assert [path.name for path in first] == ["0001-0001-one-table.patch", "0002-0002-two-caf.patch"]


def test_the_files_carry_no_version_and_no_machine(export, tmp_path: Path) -> None:
    first, _ = export()
    text = first.read_text()
    assert text.startswith("From " + "0" * 40 + " Mon Sep 17 00:00:00 2001\n")
    assert "\n-- \n" not in text
    assert "index " in text
    assert str(tmp_path) not in text


def test_plain_git_am_gives_the_same_tree(
    export, repo: Repository, base: Written, tip: Written, tmp_path: Path, plain_git
) -> None:
    patches = export()
    work = tmp_path / "work"
    check_out(repo, base.commit, work, branch="main")
    plain_git(work, "am", "-q", *(str(path) for path in patches))
    assert plain_git(work, "rev-parse", "HEAD^{tree}").strip() == tip.tree
    assert "caf\u00e9" in plain_git(work, "log", "-1", "--format=%s")


def test_a_commit_without_changes_gets_no_file(
    repo: Repository, base: Written, tip: Written, tmp_path: Path, plain_git
) -> None:
    with CommitStream(repo) as stream:
        stream.begin(message="nothing", date=DATE, parent=tip.commit)
        nothing = stream.finish()[-1]
    commits = [NewCommit(message="more", changes={"src/more.cuh": b"x\n"})]
    more = write_commits(repo, nothing.commit, commits, date=DATE)[-1]
    out = tmp_path / "out"
    names = ["b.patch", "a.patch", "c.patch"]
    patches = format_patches(repo, base.commit, more.commit, out, names=names)
    assert [path.name for path in patches] == names
    assert sorted(_content(out)) == ["SHA256SUMS", *sorted(names)]
    work = tmp_path / "work"
    check_out(repo, base.commit, work, branch="main")
    plain_git(work, "am", "-q", *(str(path) for path in patches))  # stops at an empty file
    assert plain_git(work, "rev-parse", "HEAD^{tree}").strip() == more.tree


def test_sums_name_every_file(export, tmp_path: Path) -> None:
    patches = export()
    header, *lines = (tmp_path / "out" / "SHA256SUMS").read_text().splitlines()
    assert header.startswith("# Written by patchkit export")
    assert lines == [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in patches]


def test_an_export_replaces_an_unchanged_one(export, repo: Repository, tip: Written, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export()
    format_patches(repo, f"{tip.commit}^", tip.commit, out)
    assert sorted(_content(out)) == ["0001-0002-two-caf.patch", "SHA256SUMS"]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}


@pytest.mark.parametrize("how", ["added", "edited", "only"])
def test_content_of_the_user_is_refused_and_kept(export, tmp_path: Path, how: str) -> None:
    out = tmp_path / "out"
    if how == "only":
        out.mkdir()
    else:
        export()
    name = "0001-0001-one-table.patch" if how == "edited" else "mine.txt"
    (out / name).write_bytes(b"mine")
    before = _content(out)
    with refused("EXPORT_FOREIGN") as caught:
        export()
    assert caught.value.where[0].path == str(out / name)
    assert _content(out) == before


def test_a_file_in_the_place_of_the_folder(export, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with refused("DISK_REFUSED"):
        export()
    assert (tmp_path / "out").read_text() == "mine"


def test_no_commits_is_an_error_and_leaves_nothing(repo: Repository, base: Written, tmp_path: Path) -> None:
    with refused("EXPORT_NOTHING"):
        format_patches(repo, base.commit, base.commit, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


def test_remains_of_a_killed_export_are_used_up(export, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export()
    wanted = _content(out)
    out.rename(tmp_path / ".out.patchkit-old-x")  # killed between the two renames
    partial = tmp_path / ".out.patchkit-partial-y"
    partial.mkdir()
    (partial / "SHA256SUMS").write_bytes(wanted["SHA256SUMS"].splitlines(keepends=True)[0])
    (partial / "0001-cut.patch").write_text("Fro")
    export()
    assert _content(out) == wanted
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}


def test_a_folder_of_ordinary_files_with_their_sums_is_kept(export, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "0001-thesis.patch").write_text("mine")
    digest = hashlib.sha256(b"mine").hexdigest()
    (out / "SHA256SUMS").write_text(f"{digest}  0001-thesis.patch\n")
    before = _content(out)
    with refused("EXPORT_FOREIGN"):
        export()
    assert _content(out) == before


@pytest.mark.parametrize("name", ["../mine", "mine.txt", "0001-a/b.patch"])
def test_sums_that_name_other_files_are_not_patchkits(export, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    export()
    digest = hashlib.sha256(b"mine").hexdigest()
    with (out / "SHA256SUMS").open("a") as sums:
        sums.write(f"{digest}  {name}\n")
    before = _content(out)
    with refused("EXPORT_FOREIGN"):
        export()
    assert _content(out) == before


@pytest.mark.parametrize("name", [".out.patchkit-old", ".out.patchkit-old-x", ".out.patchkit-partial-x"])
@pytest.mark.parametrize("kind", ["plain", "beside an export"])
def test_folders_of_the_user_beside_the_export_are_kept(export, tmp_path: Path, name: str, kind: str) -> None:
    mine = tmp_path / name
    if kind == "plain":
        mine.mkdir()
    else:
        export(mine)
    (mine / "mine.txt").write_text("mine")
    before = _content(mine)
    export()
    assert _content(mine) == before


def test_a_link_in_the_place_of_a_patch_is_foreign(export, tmp_path: Path) -> None:
    first, _ = export()
    first.rename(tmp_path / "mine")
    first.symlink_to(tmp_path / "mine")
    with refused("EXPORT_FOREIGN"):
        export()
    assert first.is_symlink()


def test_exports_into_one_folder_at_once_leave_one_whole_export(export, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: export(), range(48)))
    assert {tuple(path.name for path in paths) for paths in done} == {
        ("0001-0001-one-table.patch", "0002-0002-two-caf.patch")
    }
    assert sorted(_content(out)) == ["0001-0001-one-table.patch", "0002-0002-two-caf.patch", "SHA256SUMS"]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}


def test_places_that_cannot_hold_an_export(export, repo: Repository, tmp_path: Path) -> None:
    series = tmp_path / "series"
    (tmp_path / "link").symlink_to(series)
    (tmp_path / "circle").symlink_to("circle")
    for place in (
        Path("/"),
        Path("/proc"),
        repo.path.parent,
        repo.path / "objects" / "new",
        series / "new",
        tmp_path / "link",
        tmp_path / "circle" / "new",
    ):
        with pytest.raises((UsageError, CacheError)) as caught:
            export(place, kept=[series])
        assert isinstance(caught.value, CacheError) or caught.value.code == "PLACE_UNUSABLE"
    assert not (repo.path / "objects" / "new").exists()
    assert not series.exists()


def test_the_export_can_be_read_by_whom_the_umask_allows(export, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        export()
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755
