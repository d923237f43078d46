"""``patchkit new``: one change in one command, and what an hour of mistakes is told."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from demo_world import FOLDER

CHOICE = f"{FOLDER}/choice.cu"
DEMO = f"{FOLDER}/demo.cu"
PLACE = ("--file", CHOICE, "--function", "demo_should_use")


def written(desk, topic: str, *args: str) -> dict[str, Any]:
    done = desk.run("new", topic, *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_command_makes_a_patch_that_plan_accepts(desk) -> None:
    done = written(
        desk, "more-columns", "--arch", "gfx1151", *PLACE,
        "--at", "cc > 7 ? 128 : 256", "--change-to", "cc > 7 ? 128 : 1024",
    )  # fmt: skip
    assert done["same_as_diff"].startswith("token for token, for gfx1151")
    planned = desk.run("plan", "--arch", "gfx1151", "--with", "more-columns", "--json")
    assert planned.returncode == 0, planned.stderr
    states = {each["id"]: each["state"] for each in json.loads(planned.stdout)["patches"]}
    assert states["more-columns"] == "apply"
    text = (desk.series / "patches/0003-more-columns/patch.toml").read_text()
    assert set(tomllib.loads(text)) == {"id", "title", "context", "builds", "guard", "edit"}
    assert "? 1024 : 256)" in desk.shown("more-columns", CHOICE).decode()


def test_a_series_needs_no_templates_of_its_own(desk) -> None:
    (desk.series / "templates").rmdir()
    written(desk, "mine", "--guard", "none", *PLACE, "--at", "limit = 256", "--change-to", "limit = 512")
    assert "limit = 512" in desk.shown("mine", CHOICE).decode()


@pytest.mark.parametrize(
    ("args", "path", "expected"),
    [
        ((*PLACE, "--at", "return ne11 <= limit;", "--insert-before", "log_it(ne11);"), CHOICE,
         "    }\n    log_it(ne11);\n    return ne11 <= limit;\n"),
        ((*PLACE, "--at", "const int limit = 256;", "--insert-after", "log_it(ne11);"), CHOICE,
         "    const int limit = 256;\n    log_it(ne11);\n"),
        (("--file", CHOICE, "--at", "|| false", "--remove"), CHOICE, None),
        (("--file", DEMO, "--function", "twin_b", "--at", "x * scale", "--change-to", "x + scale"), DEMO,
         "    return x + scale;\n}\n\ntemplate"),
        (("--file", "CMakeLists.txt", "--at", "project(demo)", "--change-to", "project(demo C)"),
         "CMakeLists.txt", "\nproject(demo C)\n"),
        (("--file", DEMO, "--at", "template<int ncols>", "--insert-before", "static int one() { return 1; }"),
         DEMO, "static int one() { return 1; }\ntemplate<int ncols>\n"),
    ],
)  # fmt: skip
def test_each_verb_for_every_build(desk, args: tuple[str, ...], path: str, expected: str | None) -> None:
    done = desk.run("new", "mine", "--guard", "none", *args)
    if expected is None:
        assert done.returncode == 3
        assert "ANCHOR_NOT_FOUND" in done.stderr
        assert not (desk.series / "patches/0003-mine").exists()
        return
    assert done.returncode == 0, done.stderr
    assert expected in desk.shown("mine", path).decode()


@pytest.mark.parametrize(
    ("args", "code", "pasted"),
    [
        (("--file", "choice.cu", "--at", "x", "--remove"), "NEW_FILE_UNKNOWN", f"--file {CHOICE}"),
        (("--file", CHOICE, "--function", "demo_shuold_use", "--at", "x", "--remove"), "ENTITY_NOT_FOUND",
         "demo_should_use"),
        ((*PLACE, "--at", "ne11 <=", "--change-to", "ne11 <"), "ANCHOR_AMBIGUOUS",
         'at = { tokens = "return ne11 <= 128" }  # line 8'),
        ((*PLACE, "--at", "ne11 <= limit", "--change-to", "ne11 <= limit"), "IMPORT_NOTHING", "--at"),
        ((*PLACE, "--at", "ne11 <= limit"), "USAGE_MISSING", "--change-to TEXT"),
        ((*PLACE, "--at", "const int limit = 256;", "--insert-after", "int a = 1;"), "IMPORT_NOT_LIFTED",
         "write it as an expression"),
        ((*PLACE, "--at", "ne11 <= limit", "--change-to", "ne11 <= (limit"), "PLAIN_UNBALANCED", "'('"),
    ],
)  # fmt: skip
def test_each_mistake_has_a_line_to_paste_and_nothing_is_written(
    desk, args: tuple[str, ...], code: str, pasted: str
) -> None:
    before = desk.snapshot()
    done = desk.run("new", "mine", "--arch", "none" if code == "PLAIN_UNBALANCED" else "gfx1151", *args)
    assert done.returncode in (2, 3)
    assert f"error[{code}]" in done.stderr
    assert pasted in done.stderr
    assert desk.snapshot() == before


def test_a_patch_written_by_hand_is_told_what_it_lacks(desk) -> None:
    written(desk, "mine", "--arch", "gfx1151", *PLACE, "--at", "ne11 <= limit", "--change-to", "ne11 < limit")
    path = desk.series / "patches/0003-mine/patch.toml"
    whole = path.read_text()
    for table, pasted in (
        ('[guard]\nmacros = ["GGML_USE_HIP"]\n', 'guard = { macros = ["GGML_USE_HIP"] }'),
        (whole[whole.index("[builds]") : whole.index("[guard]")], "builds = { first ="),
        ('side = "host"\n', 'add side = "device" or'),
        ('context = ["guard"]\n', "set context = ['guard']"),
    ):
        assert table in whole
        path.write_text(whole.replace(table, ""))
        done = desk.run("plan", "--arch", "gfx1151", "--with", "mine")
        assert done.returncode in (2, 4), done.stderr
        assert pasted in done.stderr
    path.write_text(whole)
    profile = desk.series / "arch_profiles/gfx1151.toml"
    kept = [line for line in profile.read_text().splitlines() if not line.startswith("mine =")]
    profile.write_text("\n".join(kept) + "\n")
    done = desk.run("plan", "--arch", "gfx1151", "--with", "mine")
    assert 'mine = { default = "opt-in", why = "...", source = "..." }' in done.stderr
