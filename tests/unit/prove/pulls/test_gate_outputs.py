"""Where ``patchkit gate`` is to write, looked at before it judges anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main


@pytest.mark.parametrize(
    ("option", "name", "code"),
    [
        ("--summary", "none/summary.md", "DISK_REFUSED"),
        ("--summary", ".", "DISK_REFUSED"),
        ("--sarif", ".", "DISK_REFUSED"),
        ("--sarif", "file/findings.sarif", "DISK_REFUSED"),
        ("--reports", "file", "DISK_REFUSED"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_repository_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, name: str, code: str
) -> None:
    (tmp_path / "file").touch()
    argv = ["gate", "--repo", str(tmp_path / "no-repository"), "--base", "a", "--head", "b"]
    assert main([*argv, option, str(tmp_path / name)]) == ExitCode.CACHE
    err = capsys.readouterr().err
    assert f"error[{code}]" in err
    assert "name another file" in err or "ls -ld" in err


def test_a_folder_that_is_missing_is_made_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["gate", "--repo", str(tmp_path / "no-repository"), "--base", "a", "--head", "b"]
    assert main([*argv, "--reports", str(tmp_path / "new"), "--sarif", str(tmp_path / "s" / "x")]) != 0
    assert "error[GATE_REPOSITORY_UNKNOWN]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_two_reports_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["gate", "--repo", str(tmp_path / "no-repository"), "--base", "a", "--head", "b"]
    one = str(tmp_path / "report")
    assert main([*argv, "--summary", one, "--sarif", f"{tmp_path}/./report"]) == ExitCode.USAGE
    assert "error[REPORT_FILE_TAKEN]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
