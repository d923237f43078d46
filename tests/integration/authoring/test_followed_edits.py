"""Edits of whole lines whose neighbours upstream changed are followed by git's merge; the lock records it."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from command_line import run_patchkit
from demo_world import FOLDER, git

from patchkit.carry.series.lock import FollowedEdit, load_lock

TOOL = "common/tool.cpp"
BODY = """\
static int table(int wanted) {
    int sum = 0;
    sum += first(wanted);
    sum += second(wanted);
    switch (wanted) {
        case 1:
            return sum;
        case 2:
            return -sum;
    }
    return sum + limit(wanted);
}

"""


class Line:
    """A plain series of one patch on b1, and further builds of upstream."""

    def __init__(self, desk) -> None:
        self.desk, self.folder = desk, desk.root / "queue"
        desk.change(TOOL, "static std::string name() {", f"{BODY}static std::string name() {{")
        desk.add("list.txt", NAMES)
        desk.commit("the function")
        git(desk.clone, "push", "-q", "-f", str(desk.upstream), "HEAD:refs/heads/next", "HEAD:refs/tags/b3")
        git(desk.upstream, "checkout", "-q", "next")
        url = ("--upstream-url", str(desk.upstream))
        done = desk.run("init", str(self.folder), "--plain", "--upstream", "b3", *url)
        assert done.returncode == 0, done.stderr

    def patch(self, *changes: tuple[str, str], path: str = TOOL) -> None:
        """Import a queue of changes, each a patch: mine, mine-2."""
        start = git(self.desk.clone, "rev-parse", "HEAD")
        for number, (old, new) in enumerate(changes, 1):
            self.desk.change(path, old, new)
            self.desk.commit("mine" if number == 1 else f"mine {number}")
        git(self.desk.clone, "format-patch", "-q", "-o", str(self.desk.root / "patches"), start)
        self.run("import", str(self.desk.root / "patches"), code=0)

    def build(self, number: int, *changes: tuple[str, str], path: str = TOOL) -> None:
        """One more build of upstream."""
        upstream = self.desk.upstream
        file = upstream / path
        text = file.read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file.write_text(text)
        git(upstream, "commit", "-q", "-a", "-m", f"{number}", date=f"2025-01-1{number}T03:04:05+00:00")
        git(upstream, "tag", f"b{number}")

    def run(self, *args: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        words = [args[0], "--series-dir", str(self.folder), "--cache-dir", str(self.desk.cache), *args[1:]]
        done = run_patchkit(*words, cwd=self.desk.root)
        assert code in {None, done.returncode}, done.stdout + done.stderr
        return done

    def bump(self, build: int, code: int = 0) -> dict[str, Any]:
        words = ("bump", "--to", f"b{build}", "--no-verify", "--no-fetch", "--json")
        return json.loads(self.run(*words, "--upstream-url", str(self.desk.upstream), code=code).stdout)

    def onto(self, build: int, code: int = 0) -> dict[str, Any]:
        words = ("apply", "--onto", f"b{build}", "--branch", f"on-b{build}", "--json")
        return json.loads(self.run(*words, "--repo", str(self.desk.upstream), code=code).stdout)

    def text(self, document: dict[str, Any]) -> str:
        return git(self.desk.upstream, "show", f"{document['commits'][-1]['commit']}:{TOOL}") + "\n"

    @property
    def lock(self):
        return load_lock(self.folder / "patches/upstream.lock")


@pytest.fixture
def line(desk) -> Line:
    return Line(desk)


NAME = "static std::string name() {\n"
NAMES = "".join(f"name {letter}\n" for letter in "abcdefgh")
SWITCH = "    switch (wanted) {\n"
TWIN = f"""\
    switch (sum) {{
        case 1:
            return sum;
        case 2:
            break;
    }}
{SWITCH}"""
RETURN, MINE = "            return sum;\n", "            return sum + mine(wanted);\n"


def _only(document: dict[str, Any]) -> dict[str, Any]:
    (made,) = document["candidates"]
    (patch,) = made["patches"]
    return patch


def test_an_edit_whose_lines_occur_twice_now_is_where_git_merges_it(line: Line) -> None:
    line.patch((RETURN, MINE))
    line.build(4, (SWITCH, TWIN))
    document = line.onto(4)
    (verdict,) = document["classes"]
    assert (verdict["class"], [move["how"] for move in verdict["moves"]]) == ("moved", ["merged"])
    assert line.text(document).count("sum + mine(wanted)") == 1
    assert f"{SWITCH}        case 1:\n{MINE}" in line.text(document)


def test_the_lock_records_the_place_and_the_next_bump_starts_there(line: Line) -> None:
    line.patch(("name e\n", "name E\n"), path="list.txt")
    twin = "name c\nname d\nname e\nname f\nname g\n"
    line.build(4, (NAMES, f"{twin}{NAMES}"), path="list.txt")
    document = line.bump(4)
    assert _only(document)["class"] == "moved"
    (followed,) = line.lock.pin("b4").followed
    assert isinstance(followed, FollowedEdit)
    assert document["candidates"][0]["followed"][0]["at"] == str(followed.at)
    # patch.toml has the old place; with the lock's, apply gives the same commit, and only at that pin.
    again = json.loads(line.run("apply", "--upstream", "b4", "--json", code=0).stdout)
    assert again["commits"][-1]["commit"] == document["candidates"][0]["tip"]
    line.run("plan", "--upstream", "b3", code=0)
    line.build(5, ("name h\n", "name H\n"), path="list.txt")
    assert _only(line.bump(5))["class"] == "moved"
    # A place that was written since counts more than the recorded one.
    (path,) = (line.folder / "patches").glob("*-mine/patch.toml")
    path.write_text(path.read_text().replace('verb = "change_to"', 'verb = "insert_after"'))
    planned = json.loads(line.run("plan", "--upstream", "b5", "--json").stdout)
    assert str(followed.at) not in json.dumps(planned)


LIMIT = "    return wanted > 256 ? 256 : wanted;\n"


def succeed(line: Line, name: str, build: int, old: str, new: str) -> None:
    """Give an edit of the patch ``mine`` another text from a build on, as a user does by hand."""
    (path,) = (line.folder / "patches").glob("*-mine/patch.toml")
    head, *tables = re.split(r"(?m)^(?=\[\[edit\]\])", path.read_text())
    (table,) = (each for each in tables if f'id = "{name}"' in each)
    ended, begun = (
        re.sub(r"(?m)^verb", f"{limit}\nverb", table)
        for limit in (f"last_build = {build - 1}", f"first_build = {build}")
    )
    assert begun.count(old) == 1
    tables[tables.index(table)] = f"{ended.rstrip()}\n\n{begun.replace(old, new)}"
    path.write_text(head + "".join(tables))


def test_an_edit_for_the_new_build_counts_more_than_the_merge_of_the_old_one(line: Line) -> None:
    line.patch((LIMIT, LIMIT.replace("256", "512")))
    line.build(4, ("how much at most", "the limit"))
    succeed(line, "tool-limit", 4, "512 : wanted", "1024 : wanted")
    patch = _only(line.bump(4))
    assert (patch["class"], patch["agreement"]["verdict"]) == ("clean", "does not apply")
    assert "1024 : wanted" in placed(line, "b4")
    assert "512 : wanted" in placed(line, "b3")
    # From then on both derivations are compared again.
    line.build(5, ("the limit", "a limit"))
    assert _only(line.bump(5))["agreement"]["verdict"] == "agree"


def test_an_edit_for_the_new_build_does_not_keep_the_others_from_being_followed(line: Line) -> None:
    line.desk.change(TOOL, LIMIT, LIMIT.replace("256", "512"))
    line.patch((RETURN, MINE))
    line.build(4, (SWITCH, TWIN))
    succeed(line, "tool-limit", 4, "512 : wanted", "1024 : wanted")
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    patch = _only(json.loads(line.run(*words, "--upstream-url", str(line.desk.upstream), code=0).stdout))
    assert [(move["edit"], move["how"]) for move in patch["moves"]] == [("tool-table", "merged")]
    assert f"{SWITCH}        case 1:\n{MINE}" in placed(line, "b4")
    assert "1024 : wanted" in placed(line, "b4")


def test_a_place_that_git_finds_in_another_function_is_a_conflict(line: Line) -> None:
    line.patch((RETURN, MINE))
    other = "    return sum;\n}\n\nstatic int other(int wanted) {\n    int sum = 0;\n"
    line.build(4, (SWITCH, f"{other}{SWITCH}"))
    assert line.onto(4, code=3)["error"]["code"]


TWO = "        case 2:\n            return -sum;\n"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("        case 8:\n            return 8;\n", "        case 9:\n            return 9;\n"),
        ("        case 8: {\n            return 8;\n        }\n", "        case 9:\n            break;\n"),
    ],
)
def test_two_new_branches_of_a_switch_follow_each_other(line: Line, mine: str, theirs: str) -> None:
    line.patch((TWO, TWO + mine))
    line.build(4, (TWO, TWO + theirs))
    document = line.onto(4)
    assert "the lines of the patch are after them" in document["classes"][0]["moves"][0]["detail"]
    assert TWO + theirs + mine in line.text(document)


def test_a_label_of_another_switch_is_not_the_one_that_a_patch_adds(line: Line) -> None:
    mine = "        case 3:\n            return 3;\n"
    line.patch((TWO, TWO + mine))
    line.build(4, (SWITCH, f"    switch (sum) {{\n        case 3:\n            return 3;\n    }}\n{SWITCH}"))
    assert TWO + mine in line.text(line.onto(4))
    # A second label in the same switch does not compile.
    line.build(5, (TWO, f"        case 3:\n            return 4;\n{TWO}"))
    assert "EDIT_THERE_ALREADY" in json.dumps(line.onto(5, code=3))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("    sum += mine(wanted);\n", "    sum = theirs(sum);\n"),
        ("    sum += 1;\n", "    if (sum) {\n"),
    ],
)
def test_statements_whose_order_may_matter_stay_a_conflict(line: Line, mine: str, theirs: str) -> None:
    last = "    sum += second(wanted);\n"
    line.patch((last, last + mine))
    line.build(4, (last, last + theirs))
    assert line.onto(4, code=3)["error"]["code"]


def test_an_insertion_next_to_a_changed_line_stays_between_its_neighbours(line: Line) -> None:
    last = "    sum += second(wanted);\n"
    line.patch((last, f"{last}    sum += mine(wanted);\n"))
    changed = "    sum += second(wanted, sum);\n"
    line.build(4, (last, changed))
    document = line.onto(4)
    (verdict,) = document["classes"]
    assert (verdict["class"], verdict["moves"][0]["how"]) == ("moved", "merged")
    assert f"{changed}    sum += mine(wanted);\n{SWITCH}" in line.text(document)


def test_an_edit_of_empty_lines_is_no_conflict(line: Line) -> None:
    line.desk.change(TOOL, "return -sum;", "return -2*sum;")
    line.patch(("    sum += second(wanted);\n", "\n    sum += second(wanted);\n"))
    line.build(4, ("    sum += second(wanted);\n", "    sum += third(wanted);\n    sum += second(sum);\n"))
    document = line.onto(4)
    assert document["classes"][0]["class"] == "clean"
    assert "return -2*sum;" in line.text(document)
    assert "sum += third(wanted);\n    sum += second(sum);" in line.text(document)


def test_a_patch_that_cuts_what_an_earlier_one_adds_is_not_upstreamed(line: Line) -> None:
    last = "    sum += second(wanted);\n"
    traced = "    trace(sum, wanted);\n"
    line.patch((last, f"{last}{traced}    sum += 2;\n"), (traced, ""))
    line.build(4, ("    int sum = 0;\n", "    int sum = 1;\n"))
    document = line.onto(4)
    assert [each["class"] for each in document["classes"]] == ["clean", "clean"]
    assert "trace(" not in line.text(document)


def test_a_followed_edit_is_split_off_with_its_recorded_place(line: Line) -> None:
    line.patch((RETURN, MINE))
    name = "static std::string name() {\n"
    line.desk.change(TOOL, name, f"// named\n{name}")
    line.desk.commit("more")
    (line.desk.root / "more.patch").write_text(git(line.desk.clone, "format-patch", "--stdout", "-1") + "\n")
    line.run("import", str(line.desk.root / "more.patch"), code=0)
    line.run("series", "fold", "mine", "more", code=0)
    line.build(4, (SWITCH, TWIN))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    before = json.loads(line.run(*words, "--upstream-url", str(line.desk.upstream), code=0).stdout)
    (was,) = line.lock.pin("b4").followed
    assert (was.patch, was.edit) == ("mine", "tool-table")
    line.run("series", "split", "mine", "other", "--edit", "tool-table", code=0)
    (now,) = line.lock.pin("b4").followed
    assert (now.patch, now.edit, now.at) == ("other", "tool-table", was.at)
    document = json.loads(line.run("apply", "--upstream", "b4", "--unlocked", "--json", code=0).stdout)
    assert document["tree"] == before["candidates"][0]["tree"]


def moved(line: Line) -> None:
    """A patch that adds a label after the last one, and a build in which upstream adds one there as well."""
    line.patch((TWO, f"{TWO}        case 8:\n            return 8;\n"))
    line.build(4, (TWO, f"{TWO}        case 9:\n            return 9;\n"))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    line.run(*words, "--upstream-url", str(line.desk.upstream), code=0)
    assert [each.edit for each in line.lock.pin("b4").followed] == ["tool-table"]


def amended(line: Line, old: str, new: str) -> subprocess.CompletedProcess[str]:
    """Amend the last commit of the branch on b4, and absorb the branch."""
    clone = line.desk.clone
    document = json.loads(line.run("apply", "--upstream", "b4", "--unlocked", "--json", code=0).stdout)
    git(clone, "fetch", "-q", str(line.desk.upstream), "tag", "b4")
    git(clone, "fetch", "-q", str(line.desk.repository), f"{document['branch']}:refs/heads/absorbed")
    git(clone, "checkout", "-q", "-f", "absorbed")
    line.desk.change(TOOL, old, new)
    git(clone, "commit", "-q", "-a", "--amend", "--no-edit")
    return line.run("absorb", "--repo", str(clone), code=0)


def placed(line: Line, build: str) -> str:
    """The file with all patches on a build."""
    document = json.loads(line.run("apply", "--upstream", build, "--unlocked", "--json", code=0).stdout)
    return git(line.desk.repository, "show", f"{document['commits'][-1]['commit']}:{TOOL}") + "\n"


def test_a_moved_edit_with_a_new_text_keeps_its_places_on_all_builds(line: Line) -> None:
    moved(line)
    done = amended(line, "return 8;", "return 88;")
    assert "1 changed" in done.stdout
    assert f"{TWO}        case 8:\n            return 88;\n" in placed(line, "b3")
    assert "return 9;\n        case 8:\n            return 88;\n" in placed(line, "b4")


def test_a_moved_edit_with_a_new_place_keeps_its_old_version_for_earlier_builds(line: Line) -> None:
    moved(line)
    done = amended(line, "return 9;", "return 99;")
    assert "before b4, mine keeps the old version of tool-table" in done.stdout + done.stderr
    assert f"{TWO}        case 8:\n            return 8;\n" in placed(line, "b3")
    assert "return 99;\n        case 8:\n            return 8;\n" in placed(line, "b4")


def test_a_moved_edit_that_is_folded_takes_its_recorded_place_along(line: Line) -> None:
    line.patch(("    sum += first(wanted);\n", "    sum -= first(wanted);\n"), (RETURN, MINE))
    line.build(4, (SWITCH, TWIN))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    line.run(*words, "--upstream-url", str(line.desk.upstream), code=0)
    (was,) = line.lock.pin("b4").followed
    before = {build: placed(line, build) for build in ("b3", "b4")}
    line.run("series", "fold", "mine", "mine-2", code=0)
    (now,) = line.lock.pin("b4").followed
    assert (was.patch, now.patch, now.edit, now.at) == ("mine-2", "mine", "tool-table-2", was.at)
    assert {build: placed(line, build) for build in ("b3", "b4")} == before


def test_moved_edits_of_the_same_lines_are_not_folded(line: Line) -> None:
    line.patch((RETURN, MINE), (MINE, MINE.replace("mine(", "ours(")))
    line.build(4, (SWITCH, TWIN))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    line.run(*words, "--upstream-url", str(line.desk.upstream), code=0)
    error = json.loads(line.run("series", "fold", "mine", "mine-2", "--json", code=2).stdout)["error"]
    assert error["code"] == "AMEND_REFUSED"
    assert "has another place at b4" in error["why"]


def optional(line: Line) -> None:
    """A patch of two edits; that of list.txt is optional."""
    line.desk.change("list.txt", "name e\n", "name E\n")
    line.patch((RETURN, MINE))
    (path,) = (line.folder / "patches").glob("*-mine/patch.toml")
    text = path.read_text()
    named = 'file = "list.txt"\n'
    assert text.count(named) == 1
    path.write_text(text.replace(named, f"{named}optional = true\n"))


def names(line: Line, document: dict[str, Any]) -> str:
    return git(line.desk.upstream, "show", f"{document['commits'][-1]['commit']}:list.txt")


def test_an_optional_edit_is_skipped_only_where_it_does_not_fit(line: Line) -> None:
    optional(line)
    line.build(4, ("    int sum = 0;\n", "    int sum = 1;\n"))
    document = line.onto(4)
    assert (document["classes"][0]["class"], document["classes"][0]["skipped"]) == ("clean", [])
    assert "name E" in names(line, document)
    line.build(5, ("name e\n", "nothing\n"), path="list.txt")
    document = line.onto(5)
    (verdict,) = document["classes"]
    assert verdict["skipped"] == ["list-txt"]
    assert verdict["reason"].startswith("without 1 optional edit (list-txt)")
    assert "name E" not in names(line, document)
    assert MINE in line.text(document)


def test_an_optional_edit_is_followed_before_it_is_skipped(line: Line) -> None:
    optional(line)
    twin = "name c\nname d\nname e\nname f\nname g\n"
    line.build(4, (NAMES, f"{twin}{NAMES}"), path="list.txt")
    document = line.onto(4)
    (verdict,) = document["classes"]
    assert (verdict["skipped"], [move["how"] for move in verdict["moves"]]) == ([], ["merged"])
    assert names(line, document).endswith(NAMES.replace("name e", "name E").strip())


def test_an_optional_edit_of_a_file_that_is_gone_is_skipped(line: Line) -> None:
    optional(line)
    git(line.desk.upstream, "rm", "-q", "list.txt")
    line.build(4, ("    int sum = 0;\n", "    int sum = 1;\n"))
    document = line.onto(4)
    assert document["classes"][0]["skipped"] == ["list-txt"]
    assert MINE in line.text(document)


def test_an_optional_edit_can_be_excluded_by_hand(line: Line) -> None:
    optional(line)
    document = json.loads(line.run("apply", "--json", code=0).stdout)
    show = ["git", "--git-dir", str(line.desk.cache / "upstream.git"), "show"]

    def listed(document: dict[str, Any]) -> str:
        commit = document["commits"][-1]["commit"]
        return subprocess.run(
            [*show, f"{commit}:list.txt"], check=True, capture_output=True, text=True
        ).stdout

    assert "name E" in listed(document)
    document = json.loads(line.run("apply", "--without", "mine:list-txt", "--json", code=0).stdout)
    assert "name E" not in listed(document)
    assert "is not optional" in line.run("apply", "--without", "mine:tool-table", code=2).stderr
    assert "has no edit 'lst'" in line.run("apply", "--without", "mine:lst", code=2).stderr
    assert "cannot record" in line.run("bump", "--to", "b3", "--without", "mine:list-txt", code=2).stderr


def test_a_renamed_file_is_followed_and_recorded(line: Line) -> None:
    top = "static std::string name() {"
    line.patch((RETURN, MINE), (top, f"static int mine(int);\n\n{top}"))
    git(line.desk.upstream, "mv", TOOL, "common/limits.cpp")
    line.build(4, ("static int table(", "// The table.\nstatic int table("), path="common/limits.cpp")
    document = line.bump(4)
    (made,) = document["candidates"]
    for patch in made["patches"]:
        (move,) = patch["moves"]
        assert (patch["class"], move["how"]) == ("moved", "another file")
        assert patch["agreement"]["verdict"] == "agree"
    recorded = {(each.function, each.now_file) for each in line.lock.pin("b4").followed}
    assert recorded == {("tool::table", "common/limits.cpp"), (None, "common/limits.cpp")}
    again = json.loads(line.run("apply", "--upstream", "b4", "--json", code=0).stdout)
    assert again["commits"][-1]["commit"] == made["tip"]
    text = git(line.desk.repository, "show", f"{made['tip']}:common/limits.cpp")
    assert MINE in text
    assert f"static int mine(int);\n\n{top}" in text


def test_a_renamed_file_is_followed_from_build_to_build(line: Line) -> None:
    top = "static std::string name() {"
    line.patch((RETURN, MINE), (top, f"static int mine(int);\n\n{top}"))
    git(line.desk.upstream, "mv", TOOL, "common/limits.cpp")
    line.build(4, ("static int table(", "// The table.\nstatic int table("), path="common/limits.cpp")
    line.bump(4)
    line.build(5, ("// The table.\n", "// A table.\n"), path="common/limits.cpp")
    line.bump(5)
    git(line.desk.upstream, "mv", "common/limits.cpp", "common/table.cpp")
    line.build(6, ("// A table.\n", "// Tables.\n"), path="common/table.cpp")
    (made,) = line.bump(6)["candidates"]
    assert MINE in git(line.desk.repository, "show", f"{made['tip']}:common/table.cpp")
    recorded = {(each.function, each.now_file) for each in line.lock.pin("b6").followed}
    assert recorded == {("tool::table", "common/table.cpp"), (None, "common/table.cpp")}


def test_a_conflict_in_a_file_that_was_followed_is_resolved(line: Line) -> None:
    line.patch((RETURN, MINE), ("    int sum = 0;\n", "    int sum = 2;\n"))
    git(line.desk.upstream, "mv", TOOL, "common/limits.cpp")
    line.build(4, ("static int table(", "// The table.\nstatic int table("), path="common/limits.cpp")
    line.bump(4)
    line.build(5, ("    int sum = 0;\n", "    int sum = 1;\n"), path="common/limits.cpp")
    line.bump(5, code=3)
    url = ("--upstream-url", str(line.desk.upstream))
    line.run("resolve", "mine-2", "--to", "b5", *url, "--into", str(line.desk.root / "open"), code=3)
    (file,) = (line.desk.root / "open").rglob("limits.cpp")
    assert "int sum = 1;" in file.read_text()


def test_a_file_that_two_new_ones_resemble_is_not_followed(line: Line) -> None:
    line.patch((RETURN, MINE))
    upstream = line.desk.upstream
    (upstream / "common/other.cpp").write_text((upstream / TOOL).read_text())
    git(upstream, "mv", TOOL, "common/limits.cpp")
    git(upstream, "add", "-A")
    line.build(4, ("    int sum = 0;\n", "    int sum = 1;\n"), path="common/limits.cpp")
    assert line.onto(4, code=3)["error"]["code"]


def test_a_function_that_moved_whole_is_followed_to_a_file_that_no_patch_names(line: Line) -> None:
    line.patch((RETURN, MINE))
    (line.desk.upstream / "common/table.cpp").write_text(f'#include "tool.h"\n\n{BODY}')
    git(line.desk.upstream, "add", "-A")
    line.build(4, (BODY, ""))
    document = line.onto(4)
    move = document["classes"][0]["moves"][0]
    assert move["how"] == "another file"
    assert move["after"].startswith("common/table.cpp:")
    tip = document["commits"][-1]["commit"]
    assert MINE in git(line.desk.upstream, "show", f"{tip}:common/table.cpp")


def test_a_line_that_moved_into_another_function_is_named_only(line: Line) -> None:
    """The same text in another function need not mean the same."""
    line.patch(("    sum += second(wanted);\n", "    sum += second(wanted + 1);\n"))
    (line.desk.upstream / "common/table.cpp").write_text(
        "int more(int sum) {\n    sum += second(wanted);\n}\n"
    )
    git(line.desk.upstream, "add", "-A")
    line.build(4, ("    sum += second(wanted);\n", ""))
    assert "common/table.cpp" in json.dumps(line.onto(4, code=3))


def in_conflict_without_limit(line: Line) -> None:
    """A patch that calls ``limit``, and a build that renames it and changes another line of the patch."""
    other = '    return "\\\\a@{b}";\n'
    line.desk.change(TOOL, other, '    return "mine";\n')
    line.patch((RETURN, "            return sum + limit(3);\n"))
    choice = line.desk.upstream / FOLDER / "choice.cu"
    choice.write_text(choice.read_text().replace("limit", "bound"))
    renamed = (("int limit(", "int bound("), ("sum + limit(", "sum + bound("))
    line.build(4, *renamed, (other, '    return "theirs";\n'))


def test_a_name_that_upstream_removed_is_in_no_draft(line: Line) -> None:
    in_conflict_without_limit(line)
    line.run("resolve", "mine", "--to", "b4", "--upstream-url", str(line.desk.upstream), code=3)
    (draft,) = line.desk.root.glob("**/*.conflict/*.edits.toml")
    assert (
        "# No draft is available: the patch calls limit, which upstream no longer declares"
        in draft.read_text()
    )
    assert draft.read_text().count("limit(3)") == 1  # that of the present edits


def test_a_name_that_the_new_edits_no_longer_use_is_not_reported(line: Line) -> None:
    in_conflict_without_limit(line)
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    url = ("--upstream-url", str(line.desk.upstream))

    def names() -> list[str]:
        verdict = _only(json.loads(line.run(*words, *url, code=3).stdout))
        assert verdict["class"] == "conflict"
        return [each["name"] for each in verdict["changed_declarations"]]

    assert names() == ["limit"]
    (file,) = line.folder.glob("patches/*mine/patch.toml")
    head, *edits = file.read_text().split("[[edit]]\n")
    (place,) = [at for at, edit in enumerate(edits) if "limit(3)" in edit]
    new = edits[place].replace("limit(3)", "bound(3)").replace("\nfile", "\nfirst_build = 4\nfile", 1)
    edits[place] = edits[place].replace("\nfile", "\nlast_build = 3\nfile", 1)
    file.write_text("[[edit]]\n".join([head, *edits[: place + 1], new, *edits[place + 1 :]]))
    assert names() == []


def test_a_placed_patch_that_uses_a_removed_name_stops_the_bump(line: Line) -> None:
    line.patch((RETURN, "            return sum + limit(3);\n"))
    choice = line.desk.upstream / FOLDER / "choice.cu"
    choice.write_text(choice.read_text().replace("limit", "bound"))
    line.build(4, ("int limit(", "int bound("), ("sum + limit(", "sum + bound("))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch")
    url = ("--upstream-url", str(line.desk.upstream))
    shown = line.run(*words, *url, code=3).stdout
    assert "  will not compile:\n    mine: calls limit, which upstream no longer declares (used at" in shown
    assert "b4" not in [pin.name for pin in line.lock.pins]
    accepted = line.run(*words, *url, "--accept-missing", "limit", code=0).stdout
    assert "next: commit " in accepted
    assert "patchkit apply" not in accepted  # the bump has made the branch
    assert "b4" in [pin.name for pin in line.lock.pins]


def test_only_lines_that_are_not_trivial_show_that_upstream_has_the_change(line: Line) -> None:
    trivial = "            // the sum of all\n            struct tensor_t * cur;\n"
    mine = "            cur = scaled(sum, wanted);\n"
    line.patch((RETURN, f"{trivial}{mine}            return wanted;\n"))
    line.build(4, (RETURN, "            return 7;\n"), ("sum += first(wanted)", "sum += last(sum)"))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    url = ("--upstream-url", str(line.desk.upstream))
    choice = f"{FOLDER}/choice.cu"

    def reason(build: int, text: str) -> str:
        old = "    const int limit = 256;\n"
        line.build(build, (old, f"{text}{old}"), path=choice)
        verdict = _only(json.loads(line.run(*words[:2], f"b{build}", *words[3:], *url, code=3).stdout))
        return str(verdict["reason"])

    assert "may have the change" not in reason(5, trivial)
    assert f"may have the change already: {choice}:" in reason(6, mine)


def test_a_macro_that_upstream_defines_as_well_is_reported(line: Line) -> None:
    line.patch((NAME, f'#define TITLE "mine"\n\n{NAME}'))
    line.build(4, ("#include <string>\n", '#include <string>\n#define TITLE "theirs"\n'))
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    verdict = _only(json.loads(line.run(*words, "--upstream-url", str(line.desk.upstream), code=0).stdout))
    (found,) = verdict["changed_declarations"]
    assert (found["name"], found["how"]) == ("TITLE", "which upstream defines now, too")
    assert (found["before"], found["after"]) == ('#define TITLE "mine"', '#define TITLE "theirs"')


def test_a_new_caller_of_a_function_whose_parameters_the_patch_changes_is_reported(line: Line) -> None:
    line.desk.change(TOOL, "sum + limit(wanted)", "sum + limit(wanted, 0)")
    line.patch(("int limit(int wanted)", "int limit(int wanted, int least)"))
    line.build(
        4,
        ("bool demo_should_use(", "int limited(int n) { return limit(n); }\n\nbool demo_should_use("),
        path=f"{FOLDER}/choice.cu",
    )
    words = ("bump", "--to", "b4", "--accept-not-run", "--no-fetch", "--json")
    verdict = _only(json.loads(line.run(*words, "--upstream-url", str(line.desk.upstream), code=0).stdout))
    assert verdict["changed_declarations"] == []  # the file had the name before
    more = line.desk.upstream / "common/more.cpp"
    more.write_text("int limited(int n) {\n    return limit(n);\n}\n")
    git(line.desk.upstream, "add", "-A")
    line.build(5, ("// how much at most", "// at most"))
    words = ("bump", "--to", "b5", *words[3:])
    verdict = _only(json.loads(line.run(*words, "--upstream-url", str(line.desk.upstream), code=0).stdout))
    (found,) = verdict["changed_declarations"]
    assert (found["name"], found["how"]) == ("limit", "which upstream calls in a further file now")
    assert found["declared"] == "common/more.cpp:2"
