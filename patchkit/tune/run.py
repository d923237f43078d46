"""``patchkit tune``: compiles all legal settings of a kernel, ranks them, and reports the best."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import ArchProfile, load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.modelled.machine import load_machine
from patchkit.gpu.modelled.recording import as_measured
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import SourceTree, library_folder
from patchkit.tune.cost import Modelled
from patchkit.tune.family import Candidate, Family, Setting, Site, TimedFamily
from patchkit.tune.measure import Bench, find_mca, is_kept, measure, prepare
from patchkit.tune.outcome import Outcome
from patchkit.tune.profile_text import write_profile
from patchkit.tune.registry import make_family, rows_by_time
from patchkit.tune.report import TuneReport, write_report
from patchkit.tune.request import TuneRequest, choose_settings, compute_units, exclusions
from patchkit.tune.search import Compiled, Verdict, choose, settings_to_time
from patchkit.tune.timed import NOT_TIMED, Timing, time_settings, why_not_timed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The inputs of a run."""

    request: TuneRequest
    workspace: Workspace
    family: Family
    tree: SourceTree
    mca: Path | None
    compiler: Compiler
    profile: ArchProfile


def _compile(run: _Run, units: Sequence[str], what: str) -> dict[str, Outcome]:
    """The outcome of each unit; each is cached as soon as it is available.

    Raises:
        ToolMissing, ToolStopped, CacheError: a unit could not be measured.
    """
    bench = _bench(run, units)
    with open_pool("threads", run.request.jobs) as pool:
        return dict(
            run_tasks(
                pool,
                partial(measure, bench=bench),
                units,
                reporter=run.workspace.reporter,
                what=what,
                unit="candidates",
                stop=run.compiler.stop,
            )
        )


def _bench(run: _Run, units: Sequence[str]) -> Bench:
    bench = Bench(
        compiler=run.compiler,
        tree=run.tree,
        limits=run.family.limits,
        kernel=run.family.kernel,
        mca=run.mca,
        again=run.request.again,
    )
    if run.family.prelude is None or all(is_kept(unit, bench) for unit in units):
        return bench
    run.workspace.reporter.step("precompiling the candidates' headers")
    return prepare(bench, run.family.prelude)


def run_tune(workspace: Workspace, request: TuneRequest, environ: Mapping[str, str]) -> TuneReport:
    """Compile candidates that are not cached, rank them, confirm the best, and write the report.

    Raises:
        ARCH_UNKNOWN, TUNE_KERNEL_UNTUNABLE, TUNE_OPTIONS: the request is not possible.
        ToolchainMissing, TUNE_KERNEL_UNTUNABLE: there is no compiler, or it does not compile upstream's
            kernel.
        SourceError, CacheError: the pin could not be fetched, or a disk operation failed.
    """
    profile = load_profile(workspace.series.profiles, request.arch)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    cache = open_cache(workspace.cache_root)
    base = obtain(pin, cache=cache, reporter=workspace.reporter)
    repository = cache.peek(workspace.reporter)
    if repository is None:
        raise AssertionError("the pin was obtained, and there is no repository")
    site = Site(workspace=workspace, repository=repository, base=base, pin=pin, profile=profile)
    family = make_family(request.kernel, site)
    settings = choose_settings(request, family)
    source = site.source.root
    overlay = overlay_tree(source, family.sources(settings), "tune", below=library_folder(source))
    run = _Run(
        request=request,
        workspace=workspace,
        family=family,
        tree=SourceTree(overlay),
        mca=find_mca(toolchain, workspace.reporter),
        # Compile as the code that is timed. With the loops that LLVM 22 unrolls, 64 rows of Q4_0 look worse
        # than upstream's in all figures, but were measured 15 to 19 % faster (PR 28195).
        compiler=as_measured(open_compiler(toolchain, workspace.cache_root, workspace.reporter)),
        profile=profile,
    )
    clock = _clock(run, site, settings)
    verdicts = _search(run, settings, clock)
    left = [verdict.variant for verdict in verdicts if verdict.upstream.modelled is None]
    report = TuneReport(
        arch=request.arch,
        kernel=request.kernel,
        build=pin.build,
        compiler=f"clang {toolchain.clang_version}",
        excluded=exclusions(family, request),
        parameters=family.parameters,
        mca=run.mca is not None,
        complete=not request.variants and request.near is None,
        verdicts=tuple(verdicts),
        current=family.current(profile),
        untimed=f"{NOT_TIMED}: {', '.join(left)}" if left else None,
    )
    if isinstance(clock, str):
        report = replace(report, untimed=clock)
    write_report(workspace.cache_root, report)
    return report


def write_table(workspace: Workspace, report: TuneReport, today: date) -> bool:
    """Write the best settings to the profile; returns whether the file changed.

    Raises:
        TUNE_OPTIONS: the run did not cover all variants, or was not timed.
        TUNE_PROFILE_NOT_WRITTEN, CacheError: the file cannot be changed.
    """
    profiles = workspace.series.profiles
    path = profiles / f"{report.arch}.toml"
    if not report.complete or not report.is_timed:
        raise UsageError(
            "cannot write the table: the run must cover all variants, and be timed",
            code="TUNE_OPTIONS",
            where=Location(path=str(path)),
            why=report.untimed if report.complete else None,
            hint=f"patchkit tune --arch {report.arch} --write",
        )
    rows = rows_by_time(report.kernel, report, load_profile(profiles, report.arch), today)
    return write_profile(path, report.kernel, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """The timing model for the settings of a family."""

    timing: Timing
    timings: Timings
    family: TimedFamily


def _clock(run: _Run, site: Site, variants: Collection[str]) -> _Clock | str:
    """The timing model for the settings, or the reason why they are not timed."""
    family = run.family
    try:
        machine = load_machine(run.workspace.series.profiles, device_of(run.profile, guess_units=True))
    except ConfigError as error:
        if error.code != "TIMING_UNKNOWN":
            raise
        return error.message
    why = why_not_timed(family, site, machine, variants)
    if why is not None or not isinstance(family, TimedFamily):
        return why or f"{family.name} is not timed"
    return _Clock(
        timing=Timing(site=site, compiler=run.compiler, jobs=run.request.jobs),
        timings=Timings.of(run.workspace, run.profile, run.compiler),
        family=family,
    )


def _search(run: _Run, settings: Mapping[str, Sequence[Setting]], clock: _Clock | str) -> list[Verdict]:
    """The verdict of each variant."""
    family, profile = run.family, run.profile
    units = {
        family.unit(Candidate(variant, setting)): None
        for variant, chosen in settings.items()
        for setting in [family.baseline(variant), *chosen]
    }
    compiled = _compile(run, list(units), "compiling candidates")
    checks: dict[str, Outcome] = {}

    def compile_checks(wanted: Sequence[str]) -> Compiled:
        missing = [unit for unit in wanted if unit not in checks]
        if missing:
            checks.update(_compile(run, missing, "confirming"))
        return checks

    measured = family.measured(profile)
    units_of_gpu = compute_units(profile)
    modelled: Mapping[str, Mapping[Setting, Modelled]] = {}
    if isinstance(clock, _Clock):
        wanted = {
            variant: settings_to_time(
                clock.family,
                variant,
                chosen,
                compiled,
                limits=family.limits,
                compute_units=units_of_gpu,
                exhaustive=run.request.exhaustive or clock.family.times_all,
                measured=measured.get(variant),
            )
            for variant, chosen in settings.items()
        }
        modelled = time_settings(clock.timing, clock.timings, clock.family, wanted)
    return [
        choose(
            family,
            variant,
            chosen,
            compiled,
            compile_checks,
            limits=family.limits,
            compute_units=units_of_gpu,
            measured=measured.get(variant),
            modelled=modelled.get(variant),
        )
        for variant, chosen in settings.items()
    ]
