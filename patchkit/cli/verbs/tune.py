"""``patchkit tune``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.plain import fields_of
from patchkit.cli.completing import gpus, pins
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.tune.batch import BatchReport, run_batch_limits, write_limits
from patchkit.tune.cost import Judged
from patchkit.tune.device import DeviceRequest, DeviceResult, run_device, write_winner
from patchkit.tune.registry import DEFAULT, find_kernel, kernel_names, kernels_help
from patchkit.tune.report import TuneReport
from patchkit.tune.request import TuneRequest
from patchkit.tune.run import run_tune, write_table
from patchkit.tune.search import Verdict

_COLUMNS = range(2, 9)


@verb(
    "tune",
    example=(
        "patchkit tune --arch gfx1151 --kernel mmq --variant Q4_K-128",
        "patchkit tune --arch gfx1150 --kernel wmma --upstream b6900 --like gfx1151 --shortlist 3",
    ),
)
@click.option(
    "--arch", required=True, metavar="GFX", shell_complete=gpus, help="GPU to tune for, for example gfx1151."
)
@click.option(
    "--kernel",
    type=click.Choice(kernel_names()),
    default=DEFAULT,
    show_default=True,
    help=f"Kernel to tune; {kernels_help()}",
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="llama.cpp build, one of those in the lock file: b6900 or a commit prefix.",
)
@click.option(
    "--rocwmma",
    "headers",
    multiple=True,
    metavar="DIR",
    help="rocWMMA's include folder, or 'stand-in' for patchkit's own header (default: those that "
    "the profile's "
    "table was made with). May be repeated; a setting must then be good with all of them.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Tune only this variant, for example 64-16-f32, 256-32 or Q4_K-128. May be repeated.",
)
@click.option(
    "--near",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try only settings that differ from upstream's in N values.",
)
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Also model the time of settings that another setting beats in every figure of the "
    "compiler. Not with "
    "--like, --bounds or --device.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="NAME[=WHY]",
    help="Exclude a setting, with an optional reason: 80-32-f32:128/8=wrong results. May be repeated.",
)
@click.option(
    "--like",
    metavar="GFX",
    shell_complete=gpus,
    help="Compile only the settings that were best for that GPU.",
)
@click.option(
    "--shortlist",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="With --like: number of settings per variant.",
)
@click.option(
    "--bounds",
    is_flag=True,
    help="Also try the profile's wmma settings with a minimum number of waves in the launch bounds.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Compilers to run in parallel (default: one per core)."
)
@click.option("--again", is_flag=True, help="Retry settings that did not compile before.")
@click.option(
    "--device",
    "builds",
    type=FOLDER,
    metavar="DIR",
    help="Measure builds on this machine's GPU. DIR has one folder per build: upstream, and settings such as "
    "128-8.",
)
@click.option(
    "--model",
    type=FOLDER,
    metavar="FILE",
    help="With --device: GGUF model with the variant's head size.",
)
@click.option(
    "--gpu",
    default="ROCm0",
    show_default=True,
    help="With --device: the GPU's name in llama-bench.",
)
@click.option("--write", is_flag=True, help="Write the best settings into the GPU's profile.")
def command(
    settings: Settings,
    builds: Path | None,
    model: Path | None,
    gpu: str,
    write: bool,
    **options: Any,
) -> int:
    """Find the best tile sizes and launch parameters of a kernel, by compiling all legal settings.

    Without --device nothing runs on a GPU: registers, spills and waves come from the compiler, and the speed
    is modelled. Compiled settings are cached, so an interrupted run resumes. The report is kept in the cache
    folder.
    """
    others = [name for name in ("like", "bounds") if options[name]] + (["device"] if builds else [])
    if options["exhaustive"] and others:
        raise UsageError(
            f"--exhaustive cannot be combined with --{others[0]}",
            code="USAGE_SYNTAX",
            why=f"--exhaustive selects settings for the timing model, which --{others[0]} does not use",
        )
    if not find_kernel(options["kernel"]).tunable:
        return _batch_limits(settings, write=write, builds=builds, options=options)
    if builds is not None:
        return _race(settings, builds, model, gpu, write=write, options=options)
    workspace = settings.workspace()
    report = run_tune(workspace, TuneRequest(**options), os.environ)
    written = write_table(workspace, report, datetime.now(UTC).date()) if write else None
    settings.show({"ok": True, "written": written, **fields_of(report)}, _lines(report, written=written))
    return ExitCode.OK


def _batch_limits(settings: Settings, *, write: bool, builds: Path | None, options: Mapping[str, Any]) -> int:
    others = ("headers", "near", "exhaustive", "exclude", "like", "bounds", "again")
    unfit = [name for name in others if options[name]]
    if builds is not None or unfit:
        raise UsageError(
            "these options do not apply to mmvq: its limits are modelled, not compiled or measured: "
            f"{', '.join(['--device'] if builds is not None else unfit)}",
            code="USAGE_SYNTAX",
            hint=f"patchkit tune --arch {options['arch']} --kernel mmvq --upstream b11549",
        )
    workspace = settings.workspace()
    request = TuneRequest(**options)
    report = run_batch_limits(workspace, request)
    written = write_limits(workspace, report, datetime.now(UTC).date()) if write else None
    settings.show(
        {"ok": True, "written": written, **fields_of(report)}, _limit_lines(report, written=written)
    )
    return ExitCode.OK


def _limit_lines(report: BatchReport, *, written: bool | None) -> Iterator[str]:
    yield (
        f"time of mul_mat_vec_q / time of mul_mat_q for {report.arch}, build {report.pin.build}, by "
        "number of "
        "columns (modelled)"
    )
    yield f"{'type':<8} {' '.join(f'{columns:>6}' for columns in _COLUMNS)}  limit  profile"
    for one in report.types:
        by_columns = {each.columns: f"{each.ratio:.2f}" for each in one.timed}
        cells = " ".join(f"{by_columns.get(columns, '-'):>6}" for columns in _COLUMNS)
        yield f"{one.type:<8} {cells}  {one.limit(report.error):>5}  {one.profile or '-':>7}"
    if written is not None:
        yield f"the profile of {report.arch} {'was written' if written else 'is unchanged'}"
    yield (
        f"Not measured on hardware. Above 1, mul_mat_q is faster. The error of such ratios is below "
        f"{report.error:.0%} in nine of ten cases; a limit is only proposed where the ratio exceeds that."
    )


def _race(
    settings: Settings,
    builds: Path,
    model: Path | None,
    gpu: str,
    *,
    write: bool,
    options: Mapping[str, Any],
) -> int:
    if model is None:
        raise UsageError(
            "--device requires a model to run", code="TUNE_OPTIONS", hint="add --model FILE.gguf"
        )
    workspace = settings.workspace()
    request = DeviceRequest(
        **{name: options[name] for name in ("arch", "kernel", "upstream", "variants")},
        builds=builds,
        model=model,
        device=None if gpu == "none" else gpu,
    )
    result = run_device(workspace, request, LocalRunner(reporter=workspace.reporter))
    written = write_winner(workspace, result, datetime.now(UTC).date()) if write else None
    settings.show({"ok": True, "written": written, **fields_of(result)}, _race_lines(result))
    return ExitCode.OK


def _race_lines(result: DeviceResult) -> Iterator[str]:
    yield (
        f"{result.variant} on {result.arch}, build {result.build}, {result.model}; speed relative to upstream"
    )
    for standing in result.race.standings:
        effect, expected = standing.comparison.effect, result.expected[standing.arm]
        yield (
            f"  {_setting(standing.arm):<8} measured {exp(effect.middle):.3f} ({exp(effect.low):.3f} to "
            f"{exp(effect.high):.3f}, {standing.comparison.rounds} rounds)  "
            f"{expected.by} {expected.speed:.3f}"
        )
    winner = "no winner" if result.race.winner is None else f"{_setting(result.race.winner)} wins"
    yield f"{winner}: {result.race.why}"


def _lines(report: TuneReport, *, written: bool | None) -> Iterator[str]:
    record, headers = report.record, " and ".join(report.headers)
    yield f"{record.kernel} for {record.arch}, build {record.build}, {record.compiler}, {headers}"
    yield f"settings: {'/'.join(report.parameters)}; figures: registers/spilled/waves/resident waves"
    if record.like is not None:
        yield f"compiled only the settings that were best for {record.like}"
    for verdict in report.verdicts:
        yield ""
        yield from _verdict(verdict, report.current.get(verdict.variant))
    yield ""
    yield from (f"excluded: {one.variant} {_setting(one.setting)}: {one.why}" for one in record.excluded)
    for index, name in enumerate(report.headers):
        before, after = report.spills(index)
        yield f"spilled registers, total of all variants, {name}: upstream {before}, best {after}"
    yield from _basis(report)
    if written is not None:
        yield f"the profile of {record.arch} {'was written' if written else 'is unchanged'}"
    elif report.current and find_kernel(record.kernel).keeps_record:
        state = "it already has these settings" if report.reproduces else "it has other settings"
        yield f"the profile of {record.arch}: {state}"
    if report.untimed is not None:
        yield f"not ordered by modelled time: {report.untimed}"
    if not report.is_timed:
        yield "Not measured on hardware. Settings are ordered by the compiler's figures and an estimate."
        return
    code = f" (compiled with {report.headers[report.played]})" if len(report.headers) > 1 else ""
    yield f"Not measured on hardware. Settings are ordered by modelled time{code}."
    timed = [one.upstream.modelled for one in report.verdicts]
    for kind, one in {str(each.error): each for each in timed if each is not None}.items():
        of = "times" if one.error.ratio_median is None else "ratios"
        yield (
            f"The median error of modelled {of} of such kernels ({kind}) is {one.half:.1%}, so upstream's "
            "setting is kept where another one is faster by less than that."
        )


def _basis(report: TuneReport) -> Iterator[str]:
    """Yield how much of the table was compiled on this machine."""
    basis, own = report.basis, report.own
    if basis is not None:
        same = basis.units - len(basis.differing)
        yield f"compiled with {' and '.join(basis.here)}: {same} of {basis.units} source files as recorded"
        yield from (f"  differs from the record: {unit}" for unit in basis.differing)
        if basis.absent:
            yield (
                f"not on this machine: {' and '.join(basis.absent)}; using the figures recorded on "
                f"{basis.made} "
                f"with {basis.compiler} (--rocwmma DIR compiles them again)"
            )
    if own is not None:
        if not own.worse:
            yield f"every setting is also good with this machine's {own.name}"
        for variant, why in own.worse.items():
            yield f"with this machine's {own.name}, the setting of {variant} is worse than upstream's: {why}"


def _verdict(verdict: Verdict, current: tuple[int, ...] | None) -> Iterator[str]:
    best, upstream = verdict.best, verdict.upstream
    yield f"{verdict.variant:<11}upstream {_cell(upstream)}"
    yield f"{'':11}best     {'the same' if best is upstream else _cell(best)}"
    yield from (f"{'':11}{note}" for note in (verdict.kept, verdict.margin) if note is not None)
    known = {each.candidate.setting: each for each in verdict.judged}
    if current in known and current != best.candidate.setting:
        yield f"{'':11}profile  {_cell(known[current])}{_refused(known[current])}"
    for each in verdict.front:
        if each.candidate not in (best.candidate, upstream.candidate):
            yield f"{'':11}front    {_cell(each)}{_refused(each)}"
    for candidate, failure in verdict.failures:
        yield f"{'':11}failed   {_setting(candidate.setting)}  {failure.code}: {failure.message}"


def _cell(judged: Judged) -> str:
    figures = "  ".join(f"{one.vgprs}/{one.spills}/{one.waves}/{one.resident}" for one in judged.figures)
    costs = "  ".join(f"{one.cost:.4g} ({one.bound})" for one in judged.estimates)
    lds = judged.figures[0].lds_bytes
    if judged.modelled is not None:
        costs = f"{costs}  modelled time {judged.modelled.ratio:.3f} x upstream's"
    return f"{_setting(judged.candidate.setting):<8} {figures}  LDS {lds}  cycles per row and value {costs}"


def _refused(judged: Judged) -> str:
    return f"  rejected: {judged.refused}" if judged.refused is not None else ""


def _setting(setting: tuple[int, ...]) -> str:
    return "/".join(str(value) for value in setting)
