"""``patchkit tune``: every legal setting through the compiler, and the table that comes of it.

Vocabulary: *headers* are one version of rocWMMA's; with several, a setting must hold with each. The
*report* of a run lies in ``<cache>/tune``, with every candidate; a run for a relative can start from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.sources import SourceTree
from patchkit.build.toolchain import Toolchain, find_toolchain
from patchkit.config.lock import Pin, load_lock
from patchkit.config.profile import ArchProfile, TunedWmma, load_profile
from patchkit.errors import Location, UsageError
from patchkit.fetch.cache import open_cache
from patchkit.fetch.pin import obtain
from patchkit.flow.tune_headers import headers_name, with_headers
from patchkit.flow.tune_kernels import make_overlay, mma_family, mmq_family, tile_family, wmma_family
from patchkit.flow.tune_report import (
    COMPILER_ONLY,
    TuneReport,
    profile_rows,
    write_report,
)
from patchkit.flow.tune_request import KernelName, TuneRequest, choose_settings, compute_units
from patchkit.flow.workspace import Workspace
from patchkit.occupancy.waves import HardwareLimits, limits_of
from patchkit.occupancy.wmma import WmmaVariant
from patchkit.tasks.pool import open_pool, run_tasks
from patchkit.tune.family import Candidate, Family, Setting
from patchkit.tune.mca import find_mca
from patchkit.tune.measure import Bench, Order, is_kept, measure, measure_elsewhere, prepare
from patchkit.tune.outcome import Outcome
from patchkit.tune.profile_text import write_profile
from patchkit.tune.search import Compiled, Verdict, choose
from patchkit.tune.wmma import name_of
from patchkit.vcs.repository import Repository

__all__ = ["TableIncomplete", "TuneRequest", "run_tune", "write_table"]


class TableIncomplete(UsageError):
    """``--write`` with a run that leaves variants out."""

    code = "TUNE_TABLE_INCOMPLETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Everything a measurement needs; one compiler for each version of the headers."""

    request: TuneRequest
    workspace: Workspace
    family: Family
    tree: SourceTree
    limits: HardwareLimits
    compilers: tuple[Compiler, ...]
    mca: Path | None


def run_tune(workspace: Workspace, request: TuneRequest, environ: Mapping[str, str]) -> TuneReport:
    """Compile what is not kept yet, rank, confirm, and write the report.

    Raises:
        UnknownArch, KernelUntunable, UnknownVariant, HeadersUnusable: it cannot be tuned so.
        ReportMissing: ``like`` names a GPU that has no report.
        ToolchainMissing, NothingCompiled: there is no compiler, or it does not compile upstream's kernel.
        SchedulerUnreachable and its like: no workers.
        SourceError, CacheError: the pin could not be had, or the disk refused.
    """
    profile = load_profile(workspace.series.profiles, request.arch)
    limits = limits_of(profile)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    cache = open_cache(workspace.cache_root)
    pinned = obtain(pin, cache=cache, reporter=workspace.reporter)
    repository = cache.peek(workspace.reporter)
    if repository is None:
        raise AssertionError("the pin was obtained, and there is no repository")
    family = _family(workspace, repository, pinned.commit, pin, profile, request.kernel)
    settings = choose_settings(workspace, request, family, pin.build, profile)
    toolchains = [toolchain]
    if family.rocwmma:
        toolchains = with_headers(toolchain, request.arch, request.headers)
    run = _Run(
        request=request,
        workspace=workspace,
        family=family,
        tree=make_overlay(
            repository, pinned.commit, family.sources(settings), workspace.cache_root / "trees"
        ),
        limits=limits,
        compilers=tuple(open_compiler(each, workspace.cache_root, workspace.reporter) for each in toolchains),
        mca=find_mca(toolchain, workspace.reporter),
    )
    verdicts = _search(run, settings, profile)
    report = TuneReport(
        arch=request.arch,
        kernel=request.kernel,
        parameters=family.parameters,
        build=pin.build,
        compiler=f"clang {toolchain.clang_version}",
        headers=tuple(headers_name(each) for each in toolchains) if family.rocwmma else ("without rocWMMA",),
        mca=run.mca is not None,
        like=request.like,
        complete=not request.variants and request.near is None,
        verdicts=tuple(verdicts),
        current=_current(profile) if request.kernel == "wmma" else {},
    )
    write_report(workspace.cache_root, report)
    return report


def _family(
    workspace: Workspace,
    repository: Repository,
    base: str,
    pin: Pin,
    profile: ArchProfile,
    kernel: KernelName,
) -> Family:
    match kernel:
        case "wmma":
            return wmma_family(workspace, repository, base, pin, profile)
        case "tile":
            return tile_family(repository, base, profile)
        case "mma":
            return mma_family(repository, base, profile)
        case "mmq":
            return mmq_family(repository, base, profile)


def write_table(workspace: Workspace, report: TuneReport, today: date) -> bool:
    """Put the winning table into the profile; whether the file changed.

    Raises:
        TableIncomplete: the run was not about every variant.
        ProfileNotWritten, CacheError: the file cannot be changed.
    """
    path = workspace.series.profiles / f"{report.arch}.toml"
    if not report.complete or report.kernel != "wmma":
        raise TableIncomplete(
            "only a run over every variant of the wmma kernel gives a table",
            where=Location(path=str(path)),
            hint=f"patchkit tune --arch {report.arch} --write",
        )
    profile = load_profile(workspace.series.profiles, report.arch)
    measured = {name: row.measured_on for name, row in _rows(profile).items()}
    return write_profile(path, profile_rows(report, today, measured))


def _search(run: _Run, settings: Mapping[str, Sequence[Setting]], profile: ArchProfile) -> list[Verdict]:
    family = run.family
    units = {
        family.unit(Candidate(variant, setting)): None
        for variant, chosen in settings.items()
        for setting in [family.baseline(variant), *chosen]
    }
    compiled = _compile(run, list(units), "compiling candidates")
    checks: dict[str, tuple[Outcome, ...]] = {}

    def ask(wanted: Sequence[str]) -> Compiled:
        missing = [unit for unit in wanted if unit not in checks]
        if missing:
            checks.update(_compile(run, missing, "confirming"))
        return checks

    measured = _measured(profile) if family.name == "wmma" else {}
    units_of_gpu = compute_units(profile)
    return [
        choose(
            family,
            variant,
            chosen,
            compiled,
            ask,
            limits=run.limits,
            compute_units=units_of_gpu,
            measured=measured.get(variant),
        )
        for variant, chosen in settings.items()
    ]


def _compile(run: _Run, units: Sequence[str], what: str) -> dict[str, tuple[Outcome, ...]]:
    """The outcomes of each unit, in the order of the headers; every one is kept as soon as it is there."""
    request, reporter = run.request, run.workspace.reporter
    benches = {compiler.toolchain: _bench(run, compiler, units) for compiler in run.compilers}
    orders = {
        _order(run, bench, unit): (unit, index)
        for unit in units
        for index, bench in enumerate(benches.values())
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
                stop=run.compilers[0].stop,
            )
        )
    by_place = {orders[order]: outcome for order, outcome in found.items()}
    return {unit: tuple(by_place[unit, index] for index in range(len(benches))) for unit in units}


def _measure_here(benches: Mapping[Toolchain, Bench], order: Order) -> Outcome:
    return measure(order.unit, benches[order.toolchain])


def _bench(run: _Run, compiler: Compiler, units: Sequence[str]) -> Bench:
    bench = Bench(
        compiler=compiler,
        tree=run.tree,
        limits=run.limits,
        kernel=run.family.kernel,
        rocwmma=run.family.rocwmma,
        mca=run.mca,
        again=run.request.again,
    )
    if run.family.prelude is None or all(is_kept(unit, bench) for unit in units):
        return bench
    run.workspace.reporter.step("precompiling what the candidates include")
    return prepare(bench, run.family.prelude)


def _order(run: _Run, bench: Bench, unit: str) -> Order:
    return Order(
        toolchain=bench.compiler.toolchain,
        cache_root=run.workspace.cache_root,
        tree=run.tree.root,
        limits=bench.limits,
        kernel=bench.kernel,
        rocwmma=bench.rocwmma,
        mca=bench.mca,
        again=bench.again,
        prelude=bench.prelude,
        unit=unit,
    )


def _rows(profile: ArchProfile) -> dict[str, TunedWmma]:
    return {name_of(WmmaVariant(row.head_size, row.ncols, row.acc)): row for row in profile.tuned_wmma}


def _current(profile: ArchProfile) -> dict[str, Setting]:
    return {name: (row.kq_stride, row.nwarps) for name, row in _rows(profile).items()}


def _measured(profile: ArchProfile) -> dict[str, Setting]:
    """The settings that a profile has from hardware; the others say that a compiler gave the figures."""
    return {
        name: (row.kq_stride, row.nwarps)
        for name, row in _rows(profile).items()
        if not row.measured_on.startswith(COMPILER_ONLY)
    }
