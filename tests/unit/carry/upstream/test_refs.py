from __future__ import annotations

import pytest
from refusing import refused

from patchkit.carry.upstream.commits import Written
from patchkit.carry.upstream.refs import (
    delete_ref,
    drop_damaged_refs,
    list_refs,
    read_ref,
    update_ref,
    update_refs,
)
from patchkit.carry.upstream.repository import Repository

NAME = "refs/heads/candidate/gfx1151+gfx1100/b6900"


def test_a_ref_is_made_read_listed_and_removed(repo: Repository, base: Written) -> None:
    assert read_ref(repo, NAME) is None
    update_ref(repo, NAME, base.commit, None)
    assert read_ref(repo, NAME) == base.commit
    assert list_refs(repo, "refs/heads/candidate") == {NAME: base.commit}
    assert read_ref(repo, "refs/heads/candidate") is None
    delete_ref(repo, NAME, base.commit)
    assert list_refs(repo, "refs") == {}


def test_a_ref_that_moved_is_left_alone(repo: Repository, base: Written) -> None:
    other = repo.git.run("commit-tree", base.tree, "-m", "x").decode().strip()
    update_ref(repo, NAME, other, None)
    for expected in (None, base.commit):
        with refused("REF_MOVED", match=other):
            update_ref(repo, NAME, base.commit, expected)
    with refused("REF_MOVED"):
        delete_ref(repo, NAME, base.commit)
    assert read_ref(repo, NAME) == other


@pytest.mark.parametrize("name", ["refs/heads/a..b", "HEAD", "refs/heads/x.lock", "--stdin"])
def test_names_git_does_not_allow(repo: Repository, base: Written, name: str) -> None:
    with refused("REF_NAME_BAD"):
        update_ref(repo, name, base.commit, None)


def test_a_refusal_that_is_no_move_is_gits(repo: Repository, base: Written) -> None:
    lock = repo.path / f"{NAME}.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    with refused("GIT_FAILED", match="update-ref"):
        update_ref(repo, NAME, base.commit, None)


@pytest.mark.parametrize("name", ["refs/patchkit/pin", "refs/patchkit/pin/b1", "refs/heads/candidate", NAME])
@pytest.mark.parametrize("content", [b"", b"garbage\n", b"ref: refs/heads/x\n"])
def test_refs_of_patchkits_own_that_say_nothing_are_removed(
    repo: Repository, base: Written, name: str, content: bytes
) -> None:
    place = repo.path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    other = repo.path / "refs" / "heads" / "mine"
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(content)
    assert drop_damaged_refs(repo) == (name,)
    assert other.read_bytes() == content
    for ref in ("refs/patchkit/pin/b1", NAME):
        update_ref(repo, ref, base.commit, None)
    assert drop_damaged_refs(repo) == ()


def test_a_branch_of_the_user_in_the_way_is_named_and_kept(repo: Repository, base: Written) -> None:
    update_ref(repo, "refs/heads/candidate", base.commit, None)
    assert drop_damaged_refs(repo) == ()
    with refused("REF_IN_THE_WAY", match="refs/heads/candidate is in the way") as caught:
        update_ref(repo, NAME, base.commit, None)
    assert (caught.value.hint or "").endswith("branch -m candidate NEW-NAME")
    assert read_ref(repo, "refs/heads/candidate") == base.commit


def test_several_refs_move_together_or_not_at_all(repo: Repository, base) -> None:
    update_refs(repo, {"refs/heads/a": (base.commit, None), "refs/patchkit/b": (base.commit, None)})
    assert read_ref(repo, "refs/heads/a") == read_ref(repo, "refs/patchkit/b") == base.commit
    with refused("REF_MOVED", match="refs/heads/a moved"):
        update_refs(repo, {"refs/heads/c": (base.commit, None), "refs/heads/a": (base.commit, "1" * 40)})
    assert read_ref(repo, "refs/heads/c") is None
    with refused("REF_NAME_BAD"):
        update_refs(repo, {"refs/heads/c": (base.commit, None), "refs/heads/..": (base.commit, None)})
    with refused("REF_IN_THE_WAY"):
        update_refs(repo, {"refs/heads/c": (base.commit, None), "refs/heads/a/b": (base.commit, None)})
    assert read_ref(repo, "refs/heads/c") is None
