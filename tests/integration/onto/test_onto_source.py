"""The tree of the owner's commit that ``emulate``, ``sanitize`` and ``model`` take, which is only read."""

from __future__ import annotations

import pytest
from demo_world import FOLDER

from patchkit.base.errors import UsageError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.onto.pin import Onto
from patchkit.cli.emulated import source_of_commit


@pytest.fixture
def source(owner):
    """The tree of a revision of the owner's clone."""
    place = owner.place
    workspace = Workspace(
        series=find_series_dir(place.series), cache_root=place.cache, reporter=NullReporter()
    )
    return lambda revision: source_of_commit(workspace, Onto(revision=revision, directory=owner.clone))


def test_it_has_the_owners_files_and_the_build_below(owner, source):
    before = owner.git("for-each-ref"), owner.git("status", "--porcelain")
    made = source("HEAD")
    assert "// mine" in (made.root / FOLDER / "demo.cu").read_text()
    assert (made.tree, made.build) == (owner.git("rev-parse", "HEAD^{tree}"), 2)
    assert made.commit == owner.git("rev-parse", "HEAD")[:9]
    assert (owner.git("for-each-ref"), owner.git("status", "--porcelain")) == before


def test_a_commit_with_our_patches_is_taken_as_it_is(owner, source):
    owner.apply()
    made = source("patchkit/gfx1151")
    assert "128 : 64" in (made.root / FOLDER / "demo.cu").read_text()


def test_a_commit_of_which_no_build_is_known_is_taken_all_the_same(owner, source):
    tree = owner.git("rev-parse", "HEAD^{tree}")
    alone = owner.git(
        "-c", "user.name=owner", "-c", "user.email=o@example.org", "commit-tree", tree, "-m", "squashed"
    )
    assert source(alone).tree == tree


def test_something_else_is_refused(owner, source):
    owner.git("switch", "-q", "--orphan", "other")
    owner.commit("letter.txt", "not llama.cpp\n")
    with pytest.raises(UsageError) as error:
        source("HEAD")
    assert error.value.code == "ONTO_NOT_LLAMA_CPP"
    with pytest.raises(UsageError) as error:
        source("no-such-branch")
    assert error.value.code == "ONTO_NO_COMMIT"
