"""Pull requests that patches come from, followed to their ends: asked, remembered, imported again."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from demo_world import FOLDER, copy_world, git
from killing import killed
from thorough import ordinary

TOOL = "common/tool.cpp"
CHOICE = f"{FOLDER}/choice.cu"


def push(desk, head: str, ref: str = "refs/pull/7/head") -> None:
    git(desk.clone, "push", "-q", "-f", "origin", f"{head}:{ref}")


@pytest.fixture(scope="session")
def imported(laid_desk, tmp_path_factory: pytest.TempPathFactory):
    """A desk with pull request 7 of its upstream imported as the plain patch ``mine``, and its head."""
    desk = copy_world(laid_desk, tmp_path_factory.mktemp("imported") / "desk")
    desk.change(TOOL, "256 ? 256", "512 ? 512")
    head = desk.commit("tool: a larger limit")
    push(desk, head)
    git(desk.upstream, "checkout", "-q", "master")
    done = desk.run("import", "--pr", "7", "--url", str(desk.upstream), "--guard", "none", "--id", "mine")
    assert done.returncode == 0, done.stderr
    return desk, head


@pytest.fixture
def pull(imported, desk) -> str:
    """What was imported is on the desk, too; the head of pull request 7."""
    shutil.rmtree(desk.root)
    copy_world(imported[0], desk.root)
    return imported[1]


def manifest(desk, name: str = "mine") -> dict[str, Any]:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return tomllib.loads((folder / "patch.toml").read_text())


def path_of(desk, name: str = "mine") -> Path:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return folder / "patch.toml"


def followed(desk, *args: str) -> dict[str, Any]:
    done = desk.run("status", "--json", *args)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["pulls"]
    return found


def test_import_records_the_ends_of_the_change(desk, pull: str) -> None:
    table = manifest(desk)["upstream"]
    assert (table["head"], table["base"]) == (pull, git(desk.upstream, "rev-parse", "b1"))
    assert len(table["digest"]) == 64


def test_nobody_is_asked_until_somebody_says_so_and_then_the_answer_stays(desk, pull: str) -> None:
    assert followed(desk)["state"] == "not asked"
    now = followed(desk, "--fetch")
    assert (now["state"], now["recorded"], now["head"]) == ("unchanged", pull, pull)
    assert now["is_offered"] is None  # this remote makes no refs/pull/7/merge
    desk.upstream.rename(desk.root / "gone")
    later = followed(desk, "--fetch")
    assert (later["state"], later["asked"]) == ("unchanged", now["asked"])
    assert "fetch failed" in later["notes"][0]
    text = desk.run("status").stdout
    assert f"mine: pull request 7 of {desk.upstream}: unchanged (as of {now['asked']})" in text


def test_a_new_head_is_shown_by_what_it_does_otherwise(desk, pull: str) -> None:
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    desk.change("CMakeLists.txt", "OFF)", "ON)")
    head = desk.commit("larger still")
    push(desk, head)
    found = followed(desk, "--fetch")
    assert (found["state"], found["recorded"], found["head"]) == ("changed", pull, head)
    differences = {each["place"]: each for each in found["differences"]}
    assert differences.keys() == {"tool::limit in common/tool.cpp", "CMakeLists.txt"}
    changed = differences["tool::limit in common/tool.cpp"]
    assert changed["how"] == "changed otherwise"
    assert changed["removed"] == ["return wanted > 512 ? 512 : wanted ;"]
    assert changed["added"] == ["return wanted > 1024 ? 1024 : wanted ;"]
    assert differences["CMakeLists.txt"]["how"] == "also changed"
    shutil.rmtree(desk.upstream)
    assert followed(desk)["differences"] == found["differences"]


def test_a_head_on_another_base_that_does_the_same_is_unchanged(desk, pull: str) -> None:
    git(desk.clone, "checkout", "-q", "--detach", "b2")
    git(desk.clone, "cherry-pick", pull)
    desk.change(TOOL, "// how much there may be\n", "// how much there may be, at most\n")
    head = desk.commit("a comment")
    push(desk, head)
    found = followed(desk, "--fetch")
    assert (found["state"], found["head"], found["differences"]) == ("unchanged", head, [])
    assert "without changes in code" in found["notes"][0]


def test_a_replaced_head_is_compared_while_the_old_one_is_to_be_had(desk, pull: str) -> None:
    """With a cache that never saw the old head, and a remote with and without it."""
    git(desk.clone, "reset", "-q", "--hard", "b1")
    desk.change(TOOL, "256 ? 256", "300 ? 300")
    push(desk, desk.commit("another limit"))
    fresh = ("--fetch", "--cache-dir", str(desk.root / "fresh"))
    assert followed(desk, *fresh)["differences"][0]["place"].startswith("tool::limit")
    git(desk.upstream, "reflog", "expire", "--expire=now", "--all")
    git(desk.upstream, "gc", "-q", "--prune=now")
    found = followed(desk, "--fetch", "--cache-dir", str(desk.root / "fresher"))
    assert (found["state"], found["differences"]) == ("changed", [])
    assert "no longer has the imported commits" in found["notes"][0]


def test_squashed_into_the_main_line_it_is_merged_and_its_build_is_named(desk, pull: str) -> None:
    git(desk.upstream, "merge", "-q", "--squash", "refs/pull/7/head")
    git(desk.upstream, "commit", "-q", "-m", "tool : a larger limit (#7)")
    git(desk.upstream, "tag", "b3")
    found = followed(desk, "--fetch")
    assert (found["state"], found["in_pin"]) == ("merged", False)
    assert found["merged"]["build"] == 3
    assert found["merged"]["commit"] == git(desk.upstream, "rev-parse", "b3")
    assert "(#7)" in found["merged"]["how"]
    assert followed(desk)["merged"] == found["merged"]


def test_a_bump_to_where_it_was_merged_proves_it_and_says_what_to_write(desk, pull: str) -> None:
    git(desk.upstream, "merge", "-q", "--squash", "refs/pull/7/head")
    git(desk.upstream, "commit", "-q", "-m", "tool : a larger limit (#7)")
    git(desk.upstream, "tag", "b3")
    path = path_of(desk)
    lines = 'why = "w"\nwithout = "x"\nexpected = { effect = "e", source = "s" }\n'
    path.write_text(f"{lines}{path.read_text()}".replace('status = "sub', 'status = "sub'))
    only = ("--arch", "gfx1151", "--without", "demo-launch-bounds", "--without", "demo-twin")
    assert desk.run("lock", "--arch", "gfx1151").returncode == 0
    done = desk.run("bump", "--to", "b3", "--no-verify", *only, "--json")
    document = json.loads(done.stdout)
    (made,) = document["candidates"]
    assert {p["id"]: p["class"] for p in made["patches"]}["mine"] == "upstreamed", document
    (found,) = document["pulls"]
    assert (found["state"], found["in_pin"], found["merged"]["build"]) == ("merged", True, 3)
    text = desk.run("bump", "--to", "b3", "--no-verify", *only).stdout
    assert "at b3 the patch is upstreamed" in text
    assert "merged_in = 3" in text


def test_merged_as_it_is_needs_no_words(desk, pull: str) -> None:
    git(desk.upstream, "merge", "-q", "--no-ff", "-m", "merge", "refs/pull/7/head")
    found = followed(desk, "--fetch")
    assert (found["state"], found["merged"]["commit"]) == ("merged", pull)


def test_without_a_merge_it_is_closed_or_in_conflict_and_git_cannot_tell(desk, pull: str) -> None:
    push(desk, pull, "refs/pull/7/merge")
    assert followed(desk, "--fetch")["is_offered"] is True
    git(desk.upstream, "update-ref", "-d", "refs/pull/7/merge")
    found = followed(desk, "--fetch")
    assert (found["state"], found["is_offered"]) == ("closed or in conflict", False)
    assert "git cannot tell which" in found["notes"][-1]


def test_a_pull_request_that_is_not_there_is_no_failure(desk, pull: str) -> None:
    git(desk.upstream, "update-ref", "-d", "refs/pull/7/head")
    assert followed(desk, "--fetch")["state"] == "not there"


def test_a_patch_that_names_one_and_no_head_is_not_compared(desk, pull: str) -> None:
    path = path_of(desk)
    kept = [
        line for line in path.read_text().splitlines(keepends=True) if not line.startswith(("head", "base"))
    ]
    path.write_text("".join(kept))
    found = followed(desk, "--fetch")
    assert (found["state"], found["recorded"], found["head"]) == ("not compared", None, pull)
    assert f'head = "{pull}" and base = "{git(desk.upstream, "rev-parse", "b1")}"' in found["notes"][0]


def test_a_head_with_binary_files_is_told_without_them_and_carried_with_them(desk, pull: str) -> None:
    (desk.clone / "model.bin").write_bytes(b"\0\1\2" * 999)
    push(desk, desk.commit("a model"))
    found = followed(desk, "--fetch")
    (difference,) = found["differences"]
    assert (difference["place"], difference["added"]) == ("model.bin", ["2997 bytes, not read"])
    done = desk.run("import", "--update", "mine")
    assert done.returncode == 0, done.stderr
    folder = path_of(desk).parent
    assert (folder / "model.bin").read_bytes() == b"\0\1\2" * 999
    (desk.clone / "model.bin").write_bytes(b"\0another")
    git(desk.clone, "mv", "dos.txt", "win.txt")
    push(desk, desk.commit("another model"))
    done = desk.run("import", "--update", "mine")
    assert done.returncode == 0, done.stderr
    # The blob that the text of before names is there until it is replaced, and gone then.
    assert {each.name for each in folder.iterdir()} == {"patch.toml", "_model.bin"}
    assert (folder / "_model.bin").read_bytes() == b"\0another"
    assert 'to = "win.txt"' in path_of(desk).read_text()


def test_what_was_kept_may_be_damaged_and_is_had_again(desk, pull: str) -> None:
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    push(desk, desk.commit("larger still"))
    kept = desk.cache / "following.git"
    assert followed(desk, "--fetch")["state"] == "changed"
    for path in kept.glob("objects/pack/*.pack"):
        path.chmod(0o644)
        path.write_bytes(b"nothing")
    found = followed(desk)
    assert (found["state"], found["differences"]) == ("not asked", [])
    assert f"delete {kept}" in found["notes"][0]
    (note,) = kept.glob("*.json")
    note.write_text("{")
    assert followed(desk)["asked"] is None
    shutil.rmtree(kept)
    assert followed(desk, "--fetch")["state"] == "changed"


@pytest.mark.parametrize("url", ["ext::sh -c true", "--upload-pack=touch x", "nowhere"])
def test_a_remote_that_cannot_be_asked_is_no_failure_and_runs_nothing(desk, pull: str, url: str) -> None:
    path = path_of(desk)
    path.write_text(path.read_text().replace(f'url = "{desk.upstream}/pull/7"', f'url = "{url}/pull/7"'))
    found = followed(desk, "--fetch")
    assert (found["state"], found["asked"]) == ("not asked", None)
    assert "fetch failed" in found["notes"][0]
    assert not (desk.root / "x").exists()


# --- import --update


def updated(desk, *args: str) -> dict[str, Any]:
    done = desk.run("import", "--update", "mine", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_update_makes_the_edits_anew_and_keeps_what_the_owner_wrote(desk, pull: str) -> None:
    assert updated(desk) | {"patch": None} == {
        "id": "mine", "updated": False, "before": pull, "after": pull,
        "differences": [], "notes": [], "patch": None,
    }  # fmt: skip
    path = path_of(desk)
    text = path.read_text().replace("[builds]", 'without = "the limit stays"\n\n# for us\n[builds]', 1)
    path.write_text(text + '\n[expires]\non = 2030-01-01\nwhy = "look again"\n')
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    desk.add("common/new.h", "#pragma once\n")
    head = desk.commit("larger still\n\nSee https://example.invalid/77")
    push(desk, head)
    done = updated(desk)
    assert (done["before"], done["after"], done["patch"]["same_as_diff"]) == (pull, head, "byte for byte")
    assert [each["place"] for each in done["differences"]] == [
        "common/new.h",
        "tool::limit in common/tool.cpp",
    ]
    made = manifest(desk)
    assert (made["without"], made["expires"]["why"]) == ("the limit stays", "look again")
    assert "# for us" in path.read_text()
    assert made["upstream"]["head"] == head
    assert made["links"] == [f"{desk.upstream}/pull/7", "https://example.invalid/77"]
    assert b"wanted > 1024 ? 1024" in desk.shown("mine", TOOL)
    assert followed(desk, "--fetch")["state"] == "unchanged"
    assert updated(desk)["updated"] is False


def test_edits_that_somebody_changed_are_kept_unless_told_otherwise(desk, pull: str) -> None:
    path = path_of(desk)
    text = path.read_text()
    path.write_text(text.replace("512 ? 512", "640 ? 640"))
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    push(desk, desk.commit("larger still"))
    before = desk.snapshot()
    done = desk.run("import", "--update", "mine")
    assert (done.returncode, "IMPORT_CHANGED_BY_HAND" in done.stderr) == (2, True)
    path.write_text(text.replace("[[edit]]\n", "[[edit]]\n# measured by us\n", 1))
    assert "IMPORT_CHANGED_BY_HAND" in desk.run("import", "--update", "mine").stderr
    path.write_text(before[str(path)].decode())
    assert desk.snapshot() == before
    assert updated(desk, "--force")["updated"] is True
    assert "1024 ? 1024" in path.read_text()


def test_guard_and_numbers_of_the_profile_stay(desk) -> None:
    profile = desk.series / "arch_profiles" / "gfx1151.toml"
    row = '[[tuning.value]]\nname = "demo.columns"\nvalue = 1024\nsource = "test"\nmeasured_on = "nothing"\n'
    profile.write_text(f"{profile.read_text()}\n{row}")
    desk.change(CHOICE, "(cc > 7 ? 128 : 256)", "(cc > 7 ? 128 : 1024)")
    push(desk, desk.commit("choice: more columns"))
    git(desk.upstream, "checkout", "-q", "master")
    more = ("--guard", "gfx1151", "--id", "mine", "--lift", "1024=demo.columns")
    done = desk.run("import", "--pr", "7", "--url", str(desk.upstream), *more)
    assert done.returncode == 0, done.stderr
    offered = profile.read_text()
    desk.change(CHOICE, "const int limit = 256;", "const int limit = 512;")
    push(desk, desk.commit("and a limit"))
    assert updated(desk)["patch"]["archs"] == ["gfx1151"]
    assert profile.read_text() == offered
    texts = "".join(edit["text"] for edit in manifest(desk)["edit"])
    assert "@{ values['demo.columns'] }@" in texts
    assert "? 512 : 256" in desk.shown("mine", CHOICE).decode()
    desk.change(CHOICE, "128 : 1024)", "128 : 2048)")
    push(desk, desk.commit("other columns"))
    assert "demo.columns" in updated(desk)["notes"][0]
    assert manifest(desk)["guard"] == {"macros": ["GGML_USE_HIP"]}


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (("--update", "nobody"), "UNKNOWN_PATCH", 2),
        (("--update", "demo-twin"), "IMPORT_NOTHING", 2),
        (("--update", "mine", "--guard", "none"), "IMPORT_OPTIONS", 2),
        (("--update", "mine", "--pr", "8"), "IMPORT_OPTIONS", 2),
        (("--force", "--pr", "8", "--guard", "none"), "USAGE_VALUE", 2),
    ],
)
def test_what_cannot_be_updated_is_told(desk, pull, args: tuple[str, ...], code: str, exit_code: int) -> None:
    before = desk.snapshot()
    done = desk.run("import", *args, "--json")
    assert (json.loads(done.stdout)["error"]["code"], done.returncode) == (code, exit_code)
    assert desk.snapshot() == before


@pytest.mark.parametrize("point", ordinary(range(12), (1, 4, 7)))
def test_killed_in_the_middle_it_is_the_old_patch_or_the_new_one(
    desk, pull: str, tmp_path, point: int
) -> None:
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    desk.add("common/new.h", "#pragma once\n")
    desk.add("common/long.h", "#define A\n" * 70)
    push(desk, desk.commit("larger still"))
    rehearsal = type(desk)(tmp_path / "rehearsal", desk.checkout)
    shutil.copytree(desk.root, rehearsal.root)
    words, log = ("import", "--update", "mine"), tmp_path / "log"
    done = killed(rehearsal, -1, *words, group=True, cache=rehearsal.cache, log=log)
    assert done.returncode == 0, done.stderr
    made, path, old = path_of(rehearsal).parent, path_of(desk), path_of(desk).read_text()
    # The last two points are the interpreter closing down, before them lie those of writing.
    done = killed(desk, int(log.read_text()) - 2 - point, *words, group=True, cache=desk.cache)
    assert done.returncode == -9
    assert path.read_text() in (old, (made / "patch.toml").read_text())
    assert desk.run("plan", "--arch", "gfx1151", "--only", "mine").returncode == 0
    updated(desk)
    files = [{each.name: each.read_bytes() for each in folder.iterdir()} for folder in (made, path.parent)]
    assert files[0] == files[1]


def test_what_is_changed_meanwhile_is_not_written_over(desk, pull: str) -> None:
    """A git on PATH that changes patch.toml when the change is read."""
    desk.change(TOOL, "512 ? 512", "1024 ? 1024")
    push(desk, desk.commit("larger still"))
    path, folder = path_of(desk), desk.root / "bin"
    folder.mkdir()
    wire = folder / "git"
    wire.write_text(
        f"#!/bin/sh\ncase \"$*\" in *diff-tree*) echo '# mine' >> '{path}';; esac\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    wire.chmod(0o755)
    env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = desk.process("import", "--update", "mine", env=env)
    assert (done.returncode, "PATCH_CHANGED" in done.stderr) == (2, True), done.stderr
    assert "512 ? 512" in path.read_text()


def test_an_update_without_its_remote_changes_nothing(desk, pull: str) -> None:
    git(desk.upstream, "update-ref", "-d", "refs/pull/7/head")
    before = desk.snapshot()
    done = desk.run("import", "--update", "mine")
    assert (done.returncode, "IMPORT_NOTHING" in done.stderr) == (7, True)
    assert desk.snapshot() == before
