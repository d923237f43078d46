"""A hunk of test-backend-ops, whose structs resemble each other, goes into the right one of them or none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit

pytestmark = pytest.mark.slow

TESTS = "tests/test-backend-ops.cpp"
LINES = """\
     }
\x20
     double max_nmse_err() override {
-        return 5e-4;
+        return 7e-4;
     }
\x20
     uint64_t op_flops(ggml_tensor * t) override {
"""
BUILDS = (6900, 11549)


@pytest.fixture(scope="module")
def places(warm_cache: Path) -> dict[int, dict[str, int]]:
    """By build: the structs that have these lines, each with the line at which they begin."""
    wanted = [line[1:] for line in LINES.splitlines() if line[0] != "+"]
    found: dict[int, dict[str, int]] = {}
    for build in BUILDS:
        show = [
            "git",
            "--git-dir",
            str(warm_cache / "upstream.git"),
            "show",
            f"refs/patchkit/pin/b{build}:{TESTS}",
        ]
        rows = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split("\n")
        found[build], name = {}, ""
        for at, row in enumerate(rows):
            name = row.split()[1] if row.startswith("struct ") else name
            if rows[at : at + len(wanted)] == wanted:
                found[build][name] = at + 1
        assert {"test_conv_2d", "test_conv_3d"} <= found[build].keys()
    return found


class Importing:
    def __init__(self, folder: Path, cache: Path, build: int) -> None:
        self.folder, self.cache = folder, cache
        done = run_patchkit("init", folder / "series", "--plain", "--upstream", f"b{build}")
        assert done.returncode == 0, done.stderr

    def __call__(self, line: int, heading: str, *args: str, code: int) -> dict[str, Any]:
        path = self.folder / "a.patch"
        path.write_text(f"--- a/{TESTS}\n+++ b/{TESTS}\n@@ -{line},7 +{line},7 @@{heading}\n{LINES}")
        where = ("--series-dir", self.folder / "series", "--cache-dir", self.cache)
        done = run_patchkit("import", path, *args, *where, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)


@pytest.mark.parametrize("build", BUILDS)
def test_it_is_placed_where_number_and_name_agree_and_refused_elsewhere(
    build: int, places: dict[int, dict[str, int]], pin_cache: Path, tmp_path: Path
) -> None:
    importing = Importing(tmp_path, pin_cache, build)
    heading = " struct test_conv_3d : public test_case {"
    mine, twin = (places[build][name] for name in ("test_conv_3d", "test_conv_2d"))
    stale = importing(twin - 12, heading, code=3)["error"]
    assert stale["code"] == "IMPORT_AMBIGUOUS"
    lines = {each["line"] for each in stale["where"] if each["path"] == TESTS}
    assert lines == {line + 3 for line in places[build].values()}
    assert importing(twin, heading, code=3)["error"]["code"] == "IMPORT_OTHER_FUNCTION"
    queued = importing(twin - 12, heading, "--dry-run", code=9)["queue"][0]
    assert [each["code"] for each in queued["errors"]] == ["IMPORT_AMBIGUOUS"]
    done = importing(mine, heading, code=0)
    assert [edit["function"] for edit in done["edits"]] == ["test_conv_3d::max_nmse_err"]
    assert done["moved_hunks"] == []
