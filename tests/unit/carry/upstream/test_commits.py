from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import CommitStream, NewCommit, Written, git_date, write_commits
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"
SERIES = (
    NewCommit(message="one\n\nWhy.\n", changes={"src/a.cu": b"int z;\r\n", "src/new/x.cuh": b"\xff"}),
    NewCommit(message="two: caf\u00e9", changes={"run.sh": b"#!/bin/sh\necho\n", "src/new/x.cuh": b"2"}),
)


def test_commits_stand_on_each_other_and_change_only_what_they_name(repo: Repository, base: Written) -> None:
    one, two = write_commits(repo, base.commit, SERIES, date=DATE)
    assert repo.resolve(f"{one.commit}^", f"{two.commit}^") == (base.commit, one.commit)
    assert repo.tree_of(two.commit) == two.tree
    changed = repo.git.run("diff-tree", "-r", "--name-status", base.commit, two.commit).decode()
    assert changed.splitlines() == ["M\trun.sh", "M\tsrc/a.cu", "A\tsrc/new/x.cuh"]
    assert repo.read_blobs(one.commit, ["src/a.cu", "src/new/x.cuh"]) == SERIES[0].changes


def test_modes_are_kept_and_new_files_are_plain(repo: Repository, base: Written) -> None:
    _, two = write_commits(repo, base.commit, SERIES, date=DATE)
    modes = {entry.path: entry.mode for entry in repo.list_files(two.commit)}
    assert modes["run.sh"] == "100755"
    assert modes["src/new/x.cuh"] == "100644"


def test_identity_date_and_message(repo: Repository, base: Written) -> None:
    one, two = write_commits(repo, base.commit, SERIES, date=DATE)
    raw = repo.git.run("cat-file", "commit", one.commit).decode()
    who = "patchkit <patchkit@localhost> 1761900859 +0200"
    assert f"\nauthor {who}\ncommitter {who}\n\none\n\nWhy.\n" in raw
    assert repo.git.run("cat-file", "commit", two.commit).endswith("\n\ntwo: caf\u00e9\n".encode())


def test_no_ref_is_left_or_moved(repo: Repository, base: Written) -> None:
    write_commits(repo, base.commit, SERIES, date=DATE)
    assert repo.git.run("for-each-ref") == b""


def test_the_same_in_two_repositories_two_locales_two_umasks(
    repo: Repository, base: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    here = write_commits(repo, base.commit, SERIES, date=DATE)
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    mask = os.umask(0o077)
    try:
        other = create_repository(tmp_path / "other.git", NullReporter())
        with CommitStream(other) as stream:
            stream.begin(message="base", date=DATE, parent=None)
            for entry in repo.list_files(base.commit):
                data = repo.git.run("cat-file", "blob", entry.sha)
                stream.put_file(entry.path, entry.mode, data)
            again = stream.finish()[0]
        assert again == base
        assert write_commits(other, base.commit, SERIES, date=DATE) == here
    finally:
        os.umask(mask)


@pytest.mark.parametrize(
    "path", ["/etc/x", "a/../b", "./a", "a//b", "", "a/", ".git/config", "x/.GIT/y", "a\0b"]
)
def test_paths_no_tree_may_have(repo: Repository, base: Written, path: str) -> None:
    with refused("COMMIT_PATH_BAD"):
        write_commits(repo, base.commit, [NewCommit(message="m", changes={path: b""})], date=DATE)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("link", "link is a symbolic link"),
        ("src", "src is a folder"),
        ("README.md/x", "README.md is a file, not a folder"),
        ("link/x", "link is a symbolic link, not a folder"),
    ],
)
def test_only_files_are_replaced(repo: Repository, base: Written, path: str, says: str) -> None:
    with refused("COMMIT_PATH_BAD", match=says):
        write_commits(repo, base.commit, [NewCommit(message="m", changes={path: b""})], date=DATE)


def test_a_later_commit_cannot_turn_a_new_file_into_a_folder_or_back(repo: Repository, base: Written) -> None:
    file, below = NewCommit(message="a", changes={"n": b""}), NewCommit(message="b", changes={"n/x": b""})
    for series in ([file, below], [below, file]):
        with refused("COMMIT_PATH_BAD"):
            write_commits(repo, base.commit, series, date=DATE)


def test_a_submodule_is_not_replaced(repo: Repository, base: Written) -> None:
    listing = repo.git.run("ls-tree", base.tree) + f"160000 commit {base.commit}\tsub\n".encode()
    tree = repo.git.run("mktree", stdin=listing).decode().strip()
    commit = repo.git.run("commit-tree", tree, "-m", "m").decode().strip()
    with refused("COMMIT_PATH_BAD", match="a submodule"):
        write_commits(repo, commit, [NewCommit(message="m", changes={"sub": b""})], date=DATE)


def test_an_empty_commit_and_a_missing_base(repo: Repository, base: Written) -> None:
    with refused("COMMIT_EMPTY"):
        write_commits(repo, base.commit, [NewCommit(message="m", changes={})], date=DATE)
    with refused("GIT_OBJECT_MISSING"):
        write_commits(repo, "1" * 40, SERIES, date=DATE)


def test_copies_and_odd_names_survive_the_stream(repo: Repository) -> None:
    with CommitStream(repo) as stream:
        stream.begin(message="m", date=DATE, parent=None)
        stream.put_file('a "b"\\\n\udcff', "100755", b"data")
        stream.copy_file('a "b"\\\n\udcff', "copy")
        made = stream.finish()[0]
    assert [(e.mode, e.path) for e in repo.list_files(made.commit)] == [
        ("100755", 'a "b"\\\n\udcff'),
        ("100755", "copy"),
    ]


def test_dates_in_gits_form() -> None:
    assert git_date("2025-10-31T10:54:19+02:00") == "1761900859 +0200"
    assert git_date("2026-04-05T18:30:25-07:00") == "1775439025 -0700"
    assert git_date("2026-01-01T00:00:00Z") == "1767225600 +0000"
    assert git_date("2026-01-01T00:00:00-03:30") == "1767238200 -0330"
    for wrong in ("2026-01-01T00:00:00", "yesterday"):
        with pytest.raises(ValueError):  # noqa: PT011  # the text is Python's
            git_date(wrong)


def test_a_disk_that_fills_up_while_a_commit_is_prepared(
    repo: Repository, base: Written, make_root: Callable[..., Written]
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with refused("DISK_FULL"):
            make_root({"big": b"x" * 1_000_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert make_root({"big": b"x" * 1_000_000}).commit


def test_files_go_before_others_come_and_get_the_modes_that_are_named(
    repo: Repository, base: Written
) -> None:
    first = NewCommit(
        message="one",
        changes={"tools/run.sh": b"#!/bin/sh\necho\n", "src": b"no folder any more\n"},
        gone=("run.sh", *(each.path for each in repo.list_files(base.commit, "src/"))),
        modes={"tools/run.sh": "100755"},
    )
    second = NewCommit(message="two", changes={"run.sh": b"#!/bin/sh\n"}, gone=("src", "tools/run.sh"))
    one, two = write_commits(repo, base.commit, (first, second), date=DATE)
    kept = {
        entry.path: entry.mode for entry in repo.list_files(base.commit) if not entry.path.startswith("src/")
    }
    del kept["run.sh"]
    found = [{each.path: each.mode for each in repo.list_files(made.commit)} for made in (one, two)]
    assert found[0] == kept | {"src": "100644", "tools/run.sh": "100755"}
    assert found[1] == kept | {"run.sh": "100644"}


def test_a_mode_alone_is_a_change(repo: Repository, base: Written) -> None:
    data = repo.read_blobs(base.commit, ["run.sh"])
    commit = NewCommit(message="m", changes=data, modes={"run.sh": "100644"})
    (made,) = write_commits(repo, base.commit, [commit], date=DATE)
    assert repo.git.run("diff-tree", "-r", base.commit, made.commit).split()[:2] == [b":100755", b"100644"]


@pytest.mark.parametrize("path", ["never", "src", "src/never"])
def test_what_is_not_there_cannot_go(repo: Repository, base: Written, path: str) -> None:
    with refused("COMMIT_PATH_BAD"):
        write_commits(repo, base.commit, [NewCommit(message="m", changes={}, gone=(path,))], date=DATE)
