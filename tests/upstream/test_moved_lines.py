"""A line that upstream moved to another file: where it is now is told, and the conflict is short."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from command_line import run_patchkit

pytestmark = pytest.mark.slow

PATH, LINE = "src/llama-model.cpp", "        const float scale_depth = 1.4f;"


def test_a_line_that_moved_is_found_and_the_conflict_has_no_whole_file(
    pin_cache: Path, tmp_path: Path
) -> None:
    series = tmp_path / "series"
    where = ("--series-dir", series, "--cache-dir", pin_cache)
    assert run_patchkit("init", series, "--plain", "--upstream", "b6900").returncode == 0
    show = ["git", "--git-dir", str(pin_cache / "upstream.git"), "show", f"refs/patchkit/pin/b6900:{PATH}"]
    rows = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split("\n")
    at = rows.index(LINE)
    changed = [f"-{LINE}", f"+{LINE.replace('1.4f', '1.5f')}"]
    lines = [
        *(f" {row}" for row in rows[at - 3 : at]),
        *changed,
        *(f" {row}" for row in rows[at + 1 : at + 4]),
    ]
    head = f"--- a/{PATH}\n+++ b/{PATH}\n@@ -{at - 2},7 +{at - 2},7 @@"
    (tmp_path / "depth.patch").write_text("\n".join([head, *lines, ""]))
    done = run_patchkit("import", tmp_path / "depth.patch", *where)
    assert done.returncode == 0, done.stderr

    planned = run_patchkit("plan", "--upstream", "b11549", *where)
    assert planned.returncode == 3
    assert re.search(
        r"src/models/minicpm3\.cpp:[0-9]+: contains 'const float scale_depth = 1\.4f;'", planned.stderr
    )
    folder = tmp_path / "conflict"
    resolved = run_patchkit("resolve", "depth", "--to", "b11549", "--into", folder, *where, "--json")
    assert resolved.returncode == 3, resolved.stderr
    (file,) = json.loads(resolved.stdout)["files"]
    text = (folder / file["name"]).read_text()
    assert text.count("\n") < 400  # 35,062 as git merges it
    told, _, text = text.partition("==== edit below")
    assert "src/models/minicpm3.cpp:" in told
    begin, middle, end = (text.index(mark) for mark in ("<<<<<<<", "|||||||", ">>>>>>>"))
    assert "scale_depth = 1.5f" in text[begin:middle]
    assert "scale_depth = 1.4f" in text[middle:end]
