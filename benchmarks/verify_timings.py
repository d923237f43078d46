"""Times of ``verify``: from empty caches, unchanged, and after one number changed.

Each run is a process with its own cache folder, which starts as a copy of one with the SDK and upstream's
repository, so nothing is downloaded. The stages that a run reports (``report.json``, timings) are printed as
a table of wall and CPU seconds, with the largest resident set of any one process.
The run ``try`` is ``patchkit try`` of a number that no earlier run had.

    python benchmarks/verify_timings.py --prepared CACHE --work FOLDER --runs 3 --markdown timings.md
    python benchmarks/verify_timings.py --prepared CACHE --work FOLDER --upstream b6900 --only unchanged

In the prepared cache ``patchkit sdk install`` and ``patchkit apply`` must have run. ``--work`` keeps the
folder of the last cold run, so scenarios that start from it can be run again alone. If another version of
patchkit made that folder, results of a changed emulator or key are computed again, and the table says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ("cold", "unchanged", "changed", "try")
_LENT = ("upstream.git", "lock.git", "downloads", "sdk")
# The first row of the mul_mat_q table: the number of blocks that should fit at once.
_ROW = re.compile(r"(\[\[tuning\.mmq\]\][^\[]*?\noccupancy = )(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: wall and CPU seconds, in total and per stage; megabytes of its largest process.

    ``by_same``: whether the same version of patchkit made the results that the run started with.
    """

    scenario: str
    clock_s: float
    cpu_s: float
    peak_mb: float
    status: int
    stages: dict[str, tuple[float, float]]
    by_same: bool = True


class Bench:
    """The folders of a series of runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.arch, self.upstream = options.arch, options.upstream
        self.prepared: Path = options.prepared.resolve()
        self.work: Path = options.work.resolve()
        self.more: list[str] = options.verify or []

    def empty(self, name: str) -> Path:
        """A cache with downloads and no results."""
        cache = self.work / name
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        for lent in _LENT:
            source = self.prepared / lent
            if source.is_dir():
                shutil.copytree(source, cache / lent, symlinks=True)
        return cache

    @property
    def made_by(self) -> Path:
        """The file with the digest of the patchkit that made the cold cache."""
        return self.work / "made-by"

    def patchkit(self, cache: Path, *words: str, series: Path | None = None) -> Run:
        """One process of patchkit; its timings if it wrote a report."""
        environment = {**os.environ, "PATCHKIT_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
        where = ["--series-dir", str(series)] if series is not None else []
        argv = [sys.executable, "-m", "patchkit", *words, "--arch", self.arch, "--upstream", self.upstream]
        began = time.monotonic()
        process = subprocess.Popen([*argv, *where], env=environment, cwd=ROOT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        report = self._report(cache, began)
        return Run(
            scenario="",
            clock_s=round(time.monotonic() - began, 1),
            cpu_s=round(used.ru_utime + used.ru_stime, 1),
            peak_mb=round(used.ru_maxrss / 1000, 1),
            status=process.returncode,
            stages={
                stage["name"]: (stage["seconds"], round(sum(one["cpu_s"] for one in stage["spent"]), 1))
                for stage in report.get("timings", ())
            },
        )

    def _report(self, cache: Path, began: float) -> dict[str, Any]:
        age = time.time() - (time.monotonic() - began)
        found = [path for path in cache.glob("evidence/*/report.json") if path.stat().st_mtime >= age - 1]
        newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        return {} if newest is None else dict(json.loads(newest.read_text("utf-8")))

    def run(self, scenario: str) -> Run:
        """One scenario; ``cold`` makes the cache that the others start with."""
        cache = self.work / "cache"
        series = None
        if scenario == "cold":
            cache = self.empty("cache")
            self.made_by.write_text(code_digest(), "ascii")
            self.patchkit(cache, "apply")
        elif scenario == "changed":
            series = self._changed()
            self.patchkit(cache, "apply", "--unlocked", series=series)
        elif scenario == "try":
            series = self._changed()
        words = ("try",) if scenario == "try" else ("verify", *self.more)
        done = self.patchkit(cache, *words, series=series)
        if scenario == "changed":  # the unchanged series' candidate again
            self.patchkit(cache, "apply")
        made_by = self.made_by.read_text("ascii") if self.made_by.is_file() else ""
        return Run(**{**asdict(done), "scenario": scenario, "by_same": made_by == code_digest()})

    def _changed(self) -> Path:
        """A copy of the series with a number in one row of a table that the previous run did not have."""
        series = self.work / "series"
        profile = series / "arch_profiles" / f"{self.arch}.toml"
        before = _ROW.search(profile.read_text("utf-8")) if profile.is_file() else None
        shutil.rmtree(series, ignore_errors=True)
        for name in ("patches", "templates", "arch_profiles"):
            shutil.copytree(ROOT / name, series / name)
        text = profile.read_text("utf-8")
        found = _ROW.search(text)
        if found is None:
            raise SystemExit(f"{profile} has no mul_mat_q row with an occupancy")
        other = next(number for number in "1234" if number not in {found[2], before and before[2]})
        profile.write_text(f"{text[: found.start(2)]}{other}{text[found.end(2) :]}", "utf-8")
        return series


def code_digest() -> str:
    """sha256 over all files of the package, to recognise results of another version."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "patchkit").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(
                f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()


def table(runs: Sequence[Run]) -> list[str]:
    """Stages as rows, runs as columns: wall / CPU seconds."""
    names = list(dict.fromkeys(name for run in runs for name in run.stages))
    lines = [f"| stage | {' | '.join(run.scenario for run in runs)} |", "|---" * (len(runs) + 1) + "|"]
    for name in names:
        cells = [
            f"{run.stages[name][0]:.0f} / {run.stages[name][1]:.0f}" if name in run.stages else "-"
            for run in runs
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append(f"| all | {' | '.join(f'{run.clock_s:.0f} / {run.cpu_s:.0f}' for run in runs)} |")
    lines.append(f"| largest process, MB | {' | '.join(f'{run.peak_mb:.0f}' for run in runs)} |")
    lines.append(f"| starts with results of this patchkit | {' | '.join(_origin(run) for run in runs)} |")
    return lines


def _origin(run: Run) -> str:
    return "yes" if run.by_same else "no, of another version"


def main() -> int:
    """Run the scenarios in turn; return 1 if a run failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepared", type=Path, required=True, help="a cache with the SDK and upstream")
    parser.add_argument("--work", type=Path, required=True, help="folder for the caches of the runs")
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--upstream", default="b11549")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument(
        "--only", action="append", choices=SCENARIOS, help="only this scenario; may be repeated"
    )
    parser.add_argument("--verify", action="append", metavar="WORD", help="additional argument for verify")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    runs: list[Run] = []
    for _ in range(options.runs):
        for scenario in options.only or SCENARIOS:
            runs.append(bench.run(scenario))
            if options.json is not None:
                machine = {"machine": platform.platform(), "cores": os.cpu_count()}
                found = {**machine, "runs": [asdict(run) for run in runs]}
                options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
            text = "\n".join(table(runs)) + "\n"
            if options.markdown is not None:
                options.markdown.write_text(text, "utf-8")
    print("\n".join(table(runs)))
    return int(any(run.status for run in runs))


if __name__ == "__main__":
    sys.exit(main())
