"""Repositories and branches that ``bump --commit`` accepts, without losing the user's commits."""

from __future__ import annotations

import subprocess

import pytest
from demo_world import git

from patchkit.base.errors import GitError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.bump.commit import check_branch, check_committed, commit_lock
from patchkit.carry.series.lock import load_lock

LOCK = """\
version = 2
default = "b2"

[[pin]]
name = "b2"
tree = "{tree}"
committed = "2025-01-02T03:04:05+00:00"

[[pin.source]]
kind = "sdist"
package = "some"
version = "1"
sha256 = "{sha}"
subdir = "src"
omit = []
"""
REPORTER = NullReporter()


@pytest.fixture
def series(tmp_path):
    root = tmp_path / "home"
    (root / "patches").mkdir(parents=True)
    (root / "arch_profiles").mkdir()
    (root / "patches" / "upstream.lock").write_text(LOCK.format(tree="1" * 40, sha="2" * 64))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "the series")
    return SeriesDir(root=root, origin="named")


def made(series, *, default=2):
    """The lock, one hash changed, committed on bump/b2."""
    text = series.lock.read_text().replace("1" * 40, f"{default}" * 40)
    other = series.root.parent / "other.lock"
    other.write_text(text)
    return commit_lock(
        series,
        load_lock(other),
        branch="bump/b2",
        message="Bump\n",
        date="2025-01-02T03:04:05+00:00",
        reporter=REPORTER,
    )


def refused(call, *args):
    with pytest.raises(GitError) as caught:
        call(*args, REPORTER)
    assert caught.value.hint
    return caught.value.code


def test_a_branch_made_by_patchkit_is_replaced(series):
    check_branch(series, "bump/b2", REPORTER)
    first = made(series, default=3)
    check_branch(series, "bump/b2", REPORTER)
    second = made(series, default=4)
    assert (first.branch, second.branch) == ("bump/b2", "bump/b2")
    assert git(series.root, "rev-parse", "bump/b2") == second.commit != first.commit
    assert git(series.root, "rev-parse", "bump/b2~") == git(series.root, "rev-parse", "main")


def test_a_branch_with_a_users_commit_is_not_replaced(series):
    made(series, default=3)
    git(series.root, "switch", "-q", "bump/b2")
    git(series.root, "commit", "-q", "--allow-empty", "-m", "mine")
    git(series.root, "switch", "-q", "main")
    before = git(series.root, "rev-parse", "bump/b2")
    assert refused(check_branch, series, "bump/b2") == "BUMP_BRANCH_TAKEN"
    with pytest.raises(GitError, match="did not make"):
        made(series, default=4)
    assert git(series.root, "rev-parse", "bump/b2") == before


def test_a_merged_branch_may_be_replaced(series):
    made(series, default=3)
    git(series.root, "switch", "-q", "bump/b2")
    git(series.root, "commit", "-q", "--allow-empty", "-m", "mine")
    git(series.root, "switch", "-q", "main")
    git(series.root, "merge", "-q", "--ff-only", "bump/b2")
    check_branch(series, "bump/b2", REPORTER)


def test_a_checked_out_branch_is_not_moved(series):
    made(series, default=3)
    git(series.root, "switch", "-q", "bump/b2")
    assert refused(check_branch, series, "bump/b2") == "BUMP_BRANCH_TAKEN"


def test_a_conflicting_branch_name_is_reported_before_the_work(series):
    git(series.root, "branch", "bump")
    assert refused(check_branch, series, "bump/b2") == "BUMP_BRANCH_TAKEN"


def test_an_unchanged_lock_makes_no_commit(series):
    made(series, default=3)
    git(series.root, "merge", "-q", "--ff-only", "bump/b2")
    again = made(series, default=3)
    assert (again.branch, again.commit) == (None, git(series.root, "rev-parse", "main"))


@pytest.mark.parametrize("name", ["patches/upstream.lock", "patches/0001-new/patch.toml"])
def test_a_series_with_uncommitted_changes_is_refused(series, name):
    check_committed(series, REPORTER)
    path = series.root / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as stream:
        stream.write("# mine\n")
    assert refused(check_committed, series) == "BUMP_SERIES_UNUSABLE"


def test_files_of_an_editor_are_ignored(series):
    (series.patches / ".patch.toml.swp").write_text("x")
    (series.root / "notes.toml").write_text("x")
    check_committed(series, REPORTER)


def test_a_detached_head_works_like_a_branch(series):
    git(series.root, "switch", "-q", "--detach")
    check_committed(series, REPORTER)
    assert made(series, default=3).branch == "bump/b2"
    done = subprocess.run(
        ["git", "-C", str(series.root), "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
