"""Forks that a series watches: what is new there, what it resembles, and what was seen of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from demo_world import FOLDER, git

from patchkit.carry.series.lock import load_lock

DEMO = f"{FOLDER}/demo.cu"
NAME = "fork"


@pytest.fixture
def fork(river):
    """A clone of the upstream with a branch of its own from b1, watched by the series."""
    folder = river.root / "fork"
    git(river.root, "clone", "-q", str(river.upstream.resolve()), str(folder))
    git(folder, "checkout", "-q", "-b", "gfx11", "b1")
    path = river.home / "patches" / "series.toml"
    path.write_text(f'{path.read_text()}\n[[watch]]\nname = "{NAME}"\nurl = "{folder}"\nbranch = "gfx11"\n')
    return folder


def commit(fork, old: str, new: str, subject: str, path: str = DEMO) -> str:
    file = fork / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    git(fork, "commit", "-q", "-am", subject)
    return git(fork, "rev-parse", "HEAD")


def watched(river, *args: str) -> dict[str, Any]:
    done = river.run("status", "--json", *args)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["watches"]
    return found


def like(found: dict[str, Any]) -> list[tuple[str, dict[str, list[str]]]]:
    return [
        (each["subject"], {one["patch"]: one["by"] for one in each["resembles"]}) for each in found["commits"]
    ]


def test_new_commits_are_told_with_what_they_resemble(river, fork) -> None:
    twin = "int twin_b(int x) {\n    const int scale = 2;"
    commit(fork, twin, twin.replace("2;", "5;"), "another scale")
    commit(fork, "int twin_a(int x) {\n", "int twin_a(int x) {\n    x += 7;\n", "the other twin")
    commit(fork, "#pragma once", "#pragma once\n#define X 1", "a macro", f"{FOLDER}/common.cuh")
    (fork / "README").write_text("ours\n")
    git(fork, "add", "README")
    git(fork, "commit", "-q", "-m", "not about this backend")
    assert watched(river)["state"] == "not asked"
    found = watched(river, "--fetch")
    file = [f"file {DEMO}"]
    assert like(found) == [
        ("a macro", {}),
        ("the other twin", {"demo-launch-bounds": file, "demo-twin": file}),
        ("another scale", {"demo-launch-bounds": file, "demo-twin": [f"function twin_b in {DEMO}"]}),
    ]
    text = river.run("status").stdout
    assert (
        "fork, gfx11: 3 commits that upstream lacks, in files that this series reads "
        f"(as of {found['asked']})" in text
    )
    assert f"resembles demo-twin: function twin_b in {DEMO}" in text


def test_the_same_tokens_elsewhere_are_told(river, fork) -> None:
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    tokens = "const int scale = x > 0 ? 3 : 4;"
    path.write_text(path.read_text().replace("const int scale = 3;", tokens))
    commit(fork, "const int nblocks = 4;", f"const int nblocks = 4; {tokens}", "an idea of ours")
    ((_, resembles),) = like(watched(river, "--fetch"))
    assert resembles["demo-twin"] == ["tokens 'const int scale = x > 0 ?'", f"file {DEMO}"]


def test_commits_that_a_bump_reported_count_as_seen(river, fork) -> None:
    first = commit(fork, "dst[i] = x[i];", "dst[i] = 3*x[i];", "first")
    git(fork, "merge", "-q", "-m", "upstream", "b2")
    before = river.lock.read_bytes()
    assert [each["subject"] for each in watched(river, "--fetch")["commits"]] == ["first"]
    assert river.lock.read_bytes() == before
    done = river.run("bump", "--to", "b2", "--no-verify", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["watches"]
    assert [each["commit"] for each in told["commits"]] == [first]
    (seen,) = load_lock(river.lock).watched
    assert (seen.branch, seen.seen) == ("gfx11", git(fork, "rev-parse", "HEAD"))
    assert watched(river, "--cache-dir", str(river.root / "empty"), "--fetch")["commits"] == []
    commit(fork, "return x * scale;", "return x + scale;", "second")
    assert [each["subject"] for each in watched(river, "--fetch")["commits"]] == ["second"]
    assert river.run("lock", "--all").returncode == 0
    assert load_lock(river.lock).watched == (seen,)


def test_a_refused_or_offline_bump_marks_no_commit_as_seen(river, fork) -> None:
    commit(fork, "dst[i] = x[i];", "dst[i] = 3*x[i];", "first")
    assert river.run("bump", "--to", "b3", "--no-verify").returncode == 2  # drift needs the gates
    assert river.run("bump", "--to", "b2", "--no-verify", "--no-fetch").returncode == 0
    assert load_lock(river.lock).watched == ()
    fork.rename(river.root / "gone")
    done = river.run("bump", "--to", "b4", "--no-verify", "--json")
    (told,) = json.loads(done.stdout)["watches"]
    assert (done.returncode, [each["subject"] for each in told["commits"]]) == (0, ["first"])
    assert "fetch failed" in told["notes"][0]
    assert load_lock(river.lock).watched == ()


def test_of_a_rebased_branch_only_what_is_really_new_is_told(river, fork) -> None:
    commit(fork, "dst[i] = x[i];", "dst[i] = 3*x[i];", "first")
    assert river.run("bump", "--to", "b2", "--no-verify").returncode == 0
    git(fork, "rebase", "-q", "b2", date="2025-03-01T00:00:00Z")
    commit(fork, "return x * scale;", "return x + scale;", "second")
    found = watched(river, "--fetch")
    assert [each["subject"] for each in found["commits"]] == ["second"]
    assert "rebased" in found["notes"][0]


def test_texts_of_strangers_give_no_orders(river, fork) -> None:
    commit(fork, "dst[i] = x[i];", "dst[i] = 3*x[i];", "red \x1b[31m\u202ealert" + "!" * 9000)
    assert len(watched(river, "--fetch")["commits"][0]["subject"]) == 200
    text = river.run("status").stdout
    assert "red \\x1b[31m\\u202ealert" in text
    assert "\x1b" not in text


def test_many_commits_are_told_in_part(river, fork) -> None:
    for number in range(103):
        old = "x[i];" if number == 0 else f"{number - 1}*x[i];"
        commit(fork, f"dst[i] = {old}", f"dst[i] = {number}*x[i];", f"number {number}")
    found = watched(river, "--fetch")
    assert (len(found["commits"]), found["unlisted"]) == (100, 3)
    assert found["commits"][0]["subject"] == "number 102"
    assert "... and 3 older commits" in river.run("status").stdout


def test_a_branch_or_a_remote_that_is_gone_is_no_failure(river, fork) -> None:
    git(fork, "checkout", "-q", "--detach")
    git(fork, "branch", "-q", "-D", "gfx11")
    assert watched(river, "--fetch")["state"] == "not there"
    fork.rename(river.root / "gone")
    found = watched(river, "--fetch")
    assert found["state"] == "not there"
    assert "fetch failed" in found["notes"][0]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ('url = "--upload-pack=x"\nbranch = "a"', "CONFIG_VALUE"),
        ('url = "u\\u001b"\nbranch = "a"', "CONFIG_VALUE"),
        ('url = "u"\nbranch = "../main"', "CONFIG_VALUE"),
        ('url = "u"\nbranch = "a:refs/heads/b"', "CONFIG_VALUE"),
        ('url = "u"', "CONFIG_VALUE"),
        ('url = "u"\nbranch = "a"\n[[watch]]\nurl = "u"\nbranch = "a"', "FAULT_BAD"),
    ],
)
def test_what_cannot_be_watched_is_told_with_its_line(river, lines: str, code: str) -> None:
    path = river.home / "patches" / "series.toml"
    path.write_text(f"{path.read_text()}\n[[watch]]\n{lines}\n")
    done = river.run("status", "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2
    assert code in {each["code"] for each in error.get("errors", [error])}, error
