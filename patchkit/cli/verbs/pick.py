"""``patchkit pick``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.base.files import check_output
from patchkit.base.plain import fields_of
from patchkit.cli.gate_options import check_beside_document, runner_options
from patchkit.cli.request import DEVICE, Asked, try_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, Size, packed, verb
from patchkit.gpu.hardware.bench.compare import plot_format
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import choose_runner
from patchkit.prove.bench.wanted import parse_tests
from patchkit.prove.pick.command import PickRequest, run_pick
from patchkit.prove.pick.shown import lines, write_picture

_NUMBER = click.IntRange(min=1)


def _make_plan(**values: Any) -> BenchPlan:
    return BenchPlan(**values)


_plan_options = packed(
    "plan",
    _make_plan,
    click.option(
        "--repetitions",
        type=_NUMBER,
        default=3,
        show_default=True,
        metavar="N",
        help="In one call of llama-bench.",
    ),
    click.option("--batch", type=_NUMBER, default=2048, show_default=True, metavar="N", help="-b"),
    click.option("--micro-batch", type=_NUMBER, default=512, show_default=True, metavar="N", help="-ub"),
    click.option("--threads", type=_NUMBER, metavar="N", help="CPU threads (default: llama-bench's)."),
)


@verb(
    "pick",
    example=(
        "patchkit pick --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf --minutes 60",
        "patchkit pick --arch gfx1151 --model a.gguf --model b.gguf --tests pp512,tg128,pp512@d16384",
        "patchkit pick --arch gfx1151 --model a.gguf --runner ssh://gpu-box",
        "patchkit pick --arch gfx1151 --model a.gguf --emulated --modelled",
    ),
)
@try_options
@click.option(
    "--model", "models", type=FOLDER, multiple=True, required=True, metavar="GGUF", help="Again for more."
)
@click.option(
    "--tests",
    type=TEXT,
    default="pp512,tg128",
    show_default=True,
    metavar="LIST",
    help="pp512 reads a prompt, tg128 generates, @d16384 behind that many tokens.",
)
@click.option("--minutes", type=Size(min=0.1), default=30.0, show_default=True, help="For measuring.")
@click.option(
    "--least",
    type=Size(min=0.1, max=50.0),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="The smallest change that counts; a smaller one takes more rounds.",
)
@click.option(
    "--builds",
    type=_NUMBER,
    default=24,
    show_default=True,
    metavar="N",
    help="The most to build and measure side by side: more spare rounds; 1: one build per patch, without it.",
)
@_plan_options
@click.option("--backend", type=DEVICE, help="On what (default: hip, if the GPU is here).")
@click.option("--emulated", is_flag=True, help="With --modelled: right or wrong on the emulated GPU.")
@click.option("--modelled", is_flag=True, help="With --emulated: times by the timing model, none measured.")
@packed("where", dict, runner_options)
@click.option("--out", type=FOLDER, metavar="DIR", help="Keep everything there (default: in the cache).")
@click.option("--plot", type=FOLDER, metavar="FILE", help="Also draw what each patch brings: .svg or .png.")
@click.option("--fresh", is_flag=True, help="Throw away what was measured there, and check all anew.")
@click.option(
    "--timeout", type=_NUMBER, default=60, show_default=True, metavar="MINUTES", help="For one call."
)
def command(
    settings: Settings,
    asked: Asked,
    models: tuple[Path, ...],
    tests: str,
    least: float,
    plan: BenchPlan,
    where: dict[str, Any],
    plot: Path | None,
    *,
    emulated: bool,
    modelled: bool,
    **options: Any,
) -> None:
    """Find the patches that pay on this machine for these models, by measuring.

    First all patches must compute right here: one that does not is out. Then each is left out of the rest,
    those of different kernels in all combinations, in rounds that run every build once, in an order drawn by
    lot, until it is clear whether it pays: keep, leave out, or unclear. What is kept makes some test
    faster, and none slower by --least or more; that is wrong in at most one run of a hundred. Patches that a
    GPU has as opt-in are tried, too.

    Every finished call is kept: after a Ctrl-C, a hang or a reboot the same command goes on, and with more
    --minutes it goes on where the time was over. Building comes on top of the time. The folder has the
    journal of all rounds, result.json, and picked.toml for patchkit apply --picked.
    """
    if emulated != modelled or (modelled and (options["backend"] or where["runner"])):
        raise UsageError(
            "--emulated and --modelled go together, and with no --backend and no --runner",
            code="HARDWARE_REFUSED",
            why="the one says what is right, the other what takes how long; without them all is measured",
            hint="patchkit pick --emulated --modelled --arch gfx1151 --model A.gguf",
        )
    check_beside_document(settings, plot)
    form = plot_format(plot) if plot is not None else None
    if plot is not None:
        check_output(plot, "drawing the picture")
    wanted = parse_tests(tests)
    if len(set(models)) != len(models):
        raise UsageError("a model is named twice", code="OPTIONS_CONTRADICT", hint="name it once")
    onto = asked.clone()
    workspace = settings.workspace()
    patches = asked.request(workspace)
    if not patches.only:
        patches = replace(patches, with_opt_in=True)
    request = PickRequest(
        patches=patches,
        onto=onto,
        models=models,
        tests=wanted,
        plan=plan,
        least=least / 100,
        is_modelled=modelled,
        timeout_s=60.0 * options.pop("timeout"),
        **options,
    )
    runner = choose_runner(
        where["runner"], config=where["ssh_config"], environ=os.environ, reporter=workspace.reporter
    )
    report = run_pick(workspace, request, runner, os.environ)
    if plot is not None and form is not None:
        write_picture(report, plot, form)
    drawn = {} if plot is None else {"plot": str(plot)}
    document = {
        "ok": True,
        **fields_of(report),
        "folder": str(report.folder),
        "file": str(report.file),
        **drawn,
    }
    settings.show(document, lines(report))
