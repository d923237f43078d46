"""Reading candidates back, and what they change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.diff import FileChange, difference
from patchkit.carry.candidate.find import find_candidate, read_candidate
from patchkit.carry.candidate.record import is_candidate
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.upstream.refs import delete_ref, list_refs, update_ref

ROOT = Path(__file__).resolve().parents[4]
REF = "refs/heads/candidate/gfx1100+gfx1151/b6900"
PIN = Pin(
    name="b6900",
    build=6900,
    commit=None,
    tree="0" * 40,
    committed="2026-01-01T00:00:00Z",
    commit_object=None,
    sources=(),
)


@pytest.fixture
def workspace(made, tmp_path) -> Workspace:
    series = SeriesDir(root=tmp_path, origin="named")
    return Workspace(series=series, cache_root=made.cache, reporter=NullReporter())


@pytest.fixture
def candidate(made):
    return read_candidate(made.repository, REF, list_refs(made.repository, "refs"))


def test_a_candidate_tells_its_patches_in_order(made, candidate) -> None:
    assert candidate.archs == ("gfx1100", "gfx1151")
    assert (candidate.build, candidate.base, candidate.tip) == (6900, made.base, made.commits[-1].commit)
    assert [(row.id, row.subject) for row in candidate.commits] == [
        ("first", "First: a"),
        ("second", "Second: b"),
    ]
    assert [row.commit for row in candidate.commits] == [row.commit for row in made.commits]
    assert candidate.branch == "candidate/gfx1100+gfx1151/b6900"


def test_the_order_and_repetition_of_archs_do_not_matter(workspace, candidate) -> None:
    _, found = find_candidate(workspace, ["gfx1151", "gfx1100", "gfx1151"], PIN)
    assert found == candidate


def test_a_candidate_that_was_not_made_is_named_with_those_that_were(workspace) -> None:
    with refused("CANDIDATE_MISSING", match="no candidate/gfx1151/b6900 yet") as caught:
        find_candidate(workspace, ["gfx1151"], PIN)
    assert caught.value.why == "existing candidates: candidate/gfx1100+gfx1151/b6900"
    assert caught.value.hint == "patchkit apply --arch gfx1151"


def test_the_next_command_makes_the_candidate_that_is_missing(made) -> None:
    series = SeriesDir(root=ROOT, origin="checkout")
    real = Workspace(series=series, cache_root=made.cache, reporter=NullReporter())
    default = load_lock(series.lock).pin(None)
    other = replace(default, build=default.build + 1)
    for pin, told in ((default, ""), (other, f" --upstream {other.name}")):
        with refused("CANDIDATE_MISSING") as caught:
            find_candidate(real, ["gfx1151"], pin)
        assert caught.value.hint == f"patchkit apply --arch gfx1151{told}"


def test_an_empty_cache_has_no_candidate(workspace, tmp_path) -> None:
    empty = Workspace(series=workspace.series, cache_root=tmp_path / "none", reporter=NullReporter())
    with refused("CANDIDATE_MISSING") as caught:
        find_candidate(empty, ["gfx1151"], PIN)
    assert caught.value.why == "there are no candidates yet"


def test_a_branch_without_its_pin_is_broken(made, workspace) -> None:
    delete_ref(made.repository, "refs/patchkit/pin/b6900", made.base)
    with refused("CANDIDATE_STALE") as caught:
        find_candidate(workspace, ["gfx1100", "gfx1151"], PIN)
    assert caught.value.why == "the cache has no pin b6900"


def test_a_candidate_without_patches_is_the_pin_itself(made, workspace) -> None:
    update_ref(made.repository, REF, made.base, made.commits[-1].commit)
    _, found = find_candidate(workspace, ["gfx1100", "gfx1151"], PIN)
    assert (found.commits, found.tip) == ((), made.base)
    assert difference(made.repository, found, None).text == b""


@pytest.mark.parametrize("how", ["a foreign commit", "a branch from somewhere else"])
def test_a_branch_that_patchkit_did_not_make_is_broken(made, workspace, how: str) -> None:
    tree = made.repository.tree_of(made.base)
    parents = ("-p", made.base) if how == "a foreign commit" else ()
    tip = made.repository.git.run("commit-tree", *parents, "-m", "mine", tree).decode().strip()
    update_ref(made.repository, REF, tip, made.commits[-1].commit)
    with refused("CANDIDATE_STALE"):
        find_candidate(workspace, ["gfx1100", "gfx1151"], PIN)


@pytest.mark.parametrize(
    ("ref", "is_one"),
    [
        (REF, True),
        ("refs/heads/candidate/gfx1151/b6900", True),
        ("refs/heads/candidate/gfx1151/6900", False),
        ("refs/heads/mine", False),
        ("refs/patchkit/pin/b6900", False),
    ],
)
def test_names_of_candidates(ref: str, is_one) -> None:
    assert is_candidate(ref) is is_one


def test_the_whole_difference_is_every_byte(made, candidate) -> None:
    whole = difference(made.repository, candidate, None)
    assert whole.files == (
        FileChange(path="src/a.cu", added=2, removed=1),
        FileChange(path="src/b.cu", added=1, removed=1),
    )
    assert b"\n-two\n+TWO\n+three\n" in whole.text
    assert b"\n-caf\xe9\r\n+th\xe9\r\n" in whole.text


def test_a_part_is_what_one_patch_adds(made, candidate) -> None:
    part = difference(made.repository, candidate, "second")
    assert (part.base, part.tip) == (made.commits[0].commit, made.commits[1].commit)
    assert [change.path for change in part.files] == ["src/b.cu"]


def test_a_patch_that_is_not_there_is_an_error_with_those_that_are(made, candidate) -> None:
    with refused("CANDIDATE_STALE") as caught:
        difference(made.repository, candidate, "third")
    assert caught.value.hint == "its patches: first, second"


def test_a_difference_survives_json_byte_for_byte(made, candidate) -> None:
    whole = difference(made.repository, candidate, None)
    text = json.loads(json.dumps(fields_of(whole)))["diff"]
    assert text.encode("utf-8", "surrogateescape") == whole.text


def test_a_candidate_of_other_gpus_is_broken(made, workspace) -> None:
    message = "one\n\nPatchkit-Id: one\nPatchkit-Profile: gfx942 0123456789abcdef\n"
    tree = made.repository.tree_of(made.base)
    out = made.repository.git.run("commit-tree", "-p", made.base, "-m", message, tree)
    update_ref(made.repository, REF, out.decode().strip(), made.commits[-1].commit)
    with refused("CANDIDATE_STALE") as caught:
        find_candidate(workspace, ["gfx1100", "gfx1151"], PIN)
    assert caught.value.why == "its commits are for gfx942"
