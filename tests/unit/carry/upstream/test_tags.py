"""Builds and releases of a remote, and which build a release is."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import SourceError
from patchkit.carry.upstream.tags import Tags, find_tagged, list_tags, newest_release, number_release


@dataclass(frozen=True)
class Line:
    """A repository with a main line; a commit's number is its place there, from 1 on."""

    path: Path
    recorder: object

    @property
    def url(self) -> str:
        return str(self.path)

    @property
    def counted_in(self) -> Path:
        return self.path.parent / "cache"

    def git(self, *args: str, stdin: str | None = None) -> str:
        argv = ["git", "-c", "user.name=U", "-c", "user.email=u@x", *args]
        done = subprocess.run(argv, cwd=self.path, check=True, capture_output=True, text=True, input=stdin)
        return done.stdout.strip()

    def grow(self, count: int, branch: str = "main", above: str | None = None) -> None:
        """That many commits more."""
        lines = []
        for number in range(count):
            lines.append(
                f"commit refs/heads/{branch}\ncommitter U <u@x> 17619008{number % 60:02} +0000\ndata 1\nx\n"
            )
            if number == 0 and above is not None:
                lines.append(f"from {above}\n")
        self.git("fast-import", "--quiet", stdin="".join(lines))

    def at(self, number: int, branch: str = "main") -> str:
        return self.git("rev-list", "--reverse", branch).split()[number - 1]

    def tag(self, name: str, number: int, *options: str) -> None:
        self.git("tag", *options, name, self.at(number))

    def tags(self) -> Tags:
        return list_tags(self.url, self.recorder)

    def number(self, release: str) -> int:
        return number_release(self.counted_in, self.tags(), release, self.recorder)

    def find(self, name: str) -> tuple[int, str] | None:
        return find_tagged(name, self.tags(), self.counted_in, self.recorder)


@pytest.fixture
def line(tmp_path: Path, recorder) -> Line:
    """Eight commits, of which the fourth and the eighth are tagged as builds."""
    made = Line(tmp_path / "remote", recorder)
    made.path.mkdir()
    made.git("init", "-q", "--template=", "-b", "main")
    made.grow(8)
    for build in (4, 8):
        made.tag(f"b{build}", build)
    return made


def test_builds_and_releases_are_told_apart_from_every_other_tag(line: Line) -> None:
    line.tag("v0.5.0", 4, "-a", "-m", "as upstream does it")
    line.tag("v0.10.0", 4)
    line.tag("v0.5.1", 7)
    odd = ["v0.5.0-rc1", "v1", "v1.2", "v1.2.3.4", "vv1.2.3", "v01.2.3", "V1.2.3", "v99999999999.0.0", "b04",
           "b8-1", "b9999999999", "beta", "topic/v1.2.3", "topic/b3", "v1.2.\N{ARABIC-INDIC DIGIT THREE}",
           "v1.2.3\N{LINE SEPARATOR}x"]  # fmt: skip
    for name in odd:
        line.tag(name, 1)
    found = line.tags()
    assert found.builds == {4: line.at(4), 8: line.at(8)}
    assert found.releases == {"v0.5.0": line.at(4), "v0.10.0": line.at(4), "v0.5.1": line.at(7)}
    assert found.releases_of(line.at(4)) == ("v0.5.0", "v0.10.0")
    assert (found.build_of(line.at(4)), found.build_of(line.at(7))) == (4, None)


def test_a_remote_without_either_says_so(line: Line) -> None:
    line.git("tag", "-d", "b4", "b8")
    with refused("REMOTE_HAS_NO_BUILDS") as caught:
        line.tags()
    assert "v0.5.0" in caught.value.why


@pytest.mark.parametrize("number", [2, 4, 6, 8, 9])
def test_a_release_has_the_number_of_its_commit(line: Line, number: int) -> None:
    line.grow(2, above="main^0")
    line.tag("v0.5.0", number, "-a", "-m", "x")
    assert line.number("v0.5.0") == number
    assert list(line.counted_in.glob("*")) == []


def test_without_a_build_near_it_all_commits_are_counted(line: Line) -> None:
    line.git("tag", "-d", "b4", "b8")
    line.grow(300, above="main^0")
    line.tag("v0.5.0", 308)
    assert line.number("v0.5.0") == 308
    line.tag("b4", 4)
    assert line.number("v0.5.0") == 308


@pytest.mark.parametrize(
    ("base", "commits", "why"),
    [
        (4, 4, "its history has 8 commits, and b8 is a different commit"),
        (4, 2, "its history has 6 commits, and b8, the next build, does not seem to contain it"),
        (4, 9, "its history has 13 commits, and b8 is not among them"),
    ],
)
def test_a_release_beside_the_main_line_is_no_build(line: Line, base: int, commits: int, why: str) -> None:
    line.grow(commits, "side", above=line.at(base))
    line.git("tag", "v0.4.1", "side")
    with refused("RELEASE_OFF_MAIN_LINE") as caught:
        line.number("v0.4.1")
    assert caught.value.why == why
    assert "--onto v0.4.1" in caught.value.hint
    assert "b4" in caught.value.hint


@pytest.mark.parametrize("named", ["main^{tree}", "blob"])
def test_a_tag_of_something_else_than_a_commit(line: Line, named: str) -> None:
    sha = line.git("hash-object", "-w", "--stdin", stdin="text") if named == "blob" else named
    line.git("tag", "v0.5.0", sha)
    with refused("REMOTE_COMMIT_UNKNOWN", match=r"v0\.5\.0"):
        line.number("v0.5.0")


def test_where_the_history_is_cut_off_the_number_is_not_guessed(line: Line, tmp_path: Path) -> None:
    line.tag("v0.5.0", 7)
    line.git(
        "clone", "-q", "--bare", "--depth=2", "--branch=v0.5.0", line.path.as_uri(), str(tmp_path / "cut")
    )
    cut = replace(line, path=tmp_path / "cut")
    with refused("RELEASE_UNNUMBERED") as caught:
        cut.number("v0.5.0")
    assert "nightly-tag.txt" in caught.value.hint
    with pytest.raises(SourceError):
        replace(line, path=tmp_path / "nowhere").tags()


def test_names_are_looked_up_in_the_order_of_the_main_line(line: Line) -> None:
    line.tag("v0.9.0", 2)
    line.tag("v0.5.1", 7)
    line.tag("v0.6.0", 4)
    assert line.find("latest") == (8, line.at(8))
    assert line.find("latest-release") == line.find("v0.5.1") == line.find(line.at(7)[:12]) == (7, line.at(7))
    assert (
        line.find("v0.6.0")
        == line.find("b4")
        == line.find("4")
        == line.find(line.at(4)[:7])
        == (4, line.at(4))
    )
    assert [line.find(name) for name in ("v0.5.2", "b5", "5", "v1", "", line.at(5), "b99999999999")] == [
        None
    ] * 7


def test_releases_beside_the_main_line_are_never_the_newest(line: Line) -> None:
    line.grow(9, "side", above=line.at(4))
    line.git("tag", "v7.0.0", "side")
    assert line.find("latest-release") is None
    line.tag("v0.5.0", 3)
    assert newest_release(line.counted_in, line.tags(), line.recorder) == ("v0.5.0", 3)
    assert any("v7.0.0" in text for text in line.recorder.said("warn"))
