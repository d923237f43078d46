"""The scripts that every CI calls, run as a CI runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_world import git

ROOT = Path(__file__).resolve().parents[3]
SHELL = ROOT / "ci" / "shell"
pytestmark = pytest.mark.extra_tools  # bash


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This project's series with a branch to be merged, which changes nothing yet."""
    root = tmp_path / "clone"
    for name in ("patches", "templates", "arch_profiles"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
    (root / "README.md").write_text("one\n")
    (root / "code.py").write_text("one\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "base")
    git(root, "checkout", "-q", "-b", "pr")
    return root


@pytest.fixture
def gate(clone: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Commits a change of the clone and judges it with the script."""
    command = program(tmp_path / "bin" / "patchkit", f'exec {sys.executable} -m patchkit "$@"')

    def run(changes: dict[str, str], **environ: str) -> subprocess.CompletedProcess[str]:
        for path, text in changes.items():
            (clone / path).write_text(text)
        git(clone, "commit", "-q", "-a", "-m", "pull")
        return subprocess.run(
            [str(SHELL / "gate.sh"), str(ROOT), str(clone)],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PATCHKIT": str(command),
                "PATCHKIT_CACHE": str(tmp_path / "cache"),
                "GATE_BASE": "main",
                "GATE_HEAD": "pr",
                **environ,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize("script", ["gate.sh", "week.sh"])
def test_what_is_installed_is_the_folder_and_never_a_package_of_that_name(
    tmp_path: Path, script: str
) -> None:
    """pip takes a bare ``tool`` for the name of a package in the registry."""
    log = tmp_path / "log"
    program(
        tmp_path / "bin" / "python3", f'echo "$@" >> {log}\nmkdir -p "$3/bin" && ln -s "$0" "$3/bin/python"'
    )
    (tmp_path / "tool").mkdir()
    (tmp_path / "subject").mkdir()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [str(SHELL / script), "tool", "subject"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GATE_BASE": "main", "GATE_HEAD": "pr"},
        capture_output=True,
        check=False,
    )
    (installed,) = (line for line in log.read_text().splitlines() if "pip install" in line)
    assert installed.split()[-1] == str(tmp_path / "tool")
    gone = subprocess.run(
        [str(SHELL / script), "nowhere", "subject"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GATE_BASE": "main", "GATE_HEAD": "pr"},
        capture_output=True,
        check=False,
    )
    assert (gone.returncode, b"nowhere" in gone.stderr) == (2, True)


def test_documents_pass_and_leave_reports(gate, tmp_path: Path) -> None:
    done = gate(
        {"README.md": "two\n"},
        GATE_OUT=str(tmp_path / "out"),
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary"),
        GITHUB_OUTPUT=str(tmp_path / "output"),
    )
    assert done.returncode == 0, done.stderr
    assert "NOTHING TO PROVE" in done.stdout
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["verdict"] == "nothing to prove"
    assert (tmp_path / "summary").read_text().startswith("## patchkit gate: nothing to prove")
    assert (tmp_path / "output").read_text() == "own-tests=not needed\n"
    assert not (tmp_path / "cache").exists()  # no SDK was installed


def test_code_asks_for_its_own_tests_and_takes_the_answer(gate, tmp_path: Path) -> None:
    output = tmp_path / "output"
    planned = gate({"code.py": "two\n"}, EXPLAIN="true", GITHUB_OUTPUT=str(output))
    assert (planned.returncode, output.read_text()) == (0, "own-tests=needed\n")
    assert gate({"code.py": "three\n"}).returncode == 1
    assert gate({"code.py": "four\n"}, OWN_TESTS="passed").returncode == 0


def test_a_head_that_cannot_be_read_has_the_exit_code_of_its_kind(gate) -> None:
    done = gate({"patches/series.toml": "folders = \n"})
    assert done.returncode == 2
    assert "patches/series.toml:1" in done.stderr


def test_a_ref_that_is_not_there_is_told(gate) -> None:
    done = gate({"README.md": "two\n"}, GATE_BASE="nobody")
    assert done.returncode == 5
    assert "GATE_REPOSITORY_UNKNOWN" in done.stderr


@pytest.mark.parametrize(
    ("codes", "tries", "last"),
    [("0", 1, 0), ("3", 1, 3), ("1", 1, 1), ("7 0", 2, 0), ("8 7 7 0", 3, 7), ("7 3", 2, 3)],
)
def test_the_canary_tries_again_only_what_may_mend_itself(
    tmp_path: Path, codes: str, tries: int, last: int
) -> None:
    checkout = tmp_path / "checkout"
    for name in ("patches", "arch_profiles"):
        (checkout / name).mkdir(parents=True)
    log = tmp_path / "log"
    text = f"""
echo "$@" >> {log}
codes=({codes})
echo '{{"state": "done"}}'
exit "${{codes[$(($(wc -l < {log}) - 1))]}}"
"""
    command = program(tmp_path / "patchkit", text)
    done = subprocess.run(
        [str(SHELL / "canary.sh"), str(command), str(tmp_path / "report.json"), "--source", "git"],
        cwd=checkout,
        env={**os.environ, "CANARY_PAUSE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"code={last}\n"
    calls = log.read_text().splitlines()
    assert len(calls) == tries
    assert calls[0].startswith("bump --series-dir /")
    assert str(checkout) not in calls[0]  # it works on a copy
    assert calls[0].endswith("--to latest --keep-default --json --source git")
    assert json.loads((tmp_path / "report.json").read_text()) == {"state": "done"}


def test_the_canarys_issue_is_opened_through_gh(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gh = f"""
echo "$@" >> {log}
case "$1 $2" in
"issue list") echo '[]' ;;
"issue create") cat >> {log} ;;
esac
"""
    program(tmp_path / "bin" / "gh", gh)
    report = tmp_path / "canary.json"
    report.write_text(json.dumps({"error": {"code": "REMOTE_UNREACHABLE", "message": "no answer"}}))
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "ci" / "canary_issue.py"),
            "--report", str(report), "--code", "7", "--run", "https://ci.invalid/1",
        ],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # the run is red until it is mended
    text = log.read_text()
    assert "issue create --title the bump to upstream's newest build fails --label patchkit-canary" in text
    assert "REMOTE_UNREACHABLE: no answer" in text
    assert "https://ci.invalid/1" in text
