"""The units of a tuning run through compilers, one for each version of the headers, in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from patchkit.build.compiler import Compiler
from patchkit.build.sources import SourceTree
from patchkit.build.toolchain import Toolchain
from patchkit.flow.tune_request import TuneRequest
from patchkit.flow.workspace import Workspace
from patchkit.occupancy.waves import HardwareLimits
from patchkit.tasks.pool import open_pool, run_tasks
from patchkit.tune.family import Family
from patchkit.tune.measure import Bench, Order, is_kept, measure, measure_elsewhere, prepare
from patchkit.tune.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """Everything a measurement needs but the unit and the compiler."""

    request: TuneRequest
    workspace: Workspace
    family: Family
    tree: SourceTree
    limits: HardwareLimits
    mca: Path | None


def compile_units(
    bench: Workbench, compilers: Sequence[Compiler], units: Sequence[str], what: str
) -> dict[str, tuple[Outcome, ...]]:
    """The outcomes of each unit, in the order of the compilers; every one is kept as soon as it is there.

    Raises:
        SCHEDULER_UNREACHABLE and its like: no workers.
        ToolMissing, ToolStopped, CacheError: nothing was learnt about a unit.
    """
    request, reporter = bench.request, bench.workspace.reporter
    benches = {compiler.toolchain: _bench(bench, compiler, units) for compiler in compilers}
    orders = {
        _order(bench, each, unit): (unit, index)
        for unit in units
        for index, each in enumerate(benches.values())
    }
    # A worker of a cluster has folders in common with this process, and nothing else.
    here = request.scheduler is None
    work = partial(_measure_here, benches) if here else measure_elsewhere
    with open_pool(request.scheduler, kind="threads", workers=request.jobs) as pool:
        found = dict(
            run_tasks(
                pool,
                work,
                list(orders),
                reporter=reporter,
                what=what,
                unit="candidates",
                stop=compilers[0].stop,
            )
        )
    by_place = {orders[order]: outcome for order, outcome in found.items()}
    return {unit: tuple(by_place[unit, index] for index in range(len(benches))) for unit in units}


def _measure_here(benches: Mapping[Toolchain, Bench], order: Order) -> Outcome:
    return measure(order.unit, benches[order.toolchain])


def _bench(bench: Workbench, compiler: Compiler, units: Sequence[str]) -> Bench:
    made = Bench(
        compiler=compiler,
        tree=bench.tree,
        limits=bench.limits,
        kernel=bench.family.kernel,
        rocwmma=bench.family.rocwmma,
        mca=bench.mca,
        again=bench.request.again,
    )
    if bench.family.prelude is None or all(is_kept(unit, made) for unit in units):
        return made
    bench.workspace.reporter.step("precompiling what the candidates include")
    return prepare(made, bench.family.prelude)


def _order(bench: Workbench, made: Bench, unit: str) -> Order:
    return Order(
        toolchain=made.compiler.toolchain,
        cache_root=bench.workspace.cache_root,
        tree=bench.tree.root,
        limits=made.limits,
        kernel=made.kernel,
        rocwmma=made.rocwmma,
        mca=made.mca,
        again=made.again,
        prelude=made.prelude,
        unit=unit,
    )
