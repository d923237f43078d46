"""``patchkit init``: a series of one's own, whose first hour needs no option that nobody told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import FOLDER
from refusing import refused

from patchkit.base.series_folder import SeriesDir, refuse_installed
from patchkit.carry.series.lock import load_lock


@pytest.fixture
def recorded(desk):
    """The desk with its result recorded at both of its builds."""
    for words in (("lock", "--arch", "gfx1151"), ("bump", "--to", "b2", "--no-verify")):
        done = desk.run(*words)
        assert done.returncode == 0, done.stderr
    return desk


def test_the_own_series_begins_with_what_is_recorded_and_is_worked_with_by_one_variable(recorded) -> None:
    own = recorded.root / "own"
    done = recorded.run("init", str(own), "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    assert f"export PATCHKIT_SERIES={own}" in done.stdout
    assert "git init" in done.stdout
    assert (own / "patches/0001-demo-launch-bounds/patch.toml").is_file()
    lock = load_lock(own / "patches/upstream.lock")
    assert (lock.default, [pin.build for pin in lock.pins], [each.build for each in lock.results]) == (
        "b2",
        [1, 2],
        [2],
    )
    assert not list(recorded.root.glob(".own*"))

    def run(*args: str) -> dict[str, object]:
        words = [args[0], "--cache-dir", str(recorded.cache), *args[1:], "--json"]
        found = run_patchkit(*words, cwd=recorded.root, env={"PATCHKIT_SERIES": str(own)})
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    assert run("apply", "--arch", "gfx1151")["lock_state"] == "as the lock records"
    # A patch, the candidate with it, and the one without: no --unlocked anywhere.
    place = ("--file", f"{FOLDER}/choice.cu", "--function", "demo_should_use")
    run("new", "mine", "--arch", "gfx1151", *place, "--at", "limit = 256", "--change-to", "limit = 512")
    assert run("apply", "--arch", "gfx1151", "--with", "mine")["lock_state"] == "not recorded in the lock"
    assert run("lock", "--all")["changed"] is True
    assert run("apply", "--arch", "gfx1151")["lock_state"] == "as the lock records"
    assert not (recorded.series / "patches/0003-mine").exists()


def test_what_is_said_in_the_first_minutes_is_what_to_paste(recorded) -> None:
    """A lock without a result names the command that makes one; a plain patch is said to be for all."""
    own = recorded.root / "own"
    done = recorded.run("init", str(own), "--arch", "gfx1100")
    assert "patchkit lock --arch gfx1100" in done.stdout
    words = ("--series-dir", str(own), "--cache-dir", str(recorded.cache))
    done = run_patchkit("lock", "--all", *words, cwd=recorded.root)
    assert done.returncode == 2
    assert "error[LOCK_EMPTY]" in done.stderr
    assert "hint: name a GPU: patchkit lock --arch" in done.stderr
    change = ("--file", "common/tool.cpp", "--at", "wanted > 256", "--change-to", "wanted > 512")
    done = run_patchkit("new", "wider", "--guard", "none", *change, *words, cwd=recorded.root)
    assert done.returncode == 0, done.stderr
    told = run_patchkit("plan", "--arch", "gfx1100", *words, cwd=recorded.root).stdout
    assert "wider: wider\n  for every backend\n" in told


def test_it_may_begin_at_an_earlier_pin(recorded) -> None:
    own = recorded.root / "own"
    own.mkdir()
    (own / ".git").mkdir()
    (own / "README.md").write_text("mine\n")
    done = recorded.run("init", str(own), "--upstream", "b1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["in_git"] is True
    assert [pin.build for pin in load_lock(own / "patches/upstream.lock").pins] == [1]


def test_the_macros_come_along_but_not_what_patchkit_itself_writes(desk) -> None:
    templates = desk.series / "templates"
    for name in ("shared.jinja", "patchkit/patch.toml.jinja", "deep/patchkit/part.jinja"):
        (templates / name).parent.mkdir(parents=True, exist_ok=True)
        (templates / name).write_text(name)
    done = desk.run("init", str(desk.root / "own"))
    assert done.returncode == 0, done.stderr
    own = desk.root / "own" / "templates"
    found = {path.relative_to(own).as_posix() for path in own.rglob("*") if path.is_file()}
    assert found == {"shared.jinja", "deep/patchkit/part.jinja"}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("taken",), "SERIES_FOLDER_TAKEN"),
        (("file",), "SERIES_FOLDER_TAKEN"),
        (("/",), "PLACE_UNUSABLE"),
        (("series/patches/x",), "PLACE_UNUSABLE"),
        (("own", "--upstream", "b77"), "PIN_UNKNOWN"),
        (("own", "--arch", "gfx9"), "ARCH_UNKNOWN"),
        (("",), "USAGE_VALUE"),
        ((), "USAGE_MISSING"),
    ],
)
def test_what_cannot_be_made_is_told_and_leaves_nothing(desk, args: tuple[str, ...], code: str) -> None:
    (desk.root / "taken").mkdir()
    (desk.root / "taken/notes.txt").write_text("mine\n")
    (desk.root / "file").write_text("mine\n")
    before = sorted(desk.root.iterdir())
    done = desk.run("init", *args, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, code)
    assert sorted(desk.root.iterdir()) == before
    assert [path.name for path in (desk.root / "taken").iterdir()] == ["notes.txt"]


def test_nobodys_patch_goes_into_an_installed_patchkit(tmp_path: Path) -> None:
    with refused("SERIES_INSTALLED", match="installed") as caught:
        refuse_installed(SeriesDir(root=tmp_path, origin="installed"))
    assert "patchkit init" in (caught.value.hint or "")
    refuse_installed(SeriesDir(root=tmp_path, origin="checkout"))
