"""Taking a candidate into a clone as apply says: it comes where the pin is, and no history changes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from demo_world import FOLDER, IDENTITY, SOURCE, World, git, make_series, make_upstream

PIN, LAST = 3, 5
REF = f"refs/heads/candidate/gfx1151/b{PIN}"
KINDS = {"full": [], "shallow": ["--depth=4"], "partial": ["--filter=blob:none"]}
# The branch "old" ends before the pin; one commit of the newest has it not, either.
LACKING = {
    "full": ["--single-branch", "--no-tags", "-b", "old"],
    "shallow": ["--depth=1"],
    "both": ["--depth=1", "--filter=blob:none"],
    "partial": ["--single-branch", "--no-tags", "-b", "old", "--filter=blob:none"],
}


def build(root: Path, checkout: Path, *, rooted: bool = False) -> World:
    """An upstream with builds 1 to 5 and a lock that pins the third; ``rooted``: its commit is not known."""
    place = World(root, checkout)
    first = {f"{FOLDER}/demo.cu": SOURCE, f"{FOLDER}/common.cuh": "#pragma once\n"}
    builds = {n: {**(first if n == 1 else {}), "README.md": f"build {n}\n"} for n in range(1, LAST + 1)}
    make_upstream(place.upstream, builds)
    git(place.upstream, "config", "uploadpack.allowFilter", "true")
    git(place.upstream, "branch", "old", "b2")
    make_series(place, PIN, ("gfx1151",), config=True, last=None)
    if rooted:
        place.lock.write_text(re.sub(r"(?m)^commit_object = .*\n", "", place.lock.read_text()))
    return place


def handover(place: World) -> dict:
    # A name that a shell must not take apart.
    done = place.run("apply", "--arch", "gfx1151", "--json", cache=place.root / "the user's cache")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["handover"]


@pytest.fixture(scope="module")
def river(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> tuple[World, dict]:
    place = build(tmp_path_factory.mktemp("river"), checkout)
    return place, handover(place)


def tip_of(place: World) -> str:
    return place.refs(place.root / "the user's cache")[REF]


def clone_of(place: World, folder: Path, options: list[str]) -> Path:
    git(folder.parent, "clone", "-q", *options, f"file://{place.upstream}", str(folder))
    return folder


def shell(commands: list[str], at: Path) -> subprocess.CompletedProcess[str]:
    script = " && ".join(commands)
    return subprocess.run(["sh", "-c", script], cwd=at, capture_output=True, text=True, check=False)


def history(clone: Path, refs: list[str]) -> tuple[str, ...]:
    """What must not change: whether it is cut, where, and every commit of the refs that there were."""
    cut = clone / ".git" / "shallow"
    return (
        git(clone, "rev-parse", "--is-shallow-repository"),
        cut.read_text() if cut.exists() else "",
        git(clone, "rev-list", *refs),
        git(clone, "fsck", "--no-dangling"),
    )


def refs_of(clone: Path) -> list[str]:
    return git(clone, "for-each-ref", "--format=%(refname)").split()


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_with_the_pin_gets_the_branch_and_nothing_else_changes(river, tmp_path, kind: str) -> None:
    place, told = river
    clone = clone_of(place, tmp_path / "clone", KINDS[kind])
    refs = refs_of(clone)
    before = history(clone, refs)
    done = shell(told["commands"], clone)
    assert done.returncode == 0, done.stderr
    assert git(clone, "rev-parse", "FETCH_HEAD") == tip_of(place)
    assert history(clone, refs) == before
    assert refs_of(clone) == refs
    git(clone, "switch", "-q", "--detach", "FETCH_HEAD")
    assert "scale = 3" in (clone / FOLDER / "demo.cu").read_text()


@pytest.mark.parametrize("kind", LACKING)
def test_a_clone_without_the_pin_is_told_so_and_gets_it_as_apply_says(river, tmp_path, kind: str) -> None:
    place, told = river
    clone = clone_of(place, tmp_path / "clone", LACKING[kind])
    refs = refs_of(clone)
    before = history(clone, refs)
    base = git(place.upstream, "rev-parse", f"b{PIN}")
    refused = shell(told["commands"], clone)
    if "--filter=blob:none" in LACKING[kind]:
        # git asks the remote of such a clone for any object that it lacks.
        assert refused.returncode == 0, refused.stderr
    else:
        assert refused.returncode != 0
        assert f"lacks these prerequisite commits:\nerror: {base}" in refused.stderr
    assert base[:12] in told["needs"]
    assert history(clone, refs) == before
    done = shell([*told["first"], *told["commands"]], clone)
    assert done.returncode == 0, done.stderr
    assert git(clone, "rev-parse", "FETCH_HEAD") == tip_of(place)
    assert history(clone, refs) == before


def test_upstreams_next_fetch_brings_what_is_new_and_loses_nothing(tmp_path, checkout) -> None:
    place = build(tmp_path / "river", checkout)
    clone = clone_of(place, tmp_path / "clone", LACKING["full"])
    git(clone, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    told = handover(place)
    assert shell([*told["first"], *told["commands"]], clone).returncode == 0
    git(clone, "fetch", "-q")
    assert git(clone, "rev-list", "--count", "origin/master") == str(LAST)


def test_the_text_has_the_same_commands(river) -> None:
    place, told = river
    done = place.run("apply", "--arch", "gfx1151", "-v", cache=place.root / "the user's cache")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line in (*told["commands"], *told["first"])] == [
        *told["commands"],
        *told["first"],
    ]


def test_the_bundle_stays_while_nothing_moves_and_is_mended(tmp_path, checkout) -> None:
    place = build(tmp_path / "river", checkout)
    path = Path(handover(place)["path"])
    whole, made = path.read_bytes(), path.stat().st_mtime_ns
    handover(place)
    assert path.stat().st_mtime_ns == made
    path.write_bytes(whole[:-9])
    path.with_name(f".{path.name}.1.partial").write_bytes(b"left by a kill")
    handover(place)
    assert path.read_bytes() == whole
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    other = place.series / "patches" / "0002-demo-twin" / "patch.toml"
    other.write_text(other.read_text().replace("scale = 3", "scale = 5"))
    handover(place)
    assert tip_of(place).encode() in path.read_bytes()


def test_a_pin_without_upstreams_commit_is_handed_over_for_git_am(tmp_path, checkout) -> None:
    place = build(tmp_path / "river", checkout, rooted=True)
    told = handover(place)
    assert (told["kind"], told["first"]) == ("am", [])
    clone = clone_of(place, tmp_path / "clone", [])
    git(clone, "switch", "-q", "--detach", f"b{PIN}")
    for key, value in IDENTITY.items():
        if key.startswith("GIT_COMMITTER"):
            git(clone, "config", f"user.{key.rpartition('_')[2].lower()}", value)
    done = shell(told["commands"], clone)
    assert done.returncode == 0, done.stderr
    cache = place.root / "the user's cache" / "upstream.git"
    assert git(clone, "rev-parse", "HEAD^{tree}") == git(cache, "rev-parse", f"{REF}^{{tree}}")


def test_a_candidate_without_commits_has_nothing_to_hand_over(tmp_path, checkout) -> None:
    place = build(tmp_path / "river", checkout)
    done = place.run("apply", "--arch", "gfx1030", "--json")
    assert json.loads(done.stdout)["handover"] is None
    assert not (place.cache / "handover").exists()
