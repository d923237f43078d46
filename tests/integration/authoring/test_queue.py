"""``patchkit import QUEUE``: a patch per patch file, mail or commit, in order, or why not."""

from __future__ import annotations

import base64
import json
import quopri
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from demo_world import FOLDER, git, pin_text

TOOL, CMAKE, CHOICE, DEMO = "common/tool.cpp", "CMakeLists.txt", f"{FOLDER}/choice.cu", f"{FOLDER}/demo.cu"


def queued(desk, *args: str, code: int = 0) -> dict[str, Any]:
    done = desk.run("import", *args, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def rows(told: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["state"] for each in told["queue"]}


def ids(told: dict[str, Any]) -> list[str]:
    return [name for each in told["queue"] for name in each["patches"]]


def errors(told: dict[str, Any]) -> list[str]:
    return [error["code"] for each in told["queue"] for error in each["errors"]]


def manifest(desk, name: str) -> dict[str, Any]:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return tomllib.loads((folder / "patch.toml").read_text())


def three(desk) -> None:
    """Three commits on b1: the second changes what the first wrote, the third neither."""
    desk.change(TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
    desk.commit("tool: a larger limit\n\nBecause.\n")
    desk.change(TOOL, "wanted > 512 ? 512", "wanted > 1024 ? 1024")
    desk.commit("tool: a still larger limit")
    desk.change(CMAKE, "OFF)", "ON)")
    desk.commit("cmake: fast")


def written(desk, folder: str = "queue") -> Path:
    """The commits on b1 as patch files; the clone is at b1 again."""
    path = desk.root / folder
    git(desk.clone, "format-patch", "-q", "b1", "-o", str(path))
    git(desk.clone, "reset", "-q", "--hard", "b1")
    return path


def candidate(desk, path: str, *ids: str) -> bytes:
    """A file of the candidate that has these patches."""
    only = [word for name in ids for word in ("--only", name)]
    done = desk.run("apply", "--arch", "gfx1151", *only, "--unlocked")
    assert done.returncode == 0, done.stderr
    where = f"candidate/gfx1151/b1:{path}"
    show = ["git", "--git-dir", str(desk.repository), "show", where]
    return subprocess.run(show, check=True, capture_output=True).stdout


def test_a_folder_becomes_a_patch_per_file_that_git_would_make_the_same_of(desk) -> None:
    three(desk)
    wanted = {path: (desk.clone / path).read_bytes() for path in (TOOL, CMAKE)}
    told = queued(desk, str(written(desk)), "--guard", "none")
    assert set(rows(told).values()) == {"lifted", "text"}  # CMakeLists.txt has no tokens
    assert ids(told) == ["tool-a-larger-limit", "tool-a-still-larger-limit", "cmake-fast"]
    assert told["base"] == "b1"
    folders = sorted(path.name for path in (desk.series / "patches").glob("*-*"))
    assert folders[2:] == ["0003-tool-a-larger-limit", "0004-tool-a-still-larger-limit", "0005-cmake-fast"]
    first = manifest(desk, "tool-a-larger-limit")
    assert (first["title"], first["why"], first["authors"]) == (
        "tool: a larger limit",
        "Because.",
        ["up <up@localhost>"],
    )
    assert all(candidate(desk, path, *ids(told)) == data for path, data in wanted.items())


def test_a_patch_requires_those_whose_lines_it_changes_and_no_others(desk) -> None:
    three(desk)
    queued(desk, str(written(desk)), "--guard", "none")
    (needed,) = manifest(desk, "tool-a-still-larger-limit")["requires"]
    assert needed["patch"] == "tool-a-larger-limit"
    assert TOOL in needed["why"]
    assert "requires" not in manifest(desk, "cmake-fast")
    assert "requires" not in manifest(desk, "tool-a-larger-limit")
    # And it is so: without the one it has no place, without the other it has.
    path = desk.series / "patches" / "0004-tool-a-still-larger-limit" / "patch.toml"
    whole = path.read_text()
    path.write_text(
        whole.replace('[[requires]]\npatch = "tool-a-larger-limit"\n', '[[requires]]\npatch = "demo-twin"\n')
    )
    alone = desk.run(
        "plan", "--arch", "gfx1151", "--only", "tool-a-still-larger-limit", "--only", "demo-twin"
    )
    assert alone.returncode == 3
    path.write_text(whole)
    both = ("tool-a-larger-limit", "tool-a-still-larger-limit")
    assert b"1024" in candidate(desk, TOOL, *both)


def test_of_a_chain_of_patches_each_requires_the_one_below_alone(desk) -> None:
    for low, high in ((256, 512), (512, 1024), (1024, 2048)):
        desk.change(TOOL, f"wanted > {low} ? {low}", f"wanted > {high} ? {high}")
        desk.commit(f"limit {high}")
    queued(desk, str(written(desk)), "--guard", "none")
    assert [each["patch"] for each in manifest(desk, "limit-2048")["requires"]] == ["limit-1024"]


def test_lines_of_context_are_no_dependency(desk) -> None:
    desk.change(TOOL, "// how much at most", "// how much, at most")
    desk.commit("comment")
    desk.change(TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
    desk.commit("limit")
    told = queued(desk, str(written(desk)), "--guard", "none")
    assert [each["requires"] for each in told["queue"]] == [{}, {}]
    assert b"512" in candidate(desk, TOOL, "limit")


def test_who_uses_a_name_requires_the_patch_that_declares_it(desk) -> None:
    desk.change("include/llama.h", "#pragma once\n", "#pragma once\n#define TOOL_MARGIN 3\n")
    desk.commit("macro")
    desk.change(
        TOOL,
        "static std::string name()",
        "static int margin() {\n    return 1;\n}\n\nstatic std::string name()",
    )
    desk.commit("function")
    desk.change(TOOL, "    return wanted >", "    const int most = 256;\n    return wanted >")
    desk.commit("local")
    desk.add("common/uses.cpp", '#include "llama.h"\nint uses() {\n    return TOOL_MARGIN;\n}\n')
    desk.commit("uses the macro")
    desk.change(TOOL, 'return "', 'return std::to_string(margin()) + "')
    desk.commit("uses the function")
    desk.change(TOOL, "wanted > 256 ? 256 :", "wanted > most ? most :")
    desk.commit("uses the local")
    desk.change("common/uses.cpp", "int uses() {", "int uses(int most) {")
    desk.commit("has a local of that name")
    told = queued(desk, str(written(desk)), "--guard", "none")
    found = dict(zip(ids(told), (each["requires"] for each in told["queue"]), strict=True))
    assert {name: list(required) for name, required in found.items()} == {
        "macro": [],
        "function": [],
        "local": [],
        "uses-the-macro": ["macro"],
        "uses-the-function": ["function"],
        "uses-the-local": ["local"],
        "has-a-local-of-that-name": ["uses-the-macro"],
    }
    assert "TOOL_MARGIN" in found["uses-the-macro"]["macro"]


def test_a_commit_on_a_branch_with_the_series_requires_the_patches_that_it_changes(desk) -> None:
    three(desk)
    first = git(desk.clone, "rev-parse", "HEAD")
    queued(desk, str(written(desk)), "--guard", "none")
    git(desk.clone, "reset", "-q", "--hard", first)
    desk.change(TOOL, "wanted > 1024 ? 1024", "wanted > 2048 ? 2048")
    desk.commit("the largest limit")
    done = desk.run(
        "import", f"{first}..HEAD", "--repo", str(desk.clone), "--guard", "none", "--as-build", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["requires"]) == ["tool-a-still-larger-limit"]
    (needed,) = manifest(desk, "the-largest-limit")["requires"]
    assert needed["patch"] == "tool-a-still-larger-limit"


def test_a_patch_of_a_file_that_another_one_adds_requires_that_one(desk) -> None:
    desk.add("common/ours.h", "#pragma once\nint ours();\n")
    desk.commit("ours")
    desk.change("common/ours.h", "int ours();", "int ours(int much);")
    desk.commit("ours of much")
    told = queued(desk, str(written(desk)), "--guard", "none")
    assert list(told["queue"][1]["requires"]) == ["ours"]


def test_an_edit_of_a_file_that_another_patch_renames_requires_that_one(desk) -> None:
    git(desk.clone, "mv", TOOL, "common/limits.cpp")
    desk.commit("a better name")
    desk.change("common/limits.cpp", "wanted > 256 ? 256", "wanted > 512 ? 512")
    desk.commit("a larger limit")
    git(desk.clone, "rm", "-q", "dos.txt")
    desk.commit("no dos")
    told = queued(desk, str(written(desk)), "--guard", "none")
    assert [each["whole_files"] for each in told["queue"]] == [
        [f"renames {TOOL} to common/limits.cpp"],
        [],
        ["removes dos.txt"],
    ]
    assert [list(each["requires"]) for each in told["queue"]] == [
        [],
        ["a-better-name"],
        [],
    ]
    assert b"512" in candidate(desk, "common/limits.cpp", *ids(told))


def test_where_a_patch_took_lines_away_the_next_one_there_requires_it(desk) -> None:
    desk.change(CMAKE, "project(demo)\n", "")
    desk.commit("no project")
    desk.change(CMAKE, "3.14)\noption", "3.14)\n\noption")
    desk.commit("a blank")
    told = queued(desk, str(written(desk)), "--guard", "none")
    assert list(told["queue"][1]["requires"]) == ["no-project"]


def test_a_series_decides_names_order_and_strip(desk) -> None:
    three(desk)
    folder = written(desk)
    names = sorted(path.name for path in folder.iterdir())
    bare = (folder / names[2]).read_text().replace(" a/", " ").replace(" b/", " ")
    (folder / "last.diff").write_text(bare[bare.index("diff --git") :])
    text = f"# the queue\n\n{names[0]}   # first\n{names[1]} -p1\nlast.diff -p0\n"
    (folder / "series").write_text(text)
    told = queued(desk, str(folder), "--guard", "none", "--dry-run")
    assert list(rows(told)) == [*names[:2], "last.diff", names[2]]
    assert rows(told)[names[2]] == "skipped"
    assert ids(told)[2] == "last"
    quilt = desk.root / "quilt"
    quilt.mkdir()
    folder.rename(quilt / "patches")
    for source in (quilt, quilt / "patches" / "series"):
        assert queued(desk, str(source), "--guard", "none", "--dry-run")["counts"] == told["counts"]


def test_patch_files_are_in_the_order_of_their_numbers(desk) -> None:
    folder = desk.root / "queue"
    folder.mkdir()
    for number, (old, new) in enumerate(((256, 300), (300, 310), (310, 320)), 8):
        desk.change(TOOL, f"wanted > {old} ?", f"wanted > {new} ?")
        diff = git(desk.clone, "diff")
        (folder / f"{number}-step.patch").write_text(f"{diff}\n")
        desk.commit("x")
    told = queued(desk, str(folder), "--guard", "none", "--dry-run")
    assert ids(told) == ["step", "step-2", "step-3"]
    several = [str(folder / f"{number}-step.patch") for number in (8, 9, 10)]
    assert ids(queued(desk, *several, "--guard", "none", "--dry-run")) == ids(told)


def mailbox(desk, *, noise: bool) -> Path:
    """The commits on b1 as an mbox with a cover letter; with ``noise`` as mail clients keep it."""
    text = git(desk.clone, "format-patch", "-q", "--cover-letter", "b1", "--stdout") + "\n"
    git(desk.clone, "reset", "-q", "--hard", "b1")
    mails = [f"From {part}" for part in text.split("\nFrom ") if part]
    mails[0] = mails[0].removeprefix("From ")
    if noise:
        head, _, body = mails[1].partition("\n\n")
        coded = quopri.encodestring(body.encode()).decode()
        mails[1] = f"{head}\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\n{coded}"
        head, _, body = mails[2].partition("\n\n")
        coded = base64.encodebytes(body.replace("\n", "\r\n").encode()).decode()
        mails[2] = f"{head}\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\n{coded}"
        mails[3] = mails[3].replace("Subject: [PATCH", "Subject: Re: [PATCH")
    data = "\n".join(mails) + "\n"
    path = desk.root / "queue.mbox"
    path.write_bytes((data.replace("\n", "\r\n") if noise else data).encode())
    return path


@pytest.mark.parametrize("noise", [False, True])
def test_an_mbox_becomes_a_patch_per_mail(desk, noise: bool) -> None:
    three(desk)
    wanted = {path: (desk.clone / path).read_bytes() for path in (TOOL, CMAKE)}
    told = queued(desk, str(mailbox(desk, noise=noise)), "--guard", "none")
    assert ids(told) == ["tool-a-larger-limit", "tool-a-still-larger-limit", "cmake-fast"]
    assert told["counts"] == {"lifted": 2, "text": 1, "refused": 0, "skipped": 1}
    assert "without a diff" in told["queue"][-1]["note"]
    assert all(candidate(desk, path, *ids(told)) == data for path, data in wanted.items())


def test_a_range_becomes_a_patch_per_commit_and_merges_are_left_out(desk) -> None:
    three(desk)
    git(desk.clone, "checkout", "-q", "-b", "side", "b1")
    desk.add("common/side.h", "int side();\n")
    desk.commit("side")
    git(desk.clone, "checkout", "-q", "-")
    git(desk.clone, "merge", "-q", "-m", "a merge", "side")
    told = queued(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none")
    assert set(ids(told)) == {"tool-a-larger-limit", "tool-a-still-larger-limit", "cmake-fast", "side"}
    assert (told["queue"][-1]["state"], told["queue"][-1]["note"]) == ("skipped", "a merge")
    assert manifest(desk, "side")["builds"]["first"] == 1


def test_squashed_a_queue_is_one_patch(desk) -> None:
    three(desk)
    whole = queued(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--squash", "--id", "all")
    folder = written(desk)
    other = queued(desk, str(folder), "--guard", "none", "--squash", "--id", "same")
    assert (whole["id"], other["id"]) == ("all", "same")
    assert [each["file"] for each in whole["edits"]] == [each["file"] for each in other["edits"]]
    assert manifest(desk, "same")["why"].split() == manifest(desk, "all")["why"].split()


def test_what_is_refused_leaves_the_others_standing(desk) -> None:
    three(desk)
    desk.add("common/other.h", "int other();\n")
    desk.commit("other")
    folder = written(desk)
    names = sorted(path.name for path in folder.iterdir())
    # The first one cannot be a patch: it makes a link, too. The second stands on it, the others do not.
    first = folder / names[0]
    link = "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+x\n"
    first.write_text(first.read_text().replace("-- \n", link + "-- \n"))
    told = queued(desk, str(folder), "--guard", "none", code=9)
    assert rows(told) == dict(zip(names, ("refused", "refused", "text", "lifted"), strict=True))
    assert errors(told) == ["IMPORT_UNSUPPORTED", "IMPORT_NEEDS_REFUSED"]
    assert names[0] in told["queue"][1]["errors"][0]["why"]
    assert ids(told) == ["cmake-fast", "other"]
    done = desk.run("import", str(folder), "--guard", "none", "--dry-run")
    assert "IMPORT_UNSUPPORTED" in done.stdout
    assert "4 changes: 0 lifted, 0 text, 4 refused" in done.stdout  # those that are in are taken


def test_what_has_a_refused_change_beside_it_goes_where_that_is_not(desk) -> None:
    desk.change(TOOL, "// how much at most", "// how much, at most")
    desk.commit("first")
    desk.change(TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
    desk.commit("second")
    desk.change(TOOL, "wanted > 512 ? 512", "wanted > 1024 ? 1024")
    desk.commit("third")
    folder = written(desk)
    first = min(folder.iterdir())
    link = "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+x\n"
    first.write_text(first.read_text().replace("-- \n", link + "-- \n"))
    told = queued(desk, str(folder), "--guard", "none", code=9)
    assert (errors(told), ids(told)) == (["IMPORT_UNSUPPORTED"], ["second", "third"])
    assert first.name in told["queue"][1]["note"]
    assert list(told["queue"][2]["requires"]) == ["second"]
    made = candidate(desk, TOOL, "second", "third")
    assert b"1024" in made
    assert b"// how much at most" in made


def test_what_does_not_apply_is_told_with_a_build_to_which_it_does(desk) -> None:
    git(desk.clone, "checkout", "-q", "b2")
    desk.change(
        TOOL, "// how much there may be\nstatic int limit", "// how much there may be\nstatic int most"
    )
    folder = desk.root / "queue"
    folder.mkdir()
    desk.diff().rename(folder / "1-late.patch")
    git(desk.clone, "checkout", "-q", "-f", "b1")
    pins = desk.lock.read_text() + pin_text(desk.upstream, 2).split("\n\n", 1)[1]
    desk.lock.write_text(pins)
    for build in ("b1", "b2"):
        assert desk.run("apply", "--arch", "gfx1151", "--upstream", build, "--unlocked").returncode == 0
    told = queued(desk, str(folder), "--guard", "none", "--upstream", "b1", "--dry-run", code=9)
    assert errors(told) == ["IMPORT_NOT_APPLYING"]
    assert "--upstream b2" in told["queue"][0]["errors"][0]["hint"]
    # Left to itself the queue goes where all of its index lines lead.
    alone = queued(desk, str(folder), "--guard", "none", "--dry-run")
    assert (alone["base"], alone["base_because"].partition(";")[0]) == (
        "b2",
        "its files match the diffs' index lines, and the queue does not apply to b1",
    )
    three(desk)
    early = queued(desk, str(written(desk, "early")), "--guard", "none", "--dry-run")
    assert (early["base"], early["base_because"]) == (
        "b1",
        "the default pin of the series; to use another: --upstream",
    )
    (folder / "upstream.txt").write_text("b1\n")
    assert queued(desk, str(folder), "--guard", "none", "--dry-run", code=9)["base"] == "b1"


def stale(desk) -> Path:
    """Four changes that were made on b2: two apply to b1, too, and one applies to neither."""
    git(desk.clone, "checkout", "-q", "b2")
    desk.change("dos.txt", "two\r\n", "zwei\r\n")
    desk.commit("dos")
    desk.change(CHOICE, "const int limit = 256;", "const int limit = 512;")
    desk.commit("choice")
    desk.change(TOOL, "// how much there may be\n", "// how much\n")
    desk.commit("tool")
    desk.change(CMAKE, "OFF)", "ON)")
    desk.commit("cmake")
    folder = desk.root / "queue"
    git(desk.clone, "format-patch", "-q", "b2", "-o", str(folder))
    git(desk.clone, "checkout", "-q", "-f", "b1")
    last = max(folder.iterdir())
    last.write_text(last.read_text().replace(" project(demo CXX)", " project(demo C)"))
    return folder


@pytest.mark.parametrize("cached", [(), ("b1",), ("b2",), ("b1", "b2")])
def test_a_stale_queue_is_placed_on_the_pin_of_the_series_whatever_is_cached(
    desk, cached: tuple[str, ...]
) -> None:
    folder = stale(desk)
    desk.lock.write_text(desk.lock.read_text() + pin_text(desk.upstream, 2).split("\n\n", 1)[1])
    for build in cached:
        assert desk.run("apply", "--arch", "gfx1151", "--upstream", build, "--unlocked").returncode == 0
    told = queued(desk, str(folder), "--guard", "none", "--dry-run", code=9)
    assert (told["base"], told["base_because"].partition(";")[0]) == ("b1", "the default pin of the series")
    assert list(rows(told).values()) == ["text", "lifted", "refused", "refused"]
    one = desk.run("import", str(min(folder.iterdir())), "--guard", "none", "--json")
    assert one.returncode == 0, one.stderr
    told = json.loads(one.stdout)
    assert (told["source"], told["source_because"].partition(";")[0]) == (
        "b1",
        "the default pin of the series",
    )


def on_top(desk) -> Path:
    """Patch files of two commits on top of an imported queue; the clone is at the second."""
    three(desk)
    queued(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none")
    desk.change(TOOL, "wanted > 1024 ? 1024", "wanted > 2048 ? 2048")
    desk.commit("tool: the largest limit")
    desk.change(TOOL, "a@{b}", "c@{b}")
    desk.commit("tool: another name")
    folder = desk.root / "more"
    git(desk.clone, "format-patch", "-q", "HEAD~2", "-o", str(folder))
    return folder


def test_patch_files_that_were_made_on_top_of_the_series_are_placed_on_its_patches(desk) -> None:
    folder = on_top(desk)
    told = queued(desk, str(folder), "--guard", "none")
    assert told["base"] == "b1 with the patches of the series"
    assert [list(each["requires"]) for each in told["queue"]] == [["tool-a-still-larger-limit"], []]
    ids = ("tool-a-larger-limit", "tool-a-still-larger-limit", "tool-the-largest-limit", "tool-another-name")
    assert candidate(desk, TOOL, *ids) == (desk.clone / TOOL).read_bytes()


def test_one_such_file_becomes_a_patch_and_one_that_fits_neither_names_both_bases(desk) -> None:
    first, second = sorted(on_top(desk).iterdir())
    one = desk.run("import", str(first), "--guard", "none", "--json")
    assert one.returncode == 0, one.stderr
    assert json.loads(one.stdout)["requires"].keys() == {"tool-a-still-larger-limit"}
    second.write_text(second.read_text().replace("a@{b}", "x@{b}"))
    done = desk.run("import", str(second), "--guard", "none")
    assert done.returncode == 3, done.stderr
    assert "neither to b1 nor to b1 with the patches of the series nor to any cached build" in done.stderr


def test_a_change_that_the_tree_has_already_is_told_to_be_that(desk) -> None:
    three(desk)
    folder = written(desk)
    again = min(folder.iterdir())
    (folder / "9999-again.patch").write_bytes(again.read_bytes())
    (folder / "series").write_text(f"{again.name}\n9999-again.patch\n")
    told = queued(desk, str(folder), "--guard", "none", "--dry-run", code=9)
    assert "already" in told["queue"][1]["errors"][0]["why"]


def test_the_same_queue_twice_is_refused_by_its_ids(desk) -> None:
    three(desk)
    folder = str(written(desk))
    queued(desk, folder, "--guard", "none")
    assert set(errors(queued(desk, folder, "--guard", "none", code=9))) == {
        "PATCH_ID_TAKEN",
        "IMPORT_NEEDS_REFUSED",
    }


def test_guards_by_pattern_split_a_patch_in_what_is_for_everybody_and_the_rest(desk) -> None:
    desk.change(DEMO, "dst[i] = x[i];", "dst[i] = 2.0f*x[i];")
    desk.change(TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
    desk.commit("both")
    desk.change(CMAKE, "OFF)", "ON)")
    desk.commit("plain")
    folder = str(written(desk))
    guards = ("--guard", "ggml/src/ggml-cuda/*=gfx1151", "--guard", "*=none")
    told = queued(desk, folder, *guards)
    assert ids(told) == ["both", "both-gfx1151", "plain"]
    assert TOOL in told["queue"][0]["note"]
    assert manifest(desk, "both")["guard"] == "none"
    guarded = manifest(desk, "both-gfx1151")
    assert guarded["guard"]["macros"] == ["GGML_USE_HIP"]
    assert [each["patch"] for each in guarded["requires"]] == ["both"]
    assert {edit["file"] for edit in guarded["edit"]} == {DEMO}
    unsaid = queued(desk, folder, "--guard", "ggml/src/ggml-cuda/*=gfx1151", "--dry-run", code=9)
    assert errors(unsaid) == ["IMPORT_OPTIONS"] * 2


def test_a_guarded_patch_of_a_queue_is_compared_as_its_gpu_gets_it(desk) -> None:
    desk.change(DEMO, "dst[i] = x[i];", "dst[i] = 2.0f*x[i];")
    desk.commit("twice")
    desk.change(DEMO, "const int nblocks = 4;", "const int nblocks = 8;")
    desk.commit("blocks")
    told = queued(desk, str(written(desk)), "--guard", "gfx1151")
    assert ids(told) == ["twice", "blocks"]
    profile = tomllib.loads((desk.series / "arch_profiles/gfx1151.toml").read_text())
    assert {"twice", "blocks"} <= set(profile["patches"])
    plan = desk.run("plan", "--arch", "gfx1151", "--with", "twice", "--with", "blocks")
    assert plan.returncode == 0, plan.stderr


def test_a_dry_run_writes_nothing(desk) -> None:
    three(desk)
    folder = str(written(desk))
    before = desk.snapshot()
    told = queued(desk, folder, "--guard", "none", "--dry-run")
    assert (told["written"], desk.snapshot()) == (False, before)
    one = str(min(Path(folder).iterdir()))
    assert queued(desk, one, "--guard", "none", "--dry-run")["written"] is False
    assert desk.snapshot() == before


_STOP = """
import os, signal, sys
count = 0
def hook(name, args):
    global count
    if name == "os.rename" and "/series/patches/" in os.fsdecode(args[1]):
        count += 1
        if count == 2:
            os.kill(os.getpid(), signal.SIGINT)
    if name == "subprocess.Popen" and "mailinfo" in str(args[1]) and os.environ["STOP"] == "early":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_ctrl_c_leaves_the_series_as_it_was(desk, when: str) -> None:
    three(desk)
    folder = str(written(desk))
    before = desk.snapshot()
    done = desk.process("import", folder, "--guard", "none", env={"STOP": when}, before=_STOP)
    assert done.returncode == 130, done.stderr
    assert "the series is unchanged" in done.stderr
    assert desk.snapshot() == before


def refused(desk, code: str, *args: str) -> str:
    before = desk.snapshot()
    done = desk.run("import", *args)
    assert f"error[{code}]" in done.stderr, done.stderr + done.stdout
    assert done.returncode == 2
    assert desk.snapshot() == before
    return done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("../outside.patch", "outside.patch"),
        ("/etc/passwd", "/etc/passwd"),
        ("link.patch", "link.patch"),
        ("a\0b.patch", "b.patch"),
        ("a\x1b[31m.patch", "is not a file in the queue"),
        ("a.patch -R", "-R"),
        ("a.patch --directory=x", "--directory=x"),
        ("a.patch\na.patch", "twice"),
    ],
)
def test_a_hostile_series_is_refused_with_its_line(desk, line: str, says: str) -> None:
    folder = desk.root / "queue"
    folder.mkdir()
    (desk.root / "outside.patch").write_text("x")
    (folder / "link.patch").symlink_to("../outside.patch")
    desk.change(CMAKE, "OFF)", "ON)")
    desk.diff().rename(folder / "a.patch")
    (folder / "series").write_text(f"# first\n{line}\n")
    told = refused(desk, "IMPORT_NOTHING", str(folder), "--guard", "none")
    assert says in told
    assert f"series:{2 + line.count(chr(10))}" in told


def test_too_much_is_refused_before_anything_is_tried(desk) -> None:
    folder = desk.root / "queue"
    folder.mkdir()
    refused(desk, "IMPORT_NOTHING", str(folder), "--guard", "none")
    (folder / "words.patch").write_text("no diff\n")
    refused(desk, "IMPORT_NOTHING", str(folder), "--guard", "none")
    desk.change(CMAKE, "OFF)", "ON)")
    diff = desk.diff().read_bytes()
    for number in range(501):
        (folder / f"{number}.patch").write_bytes(diff)
    assert "500" in refused(desk, "IMPORT_TOO_LARGE", str(folder), "--guard", "none")
    with (folder / "0.patch").open("wb") as stream:
        stream.truncate(100 * 2**20)
    refused(desk, "IMPORT_TOO_LARGE", str(folder), "--guard", "none")
    (folder / "0.patch").unlink()
    (folder / "0.patch").symlink_to("0.patch")
    refused(desk, "IMPORT_NOTHING", str(folder), "--guard", "none")


def test_mails_that_git_cannot_read_are_left_out_and_the_others_are_in(desk) -> None:
    three(desk)
    path = mailbox(desk, noise=False)
    mails = path.read_bytes().split(b"\nFrom ")
    mails[1] = mails[1].replace(b"Subject: ", b"Subject: \0\x1b[31m")
    mails[2] = mails[2].replace(b"\n\n", b"\nContent-Transfer-Encoding: base64\n\n", 1)
    path.write_bytes(b"\nFrom ".join(mails))
    told = queued(desk, str(path), "--guard", "none")
    assert told["counts"] == {"lifted": 1, "text": 1, "refused": 0, "skipped": 2}
    assert not set("\0\x1b") & set("".join(path.read_text() for path in desk.series.rglob("patch.toml")))


@pytest.mark.parametrize(
    "more",
    [("--id", "x"), ("--title", "x"), ("--lift", "256=mmq.q6k_columns")],
)
def test_options_of_one_patch_are_refused_for_several(desk, more: tuple[str, ...]) -> None:
    three(desk)
    refused(desk, "IMPORT_OPTIONS", str(written(desk)), "--guard", "none", *more)


@pytest.mark.parametrize(
    ("guards", "code"),
    [
        (("gfx1151", "none"), "IMPORT_OPTIONS"),
        (("*=none", "ggml/*=gfx1151"), "IMPORT_OPTIONS"),
        (("ggml/*=",), "IMPORT_OPTIONS"),
        (("ggml/*=gfx9999", "*=none"), "IMPORT_OPTIONS"),
    ],
)
def test_guards_that_contradict_are_refused(desk, guards: tuple[str, ...], code: str) -> None:
    three(desk)
    words = [word for guard in guards for word in ("--guard", guard)]
    refused(desk, code, str(written(desk)), *words)
