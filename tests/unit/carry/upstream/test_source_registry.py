"""The sources of a pinned tree stand in one table, which the command line and the lock follow."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from patchkit.carry.series.lock import Source
from patchkit.carry.upstream import sources

ROOT = Path(__file__).resolve().parents[4]
# Options are made when the modules of commands are imported: after the table has one more kind.
OFFERED = """
import sys
from patchkit.carry.upstream import sources
sources.SOURCES += (sources.SourceKind(name="toy", about="a box of bricks", label="the box"),)
from patchkit.cli.app import main
sys.exit(main([sys.argv[1], "--help"]))
"""


@pytest.mark.parametrize("command", ["apply", "bump"])
def test_a_kind_of_one_entry_is_offered(command: str) -> None:
    argv = [sys.executable, "-c", OFFERED, command]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    words = "|".join([*sources.source_words(), "toy"])
    assert f"--source [{words}]" in " ".join(done.stdout.split())


def test_a_kind_of_one_entry_is_listed_and_asks_no_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = sources.SourceKind(name="toy", about="a box of bricks", label="the box")
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, toy))
    reference = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()["gates-and-formats.md"]
    assert "| `toy` | a box of bricks |" in reference
    assert [word for word in sources.source_words() if sources.uses_remotes(word)] == ["auto", "git"]


def test_the_lock_has_a_model_for_each() -> None:
    kinds = [model.__dataclass_fields__["kind"].default for model in get_args(Source)]
    assert tuple(kinds) == sources.source_names() == get_args(sources.SourceName)
