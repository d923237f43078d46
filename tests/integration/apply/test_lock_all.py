"""``lock --all``: every result anew, the lock replaced once or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup, ExitCode
from patchkit.base.reporter import NullReporter, Reporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.relock import Relocked, relock, relock_all
from patchkit.carry.series.lock import load_lock
from patchkit.cli.app import main

BOTH = ("demo-launch-bounds", "demo-twin")
ONE, OTHER = ("gfx1151",), ("gfx1100",)


def workspace(world, reporter: Reporter | None = None) -> Workspace:
    series = SeriesDir(root=world.series, origin="named")
    return Workspace(series=series, cache_root=world.cache, reporter=reporter or NullReporter())


def again(world, reporter: Reporter | None = None) -> Relocked:
    return relock_all(workspace(world, reporter), source="auto", upstream_url=None)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def default(world, patch: str, arch: str, now: str) -> None:
    edit(
        world.series / "arch_profiles" / f"{arch}.toml",
        f'{patch} = {{ default = "on"',
        f'{patch} = {{ default = "{now}"',
    )


def keys(world) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(result.archs, result.patches) for result in load_lock(world.lock).results]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def locked(world):
    """A world whose lock has a result for each of two GPUs."""
    for archs in (ONE, OTHER):
        relock(Request(archs=archs), workspace(world))
    return world


class Trips(NullReporter):
    """Does something when the second result begins."""

    def __init__(self, then) -> None:
        self.then = then

    def step(self, text: str) -> None:
        if text.endswith(", 2 of 2"):
            self.then()


def test_each_result_becomes_what_lock_alone_would_make_of_it(locked) -> None:
    before = locked.lock.read_bytes()
    assert not again(locked).changed
    edit(locked.series / "patches/0002-demo-twin/patch.toml", "const int scale = 3;", "const int scale = 5;")
    done = again(locked)
    assert [each.result.name for each in done.results if each.changed] == ["b1 gfx1100", "b1 gfx1151"]
    made = locked.lock.read_bytes()
    locked.lock.write_bytes(before)
    for archs in (ONE, OTHER):
        assert relock(Request(archs=archs), workspace(locked)).changed
    assert locked.lock.read_bytes() == made != before


def test_a_lock_that_is_right_is_not_touched(locked, capsys) -> None:
    edit(locked.series / "arch_profiles/gfx1151.toml", "[patches]", "# another reason\n[patches]")
    where = ["--series-dir", str(locked.series), "--cache-dir", str(locked.cache)]
    assert main(["lock", "--all", *where]) == 0
    out = capsys.readouterr().out
    assert "upstream.lock: 1 of 2 results changed\n  b1 gfx1100: unchanged, tree " in out
    assert f"\n  b1 gfx1151: recorded, tree {load_lock(locked.lock).results[1].tree[:12]}, demo-" in out
    before = locked.lock.stat()
    assert main(["lock", "--all", *where, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], len(document["results"]), document["dropped"]) == (False, 2, [])
    assert (locked.lock.stat().st_ino, locked.lock.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_opt_in_patches_of_a_result_are_asked_for_again_and_others_follow_the_profile(locked) -> None:
    default(locked, "demo-twin", ONE[0], "opt-in")
    default(locked, "demo-twin", OTHER[0], "off")
    done = again(locked)
    assert keys(locked) == [(OTHER, BOTH[:1]), (ONE, BOTH)]
    assert [(each.result.archs, each.was) for each in done.results] == [(OTHER, BOTH), (ONE, BOTH)]


def test_what_was_left_out_on_purpose_stays_out(locked) -> None:
    relock(Request(archs=ONE, without=BOTH[1:]), workspace(locked))
    edit(locked.series / "patches/0001-demo-launch-bounds/patch.toml", "(128, 2)", "(128, 3)")
    assert all(each.changed and each.was == each.result.patches for each in again(locked).results)
    assert keys(locked) == [(OTHER, BOTH), (ONE, BOTH[:1]), (ONE, BOTH)]
    # Two results that a change makes one: the profile now has off what the second one left out.
    default(locked, "demo-twin", ONE[0], "off")
    assert again(locked).changed
    assert keys(locked) == [(OTHER, BOTH), (ONE, BOTH[:1])]


def test_results_of_a_gpu_without_a_profile_go(locked) -> None:
    (locked.series / "arch_profiles/gfx1100.toml").unlink()
    done = again(locked)
    assert (done.changed, done.dropped) == (True, ("b1 gfx1100",))
    assert keys(locked) == [(ONE, BOTH)]


def test_one_result_that_cannot_be_made_leaves_the_lock_alone_and_all_are_named(locked) -> None:
    before = locked.lock.read_bytes()
    edit(locked.series / "patches/0002-demo-twin/patch.toml", '"twin_b"', '"twin_c"')
    with pytest.raises(ErrorGroup, match="cannot be applied to b1 gfx1100, b1 gfx1151") as caught:
        again(locked)
    assert [error.code for error in caught.value.errors] == ["ENTITY_NOT_FOUND"] * 2
    assert locked.lock.read_bytes() == before


def test_an_interruption_leaves_the_lock_alone(locked) -> None:
    edit(locked.series / "patches/0002-demo-twin/patch.toml", "const int scale = 3;", "const int scale = 5;")
    before = files(locked.series / "patches")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(locked, Trips(stop))
    assert files(locked.series / "patches") == before


def test_what_somebody_else_writes_meanwhile_is_not_lost(locked) -> None:
    edit(locked.series / "patches/0002-demo-twin/patch.toml", "const int scale = 3;", "const int scale = 5;")
    theirs = locked.lock.read_text() + "# mine\n"
    with refused("LOCK_CHANGED", match="while the command ran"):
        again(locked, Trips(lambda: locked.lock.write_text(theirs)))
    assert locked.lock.read_text() == theirs


@pytest.mark.parametrize("more", [("--arch", "gfx1151"), ("--upstream", "b1"), ("--with", "demo-twin")])
def test_all_is_not_narrowed(more: tuple[str, str], capsys) -> None:
    assert main(["lock", "--all", *more]) == ExitCode.USAGE
    assert f"error[OPTIONS_CONTRADICT]: --all cannot be combined with {more[0]}" in capsys.readouterr().err
