from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import CacheError
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.checkout import check_out
from patchkit.carry.upstream.commits import NewCommit, Written, write_commits
from patchkit.carry.upstream.export import format_patches
from patchkit.carry.upstream.git import ObjectDamaged
from patchkit.carry.upstream.packs import carry, cut_history, cut_where_missing
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"
BRANCH = "candidate/gfx1151/b1"


def checkout(
    repository: Repository,
    commit: str,
    directory: Path,
    *,
    branch: str = BRANCH,
    origin: str | None = None,
    kept: Sequence[Path] = (),
) -> Path:
    """The folder, which has the commit now; all are of one branch, but where a test names another."""
    check_out(repository, commit, directory, branch=branch, origin=origin, kept=kept)
    assert (directory / ".git" / "HEAD").read_text() == f"ref: refs/heads/{branch}\n"
    assert (directory / ".git" / "refs" / "heads" / branch).read_text() == f"{commit}\n"
    return directory


@pytest.fixture
def tip(repo: Repository, base: Written) -> str:
    commit = NewCommit(message="m", changes={"src/a.cu": b"new a\n" * 50, "src/new.cuh": b"added\n" * 50})
    return write_commits(repo, base.commit, [commit], date=DATE)[0].commit


@pytest.fixture
def work(repo: Repository, base: Written, tmp_path: Path) -> Path:
    """A checkout of the base."""
    return checkout(repo, base.commit, tmp_path / "work")


def _files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def test_a_new_folder_holds_the_commit_byte_for_byte(repo: Repository, base: Written, tmp_path: Path) -> None:
    work = checkout(repo, base.commit, tmp_path / "deep" / "work")
    files = _files(work)
    assert files["src/crlf.cu"] == b"one\r\ntwo\r\n"
    assert set(files) == {entry.path for entry in repo.list_files(base.commit)}
    assert os.access(work / "run.sh", os.X_OK)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["work"]


def test_the_users_git_finds_a_clean_repository_on_the_branch(
    repo: Repository, base: Written, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    directory = checkout(repo, base.commit, tmp_path / "work", origin="https://example.invalid/x.git")
    assert plain_git(directory, "status", "--porcelain") == ""
    assert plain_git(directory, "rev-parse", "HEAD", BRANCH).split() == [base.commit] * 2
    assert plain_git(directory, "branch", "--show-current").strip() == BRANCH
    assert plain_git(directory, "remote", "get-url", "origin") == "https://example.invalid/x.git\n"
    plain_git(directory, "fsck", "--strict", "--no-dangling")


def test_a_checkout_needs_the_cache_no_more(
    work: Path, repo: Repository, base: Written, tip: str, plain_git: Callable[..., str]
) -> None:
    plain_git(work, "config", "pull.rebase", "true")
    plain_git(work, "stash", "list")
    assert not (work / ".git" / "objects" / "info" / "alternates").exists()
    assert all(path.stat().st_nlink == 1 for path in work.rglob("*") if path.is_file())
    checkout(repo, tip, work)
    shutil.rmtree(repo.path)
    plain_git(work, "commit", "-q", "--allow-empty", "-m", "mine")
    plain_git(work, "fsck", "--strict", "--no-dangling")
    plain_git(work, "gc", "-q", "--prune=now")
    assert plain_git(work, "log", "--format=%s").splitlines() == ["mine", "m", "base"]


def test_a_new_cache_updates_the_checkout_of_another_one(
    work: Path, repo: Repository, tip: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = create_repository(tmp_path / "other" / "upstream.git", repo.reporter)
    carry(repo, other, tip)
    repo.path.rename(tmp_path / "gone")
    checkout(other, tip, work)
    assert (work / "src" / "new.cuh").exists()


def _upstream(tmp_path: Path, plain_git: Callable[..., str]) -> Path:
    """A repository with three commits; any of them can be fetched."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    plain_git(upstream, "init", "-q", "-b", "master")
    plain_git(upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
    for number in "123":
        (upstream / "a").write_text(number)
        plain_git(upstream, "add", "a")
        plain_git(upstream, "commit", "-q", "-m", number)
    return upstream


def test_history_is_cut_where_the_caches_is_and_can_be_had_from_upstream(
    repo: Repository, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    upstream = _upstream(tmp_path, plain_git)
    pin = plain_git(upstream, "rev-parse", "master~1").strip()
    repo.git.run("fetch", "--quiet", "--depth=1", str(upstream), pin)
    cut_history(repo.path, [pin])
    tips = [
        write_commits(repo, pin, [NewCommit(message="m", changes={"b": text})], date=DATE)[0].commit
        for text in (b"1", b"2")
    ]
    work = checkout(repo, tips[0], tmp_path / "work", origin=str(upstream))
    assert (work / ".git" / "shallow").read_text() == f"{pin}\n"
    plain_git(work, "fetch", "-q", "origin")
    assert plain_git(work, "rev-list", "--count", "origin/master").strip() == "2"
    plain_git(work, "fetch", "-q", "--unshallow", "origin")
    checkout(repo, tips[1], work)
    assert plain_git(work, "rev-parse", "--is-shallow-repository").strip() == "false"
    assert plain_git(work, "rev-list", "--count", "HEAD").strip() == "3"
    plain_git(work, "fsck", "--no-dangling")


def test_attributes_of_the_tree_change_no_byte(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    files = {
        ".gitattributes": b"*.txt text eol=crlf\n*.id ident\n*.u working-tree-encoding=UTF-16\n",
        "a.txt": b"one\ntwo\n",
        "b.id": b"$Id$\n",
        "c.u": b"plain\n",
    }
    directory = checkout(repo, make_root(files).commit, tmp_path / "work")
    assert _files(directory) == files


def test_a_second_checkout_changes_nothing_and_a_new_commit_only_what_differs(
    work: Path, repo: Repository, base: Written, tip: str, recorder
) -> None:
    (work / "README.md").touch()
    stamp = (work / "src" / "crlf.cu").stat().st_mtime_ns
    recorder.lines.clear()
    checkout(repo, base.commit, work)
    assert not [command for command in recorder.said("command") if " checkout " in command]
    checkout(repo, tip, work)
    assert (work / "src" / "new.cuh").read_bytes() == b"added\n" * 50
    assert (work / "src" / "crlf.cu").stat().st_mtime_ns == stamp
    checkout(repo, base.commit, work)
    assert not (work / "src" / "new.cuh").exists()


def test_ignored_files_stay_and_do_not_count(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    root = make_root({".gitignore": b"/build\n", "a": b"1"})
    grown = write_commits(repo, root.commit, [NewCommit(message="m", changes={"a": b"2"})], date=DATE)
    work = checkout(repo, root.commit, tmp_path / "work")
    (work / "build").mkdir()
    (work / "build" / "x.o").write_bytes(b"object")
    checkout(repo, grown[0].commit, work)
    assert _files(work) == {".gitignore": b"/build\n", "a": b"2", "build/x.o": b"object"}


def test_an_ignored_file_in_the_way_is_not_overwritten(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path
) -> None:
    root = make_root({".gitignore": b"*.o\n", "a": b"1"})
    grown = write_commits(repo, root.commit, [NewCommit(message="m", changes={"x.o": b"2"})], date=DATE)
    work = checkout(repo, root.commit, tmp_path / "work")
    (work / "x.o").write_bytes(b"mine")
    with refused("CHECKOUT_CHANGED", match="would be overwritten"):
        checkout(repo, grown[0].commit, work)
    assert (work / "x.o").read_bytes() == b"mine"
    (work / "x.o").unlink()
    checkout(repo, grown[0].commit, work)


def test_an_empty_folder_is_taken(repo: Repository, base: Written, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    checkout(repo, base.commit, tmp_path / "work")


def test_folders_with_other_content_are_refused_untouched(
    repo: Repository, base: Written, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.txt").write_text("mine")
    with refused("CHECKOUT_UNUSABLE"):
        checkout(repo, base.commit, work)
    plain_git(work, "init", "-q")
    with refused("CHECKOUT_UNUSABLE"):
        checkout(repo, base.commit, work)
    assert (work / "mine.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder(repo: Repository, base: Written, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    with refused("CHECKOUT_UNUSABLE"):
        checkout(repo, base.commit, tmp_path / "work")
    with refused("DISK_REFUSED"):
        checkout(repo, base.commit, tmp_path / "work" / "below")
    assert (tmp_path / "work").read_text() == "mine"


@pytest.mark.parametrize("how", ["edit", "add", "remove"])
def test_work_of_the_user_is_refused_and_kept(work: Path, repo: Repository, tip: str, how: str) -> None:
    target = work / {"edit": "README.md", "add": "src/mine.cu", "remove": "src/a.cu"}[how]
    if how == "remove":
        target.unlink()
    else:
        target.write_bytes(b"mine")
    before = _files(work)
    with refused("CHECKOUT_CHANGED") as caught:
        checkout(repo, tip, work)
    assert [place.path for place in caught.value.where] == [str(target)]
    assert _files(work) == before


def _follow(hint: str | None) -> None:
    """Do what a hint says, as a person would paste it."""
    command = (hint or "").partition(": ")[2].partition(";")[0]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)


def test_commits_of_the_user_are_refused_and_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = checkout(repo, base.commit, tmp_path / "the user's work")
    (work / "mine").write_text("mine")
    plain_git(work, "add", "mine")
    plain_git(work, "commit", "-q", "-m", "mine")
    mine = plain_git(work, "rev-parse", "HEAD").strip()
    with refused("CHECKOUT_UNUSABLE", match="not at the commit") as caught:
        checkout(repo, tip, work)
    assert plain_git(work, "rev-parse", "HEAD").strip() == mine
    _follow(caught.value.hint)
    checkout(repo, tip, work)
    assert plain_git(work, "rev-parse", "HEAD", "my-work").split() == [tip, mine]


def test_a_branch_of_the_users_and_a_detached_head_are_refused(
    work: Path, repo: Repository, base: Written, tip: str, plain_git: Callable[..., str]
) -> None:
    for words, why in ((("-c", "mine"), "on the branch mine"), (("--detach",), "HEAD is detached")):
        plain_git(work, "switch", "-q", *words)
        with refused("CHECKOUT_UNUSABLE", match="not at the commit") as caught:
            checkout(repo, tip, work)
        assert why in (caught.value.why or "")
        assert plain_git(work, "rev-parse", "HEAD").strip() == base.commit
        _follow(caught.value.hint)
    checkout(repo, tip, work)
    assert plain_git(work, "rev-parse", "mine").strip() == base.commit


def test_stashes_and_other_branches_are_there_after_an_update(
    work: Path, repo: Repository, tip: str, plain_git: Callable[..., str]
) -> None:
    plain_git(work, "branch", "mine")
    (work / "README.md").write_text("mine")
    (work / "untracked").write_text("mine")
    with refused("CHECKOUT_CHANGED") as caught:
        checkout(repo, tip, work)
    _follow((caught.value.hint or "").replace("--checkout; or", "--checkout, or", 1))
    refs = plain_git(work, "show-ref", "stash", "mine")
    checkout(repo, tip, work)
    assert plain_git(work, "show-ref", "stash", "mine") == refs
    plain_git(work, "stash", "pop", "-q")
    assert (work / "README.md").read_text() == "mine"


def test_another_branch_is_checked_out_beside_the_first(
    work: Path, repo: Repository, base: Written, tip: str, plain_git: Callable[..., str]
) -> None:
    other = "candidate/gfx1151/b2"
    checkout(repo, tip, work, branch=other)
    assert plain_git(work, "branch", "--show-current").strip() == other
    assert plain_git(work, "rev-parse", BRANCH).strip() == base.commit
    plain_git(work, "branch", "-q", "-f", BRANCH, tip)
    with refused("CHECKOUT_UNUSABLE", match=f"the branch {BRANCH}") as caught:
        checkout(repo, base.commit, work)
    assert plain_git(work, "rev-parse", "HEAD", BRANCH).split() == [tip, tip]
    _follow(caught.value.hint)
    checkout(repo, base.commit, work)
    assert plain_git(work, "rev-parse", "my-work").strip() == tip


@pytest.mark.parametrize("state", ["MERGE_HEAD", "rebase-merge", "index.lock"])
def test_git_in_the_middle_of_something_is_left_alone(
    work: Path, repo: Repository, base: Written, tip: str, state: str
) -> None:
    (work / ".git" / state).write_text(f"{base.commit}\n")
    with refused("CHECKOUT_CHANGED", match="unfinished git operation"):
        checkout(repo, tip, work)
    assert (work / ".git" / state).exists()
    assert not (work / "src" / "new.cuh").exists()


def test_attributes_and_settings_of_the_user_change_no_byte(
    repo: Repository, make_root: Callable[..., Written], tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    attributes = b"* text eol=crlf filter=mine\n"
    root = make_root({".gitattributes": attributes, "a": b"one\n"})
    grown = write_commits(repo, root.commit, [NewCommit(message="m", changes={"a": b"two\n"})], date=DATE)
    work = checkout(repo, root.commit, tmp_path / "work")
    plain_git(work, "config", "core.autocrlf", "true")
    plain_git(work, "config", "filter.mine.smudge", "sed s/o/0/")
    own = work / ".git" / "info" / "attributes"
    own.write_bytes(attributes)
    with refused("CHECKOUT_CHANGED", match="not as patchkit wrote it"):
        checkout(repo, grown[0].commit, work)
    assert own.read_bytes() == attributes
    own.unlink()
    checkout(repo, grown[0].commit, work)
    assert (work / "a").read_bytes() == b"two\n"


def test_a_setting_that_changes_what_git_writes_is_found_out(
    work: Path, repo: Repository, base: Written, plain_git: Callable[..., str]
) -> None:
    plain_git(work, "config", "core.symlinks", "false")
    commit = write_commits(repo, base.commit, [NewCommit(message="m", changes={"x": b"1"})], date=DATE)
    linked = _linked(repo, commit[0].commit)
    with refused("CHECKOUT_UNUSABLE", match="other differs from the commit") as caught:
        checkout(repo, linked, work)
    assert str(work / ".git" / "config") in (caught.value.why or "")


def _linked(repo: Repository, parent: str) -> str:
    """A commit with one more symbolic link."""
    listed = repo.git.run("ls-tree", parent)
    target = repo.write_object("blob", b"README.md")
    tree = repo.git.run("mktree", stdin=listed + f"120000 blob {target}\tother\n".encode()).decode().strip()
    return repo.git.run("commit-tree", "-m", "m", "-p", parent, tree).decode().strip()


def test_a_worktree_of_the_cache_is_told_apart_and_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    for name in ("work", "other"):
        plain_git(repo.path, "worktree", "add", "-q", "--detach", str(tmp_path / name), base.commit)
    with refused("CHECKOUT_UNUSABLE") as caught:
        checkout(repo, tip, tmp_path / "work")
    assert plain_git(tmp_path / "work", "rev-parse", "HEAD").strip() == base.commit
    _follow(caught.value.hint)
    checkout(repo, tip, tmp_path / "work")
    shutil.rmtree(repo.path / "worktrees")
    with refused("CHECKOUT_UNUSABLE") as caught:
        checkout(repo, tip, tmp_path / "other")
    assert "no longer exists" in (caught.value.why or "")
    assert (tmp_path / "other" / "README.md").exists()


def test_a_checkout_that_was_moved_or_copied_is_one_still(
    repo: Repository, base: Written, tip: str, tmp_path: Path
) -> None:
    checkout(repo, base.commit, tmp_path / "work")
    (tmp_path / "work").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy", symlinks=True)
    for name in ("moved", "copy"):
        checkout(repo, tip, tmp_path / name)


@pytest.mark.parametrize("state", ["nothing", "folder", "marked", "whole"])
def test_a_kill_while_a_new_checkout_is_built(
    repo: Repository, base: Written, tmp_path: Path, state: str
) -> None:
    partial = tmp_path / ".work.patchkit-partial"
    checkout(repo, base.commit, partial)
    if state != "whole":
        (partial / ".git" / "patchkit-checkout").rename(tmp_path / "mark")
        shutil.rmtree(partial)
        partial.mkdir()
    if state in ("folder", "marked"):
        (partial / ".git").mkdir()
    if state == "marked":
        shutil.copy(tmp_path / "mark", partial / ".git" / "patchkit-checkout")
    checkout(repo, base.commit, tmp_path / "work")
    assert (tmp_path / "work" / "README.md").exists()
    assert not partial.exists()


def test_a_folder_of_the_user_with_the_partial_name_is_kept(
    repo: Repository, base: Written, tmp_path: Path
) -> None:
    partial = tmp_path / ".work.patchkit-partial"
    partial.mkdir()
    (partial / "mine").write_text("mine")
    with refused("CHECKOUT_UNUSABLE", match="in the way"):
        checkout(repo, base.commit, tmp_path / "work")
    assert (partial / "mine").read_text() == "mine"


def _interrupt(work: Path, old: str, new: str, branch: str = BRANCH) -> Path:
    (work / ".git" / "patchkit-update").write_text(f"{old} {new} {branch}\n")
    (work / ".git" / "index.lock").write_bytes(b"DIRC partly")
    return work


def _interrupted(repo: Repository, old: str, new: str, work: Path) -> Path:
    """A checkout of ``old`` to which the objects of ``new`` have come, and no more."""
    checkout(repo, old, work)
    carry(repo, replace(repo, path=work / ".git", work_tree=work), new)
    return _interrupt(work, old, new)


@pytest.mark.parametrize("state", ["untouched", "unlinked", "cut", "written"])
def test_an_update_that_was_killed_is_finished(
    repo: Repository, base: Written, tip: str, tmp_path: Path, state: str
) -> None:
    work = _interrupted(repo, base.commit, tip, tmp_path / "work")
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
    checkout(repo, tip, work)


@pytest.mark.parametrize("branch", [BRANCH, "candidate/gfx1151/b2"])
def test_an_update_killed_after_git_was_done_is_finished(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str], branch: str
) -> None:
    work = _interrupted(repo, base.commit, tip, tmp_path / "work")
    (work / ".git" / "index.lock").unlink()
    plain_git(work, "checkout", "-q", "-B", branch, tip)
    _interrupt(work, base.commit, tip, branch)
    checkout(repo, base.commit, work)  # another target than the interrupted one
    assert set(_files(work)) == {entry.path for entry in repo.list_files(base.commit)}


def test_commits_made_after_the_kill_are_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    work = _interrupted(repo, base.commit, tip, tmp_path / "work")
    (work / ".git" / "index.lock").unlink()
    plain_git(work, "commit", "-q", "--allow-empty", "-m", "mine")
    mine = plain_git(work, "rev-parse", "HEAD")
    with refused("CHECKOUT_UNUSABLE"):
        checkout(repo, tip, work)
    assert plain_git(work, "rev-parse", "HEAD", BRANCH) == mine * 2


@pytest.mark.parametrize("name", ["src/a.cu", "src/new.cuh", "README.md", "extra"])
def test_edits_made_after_the_kill_are_kept(
    repo: Repository, base: Written, tip: str, tmp_path: Path, name: str
) -> None:
    work = _interrupted(repo, base.commit, tip, tmp_path / "work")
    (work / name).write_bytes(b"mine")
    before = _files(work)
    with refused("CHECKOUT_CHANGED") as caught:
        checkout(repo, tip, work)
    assert name in (caught.value.why or "")
    assert _files(work) == before


def test_a_damaged_note_is_reported(repo: Repository, base: Written, tip: str, tmp_path: Path) -> None:
    work = _interrupt(checkout(repo, base.commit, tmp_path / "work"), "", "")
    with refused("CHECKOUT_UNUSABLE"):
        checkout(repo, tip, work)


@pytest.mark.parametrize("name", [b"w\xff\xfe", b"new\nline"])
def test_a_folder_of_any_name_is_checked_out_and_updated(
    repo: Repository, base: Written, tip: str, tmp_path: Path, name: bytes
) -> None:
    work = tmp_path / os.fsdecode(name)
    checkout(repo, base.commit, work)
    checkout(repo, base.commit, work)
    checkout(repo, tip, work)
    assert (work / "src" / "new.cuh").read_bytes() == b"added\n" * 50
    assert {path.name for path in tmp_path.iterdir()} == {"cache", work.name}


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


@pytest.mark.parametrize("data", [random.Random(1).randbytes(300_000), bytes(300_000)], ids=["pack", "file"])
def test_a_full_disk_leaves_no_half_checkout(
    work: Path, repo: Repository, tmp_path: Path, make_root: Callable[..., Written], data: bytes
) -> None:
    big = make_root({"README.md": b"other\n", "big": data}).commit
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        for place in (tmp_path / "new", work):
            with pytest.raises(CacheError) as caught:  # for a file git gives no reason
                checkout(repo, big, place)
            assert caught.value.code in ("DISK_FULL", "DISK_REFUSED")
            assert "--cache-dir" not in (caught.value.hint or "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "work"}
    checkout(repo, big, work)
    assert _files(work) == {"README.md": b"other\n", "big": data}


def test_places_that_cannot_hold_a_checkout(repo: Repository, base: Written, tmp_path: Path) -> None:
    for place in (Path("/"), Path("/proc"), repo.path.parent / "work", tmp_path / "series" / "work"):
        with refused("PLACE_UNUSABLE"):
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
        assert f"delete {repo.path} " in (caught.value.hint or "")
    assert not (tmp_path / "new").exists()
    assert set(_files(tmp_path / "old")) == {entry.path for entry in repo.list_files(base.commit)}
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


def test_history_is_cut_only_where_the_parents_are_missing(repo: Repository) -> None:
    tree = repo.git.run("mktree", stdin=b"").decode().strip()
    parent = repo.git.run("commit-tree", tree, "-m", "one").decode().strip()
    child = repo.git.run("commit-tree", tree, "-p", parent, "-m", "two").decode().strip()
    orphan = repo.write_object(
        "commit", repo.git.run("cat-file", "commit", child).replace(parent.encode(), b"1" * 40)
    )
    cut_where_missing(repo, [parent, child, orphan])
    assert (repo.path / "shallow").read_text().split() == [orphan]
    assert repo.git.run("rev-list", "--count", child).strip() == b"2"
