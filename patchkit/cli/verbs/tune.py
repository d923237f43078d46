"""``patchkit tune``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.plain import fields_of
from patchkit.cli.completing import gpus, pins
from patchkit.cli.settings import TEXT, Settings, verb
from patchkit.tune.batch import BatchReport, run_batch_limits, write_limits
from patchkit.tune.cost import Judged
from patchkit.tune.registry import DEFAULT, find_kernel, kernel_names, kernels_help
from patchkit.tune.report import TuneReport
from patchkit.tune.request import TuneRequest
from patchkit.tune.run import run_tune, write_table
from patchkit.tune.search import Verdict

_COLUMNS = range(2, 9)


@verb(
    "tune",
    example=("patchkit tune --arch gfx1151 --kernel mmq --variant Q4_K-128",),
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
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Tune only this variant, for example 256-32 or Q4_K-128. May be repeated.",
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
    help="Also model the time of settings that another setting beats in every figure of the compiler.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="NAME[=WHY]",
    help="Exclude a setting, with an optional reason: Q4_K-128:128/2=wrong results. May be repeated.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Compilers to run in parallel (default: one per core)."
)
@click.option("--again", is_flag=True, help="Retry settings that did not compile before.")
@click.option("--write", is_flag=True, help="Write the best settings into the GPU's profile.")
def command(
    settings: Settings,
    write: bool,
    **options: Any,
) -> int:
    """Find the best tile sizes and launch parameters of a kernel, by compiling all legal settings.

    Nothing runs on a GPU: registers, spills and waves come from the compiler, and the speed is modelled.
    Compiled settings are cached, so an interrupted run resumes. The report is kept in the cache folder.
    """
    if not find_kernel(options["kernel"]).family:
        return _batch_limits(settings, write=write, options=options)
    workspace = settings.workspace()
    report = run_tune(workspace, TuneRequest(**options), os.environ)
    written = write_table(workspace, report, datetime.now(UTC).date()) if write else None
    settings.show({"ok": True, "written": written, **fields_of(report)}, _lines(report, written=written))
    return ExitCode.OK


def _batch_limits(settings: Settings, *, write: bool, options: Mapping[str, Any]) -> int:
    others = ("near", "exhaustive", "exclude", "again")
    unfit = [name for name in others if options[name]]
    if unfit:
        raise UsageError(
            f"these options do not apply to mmvq: its limits are modelled, not compiled: {', '.join(unfit)}",
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


def _lines(report: TuneReport, *, written: bool | None) -> Iterator[str]:
    yield f"{report.kernel} for {report.arch}, build {report.build}, {report.compiler}"
    yield f"settings: {'/'.join(report.parameters)}; figures: registers/spilled/waves/resident waves"
    for verdict in report.verdicts:
        yield ""
        yield from _verdict(verdict, report.current.get(verdict.variant))
    yield ""
    yield from (f"excluded: {one.variant} {_setting(one.setting)}: {one.why}" for one in report.excluded)
    spilled = report.spilled
    yield f"spilled registers of all variants: upstream {spilled['upstream']}, best {spilled['ours']}"
    if written is not None:
        yield f"the profile of {report.arch} {'was written' if written else 'is unchanged'}"
    if report.untimed is not None:
        yield f"not ordered by modelled time: {report.untimed}"
    if not report.is_timed:
        yield "Not measured on hardware. Settings are ordered by the compiler's figures and an estimate."
        return
    yield "Not measured on hardware. Settings are ordered by modelled time."
    timed = [one.upstream.modelled for one in report.verdicts]
    for kind, one in {str(each.error): each for each in timed if each is not None}.items():
        of = "times" if one.error.ratio_median is None else "ratios"
        yield (
            f"The median error of modelled {of} of such kernels ({kind}) is {one.half:.1%}, so upstream's "
            "setting is kept where another one is faster by less than that."
        )


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
    one = judged.figures
    figures = f"{one.vgprs}/{one.spills}/{one.waves}/{one.resident}"
    costs = f"{judged.estimate.cost:.4g} ({judged.estimate.bound})"
    if judged.modelled is not None:
        costs = f"{costs}  modelled time {judged.modelled.ratio:.3f} x upstream's"
    name = f"{_setting(judged.candidate.setting):<8}"
    return f"{name} {figures}  LDS {one.lds_bytes}  cycles per row and value {costs}"


def _refused(judged: Judged) -> str:
    return f"  rejected: {judged.refused}" if judged.refused is not None else ""


def _setting(setting: tuple[int, ...]) -> str:
    return "/".join(str(value) for value in setting)
