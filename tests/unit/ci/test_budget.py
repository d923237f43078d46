"""What a run with a budget leaves out, and that it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[2] / "support"
CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(SUPPORT)!r})
from budget import Budget

def pytest_addoption(parser):
    parser.addoption("--budget", type=float)

def pytest_configure(config):
    here = Path(__file__).parent
    config.pluginmanager.register(Budget(here, here / "passed.json", config.getoption("--budget")))
"""
TESTS = """
import time
from pathlib import Path

def test_slow():
    time.sleep(1.2)

def test_weak():
    assert "weak" not in Path(__file__).with_name("pyproject.toml").read_text()

def test_quick():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_three.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def run(project: Path, budget: float, *more: str) -> tuple[list[str], str]:
    """The tests that ran, and what was said."""
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--budget={budget}", *more]
    # How many workers this test itself runs beside is none of that run's affair.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    ran = sorted({line.split("::")[1].split()[0] for line in lines if "test_three.py::" in line})
    return ran, done.stdout


def test_what_passed_on_the_same_files_is_not_run_again(project: Path) -> None:
    ran, _ = run(project, 60, "-n", "2")
    assert ran == ["test_quick", "test_slow", "test_weak"]
    ran, said = run(project, 60, "-n", "2")
    assert ran == []
    assert "not run: 3 tests that passed on these files on 20" in said


def test_on_a_fresh_machine_nothing_begins_when_the_time_is_over(project: Path) -> None:
    ran, said = run(project, 1.0)
    assert ran == ["test_slow"]
    assert "NOT RUN: 2 tests that never passed on this machine are over the budget" in said
    assert run(project, 60)[0] == ["test_quick", "test_weak"]
    ran, said = run(project, -1.0, "-n", "2")
    assert ran == []
    assert "not run: 3 tests that passed on these files" in said


def test_other_files_are_proven_in_turns_and_a_failure_is_first_the_next_time(project: Path) -> None:
    assert len(run(project, 60)[0]) == 3
    (project / "pyproject.toml").write_text("# weak")
    ran, said = run(project, 1.0)
    assert ran == ["test_slow"]  # the first of three that waited equally long, though it is over the budget
    assert "NOT RUN: 2 tests are over the budget; they passed on other files on 20" in said
    ran, said = run(project, 1.0)
    assert ran == ["test_quick", "test_weak"]
    assert "1 failed, 1 passed" in said
    assert run(project, 1.0)[0] == ["test_weak"]
    assert run(project, 1.0)[0] == ["test_weak"]  # it failed again
