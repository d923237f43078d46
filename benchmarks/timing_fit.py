"""Errors of the fitted parameters of a timing file, with and without the measurements of each source.

    python benchmarks/timing_fit.py kernels.toml [--arch gfx1151] [--sets 24] [--cache-dir DIR]

Draws sets of parameters around those of the file, models every measured point with each set, and prints the
errors of the best set; then, for each source, those of the set that is best without it (leave one source
out). A source is the part of a row's `source` before the first "#" or blank.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from patchkit.base.jobs import run_parallel
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace, default_cache_root
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.exported import export_pin
from patchkit.gpu.modelled.against import (
    Published,
    Release,
    errors_of,
    load_published,
    points_of,
)
from patchkit.gpu.modelled.compare import recorders_of
from patchkit.gpu.modelled.machine import Machine
from patchkit.gpu.modelled.operation import kind_of, time_recorded
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source

_SPREAD = 1.35  # parameters are drawn within this factor of the file's


def _drawn(machine: Machine, seed: int) -> Machine:
    """The machine with other fitted parameters; seed 0: the file's."""
    chance = random.Random(seed)  # noqa: S311  no secret
    of = machine.file.figures
    drawn = {
        name: replace(getattr(of, name), value=value * _SPREAD ** chance.uniform(-1, 1))
        for name, value in of.values().items()
        if getattr(of, name).fitted and seed
    }
    return replace(machine, file=replace(machine.file, figures=replace(of, **drawn)))


def _source(row: Published) -> str:
    return row.source.replace("#", " ").split()[0]


def _ratio_errors(times: Mapping[tuple[int, str], tuple[float, float]]) -> list[float]:
    rows = sorted({index for index, _ in times})
    pairs = [(times.get((index, "before")), times.get((index, "after"))) for index in rows]
    return [b[1] / a[1] / (b[0] / a[0]) - 1 for b, a in pairs if b is not None and a is not None]


def _loss(times: Mapping[tuple[int, str], tuple[float, float]]) -> float:
    absolute = [abs(math.log(modelled / measured)) for measured, modelled in times.values()]
    ratios = [abs(math.log1p(error)) for error in _ratio_errors(times)]
    return statistics.mean(absolute) + (statistics.mean(ratios) if ratios else 0.0)


def _tree(workspace: Workspace, lock: Lock, release: Release) -> Source:
    exported = export_pin(lock.pin(build_name(release.build)), workspace)
    return Source(root=exported.root, tree=exported.tree, build=release.build, commit=exported.commit[:9])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--sets", type=int, default=24)
    parser.add_argument("--cache-dir", type=Path, default=default_cache_root(os.environ))
    options = parser.parse_args()
    reporter = NullReporter()
    series = find_series_dir(None)
    compiler = open_compiler(
        find_toolchain(options.cache_dir, os.environ, reporter), options.cache_dir, reporter
    )
    workspace = Workspace(series=series, cache_root=options.cache_dir, reporter=reporter)
    timings = Timings.of(workspace, load_profile(series.profiles, options.arch), compiler)
    rows = load_published(options.measured)
    lock = load_lock(series.lock)
    points, _ = points_of(rows, timings.machine, lock.pins)
    recorded = []
    for several, recorder in recorders_of(timings, partial(_tree, workspace, lock), points):
        recorded += [(point, recorder.record(point.case)) for point in several]
    usable = [
        (point, found)
        for point, found in recorded
        if found is not None
        and not found.products
        and point.kernel in [kind_of(head.kernel) for head in found.heads]
    ]

    def evaluate(seed: int) -> dict[tuple[int, str], tuple[float, float]]:
        machine = _drawn(timings.machine, seed)
        return {
            (point.index, point.side): (
                point.measured_us,
                time_recorded(machine, point.case, found, compiler, repeated=True).us,
            )
            for point, found in usable
        }

    with contextlib.suppress(KeyboardInterrupt):
        sets = run_parallel(
            range(options.sets), evaluate, reporter=reporter, what="sets of parameters", unit="sets"
        )
        _print(sets, {point.index: _source(rows[point.index]) for point, _ in usable})


def _print(sets: Sequence[dict[tuple[int, str], tuple[float, float]]], sources: Mapping[int, str]) -> None:
    def show(name: str, times: Mapping[tuple[int, str], tuple[float, float]]) -> None:
        errors = errors_of([modelled / measured - 1 for measured, modelled in times.values()])
        ratios = _ratio_errors(times)
        note = f", {len(ratios)} ratios {errors_of(ratios).median:.1%}" if ratios else ""
        print(
            f"{name:<44} {errors.points:>4} points: median {errors.median:.1%}, 90th {errors.p90:.1%}, "
            f"bias {errors.bias:.2f}{note}"
        )

    show("parameters of the file", sets[0])
    show("best set", min(sets, key=_loss))
    held_out: dict[tuple[int, str], tuple[float, float]] = {}
    for source in sorted(set(sources.values())):
        without = [{key: pair for key, pair in times.items() if sources[key[0]] != source} for times in sets]
        best = min(range(len(sets)), key=lambda number: _loss(without[number]) if without[number] else 0.0)
        own = {key: pair for key, pair in sets[best].items() if sources[key[0]] == source}
        show(f"without {source}, on it (set {best})", own)
        held_out |= own
    show("leave one source out, all points", held_out)


if __name__ == "__main__":
    main()
