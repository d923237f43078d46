"""patchkit build, and what package refuses before it builds, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shipped import SEED

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.prove.subject import Subject


def test_there_must_be_a_candidate(pin_cache: Path, capsys) -> None:
    code = main(["build", *SEED, "--backend", "cpu", "--cache-dir", str(pin_cache)])
    assert code == ExitCode.GIT
    assert "patchkit apply --arch gfx1151" in capsys.readouterr().err


def test_without_a_compiler_nothing_is_built(
    candidate_cache: Path, capsys, monkeypatch, tmp_path: Path
) -> None:
    for name in ("git", "env"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    code = main(["build", *SEED, "--backend", "cpu", "--cache-dir", str(candidate_cache)])
    assert code == ExitCode.TOOLCHAIN
    err = capsys.readouterr().err
    assert "error[COMPILER_MISSING]" in err
    assert "g++" in err
    assert not (candidate_cache / "builds").exists()


@pytest.mark.parametrize("folder", ["file/dist", "file"])
def test_a_folder_for_the_wheel_is_looked_at_before_anything_is_built(
    pin_cache: Path, tmp_path: Path, capsys, folder: str
) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / folder)
    code = main(["package", *SEED, "--out", out, "--cache-dir", str(pin_cache)])
    assert code == ExitCode.CACHE
    err = capsys.readouterr().err
    assert "error[DISK_REFUSED]" in err
    assert "packaging the programs failed" in err
    assert "--out" in err
    assert not (pin_cache / "trees").exists()


def test_looking_at_the_folder_leaves_nothing_there(pin_cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    code = main(
        [
            "package",
            *SEED,
            "--out",
            str(out),
            "--cache-dir",
            str(pin_cache),
        ]
    )
    assert code == ExitCode.GIT  # there is no candidate
    assert not out.parent.exists()


@pytest.mark.cpu_build
@pytest.mark.slow
def test_both_sides_are_listed_with_what_they_share(cpu_subject: Subject, cpu_cache: Path, capsys) -> None:
    argv = ["build", *SEED, "--backend", "cpu", "--cache-dir", str(cpu_cache)]
    for name in ("test-backend-ops", "llama-bench"):
        argv += ["--program", name]
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["candidate"]["tree"] == cpu_subject.candidate_tree
    assert document["baseline"]["tree"] == cpu_subject.baseline_tree
    assert [part["shared"] for part in document["candidate"]["parts"]] == [True, True]
    for side in ("baseline", "candidate"):
        assert (Path(document[side]["folder"]) / "llama-bench").is_file()
        assert all(Path(part["log"]).is_file() for part in document[side]["parts"])
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "already built, shared by both; log: " in out
    assert "not checked yet" in out
