"""A queue whose patches stand on one another is carried to a build that does not take all of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit
from demo_world import FOLDER, git

PATH = f"{FOLDER}/choice.cu"
TOOL = "common/tool.cpp"
LINE = "    return ne11 <= limit;\n"
MORE = 'why = "w"\nlinks = ["l"]\nwithout = "x"\nexpected = { effect = "e", source = "s" }\n'
MADE = "static int reported(int wanted) {\n    return limit(wanted);\n}\n\n"


class Carried:
    """A plain series of three patches: the last requires both others, and edits what the second makes."""

    def __init__(self, desk) -> None:
        self.desk, self.folder = desk, desk.root / "queue"
        done = desk.run("init", str(self.folder), "--plain", "--upstream", "b1")
        assert done.returncode == 0, done.stderr
        start = git(desk.clone, "rev-parse", "HEAD")
        desk.change(PATH, LINE, LINE.replace("limit", "2*limit"))
        desk.commit("hint")
        desk.change(TOOL, "static std::string name() {", f"{MADE}static std::string name() {{")
        desk.commit("report")
        desk.change(PATH, "2*limit", "3*limit")
        desk.change(TOOL, "return limit(wanted);", "return limit(wanted + 1);")
        desk.commit("alloc")
        git(desk.clone, "format-patch", "-q", "-o", str(desk.root / "patches"), start)
        self.imported = self.run("import", str(desk.root / "patches"), code=0)

    def run(
        self, *args: str, code: int | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = [args[0], "--series-dir", str(self.folder), "--cache-dir", str(self.desk.cache), *args[1:]]
        done = run_patchkit(*words, cwd=cwd or self.desk.root)
        assert code in {None, done.returncode}, done.stdout + done.stderr
        return done

    def bump(self, build: int, *more: str, code: int) -> dict[str, Any]:
        words = ("bump", "--to", f"b{build}", "--no-verify", "--no-fetch", "--json", *more)
        return json.loads(self.run(*words, "--upstream-url", str(self.desk.upstream), code=code).stdout)

    def build(self, number: int, path: str, old: str, new: str) -> None:
        """One more build of upstream."""
        upstream = self.desk.upstream
        git(upstream, "checkout", "-q", "master")
        text = (upstream / path).read_text()
        assert text.count(old) == 1
        (upstream / path).write_text(text.replace(old, new))
        git(upstream, "commit", "-q", "-a", "-m", f"{number}", date=f"2025-01-1{number}T03:04:05+00:00")
        git(upstream, "tag", f"b{number}")


@pytest.fixture
def carried(desk) -> Carried:
    return Carried(desk)


def test_import_tells_commands_that_work_and_what_recording_asks_for(carried: Carried) -> None:
    told = carried.imported.stdout.splitlines()
    at = next(number for number, line in enumerate(told) if line.startswith("next:  "))
    for line in told[at : at + 3]:
        carried.run(*line.removeprefix("next:").partition("#")[0].split()[1:], code=0)
    (last,) = told[at + 3 :]
    assert last.strip() == "add why, links, without, expected to 3 patch.toml before verify --publish"
    assert "before verify --publish, add why, links" in carried.run("lock", code=0).stderr
    for path in (carried.folder / "patches").glob("*/patch.toml"):
        path.write_text(MORE + path.read_text())
    assert "publish" not in carried.run("lock", code=0).stderr


def test_a_plan_shows_a_build_that_a_blocked_bump_did_not_add(carried: Carried) -> None:
    carried.bump(2, code=0)
    carried.build(3, PATH, "ne11 <= limit;", "ne11 < limit;")
    carried.bump(3, code=3)
    lock = (carried.folder / "patches/upstream.lock").read_bytes()
    url = ("--upstream-url", str(carried.desk.upstream))
    document = json.loads(carried.run("plan", "--upstream", "b3", *url, "--json", code=3).stdout)
    assert document["pin"]["build"] == 3
    assert [each["state"] for each in document["patches"]] == ["failed", "apply", "failed"]
    assert (carried.folder / "patches/upstream.lock").read_bytes() == lock
    unknown = json.loads(carried.run("plan", "--upstream", "b77", *url, "--json", code=2).stdout)["error"]
    assert (unknown["code"], "'b77' is not a known build" in unknown["why"]) == ("PIN_UNKNOWN", True)


def test_status_calls_no_patch_retired_whose_ground_another_one_makes(carried: Carried) -> None:
    carried.bump(2, code=0)
    first, second = (carried.folder / "patches").glob("*-hint"), (carried.folder / "patches").glob("*-alloc")
    path = next(first) / "patch.toml"
    edit = f'id = "once"\nlast_build = 1\nfile = "{PATH}"\nfunction = "demo_once"\n'
    path.write_text(
        f'{path.read_text()}\n[[edit]]\n{edit}at = {{ lines = "    return;" }}\nverb = "remove"\n'
    )
    document = json.loads(carried.run("status", "--json", code=0).stdout)
    assert {each["id"]: each["warnings"] for each in document["queue"]["patches"]} == {
        "hint": [],
        "report": [],
        "alloc": [],
    }
    # What no patch makes is gone.
    path = next(second) / "patch.toml"
    path.write_text(path.read_text().replace('"demo_should_use"', '"demo_gone"'))
    document = json.loads(carried.run("status", "--json", code=0).stdout)
    assert "b2 no longer has function demo_gone in" in document["queue"]["patches"][2]["warnings"][0]


def _patches(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (made,) = document["candidates"]
    return {each["id"]: each for each in made["patches"]}


def test_what_requires_a_patch_in_conflict_is_told_with_the_patch_that_comes_first(carried: Carried) -> None:
    carried.bump(2, code=0)
    carried.build(3, PATH, "ne11 <= limit;", "ne11 < limit;")
    document = carried.bump(3, code=3)
    found = _patches(document)
    assert {name: each["class"] for name, each in found.items()} == {
        "hint": "conflict",
        "report": "clean",
        "alloc": "conflict",
    }
    assert found["alloc"]["reason"].startswith("requires 'hint', which is in conflict; ")
    assert found["alloc"]["next_step"] == "patchkit resolve hint --to b3: this patch must be resolved first"
    assert found["alloc"]["gone"] == []  # upstream never had what the second patch makes
    assert Path(document["report"]).is_file()
    url = ("--upstream-url", str(carried.desk.upstream))
    refused = json.loads(carried.run("resolve", "alloc", "--to", "b3", *url, "--json", code=3).stdout)
    assert refused["error"]["code"] == "RESOLVE_EARLIER_FIRST"
    dropped = carried.bump(3, "--drop-conflicts", code=9)
    assert [each["patch"] for each in dropped["candidates"][0]["dropped"]] == ["hint", "alloc"]


def test_a_patch_that_needed_one_in_conflict_is_reported_although_it_does_not_name_it(
    carried: Carried,
) -> None:
    (path,) = (carried.folder / "patches").glob("*-alloc/patch.toml")
    whole = path.read_text()
    start, end = whole.index("[[requires]]"), whole.index("[[edit]]")
    path.write_text(whole[:start] + whole[end:])
    carried.bump(2, code=0)
    carried.build(3, PATH, "ne11 <= limit;", "ne11 < limit;")
    found = _patches(carried.bump(3, code=3))
    # 'alloc' changes a line of 'hint', which is in conflict, and one of 'report', which is not.
    assert found["alloc"]["reason"].startswith(
        "requires 'hint', which is in conflict (not named in patch.toml: "
    )
    assert "report" not in found["alloc"]["reason"]
    assert found["alloc"]["next_step"] == "patchkit resolve hint --to b3: this patch must be resolved first"


RETURN = "    return wanted > 256 ? 256 : wanted;\n"
LARGER = RETURN.replace("256", "512")
CLAMP = "    if (wanted < 0 && wanted > -8) {\n        wanted = 0;\n    }\n"
HEAD = "static int limit(int wanted) {\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "has"),
    [
        (f"    // never more\n{LARGER}", f"#ifndef SMALL\n{LARGER}#endif\n", True),
        (f"{CLAMP}{RETURN}", (HEAD + CLAMP + RETURN).replace("wanted", "asked"), True),
        (f"    // never more\n{LARGER}", RETURN.replace("256", "300"), False),
    ],
    ids=["comment and #if", "other names", "something else"],
)
def test_a_conflict_names_where_upstream_has_the_code_of_the_patch(desk, ours, theirs, has) -> None:
    desk.change(TOOL, RETURN, ours)
    done = desk.run("import", str(desk.diff()), "--guard", "none", "--upstream", "b1", "--id", "mine")
    assert done.returncode == 0, done.stderr
    old = HEAD + RETURN if theirs.startswith("static") else RETURN
    text = (desk.upstream / TOOL).read_text()
    assert text.count(old) == 1
    (desk.upstream / TOOL).write_text(text.replace(old, theirs))
    git(desk.upstream, "commit", "-q", "-a", "-m", "3", date="2025-01-13T03:04:05+00:00")
    git(desk.upstream, "tag", "b3")
    words = ("--to", "b3", "--no-verify", "--no-fetch", "--arch", "plain")
    done = desk.run("bump", *words, "--upstream-url", str(desk.upstream), "--json")
    assert done.returncode == 3, done.stderr
    (found,) = (each for each in json.loads(done.stdout)["candidates"][0]["patches"] if each["id"] == "mine")
    assert found["class"] == "conflict"
    assert found["reason"].startswith("upstream has it, except for comments, #if lines or names: ") is has
    assert found["next_step"].startswith("compare both; if upstream's code is enough") is has


def test_a_call_whose_declaration_changed_is_reported(carried: Carried) -> None:
    carried.bump(2, code=0)
    carried.build(3, TOOL, "static int limit(int wanted) {", "static int limit(long wanted, int most = 0) {")
    document = carried.bump(3, code=2)
    assert document["error"]["code"] == "BUMP_GATES_NEEDED"
    patches = {each["id"]: each for each in document["candidates"][0]["patches"]}
    (changed,) = patches["report"]["changed_declarations"]
    assert (changed["kind"], changed["name"], changed["how"]) == (
        "function",
        "limit",
        "whose parameters changed",
    )
    assert changed["used"].startswith(f"{TOOL}:")
    assert patches["report"]["reason"].endswith("declared differently upstream: limit")
    assert patches["hint"]["changed_declarations"] == []
    words = ("bump", "--to", "b3", "--no-verify", "--no-fetch", "--upstream-url", str(carried.desk.upstream))
    told = carried.run(*words, code=2).stdout
    assert f"calls limit, whose parameters changed ({TOOL}:" in told
    assert f"({changed['declared']})" in told
