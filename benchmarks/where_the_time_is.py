"""The kernels with the most time above the bound, by model, test and depth (modelled).

    python benchmarks/where_the_time_is.py [--arch gfx1151] [--model NAME]... [--depth N]...
        [--candidate default|optional] [--parallel N]...

A model is a file of arch_profiles/models without its suffix; the default is all of them. Other models in the
record stay, so it can be made model by model. The first time each takes some minutes of two idle cores, most
of it for attention at depth, and the first model also compiles the kernels. Writes
docs/records/data/where-the-time-is.json, from which benchmarks/records.py makes tables.

With --candidate, the candidate of `patchkit apply` is timed too, and only the speeds of both sides are
written, to docs/records/data/with-patches.json: of the default patches under that name, and as "optional" of
a candidate made with --trust modelled. Speeds of other patches under the same name are removed. With
--parallel N only decode of N parallel sequences is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import DATA, write_record

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace, default_cache_root
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.profile import ArchProfile, load_profile
from patchkit.carry.upstream.exported import ExportedTree, export_pin, export_tree
from patchkit.gpu.modelled.batches import BatchTest, record_batches
from patchkit.gpu.modelled.recording import Recorder
from patchkit.gpu.modelled.reduced import reduced, whole_of_shape
from patchkit.gpu.modelled.roofline import Peaks, peaks_of
from patchkit.gpu.modelled.shape import shape_of_file
from patchkit.gpu.modelled.timeline import Timeline, mean_of, time_batches
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source

_NAME, _WITH_PATCHES = "where-the-time-is", "with-patches"
_DEPTHS = (0, 16384, 65536)
_MICRO_BATCH, _PROMPT = 512, 2048
_MIDDLE = 64  # of 128 generated tokens
_KEPT = 10  # kernels of a test
_FOUR = 4


def main() -> None:
    """Time the models and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--depth", action="append", type=int, default=[])
    parser.add_argument(
        "--candidate", choices=("default", "optional"), help="also time the candidate, under this name"
    )
    parser.add_argument("--parallel", action="append", type=int, default=[], help="with --candidate")
    parser.add_argument("--cache-dir", type=Path)
    asked = parser.parse_args()
    depths = tuple(asked.depth) or _DEPTHS
    with contextlib.ExitStack() as stack:
        bench = Bench.of(asked.arch, asked.cache_dir, stack)
        shapes, head = bench.shapes(asked.model), {"arch": asked.arch, "build": bench.pin.build}
        recorder = bench.record_upstream()
        if asked.candidate:
            candidate, patched = bench.record_candidate()
            sides = {"upstream": recorder, asked.candidate: patched}
            for shape in shapes:
                name, both = _of_both(bench, sides, shape, _tests(depths, asked.parallel))
                _keep_both(head, asked.candidate, candidate.ids, name, both)
                print(f"{name}: {both}")
            return
        for shape in shapes:
            name, found = _of_model(bench, recorder, shape, depths)
            _keep(head, name, found)
            print(f"{name}: " + ", ".join(f"{test} {one['rate']:.0f} t/s" for test, one in found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What models are timed with, on the newest pin of the lock."""

    workspace: Workspace
    arch: str
    profile: ArchProfile
    timings: Timings
    pin: Pin
    stack: contextlib.ExitStack

    @classmethod
    def of(cls, arch: str, cache_dir: Path | None, stack: contextlib.ExitStack) -> Bench:
        """For a GPU; recorders are valid until the stack is closed."""
        series, reporter = find_series_dir(None), NullReporter()
        workspace = Workspace(series=series, cache_root=cache_dir or default_cache_root(), reporter=reporter)
        profile = load_profile(series.profiles, arch)
        compiler = open_compiler(
            find_toolchain(workspace.cache_root, os.environ, reporter), workspace.cache_root, reporter
        )
        return cls(
            workspace=workspace,
            arch=arch,
            profile=profile,
            timings=Timings.of(workspace, profile, compiler),
            pin=max(load_lock(series.lock).pins, key=lambda each: each.build),
            stack=stack,
        )

    @property
    def peaks(self) -> Peaks:
        """The rates of the bound."""
        return peaks_of(self.profile)

    def shapes(self, names: Sequence[str]) -> list[Path]:
        """The models of these names; all checked ones for none."""
        every = sorted((self.workspace.series.profiles / "models").glob("*.toml"))
        if not names:
            return [each for each in every if not shape_of_file(each).is_unchecked]
        return [each for each in every if each.stem in names]

    def record_upstream(self) -> Recorder:
        """A recorder of the pin."""
        return self._record(export_pin(self.pin, self.workspace))

    def record_candidate(self) -> tuple[Candidate, Recorder]:
        """The candidate of the pin, and its recorder."""
        repository, candidate = find_candidate(self.workspace, (self.arch,), self.pin)
        tree = export_tree(repository, candidate.tip, self.workspace.cache_root / "trees")
        return candidate, self._record(tree)

    def _record(self, tree: ExportedTree) -> Recorder:
        source = Source(root=tree.root, tree=tree.tree, build=self.pin.build, commit=tree.commit[:9])
        return self.timings.record(source, self.stack, rocwmma=False)

    def time(
        self, shape: Path, recorder: Recorder, tests: Sequence[BatchTest]
    ) -> tuple[str, Mapping[str, Timeline]]:
        """The model's name, and the times of these tests by name."""
        whole = whole_of_shape(shape)
        model = reduced(whole)
        recorded = record_batches(recorder, model.file(self.workspace.cache_root), tests, "f16")
        timings = self.timings
        times = time_batches(timings.machine, model, recorded, tests, self.peaks, timings.compiler)
        return whole.name, times


def _tests(depths: Sequence[int], parallel: Sequence[int]) -> dict[str, BatchTest]:
    """One micro-batch and one token at each depth, or one token of each parallel sequence."""
    tests = {}
    for depth in depths:
        middle = depth + _MIDDLE
        for many in parallel:
            of_many = BatchTest(name=f"x{many}.{depth}", depth=middle, tokens=1, sequences=many)
            tests[f"tg128 x{many} @ d{depth}"] = of_many
        if not parallel:
            tests[f"pp512 @ d{depth}"] = BatchTest(name=f"pp.{depth}", depth=depth, tokens=_MICRO_BATCH)
            tests[f"tg128 @ d{depth}"] = BatchTest(name=f"tg.{depth}", depth=middle, tokens=1)
    return tests


def _of_both(
    bench: Bench, sides: Mapping[str, Recorder], shape: Path, tests: Mapping[str, BatchTest]
) -> tuple[str, dict[str, dict[str, dict[str, float]]]]:
    """For each test, the speed of each side, its percentage of the bound and its launches."""
    name = ""
    found: dict[str, dict[str, dict[str, float]]] = {test: {} for test in tests}
    for side, recorder in sides.items():
        name, times = bench.time(shape, recorder, list(tests.values()))
        for test, part in tests.items():
            time = times[part.name]
            found[test][side] = {
                "rate": round(time.rate, 2),
                "share": round(time.bound_us / time.us, 3),
                "launches": round(time.launches),
            }
    return name, found


def _of_model(
    bench: Bench, recorder: Recorder, shape: Path, depths: Sequence[int]
) -> tuple[str, dict[str, dict[str, Any]]]:
    tests: dict[str, tuple[BatchTest, list[BatchTest]]] = {}
    for depth in depths:
        last = depth + _PROMPT - _MICRO_BATCH
        first = BatchTest(name=f"pp.{depth}", depth=depth, tokens=_MICRO_BATCH)
        end = BatchTest(name=f"pp.{last}", depth=last, tokens=_MICRO_BATCH)
        text = BatchTest(name=f"tg.{depth}", depth=depth + _MIDDLE, tokens=1)
        tests[f"pp512 @ d{depth}"] = first, [first]
        whole_prompt = BatchTest(name=f"pp2048.{depth}", depth=depth, tokens=_PROMPT)
        tests[f"pp2048 @ d{depth}"] = whole_prompt, [first, end]
        tests[f"tg128 @ d{depth}"] = text, [text]
    parts = list({part.name: part for _, each in tests.values() for part in each}.values())
    whole, times = bench.time(shape, recorder, parts)
    return whole, {
        name: _as_record(mean_of(test, [times[part.name] for part in each]))
        for name, (test, each) in tests.items()
    }


def _as_record(timeline: Timeline) -> dict[str, Any]:
    """Kernels of one name as one, whatever they compute; the first three operations are named."""
    by_kernel: dict[str, dict[str, Any]] = {}
    for line in timeline.merged():
        one = by_kernel.setdefault(
            line.kernel,
            {"kernel": line.kernel, "us": 0.0, "above_us": 0.0, "count": 0, "of": [], "limit": ""},
        )
        one["limit"] = one["limit"] or line.limit
        one["us"] += line.all_us
        one["above_us"] += line.above
        one["count"] += line.count
        if line.what != "-" and len(one["of"]) < _FOUR - 1:
            one["of"].append(line.what)
    most = sorted(by_kernel.values(), key=lambda one: -one["above_us"])[:_KEPT]
    for one in most:
        one.update(us=round(one["us"], 1), above_us=round(one["above_us"], 1), count=round(one["count"]))
    return {
        "rate": round(timeline.rate, 2),
        "us": round(timeline.us, 1),
        "bound_us": round(timeline.bound_us, 1),
        "launches": round(timeline.launches),
        "blas_us": round(timeline.library_us, 1),
        "most": most,
    }


def _keep(head: Mapping[str, object], name: str, found: Mapping[str, object]) -> None:
    models = _kept(_NAME, head).get("models", {})
    models[name] = {**models.get(name, {}), **found}
    command = f"python benchmarks/{Path(__file__).name}"
    write_record(_NAME, command, {**head, "models": dict(sorted(models.items()))})


def _keep_both(
    head: Mapping[str, object],
    side: str,
    patches: Sequence[str],
    name: str,
    found: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> None:
    kept = _kept(_WITH_PATCHES, head)
    models, known = kept.get("models", {}), kept.get("patches", {})
    if known.get(side) != list(patches):
        for tests in models.values():
            for sides in tests.values():
                sides.pop(side, None)
    of_model = models.setdefault(name, {})
    for test, sides in found.items():
        of_model[test] = {**of_model.get(test, {}), **sides}
    command = f"python benchmarks/{Path(__file__).name} --candidate {side}"
    whole = {
        **head,
        "patches": {**known, side: list(patches)},
        "models": dict(sorted(models.items())),
    }
    write_record(_WITH_PATCHES, command, whole)


def _kept(record: str, head: Mapping[str, object]) -> dict[str, Any]:
    """The record as it is; empty if there is none, or none of this GPU and build."""
    path = DATA / f"{record}.json"
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return kept if all(kept.get(word) == value for word, value in head.items()) else {}


if __name__ == "__main__":
    main()
