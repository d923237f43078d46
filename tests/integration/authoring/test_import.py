"""``patchkit import``: what becomes of diffs, commits and pull requests."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from demo_world import FOLDER, git

CHOICE = f"{FOLDER}/choice.cu"
DEMO = f"{FOLDER}/demo.cu"


def imported(desk, *args: str) -> dict[str, Any]:
    done = desk.run("import", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def manifest(desk, name: str) -> dict[str, Any]:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return tomllib.loads((folder / "patch.toml").read_text())


def test_a_plain_diff_comes_out_byte_for_byte(desk) -> None:
    desk.change("common/tool.cpp", "wanted > 256 ? 256 : wanted", "wanted > 512 ? 512 : wanted")
    desk.change("common/tool.cpp", '"\\\\a@{b}"', '"\\\\b@{c} //% it\'s"')
    desk.change("CMakeLists.txt", "OFF)", "ON)")
    desk.change("dos.txt", "two\r\n", "two\r\nand a half\r\n")
    desk.change(
        DEMO,
        "return x * scale;\n}\n\nstatic __device__ int twin_b",
        "return x + scale;\n}\n\nstatic __device__ int twin_b",
    )
    desk.add("common/new.h", "#pragma once\n// @% new %@\n")
    paths = ("common/tool.cpp", "CMakeLists.txt", DEMO, "dos.txt", "common/new.h")
    wanted = {path: (desk.clone / path).read_bytes() for path in paths}
    done = imported(desk, str(desk.diff()), "--guard", "none", "--title", "All of it")
    assert done["same_as_diff"] == "byte for byte"
    assert done["id"] == "all-of-it"
    assert done["new_files"] == ["common/new.h"]
    functions = {(edit["file"], edit["function"]) for edit in done["edits"]}
    assert functions == {
        ("common/tool.cpp", "tool::limit"),
        ("common/tool.cpp", "tool::name"),
        (DEMO, "twin_a"),
        ("CMakeLists.txt", None),
        ("dos.txt", None),
    }
    for path, data in wanted.items():
        assert desk.shown("all-of-it", path) == data


def test_a_guarded_diff_asks_on_the_host_and_is_guarded_on_the_device(desk) -> None:
    desk.change(CHOICE, "(cc > 7 ? 128 : 256)", "(cc > 7 ? 128 : 1024)")
    desk.change(CHOICE, "const int limit = 256;", "const int limit = 256 + type;")
    desk.change(CHOICE, "if (type == 1) {", "if (type == 1 || ne11 == 0) {")
    desk.change(CHOICE, "{\n        return false;\n", "{\n        log_it(ne11);\n        return false;\n")
    desk.change(DEMO, "dst[i] = x[i];", "dst[i] = 2.0f*x[i];")
    done = imported(desk, str(desk.diff()), "--guard", "gfx1151", "--id", "mine")
    assert done["same_as_diff"].startswith("token for token, for gfx1151; host code checks the GPU")
    sides = {(edit["function"], edit["side"]) for edit in done["edits"]}
    assert sides == {("demo_should_use", "host"), ("demo_kernel", "device")}
    text = desk.shown("mine", CHOICE).decode()
    gpu = "(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)"
    assert f"({gpu} ? 1024 : 256)" in text
    assert f"{gpu} ? (256 + type) : (256)" in text
    assert f"{gpu} ? (type == 1 || ne11 == 0) : (type == 1)" in text
    assert (
        f"\n        if {gpu} {{\n            log_it(ne11);\n        }}\n#endif\n        return false;" in text
    )
    kernel = desk.shown("mine", DEMO).decode()
    assert "#if defined(GGML_USE_HIP) && defined(__gfx1151__)\n    dst[i] = 2.0f*x[i];\n#else" in kernel
    profile = tomllib.loads((desk.series / "arch_profiles/gfx1151.toml").read_text())
    assert profile["patches"]["mine"]["default"] == "opt-in"
    other = desk.run("plan", "--arch", "gfx1100", "--json")
    assert {"id": "mine", "state": "skipped"}.items() <= json.loads(other.stdout)["patches"][-1].items()


def test_code_that_another_macro_turns_on_gets_it_into_its_guard(desk) -> None:
    desk.change(DEMO, "    dst[i] = x[i];\n", "    dst[i] = 2.0f*x[i];\n")
    diff = str(desk.diff())
    imported(desk, diff, "--guard", "gfx1151", "--id", "mine", "--macro", "DEMO_ON")
    assert manifest(desk, "mine")["guard"]["macros"] == ["GGML_USE_HIP", "DEMO_ON"]
    assert b"defined(DEMO_ON) && defined(__gfx1151__)" in desk.shown("mine", DEMO)


def test_a_family_is_guarded_for_all_its_gpus(desk) -> None:
    desk.change(DEMO, "dst[i] = x[i];", "dst[i] = 2.0f*x[i];")
    done = imported(desk, str(desk.diff()), "--guard", "rdna3_5", "--id", "mine")
    assert done["archs"] == ["gfx1150", "gfx1151", "gfx1152", "gfx1153"]


def test_author_message_and_links_of_commits_stay(desk) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    message = "tool: a larger limit\n\nMeasured, see https://example.invalid/42.\n"
    desk.commit(message)
    desk.change("CMakeLists.txt", "OFF)", "ON)")
    desk.commit("cmake: fast\n")
    done = imported(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--squash")
    assert done["id"] == "tool-a-larger-limit"
    made = manifest(desk, done["id"])
    assert made["title"] == "tool: a larger limit"
    assert made["authors"] == ["up <up@localhost>"]
    assert made["links"] == ["https://example.invalid/42"]
    assert made["why"].split() == ["Measured,", "see", "https://example.invalid/42.", "cmake:", "fast"]
    assert made["builds"]["first"] == 1
    mails = git(desk.clone, "format-patch", "-q", "b1", "--stdout")
    (desk.root / "all.mbox").write_text(f"{mails}\n")
    one = ("--guard", "none", "--id", "from-mail", "--squash")
    again = imported(desk, str(desk.root / "all.mbox"), *one)
    mailed = manifest(desk, "from-mail")
    assert (mailed["title"], mailed["authors"]) == (made["title"], made["authors"])
    assert again["same_as_diff"] == "byte for byte"


def test_a_pull_request_is_fetched_and_remembered(desk) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    head = desk.commit("tool: a larger limit")
    git(desk.clone, "push", "-q", "origin", f"{head}:refs/pull/7/head")
    git(desk.upstream, "checkout", "-q", "master")
    done = imported(desk, "--pr", "7", "--url", str(desk.upstream), "--guard", "none")
    made = manifest(desk, done["id"])
    assert made["status"] == "submitted"
    assert made["upstream"]["url"] == f"{desk.upstream}/pull/7"
    assert made["builds"]["first"] == 1
    missing = desk.run("import", "--pr", "8", "--url", str(desk.upstream), "--guard", "none")
    assert missing.returncode == 7
    assert "IMPORT_NOTHING" in missing.stderr


def test_a_line_of_the_preprocessor_is_placed_in_a_later_version_of_its_function(desk) -> None:
    desk.change(CHOICE, "#ifdef DEMO_OLD\n", "#if defined(DEMO_OLD) || defined(DEMO_OLDER)\n")
    done = imported(desk, str(desk.diff()), "--guard", "none", "--id", "mine")
    (edit,) = done["edits"]
    assert edit["function"] is not None
    assert done["text_because"] == {}
    where = ("--onto", "FETCH_HEAD", "--repo", str(desk.clone), "--as-build", "1")
    for change, status in ((("type == 1", "type == 3"), 0), (("DEMO_OLD\n", "DEMO_NEW\n"), 3)):
        (desk.upstream / CHOICE).write_text((desk.upstream / CHOICE).read_text().replace(*change))
        git(desk.upstream, "commit", "-q", "-am", "other")
        git(desk.clone, "fetch", "-q", "origin", "HEAD")
        planned = desk.run("plan", "--arch", "gfx1151", "--only", "mine", *where)
        assert planned.returncode == status, planned.stderr
    assert "ANCHOR_NOT_FOUND" in planned.stderr


def test_the_other_build_gets_it_where_its_text_is_the_same(desk) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    imported(desk, str(desk.diff()), "--guard", "none", "--id", "mine")
    git(desk.clone, "checkout", "-q", "b2")
    where = ("--onto", "b2", "--repo", str(desk.clone))
    done = desk.run("apply", "--arch", "gfx1151", "--only", "mine", *where)
    assert done.returncode == 0, done.stderr
    text = git(desk.clone, "show", "patchkit/gfx1151:common/tool.cpp")
    assert "wanted > 512 ? 512" in text
    assert "how much there may be" in text


def test_a_number_that_the_profile_knows_is_taken_from_there(desk) -> None:
    desk.change(CHOICE, "(cc > 7 ? 128 : 256)", "(cc > 7 ? 128 : 1024)")
    diff = str(desk.diff())
    lift = ("--guard", "gfx1151", "--id", "mine", "--lift", "1024=mmq.own_columns")
    refused = desk.run("import", diff, *lift)
    assert refused.returncode == 2
    assert "LIFT_UNKNOWN" in refused.stderr
    profile = desk.series / "arch_profiles" / "gfx1151.toml"
    row = refused.stderr[refused.stderr.index("[[tuning.value]]") :].split("measured_on")[0]
    lines = "\n".join(line.strip() for line in row.splitlines()).replace('"..."', '"the test"')
    profile.write_text(f'{profile.read_text()}\n{lines}measured_on = "nothing"\n')
    imported(desk, diff, *lift)
    (edit,) = manifest(desk, "mine")["edit"]
    assert "@{ values['mmq.own_columns'] }@" in edit["text"]
    assert "? 1024 : 256" in desk.shown("mine", CHOICE).decode()
    profile.write_text(profile.read_text().replace("value = 1024", "value = 2048"))
    assert "? 2048 : 256" in desk.shown("mine", CHOICE).decode()


def refused(desk, code: str, exit_code: int, *args: str) -> str:
    """The import ends so, with a code of its own, and the series is as it was."""
    before = desk.snapshot()
    done = desk.run("import", *args, "--json")
    error = json.loads(done.stdout)["error"]
    codes = {each["code"] for each in error.get("errors", [error])}
    assert codes == {code}, done.stderr
    assert done.returncode == exit_code
    assert desk.snapshot() == before
    return done.stderr


def test_what_a_person_has_to_write_is_named_and_nothing_is_written(desk) -> None:
    desk.change(DEMO, "template<int ncols>\n", "static int helper() { return 1; }\n\ntemplate<int ncols>\n")
    desk.change(
        CHOICE, "    const int limit = 256;\n", "    const int limit = 256;\n    const int more = 2;\n"
    )
    told = refused(desk, "IMPORT_NOT_LIFTED", 3, str(desk.diff()), "--guard", "gfx1151")
    assert f"{DEMO}:13" in told
    assert "code outside of functions" in told
    assert "host code that declares names" in told


def new_file(path: str, mode: str, line: str) -> str:
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1 @@\n+{line}\n"


def test_files_are_removed_renamed_replaced_and_made_programs_as_git_does_it(desk) -> None:
    clone = desk.clone
    blob, other = b"\x89PNG\0\r\n", b"\0\1"
    desk.add(".github/workflows/a b.yml", "on: push\n")
    desk.add("run.sh", "#!/bin/sh\n")
    desk.add("media/empty.md", "")
    for name, data in {"logo.png": blob, "latin.txt": b"caf\xe9\n" * 9, "crlf.txt": b"a\r\nb\n"}.items():
        (clone / name).write_bytes(data)
    for name in ("run.sh", "logo.png", "common/tool.cpp"):
        (clone / name).chmod(0o755)
    git(clone, "mv", "CMakeLists.txt", "cmake-lists.txt")
    desk.change("cmake-lists.txt", "OFF)", "ON)")
    git(clone, "mv", "common/tool.cpp", "common/util.cpp")
    git(clone, "rm", "-q", "dos.txt")
    first = desk.commit("whole files")
    done = imported(desk, "b1..HEAD", "--repo", str(clone), "--guard", "none", "--id", "mine")
    assert done["same_as_diff"] == "byte for byte"
    assert set(done["new_files"]) == {
        ".github/workflows/a b.yml", "run.sh", "media/empty.md", "logo.png", "latin.txt", "crlf.txt",
    }  # fmt: skip
    assert done["removed"] == ["dos.txt"]
    assert set(done["renamed"]) == {"cmake-lists.txt", "common/util.cpp"}
    apply = ("--arch", "gfx1151", "--repo", str(clone), "--as-build", "1")
    done = desk.run("apply", *apply, "--only", "mine", "--onto", "b1")
    assert done.returncode == 0, done.stderr
    assert git(clone, "diff-tree", "-r", "HEAD", "patchkit/gfx1151") == ""
    told = ("removes dos.txt", "renames common/tool.cpp to common/util.cpp", "common/tool.cpp is executable")
    planned = desk.run("plan", *apply, "--only", "mine", "--onto", "b1").stdout
    shown = desk.run("show", "mine").stdout
    assert all(line in planned and line in shown for line in (*told, "new file .github/workflows/a b.yml"))
    # A second patch stands on the first one: what that brought goes again, or becomes something else.
    (clone / "logo.png").write_bytes(other)
    git(clone, "rm", "-q", "latin.txt")
    (clone / "run.sh").chmod(0o644)
    desk.commit("more")
    done = imported(
        desk, f"{first}..HEAD", "--repo", str(clone), "--guard", "none", "--id", "more", "--as-build", "1"
    )
    assert done["replaced"] == ["logo.png"]
    made = manifest(desk, "more")
    assert made["mode"] == [{"path": "run.sh", "executable": False}]
    done = desk.run("apply", *apply, "--only", "mine", "--only", "more", "--onto", "b1", "--replace")
    assert done.returncode == 0, done.stderr
    assert git(clone, "diff-tree", "-r", "HEAD", "patchkit/gfx1151") == ""
    where = ("--arch", "gfx1151", "--repo", str(clone), "--onto", "b1")
    done = desk.run("verify", *where, "--no-gpu", "--gate", "anchors", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gates"][0]["verdict"] == "passed", done.stdout


def test_a_renamed_file_takes_along_what_upstream_changed_in_it(desk) -> None:
    git(desk.clone, "mv", "common/tool.cpp", "common/util.cpp")
    desk.change("common/util.cpp", "256 ? 256", "512 ? 512")
    git(desk.clone, "add", "-A")
    desk.commit("renamed")
    done = imported(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--id", "mine")
    assert done["edits"][0]["file"] == "common/tool.cpp"
    where = ("--onto", "b2", "--repo", str(desk.clone))
    done = desk.run("apply", "--arch", "gfx1151", "--only", "mine", *where)
    assert done.returncode == 0, done.stderr
    text = git(desk.clone, "show", "patchkit/gfx1151:common/util.cpp")
    assert "wanted > 512 ? 512" in text
    assert "how much there may be" in text
    assert git(desk.clone, "ls-tree", "patchkit/gfx1151", "common/tool.cpp") == ""


def test_a_removal_of_what_upstream_changed_is_a_conflict_with_both_digests(desk) -> None:
    git(desk.clone, "rm", "-q", "common/tool.cpp")
    desk.commit("removed")
    imported(desk, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--id", "mine")
    where = ("--onto", "b2", "--repo", str(desk.clone))
    done = desk.run("apply", "--arch", "gfx1151", "--only", "mine", *where)
    assert done.returncode == 3
    assert "FILE_CHANGED" in done.stderr
    assert manifest(desk, "mine")["remove"][0]["sha256"] in done.stderr


def test_what_upstream_did_to_files_itself_is_upstreamed(desk) -> None:
    clone = desk.clone
    git(clone, "mv", "common/tool.cpp", "common/util.cpp")
    desk.change("common/util.cpp", "256 ? 256", "512 ? 512")
    git(clone, "rm", "-q", "dos.txt")
    (clone / "CMakeLists.txt").chmod(0o755)
    desk.commit("files")
    imported(desk, "b1..HEAD", "--repo", str(clone), "--guard", "none", "--id", "mine")
    desk.change("common/util.cpp", "// how much at most", "// how much")
    desk.commit("later")
    where = ("--arch", "gfx1151", "--only", "mine", "--repo", str(clone), "--as-build", "1", "--json")
    done = desk.run("plan", *where, "--onto", "HEAD")
    assert json.loads(done.stdout)["classes"][-1]["class"] == "upstreamed"
    (clone / "CMakeLists.txt").chmod(0o644)
    desk.commit("of the mode they thought again")
    done = desk.run("plan", *where, "--onto", "HEAD")
    told = json.loads(done.stdout)
    assert told["classes"][-1]["class"] == "conflict"
    assert "UPSTREAM_FILE_MISSING" in {each["code"] for each in told["errors"]}


def test_whole_files_are_for_everybody(desk) -> None:
    git(desk.clone, "rm", "-q", "common/tool.cpp")
    desk.commit("removed")
    told = refused(desk, "IMPORT_UNSUPPORTED", 2, "b1..HEAD", "--repo", str(desk.clone), "--guard", "gfx1151")
    assert "removes common/tool.cpp" in told
    assert "--guard none" in told


_DOS = "--- a/dos.txt\n+++ b/dos.txt\n@@ -1,2 +1,"
_TYPE = (
    "diff --git a/dos.txt b/dos.txt\ndeleted file mode 100644\n--- a/dos.txt\n+++ /dev/null\n"
    "@@ -1,3 +0,0 @@\n-one\r\n-two\r\n-three\r\n"
    "diff --git a/dos.txt b/dos.txt\nnew file mode 120000\n--- /dev/null\n+++ b/dos.txt\n"
)
UNSUPPORTED, NO_DIFF, NOT_APPLYING = "IMPORT_UNSUPPORTED", "IMPORT_NOTHING", "IMPORT_NOT_APPLYING"
HOSTILE = {
    "a path above the tree": ("--- a/../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+a\n", UNSUPPORTED),
    "an absolute path": ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", NOT_APPLYING),
    "git's own folder": (new_file(".git/config", "100644", "a"), UNSUPPORTED),
    "a new .gitmodules": (new_file(".gitmodules", "100644", "[submodule]"), UNSUPPORTED),
    "a name that git does not take": (new_file("a/GIT~1/x", "100644", "a"), UNSUPPORTED),
    "a symbolic link": (new_file("link", "120000", "/etc/passwd"), UNSUPPORTED),
    "a submodule": (new_file("sub", "160000", f"Subproject commit {'1' * 40}"), UNSUPPORTED),
    "a name that nobody can read": (new_file('"a\\tb"', "100644", "a"), UNSUPPORTED),
    "a file below a file": (new_file("dos.txt/x", "100644", "a"), NOT_APPLYING),
    "a file that becomes a link": (f"{_TYPE}@@ -0,0 +1 @@\n+/etc/passwd\n", UNSUPPORTED),
    "a context that is not there": (f"{_DOS}2 @@\n one\n-deux\n+zwei\n", NOT_APPLYING),
    "no diff": ("just words\n", NO_DIFF),
    "nothing": ("", NO_DIFF),
    "a broken hunk": (f"{_DOS}99 @@\n one\n", NO_DIFF),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_diff_is_refused_and_nothing_is_written(desk, what: str) -> None:
    text, code = HOSTILE[what]
    path = desk.root / "a.patch"
    path.write_bytes(text.encode())
    refused(desk, code, 3 if code == NOT_APPLYING else 2, str(path), "--guard", "none")
    assert not (desk.root.parent / "x").exists()


def test_a_file_that_no_edit_can_be_about_is_replaced(desk) -> None:
    for data in (b"\0\1\2" * 99, b"caf\xe9\n" * 9):
        (desk.clone / "CMakeLists.txt").write_bytes(data)
        done = imported(desk, str(desk.diff()), "--guard", "none", "--id", f"p{len(data)}")
        assert done["replaced"] == ["CMakeLists.txt"]


def test_a_file_that_is_too_large_is_refused_before_it_is_read(desk) -> None:
    with (desk.clone / "large.bin").open("wb") as stream:
        stream.truncate(100 * 2**20)
    git(desk.clone, "add", "-A")
    desk.commit("large")
    told = refused(desk, UNSUPPORTED, 2, "b1..HEAD", "--repo", str(desk.clone), "--guard", "none")
    assert "100 MiB" in told


def test_line_ends_of_windows_are_refused_where_upstream_has_others(desk) -> None:
    desk.change("CMakeLists.txt", "OFF)", "ON)")
    path = desk.diff()
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    told = refused(desk, "IMPORT_NOT_APPLYING", 3, str(path), "--guard", "none")
    assert "hint: it has Windows line endings (CRLF)" in told


def test_a_hundred_megabytes_are_refused_at_once(desk) -> None:
    path = desk.root / "a.patch"
    with path.open("wb") as stream:
        stream.truncate(100 * 2**20)
    refused(desk, "IMPORT_TOO_LARGE", 2, str(path), "--guard", "none")


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (("no-such-file", "--guard", "none"), "IMPORT_NOTHING", 2),
        (("--guard", "none"), "IMPORT_NOTHING", 2),
        (("--pr", "3", "--guard", "none"), "IMPORT_NOTHING", 2),
        (("b1..no-such", "--repo", "llama.cpp", "--guard", "none"), "ONTO_NO_COMMIT", 2),
        (("b1..b1", "--repo", "llama.cpp", "--guard", "none"), "IMPORT_NOTHING", 2),
        (("b1...b2", "--repo", "llama.cpp", "--guard", "none"), "IMPORT_NOTHING", 2),
        (("a.patch", "--guard", "gfx9999"), "IMPORT_OPTIONS", 2),
        (("a.patch", "--guard", "none", "--id", "demo-twin"), "PATCH_ID_TAKEN", 2),
        (("a.patch", "--guard", "none", "--id", "Not An Id"), "PATCH_ID_TAKEN", 2),
        (("a.patch", "--guard", "none", "--lift", "x"), "USAGE_VALUE", 2),
        (("a.patch", "--guard", "none", "--macro", "1 || X"), "USAGE_VALUE", 2),
        (("a.patch", "--guard", "none", "--lift", "512=a.b"), "LIFT_UNKNOWN", 2),
        (("a.patch",), "USAGE_MISSING", 2),
    ],
)
def test_what_was_asked_for_wrongly_is_told(desk, args: tuple[str, ...], code: str, exit_code: int) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    desk.diff()
    refused(desk, code, exit_code, *args)


def test_a_diff_that_adds_files_only_is_a_patch_of_new_files(desk):
    path = desk.root / "only.patch"
    path.write_text("--- /dev/null\n+++ b/common/ours.h\n@@ -0,0 +1,2 @@\n+#pragma once\n+int ours();\n")
    done = desk.run("import", str(path), "--guard", "none")
    assert done.returncode == 0, done.stderr
    assert "new file common/ours.h" in done.stdout
    assert "byte for byte" in done.stdout


def twin(line: int, heading: str = "") -> str:
    """A change of the last line of twin_a (at 4) or twin_b (at 9), whose lines are the same."""
    return (
        f"--- a/{DEMO}\n+++ b/{DEMO}\n@@ -{line},4 +{line},4 @@{heading}\n"
        "     const int scale = 2;\n-    return x * scale;\n+    return x + scale;\n }\n \n"
    )


@pytest.mark.parametrize(
    ("line", "heading", "code"),
    [
        (7, "", "IMPORT_AMBIGUOUS"),
        (7, " static __device__ int twin_b(int x) {", "IMPORT_AMBIGUOUS"),
        (4, " static __device__ int twin_b(int x) {", "IMPORT_OTHER_FUNCTION"),
        (9, " static __device__ int twin_c(int x) {", "IMPORT_OTHER_FUNCTION"),
    ],
)
@pytest.mark.parametrize("way", ["file", "mail", "queue"])
def test_a_hunk_whose_place_is_not_clear_is_refused_with_all_places(
    desk, line: int, heading: str, code: str, way: str
) -> None:
    path = desk.root / "a.patch"
    mail = "From: A <a@localhost>\nDate: Mon, 1 Jan 2026 00:00:00 +0000\nSubject: [PATCH] twins\n\n---\n"
    path.write_text(f"{mail if way == 'mail' else ''}{twin(line, heading)}")
    if way == "queue":
        done = desk.run("import", str(path), "--guard", "none", "--dry-run", "--json")
        assert done.returncode == 9, done.stderr
        (error,) = json.loads(done.stdout)["queue"][0]["errors"]
        assert (error["code"], [(at["path"], at["line"]) for at in error["where"][1:3]]) == (
            code,
            [(DEMO, 5), (DEMO, 10)],
        )
        told = desk.run("import", str(path), "--guard", "none", "--dry-run").stdout
    else:
        told = refused(desk, code, 3, str(path), "--guard", "none")
    for place, name in ((5, "twin_a"), (10, "twin_b")):
        assert f"{DEMO}:{place}: in {name}: @@ -{place - 1},4 +{place - 1},4 @@" in told


@pytest.mark.parametrize(("line", "name"), [(4, "twin_a"), (9, "twin_b")])
def test_a_hunk_at_its_own_line_is_placed_there(desk, line: int, name: str) -> None:
    path = desk.root / "a.patch"
    path.write_text(twin(line, f" static __device__ int {name}(int x) {{"))
    done = imported(desk, str(path), "--guard", "none")
    assert [edit["function"] for edit in done["edits"]] == [name]
    assert done["moved_hunks"] == []


def test_a_hunk_at_the_only_other_place_is_shown_with_its_distance(desk) -> None:
    path = desk.root / "a.patch"
    path.write_text(
        f"--- a/{DEMO}\n+++ b/{DEMO}\n@@ -3,3 +3,3 @@\n"
        " void demo_launch(ggml_backend_cuda_context & ctx, const int cc) {\n"
        "-    const int nblocks = 4;\n+    const int nblocks = 8;\n"
        "     launch(demo_kernel<8>, nblocks, 64);\n"
    )
    done = imported(desk, str(path), "--guard", "none", "--id", "one")
    assert done["moved_hunks"] == [
        {
            "path": DEMO,
            "number": 1,
            "line": 21,
            "offset": 17,
            "inside": "demo_launch",
            "heading": "",
            "others": 0,
        }
    ]
    shown = f"hunk 1 of {DEMO}: at line 21 in demo_launch, 17 lines below the line in its header"
    assert shown in desk.run("import", str(path), "--guard", "none", "--id", "two").stdout
    queue = ("import", str(path), "--guard", "none", "--dry-run", "--id", "three")
    assert shown in desk.run(*queue).stdout
    told = json.loads(desk.run(*queue, "--json").stdout)["queue"][0]["moved_hunks"]
    assert told == done["moved_hunks"]


def test_lines_that_are_added_without_context_are_refused(desk) -> None:
    # git apply puts them at the end of the file, whatever their number is.
    path = desk.root / "a.patch"
    path.write_text(f"--- a/{DEMO}\n+++ b/{DEMO}\n@@ -2,0 +3 @@\n+int x;\n")
    assert "git diff -U3" in refused(desk, "IMPORT_AMBIGUOUS", 3, str(path), "--guard", "none")


def other_paths(desk, way: str) -> str:
    """A diff of the tool with other paths than upstream's, and in a vendor folder a file beside it."""
    desk.change("common/tool.cpp", "wanted > 256 ? 256", "wanted > 512 ? 512")
    text = desk.diff(*(["--no-prefix"] if way == "bare" else [])).read_text()
    if way == "bare":
        return text
    text = text.replace("/common/", f"/{way}/common/")
    notes = "diff --git a/NOTES b/NOTES\n--- a/NOTES\n+++ b/NOTES\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n"
    return text + (notes if "/" in way else "")


@pytest.mark.parametrize(
    ("way", "option"),
    [
        ("bare", ("-p0",)),
        ("llama.cpp", ("-p2",)),
        ("vendor/llama.cpp", ("--prefix", "vendor/llama.cpp")),
    ],
)
def test_other_paths_are_told_with_the_option_that_makes_them_upstreams(
    desk, way: str, option: tuple[str, ...]
) -> None:
    path = desk.root / "a.patch"
    path.write_text(other_paths(desk, way))
    told = refused(desk, "IMPORT_NOT_APPLYING", 3, str(path), "--guard", "none")
    assert f"it applies with {' '.join(option)}" in told or f"hint: add {option[0]} to the" in told, told
    assert "upstream has 'common/tool.cpp' instead of '" in told or way == "bare"
    done = desk.run("import", str(path), "--guard", "none", *option, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["edits"][0]["file"] == "common/tool.cpp"
    assert ("NOTES" in done.stderr) == ("/" in way)
    queue = desk.run("import", str(path), "--guard", "none", *option, "--dry-run", "--id", "again", "--json")
    states = [each["state"] for each in json.loads(queue.stdout)["queue"]]
    assert states == ["lifted", "skipped"] if "/" in way else ["lifted"]


@pytest.mark.parametrize(
    ("path", "args", "says"),
    [
        ("src/tool.cpp", (), "upstream has no 'src/tool.cpp', but common/tool.cpp"),
        ("common/tool.cpp", ("-p9",), "hint: it applies with -p1"),
        ("tool.cpp", (), "upstream has 'tool.cpp' below common/"),
    ],
)
def test_a_path_that_upstream_lacks_is_told_with_the_one_that_it_has(
    desk, path: str, args: tuple[str, ...], says: str
) -> None:
    desk.change("common/tool.cpp", "wanted > 256 ? 256", "wanted > 512 ? 512")
    diff = desk.diff()
    diff.write_text(diff.read_text().replace("common/tool.cpp", path))
    assert says in refused(desk, "IMPORT_NOT_APPLYING", 3, str(diff), "--guard", "none", *args)


def test_a_new_file_does_not_lose_a_folder_of_upstreams(desk) -> None:
    path = desk.root / "a.patch"
    name = "common/ours/new.h"
    head = f"diff --git {name} {name}\nnew file mode 100644\n--- /dev/null\n+++ {name}\n"
    path.write_text(f"{head}@@ -0,0 +1 @@\n+#pragma once\n")
    assert "-p0" in refused(desk, "IMPORT_NOT_APPLYING", 3, str(path), "--guard", "none")
    assert imported(desk, str(path), "--guard", "none", "-p0")["new_files"] == [name]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("b1..HEAD", "--repo", "llama.cpp", "-p2"), "IMPORT_OPTIONS"),
        (("--pr", "7", "--url", "upstream", "--prefix", "x"), "IMPORT_OPTIONS"),
        (("a.patch", "--prefix", "../x"), "USAGE_VALUE"),
        (("a.patch", "--prefix", "elsewhere"), "IMPORT_NOTHING"),
        (("a.patch", "-p", "-1"), "USAGE_VALUE"),
        (("a.patch", "--squash", "--dry-run"), "IMPORT_OPTIONS"),
    ],
)
def test_options_for_paths_are_for_files(desk, args: tuple[str, ...], code: str) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    desk.diff()
    refused(desk, code, 2, *args, "--guard", "none")
