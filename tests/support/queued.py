"""Plain patches imported as a queue of small commits, and diffs of changes, in the world of a desk."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from demo_world import git

TOOL, CMAKE = "common/tool.cpp", "CMakeLists.txt"
DOCUMENTED = """\
links = ["https://example.invalid/1"]
without = "the limits are small"
expected = { effect = "larger limits", source = "nobody measured it" }
"""


def errors(document: dict[str, Any]) -> list[dict[str, Any]]:
    error = document["error"]
    return error.get("errors") or [error]


def toml_of(desk, name: str) -> Path:
    (folder,) = (desk.series / "patches").glob(f"*-{name}")
    return folder / "patch.toml"


def tables(desk, name: str) -> dict[str, Any]:
    return tomllib.loads(toml_of(desk, name).read_text())


def steps(desk, *changes: tuple[str, str, str, str]) -> None:
    """A commit per change: subject, path, old and new text; the same path and subject continue a commit."""
    for subject, path, old, new in changes:
        desk.change(path, old, new)
        git(desk.clone, "add", "-A")
        last = git(desk.clone, "log", "-1", "--format=%s")
        git(desk.clone, "commit", "-q", *(("--amend", "--no-edit") if last == subject else ("-m", subject)))


def queue(desk, *changes: tuple[str, str, str, str]) -> None:
    """Import a queue of plain patches made of such commits; the clone is at b1 again."""
    steps(desk, *changes)
    done = desk.run("import", "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--json")
    git(desk.clone, "reset", "-q", "--hard", "b1")
    assert done.returncode == 0, done.stderr + done.stdout


def version(desk, *changes: tuple[str, str, str], before: tuple[tuple[str, str, str], ...] = ()) -> Path:
    """A diff of some changes on b1, or on earlier changes; the clone is at b1 again."""
    for path, old, new in before:
        desk.change(path, old, new)
    if before:
        desk.commit("before")
    for path, old, new in changes:
        desk.change(path, old, new)
    path = desk.diff()
    git(desk.clone, "reset", "-q", "--hard", "b1")
    return path


def result(desk, path: str = TOOL) -> bytes:
    """A file with all plain patches, on b1."""
    done = desk.run("apply", "--arch", "plain", "--unlocked")
    assert done.returncode == 0, done.stderr
    return git(desk.repository, "show", f"candidate/plain/b1:{path}").encode() + b"\n"


def documented(desk, *names: str) -> None:
    for name in names:
        path = toml_of(desk, name)
        text = path.read_text()
        why = "" if "\nwhy" in text.partition("[builds]")[0] else 'why = "because"\n'
        path.write_text(text.replace('guard = "none"\n', f'{why}{DOCUMENTED}guard = "none"\n', 1))


def contents(desk) -> dict[str, bytes]:
    """The files of the series by their path in it, but for those that a killed run left elsewhere."""
    folders = ("patches", "arch_profiles", "templates")
    paths = [path for name in folders for path in sorted((desk.series / name).rglob("*")) if path.is_file()]
    return {path.relative_to(desk.series).as_posix(): path.read_bytes() for path in paths}
