"""Candidates through a real compiler: a family with a known best, and candidates that do not compile."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from strix_halo import LIMITS

from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.process import ToolStopped
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.units import SourceTree
from patchkit.tune import measure as measuring
from patchkit.tune.family import UNIT_FOLDER, Candidate, Family, Setting, Traits
from patchkit.tune.measure import Bench, find_mca, is_kept, measure, prepare
from patchkit.tune.outcome import Failure, Figures
from patchkit.tune.search import choose

pytestmark = pytest.mark.hip

# Each lane carries n sums through a loop whose other work does not depend on n: the more sums, the less
# of that work per sum, until 256 registers do not hold them and the sums spill.
SUMS = """
#include <hip/hip_runtime.h>
template <int n>
__global__ void __launch_bounds__(128) sums(const float * x, float * y, int rows) {
    float sum[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
        sum[i] = x[i];
    }
#pragma clang loop unroll(disable)
    for (int r = 0; r < rows; ++r) {
        float v = x[r + threadIdx.x];
#pragma unroll
        for (int k = 0; k < 64; ++k) {
            v = __builtin_fmaf(v, 1.5f, x[k]);
        }
#pragma unroll
        for (int i = 0; i < n; ++i) {
            sum[i] = __builtin_fmaf(sum[i], v, 1.0f);
        }
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
        y[i*128 + threadIdx.x] = sum[i];
    }
}
"""


@dataclass(frozen=True, kw_only=True)
class Sums(Family):
    """The baseline spills; the known best is the largest setting that does not."""

    kernel = "sums"
    prelude = f"{UNIT_FOLDER}/sums.cuh"
    limits: HardwareLimits = LIMITS
    rows: Mapping[str, Setting] = field(default_factory=lambda: {"only": (400,)})
    parameters: tuple[str, ...] = ("n",)

    def legal(self, _variant):
        return ((8,), (32,), (96,), (400,))

    def traits(self, candidate):
        return Traits(threads=128, rows=1, columns=candidate.setting[0])

    def units(self, candidate):
        return (f"{UNIT_FOLDER}/sums-{candidate.setting[0]}.cu",)

    def shared_sources(self):
        return {self.prelude: f"#pragma once\n{SUMS}".encode()}

    def instances(self, candidate):
        kind = "void (*pick())(const float *, float *, int)"
        body = f'#include "sums.cuh"\n{kind}; {kind} {{ return sums<{candidate.setting[0]}>; }}\n'
        yield self.unit(candidate), body.encode()


@pytest.fixture
def sums(bench):
    """The family, and a bench with all of its units."""
    return Sums(), bench(Sums().sources({"only": Sums().legal("only")}))


@pytest.fixture
def bench(hip_toolchain, tmp_path):
    def make(files: dict[str, bytes], kernel: str = "sums", cache=tmp_path / "cache") -> Bench:
        for path, data in files.items():
            target = tmp_path / "tree" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        (tmp_path / "tree" / "ggml" / "include").mkdir(parents=True, exist_ok=True)
        return Bench(
            compiler=open_compiler(hip_toolchain, cache, NullReporter()),
            tree=SourceTree(tmp_path / "tree"),
            limits=LIMITS,
            kernel=kernel,
            mca=find_mca(hip_toolchain, NullReporter()),
        )

    return make


def _unit(name: str) -> str:
    return f"{UNIT_FOLDER}/{name}.cu"


def test_the_known_best_of_a_synthetic_family_is_found(sums) -> None:
    family, made = sums
    candidates = [Candidate("only", setting) for setting in family.legal("only")]
    compiled = {family.unit(each): measure(family.unit(each), made) for each in candidates}
    figures = {each.setting[0]: compiled[family.unit(each)] for each in candidates}
    assert all(isinstance(one, Figures) for one in figures.values())
    assert figures[400].spills > 0
    assert figures[96].spills == figures[8].spills == 0
    assert figures[96].vgprs > figures[8].vgprs
    verdict = choose(
        family,
        "only",
        family.legal("only"),
        compiled,
        lambda _units: {},
        limits=made.limits,
        compute_units=40,
    )
    assert verdict.best.candidate.setting == (96,)
    assert [each.candidate.setting[0] for each in verdict.order] == [96, 32, 8, 400]


def test_errors_and_crashes_of_the_compiler_are_results_that_are_kept(bench) -> None:
    made = bench(
        {
            _unit("refused"): b"#error not today\n",
            _unit("crashes"): b"#pragma clang __debug crash\n",
            _unit("empty"): b"int host;\n",
        }
    )
    outcomes = {name: measure(_unit(name), made) for name in ("refused", "crashes", "empty")}
    assert {name: outcome.code for name, outcome in outcomes.items()} == {
        "refused": "COMPILE_FAILED",
        "crashes": "COMPILER_CRASHED",
        "empty": "TUNE_KERNEL_UNTUNABLE",
    }
    # Compilers that are told to stop compile nothing: what is known comes from the store.
    made.compiler.stop.set()
    assert {name: measure(_unit(name), made) for name in outcomes} == outcomes


def test_a_failure_is_tried_again_only_when_asked(sums, monkeypatch) -> None:
    family, made = sums
    unit = family.unit(Candidate("only", (8,)))
    monkeypatch.setattr(measuring, "_TIMEOUT_S", 0.01)
    slow = measure(unit, made)
    assert isinstance(slow, Failure)
    assert slow.code == "TOOL_TIMEOUT"
    monkeypatch.undo()
    assert measure(unit, made) == slow
    good = measure(unit, replace(made, again=True))
    assert isinstance(good, Figures)
    assert measure(unit, made) == good


def test_a_precompiled_prelude_changes_no_figure(bench, tmp_path) -> None:
    family = Sums()
    files = family.sources({"only": family.legal("only")})
    plain, other = bench(files), bench(files, cache=tmp_path / "other")
    quick = prepare(other, str(family.prelude))
    assert quick.prelude is not None
    assert prepare(other, str(family.prelude)).prelude == quick.prelude
    unit = family.unit(Candidate("only", (96,)))
    assert not is_kept(unit, quick)
    figures = [replace(measure(unit, each), seconds=0.0) for each in (plain, quick)]
    assert figures[0] == figures[1]
    assert is_kept(unit, quick)


def test_a_prelude_that_does_not_compile_is_left_out(bench) -> None:
    made = bench({_unit("plain"): b"int x;\n", f"{UNIT_FOLDER}/bad.cuh": b"#error no\n"})
    assert prepare(made, f"{UNIT_FOLDER}/bad.cuh").prelude is None


def test_an_interrupt_loses_only_what_is_under_way(sums) -> None:
    family, made = sums
    units = [family.unit(Candidate("only", setting)) for setting in ((8,), (32,), (96,))]
    stop = made.compiler.stop
    with open_pool("threads", 1) as pool:
        results = run_tasks(
            pool, partial(_measure_on, made), units, reporter=NullReporter(), what="x", unit="x", stop=stop
        )
        first, outcome = next(results)
        results.close()  # as Ctrl-C: the generator is left, the compilers end
    assert stop.is_set()
    again = replace(made, compiler=replace(made.compiler, stop=threading.Event()))
    assert measure(first, again) == outcome
    with pytest.raises(ToolStopped):
        measure(units[2], made)
    assert isinstance(measure(units[2], again), Figures)


def _measure_on(bench: Bench, unit: str):
    return measure(unit, bench)


def test_another_process_gives_the_same_figures(sums) -> None:
    family, made = sums
    unit = family.unit(Candidate("only", (32,)))
    with open_pool("processes", 1) as pool:
        ((_, there),) = run_tasks(
            pool, partial(_measure_on, made), [unit], reporter=NullReporter(), what="x", unit="x"
        )
    assert there == measure(unit, made)  # and that comes from the store which both share
