"""``patchkit tune``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, get_args

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb
from patchkit.tune.registry import KernelName

if TYPE_CHECKING:
    from patchkit.tune.cost import Judged
    from patchkit.tune.report import TuneReport
    from patchkit.tune.search import Verdict


class _Options(TypedDict):
    """The options of a request, named as its fields."""

    arch: str
    kernel: KernelName
    upstream: str | None
    headers: tuple[str, ...]
    variants: tuple[str, ...]
    near: int | None
    exclude: tuple[str, ...]
    like: str | None
    shortlist: int
    bounds: bool
    jobs: int | None
    scheduler: str | None
    again: bool


@verb(
    "tune",
    example=(
        "patchkit tune --arch gfx1151",
        "patchkit tune --arch gfx1150 --like gfx1151 --shortlist 3 --rocwmma stand-in",
        "patchkit tune --arch gfx1151 --kernel mmq --pin b11549 --variant Q4_K-128",
    ),
)
@click.option("--arch", required=True, metavar="GFX", help="The GPU to tune for, as gfx1151.")
@click.option(
    "--kernel",
    type=click.Choice(get_args(KernelName)),
    default="wmma",
    show_default=True,
    help="Which kernel; all but wmma belong to later builds: --pin b11549.",
)
@click.option(
    "--upstream", "--pin", type=TEXT, metavar="PIN", help="A pin of the lock: b6900 or a commit prefix."
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
    "--exclude",
    multiple=True,
    metavar="NAME[=WHY]",
    help="Not this setting, as 80-32-f32:128/8=its numbers fail.",
)
@click.option("--like", metavar="GFX", help="Compile only what is first by that GPU's report.")
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
    *,
    builds: Path | None,
    model: Path | None,
    gpu: str,
    write: bool,
    **options: Unpack[_Options],
) -> int:
    """Find the best parameters of a kernel by what the compiler makes of all legal ones.

    Without --device nothing runs on a GPU: the figures are the compiler's, and the speed is an estimate.
    What was compiled is kept, so an interrupted run goes on where it was. The report is kept in the cache
    folder.
    """
    from patchkit.tune.request import TuneRequest
    from patchkit.tune.run import run_tune, write_table

    workspace = settings.workspace()
    if builds is not None:
        return _race(settings, builds, model, gpu, write=write, options=options)
    request = TuneRequest(**options)
    report = run_tune(workspace, request, os.environ)
    written = write_table(workspace, report, datetime.now(UTC).date()) if write else None
    terminal = settings.terminal
    if settings.json:
        terminal.document({"ok": True, "written": written, **report.as_json()})
    else:
        terminal.data("\n".join(_lines(report, written=written)))
    return ExitCode.OK


def _race(
    settings: Settings, builds: Path, model: Path | None, gpu: str, *, write: bool, options: _Options
) -> int:
    from patchkit.device.runner import LocalRunner
    from patchkit.tune.device import DeviceRequest, run_device, write_winner

    if model is None:
        raise UsageError(
            "--device needs a model to run", code="TUNE_MODEL_MISSING", hint="name it: --model FILE.gguf"
        )
    workspace = settings.workspace()
    request = DeviceRequest(
        arch=options["arch"],
        kernel=options["kernel"],
        upstream=options["upstream"],
        variants=options["variants"],
        builds=builds,
        model=model,
        device=None if gpu == "none" else gpu,
    )
    result = run_device(workspace, request, LocalRunner(reporter=workspace.reporter))
    written = write_winner(workspace, result, datetime.now(UTC).date()) if write else None
    terminal = settings.terminal
    if settings.json:
        terminal.document({"ok": True, "written": written, **result.as_json()})
        return ExitCode.OK
    lines = [
        f"{result.variant} on {result.arch}, build {result.build}, {result.model}; speeds beside upstream's"
    ]
    for standing in result.race.standings:
        effect = standing.comparison.effect
        lines.append(
            f"  {_setting(standing.arm):<8} measured {exp(effect.middle):.3f} ({exp(effect.low):.3f} to "
            f"{exp(effect.high):.3f}, {standing.comparison.rounds} rounds)  "
            f"estimated {result.estimated[standing.arm]:.3f}"
        )
    winner = "nobody wins" if result.race.winner is None else f"{_setting(result.race.winner)} wins"
    terminal.data("\n".join([*lines, f"{winner}: {result.race.why}"]))
    return ExitCode.OK


def _lines(report: TuneReport, *, written: bool | None) -> list[str]:
    lines = [
        f"{report.kernel} for {report.arch}, build {report.build}, {report.compiler}, "
        + " and ".join(report.headers),
        f"settings are {'/'.join(report.parameters)}; figures are registers/spilled/waves/resident waves",
    ]
    if report.like is not None:
        lines.append(f"compiled were the settings that are the first by the figures of {report.like}")
    for verdict in report.verdicts:
        lines += ["", *_verdict(verdict, report.current.get(verdict.variant))]
    lines.append("")
    lines += [f"left out: {each.variant} {_setting(each.setting)}: {each.why}" for each in report.left_out]
    for index, name in enumerate(report.headers):
        before, after = report.spills(index)
        lines.append(f"spilled registers over all variants, {name}: upstream {before}, best {after}")
    lines += _basis(report)
    if written is not None:
        lines.append(f"the profile of {report.arch} {'was written' if written else 'is unchanged'}")
    elif report.current and report.kernel == "wmma":
        state = "unchanged, it has these settings" if report.reproduces else "it has other settings"
        lines.append(f"the profile of {report.arch}: {state}")
    lines.append("Not measured on hardware: the order is by the compiler's figures and an estimate.")
    return lines


def _basis(report: TuneReport) -> list[str]:
    """How much of what the table rests on was made here."""
    basis, lines = report.basis, []
    if basis is not None:
        same = basis.units - len(basis.differing)
        lines.append(f"compiled with {' and '.join(basis.here)}: {same} of {basis.units} units as recorded")
        lines += [f"  not as recorded: {unit}" for unit in basis.differing]
    if basis is not None and basis.absent:
        lines.append(
            f"not here: {' and '.join(basis.absent)}; their figures are those of {basis.made}, "
            f"{basis.compiler} (--rocwmma DIR compiles them anew)"
        )
    if report.own is not None:
        if not report.own.worse:
            lines.append(f"every row holds with this machine's {report.own.name} too")
        lines += [
            f"with this machine's {report.own.name}, {variant} is worse than upstream's: {why}"
            for variant, why in report.own.worse.items()
        ]
    return lines


def _verdict(verdict: Verdict, current: tuple[int, ...] | None) -> list[str]:
    best, upstream = verdict.best, verdict.upstream
    lines = [f"{verdict.variant:<11}upstream {_cell(upstream)}"]
    if best is upstream:
        lines.append(f"{'':11}best     the same")
    else:
        lines.append(f"{'':11}best     {_cell(best)}")
    lines += [f"{'':11}{told}" for told in (verdict.kept, verdict.margin) if told is not None]
    known = {each.candidate.setting: each for each in verdict.judged}
    if current in known and current != best.candidate.setting:
        lines.append(f"{'':11}profile  {_cell(known[current])}{_refused(known[current])}")
    front = [each for each in verdict.front if each.candidate not in (best.candidate, upstream.candidate)]
    lines += [f"{'':11}front    {_cell(each)}{_refused(each)}" for each in front]
    lines += [
        f"{'':11}failed   {_setting(candidate.setting)}  {failure.code}: {failure.message}"
        for candidate, failure in verdict.failures
    ]
    return lines


def _cell(judged: Judged) -> str:
    figures = "  ".join(f"{one.vgprs}/{one.spills}/{one.waves}/{one.resident}" for one in judged.figures)
    costs = "  ".join(f"{one.cost:.4g} ({one.bound})" for one in judged.estimates)
    lds = judged.figures[0].lds_bytes
    return f"{_setting(judged.candidate.setting):<8} {figures}  LDS {lds}  cycles per row and value {costs}"


def _refused(judged: Judged) -> str:
    return f"  not taken: {judged.refused}" if judged.refused is not None else ""


def _setting(setting: tuple[int, ...]) -> str:
    return "/".join(str(value) for value in setting)
