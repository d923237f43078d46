"""``import --as-build v0.5.0``: the build below commits, named by its release."""

from __future__ import annotations

import json
import tomllib

from demo_world import git


def test_the_build_below_commits_is_named_by_a_release_of_the_clone(desk) -> None:
    desk.change("common/tool.cpp", "256 ? 256", "512 ? 512")
    desk.commit("tool: a larger limit\n")
    git(desk.clone, "tag", "v0.5.0", "b2")
    args = ("import", "b1..HEAD", "--repo", str(desk.clone), "--guard", "none", "--id", "mine", "--as-build")
    refused = desk.run(*args, "v0.6.0")
    assert refused.returncode == 2
    assert "ONTO_BUILD_UNKNOWN" in refused.stderr
    assert "fetch --tags" in refused.stderr
    done = desk.run(*args, "v0.5.0", "--json")
    assert done.returncode == 0, done.stderr
    (path,) = (desk.series / "patches").glob("*-mine/patch.toml")
    assert tomllib.loads(path.read_text())["builds"]["first"] == 2
    assert json.loads(done.stdout)["id"] == "mine"
