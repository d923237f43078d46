"""Commands about a candidate need no --arch where there is one GPU, or one candidate."""

from __future__ import annotations

import pytest

from patchkit.cli.app import main


@pytest.fixture
def patchkit(world, capsys, monkeypatch):
    """Runs a command in the world, on a machine with the GPUs ``gpus``."""

    def run(*argv: str, gpus: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setattr("patchkit.cli.request.detect_gpus", lambda: gpus)
        verb, *rest = argv
        where = ["--series-dir", str(world.series), "--cache-dir", str(world.cache)]
        code = main([verb, *where, *rest])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_only_candidate_is_meant(patchkit, tmp_path) -> None:
    assert patchkit("apply", "--arch", "gfx1100", "--arch", "gfx1151")[0] == 0
    for argv in (("verify", "--no-gpu", "--gate", "anchors"), ("diff",), ("export", str(tmp_path / "out"))):
        code, out, err = patchkit(*argv)
        assert code == 0, err
        assert "using the only candidate: gfx1100 gfx1151" in err
        assert "gfx1151" in out


def test_the_gpu_of_the_machine_comes_first(patchkit) -> None:
    assert patchkit("apply", "--arch", "gfx1151")[0] == 0
    code, _, err = patchkit("diff", gpus=("gfx1100",))
    assert code == 5
    assert "there is no candidate/gfx1100/b1 yet" in err


def test_of_two_candidates_none_is_guessed(patchkit) -> None:
    assert patchkit("diff")[0] == 2  # and without any there is nothing to mean
    for arch in ("gfx1100", "gfx1151"):
        assert patchkit("apply", "--arch", arch)[0] == 0
    code, _, err = patchkit("verify", "--no-gpu")
    assert code == 2
    assert "error[ARCH_MISSING]" in err
