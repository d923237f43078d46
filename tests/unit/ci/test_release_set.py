"""Which patches a release takes: those of the lock, and never none because nobody said which."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import pytest
from command_line import run_patchkit
from shipped import ROOT, recorded_opt_in

OPT_IN = recorded_opt_in("gfx1151", 11549)


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
        ("gfx1151", "b11549", " ".join(reversed(OPT_IN)), "".join(f"--with={name}\n" for name in OPT_IN)),
    ],
)
def test_the_set_is_one_of_the_lock(options, arch, upstream, wanted, out) -> None:
    assert options(arch, upstream, wanted) == (0, out, "")


@pytest.mark.parametrize(
    ("arch", "upstream", "wanted", "told"),
    [
        ("gfx1151", "b11549", "", f"name its opt-in patches: none; {' '.join(OPT_IN)}"),
        ("gfx1151", "b11549", "ssm-conv-tail", "no result with these opt-in patches"),
        ("gfx1201", "b6900", "", "no result for gfx1201 at b6900"),
    ],
)
def test_a_set_that_the_lock_does_not_have_is_refused_with_those_it_has(
    options, arch, upstream, wanted, told
) -> None:
    code, out, err = options(arch, upstream, wanted)
    assert (code, out) == (2, "")
    assert told in err
