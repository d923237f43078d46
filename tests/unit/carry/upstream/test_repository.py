from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository, mark, open_cache
from patchkit.carry.upstream.commits import Written
from patchkit.carry.upstream.repository import Repository

ODD = "src/odd \"n\\ame'.cu"


def test_files_are_listed_with_mode_and_path(repo: Repository, base: Written) -> None:
    listed = {entry.path: entry.mode for entry in repo.list_files(base.commit)}
    assert listed == {
        "README.md": "100644",
        "run.sh": "100755",
        "link": "120000",
        "src/a.cu": "100644",
        "src/crlf.cu": "100644",
        ODD: "100644",
    }
    assert [entry.path for entry in repo.list_files(base.tree, "src")] == ["src/a.cu", "src/crlf.cu", ODD]
    assert repo.list_files(base.tree, "nothing") == ()


@pytest.mark.parametrize(
    "line",
    [
        r'a[i] = (b * c) ^ ~d | e && "\n" {x}? $1 + 2.5f; // \u00fc',
        r'x->y = \d{2} \\ "]" [^a-z]',
        r"if (a<b && c>d) 'q' `b` #@!",
        r"%d: *p++ = -1",
    ],
)
def test_a_line_is_found_whatever_its_characters_and_blanks_are(repo: Repository, line: str) -> None:
    other = line.replace(" = ", "  =\t")
    blob = repo.write_object("blob", f"one\n\t{other}\n".encode())
    (sha,) = repo.git.run("mktree", stdin=f"100644 blob {blob}\tf.c\n".encode()).decode().split()
    found = repo.search(sha, [line, f"{line} more"])
    assert found == {line: (("f.c", 2),), f"{line} more": ()}
    assert repo.search(sha, []) == {}
    # The texts of a large patch are longer than a command line may be.
    many = [line, *(f"{line} {'more ' * 30_000}{number}" for number in range(3))]
    assert repo.search(sha, many)[line] == found[line]


def test_blobs_come_back_byte_for_byte_in_one_process(repo: Repository, base: Written, recorder) -> None:
    before = len(recorder.said("command"))
    blobs = repo.read_blobs(base.commit, ["src/crlf.cu", ODD, "README.md"])
    assert blobs == {
        "src/crlf.cu": b"one\r\ntwo\r\n",
        ODD: b"\xff\xfe no newline",
        "README.md": b"# upstream\n",
    }
    assert len(recorder.said("command")) == before + 1
    assert repo.read_blobs(base.commit, []) == {}


@pytest.mark.parametrize("path", ["src/none.cu", "src", "src/a.cu\nREADME.md"])
def test_a_path_that_is_no_file_is_named(repo: Repository, base: Written, path: str) -> None:
    with refused("GIT_OBJECT_MISSING") as caught:
        repo.read_blobs(base.commit, ["README.md", path])
    assert caught.value.where[0].path == path
    assert ("line break" in (caught.value.why or "")) == ("\n" in path)


def test_objects_are_resolved_or_not(repo: Repository, base: Written) -> None:
    assert repo.resolve(f"{base.commit}^{{tree}}", "0" * 40, "refs/none") == (base.tree, None, None)
    assert repo.tree_of(base.commit) == base.tree
    assert repo.has_object(base.commit)
    assert not repo.has_object("1" * 40)


def test_a_missing_commit_is_its_own_error(repo: Repository) -> None:
    with refused("GIT_OBJECT_MISSING"):
        repo.tree_of("1" * 40)
    with refused("GIT_OBJECT_MISSING"):
        repo.list_files("1" * 40)


def test_entries_are_found_with_the_folders_above(repo: Repository, base: Written) -> None:
    found = repo.find_entries(base.commit, ["src", "src/a.cu", "src/new.cu", "link"])
    assert {path: entry.mode for path, entry in found.items()} == {
        "src": "040000",
        "src/a.cu": "100644",
        "link": "120000",
    }
    assert repo.find_entries(base.commit, []) == {}


def test_a_half_made_repository_is_completed(repo: Repository, base: Written) -> None:
    (repo.path / "HEAD").unlink()
    (repo.path / "info" / "attributes").unlink()
    assert open_cache(repo.path.parent).peek(NullReporter()) is None
    create_repository(repo.path, NullReporter())
    again = open_cache(repo.path.parent).peek(NullReporter())
    assert again is not None
    assert again.tree_of(base.commit) == base.tree


def test_remains_of_a_killed_creation_are_used_up(tmp_path: Path) -> None:
    partial = tmp_path / "upstream.git.partial"
    mark(partial)
    (partial / "objects").mkdir()
    made = create_repository(tmp_path / "upstream.git", NullReporter())
    assert made.write_object("blob", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["upstream.git"]


def test_a_file_in_the_place_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "upstream.git").write_text("mine")
    with refused("DISK_REFUSED"):
        create_repository(tmp_path / "upstream.git", NullReporter())
    assert (tmp_path / "upstream.git").read_text() == "mine"
