"""``patchkit pick``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.base.plain import fields_of
from patchkit.cli.bench_options import (
    NUMBER,
    backend_option,
    batch_options,
    make_plan,
    threads_option,
    timeout_option,
)
from patchkit.cli.gate_options import runner_options
from patchkit.cli.request import ApplyOptions, try_options, with_named
from patchkit.cli.settings import FOLDER, TEXT, Settings, Size, packed, verb
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import choose_runner
from patchkit.gpu.modelled.drafting import MOST_DRAFTS
from patchkit.prove.bench.test_list import parse_tests, verifying_tests
from patchkit.prove.pick.command import PickRequest, run_pick
from patchkit.prove.pick.result_text import lines

_plan_options = packed(
    "plan",
    make_plan,
    click.option(
        "--repetitions",
        type=NUMBER,
        default=3,
        show_default=True,
        metavar="N",
        help="Repetitions per call of llama-bench (-r).",
    ),
    batch_options,
    threads_option,
)


@verb(
    "pick",
    example=(
        "patchkit pick --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf --minutes 60",
        "patchkit pick --arch gfx1151 --model a.gguf --model b.gguf --tests pp512,tg128,pp512@d16384",
        "patchkit pick --arch gfx1151 --model large.gguf --model small.gguf --drafts 3",
        "patchkit pick --arch gfx1151 --model a.gguf --runner ssh://gpu-box",
        "patchkit pick --arch gfx1151 --model a.gguf --emulated --modelled",
    ),
)
@try_options
@click.option(
    "--model",
    "models",
    type=FOLDER,
    multiple=True,
    required=True,
    metavar="GGUF",
    help="GGUF model to measure. May be repeated.",
)
@click.option(
    "--tests",
    type=TEXT,
    default="pp512,tg128",
    show_default=True,
    metavar="LIST",
    help="Tests to run: pp512 processes a prompt of 512 tokens, tg128 generates 128; @d16384 adds a depth.",
)
@click.option(
    "--drafts",
    type=click.IntRange(min=0, max=MOST_DRAFTS),
    default=0,
    metavar="N",
    help="Also measure the batch of N+1 tokens that verifies N drafts of speculative decoding, at each depth "
    "where tokens are generated. Add a draft model with --model. llama-bench cannot draft.",
)
@click.option(
    "--minutes",
    type=Size(min=0.1),
    default=30.0,
    show_default=True,
    metavar="N",
    help="Time limit for measuring, in minutes. Building takes extra time.",
)
@click.option(
    "--least",
    type=Size(min=0.1, max=50.0),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Smallest speed change that matters to you. Smaller values need more rounds.",
)
@click.option(
    "--builds",
    type=NUMBER,
    default=24,
    show_default=True,
    metavar="N",
    help="Maximum number of builds in a round if patches are combined. With more builds, fewer rounds are "
    "needed. With 1, no patches are combined: each one gets a build without it.",
)
@_plan_options
@backend_option
@click.option(
    "--emulated",
    is_flag=True,
    help="Without a GPU: check correctness on the emulated GPU. Requires --modelled.",
)
@click.option(
    "--modelled",
    is_flag=True,
    help="Without a GPU: predict times with the timing model. Requires --emulated.",
)
@packed("where", dict, runner_options)
@click.option("--out", type=FOLDER, metavar="DIR", help="Folder for all results (default: in the cache).")
@click.option("--fresh", is_flag=True, help="Discard earlier results, and repeat all checks.")
@timeout_option
def command(
    settings: Settings,
    given: ApplyOptions,
    models: tuple[Path, ...],
    tests: str,
    least: float,
    plan: BenchPlan,
    where: dict[str, Any],
    *,
    emulated: bool,
    modelled: bool,
    **options: Any,
) -> None:
    """Measure which patches help on this machine with your models, and keep only those.

    First checks that the patches compute correct results here, and drops those that do not. Then measures
    pairs of builds that differ in one patch. A round runs every build once, in random order. Rounds are
    repeated until the verdict on each patch is clear (keep or leave out), or time is up (unclear).

    A patch is kept if it makes at least one test faster by --least or more, and no test slower by --least or
    more. At most one run in 100 keeps a patch that makes a test slower by --least or more, and at most five
    in 100 keep a patch that makes no test faster.

    By default every patch for this GPU is tried, including the optional (opt-in) ones. To try fewer, use
    --only, --without or --trust. --with adds optional patches to those of --trust; without --trust, --with
    and --with-opt-in change nothing.

    Every finished call of llama-bench is saved. To resume an interrupted run, run the same command again; a
    larger --minutes continues a run whose time was up. The result folder has the journal of all rounds,
    result.json, and picked.toml for patchkit apply --picked.
    """
    if emulated != modelled or (modelled and (options["backend"] or where["runner"])):
        raise UsageError(
            "--emulated and --modelled must be used together, without --backend and --runner",
            code="OPTIONS_CONTRADICT",
            why="--emulated checks correctness and --modelled predicts times; without both, all is measured",
            hint="patchkit pick --emulated --modelled --arch gfx1151 --model A.gguf",
        )
    wanted = parse_tests(tests)
    if options["drafts"]:
        wanted = tuple(sorted({*wanted, *verifying_tests(wanted, options["drafts"])}))
    if len(set(models)) != len(models):
        raise UsageError("the same model was given twice", code="OPTIONS_CONTRADICT")
    onto = given.clone()
    workspace = settings.workspace()
    patches = given.request(workspace)
    if patches.only:
        patches = with_named(patches)
    elif patches.trust is None:
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
    document = {
        "ok": True,
        **fields_of(report),
        "folder": str(report.folder),
        "file": str(report.file),
    }
    settings.show(document, lines(report))
