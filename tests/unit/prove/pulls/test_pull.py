"""What git says of a pull request, and the series of its head, read without running anything of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo_world import git
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.git import Change
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.pulls.changes import part_of, read_pull
from patchkit.prove.pulls.side import read_side


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    (root / "patches").mkdir(parents=True)
    (root / "arch_profiles").mkdir()
    (root / "patches" / "upstream.lock").write_text("lock\n")
    (root / "arch_profiles" / "gfx1.toml").write_text("one\n")
    (root / "README.md").write_text("read\n")
    git(root, "init", "-q", "-b", "main")
    return commit(root)


def commit(root: Path) -> Path:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")
    return root


def test_it_lists_what_the_head_changes_and_not_what_the_base_did_since(clone: Path) -> None:
    git(clone, "checkout", "-q", "-b", "pr")
    (clone / "README.md").unlink()
    (clone / "patches" / "upstream.lock").write_text("other\n")
    (clone / "new file").write_text("new\n")
    commit(clone)
    git(clone, "checkout", "-q", "main")
    (clone / "arch_profiles" / "gfx1.toml").write_text("two\n")
    commit(clone)
    pull = read_pull(clone, "main", "pr", NullReporter())
    assert [(one.path, one.letter) for one in pull.changes] == [
        ("README.md", "D"),
        ("new file", "A"),
        ("patches/upstream.lock", "M"),
    ]
    assert (pull.kind, pull.behind) == ("patchkit", 1)
    assert pull.fork_point == git(clone, "rev-parse", "main~1")


def test_a_folder_inside_the_clone_is_the_clone(clone: Path) -> None:
    assert read_pull(clone / "patches", "main", "HEAD", NullReporter()).changes == ()


@pytest.mark.parametrize("name", ["nobody", "", "--upload-pack=true", "main\nmain", "HEAD:README.md"])
def test_a_name_of_no_commit_is_refused(clone: Path, name: str) -> None:
    with refused("GATE_REPOSITORY_UNKNOWN", match="--head"):
        read_pull(clone, "main", name, NullReporter())


def test_histories_that_do_not_meet_are_told(clone: Path) -> None:
    git(clone, "checkout", "-q", "--orphan", "other")
    (clone / "README.md").write_text("another beginning\n")
    commit(clone)
    with refused("GATE_REPOSITORY_UNKNOWN") as caught:
        read_pull(clone, "main", "other", NullReporter())
    assert "fetch-depth: 0" in str(caught.value.hint)


def test_another_project_is_refused(clone: Path) -> None:
    git(clone, "rm", "-q", "-r", "arch_profiles")
    commit(clone)
    with refused("GATE_REPOSITORY_UNKNOWN", match="is neither patchkit nor"):
        read_pull(clone, "HEAD~1", "HEAD", NullReporter())


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    with refused("GATE_REPOSITORY_UNKNOWN", match="not in a git repository"):
        read_pull(tmp_path, "main", "main", NullReporter())


def side_of(clone: Path, tmp_path: Path) -> None:
    commit(clone)
    read_side(Repository(path=clone / ".git", reporter=NullReporter()), "HEAD", tmp_path / "side")


def test_a_link_in_the_series_is_not_followed(clone: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (clone / "patches" / "table.jinja").symlink_to(secret)
    with refused("GATE_ENTRY_REFUSED", match="is a symbolic link"):
        side_of(clone, tmp_path)
    assert not (tmp_path / "side").exists()


@pytest.mark.parametrize("name", ["a\nb.jinja", "a\\b.jinja", "a\x1bb"])
def test_an_odd_name_in_the_series_is_refused(clone: Path, tmp_path: Path, name: str) -> None:
    (clone / "patches" / name).write_text("x")
    with refused("GATE_ENTRY_REFUSED", match="not a valid name for a file"):
        side_of(clone, tmp_path)


def test_a_file_beyond_all_measure_is_refused(clone: Path, tmp_path: Path) -> None:
    (clone / "patches" / "large").write_bytes(b"x" * (33 * 1024 * 1024))
    with refused("GATE_ENTRY_REFUSED", match="more than 33554432"):
        side_of(clone, tmp_path)


def test_no_hook_or_filter_of_the_pull_request_runs(clone: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hooks = clone / ".git" / "hooks"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    git(clone, "config", "filter.evil.smudge", f"touch {ran}; cat")
    git(clone, "config", "diff.evil.command", f"touch {ran}")
    git(clone, "checkout", "-q", "-b", "pr")
    (clone / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (clone / "README.md").write_text("changed\n")
    commit(clone)
    ran.unlink(missing_ok=True)  # the author's own commit may have
    read_pull(clone, "main", "pr", NullReporter())
    assert not ran.exists()


def change(path: str, letter: str, mode: str) -> Change:
    return Change(path=path, letter=letter, modes=("000000" if letter == "A" else mode, mode), ids=("", ""))


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("arch_profiles/gfx1151.toml", "profile"),
        ("arch_profiles/families/rdna3.toml", "profile"),
        ("arch_profiles/schema.json", "code"),
        ("patches/0001-wmma/patch.toml", "patch"),
        ("patches/0001-wmma/deep/table.cuh.jinja", "patch"),
        ("patches/0001-wmma/README.md", "patch"),  # the lock records it
        ("patches/0001-wmma/.patch.toml.swp", "docs"),  # no template can read it, no hash covers it
        ("patches/series.toml", "rules"),
        ("patches/upstream.lock", "lock"),
        ("patches/upstreams.toml", "catalogue"),
        ("patches/lock.schema.json", "code"),
        ("templates/shared.jinja", "template"),
        ("templates/README.md", "template"),
        ("templates/patchkit/patch.toml.jinja", "code"),  # what import writes; no result is made of it
        ("evidence/gfx1151-b1-0123456789ab.json", "evidence"),
        ("evidence/README.md", "docs"),
        ("evidence/run.sh", "code"),
        ("README.md", "docs"),
        ("LICENSE", "docs"),
        ("docs/records/gates.md", "docs"),
        ("docs/pictures/speed.svg", "docs"),
        ("docs/conf.py", "code"),
        ("patchkit/notes.md", "code"),
        ("patchkit/cli/app.py", "code"),
        (".github/workflows/gate.yml", "code"),
        ("pyproject.toml", "code"),
        ("tests/README.md", "code"),
    ],
)
def test_a_path_belongs_to_one_part(path: str, part: str) -> None:
    assert part_of(change(path, "M", "100644")) == part


def test_a_link_among_the_documents_is_no_document() -> None:
    assert part_of(change("docs/how.md", "A", "120000")) == "code"
