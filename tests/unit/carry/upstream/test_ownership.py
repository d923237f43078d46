from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import CacheError
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository, open_cache
from patchkit.carry.upstream.commits import NewCommit, Written, write_commits
from patchkit.carry.upstream.repository import Repository

REPORTER = NullReporter()


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("how", ["peek", "hold", "create"])
def test_a_repository_of_the_user_is_refused_and_kept(
    tmp_path: Path, plain_git: Callable[..., str], how: str
) -> None:
    mine = tmp_path / "upstream.git"
    plain_git(tmp_path, "init", "-q", "--bare", str(mine))
    (mine / "index.lock").write_text("mine")
    (tmp_path / "lock.owner").write_text("1\n")
    before = _content(tmp_path)
    cache = open_cache(tmp_path)
    take: dict[str, Callable[[], object]] = {
        "peek": lambda: cache.peek(REPORTER),
        "hold": lambda: cache.hold(REPORTER).__enter__(),
        "create": lambda: create_repository(mine, REPORTER),
    }
    with refused("CACHE_FOREIGN"):
        take[how]()
    assert _content(tmp_path) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "upstream.git").mkdir()
    assert open_cache(tmp_path).peek(REPORTER) is None
    assert create_repository(tmp_path / "upstream.git", REPORTER).write_object("blob", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["upstream.git"]


def test_a_folder_of_the_user_with_the_name_of_a_half_made_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "upstream.git.partial").mkdir()
    (tmp_path / "upstream.git.partial" / "mine").write_text("mine")
    with refused("CACHE_FOREIGN"):
        create_repository(tmp_path / "upstream.git", REPORTER)
    assert _content(tmp_path) == {"upstream.git.partial/mine": b"mine"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("diff.interHunkContext", "9"),
        ("diff.suppressBlankEmpty", "true"),
        ("diff.default.xfuncname", ".*"),
        ("format.headers", "X-Mine: yes"),
        ("trailer.ifexists", "replace"),
        ("log.showSignature", "true"),
        ("i18n.logOutputEncoding", "latin1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", "touch mine"),
        ("filter.x.process", "touch mine"),
        ("include.path", "mine"),
        ("core.worktree", "/"),
        ("url.x.insteadOf", "https:"),
    ],
)
def test_settings_that_could_change_bytes_or_run_programs_are_refused(
    repo: Repository, plain_git: Callable[..., str], key: str, value: str
) -> None:
    plain_git(repo.path.parent, "config", "--file", str(repo.path / "config"), key, value)
    with refused("CACHE_ALTERED") as caught:
        open_cache(repo.path.parent).peek(REPORTER)
    assert key.lower() in (caught.value.why or "").lower()
    command = caught.value.hint or ""
    subprocess.run(command.split(), check=True)
    assert open_cache(repo.path.parent).peek(REPORTER) is not None


def test_what_a_user_of_a_checkout_sets_is_allowed(repo: Repository, plain_git: Callable[..., str]) -> None:
    for key, value in (
        ("user.name", "Me\nand\nme"),
        ("remote.my.fork.url", "git@host:me/llama.cpp"),
        ("branch.mine.merge", "refs/heads/mine"),
    ):
        plain_git(repo.path.parent, "config", "--file", str(repo.path / "config"), key, value)
    assert open_cache(repo.path.parent).peek(REPORTER) is not None


def test_other_attributes_are_refused_and_written_anew_once_removed(repo: Repository) -> None:
    attributes = repo.path / "info" / "attributes"
    wanted = attributes.read_bytes()
    attributes.write_bytes(b"* filter=x\n")
    with refused("CACHE_ALTERED") as caught:
        open_cache(repo.path.parent).peek(REPORTER)
    assert (caught.value.hint or "").startswith(f"rm {attributes}")
    attributes.unlink()
    with open_cache(repo.path.parent).hold(REPORTER):
        assert attributes.read_bytes() == wanted


def test_grafts_do_not_change_history(repo: Repository, base: Written) -> None:
    change = NewCommit(message="m", changes={"new": b"1"})
    (tip,) = write_commits(repo, base.commit, [change], date="2025-10-31T10:54:19+02:00")
    (repo.path / "info" / "grafts").write_text(f"{tip.commit}\n")
    assert repo.git.run("rev-list", tip.commit).decode().split() == [tip.commit, base.commit]


@pytest.mark.parametrize("name", ["lock", "lock.git"])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    root = tmp_path / "cache"
    root.mkdir()
    (root / name).symlink_to(victim)
    with pytest.raises(CacheError, match="symbolic link"), open_cache(root).hold(REPORTER):
        pass
    assert victim.read_text() == "mine"


def test_an_owner_that_is_a_link_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    root = tmp_path / "cache"
    root.mkdir()
    (root / "lock.owner").symlink_to(victim)
    with open_cache(root).hold(REPORTER):
        assert not (root / "lock.owner").is_symlink()
    assert victim.read_text() == "mine"
