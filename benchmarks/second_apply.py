"""Times the second ``apply`` beside ``git am`` of the exported series on the same tree.

Both start from a warm cache, and ``apply`` finds its candidate there: it hashes every object of it and places
nothing, where ``git am`` writes the commits by line context. Wall is the time of the
process by a monotonic clock; peak is the largest resident set of it or any of its children (wait4).

    python benchmarks/second_apply.py --arch gfx1151 --runs 5 --json second_apply.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# "Must hold" of issues 2 and 13, for the second apply on two cores. Processor time has that of the children.
LIMIT_WALL_S = 2.0
LIMIT_PEAK_MB = 500.0
LIMIT_CPU_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process: seconds and megabytes (10**6 bytes)."""

    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Several runs of the same command."""

    median_s: float
    min_s: float
    max_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result, and what it was measured on."""

    apply: Summary
    git_am: Summary
    ratio_of_medians: float
    runs: int
    arch: str
    base: str
    commits: int
    cores: int
    python: str
    git: str


def main() -> int:
    """Runs the comparison; 1 when a limit is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cache-dir", type=Path, help="a cache that has the pin (default: the user's)")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as scratch:
        result = compare(options.arch, options.runs, options.cache_dir, Path(scratch))
    print(table(result))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(result), indent=2) + "\n", encoding="utf-8")
    apply = result.apply
    is_over = (apply.median_s > LIMIT_WALL_S, apply.cpu_s > LIMIT_CPU_S, apply.peak_mb > LIMIT_PEAK_MB)
    return int(any(is_over))


def compare(arch: str, runs: int, cache_dir: Path | None, scratch: Path) -> Comparison:
    """Measures both, one after the other in each round, so that a busy moment hits both."""
    cache = ["--cache-dir", str(cache_dir)] if cache_dir is not None else []
    patchkit = [sys.executable, "-m", "patchkit"]
    apply = [*patchkit, "apply", "--arch", arch, "--json", "--quiet", *cache]
    made = json.loads(_checked(apply))
    series = scratch / "series"
    _checked([*patchkit, "export", "--arch", arch, "--json", *cache, str(series)])
    repository = json.loads(_checked([*patchkit, "status", "--json", *cache]))["repository"]
    applies, ams = [], []
    for round_ in range(runs):
        applies.append(measure(apply, scratch))
        ams.append(_git_am(repository, made["base"], series, scratch / f"tree-{round_}"))
    ours, theirs = _summary(applies), _summary(ams)
    return Comparison(
        apply=ours,
        git_am=theirs,
        ratio_of_medians=round(ours.median_s / theirs.median_s, 2),
        runs=runs,
        arch=arch,
        base=made["base"],
        commits=len(made["commits"]),
        cores=os.cpu_count() or 0,
        python=platform.python_version(),
        git=_checked(["git", "--version"]).decode().split()[-1],
    )


def _git_am(repository: str, base: str, series: Path, tree: Path) -> Run:
    """``git am`` alone; making and removing the checkout is not counted."""
    _checked(["git", "clone", "--quiet", "--shared", "--no-checkout", repository, str(tree)])
    _checked(["git", "-C", str(tree), "checkout", "--quiet", "--detach", base])
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    patches = sorted(str(path) for path in series.glob("*.patch"))
    run = measure(["git", "-C", str(tree), *who, "am", "--quiet", "--keep-cr", *patches], tree)
    shutil.rmtree(tree)
    return run


def measure(argv: Sequence[str], folder: Path) -> Run:
    """One process from start to end."""
    began = time.monotonic()
    with subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    # Linux gives kibibytes, macOS bytes.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, peak_mb=peak / 1e6)


def _checked(argv: Sequence[str]) -> bytes:
    return subprocess.run(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout


def _summary(runs: Sequence[Run]) -> Summary:
    walls = [run.wall_s for run in runs]
    return Summary(
        median_s=round(statistics.median(walls), 3),
        min_s=round(min(walls), 3),
        max_s=round(max(walls), 3),
        cpu_s=round(statistics.median(run.cpu_s for run in runs), 3),
        peak_mb=round(max(run.peak_mb for run in runs), 1),
    )


def table(result: Comparison) -> str:
    """The figures for a person."""
    rows = [f"{'':<8} {'median':>9} {'min':>9} {'max':>9} {'processor':>9} {'peak':>10}"]
    for name, figures in (("apply", result.apply), ("git am", result.git_am)):
        times = " ".join(
            f"{value:>7.3f} s" for value in (figures.median_s, figures.min_s, figures.max_s, figures.cpu_s)
        )
        rows.append(f"{name:<8} {times} {figures.peak_mb:>7.1f} MB")
    rows.append(f"apply takes {result.ratio_of_medians} times as long as git am ({result.cores} cores)")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
