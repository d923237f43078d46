"""Author, date, subject, message and file name of imported patches, from import to a release."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from demo_world import git
from queued import CMAKE, TOOL, tables

SUBJECT = "tool: raise the limit, described in a subject that is much longer than the title of a patch may be"
BODY = "It is low.\n\n    indented\n\nSigned-off-by: me <me@example.org>"
DATE = "2025-03-04T05:06:07+02:00"
NAMES = ("b-limit.patch", "a-fast.diff")


@pytest.fixture(scope="module")
def release(shared_desk) -> Any:
    """A desk with two imported patches, applied; ``queue`` has their files and ``out`` a release."""
    desk = shared_desk
    folder = desk.root / "queue"
    folder.mkdir()
    author = ["--author=Ann Author <ann@example.org>", f"--date={DATE}"]
    desk.change(TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
    git(desk.clone, "commit", "-q", "-a", *author, "-m", f"{SUBJECT}\n\n{BODY}")
    desk.change(CMAKE, "OFF)", "ON)")
    git(desk.clone, "commit", "-q", "-a", *author, "-m", "fast")
    git(desk.clone, "format-patch", "-q", "-o", str(folder), "b1")
    for path, name in zip(sorted(folder.iterdir()), NAMES, strict=True):
        path.rename(folder / name)
    (folder / "series").write_text("".join(f"{name}\n" for name in NAMES))
    git(desk.clone, "reset", "-q", "--hard", "b1")
    for words in (
        ("import", str(folder), "--guard", "none"),
        ("apply", "--arch", "plain", "--unlocked"),
        (
            "export",
            "--arch",
            "plain",
            "--original-names",
            "--no-trailers",
            "--release",
            str(desk.root / "out"),
        ),
    ):
        done = desk.run(*words)
        assert done.returncode == 0, done.stderr + done.stdout
    return desk


def read(desk, name: str) -> list[str]:
    """Author, date, subject and body of a patch file, by git."""
    with (desk.root / name).open("rb") as stream:
        words = ["git", "mailinfo", str(desk.root / "message"), "/dev/null"]
        done = subprocess.run(words, stdin=stream, check=True, capture_output=True, text=True)
    return [done.stdout, (desk.root / "message").read_text()]


def check(desk, folder: Path, code: int) -> dict[str, Any]:
    done = desk.run("export", "--check", str(folder), "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_import_stores_them(release) -> None:
    commit = tables(release, "limit")["commit"]
    assert commit == {
        "author": "Ann Author <ann@example.org>",
        "date": DATE,
        "subject": SUBJECT,
        "file": NAMES[0],
    }
    assert tables(release, "limit")["why"] == BODY


def test_apply_writes_them(release) -> None:
    out = git(release.repository, "log", "-1", "--format=%an <%ae>%n%aI%n%cn%n%B", "candidate/plain/b1~1")
    head, _, trailers = out.partition("\n\nPatchkit-Id: ")
    assert head == f"Ann Author <ann@example.org>\n{DATE}\npatchkit\n{SUBJECT}\n\n{BODY}"
    assert trailers.startswith("b-limit\n")


def test_the_exported_files_are_the_imported_ones(release) -> None:
    for name in NAMES:
        assert read(release, f"out/{name}") == read(release, f"queue/{name}")
    done = release.run("export", "--arch", "plain", str(release.root / "usual"))
    assert done.returncode == 0
    assert sorted(path.suffix for path in (release.root / "usual").iterdir()) == ["", ".patch", ".patch"]
    assert not (release.root / "usual/release.json").exists()


def test_a_release_is_checked(release, tmp_path) -> None:
    document = check(release, release.root / "out", 0)
    assert (document["files"], document["is_tree_checked"]) == ([*NAMES], True)
    text = json.loads((release.root / "out/release.json").read_text())
    assert text["tree"] == git(release.repository, "rev-parse", "candidate/plain/b1^{tree}")
    assert text["base_tree"] == git(release.clone, "rev-parse", "b1^{tree}")

    def spoiled(change) -> str:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(release.root / "out", tmp_path / "bad")
        change(tmp_path / "bad")
        error = check(release, tmp_path / "bad", 2)["error"]
        return f"{error['code']}: {error['message']}"

    def edit_release(key: str, value: object):
        return lambda folder: (folder / "release.json").write_text(json.dumps(text | {key: value}))

    def append(name: str):
        return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + b"\n")

    assert spoiled(append(NAMES[1])) == f"RELEASE_DIFFERS: {NAMES[1]} was changed after the export"
    assert (
        spoiled(lambda folder: (folder / NAMES[0]).unlink()) == f"RELEASE_DIFFERS: {NAMES[0]} cannot be read"
    )
    assert (
        spoiled(lambda folder: (folder / "c.patch").touch())
        == "RELEASE_DIFFERS: c.patch is not in release.json"
    )
    patches = text["patches"]
    wrong = "RELEASE_DIFFERS: the patches do not give the recorded tree"
    assert spoiled(edit_release("tree", "0" * 40)) == wrong
    base = "RELEASE_DIFFERS: base_tree of release.json is not the tree of its base"
    assert spoiled(edit_release("base_tree", "0" * 40)) == base
    assert spoiled(edit_release("base_tree", text["tree"])) == base
    gone = {"base": "0" * 40, "base_tree": "1" * 40}  # the cache has the build by its name
    assert spoiled(lambda folder: (folder / "release.json").write_text(json.dumps(text | gone))) == base
    assert spoiled(edit_release("patches", [patches[0]])).startswith("RELEASE_DIFFERS")
    outside = [patches[0] | {"file": "../queue/series"}]
    assert spoiled(edit_release("patches", outside)).startswith("RELEASE_BAD")
    assert spoiled(edit_release("more", 1)).startswith("RELEASE_BAD")
    assert spoiled(lambda folder: (folder / "release.json").unlink()).startswith("RELEASE_BAD")


def test_check_writes_nothing_and_takes_no_options_of_writing(release) -> None:
    out = str(release.root / "out")
    done = release.run("export", "--check", "--release", "--no-trailers", out)
    assert done.returncode == 2
    assert "--check cannot be combined with --no-trailers, --release" in done.stderr


def test_a_release_whose_base_is_not_there_says_so(release, tmp_path) -> None:
    done = release.run("export", "--check", str(release.root / "out"), "--cache-dir", str(tmp_path / "empty"))
    assert done.returncode == 0, done.stderr
    assert "was not checked: b1 is not in the cache" in done.stdout


def test_two_files_of_one_name_are_refused(release) -> None:
    path = next((release.series / "patches").glob("*-fast")) / "patch.toml"
    text = path.read_text()
    path.write_text(text.replace(NAMES[1], NAMES[0].capitalize()))
    try:
        assert release.run("apply", "--arch", "plain", "--unlocked").returncode == 0
        done = release.run("export", "--arch", "plain", "--original-names", str(release.root / "two"))
        assert (done.returncode, "error[EXPORT_NAMES]" in done.stderr) == (2, True)
        assert not (release.root / "two").exists()
    finally:
        path.write_text(text)
