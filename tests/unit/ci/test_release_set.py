"""Which patches a release takes: those of the lock, and never none because nobody said which."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import pytest
from command_line import run_patchkit

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def options(tmp_path: Path, capsys, monkeypatch):
    """What the workflow does with the lock of this project: exit code, stdout and stderr."""
    status = run_patchkit("status", "--json", "--cache-dir", tmp_path, "--series-dir", ROOT)
    main = runpy.run_path(str(ROOT / "ci" / "release_set.py"))["main"]

    def run(arch: str, upstream: str, wanted: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(status.stdout))
        code = main(["--arch", arch, "--upstream", upstream, f"--with={wanted}"])
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("arch", "upstream", "wanted", "out"),
    [
        ("gfx1151", "b6900", "", ""),
        ("gfx1200", "b11549", "", "--with=mmvq-decode-warps\n"),
        ("gfx1151", "b11549", "none", ""),
        (
            "gfx1151",
            "b11549",
            "mmvq-batch-limits fattn-d256-tile mmq-tile-table fattn-tile-rows",
            "--with=fattn-d256-tile\n--with=fattn-tile-rows\n--with=mmq-tile-table\n--with=mmvq-batch-limits\n",
        ),
    ],
)
def test_the_set_is_one_of_the_lock(options, arch, upstream, wanted, out) -> None:
    assert options(arch, upstream, wanted) == (0, out, "")


@pytest.mark.parametrize(
    ("arch", "upstream", "wanted", "told"),
    [
        ("gfx1151", "b11549", "", "none; fattn-d256-tile fattn-tile-rows"),
        ("gfx1151", "b11549", "mmq-tile-table", "no such set"),
        ("gfx1201", "b6900", "", "nothing"),
    ],
)
def test_a_set_that_the_lock_does_not_have_is_refused_with_those_it_has(
    options, arch, upstream, wanted, told
) -> None:
    code, out, err = options(arch, upstream, wanted)
    assert (code, out) == (2, "")
    assert told in err
