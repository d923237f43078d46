"""Which programs CI gives the commands of the README, and which an ordinary test may call."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUN = (ROOT / ".ci" / "run").read_text("utf-8")
programs = runpy.run_path(str(ROOT / "ci" / "programs.py"))


def test_ci_runs_the_readmes_commands_before_it_installs_more_and_ends_with_tests() -> None:
    stages = re.findall(r'^stage (\d+) "[^"]*" (.+)$', RUN, re.MULTILINE)
    assert [command for _, command in stages][:5] == [
        "readme_packages", "empty_environment", "readme main", "readme tests", "more_packages",
    ]  # fmt: skip
    last = re.search(r"\nproofs .*extra_tools.* \\\n.* \|\| exit (\d+) .*\n\Z", RUN)
    assert last, "the last thing printed is the summary of tests"
    codes = [code for code, _ in stages] + [last[1]]
    assert len(set(codes)) == len(codes)


def test_the_folder_holds_what_it_is_asked_for_and_nothing_else(tmp_path: Path) -> None:
    groups = {"git": ("git", "no-such-git"), "Python": ("python3",)}
    folder = programs["link_programs"](tmp_path / "a" / "bin", groups, os.environ["PATH"])
    assert sorted(path.name for path in folder.iterdir()) == ["git", "python3"]
    environ = {"PATH": str(folder)}
    assert subprocess.run(["git", "--version"], env=environ, check=True, capture_output=True).stdout
    argv = ["python3", "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(argv, env=environ, check=True)
    shutil.rmtree(folder)
    subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", ""], check=True
    )  # it needs the folder no more


def test_what_a_machine_lacks_is_named(tmp_path: Path) -> None:
    groups = {"git": ("git",), "a thing": ("no-such-program", "nor-this"), "both": ("git", "no-such-program")}
    assert programs["missing"](groups, os.environ["PATH"]) == ["a thing", "both"]
    with pytest.raises(programs["NoSuchProgram"], match=r"no a thing .*\(no-such-program, nor-this\)"):
        programs["link_programs"](tmp_path / "bin", groups, os.environ["PATH"])


def test_an_ordinary_test_may_call_nothing_else() -> None:
    allowed = {name for group in programs["GROUPS_OF"]["tests"].values() for name in group}
    assert {path.name for path in Path(os.environ["PATH"]).iterdir()} <= allowed
    assert not allowed & {name for group in programs["EXTRA"].values() for name in group}
    with pytest.raises(FileNotFoundError):
        subprocess.run(["bash", "-c", ":"], check=True)


@pytest.mark.extra_tools
def test_a_test_that_says_so_may_call_more() -> None:
    subprocess.run(["bash", "-c", ":"], check=True)
    assert shutil.which("apt-get") is None


def test_the_readmes_test_command_leaves_out_what_calls_more() -> None:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", __file__]
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    listed = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
    assert "test_what_a_machine_lacks_is_named" in listed
    assert "test_a_test_that_says_so_may_call_more" not in listed
