from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.errors import CacheError
from patchkit.report import NullReporter
from patchkit.vcs.commits import NewCommit, write_commits
from patchkit.vcs.disk import DiskNotDirectory
from patchkit.vcs.export import format_patches
from patchkit.vcs.fastimport import Written
from patchkit.vcs.place import PlaceUnusable
from patchkit.vcs.repository import Repository, create_repository
from patchkit.vcs.resume import UpdateNoteBad
from patchkit.vcs.runner import ObjectDamaged
from patchkit.vcs.worktree import (
    CheckoutChanged,
    CheckoutForeign,
    CheckoutMoved,
    CheckoutOrphaned,
    checkout,
)

DATE = "2025-10-31T10:54:19+02:00"


@pytest.fixture
def tip(repo: Repository, base: Written) -> str:
    commit = NewCommit(message="m", changes={"src/a.cu": b"new a\n" * 50, "src/new.cuh": b"added\n" * 50})
    return write_commits(repo, base.commit, [commit], date=DATE)[0].commit


def _files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".git"
    }


def test_a_new_folder_holds_the_commit_byte_for_byte(repo: Repository, base: Written, tmp_path: Path) -> None:
    done = checkout(repo, base.commit, tmp_path / "deep" / "work")
    files = _files(done.directory)
    assert files["src/crlf.cu"] == b"one\r\ntwo\r\n"
    assert set(files) == {entry.path for entry in repo.list_files(base.commit)}
    assert os.access(done.directory / "run.sh", os.X_OK)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["work"]


def test_the_users_git_finds_a_detached_clean_worktree(
    repo: Repository, base: Written, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    directory = checkout(repo, base.commit, tmp_path / "work").directory
    assert plain_git(directory, "status", "--porcelain") == ""
    assert plain_git(directory, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").split()[0] == base.commit
    assert plain_git(repo.path, "worktree", "list", "--porcelain").count(str(directory)) == 1


def test_attributes_of_the_tree_change_no_byte(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    files = {
        ".gitattributes": b"*.txt text eol=crlf\n*.id ident\n*.u working-tree-encoding=UTF-16\n",
        "a.txt": b"one\ntwo\n",
        "b.id": b"$Id$\n",
        "c.u": b"plain\n",
    }
    directory = checkout(repo, make_root(files).commit, tmp_path / "work").directory
    assert _files(directory) == files


def test_a_second_checkout_changes_nothing_and_a_new_commit_only_what_differs(
    repo: Repository, base: Written, tip: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    checkout(repo, base.commit, work)
    (work / "README.md").touch()
    stamp = (work / "src" / "crlf.cu").stat().st_mtime_ns
    assert not checkout(repo, base.commit, work).changed
    assert checkout(repo, tip, work).changed
    assert (work / "src" / "new.cuh").read_bytes() == b"added\n" * 50
    assert (work / "src" / "crlf.cu").stat().st_mtime_ns == stamp
    checkout(repo, base.commit, work)
    assert not (work / "src" / "new.cuh").exists()


def test_ignored_files_stay_and_do_not_count(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    root = make_root({".gitignore": b"/build\n", "a": b"1"})
    grown = write_commits(repo, root.commit, [NewCommit(message="m", changes={"a": b"2"})], date=DATE)
    work = checkout(repo, root.commit, tmp_path / "work").directory
    (work / "build").mkdir()
    (work / "build" / "x.o").write_bytes(b"object")
    checkout(repo, grown[0].commit, work)
    assert _files(work) == {".gitignore": b"/build\n", "a": b"2", "build/x.o": b"object"}


def test_an_ignored_file_in_the_way_is_not_overwritten(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    root = make_root({".gitignore": b"*.o\n", "a": b"1"})
    grown = write_commits(repo, root.commit, [NewCommit(message="m", changes={"x.o": b"2"})], date=DATE)
    work = checkout(repo, root.commit, tmp_path / "work").directory
    (work / "x.o").write_bytes(b"mine")
    with pytest.raises(CheckoutChanged, match="in the way"):
        checkout(repo, grown[0].commit, work)
    assert (work / "x.o").read_bytes() == b"mine"
    (work / "x.o").unlink()
    assert checkout(repo, grown[0].commit, work).changed


def test_an_empty_folder_is_taken(repo: Repository, base: Written, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    assert checkout(repo, base.commit, tmp_path / "work").changed


def test_folders_with_other_content_are_refused_untouched(
    repo: Repository, base: Written, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.txt").write_text("mine")
    with pytest.raises(CheckoutForeign):
        checkout(repo, base.commit, work)
    plain_git(work, "init", "-q")
    with pytest.raises(CheckoutForeign):
        checkout(repo, base.commit, work)
    assert (work / "mine.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder(repo: Repository, base: Written, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    with pytest.raises(CheckoutForeign):
        checkout(repo, base.commit, tmp_path / "work")
    with pytest.raises(DiskNotDirectory):
        checkout(repo, base.commit, tmp_path / "work" / "below")
    assert (tmp_path / "work").read_text() == "mine"


def test_a_checkout_of_another_cache_is_foreign(repo: Repository, base: Written, tmp_path: Path) -> None:
    other = create_repository(tmp_path / "second" / "other.git", repo.reporter)
    work = checkout(repo, base.commit, tmp_path / "work").directory
    with pytest.raises(CheckoutForeign):
        checkout(other, base.commit, work)


@pytest.mark.parametrize("how", ["edit", "add", "remove"])
def test_work_of_the_user_is_refused_and_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, how: str
) -> None:
    work = checkout(repo, base.commit, tmp_path / "work").directory
    target = work / {"edit": "README.md", "add": "src/mine.cu", "remove": "src/a.cu"}[how]
    if how == "remove":
        target.unlink()
    else:
        target.write_bytes(b"mine")
    before = _files(work)
    with pytest.raises(CheckoutChanged) as caught:
        checkout(repo, tip, work)
    assert [place.path for place in caught.value.where] == [str(target)]
    assert _files(work) == before


def test_commits_and_branches_of_the_user_are_refused(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = checkout(repo, base.commit, tmp_path / "work").directory
    plain_git(work, "commit", "-q", "--allow-empty", "-m", "mine")
    with pytest.raises(CheckoutMoved, match="not at the commit"):
        checkout(repo, tip, work)
    plain_git(work, "checkout", "-q", "-b", "mine", base.commit)
    with pytest.raises(CheckoutMoved) as caught:
        checkout(repo, tip, work)
    assert "on a branch" in (caught.value.why or "")


def test_a_worktree_the_user_made_of_the_cache_is_refused(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    plain_git(repo.path, "worktree", "add", "-q", "--detach", str(tmp_path / "work"), base.commit)
    with pytest.raises(CheckoutMoved):
        checkout(repo, tip, tmp_path / "work")


def test_a_checkout_that_was_moved_is_followed_and_a_copy_refused(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    checkout(repo, base.commit, tmp_path / "work")
    (tmp_path / "work").rename(tmp_path / "moved")
    assert checkout(repo, tip, tmp_path / "moved").changed
    assert str(tmp_path / "moved") in plain_git(repo.path, "worktree", "list")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy", symlinks=True)
    with pytest.raises(CheckoutForeign, match="is a copy"):
        checkout(repo, base.commit, tmp_path / "copy")


def test_a_checkout_whose_cache_is_gone(repo: Repository, base: Written, tmp_path: Path) -> None:
    work = checkout(repo, base.commit, tmp_path / "work").directory
    shutil.rmtree(repo.path / "worktrees")
    with pytest.raises(CheckoutOrphaned):
        checkout(repo, base.commit, work)
    assert (work / "README.md").exists()


def test_a_deleted_checkout_is_made_again(repo: Repository, base: Written, tmp_path: Path) -> None:
    for _ in range(2):
        work = checkout(repo, base.commit, tmp_path / "work").directory
        shutil.rmtree(work)
    checkout(repo, base.commit, work)
    assert len(list((repo.path / "worktrees").iterdir())) == 1


def test_a_kill_while_a_new_checkout_is_built(repo: Repository, base: Written, tmp_path: Path) -> None:
    partial = tmp_path / ".work.patchkit-partial"
    repo.git.run("worktree", "add", "--quiet", "--detach", str(partial), base.commit)
    (partial / "README.md").unlink()
    checkout(repo, base.commit, tmp_path / "work")
    assert (tmp_path / "work" / "README.md").exists()
    assert not partial.exists()
    assert len(list((repo.path / "worktrees").iterdir())) == 1


def test_a_kill_just_before_the_rename(repo: Repository, base: Written, tmp_path: Path) -> None:
    work = checkout(repo, base.commit, tmp_path / "work").directory
    work.rename(tmp_path / ".work.patchkit-partial")  # the record names the final place already
    checkout(repo, base.commit, work)
    assert len(list((repo.path / "worktrees").iterdir())) == 1


def test_a_folder_of_the_user_with_the_partial_name_is_kept(
    repo: Repository, base: Written, tmp_path: Path
) -> None:
    partial = tmp_path / ".work.patchkit-partial"
    partial.mkdir()
    (partial / "mine").write_text("mine")
    with pytest.raises(CheckoutForeign, match="in the way"):
        checkout(repo, base.commit, tmp_path / "work")
    assert (partial / "mine").read_text() == "mine"


def _interrupt(repo: Repository, work: Path, old: str, new: str) -> Path:
    (admin,) = (repo.path / "worktrees").iterdir()
    (admin / "patchkit-update").write_text(f"{old} {new}\n")
    (admin / "index.lock").write_bytes(b"DIRC partly")
    return work


@pytest.mark.parametrize("state", ["untouched", "unlinked", "cut", "written"])
def test_an_update_that_was_killed_is_finished(
    repo: Repository, base: Written, tip: str, tmp_path: Path, state: str
) -> None:
    work = _interrupt(repo, checkout(repo, base.commit, tmp_path / "work").directory, base.commit, tip)
    if state != "untouched":
        (work / "src" / "a.cu").unlink()
    if state == "cut":
        (work / "src" / "a.cu").write_bytes(b"new a\n" * 7 + b"ne")
    if state == "written":
        (work / "src" / "a.cu").write_bytes(b"new a\n" * 50)
        (work / "src" / "new.cuh").write_bytes(b"add")
    checkout(repo, tip, work)
    assert _files(work)["src/a.cu"] == b"new a\n" * 50
    assert _files(work)["src/new.cuh"] == b"added\n" * 50
    assert not checkout(repo, tip, work).changed


def test_an_update_killed_after_git_was_done_is_finished(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = checkout(repo, base.commit, tmp_path / "work").directory
    plain_git(work, "checkout", "-q", "--detach", tip)
    _interrupt(repo, work, base.commit, tip)
    checkout(repo, base.commit, work)  # another target than the interrupted one
    assert set(_files(work)) == {entry.path for entry in repo.list_files(base.commit)}


@pytest.mark.parametrize("name", ["src/a.cu", "src/new.cuh", "README.md", "extra"])
def test_edits_made_after_the_kill_are_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, name: str
) -> None:
    work = _interrupt(repo, checkout(repo, base.commit, tmp_path / "work").directory, base.commit, tip)
    (work / name).write_bytes(b"mine")
    before = _files(work)
    with pytest.raises(CheckoutChanged) as caught:
        checkout(repo, tip, work)
    assert name in (caught.value.why or "")
    assert _files(work) == before


def test_a_damaged_note_is_reported(repo: Repository, base: Written, tip: str, tmp_path: Path) -> None:
    work = _interrupt(repo, checkout(repo, base.commit, tmp_path / "work").directory, "", "")
    with pytest.raises(UpdateNoteBad):
        checkout(repo, tip, work)


@pytest.mark.parametrize("name", [b"w\xff\xfe", b"new\nline"])
def test_a_folder_of_any_name_is_checked_out_and_updated(
    repo: Repository, base: Written, tip: str, tmp_path: Path, name: bytes
) -> None:
    work = tmp_path / os.fsdecode(name)
    checkout(repo, base.commit, work)
    assert not checkout(repo, base.commit, work).changed
    assert checkout(repo, tip, work).changed
    assert (work / "src" / "new.cuh").read_bytes() == b"added\n" * 50
    assert {path.name for path in tmp_path.iterdir()} == {"cache", work.name}


def test_a_checkout_that_was_killed_is_made_again_through_a_linked_cache(
    repo: Repository, base: Written, tmp_path: Path
) -> None:
    (tmp_path / "linked").symlink_to(repo.path.parent)
    linked = Repository(path=tmp_path / "linked" / repo.path.name, reporter=NullReporter())
    partial = tmp_path / ".work.patchkit-partial"
    linked.git.run("worktree", "add", "--quiet", "--detach", str(partial), base.commit)
    checkout(linked, base.commit, tmp_path / "work")
    assert not checkout(repo, base.commit, tmp_path / "work").changed
    assert not partial.exists()


def test_a_checkout_that_fails_leaves_nothing(
    repo: Repository, base: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: Path, target: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(CacheError, match="busy") as caught:
        checkout(repo, base.commit, tmp_path / "work")
    assert caught.value.where[0].path == str(tmp_path / "work")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert not any((repo.path / "worktrees").glob("*"))


def test_places_that_cannot_hold_a_checkout(repo: Repository, base: Written, tmp_path: Path) -> None:
    for place in (Path("/"), Path("/proc"), repo.path.parent / "work", tmp_path / "series" / "work"):
        with pytest.raises(PlaceUnusable):
            checkout(repo, base.commit, place, kept=[tmp_path / "series"])
    assert not (tmp_path / "series").exists()


def _damage(repo: Repository, sha: str, kind: bytes, data: bytes) -> None:
    """Put other content in the place of a loose object, as well formed as git's own."""
    place = repo.path / "objects" / sha[:2] / sha[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"%s %d\0" % (kind, len(data)) + data))


def test_a_file_with_other_content_in_the_cache_is_never_checked_out(
    repo: Repository, base: Written, tip: str, tmp_path: Path
) -> None:
    entries = {entry.path: entry.sha for entry in repo.list_files(tip)}
    checkout(repo, base.commit, tmp_path / "old")
    _damage(repo, entries["src/new.cuh"], b"blob", b"evil\n" * 60)
    for place in ("new", "old"):
        with pytest.raises(ObjectDamaged) as caught:
            checkout(repo, tip, tmp_path / place)
        assert str(repo.path) in (caught.value.hint or "")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ObjectDamaged):
        repo.read_blobs(tip, ["src/new.cuh"])
    with pytest.raises(ObjectDamaged):
        format_patches(repo, base.commit, tip, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_content_in_the_cache_is_never_checked_out(
    repo: Repository, base: Written, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    (entry,) = (found for found in repo.find_entries(base.commit, ["src"]).values())
    other = repo.git.run("cat-file", "tree", make_root({"evil.cu": b"evil"}).tree)
    _damage(repo, entry.sha, b"tree", other)
    with pytest.raises(ObjectDamaged):
        checkout(repo, base.commit, tmp_path / "new")


def test_an_object_that_cannot_be_read_names_what_to_delete(repo: Repository, base: Written) -> None:
    (entry,) = (found for found in repo.find_entries(base.commit, ["README.md"]).values())
    place = repo.path / "objects" / entry.sha[:2] / entry.sha[2:]
    place.chmod(0o644)
    place.write_bytes(b"garbage")
    with pytest.raises(ObjectDamaged) as caught:
        repo.read_blobs(base.commit, ["README.md"])
    assert f"delete {repo.path} " in (caught.value.hint or "")
