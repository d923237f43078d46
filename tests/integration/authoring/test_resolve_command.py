"""A plain patch that a new build does not take: git's merge, or a person's, becomes its edits there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from demo_world import FOLDER, git, pin_text
from killing import killed
from thorough import ordinary

PATH = f"{FOLDER}/choice.cu"
LINE = "    return ne11 <= limit;\n"
MORE = LINE.replace("limit", "2*limit")
WITHOUT = ("--arch", "gfx1100", "--without", "demo-twin", "--without", "demo-launch-bounds")


def source(desk) -> str:
    """The file of b1."""
    return git(desk.upstream, "show", f"b1:{PATH}") + "\n"


def near(desk) -> str:
    """With a second place that reads as the one that the patch changes: git knows which is meant."""
    twin = f"{{\n{LINE}}}\n#endif\n"
    return source(desk).replace("    return false;\n#endif\n", twin)


def other(desk) -> str:
    """With another last line."""
    return source(desk).replace(LINE, "    return ne11 < limit;\n")


def commit_build(desk, build: int, files: dict[str, str | None], day: int = 10) -> None:
    """One more build of the desk's upstream."""
    git(desk.upstream, "checkout", "-q", "master")
    for name, text in files.items():
        path = desk.upstream / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_bytes(text.encode())
    git(desk.upstream, "add", "-A")
    git(desk.upstream, "commit", "-q", "-m", f"change {build}", date=f"2025-01-{day}T03:04:05+00:00")
    git(desk.upstream, "tag", f"b{build}")


def take(desk, *names: str, at: str = "b1") -> None:
    """Import what was changed in the clone as a patch ``mine``, and have it in the lock."""
    source = desk.diff()
    done = desk.run("import", str(source), "--guard", "none", "--upstream", at, "--id", *(names or ("mine",)))
    assert done.returncode == 0, done.stderr
    path = path_of(desk, *names)
    head = 'why = "w"\nlinks = ["l"]\nwithout = "x"\nexpected = { effect = "e", source = "s" }\n'
    path.write_text(head + path.read_text())


def place_by_hand(desk, at: str, name: str = "mine") -> None:
    """Give the edit a place as a person may write it: bump finds no other one for it in git's merge."""
    path = path_of(desk, name)
    text, count = re.subn(r"(?ms)^at = .*?(?=^verb = )", lambda _: f"at = {at}\n", path.read_text())
    assert count == 1
    path.write_text(text)


STATEMENT = '{ statement = "ne11 <= limit" }'


def record(desk) -> None:
    done = desk.run("lock", *WITHOUT)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def mine(desk):
    """The desk with a plain patch that makes the limit of b1 larger, and is in the lock."""
    desk.change(PATH, LINE, MORE)
    take(desk)
    record(desk)
    return desk


def path_of(desk, name: str = "mine") -> Path:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return folder / "patch.toml"


def edits(desk, name: str = "mine") -> list[dict[str, Any]]:
    return tomllib.loads(path_of(desk, name).read_text())["edit"]


def resolve(desk, *args: str, code: int = 0, env=None) -> dict[str, Any]:
    done = desk.run("resolve", *args, "--json", env=env)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def made(desk, build: int, path: str = PATH) -> str:
    """A file of the candidate on a build, which the lock gets as a pin where it has none."""
    pin_build(desk, build)
    done = desk.run("apply", *WITHOUT, "--upstream", f"b{build}")
    assert done.returncode == 0, done.stderr
    return git_bytes(desk, f"candidate/gfx1100/b{build}:{path}").decode()


def pin_build(desk, build: int) -> None:
    text = desk.lock.read_text()
    if f'name = "b{build}"\n' not in text:
        pin = pin_text(desk.upstream, build).partition("[[pin]]")[2]
        desk.lock.write_text(f"{text}\n[[pin]]{pin}")


def git_bytes(desk, name: str) -> bytes:
    words = ["git", "--git-dir", str(desk.repository), "show", name]
    return subprocess.run(words, check=True, capture_output=True).stdout


def test_what_git_merges_becomes_new_edits_and_old_builds_keep_theirs(mine) -> None:
    place_by_hand(mine, STATEMENT)
    record(mine)
    commit_build(mine, 3, {PATH: near(mine)})
    document = resolve(mine, "mine", "--to", "b3", "--upstream-url", str(mine.upstream))
    assert document["state"] == "regenerated", document
    first, second = edits(mine)
    assert (first["last_build"], second["first_build"]) == (2, 3)
    assert first["id"] == second["id"] == "demo-should-use"
    assert not (mine.root / "mine.conflict").exists()
    assert made(mine, 3) == near(mine).replace(f"    }}\n{LINE}", f"    }}\n{MORE}")
    # What the lock says of b1 holds: its digests are those of the new patch.toml.
    assert document["lock_renewed"] == ["b1 gfx1100"]
    again = mine.run("apply", *WITHOUT, "--upstream", "b1", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["lock_state"] == "as the lock records"


def conflict(desk) -> Path:
    """The file of a conflict at b3, whose last line upstream has changed."""
    commit_build(desk, 3, {PATH: other(desk)})
    document = resolve(desk, "mine", "--to", "b3", "--upstream-url", str(desk.upstream), code=3)
    assert document["state"] == "conflict"
    assert document["files"][0]["inside"] == ["demo_should_use"]
    return desk.root / document["folder"] / document["files"][0]["name"]


def settle(path: Path, line: str) -> None:
    """Put a line in the place of the conflict, as a person does."""
    text = path.read_text()
    low, high = text.index("<<<<<<<"), text.index("\n", text.index(">>>>>>>")) + 1
    path.write_text(text[:low] + line + text[high:])


def test_a_conflict_is_edited_in_a_file_and_continued(mine) -> None:
    path = conflict(mine)
    text = path.read_text()
    assert path.suffix == ".cu"
    assert text.startswith("// patchkit resolve: 'mine' from b1 to b3")
    assert "upstream changed demo_should_use" in text
    assert "change 3" in text
    for line in (MORE, LINE, "    return ne11 < limit;\n"):
        assert line in text[text.index("<<<<<<<") :]
    beside = path.with_name(f"{path.name}.edits.toml").read_text()
    assert tomllib.loads(beside)["edit"][1]["text"] == MORE
    assert tomllib.loads(beside)["edit"][1]["first_build"] == 3
    before = mine.snapshot()
    failed = mine.run("resolve", "mine", "--continue", "--json")
    assert json.loads(failed.stdout)["error"]["code"] == "RESOLVE_FILES_BAD", failed.stderr
    assert mine.snapshot() == before
    settle(path, "    return ne11 < 2*limit;\n")
    document = resolve(mine, "mine", "--continue")
    assert (document["state"], document["left"]) == ("resolved", [])
    assert not path.parent.exists()
    assert made(mine, 3) == other(mine).replace("< limit", "< 2*limit")


def test_of_a_file_that_is_another_one_now_only_the_change_is_shown(desk) -> None:
    def rows(word: str) -> str:
        return "".join(f"the {word} thing of number {number}\n" for number in range(400))

    commit_build(desk, 3, {"long.txt": rows("old")})
    git(desk.clone, "fetch", "-q", "origin", "master", "--tags")
    git(desk.clone, "checkout", "-q", "b3")
    pin_build(desk, 3)
    desk.change("long.txt", "old thing of number 200\n", "old thing of number two hundred\n")
    take(desk, at="b3")
    done = desk.run("lock", *WITHOUT, "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    commit_build(desk, 4, {"long.txt": rows("new")}, day=11)
    document = resolve(desk, "mine", "--to", "b4", "--upstream-url", str(desk.upstream), code=3)
    path = desk.root / document["folder"] / document["files"][0]["name"]
    assert path.read_text().count("\n") < 100
    settle(path, "the new thing of two hundred\n")
    resolve(desk, "mine", "--continue")
    assert made(desk, 4, "long.txt").split("\n", 1) == ["the new thing of two hundred", rows("new")]


def test_each_way_through_it_ends_with_the_next_command(mine) -> None:
    settle(conflict(mine), MORE)
    again = "next:  patchkit resolve mine --to b3  # to start again"
    assert mine.run("resolve", "mine", "--abort").stdout.splitlines()[-1] == again
    url = ("--upstream-url", str(mine.upstream))
    resolve(mine, "mine", "--to", "b3", *url, code=3)
    settle(mine.root / "mine.conflict/choice.cu", MORE)
    bump = "next:  patchkit bump --to b3"
    assert mine.run("resolve", "mine", "--continue").stdout.splitlines()[-1] == bump
    again = mine.run("resolve", "mine", "--to", "b3", *url).stdout.splitlines()[-1]
    assert again == f"{bump} {' '.join(url)}"


def test_the_same_patch_is_resolved_again_on_a_newer_build(mine) -> None:
    path = conflict(mine)
    settle(path, "    return ne11 < 2*limit;\n")
    resolve(mine, "mine", "--continue")
    third = made(mine, 3)
    changed = other(mine).replace("cc > 7 ? 128", "cc > 8 ? 128").replace("< limit", "> limit")
    commit_build(mine, 4, {PATH: changed}, day=11)
    document = resolve(mine, "mine", "--to", "b4", "--upstream-url", str(mine.upstream), code=3)
    assert document["old_build"] == 3
    settle(mine.root / document["folder"] / document["files"][0]["name"], "    return ne11 > 2*limit;\n")
    resolve(mine, "mine", "--continue")
    limits = [(each.get("first_build"), each.get("last_build")) for each in edits(mine)]
    assert limits == [(None, 2), (3, 3), (4, None)]
    assert made(mine, 3) == third
    assert made(mine, 4) == changed.replace("> limit", "> 2*limit")


def test_what_upstream_has_already_is_for_a_person(desk) -> None:
    # git's merge puts it in a second time, without a conflict.
    ours = "\nstatic int demo_added(int x) {\n    return x + 42;\n}\n"
    before = "int first_thing(int x) {\n    return x;\n}\n\nint last_thing(int x) {\n    return 2*x;\n}\n"
    commit_build(desk, 3, {"common/added.cpp": before})
    git(desk.clone, "fetch", "-q", "origin", "master", "--tags")
    git(desk.clone, "checkout", "-q", "b3")
    pin_build(desk, 3)
    desk.change("common/added.cpp", "    return x;\n}\n", f"    return x;\n}}\n{ours}")
    take(desk, at="b3")
    commit_build(desk, 4, {"common/added.cpp": before + ours}, day=11)
    document = resolve(desk, "mine", "--to", "b4", "--upstream-url", str(desk.upstream), code=3)
    assert document["state"] == "conflict"
    assert len(edits(desk)) == 1


def test_a_line_that_went_to_a_function_in_another_file_is_no_patch_that_nobody_needs(desk) -> None:
    before = "int first_thing(int x) {\n    return x + 1;\n}\n"
    commit_build(desk, 3, {"common/added.cpp": before})
    git(desk.clone, "fetch", "-q", "origin", "master", "--tags")
    git(desk.clone, "checkout", "-q", "b3")
    pin_build(desk, 3)
    desk.change("common/added.cpp", "x + 1", "x + 2")
    take(desk, at="b3")
    done = desk.run("lock", *WITHOUT, "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    after = "int second_thing(int x) {\n    x *= 2;\n    return x + 1;\n}\n"
    commit_build(desk, 4, {"common/added.cpp": "int other;\n", "common/moved.cpp": after}, day=11)
    url = ("--upstream-url", str(desk.upstream))
    bumped = desk.run("bump", "--to", "b4", *url, "--no-verify", "--drop-conflicts", "--json")
    (found,) = verdicts(bumped.stdout)
    assert found["class"] == "conflict", bumped.stdout
    (problem,) = found["problems"]
    place = problem["where"][-1]
    assert (place["path"], place["line"], place["label"]) == (
        "common/moved.cpp",
        3,
        "contains 'return x + 1;'",
    )
    assert problem["hint"].startswith("its line is now in common/moved.cpp")
    planned = desk.run("plan", *WITHOUT, "--upstream", "b4", "--only", "mine")
    assert "common/moved.cpp:3: contains 'return x + 1;'" in planned.stderr


def verdicts(document: str) -> list[dict[str, Any]]:
    """What a bump says of the patch."""
    candidates = json.loads(document)["candidates"]
    return [each for one in candidates for each in one["patches"] if each["id"] == "mine"]


def test_lines_that_upstream_has_of_the_change_already_are_told(desk) -> None:
    shared = "#if USE_A\n    int shared = prop;\n#else\n    int shared = 0; // not for now\n#endif\n"
    text = "int unified(int prop) {{\n    int total = 0;\n{}    return total + shared;\n}}\n"
    commit_build(desk, 3, {"common/added.cpp": text.format(shared)})
    git(desk.clone, "fetch", "-q", "origin", "master", "--tags")
    git(desk.clone, "checkout", "-q", "b3")
    pin_build(desk, 3)
    ours = "    // sharing is wrong here\n    int shared = never(prop);\n"
    desk.change("common/added.cpp", "    int shared = prop;\n", ours)
    take(desk, at="b3")
    done = desk.run("lock", *WITHOUT, "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    commit_build(desk, 4, {"common/added.cpp": text.format("    int shared = never(prop);\n")}, day=11)
    url = ("--upstream-url", str(desk.upstream))
    bumped = desk.run("bump", "--to", "b4", *url, "--no-verify", "--drop-conflicts", "--json")
    (found,) = verdicts(bumped.stdout)
    assert found["reason"] == "upstream has it, except for comments, #if lines or names: common/added.cpp:3"
    (problem,) = found["problems"]
    assert "upstream has 1 of 1 line that the edit adds" in problem["why"]
    assert problem["hint"].startswith("compare both: if upstream's code is enough")


def test_abort_takes_away_what_it_wrote_and_nothing_else(mine) -> None:
    path = conflict(mine)
    before = mine.snapshot()
    again = mine.run("resolve", "mine", "--to", "b3", "--upstream-url", str(mine.upstream), "--json")
    assert json.loads(again.stdout)["error"]["code"] == "RESOLVE_UNFINISHED"
    (path.parent / "notes").write_text("mine")
    assert resolve(mine, "mine", "--abort")["left"] == ["notes"]
    assert [each.name for each in path.parent.iterdir()] == ["notes"]
    assert mine.snapshot() == before


def test_the_editor_of_the_environment_is_opened_and_then_it_goes_on(mine) -> None:
    commit_build(mine, 3, {PATH: other(mine)})
    editor = mine.root / "editor"
    editor.write_text(
        "#!/bin/sh\nsed -i -e '/^<<<<<<</,/^=======/d' -e '/^>>>>>>>/d' -e 's/< limit/< 9/' \"$@\"\n"
    )
    editor.chmod(0o755)
    words = ("mine", "--to", "b3", "--upstream-url", str(mine.upstream), "--edit")
    broken = mine.process("resolve", *words, "--json", env={"VISUAL": "false"})
    assert json.loads(broken.stdout)["error"]["code"] == "RESOLVE_EDITOR", broken.stderr
    resolve(mine, "mine", "--abort")
    done = mine.process("resolve", *words, "--json", env={"VISUAL": str(editor)})
    assert json.loads(done.stdout)["state"] == "resolved", done.stderr
    assert made(mine, 3) == other(mine).replace("< limit", "< 9")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("{", "[", "RESOLVE_FILES_BAD"),
        ('"name": "choice.cu"', '"name": "../choice.cu"', "RESOLVE_FILES_BAD"),
        ('"name": "choice.cu"', '"name": "state.json"', "RESOLVE_FILES_BAD"),
        ('"patch": "mine"', '"patch": "other"', "RESOLVE_FILES_BAD"),
        ('"version": 1', '"version": 1, "more": 1', "RESOLVE_FILES_BAD"),
        ('"build": 3', '"build": "3"', "RESOLVE_FILES_BAD"),
        (f'"path": "{PATH}"', '"path": "/etc/passwd"', "RESOLVE_FILES_BAD"),
        (f'"path": "{PATH}"', '"path": "common/tool.cpp"', "RESOLVE_FILES_BAD"),
        ('"build": 3', '"build": 4', "RESOLVE_FILES_BAD"),
    ],
)
def test_a_state_that_is_not_what_was_written_is_refused(conflicted, old: str, new: str, code: str) -> None:
    desk, path = conflicted
    state = path.with_name("state.json")
    text = state.read_text()
    assert old in text
    before = desk.snapshot()
    written = path.read_text()
    settle(path, MORE)
    state.write_text(text.replace(old, new, 1))
    failed = desk.run("resolve", "mine", "--continue", "--json")
    state.write_text(text)
    path.write_text(written)
    assert json.loads(failed.stdout)["error"]["code"] == code, failed.stderr
    assert desk.snapshot() == before


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("// ==== edit above ====", "", "RESOLVE_FILES_BAD"),
        ("// ==== edit below", "// === edit below", "RESOLVE_FILES_BAD"),
        ("<<<<<<<", "", "RESOLVE_FILES_BAD"),
        ("    switch (type) {", "    switch (type) {{", "PLAIN_UNBALANCED"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told_and_changes_nothing(conflicted, old, new, code) -> None:
    desk, path = conflicted
    text = path.read_text()
    before = desk.snapshot()
    if code != "RESOLVE_FILES_BAD":
        settle(path, MORE)
    assert old in path.read_text()
    wrong = path.read_text().replace(old, new, 1)
    path.write_text(wrong)
    failed = desk.run("resolve", "mine", "--continue", "--json")
    path.write_text(text)
    assert code in failed.stdout, failed.stderr
    if code == "PLAIN_UNBALANCED":  # the place is the line of the user's file
        (place, *_) = json.loads(failed.stdout)["error"]["errors"][0]["where"]
        assert place["path"] == "mine.conflict/choice.cu"
        assert place["label"].endswith(wrong.splitlines()[place["line"] - 1].strip())
    # Marks that were left are seen before a patch is placed.
    assert (code == "RESOLVE_FILES_BAD") == ("placing" not in failed.stderr)
    assert failed.returncode in (3, 4)
    assert desk.snapshot() == before


@pytest.fixture(scope="module")
def conflicted(shared_desk):
    """A conflict that tests look at and leave as it was, and its file."""
    desk = shared_desk
    desk.change(PATH, LINE, MORE)
    take(desk)
    record(desk)
    return desk, conflict(desk)


def test_a_patch_that_was_changed_since_makes_its_conflict_stale(mine) -> None:
    path = conflict(mine)
    settle(path, MORE)
    toml = path_of(mine)
    toml.write_text(toml.read_text().replace("2*limit", "3*limit"))
    failed = mine.run("resolve", "mine", "--continue", "--json")
    assert json.loads(failed.stdout)["error"]["code"] == "RESOLVE_FILES_BAD"
    assert path.exists()


@pytest.mark.parametrize("point", ordinary(range(8), (0, 3, 6)))
def test_killed_in_the_middle_of_it_the_patch_is_the_old_or_the_new_one(mine, point: int) -> None:
    commit_build(mine, 3, {PATH: near(mine)})
    rehearsal = type(mine)(mine.root.parent / "rehearsal", mine.checkout)
    shutil.copytree(mine.root, rehearsal.root, symlinks=True)
    words = ("resolve", "mine", "--to", "b3", "--upstream-url", str(mine.upstream))
    log = mine.root / "points"
    done = killed(rehearsal, -1, *words, group=True, cache=rehearsal.cache, log=log)
    assert done.returncode == 0, done.stderr
    before, after = path_of(mine).read_text(), path_of(rehearsal).read_text()
    killed(mine, int(log.read_text()) - 1 - point, *words, group=True, cache=mine.cache)
    assert path_of(mine).read_text() in (before, after)
    # The lock is whole, and where its digests are behind it says so.
    assert mine.run("lock", "--all").returncode == 0
    assert made(mine, 1) == source(mine).replace(LINE, MORE)
    again = mine.run(*words)
    assert again.returncode == 0, again.stderr
    assert path_of(mine).read_text() == after


LIST = "".join(f"{letter}\n" for letter in "abcdefghijklmnopqrst")


@pytest.fixture
def listed(desk):
    """A desk whose upstream has a list at b3, of which a patch changes a line."""
    commit_build(desk, 3, {"list.txt": LIST, "dos.txt": LIST.replace("\n", "\r\n")})
    pin_build(desk, 3)
    git(desk.clone, "pull", "-q", "origin", "master")
    for name in ("list.txt", "dos.txt"):
        desk.change(name, "e", "E")
        take(desk, name.partition(".")[0], at="b3")
    place_by_hand(
        desk, '{ first_of = [{ lines = "e", above = "c\\nd" }, { lines = "e", above = "c" }] }', "list"
    )
    done = desk.run("lock", *WITHOUT, "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    return desk


def test_bump_names_the_command_and_resolves_what_needs_nobody(listed) -> None:
    unix, dos = LIST.replace("c", "C"), LIST.replace("e", "EE").replace("\n", "\r\n")
    commit_build(listed, 4, {"list.txt": unix, "dos.txt": dos}, day=11)
    words = ("bump", "--to", "b4", *WITHOUT, "--upstream-url", str(listed.upstream), "--no-verify")
    blocked = listed.run(*words)
    assert blocked.returncode == 3, blocked.stderr
    assert "patchkit resolve list --to b4: git can merge it" in blocked.stdout
    assert "patchkit resolve dos --to b4: needs your decision in dos.txt" in blocked.stdout
    assert "BLOCKED: nothing was changed" in blocked.stdout
    before = listed.snapshot()
    shown = listed.run(*words, "--resolve")
    # What it wrote stays, and the last words say so.
    assert "BLOCKED: lock and branches are unchanged; the new edits of list are kept" in shown.stdout
    assert "wrote new edits of list" in shown.stderr
    for path, data in before.items():
        Path(path).write_bytes(data)
    first = listed.run(*words, "--resolve", "--json")
    assert first.returncode == 3
    assert json.loads(first.stdout)["resolve"]["left"] == {"dos": "dos.txt: a conflict"}
    assert [each["patch"] for each in json.loads(first.stdout)["resolve"]["regenerated"]] == ["list"]
    document = resolve(listed, "dos", "--to", "b4", "--upstream-url", str(listed.upstream), code=3)
    settle(listed.root / document["folder"] / "dos.txt", "EEE\n")
    resolve(listed, "dos", "--continue")
    done = listed.run(*words, "--resolve", "--json")
    assert done.returncode == 0, done.stderr
    assert made(listed, 4, "list.txt") == unix.replace("e", "E")
    raw = git_bytes(listed, "candidate/gfx1100/b4:dos.txt")
    assert raw == dos.replace("EE", "EEE").encode()
    refused = listed.run(*words, "--resolve", "--commit", "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "USAGE_VALUE"


def test_edits_that_still_fit_keep_their_text(listed) -> None:
    assert listed.run("series", "drop", "list").returncode == 0
    git(listed.clone, "checkout", "-q", "--", ".")
    for letter in "bmr":
        listed.change("list.txt", f"\n{letter}\n", f"\n{letter} of mine\n")
    take(listed, "several", at="b3")
    before = path_of(listed, "several").read_text()
    commit_build(listed, 4, {"list.txt": LIST.replace("m", "M")}, day=11)
    words = ("several", "--to", "b4", "--upstream-url", str(listed.upstream))
    document = resolve(listed, *words, code=3)
    settle(listed.root / document["folder"] / "list.txt", "M of mine\n")
    document = resolve(listed, "several", "--continue")
    assert len(document["edits"]) == 1
    assert (len(document["ended"]), len(document["kept"])) == (1, 2)
    # Only one edit got a last build, and only one edit was added.
    now = path_of(listed, "several").read_text()
    (ended,) = document["ended"]
    old = f'id = "{ended}"\nfile = "list.txt"\n'
    assert now.startswith(before.replace(old, f"{old}last_build = 3\n"))
    assert [each.get("first_build") for each in edits(listed, "several")] == [None, None, None, 4]
    wanted = "".join(
        f"{each} of mine\n" if each in "bMr" else f"{each}\n" for each in LIST.replace("m", "M").split()
    )
    assert made(listed, 4, "list.txt") == wanted


@pytest.mark.parametrize(
    ("option", "wanted"), [("--before", "e\nmine\ntheirs\n"), ("--after", "e\ntheirs\nmine\n")]
)
def test_two_insertions_are_merged_in_the_order_that_the_user_names(listed, option, wanted) -> None:
    assert listed.run("series", "drop", "list").returncode == 0
    git(listed.clone, "checkout", "-q", "--", ".")
    listed.change("list.txt", "\ne\n", "\ne\nmine\n")
    take(listed, "inserts", at="b3")
    commit_build(listed, 4, {"list.txt": LIST.replace("e\n", "e\ntheirs\n")}, day=11)
    words = ("inserts", "--to", "b4", "--upstream-url", str(listed.upstream))
    assert resolve(listed, *words, option)["state"] == "ordered"
    assert made(listed, 4, "list.txt") == LIST.replace("e\n", wanted)


def test_of_all_patches_the_order_is_for_those_that_only_insert(listed) -> None:
    assert listed.run("series", "drop", "list").returncode == 0
    git(listed.clone, "checkout", "-q", "--", ".")
    listed.change("list.txt", "\ne\n", "\ne\nmine\n")
    take(listed, "inserts", at="b3")
    theirs = LIST.replace("e\n", "e\ntheirs\n"), LIST.replace("e", "EE").replace("\n", "\r\n")
    commit_build(listed, 4, {"list.txt": theirs[0], "dos.txt": theirs[1]}, day=11)
    words = ("--all", "--to", "b4", "--upstream-url", str(listed.upstream))
    document = resolve(listed, *words, "--after", code=3)
    assert [(each["patch"], each["state"]) for each in document["regenerated"]] == [("inserts", "ordered")]
    assert [each["patch"] for each in document["conflicts"]] == ["dos"]
    settle(listed.root / "conflicts/dos/dos.txt", "EEE\n")
    resolve(listed, "--all", "--continue")
    assert made(listed, 4, "list.txt") == LIST.replace("e\n", "e\ntheirs\nmine\n")


def test_an_order_is_for_insertions_only(mine) -> None:
    commit_build(mine, 3, {PATH: other(mine)})
    before = mine.snapshot()
    refused = mine.run(
        "resolve", "mine", "--to", "b3", "--upstream-url", str(mine.upstream), "--after", "--json"
    )
    assert json.loads(refused.stdout)["error"]["code"] == "RESOLVE_BY_HAND"
    assert mine.snapshot() == before


@pytest.mark.parametrize("number", [0, 1])
def test_of_two_results_that_differ_the_user_chooses_one_and_the_next_bump_has_it(listed, number) -> None:
    assert listed.run("series", "drop", "list").returncode == 0
    listed.change("list.txt", "\ne\n", "\nE\n")
    listed.change("common/tool.cpp", "how much", "as much")
    take(listed, "two", at="b3")
    place = '{ first_of = [{ lines = "e", above = "x" }, { lines = "e", above = "d" }] }'
    old = r'(?ms)(file = "list.txt"\nat = ).*?(?=^verb = )'
    text, count = re.subn(old, lambda found: f"{found[1]}{place}\n", path_of(listed, "two").read_text())
    assert count == 1
    path_of(listed, "two").write_text(text)
    done = listed.run("lock", *WITHOUT, "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    # The place is the last line now, and git changes the line that it was.
    commit_build(listed, 4, {"list.txt": f"{LIST}x\ne\n"}, day=11)
    words = ("bump", "--to", "b4", *WITHOUT, "--upstream-url", str(listed.upstream), "--no-verify")
    blocked = listed.run(*words)
    assert "patchkit resolve two --to b4: needs your decision in list.txt\n" in blocked.stdout
    document = resolve(listed, "two", "--to", "b4", "--upstream-url", str(listed.upstream), code=3)
    assert [each["path"] for each in document["files"]] == ["list.txt"]
    path = listed.root / document["folder"] / "list.txt"
    assert path.read_text().count("<<<<<<< git's merge\n") == 2
    sides = r"<<<<<<< .*\n([\s\S]*?)\|\|\|\|\|\|\| .*\n=======\n([\s\S]*?)>>>>>>> .*\n"
    path.write_text(re.sub(sides, rf"\{number + 1}", path.read_text()))
    resolve(listed, "two", "--continue")
    done = listed.run(*words)
    assert done.returncode == 0, done.stdout
    merged = f"{LIST.replace('e', 'E')}x\ne\n", f"{LIST}x\nE\n"
    assert made(listed, 4, "list.txt") == merged[number]
    assert made(listed, 3, "list.txt") == LIST.replace("e", "E")


@pytest.fixture
def several(listed):
    """A desk with three patches of one file, the last requires the second; b4 changed their lines."""
    assert listed.run("series", "drop", "list").returncode == 0
    for name, old, new in (("early", "b", "early"), ("late", "r", "late"), ("later", "late", "later")):
        listed.change("list.txt", f"\n{old}\n", f"\n{new}\n")
        git(listed.clone, "add", "list.txt")
        git(listed.clone, "commit", "-q", "-m", name)
    git(listed.clone, "format-patch", "-q", "-3", "-o", str(listed.root / "queue"))
    done = listed.run("import", str(listed.root / "queue"), "--guard", "none", "--upstream", "b3")
    assert done.returncode == 0, done.stderr
    assert [each["patch"] for each in tomllib.loads(path_of(listed, "later").read_text())["requires"]] == [
        "late"
    ]
    commit_build(listed, 4, {"list.txt": LIST.replace("b", "B").replace("r", "R")}, day=11)
    return listed


def wanted_list() -> str:
    return LIST.replace("b\n", "Early\n").replace("r\n", "Later\n")


def test_patches_are_resolved_in_any_order_unless_one_requires_another(several) -> None:
    words = ("--to", "b4", "--upstream-url", str(several.upstream))
    refused = several.run("resolve", "later", *words, "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "RESOLVE_EARLIER_FIRST"
    for name in ("late", "early"):
        resolve(several, name, *words, code=3)
    # The folder of the second patch is made without the first one, whichever is resolved first.
    settle(several.root / "early.conflict/list.txt", "Early\n")
    resolve(several, "early", "--continue")
    settle(several.root / "late.conflict/list.txt", "Late\n")
    assert "early" in resolve(several, "late", "--continue")["warnings"][0]
    document = resolve(several, "later", *words, code=3)
    settle(several.root / document["folder"] / "list.txt", "Later\n")
    resolve(several, "later", "--continue")
    assert made(several, 4, "list.txt") == wanted_list()


def test_all_conflicts_of_a_build_are_resolved_in_one_folder(several) -> None:
    words = ("--all", "--to", "b4", "--upstream-url", str(several.upstream))
    document = resolve(several, *words, code=3)
    assert [each["patch"] for each in document["conflicts"]] == ["early", "late"]
    assert list(document["waiting"]) == ["later"]
    assert "patchkit resolve --all --continue" in (several.root / "conflicts/late/list.txt").read_text()
    before = path_of(several, "early").read_text()
    settle(several.root / "conflicts/late/list.txt", "Late\n")
    document = resolve(several, "--all", "--continue", code=3)
    assert ([each["patch"] for each in document["resolved"]], list(document["errors"])) == (
        ["late"],
        ["early"],
    )
    assert path_of(several, "early").read_text() == before
    # What is not finished stays, and what had to wait comes.
    document = resolve(several, *words, code=3)
    assert (document["unfinished"], [each["patch"] for each in document["conflicts"]]) == (
        ["early"],
        ["later"],
    )
    settle(several.root / "conflicts/early/list.txt", "Early\n")
    settle(several.root / "conflicts/later/list.txt", "Later\n")
    document = resolve(several, "--all", "--continue")
    assert [each["patch"] for each in document["resolved"]] == ["early", "later"]
    assert not (several.root / "conflicts").exists()
    document = resolve(several, *words)
    assert (document["conflicts"], document["waiting"]) == ([], {})
    assert made(several, 4, "list.txt") == wanted_list()


def test_a_file_that_upstream_renamed_is_followed_by_its_content(listed) -> None:
    commit_build(listed, 4, {"list.txt": None, "lists/all.txt": LIST.replace("c", "C")}, day=11)
    document = resolve(listed, "list", "--to", "b4", "--upstream-url", str(listed.upstream))
    assert document["state"] == "regenerated"
    assert [each["file"] for each in document["edits"]] == ["lists/all.txt"]
    assert made(listed, 4, "lists/all.txt") == LIST.replace("c", "C").replace("e", "E")


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ({"list.txt": None}, "RESOLVE_FILE_GONE"),
        ({"list.txt": LIST.replace("e", "E")}, "RESOLVE_NOT_NEEDED"),
    ],
)
def test_what_cannot_be_merged_is_told(listed, after, code: str) -> None:
    commit_build(listed, 4, after, day=11)
    before = listed.snapshot()
    done = listed.run("resolve", "list", "--to", "b4", "--upstream-url", str(listed.upstream), "--json")
    assert json.loads(done.stdout)["error"]["code"] == code, done.stderr
    assert listed.snapshot() == before


def test_a_guarded_patch_gets_the_file_and_is_written_by_hand(desk) -> None:
    demo = git(desk.upstream, "show", f"b1:{FOLDER}/demo.cu") + "\n"
    commit_build(desk, 3, {f"{FOLDER}/demo.cu": demo.replace("int scale = 2", "int scale = 7")})
    words = ("demo-twin", "--to", "b3", "--upstream-url", str(desk.upstream))
    before = desk.snapshot()
    document = resolve(desk, *words, code=3)
    assert document["is_plain"] is False
    assert "#if" in (desk.root / document["folder"] / "demo.cu").read_text()
    failed = desk.run("resolve", "demo-twin", "--continue", "--json")
    assert json.loads(failed.stdout)["error"]["code"] == "RESOLVE_BY_HAND"
    assert desk.snapshot() == before


def test_all_names_guarded_patches_first_and_leaves_them(desk) -> None:
    demo = git(desk.upstream, "show", f"b1:{FOLDER}/demo.cu") + "\n"
    assert desk.run("lock", "--arch", "gfx1151").returncode == 0
    commit_build(desk, 3, {f"{FOLDER}/demo.cu": demo.replace("int scale = 2", "int scale = 7")})
    before = desk.snapshot()
    done = desk.run("resolve", "--all", "--to", "b3", "--upstream-url", str(desk.upstream), "--json")
    assert done.returncode == 3, done.stderr
    assert "to be changed by hand: demo-twin (GPU guard)" in done.stderr
    document = json.loads(done.stdout)
    assert (document["conflicts"], list(document["waiting"])) == ([], ["demo-twin"])
    assert "patchkit resolve demo-twin --to b3 shows where" in document["waiting"]["demo-twin"]
    assert desk.snapshot() == before


def test_without_any_result_in_the_lock_its_pin_is_the_base(desk) -> None:
    desk.change(PATH, LINE, MORE)
    take(desk)
    place_by_hand(desk, STATEMENT)
    commit_build(desk, 3, {PATH: near(desk)})
    document = resolve(desk, "mine", "--to", "b3", "--upstream-url", str(desk.upstream))
    assert (document["state"], document["old_build"]) == ("regenerated", 1)
    assert (document["lock_renewed"], document["lock_stale"]) == ([], [])
    assert resolve(desk, "mine", "--to", "b3", "--upstream-url", str(desk.upstream))["state"] == "placed"
