"""``patchkit series``: drop, fold and move patches; the result of the rest stays what it was."""

from __future__ import annotations

import json
import shutil
import tomllib
from typing import Any

import pytest
from demo_world import git
from killing import killed
from queued import CMAKE, TOOL, contents, documented, errors, queue, result, tables, toml_of
from thorough import ordinary

FIRST = ("first", TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
SECOND = ("second", TOOL, "wanted > 512 ? 512", "wanted > 1024 ? 1024")
NAME = ("name", TOOL, "a@{b}", "another")
FAST = ("fast", CMAKE, "OFF)", "ON)")
CHAIN = (FIRST, SECOND, NAME, FAST)


def amended(desk, *args: str, code: int = 0) -> dict[str, Any]:
    done = desk.run("series", *args, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def folders(desk) -> list[str]:
    return sorted(path.name for path in (desk.series / "patches").glob("0*"))


def tree(desk, arch: str = "plain") -> str:
    done = desk.run("apply", "--arch", arch, "--unlocked")
    assert done.returncode == 0, done.stderr
    return git(desk.repository, "rev-parse", f"candidate/{arch}/b1^{{tree}}")


def unrequired(desk, name: str) -> None:
    """Remove what a patch requires, as somebody may forget to write it."""
    path = toml_of(desk, name)
    text = path.read_text()
    path.write_text(text[: text.index("[[requires]]")] + text[text.index("[[edit]]") :])


def test_a_patch_that_another_one_requires_is_not_dropped(desk) -> None:
    queue(desk, *CHAIN)
    before = desk.snapshot()
    (error,) = errors(amended(desk, "drop", "first", code=2))
    assert (error["code"], error["message"]) == ("AMEND_REFUSED", "second requires first")
    text = toml_of(desk, "second").read_text()
    assert error["where"][0]["path"] == str(toml_of(desk, "second"))
    assert text.splitlines()[error["where"][0]["line"] - 1] == 'patch = "first"'
    assert desk.snapshot() == before
    told = amended(desk, "drop", "first", "second")
    assert (told["dropped"], told["checked"]) == (["first", "second"], ["b1 plain"])
    assert [name[5:] for name in folders(desk)[2:]] == ["name", "fast"]
    text = result(desk)
    assert b"wanted > 256 ? 256" in text
    assert b"another" in text


def test_a_patch_that_does_not_fit_without_the_dropped_one_is_named(desk) -> None:
    queue(desk, *CHAIN)
    unrequired(desk, "second")
    before = desk.snapshot()
    found = errors(amended(desk, "drop", "first", code=3))
    assert found[0]["code"] == "AMEND_BREAKS"
    assert found[0]["message"] == "second cannot be placed at b1 plain after dropping first"
    assert desk.snapshot() == before


def test_profiles_and_faults_no_longer_name_a_dropped_patch(desk) -> None:
    rules = desk.series / "patches" / "series.toml"
    fault = (
        '\n# known\n[[fault]]\nid = "wrong-scale"\ntitle = "the scale is wrong"\narchs = ["gfx1151"]\n'
        'symptom = "wrong numbers"\ndoes = "wrong results"\nseen_on = "emulated"\n'
        'links = ["https://example.invalid/9"]\n{patch}builds = {{ first = 1, why = "the twin" }}\n'
    )
    head = rules.read_text()
    rules.write_text(head + fault.format(patch='patch = "demo-twin"\n'))
    profiles = {arch: desk.series / "arch_profiles" / f"{arch}.toml" for arch in ("gfx1151", "gfx1100")}
    texts = {arch: path.read_text() for arch, path in profiles.items()}
    told = amended(desk, "drop", "demo-twin")
    assert told["profiles"] == ["arch_profiles/gfx1100.toml", "arch_profiles/gfx1151.toml"]
    assert told["faults"] == ["wrong-scale"]
    assert rules.read_text() == head + fault.format(patch="")
    for arch, text in texts.items():
        kept = [line for line in text.splitlines(keepends=True) if not line.startswith("demo-twin")]
        assert profiles[arch].read_text() == "".join(kept)
    assert folders(desk) == ["0001-demo-launch-bounds"]
    assert desk.run("apply", "--arch", "gfx1151").returncode == 0


def test_independent_patches_change_places_and_the_result_is_the_same(desk) -> None:
    queue(desk, *CHAIN)
    documented(desk, "first", "second", "name", "fast")
    assert desk.run("lock", "--arch", "plain").returncode == 0
    was = tree(desk)
    told = amended(desk, "move", "fast", "--before", "first")
    assert told["folders"]["0006-fast"] == "0003-fast"
    assert [name[5:] for name in folders(desk)[2:]] == ["fast", "first", "second", "name"]
    assert (told["checked"], told["lock_stale"], told["lock_renewed"]) == (["b1 plain"], ["b1 plain"], [])
    assert tree(desk) == was
    assert desk.run("lock", "--all").returncode == 0
    last = amended(desk, "move", "fast", "--after", "name")
    assert last["folders"] == {"0003-fast": "0007-fast"}
    assert tree(desk) == was
    # Between 0002 and 0004 a number is free, so only one folder changes.
    assert amended(desk, "move", "fast", "--before", "first")["folders"] == {"0007-fast": "0003-fast"}
    assert amended(desk, "move", "fast", "--before", "first")["folders"] == {}


def test_results_without_the_moved_patch_are_renewed(desk) -> None:
    queue(desk, *CHAIN)
    documented(desk, "first", "second", "name", "fast")
    assert desk.run("lock", "--arch", "plain", "--without", "fast").returncode == 0
    told = amended(desk, "move", "fast", "--before", "first")
    assert (told["lock_stale"], told["lock_renewed"]) == ([], ["b1 plain"])
    assert desk.run("apply", "--arch", "plain", "--without", "fast").returncode == 0


@pytest.mark.parametrize("where", [("second", "--before", "first"), ("first", "--after", "name")])
def test_dependent_patches_do_not_change_places(shared_desk, where: tuple[str, ...]) -> None:
    desk = shared_desk
    if len(folders(desk)) == 2:
        queue(desk, *CHAIN)
    before = desk.snapshot()
    (error,) = errors(amended(desk, "move", *where, code=2))
    assert error["code"] == "AMEND_REFUSED"
    assert "'second' before 'first', which it requires" in error["message"]
    assert error["where"][0]["path"] == str(toml_of(desk, "second"))
    assert desk.snapshot() == before
    path = toml_of(desk, "second")
    text = path.read_text()
    unrequired(desk, "second")
    found = errors(amended(desk, "move", *where, code=3))
    path.write_text(text)
    assert found[0]["code"] == "AMEND_BREAKS"
    assert "second cannot be placed at b1 plain" in found[0]["message"]
    assert desk.snapshot() == before


def test_an_order_that_gives_another_result_is_refused(desk) -> None:
    for number, name in ((3, "one"), (4, "two")):
        folder = desk.series / "patches" / f"{number:04}-{name}"
        folder.mkdir()
        (folder / "patch.toml").write_text(
            f'id = "{name}"\ntitle = "{name}"\nguard = "none"\nbuilds = {{ first = 1, why = "so it is" }}\n\n'
            f'[[edit]]\nid = "{name}"\nfile = "{TOOL}"\nat = {{ lines = "// how much at most" }}\n'
            f'verb = "insert_after"\ntext = "int {name}(int x);\\n"\n'
        )
    before = desk.snapshot()
    (error,) = errors(amended(desk, "move", "two", "--before", "one", code=3))
    assert error["code"] == "AMEND_BREAKS"
    assert error["message"] == "moving 'two' before 'one' changes the result at b1 plain"
    assert error["where"][0]["path"] == TOOL
    assert desk.snapshot() == before


def test_patches_of_different_lines_keep_their_tables(desk) -> None:
    queue(desk, *CHAIN)
    path, other = toml_of(desk, "first"), toml_of(desk, "name")
    path.write_text(
        path.read_text().replace('guard = "none"', 'why = "One."\nlinks = ["https://a"]\nguard = "none"')
    )
    text = other.read_text().replace("[[edit]]", "# by hand\n[[edit]]").replace('"tool-name"', '"tool-limit"')
    text = text.replace('guard = "none"', 'why = "Two."\nlinks = ["https://a", "https://b"]\nguard = "none"')
    other.write_text(text.replace("authors = [", 'authors = ["Second <second@localhost>", '))
    mine = path.read_text()
    was = tree(desk)
    told = amended(desk, "fold", "first", "name")
    assert (told["how"], told["edits"], told["renamed"]) == (
        "joined",
        ["tool-limit", "tool-limit-2"],
        {"tool-limit": "tool-limit-2"},
    )
    assert tree(desk) == was
    assert [name[5:] for name in folders(desk)[2:]] == ["first", "second", "fast"]
    table = tables(desk, "first")
    assert table["why"] == "One.\n\nTwo.\n"
    assert table["links"] == ["https://a", "https://b"]
    assert table["authors"] == ["up <up@localhost>", "Second <second@localhost>"]
    edit = mine[mine.index("[[edit]]") :].rstrip()
    second = text[text.index("# by hand") :].replace('"tool-limit"', '"tool-limit-2"')
    assert path.read_text().endswith(f"{edit}\n\n{second}")


def test_patches_of_the_same_lines_become_one_and_the_tree_is_the_same(desk) -> None:
    third = ("third", TOOL, "wanted > 1024 ? 1024", "wanted > 2048 ? 2048")
    queue(desk, FIRST, SECOND, third, FAST)
    assert [each["patch"] for each in tables(desk, "third")["requires"]] == ["second"]
    was = tree(desk)
    told = amended(desk, "fold", "first", "second")
    assert (told["how"], told["edits"], told["requires"]) == ("lifted", ["tool-limit"], ["third"])
    assert [each["patch"] for each in tables(desk, "third")["requires"]] == ["first"]
    assert "1024" in tables(desk, "first")["edit"][0]["text"]
    assert tree(desk) == was
    # Into the later one of the two, which loses its requirement of the earlier one.
    assert amended(desk, "fold", "third", "first")["how"] == "lifted"
    assert "requires" not in tables(desk, "third")
    assert tree(desk) == was


def test_a_patch_that_needs_one_in_between_is_not_folded(desk) -> None:
    queue(desk, NAME, FIRST, SECOND)
    before = desk.snapshot()
    (error,) = errors(amended(desk, "fold", "name", "second", code=2))
    assert error["code"] == "AMEND_REFUSED"
    assert "'name' before 'first', which it requires" in error["message"]
    assert desk.snapshot() == before
    unrequired(desk, "second")
    before = desk.snapshot()
    (error,) = errors(amended(desk, "fold", "name", "second", code=2))
    assert error["message"] == "'second' cannot be placed right after 'name'"
    assert desk.snapshot() == before


def test_guarded_patches_are_folded_if_builds_and_defaults_are_the_same(desk) -> None:
    names = ("demo-launch-bounds", "demo-twin")
    (error,) = errors(amended(desk, "fold", *names, code=2))
    assert "different builds" in error["message"]
    path = toml_of(desk, names[0])
    path.write_text(path.read_text().replace("last = 9, ", ""))
    profile = desk.series / "arch_profiles" / "gfx1100.toml"
    text = profile.read_text()
    profile.write_text(text.replace('demo-twin = { default = "on"', 'demo-twin = { default = "off"'))
    (error,) = errors(amended(desk, "fold", *names, code=2))
    assert "gfx1100.toml has them on and off" in error["message"]
    profile.write_text(text)
    was = tree(desk, "gfx1151")
    told = amended(desk, "fold", *names)
    assert (told["how"], told["edits"]) == ("joined", ["bounds", "threads", "scale"])
    assert told["lost"] == ["without", "expected"]
    assert len(told["profiles"]) == 2
    assert tables(desk, names[0])["context"] == ["guard"]
    assert tree(desk, "gfx1151") == was
    assert desk.run("plan", "--arch", "gfx1100").returncode == 0


def test_a_dry_run_changes_nothing(shared_desk) -> None:
    before = shared_desk.snapshot()
    for words in (("drop", "demo-twin"), ("move", "demo-twin", "--before", "demo-launch-bounds")):
        assert amended(shared_desk, *words, "--dry-run")["written"] is False
    assert shared_desk.snapshot() == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("move", "demo-twin"), "USAGE_MISSING"),
        (("move", "demo-twin", "--before", "a", "--after", "b"), "USAGE_MISSING"),
        (("move", "demo-twin", "--before", "demo-twin"), "AMEND_REFUSED"),
        (("move", "demo-twin", "--before", "none-such"), "UNKNOWN_PATCH"),
        (("drop", "none-such"), "UNKNOWN_PATCH"),
        (("fold", "demo-twin", "demo-twin"), "AMEND_REFUSED"),
    ],
)
def test_what_makes_no_sense_is_refused(shared_desk, words: tuple[str, ...], code: str) -> None:
    assert amended(shared_desk, *words, code=2)["error"]["code"] == code


@pytest.mark.parametrize("words", [("fold", "first", "second"), ("move", "fast", "--before", "first")])
@pytest.mark.parametrize("point", ordinary(range(40), (3, 9)))
def test_killed_in_the_middle_the_series_is_the_old_or_the_new_one(desk, words, point: int) -> None:
    queue(desk, FIRST, SECOND, FAST)
    rehearsal = type(desk)(desk.root.parent / "rehearsal", desk.checkout)
    shutil.copytree(desk.root, rehearsal.root, symlinks=True)
    log = desk.root / "points"
    before = contents(desk)
    done = killed(rehearsal, -1, "series", *words, group=True, cache=rehearsal.cache, log=log)
    assert done.returncode == 0, done.stderr
    after = contents(rehearsal)
    killed(desk, int(log.read_text()) - 1 - point, "series", *words, group=True, cache=desk.cache)
    assert contents(desk) in (before, after)
    assert desk.run("list", "--arch", "plain").returncode == 0
    if contents(desk) == before:
        assert desk.run("series", *words).returncode == 0
    assert contents(desk) == after


def test_the_lock_is_part_of_the_exchange(desk) -> None:
    queue(desk, *CHAIN)
    documented(desk, "first", "second", "name", "fast")
    assert desk.run("lock", "--arch", "plain").returncode == 0
    told = amended(desk, "drop", "fast")
    assert told["lock_stale"] == ["b1 plain"]
    assert "fast" not in tomllib.loads(desk.lock.read_text())["result"][0]["patches"]
    assert desk.run("apply", "--arch", "plain").returncode == 2  # the lock has the old tree
    assert desk.run("lock", "--all").returncode == 0
    assert "fast" not in tomllib.loads(desk.lock.read_text())["result"][0]["patches"]


def test_a_bump_does_not_miss_patches_that_were_dropped_or_folded(desk) -> None:
    queue(desk, *CHAIN)
    assert desk.run("lock", "--arch", "plain").returncode == 0
    amended(desk, "drop", "fast")
    amended(desk, "fold", "first", "second")
    words = ("bump", "--to", "b2", "--arch", "plain", "--accept-not-run", "--json")
    done = desk.run(*words, "--upstream-url", str(desk.upstream))
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads(done.stdout)["candidates"]
    assert (made["lost"], made["applied"]) == ([], ["first", "name"])


def test_edits_become_a_patch_of_their_own_and_the_tree_is_the_same(desk) -> None:
    both = [("both", *each[1:]) for each in (FIRST, NAME, FAST)]
    queue(desk, *both, ("third", TOOL, "how much", "how many"))
    path = toml_of(desk, "both")
    path.write_text(path.read_text().replace("[[edit]]", "# by hand\n[[edit]]"))
    text = path.read_text()
    names = [edit["id"] for edit in tables(desk, "both")["edit"]]
    was = tree(desk)
    told = amended(desk, "split", "both", "name", "--edit", names[-1], "--title", "another name")
    assert (told["edits"], told["folder"]) == ([names[-1]], "0004-name")
    assert told["folders"] == {"0004-third": "0005-third"}
    assert [name[5:] for name in folders(desk)[2:]] == ["both", "name", "third"]
    assert tree(desk) == was
    kept, comment, edit = text.rpartition("# by hand\n")
    assert path.read_text() == f"{kept.rstrip()}\n"
    assert toml_of(desk, "name").read_text().endswith(f"\n\n{comment}{edit}")
    new = tables(desk, "name")
    assert (new["id"], new["title"], new["builds"]) == (
        "name",
        "another name",
        tables(desk, "both")["builds"],
    )
    assert amended(desk, "fold", "both", "name")["how"] == "joined"
    assert path.read_text() == text
    assert tree(desk) == was


def test_the_patches_after_a_split_require_the_part_that_they_need(desk) -> None:
    helper = "static int least() {\n    return 1;\n}\n\n"
    limit = "static int limit(int wanted) {\n"
    queue(
        desk,
        ("both", TOOL, f"// how much at most\n{limit}", f"{helper}// how much at most\n{limit}"),
        ("both", *NAME[1:]),
        ("user", TOOL, "    return wanted > 256", "    wanted += least();\n    return wanted > 256"),
        ("renamed", TOOL, "another", "yet another"),
        ("after", TOOL, "yet another", "the last"),
        ("apart", *FAST[1:]),
    )
    assert {name: required(desk, name) for name in ("user", "renamed", "after", "apart")} == {
        "user": ["both"],
        "renamed": ["both"],
        "after": ["renamed"],
        "apart": [],
    }
    was = tree(desk)
    (name,) = (each["id"] for each in tables(desk, "both")["edit"] if "another" in each["text"])
    told = amended(desk, "split", "both", "name", "--edit", name)
    assert told["requires"] == {"renamed": ["name"]}
    assert (required(desk, "user"), required(desk, "renamed")) == (["both"], ["name"])
    assert tree(desk) == was
    (least,) = (each["id"] for each in tables(desk, "both")["edit"])
    amended(desk, "fold", "both", "name")
    told = amended(desk, "split", "both", "helper", "--edit", least)
    assert told["requires"] == {"user": ["helper"]}
    assert (required(desk, "user"), required(desk, "renamed")) == (["helper"], ["both"])


def required(desk, name: str) -> list[str]:
    return [each["patch"] for each in tables(desk, name).get("requires", ())]


def test_a_guarded_patch_is_split_with_its_lines_in_the_profiles(desk) -> None:
    path = toml_of(desk, "demo-launch-bounds")
    path.write_text(path.read_text().replace("last = 9, ", ""))
    was = tree(desk, "gfx1151")
    amended(desk, "fold", "demo-launch-bounds", "demo-twin")
    told = amended(desk, "split", "demo-launch-bounds", "demo-scale", "--edit", "scale")
    assert told["profiles"] == ["arch_profiles/gfx1100.toml", "arch_profiles/gfx1151.toml"]
    assert tables(desk, "demo-launch-bounds")["context"] == ["guard"]
    assert "context" not in tables(desk, "demo-scale")
    assert tree(desk, "gfx1151") == was
    found = errors(amended(desk, "split", "demo-launch-bounds", "threads", "--edit", "threads", code=2))
    assert "pair 'threads' has no host side" in [each["message"] for each in found]


@pytest.mark.parametrize("words", [("--edit", "none-such"), ("--edit", "bounds", "--edit", "threads")])
def test_a_split_leaves_edits_in_both_patches(shared_desk, words: tuple[str, ...]) -> None:
    before = shared_desk.snapshot()
    document = amended(shared_desk, "split", "demo-launch-bounds", "new", *words, code=2)
    assert document["error"]["code"] == "AMEND_REFUSED"
    assert shared_desk.snapshot() == before
