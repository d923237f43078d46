"""Pushing out of a cache that has one commit of upstream and nothing below it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import write_note_commit, write_orphan
from patchkit.carry.upstream.push import push_refs
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"


@pytest.fixture
def upstream(tmp_path: Path, plain_git: Callable[..., str]) -> Path:
    path = tmp_path / "upstream"
    path.mkdir()
    plain_git(path, "init", "-q", "-b", "main")
    for text in ("one", "two"):
        (path / "a").write_text(text)
        plain_git(path, "add", "a")
        plain_git(path, "commit", "-q", "-m", text)
    return path


@pytest.fixture
def shallow(tmp_path: Path, upstream: Path) -> tuple[Repository, str]:
    repository = create_repository(tmp_path / "cache" / "upstream.git", NullReporter())
    repository.git.run("fetch", "--depth=1", f"file://{upstream}", "main:refs/patchkit/pin/b1")
    tip = write_note_commit(repository, "refs/patchkit/pin/b1^0", message="seal\n", date=DATE).commit
    return repository, tip


def _push(repository: Repository, to: Path, tip: str) -> None:
    push_refs(repository, str(to), {"refs/heads/p/b1": tip}, force=False, credential_helper=None)


def test_a_fork_has_what_the_cache_lacks(
    shallow: tuple[Repository, str], upstream: Path, tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    fork = tmp_path / "fork.git"
    plain_git(tmp_path, "clone", "-q", "--bare", str(upstream), str(fork))
    _push(*shallow[:1], fork, shallow[1])
    assert plain_git(fork, "rev-list", "--count", "p/b1").strip() == "3"


def test_a_remote_without_the_history_is_not_given_half_of_it(
    shallow: tuple[Repository, str], tmp_path: Path, plain_git: Callable[..., str]
) -> None:
    empty = tmp_path / "empty.git"
    plain_git(tmp_path, "init", "-q", "--bare", str(empty))
    evidence = write_orphan(shallow[0], {"b.json": b"{}"}, message="evidence\n", date=DATE).commit
    refs = {"refs/patchkit/evidence/1": evidence, "refs/heads/p/b1": shallow[1]}
    with refused("PUSH_SHALLOW") as caught:
        push_refs(shallow[0], str(empty), refs, force=False, credential_helper=None)
    assert "fork of llama.cpp" in (caught.value.hint or "")
    assert not plain_git(empty, "for-each-ref")


def test_a_root_commit_of_files_and_a_commit_that_changes_nothing(
    repo: Repository, base, plain_git: Callable[..., str]
) -> None:
    made = write_orphan(repo, {"b/c.json": b"{}", "a.log": b"x\r\n"}, message="evidence\n", date=DATE)
    assert plain_git(repo.path, "rev-list", "--count", made.commit).strip() == "1"
    assert repo.read_blobs(made.commit, ["b/c.json", "a.log"]) == {"b/c.json": b"{}", "a.log": b"x\r\n"}
    assert write_orphan(repo, {"b/c.json": b"{}", "a.log": b"x\r\n"}, message="evidence\n", date=DATE) == made
    seal = write_note_commit(repo, base.commit, message="seal\n", date=DATE)
    assert seal.tree == base.tree
    assert subprocess.run(["git", "-C", str(repo.path), "fsck", "--strict"], check=False).returncode == 0
