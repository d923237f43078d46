"""What every test stands on: an isolated environment, and real pins in a cache shared by all workers.

The pins are the lock's default and build 6900, where most tests are, as its series is the smallest to
compile. That cache, ``warm_cache``, is made once per machine under ``$PATCHKIT_TEST_CACHE`` (default:
``patchkit-tests`` in the user cache folder) and only read afterwards. A test that writes to a cache asks
for ``pin_cache``, a copy.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from budget import Budget
from caches import link_kept
from command_line import run_patchkit
from filelock import FileLock
from hypothesis import settings

from patchkit.base.jobs import cores

ROOT = Path(__file__).resolve().parents[1]

# Read before any test isolates the environment.
_USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_TEST_CACHE = Path(os.environ.get("PATCHKIT_TEST_CACHE") or _USER_CACHE / "patchkit-tests")


# A slow machine is no bug, and a red CI must be red again when it is run again.
settings.register_profile("patchkit", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("patchkit")


# Every worker imports every test, and pytest rewrites the asserts of each: not kept, that costs each run anew
# 7 of the 10 s that a worker needs before its first test. So is what programs that are started import, below.
sys.dont_write_bytecode = False

# As patchkit's own program (patchkit.cli.app): its commands run in the process of the tests.
gc.set_threshold(100_000, 20, 20)


# nohup ignores SIGHUP, a background job of a script Ctrl-C, and programs that are started inherit that, but
# not a handler. What is ignored here stays without effect here; the programs under test get what users have.
for _sign in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_sign) is signal.SIG_IGN:
        signal.signal(_sign, lambda _number, _frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--budget``: tests/support/budget.py. ``--every-case``: test_emulated_operations.py."""
    parser.addoption("--budget", type=float, metavar="SECONDS", help="run what waited longest, in this time")
    parser.addoption("--every-case", action="store_true", help="all cases of upstream's operations: hours")


def pytest_configure(config: pytest.Config) -> None:
    """The budget, where one is given."""
    seconds = config.getoption("--budget")
    if seconds is not None:
        _TEST_CACHE.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Budget(ROOT, _TEST_CACHE / "passed.json", seconds))


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: a tenth of the time a worker waits for git."""
    return cores() + 1


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository under test."""
    return ROOT


@pytest.fixture(scope="session")
def bare_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For ordinary tests and for those marked extra_tools a folder with the programs they may call."""
    programs = runpy.run_path(str(ROOT / "ci" / "programs.py"))
    path, groups_of = os.environ["PATH"], programs["GROUPS_OF"]
    # What is missing of the extra tools is said by the test that calls it.
    absent = set(programs["missing"](programs["EXTRA"], path))
    folders = {}
    for name in ("tests", "extra_tools"):
        groups = {group: calls for group, calls in groups_of[name].items() if group not in absent}
        folders[name] = programs["link_programs"](tmp_path_factory.mktemp("bare"), groups, path)
    return folders


@pytest.fixture(autouse=True)
def isolated_environment(
    request: pytest.FixtureRequest,
    bare_folders: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of the user's reaches a test: no home, no git settings, no zone, no locale, no folder.

    Nor any program that the README does not ask for; a test that needs more is marked ``extra_tools``.
    """
    home = tmp_path_factory.mktemp("home")
    marks = {mark.name for mark in request.node.iter_markers()}
    if not marks & {"hip", "cpu_build"}:
        monkeypatch.setenv("PATH", str(bare_folders["extra_tools" if "extra_tools" in marks else "tests"]))
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_", "PATCHKIT_", "LC_")) and name != "GIT_SSL_CAINFO":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, folder in (("CACHE_HOME", ".cache"), ("CONFIG_HOME", ".config"), ("DATA_HOME", ".local/share")):
        monkeypatch.setenv(f"XDG_{name}", str(home / folder))
    # Or each program that a test starts compiles all of patchkit: half a second.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("LANG", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(home)


@pytest.fixture(scope="session")
def test_cache() -> Path:
    """A folder that outlives the run, for downloads; take a FileLock in it before writing."""
    _TEST_CACHE.mkdir(parents=True, exist_ok=True)
    return _TEST_CACHE


@pytest.fixture(scope="session")
def warm_cache(test_cache: Path) -> Path:
    """A cache folder holding both pins, verified, to be read only. Fails when one cannot be had."""
    folder = test_cache / "warm"
    with FileLock(test_cache / "warm.lock"):
        done = subprocess.run(
            [sys.executable, "-c", _OBTAIN, str(ROOT / "patches" / "upstream.lock"), str(folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        pytest.fail(
            f"a pin could not be had for the tests (leave them out with -m 'not upstream'):\n{done.stderr}"
        )
    return folder


# In a process of its own: the session may run under an environment that some test has isolated.
_OBTAIN = """
import sys
from pathlib import Path
from patchkit.carry.series.lock import load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.base.reporter import NullReporter

lock = load_lock(Path(sys.argv[1]))
cache = open_cache(Path(sys.argv[2]))
for pin in (lock.pin("b6900"), lock.pin(None)):
    obtain(pin, cache=cache, source="auto", upstream_url=None, reporter=NullReporter())
"""


@pytest.fixture(scope="session")
def sdk_folder(test_cache: Path) -> Path:
    """A cache folder with the SDK, installed once."""
    folder = test_cache / "sdk"
    with FileLock(test_cache / "sdk.lock"):
        argv = [sys.executable, "-m", "patchkit", "sdk", "install", "--cache-dir", str(folder)]
        done = subprocess.run(
            [*argv, "--rocwmma", "stand-in"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        pytest.fail(f"the SDK could not be installed (leave its tests out with -m 'not hip'):\n{done.stderr}")
    return folder


@pytest.fixture(scope="session")
def hip_toolchain(sdk_folder: Path):
    """A ROCm of this machine, or the SDK in the test cache."""
    from patchkit.base.reporter import NullReporter
    from patchkit.toolchain.hip import find_toolchain

    return find_toolchain(sdk_folder, {}, NullReporter())


@pytest.fixture(scope="session")
def gates_cache(test_cache: Path, warm_cache: Path, hip_toolchain) -> Path:
    """A cache with the pin and the SDK, kept between runs: what gates compile in it is compiled once.

    Tests move the candidate's branch there: whoever needs it takes the FileLock ``gates.lock`` beside it.
    """
    folder = test_cache / "gates"
    with FileLock(test_cache / "gates.lock"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "upstream.git").is_dir():
            shutil.copytree(warm_cache / "upstream.git", folder / "upstream.git.partial")
            (folder / "upstream.git.partial").rename(folder / "upstream.git")
        if hip_toolchain.kind == "sdk" and not (folder / "sdk").exists():
            (folder / "sdk").symlink_to(test_cache / "sdk" / "sdk")
    return folder


@pytest.fixture
def pin_cache(warm_cache: Path, tmp_path: Path) -> Path:
    """A private copy of the warm cache; git never rewrites an object, so those are linked."""
    return shutil.copytree(warm_cache, tmp_path / "pin-cache", copy_function=link_kept)


@pytest.fixture(scope="session")
def shipped_apply(warm_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with gfx1151's candidate on build 6900, to be read or copied, and what apply said of it."""
    folder = tmp_path_factory.mktemp("shipped") / "cache"
    shutil.copytree(warm_cache, folder, copy_function=link_kept)
    done = run_patchkit("apply", "--arch", "gfx1151", "--upstream", "b6900", "--json", "--cache-dir", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.fixture
def candidate_cache(shipped_apply: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A private copy of the cache in which the candidate of gfx1151 is."""
    return shutil.copytree(shipped_apply[0], tmp_path / "candidate-cache", copy_function=link_kept)


@pytest.fixture
def applied(shipped_apply: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """The document of the apply that made it."""
    return shipped_apply[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the real pin carries the mark ``upstream``."""
    for item in items:
        if {"warm_cache", "pin_cache"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("upstream")
