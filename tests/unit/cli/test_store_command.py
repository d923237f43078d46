"""``patchkit store`` without a compiler: what it shows, and what it refuses before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_patchkit

from patchkit.base.errors import ExitCode


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for number in range(3):
        folder = tmp_path / "cache" / "objects" / f"a{number}" / (str(number) * 64)
        folder.mkdir(parents=True)
        (folder / "output").write_bytes(b"x" * 2**20)
    return tmp_path / "cache"


def test_status_counts_and_prune_removes(cache: Path) -> None:
    shown = run_patchkit("store", "status", "--cache-dir", cache)
    assert shown.returncode == ExitCode.OK
    assert "results       3        3.1 MB" in shown.stdout
    told = json.loads(
        run_patchkit("store", "prune", "--max-size", "1M", "--json", "--cache-dir", cache).stdout
    )
    assert told["gone"]["results"] == [2, 2 * 2**20]
    assert len(list(cache.rglob("output"))) == 1


def test_an_empty_cache_has_nothing(tmp_path: Path) -> None:
    shown = run_patchkit("store", "status", "--cache-dir", tmp_path / "none")
    assert (shown.returncode, "results       0" in shown.stdout) == (ExitCode.OK, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("prune",), "requires --max-size or --older-than"),
        (("prune", "--max-size", "5"), "for example 500M, 5G"),
        (("prune", "--older-than", "30m"), "for example 12h, 30d, 4w"),
        (("prune", "--max-size", "-1G"), "for example 500M, 5G"),
        (("status", "--dry-run"), "does not take --dry-run"),
    ],
)
def test_a_mistake_is_told_before_any_work(cache: Path, words: tuple[str, ...], says: str) -> None:
    done = run_patchkit("store", *words, "--cache-dir", cache)
    assert (done.returncode, says in done.stderr) == (ExitCode.USAGE, True)
    assert len(list(cache.rglob("output"))) == 3
