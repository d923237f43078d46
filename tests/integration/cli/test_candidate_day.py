"""A day's work on the real pin, through the command line: apply, status, diff, export, and git am."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import patchkit_process, run_patchkit
from demo_world import git
from shipped import SEED
from thorough import ordinary

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

BASE = "c22473b580807929fd9e3a3344a48e8cfbe6c88f"
BRANCH = "candidate/gfx1151/b6900"


@pytest.fixture
def patchkit(candidate_cache: Path):
    """Runs one command under --json where the candidate is, and returns its document."""

    def run(*argv: str, code: int = 0) -> dict:
        done = run_patchkit(*argv, "--json", "--cache-dir", candidate_cache)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return run


def test_status_knows_the_candidate_and_that_the_lock_records_it(applied: dict, patchkit) -> None:
    status = patchkit("status")
    (candidate,) = status["candidates"]
    assert candidate["branch"] == BRANCH
    assert candidate["tip"] == applied["commits"][-1]["commit"]
    assert candidate["lock"] == "recorded"
    assert [pin["cached"] for pin in status["pins"] if pin["build"] == 6900] == [True]
    assert status["broken"] == []


def test_the_diff_stays_in_one_folder_and_its_parts_add_up(applied: dict, patchkit) -> None:
    whole = patchkit("diff", *SEED)
    paths = {change["path"] for change in whole["files"]}
    assert paths
    assert all(path.startswith("ggml/src/ggml-cuda/") for path in paths)
    parts = [patchkit("diff", *SEED, "--patch", made["id"]) for made in applied["commits"]]
    assert [part["tip"] for part in parts] == [made["commit"] for made in applied["commits"]]
    assert {change["path"] for part in parts for change in part["files"]} == paths


def test_a_patch_that_is_not_in_the_candidate_is_named_with_those_that_are(applied: dict, patchkit) -> None:
    error = patchkit("diff", *SEED, "--patch", "nothing", code=2)["error"]
    assert error["code"] == "CANDIDATE_STALE"
    assert "fattn-keep-gqa-tiles" in error["hint"]


def test_the_export_is_the_same_bytes_twice_and_git_am_gives_the_same_tree(
    applied: dict, patchkit, candidate_cache: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        patchkit("export", *SEED, str(tmp_path / name))
    files = sorted(path.name for path in (tmp_path / "one").glob("*.patch"))
    assert len(files) == len(applied["commits"])
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    tree = tmp_path / "tree"
    source = str(candidate_cache / "upstream.git")
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", source, str(tree))
    git(tree, "checkout", "--quiet", "--detach", BASE)
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    git(tree, *who, "am", "--quiet", *(str(tmp_path / "one" / name) for name in files))
    assert git(tree, "rev-parse", "HEAD^{tree}") == applied["tree"]


@pytest.mark.parametrize(
    ("umask", "env"),
    ordinary(
        [
            ("0o077", {"LC_ALL": "C", "TZ": "Asia/Tokyo"}),
            ("0", {"LC_ALL": "tr_TR.UTF-8", "TZ": "America/New_York", "GIT_AUTHOR_NAME": "Somebody"}),
        ],
        kept=0,
    ),
)
def test_another_user_makes_the_same_commits(
    applied: dict, pin_cache: Path, tmp_path: Path, umask: str, env: dict[str, str]
) -> None:
    (tmp_path / "home").mkdir()
    done = patchkit_process(
        *("apply", *SEED, "--json", "--cache-dir", str(pin_cache)),
        env={"HOME": str(tmp_path / "home"), **env},
        before=f"import os; os.umask({umask})",
    )
    again = json.loads(done.stdout)
    assert again["unchanged"] is False
    assert again["commits"] == applied["commits"]
