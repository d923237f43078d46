"""A plain patch that a new build does not take: git's merge, or a person's, becomes its edits there."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from demo_world import FOLDER, git, pin_text

PATH = f"{FOLDER}/choice.cu"
LINE = "    return ne11 <= limit;\n"
MORE = LINE.replace("limit", "2*limit")
WITHOUT = ("--arch", "gfx1100", "--without", "demo-twin", "--without", "demo-launch-bounds")


def source(desk) -> str:
    """The file of b1."""
    return git(desk.upstream, "show", f"b1:{PATH}") + "\n"


def near(desk) -> str:
    """With another line beside the one that the patch changes: its edit names both, git does not ask."""
    return source(desk).replace("cc > 7 ? 128", "cc > 8 ? 128")


def other(desk) -> str:
    """With another last line."""
    return source(desk).replace(LINE, "    return ne11 < limit;\n")


def commit_build(desk, build: int, files: dict[str, str | None], day: int = 10) -> None:
    """One more build of the desk's upstream."""
    git(desk.upstream, "checkout", "-q", "master")
    for name, text in files.items():
        path = desk.upstream / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text)
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
    text = desk.lock.read_text()
    if f"build = {build}\n" not in text:
        pin = pin_text(desk.upstream, build).partition("[[pin]]")[2]
        desk.lock.write_text(f"{text}\n[[pin]]{pin}")
    done = desk.run("apply", *WITHOUT, "--upstream", f"b{build}")
    assert done.returncode == 0, done.stderr
    return subprocess.run(
        ["git", "--git-dir", str(desk.repository), "show", f"candidate/gfx1100/b{build}:{path}"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def test_what_git_merges_becomes_new_edits_and_old_builds_keep_theirs(mine) -> None:
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
    assert json.loads(failed.stdout)["error"]["code"] == "RESOLVE_MARKS_LEFT", failed.stderr
    assert mine.snapshot() == before
    settle(path, "    return ne11 < 2*limit;\n")
    document = resolve(mine, "mine", "--continue")
    assert (document["state"], document["left"]) == ("resolved", [])
    assert not path.parent.exists()
    assert made(mine, 3) == other(mine).replace("< limit", "< 2*limit")


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
