"""``import --replace``: a new version of a patch that the series has already."""

from __future__ import annotations

import json
import shutil
import tomllib
from typing import Any

import pytest
from demo_world import FOLDER, git
from killing import killed
from queued import (
    CMAKE,
    DOCUMENTED,
    TOOL,
    contents,
    documented,
    errors,
    queue,
    result,
    steps,
    tables,
    toml_of,
    version,
)
from thorough import ordinary


def replaced(desk, *args: str, code: int = 0) -> dict[str, Any]:
    done = desk.run("import", "--replace", *args, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


LIMIT = ("limits", TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
NAME = ("limits", TOOL, "a@{b}", "another")
FAST = ("limits", CMAKE, "OFF)", "ON)")
ONE = (LIMIT, NAME, FAST)


def test_only_the_edit_that_changed_is_written_again(desk) -> None:
    queue(desk, *ONE)
    path = toml_of(desk, "limits")
    text = path.read_text()
    assert text.count("[[edit]]") == 3
    head, *edits = text.split("[[edit]]\n")
    head = head.replace('guard = "none"\n', f'{DOCUMENTED}guard = "none"\n')
    names = [tomllib.loads(edit)["id"] for edit in edits]
    assert names == ["cmakelists-txt", "tool-limit", "tool-name"]
    mine = [f"# by hand: {name}\n[[edit]]\n{edit}" for name, edit in zip(names, edits, strict=True)]
    mine[0] = mine[0].replace('"cmakelists-txt"', '"fast"   # short')
    path.write_text(head + "".join(mine))
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 640 ? 640"), NAME[1:], FAST[1:])
    told = replaced(desk, "limits", str(new))
    assert (told["state"], told["changed"], told["kept"]) == (
        "replaced",
        ["tool-limit"],
        ["fast", "tool-name"],
    )
    assert told["places"] == {"tool-limit": f"{TOOL}:7:1"}
    changed = mine[1].replace("512", "640")
    assert path.read_text() == head + mine[0] + changed + mine[2]
    assert b"640" in result(desk)


def test_an_edit_more_and_one_less(desk) -> None:
    queue(desk, *ONE)
    path = toml_of(desk, "limits")
    kept = path.read_text().split("[[edit]]\n")[2]
    new = version(
        desk,
        LIMIT[1:],
        FAST[1:],
        (CMAKE, "project(demo)", "project(demo CXX)"),
        (TOOL, "// how much", "// how many"),
    )
    told = replaced(desk, "limits", str(new))
    assert (told["changed"], told["kept"]) == (["cmakelists-txt"], ["tool-limit"])
    assert len(told["added"]) == 1
    assert told["removed"] == ["tool-name"]
    assert kept.rstrip() in path.read_text()
    assert b"// how many" in result(desk)
    assert b"a@{b}" in result(desk)
    assert b"CXX" in result(desk, CMAKE)


def test_the_same_version_again_writes_nothing(desk) -> None:
    queue(desk, *ONE)
    before = desk.snapshot()
    told = replaced(desk, "limits", str(version(desk, *(each[1:] for each in ONE))))
    assert (told["state"], told["written"]) == ("same", False)
    assert desk.snapshot() == before


def test_a_guarded_patch_keeps_its_guard_and_the_edits_that_did_not_change(desk) -> None:
    path = f"{FOLDER}/choice.cu"
    device = (f"{FOLDER}/demo.cu", "    dst[i] = x[i];", "    dst[i] = 2*x[i];")
    new = version(desk, (path, "limit = 256", "limit = 512"), device)
    done = desk.run("import", str(new), "--guard", "gfx1151", "--id", "mine")
    assert done.returncode == 0, done.stderr
    toml = toml_of(desk, "mine")
    text = toml.read_text()
    first, second = text.split("[[edit]]\n")[1:]
    assert "512" in first
    toml.write_text(text.replace(f"[[edit]]\n{second}", f"# by hand\n[[edit]]\n{second}"))
    profile = (desk.series / "arch_profiles" / "gfx1151.toml").read_bytes()
    new = version(desk, (path, "limit = 256", "limit = 1024"), device)
    told = replaced(desk, "mine", str(new))
    assert (len(told["kept"]), len(told["changed"]), told["added"], told["removed"]) == (1, 1, [], [])
    head = text.split("[[edit]]\n")[0]
    changed = first.replace("512", "1024")
    assert toml.read_text() == f"{head}[[edit]]\n{changed}# by hand\n[[edit]]\n{second}"
    assert (desk.series / "arch_profiles" / "gfx1151.toml").read_bytes() == profile
    shown = desk.shown("mine", path)
    assert b"1024" in shown
    assert b"512" not in shown


def test_the_context_of_a_guarded_patch_follows_its_edits(desk) -> None:
    path = f"{FOLDER}/choice.cu"
    new = version(desk, (path, "limit = 256", "limit = 512"))
    done = desk.run("import", str(new), "--guard", "gfx1151", "--id", "mine")
    assert done.returncode == 0, done.stderr
    assert tables(desk, "mine")["context"] == ["guard"]
    device = (f"{FOLDER}/demo.cu", "    dst[i] = x[i];", "    dst[i] = 2*x[i];")
    assert len(replaced(desk, "mine", str(version(desk, device)))["removed"]) == 1
    assert "context" not in tables(desk, "mine")
    told = replaced(desk, "mine", str(version(desk, device, (path, "limit = 256", "limit = 300"))))
    assert (len(told["kept"]), len(told["added"])) == (1, 1)
    assert tables(desk, "mine")["context"] == ["guard"]


CHAIN = (
    ("first", TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512"),
    ("second", TOOL, "wanted > 512 ? 512", "wanted > 1024 ? 1024"),
    ("third", CMAKE, "OFF)", "ON)"),
)


def test_a_version_that_a_later_patch_does_not_fit_is_refused_and_named(desk) -> None:
    queue(desk, *CHAIN)
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    before = desk.snapshot()
    found = errors(replaced(desk, "first", str(new), code=3))
    assert [each["code"] for each in found] == ["AMEND_BREAKS", "ANCHOR_NOT_FOUND"]
    assert "second cannot be placed at b1" in found[0]["message"]
    assert "third" not in found[0]["message"]
    assert found[0]["where"][0]["path"] == str(toml_of(desk, "second"))
    assert found[1]["where"][0]["line"] is not None
    assert desk.snapshot() == before


def test_it_can_be_written_anyway_and_the_later_patch_replaced_next(desk) -> None:
    queue(desk, *CHAIN)
    first = (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300")
    told = replaced(desk, "first", str(version(desk, first)), "--allow-broken", code=3)
    assert told["written"] is True
    assert {error["code"] for error in told["broken"]} == {"AMEND_BREAKS", "ANCHOR_NOT_FOUND"}
    second = version(desk, (TOOL, "wanted > 300 ? 300", "wanted > 900 ? 900"), before=(first,))
    told = replaced(desk, "second", str(second))
    assert (told["changed"], told["broken"]) == (["tool-limit"], [])
    assert b"wanted > 900 ? 900" in result(desk)
    assert [each["patch"] for each in tables(desk, "second")["requires"]] == ["first"]


def test_a_version_that_needs_an_earlier_patch_says_what_to_add(desk) -> None:
    queue(desk, CHAIN[0], ("second", *FAST[1:]))
    change = (TOOL, "wanted > 512 ? 512", "wanted > 600 ? 600")
    told = replaced(desk, "second", str(version(desk, change, before=(CHAIN[0][1:],))))
    (warning,) = told["warnings"]
    assert "needs 'first'" in warning
    path = toml_of(desk, "second")
    text = path.read_text()
    alone = ("plan", "--arch", "plain", "--only", "second")
    assert desk.run(*alone).returncode == 3
    path.write_text(text + "\n" + warning.partition("\n")[2] + "\n")
    done = desk.run(*alone, "--json")
    assert "PATCH_PAIR_SPLIT" in done.stdout
    assert desk.run("plan", "--arch", "plain").returncode == 0


def test_a_version_made_without_the_patches_before_is_merged_with_them(desk) -> None:
    queue(desk, ("first", TOOL, "// how much at most", "// how much, at most"), ("second", *LIMIT[1:]))
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 700 ? 700"))
    assert replaced(desk, "second", str(new))["changed"] == ["tool-limit"]
    text = result(desk)
    assert b"// how much, at most" in text
    assert b"700" in text


def test_commits_are_a_version(desk) -> None:
    queue(desk, *CHAIN)
    steps(desk, CHAIN[0], ("second", TOOL, "wanted > 512 ? 512", "wanted > 2048 ? 2048"))
    told = replaced(desk, "second", "HEAD", "--repo", str(desk.clone))
    assert told["changed"] == ["tool-limit"]
    assert b"2048" in result(desk)
    steps(desk, ("more", TOOL, "a@{b}", "x"))
    told = replaced(desk, "second", "HEAD~2..HEAD", "--repo", str(desk.clone))
    assert (told["added"], told["kept"]) == (["tool-name"], ["tool-limit"])


def test_new_and_renamed_files_are_part_of_a_version(desk) -> None:
    desk.add("common/ours.h", "#pragma once\nint ours();\n")
    desk.change(TOOL, *LIMIT[2:])
    desk.commit("files")
    done = desk.run("import", "b1..HEAD", "--repo", str(desk.clone), "--guard", "none")
    assert done.returncode == 0, done.stderr
    folder = toml_of(desk, "files").parent
    assert (folder / "ours.h.jinja").is_file()
    before = toml_of(desk, "files").read_text()
    git(desk.clone, "reset", "-q", "--hard", "b1")
    desk.add("common/ours.h", "#pragma once\nint ours(int);\n")
    desk.change(TOOL, *LIMIT[2:])
    git(desk.clone, "rm", "-q", "dos.txt")
    new = desk.commit("files")
    told = replaced(desk, "files", new, "--repo", str(desk.clone))
    assert (told["kept"], told["changed"], told["added"]) == (["tool-limit"], ["common/ours.h"], ["dos.txt"])
    assert before.split("[[edit]]")[1].rstrip() in toml_of(desk, "files").read_text()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["_ours.h.jinja", "patch.toml"]
    assert b"int ours(int);" in result(desk, "common/ours.h")


def test_evidence_stays_and_the_results_of_the_lock_are_to_record_again(desk) -> None:
    queue(desk, *CHAIN[:1])
    documented(desk, "first")
    evidence = toml_of(desk, "first").with_name("evidence.toml")
    evidence.write_text(
        '[[claim]]\narchs = ["gfx1151"]\nkind = "hardware"\nsays = "gain"\nwho = "me"\n'
        'link = "https://example.invalid/2"\nfigure = "1 %"\non = 2025-01-01\n'
    )
    done = desk.run("lock", "--arch", "plain")
    assert done.returncode == 0, done.stderr
    said = evidence.read_text()
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    told = replaced(desk, "first", str(new))
    assert (told["lock_stale"], told["lock_renewed"], told["unchecked"]) == (["b1 plain"], [], [])
    assert evidence.read_text() == said
    assert desk.run("apply", "--arch", "plain").returncode == 2  # the lock has the old files
    assert desk.run("lock", "--all").returncode == 0
    assert desk.run("apply", "--arch", "plain").returncode == 0


def test_edits_for_other_builds_stay_and_the_result_there_is_renewed(desk) -> None:
    queue(desk, *CHAIN[:1])
    documented(desk, "first")
    second = desk.run(
        "bump", "--to", "b2", "--arch", "plain", "--no-verify", "--upstream-url", str(desk.upstream)
    )
    assert second.returncode in (0, 2), second.stdout + second.stderr
    lock = tomllib.loads(desk.lock.read_text())
    assert {pin["name"] for pin in lock["pin"]} == {"b1", "b2"}
    path = toml_of(desk, "first")
    text = path.read_text()
    edit = text[text.index("[[edit]]") :]
    ended = edit.replace('verb = "', 'last_build = 1\nverb = "', 1)
    later = edit.replace('verb = "', 'first_build = 2\nverb = "', 1).replace("512", "513")
    path.write_text(text.replace(edit, f"{ended}\n{later}"))
    for build in ("b1", "b2"):
        done = desk.run("lock", "--arch", "plain", "--upstream", build)
        assert done.returncode == 0, done.stderr
    trees = {each["pin"]: each["tree"] for each in tomllib.loads(desk.lock.read_text())["result"]}
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    told = replaced(desk, "first", str(new), "--upstream", "b1")
    assert told["changed"] == ["tool-limit"]
    assert told["other_builds"] == ["tool-limit (from b2)"]
    assert (told["lock_renewed"], told["lock_stale"]) == (["b2 plain"], ["b1 plain"])
    assert later in path.read_text()
    assert [each.get("last_build") for each in tables(desk, "first")["edit"]] == [1, None]
    assert desk.run("apply", "--arch", "plain", "--upstream", "b2").returncode == 0
    now = {each["pin"]: each["tree"] for each in tomllib.loads(desk.lock.read_text())["result"]}
    assert now["b2"] == trees["b2"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("first", "{new}", "--guard", "none"), "IMPORT_OPTIONS"),
        (("first",), "IMPORT_OPTIONS"),
        (("none-such", "{new}"), "UNKNOWN_PATCH"),
        (("first", "none-such.patch"), "IMPORT_NOTHING"),
        (("first", "none-such", "--repo", "llama.cpp"), "ONTO_NO_COMMIT"),
        (("demo-twin", "{new}", "--pr", "8"), "IMPORT_OPTIONS"),
        (("first", "{new}", "--upstream", "b77"), "PIN_UNKNOWN"),
    ],
)
def test_what_cannot_be_replaced_is_refused(shared_desk, args: tuple[str, ...], code: str) -> None:
    desk = shared_desk
    if not list((desk.series / "patches").glob("*-first")):
        queue(desk, *CHAIN[:1])
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    before = desk.snapshot()
    words = (word.format(new=new) for word in args)
    assert replaced(desk, *words, code=2)["error"]["code"] == code
    assert desk.snapshot() == before


def test_a_version_that_does_not_apply_is_explained(desk) -> None:
    queue(desk, *CHAIN)
    new = version(
        desk,
        (TOOL, "wanted > 9 ? 9", "wanted > 8 ? 8"),
        before=((TOOL, "wanted > 256 ? 256", "wanted > 9 ? 9"),),
    )
    error = replaced(desk, "second", str(new), code=3)["error"]
    assert error["code"] == "IMPORT_NOT_APPLYING"
    assert "with first" in error["why"].replace("demo-launch-bounds, demo-twin, ", "")


def test_a_dry_run_writes_nothing(desk) -> None:
    queue(desk, *CHAIN[:1])
    before = desk.snapshot()
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    told = replaced(desk, "first", str(new), "--dry-run")
    assert (told["written"], told["changed"]) == (False, ["tool-limit"])
    assert desk.snapshot() == before


@pytest.mark.parametrize("point", ordinary(range(24), (2, 8, 12)))
def test_killed_in_the_middle_the_series_is_the_old_or_the_new_one(desk, point: int) -> None:
    queue(desk, *CHAIN[:1])
    documented(desk, "first")
    assert desk.run("lock", "--arch", "plain").returncode == 0
    new = version(desk, (TOOL, "wanted > 256 ? 256", "wanted > 300 ? 300"))
    rehearsal = type(desk)(desk.root.parent / "rehearsal", desk.checkout)
    shutil.copytree(desk.root, rehearsal.root, symlinks=True)
    words = ("import", "--replace", "first", str(new))
    log = desk.root / "points"
    before = contents(desk)
    done = killed(rehearsal, -1, *words, group=True, cache=rehearsal.cache, log=log)
    assert done.returncode == 0, done.stderr
    after = contents(rehearsal)
    assert before != after
    killed(desk, int(log.read_text()) - 1 - point, *words, group=True, cache=desk.cache)
    assert contents(desk) in (before, after)
    assert desk.run(*words).returncode == 0
    assert contents(desk) == after
    assert not list(desk.series.glob(".*")), "a run removes what a killed one left"
