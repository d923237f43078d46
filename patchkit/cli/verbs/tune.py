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
    "--arch", required=True, metavar="GFX", shell_complete=gpus, help="The GPU to tune for, as gfx1151."
)
@click.option(
    "--kernel",
    type=click.Choice(kernel_names()),
    default=DEFAULT,
    show_default=True,
    help=f"Which kernel; {kernels_help()}",
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="A pin of the lock: b6900 or a commit prefix.",
)
@click.option(
    "--rocwmma",
    "headers",
    multiple=True,
    metavar="DIR",
    help="rocWMMA's include folder, or the word stand-in; again: a setting must hold with each. By default "
    "what the table of the profile was made with.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this one, as 64-16-f32, 256-32 or Q4_K-128.",
)
@click.option(
    "--near", type=click.IntRange(min=1), metavar="N", help="Only settings with N values unlike upstream's."
)
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Time also what another setting beats in everything by the compiler's figures. Not with --like, "
    "--bounds and --device.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="NAME[=WHY]",
    help="Not this setting, as 80-32-f32:128/8=its numbers fail.",
)
@click.option(
    "--like", metavar="GFX", shell_complete=gpus, help="Compile only what is first by that GPU's report."
)
@click.option(
    "--shortlist",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="With --like: how many settings of each variant.",
)
@click.option(
    "--bounds", is_flag=True, help="Try the profile's settings of wmma with a least number of waves as well."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once; one per core by default.")
@click.option("--scheduler", metavar="URL", help="A Dask scheduler, as tcp://host:8786.")
@click.option("--again", is_flag=True, help="Try what did not compile before once more.")
@click.option(
    "--device",
    "builds",
    type=FOLDER,
    metavar="DIR",
    help="Race builds on this machine's GPU: folders named upstream, and 128-8 and the like.",
)
@click.option(
    "--model", type=FOLDER, metavar="FILE", help="With --device: a GGUF of the variant's head size."
)
@click.option(
    "--gpu", default="ROCm0", show_default=True, help="With --device: llama-bench's name of the GPU."
)
@click.option("--write", is_flag=True, help="Put the table into the GPU's profile.")
def command(
    settings: Settings,
    builds: Path | None,
    model: Path | None,
    gpu: str,
    write: bool,
    **options: Any,
) -> int:
    """Find the best parameters of a kernel by what the compiler makes of all legal ones.

    Without --device nothing runs on a GPU: the figures are the compiler's, and the speed is an estimate.
    What was compiled is kept, so an interrupted run goes on where it was. The report is kept in the cache
    folder.
    """
    others = [name for name in ("like", "bounds") if options[name]] + (["device"] if builds else [])
    if options["exhaustive"] and others:
        raise UsageError(
            f"--exhaustive is about what the timing model is asked, and with --{others[0]} it is not",
            code="USAGE_SYNTAX",
            hint="leave one of them out",
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
            "the limits of mmvq are modelled: there are no settings to compile or to race",
            code="USAGE_SYNTAX",
            why=f"given: {', '.join(['--device'] if builds is not None else unfit)}",
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
    yield f"mul_mat_vec_q over mul_mat_q for {report.arch}, build {report.pin.build}, modelled, by columns"
    yield f"{'type':<8} {' '.join(f'{columns:>6}' for columns in _COLUMNS)}  limit  profile"
    for one in report.types:
        by_columns = {each.columns: f"{each.ratio:.2f}" for each in one.timed}
        cells = " ".join(f"{by_columns.get(columns, '-'):>6}" for columns in _COLUMNS)
        yield f"{one.type:<8} {cells}  {one.limit(report.error):>5}  {one.profile or '-':>7}"
    if written is not None:
        yield f"the profile of {report.arch} {'was written' if written else 'is unchanged'}"
    yield (
        f"Not measured on hardware. Above 1 mul_mat_q is faster; nine of ten such ratios were within "
        f"{report.error:.0%}, and a limit is proposed only beyond that."
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
            "--device needs a model to run", code="TUNE_MODEL_MISSING", hint="name it: --model FILE.gguf"
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
    yield f"{result.variant} on {result.arch}, build {result.build}, {result.model}; speeds beside upstream's"
    for standing in result.race.standings:
        effect, expected = standing.comparison.effect, result.expected[standing.arm]
        yield (
            f"  {_setting(standing.arm):<8} measured {exp(effect.middle):.3f} ({exp(effect.low):.3f} to "
            f"{exp(effect.high):.3f}, {standing.comparison.rounds} rounds)  "
            f"{expected.by} {expected.speed:.3f}"
        )
    winner = "nobody wins" if result.race.winner is None else f"{_setting(result.race.winner)} wins"
    yield f"{winner}: {result.race.why}"


def _lines(report: TuneReport, *, written: bool | None) -> Iterator[str]:
    record, headers = report.record, " and ".join(report.headers)
    yield f"{record.kernel} for {record.arch}, build {record.build}, {record.compiler}, {headers}"
    yield f"settings are {'/'.join(report.parameters)}; figures are registers/spilled/waves/resident waves"
    if record.like is not None:
        yield f"compiled were the settings that are the first by the figures of {record.like}"
    for verdict in report.verdicts:
        yield ""
        yield from _verdict(verdict, report.current.get(verdict.variant))
    yield ""
    yield from (f"left out: {one.variant} {_setting(one.setting)}: {one.why}" for one in record.left_out)
    for index, name in enumerate(report.headers):
        before, after = report.spills(index)
        yield f"spilled registers over all variants, {name}: upstream {before}, best {after}"
    yield from _basis(report)
    if written is not None:
        yield f"the profile of {record.arch} {'was written' if written else 'is unchanged'}"
    elif report.current and find_kernel(record.kernel).keeps_record:
        state = "unchanged, it has these settings" if report.reproduces else "it has other settings"
        yield f"the profile of {record.arch}: {state}"
    if report.untimed is not None:
        yield f"not by modelled time: {report.untimed}"
    if not report.is_timed:
        yield "Not measured on hardware: the order is by the compiler's figures and an estimate."
        return
    code = f" (compiled with {report.headers[report.played]})" if len(report.headers) > 1 else ""
    yield f"Not measured on hardware: the order is by modelled time{code}."
    timed = [one.upstream.modelled for one in report.verdicts]
    for kind, one in {str(each.error): each for each in timed if each is not None}.items():
        of = "times" if one.error.ratio_median is None else "ratios"
        yield (
            f"Half of the measured {of} of such kernels ({kind}) were met within {one.half:.1%}, "
            "so upstream's setting stays where another is ahead by less."
        )


def _basis(report: TuneReport) -> Iterator[str]:
    """How much of what the table rests on was made here."""
    basis, own = report.basis, report.own
    if basis is not None:
        same = basis.units - len(basis.differing)
        yield f"compiled with {' and '.join(basis.here)}: {same} of {basis.units} units as recorded"
        yield from (f"  not as recorded: {unit}" for unit in basis.differing)
        if basis.absent:
            yield (
                f"not here: {' and '.join(basis.absent)}; their figures are those of {basis.made}, "
                f"{basis.compiler} (--rocwmma DIR compiles them anew)"
            )
    if own is not None:
        if not own.worse:
            yield f"every row holds with this machine's {own.name} too"
        for variant, why in own.worse.items():
            yield f"with this machine's {own.name}, {variant} is worse than upstream's: {why}"


def _verdict(verdict: Verdict, current: tuple[int, ...] | None) -> Iterator[str]:
    best, upstream = verdict.best, verdict.upstream
    yield f"{verdict.variant:<11}upstream {_cell(upstream)}"
    yield f"{'':11}best     {'the same' if best is upstream else _cell(best)}"
    yield from (f"{'':11}{told}" for told in (verdict.kept, verdict.margin) if told is not None)
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
        costs = f"{costs}  modelled time {judged.modelled.ratio:.3f} of upstream's"
    return f"{_setting(judged.candidate.setting):<8} {figures}  LDS {lds}  cycles per row and value {costs}"


def _refused(judged: Judged) -> str:
    return f"  not taken: {judged.refused}" if judged.refused is not None else ""


def _setting(setting: tuple[int, ...]) -> str:
    return "/".join(str(value) for value in setting)
