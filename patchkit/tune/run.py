"""``patchkit tune``: compiles all legal settings of a kernel, ranks them, and reports the best."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.profile import ArchProfile, load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.modelled.machine import load_machine
from patchkit.gpu.modelled.recording import as_measured
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import Toolchain, find_toolchain
from patchkit.toolchain.tree import files_digest, overlay_tree
from patchkit.toolchain.units import SourceTree, library_folder
from patchkit.tune.cost import Modelled
from patchkit.tune.family import Candidate, Family, Setting, Site, TimedFamily
from patchkit.tune.headers import HeaderSets, choose_headers, own_headers
from patchkit.tune.measure import Bench, find_mca, is_kept, measure, prepare
from patchkit.tune.outcome import Outcome
from patchkit.tune.profile_text import write_profile
from patchkit.tune.record import (
    Record,
    load_record,
    merge,
    record_path,
    same_figures,
    write_record,
)
from patchkit.tune.registry import find_kernel, rows_by_time, tunable
from patchkit.tune.report import (
    Basis,
    OwnHeaders,
    TuneReport,
    profile_rows,
    write_report,
)
from patchkit.tune.request import TuneRequest, choose_settings, compute_units, exclusions
from patchkit.tune.search import Compiled, Verdict, choose, find_regression, settings_to_time
from patchkit.tune.timed import NOT_TIMED, Timing, time_settings, why_not_timed
from patchkit.tune.wmma import rows_by_variant


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The inputs of a run."""

    request: TuneRequest
    workspace: Workspace
    family: Family
    tree: SourceTree
    mca: Path | None
    headers: HeaderSets
    compilers: tuple[Compiler, ...]
    record: Record | None
    profile: ArchProfile


def _compile_with(
    run: _Run, compilers: Sequence[Compiler], units: Sequence[str], what: str
) -> dict[str, tuple[Outcome, ...]]:
    """The outcomes of each unit, in the order of the compilers; each is cached as soon as it is available.

    Raises:
        ToolMissing, ToolStopped, CacheError: a unit could not be measured.
    """
    request, reporter = run.request, run.workspace.reporter
    benches = [_bench(run, compiler, units) for compiler in compilers]
    with open_pool("threads", request.jobs) as pool:
        found = dict(
            run_tasks(
                pool,
                partial(_measure_at, benches),
                list(product(units, range(len(benches)))),
                reporter=reporter,
                what=what,
                unit="candidates",
                stop=compilers[0].stop,
            )
        )
    return {unit: tuple(found[unit, index] for index in range(len(benches))) for unit in units}


def _measure_at(benches: Sequence[Bench], place: tuple[str, int]) -> Outcome:
    unit, index = place
    return measure(unit, benches[index])


def _bench(run: _Run, compiler: Compiler, units: Sequence[str]) -> Bench:
    bench = Bench(
        compiler=compiler,
        tree=run.tree,
        limits=run.family.limits,
        kernel=run.family.kernel,
        rocwmma=run.family.rocwmma,
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
        ARCH_UNKNOWN, TUNE_KERNEL_UNTUNABLE, TUNE_OPTIONS, TUNE_KERNEL_UNTUNABLE: the request
            is not possible.
        TUNE_RECORD_BAD: the GPU in ``like`` has no report.
        TUNE_RECORD_BAD: the shipped record cannot be read, or is out of date.
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
    site = Site(
        workspace=workspace,
        repository=repository,
        base=base,
        pin=pin,
        profile=profile,
        bounds=request.bounds,
    )
    family = tunable(request.kernel).make(site)
    record = _record(workspace, request, pin.build)
    settings = choose_settings(workspace, request, family, pin.build, profile, record)
    files = family.sources(settings)
    if record is not None:
        whole = settings == record.candidates
        _check_record(workspace, record, files if whole else family.sources(record.candidates))
    headers = choose_headers(toolchain, request, record) if family.rocwmma else HeaderSets.none(toolchain)
    compilers = _compilers(workspace, headers.toolchains)
    run = _Run(
        request=request,
        workspace=workspace,
        family=family,
        tree=_overlay(site, files),
        mca=find_mca(toolchain, workspace.reporter),
        headers=headers,
        # Compile as the code that is timed (as_measured). With the loops that LLVM 22 unrolls, 64 rows of
        # Q4_0 look worse than upstream's in all figures, but were measured 15 to 19 % faster (PR 28195). The
        # record for rocWMMA uses the compiler's own unrolling; for the headers that are played, its figures
        # exclude no setting.
        compilers=compilers if family.rocwmma else tuple(as_measured(each) for each in compilers),
        record=record,
        profile=profile,
    )
    clock = _clock(run, site, settings)
    verdicts, compiled = _search(run, settings, clock)
    report = _report(run, pin, toolchain, verdicts, compiled, settings, files_digest(files))
    if isinstance(clock, str):
        report = replace(report, untimed=clock)
    else:
        left = [verdict.variant for verdict in verdicts if verdict.upstream.modelled is None]
        untimed = f"{NOT_TIMED}: {', '.join(left)}" if left else None
        report = replace(report, untimed=untimed, played=clock.played)
    write_report(workspace.cache_root, report)
    return report


def _overlay(site: Site, files: Mapping[str, bytes]) -> SourceTree:
    """The pin's GPU sources with the family's ``files`` added.

    Raises:
        TREE_ENTRY_REFUSED, CacheError: exporting failed.
    """
    return SourceTree(overlay_tree(site.source.root, files, "tune", below=library_folder(site.source.root)))


def _report(
    run: _Run,
    pin: Pin,
    toolchain: Toolchain,
    verdicts: Sequence[Verdict],
    compiled: Compiled,
    settings: Mapping[str, tuple[Setting, ...]],
    sources: str,
) -> TuneReport:
    request, record, family = run.request, run.record, run.family
    return TuneReport(
        record=Record(
            arch=request.arch,
            kernel=request.kernel,
            build=pin.build,
            made="",
            compiler=f"clang {toolchain.clang_version}",
            sources=sources,
            like=request.like if record is None else record.like,
            headers=run.headers.headers,
            excluded=exclusions(family, request) if record is None else record.excluded,
            candidates=settings,
            units=compiled,
        ),
        parameters=family.parameters,
        mca=run.mca is not None,
        complete=not request.variants and request.near is None and not request.bounds,
        verdicts=tuple(verdicts),
        current=family.current(run.profile),
        basis=_basis(run, compiled),
        own=_own(run, toolchain, verdicts) if record is not None else None,
    )


def _record(workspace: Workspace, request: TuneRequest, build: int) -> Record | None:
    """The shipped record, unless the request itself selects headers or candidates."""
    if request.headers or request.exclude or request.bounds or request.like is not None:
        return None
    return load_record(workspace.series.profiles, request.arch, request.kernel, build)


def _check_record(workspace: Workspace, record: Record, files: Mapping[str, bytes]) -> None:
    if record.sources == files_digest(files):
        return
    path = record_path(workspace.series.profiles, record.arch, record.kernel, record.build)
    raise ConfigError(
        f"the tuning record of {record.arch} does not match the kernel of this series",
        code="TUNE_RECORD_BAD",
        where=Location(path=str(path)),
        why="the patch, its table or upstream's file has changed since",
        hint=f"tune without it: patchkit tune --arch {record.arch} --rocwmma stand-in; "
        "see docs/how-it-works/tune.md for how to create records",
    )


def _why_another(report: TuneReport, basis: Basis) -> str:
    recorded = f"from the record: {', '.join(basis.absent) or 'the choice of candidates'}"
    changed = [
        verdict.variant
        for verdict in report.verdicts
        if verdict.best.modelled is not None
        and report.current.get(verdict.variant) != verdict.best.candidate.setting
    ]
    return f"{recorded}; by modelled time: {', '.join(changed)}" if changed else recorded


def write_table(workspace: Workspace, report: TuneReport, today: date) -> bool:
    """Write the best settings to the profile, and the record next to it; returns whether a file changed.

    A run that uses the shipped record and confirms the profile's settings writes nothing.

    Raises:
        TUNE_OPTIONS: the run did not cover all variants, or depends on recorded figures.
        TUNE_PROFILE_NOT_WRITTEN, CacheError: a file cannot be changed.
    """
    profiles, record = workspace.series.profiles, report.record
    path = profiles / f"{record.arch}.toml"
    has_record = find_kernel(record.kernel).keeps_record
    if not report.complete or (not has_record and not report.is_timed):
        raise UsageError(
            "cannot write the table: the run must cover all variants, and be timed (except for wmma)",
            code="TUNE_OPTIONS",
            where=Location(path=str(path)),
            why=report.untimed if report.complete else None,
            hint=f"patchkit tune --arch {record.arch} --write",
        )
    if not has_record:
        rows_of = rows_by_time(record.kernel)
        if rows_of is None:
            raise UsageError(
                f"profiles have no rows for {record.kernel}",
                code="TUNE_OPTIONS",
                where=Location(path=str(path)),
                why="no patch uses them; the settings are only reported",
                hint="see docs/how-it-works/tune.md for the kernels with rows",
            )
        return write_profile(path, record.kernel, rows_of(report, load_profile(profiles, record.arch), today))
    if report.basis is not None:
        if report.reproduces:
            return False
        raise UsageError(
            "cannot write the table: it differs from the profile's, and depends on recorded figures",
            code="TUNE_OPTIONS",
            where=Location(path=str(path)),
            why=_why_another(report, report.basis),
            hint="name all rocWMMA versions to tune with: --rocwmma stand-in --rocwmma DIR --write",
        )
    profile = load_profile(profiles, record.arch)
    measured = {name: row.measured_on for name, row in rows_by_variant(profile).items()}
    changed = write_profile(path, record.kernel, profile_rows(report, today, measured))
    return write_record(profiles, replace(record, made=today.isoformat())) or changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """The timing model for the settings of a family; ``played`` is the index of the headers in use."""

    timing: Timing
    timings: Timings
    family: TimedFamily
    played: int


def _clock(run: _Run, site: Site, variants: Collection[str]) -> _Clock | str:
    """The timing model for the settings, or the reason why they are not timed."""
    request, family, headers = run.request, run.family, run.headers
    if request.like is not None or request.bounds:
        return "settings from another GPU's report and minimum-waves bounds are not timed"
    try:
        machine = load_machine(run.workspace.series.profiles, device_of(run.profile, guess_units=True))
    except ConfigError as error:
        if error.code != "TIMING_UNKNOWN":
            raise
        return error.message
    why = why_not_timed(family, site, machine, variants)
    if why is not None or not isinstance(family, TimedFamily):
        return why or f"{family.name} is not timed"
    if headers.played is None:
        return "the timing model is validated only with rocWMMA's stand-in (--rocwmma stand-in)"
    compiler = run.compilers[headers.played]
    return _Clock(
        timing=Timing(site=site, compiler=compiler, jobs=request.jobs),
        timings=Timings.of(run.workspace, run.profile, compiler),
        family=family,
        played=headers.here[headers.played],
    )


def _search(
    run: _Run, settings: Mapping[str, Sequence[Setting]], clock: _Clock | str
) -> tuple[list[Verdict], dict[str, tuple[Outcome, ...]]]:
    """The verdicts, and the outcomes of all units that were needed."""
    family, profile = run.family, run.profile
    units = {
        family.unit(Candidate(variant, setting)): None
        for variant, chosen in settings.items()
        for setting in [family.baseline(variant), *chosen]
    }
    compiled = _compile(run, list(units), "compiling candidates")
    checks: dict[str, tuple[Outcome, ...]] = {}

    def compile_checks(wanted: Sequence[str]) -> Compiled:
        missing = [unit for unit in wanted if unit not in checks]
        if missing:
            checks.update(_compile(run, missing, "confirming"))
        return checks

    measured = family.measured(profile)
    units_of_gpu = compute_units(profile)
    modelled: Mapping[str, Mapping[Setting, Modelled]] = {}
    played = 0
    if isinstance(clock, _Clock):
        played = clock.played
        wanted = {
            variant: settings_to_time(
                clock.family,
                variant,
                chosen,
                compiled,
                limits=family.limits,
                compute_units=units_of_gpu,
                played=played,
                exhaustive=run.request.exhaustive or clock.family.times_all,
                measured=measured.get(variant),
            )
            for variant, chosen in settings.items()
        }
        modelled = time_settings(clock.timing, clock.timings, clock.family, wanted)
    verdicts = [
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
            played=played,
        )
        for variant, chosen in settings.items()
    ]
    return verdicts, compiled | checks


def _compile(run: _Run, units: Sequence[str], what: str) -> dict[str, tuple[Outcome, ...]]:
    compiled = _compile_with(run, run.compilers, units, what)
    return compiled if run.record is None else merge(run.record, run.headers.here, compiled)


def _compilers(workspace: Workspace, toolchains: Sequence[Toolchain]) -> tuple[Compiler, ...]:
    return tuple(open_compiler(each, workspace.cache_root, workspace.reporter) for each in toolchains)


def _basis(run: _Run, compiled: Compiled) -> Basis | None:
    """How the compiled units compare with the record; None without a record."""
    record, here = run.record, run.headers.here
    if record is None:
        return None
    known = [unit for unit in compiled if unit in record.units]
    differing = [
        unit
        for unit in known
        if not all(same_figures(compiled[unit][index], record.units[unit][index]) for index in here)
    ]
    return Basis(
        made=record.made,
        compiler=record.compiler,
        here=tuple(record.headers[index].name for index in here),
        absent=tuple(each.name for index, each in enumerate(record.headers) if index not in here),
        units=len(known),
        differing=tuple(differing),
    )


def _own(run: _Run, toolchain: Toolchain, verdicts: Sequence[Verdict]) -> OwnHeaders | None:
    """Check the table with this machine's rocWMMA; None if it has none, or the record has the same."""
    own = own_headers(toolchain, run.request.arch, run.headers)
    if own is None:
        return None
    name, chain = own
    family = run.family
    units: dict[str, None] = {}
    for verdict in verdicts:
        for each in (verdict.best, verdict.upstream):
            units |= dict.fromkeys([family.unit(each.candidate), *family.checks(each.candidate)])
    compiled = _compile_with(
        run, _compilers(run.workspace, [chain]), list(units), f"checking the table with {name}"
    )
    worse = {
        verdict.variant: why
        for verdict in verdicts
        if (why := find_regression(family, verdict, compiled, family.limits)) is not None
    }
    return OwnHeaders(name=name, worse=worse)
