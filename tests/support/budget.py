"""Heavy proofs in the time there is: not again what passed on the same files, and first what waited longest.

``pytest --budget SECONDS`` keeps for each test when it last passed, on which files, and how long it took.
What never passed on this machine is first, and nothing begins once the time is over: a fresh machine has
not the hour that all of them take. A test that is left out is said so at the end and counts for nothing.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

_LONG_S = 15.0

FOLDERS = ("patchkit", "patches", "templates", "arch_profiles", "upstreams", "tests", "ci")
"""What a test may read here, beside pyproject.toml; tests of documents are quick and always run."""


def digest_of(root: Path) -> str:
    """SHA-256 over the names and bytes of all files that a result may depend on."""
    state = hashlib.sha256()
    files = [root / "pyproject.toml"]
    files += [path for name in FOLDERS for path in (root / name).rglob("*") if path.is_file()]
    for path in sorted(files):
        if "__pycache__" not in path.parts:
            state.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            state.update(path.read_bytes())
    return state.hexdigest()


class Budget:
    """A pytest plugin; ``kept`` is the file of results, ``seconds`` the wall time of all workers together."""

    def __init__(self, root: Path, kept: Path, seconds: float) -> None:
        self._kept = kept
        self._budget = seconds
        self._end = math.inf  # until the tests are chosen
        self._files = digest_of(root)
        self._before: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._same: list[str] = []
        self._over: list[str] = []
        self._began = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Choose; every worker of a run reads the same file and so chooses the same."""
        left = self._budget * int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        chosen = set()
        for item in sorted(items, key=lambda item: self._before.get(item.nodeid, {}).get("passed", "")):
            last = self._before.get(item.nodeid)
            if last is not None and last["files"] == self._files:
                self._same.append(item.nodeid)
            elif left > 0:  # so a test that takes more than the whole budget has its turn, too
                chosen.add(item)
                left -= last["seconds"] if last is not None else 0
            else:
                self._over.append(item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        # What takes longest begins first, or one worker is left alone with it at the end.
        items[:] = sorted(filter(chosen.__contains__, items), key=lambda item: self._expected(item) < _LONG_S)
        self._end = time.monotonic() + self._budget  # collecting is not what the time is for

    def _expected(self, item: pytest.Item) -> float:
        """Seconds that it took the last time; forever where it never passed."""
        return float(self._before.get(item.nodeid, {}).get("seconds", math.inf))

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave out what would begin too late; the first of each worker begins in any case."""
        if self._began and time.monotonic() > self._end:
            self._over.append(item.nodeid)
            return True
        self._began = True
        return None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of pytest-xdist left out: of what was chosen each its own."""
        same, over = node.workeroutput.get("budget", ([], []))
        self._same = same
        self._over = sorted({*self._over, *over})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and end of a test."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep what passed; what did not has no record and is first the next time."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["budget"] = (self._same, self._over)
            return
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        with FileLock(f"{self._kept}.lock"):
            records = json.loads(self._kept.read_text()) if self._kept.is_file() else {}
            for name, seconds in self._seconds.items():
                if name in self._failed:
                    records.pop(name, None)
                else:
                    records[name] = {"passed": now, "files": self._files, "seconds": round(seconds, 2)}
            partial = self._kept.with_suffix(".partial")
            partial.write_text(json.dumps(records, indent=0, sort_keys=True))
            partial.replace(self._kept)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was not run."""
        write = terminalreporter.write_line
        if self._same:
            write(f"not run: {len(self._same)} tests that passed on these files on {self._days(self._same)}")
        never = [name for name in self._over if name not in self._before]
        if never:
            write(f"NOT RUN: {len(never)} tests that never passed on this machine are over the budget")
        if others := [name for name in self._over if name in self._before]:
            when = self._days(others)
            write(f"NOT RUN: {len(others)} tests are over the budget; they passed on other files on {when}")

    def _days(self, names: list[str]) -> str:
        days = sorted({self._before[name]["passed"][:10] for name in names})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
