"""Running a program on the emulated GPU from the command line: what its commands have in common."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

import click

from patchkit.base.errors import UsageError
from patchkit.cli.completing import gpus, pins
from patchkit.cli.settings import Settings, options

if TYPE_CHECKING:
    from patchkit.base.arch import GpuProfile
    from patchkit.gpu.api import Gpu, Prepares, Program
    from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions, Schedule
    from patchkit.toolchain.compiler import Compiler

_MOST_SEED = 2**63
_SEED_DIGITS = len(str(_MOST_SEED))


def _schedule(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[Schedule, int]:
    """The schedule and the seed of a shuffle."""
    name, _, seed = text.partition(":")
    if text in {"in-order", "late"}:
        return cast("Schedule", text), 0
    if name == "shuffle" and _is_seed(seed):
        return "shuffle", int(seed)
    raise click.BadParameter("it is none of in-order, late, shuffle:SEED (a whole number above 0)")


def _is_seed(text: str) -> bool:
    # Python refuses to convert thousands of digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= _SEED_DIGITS
    return is_number and 0 < int(text) < _MOST_SEED


arch_option = click.option(
    "--arch", required=True, metavar="GFX", shell_complete=gpus, help="The GPU to be: one that has a profile."
)
program_options = options(
    click.option(
        "--schedule",
        callback=_schedule,
        default="in-order",
        show_default=True,
        metavar="in-order|late|shuffle:SEED",
        help="When asynchronous work runs: at once, as late as HIP allows, in any order that HIP allows.",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1, max=4096), help="Of the emulator (default: one per core)."
    ),
    click.option(
        "--limit",
        type=click.IntRange(min=1, max=_MOST_SEED - 1),
        metavar="N",
        help="Stop a kernel of which one wave executed so many instructions. Looked at whenever a wave "
        "jumped backwards 65536 times: a kernel that ends sooner is never stopped.",
    ),
    click.option(
        "--side",
        type=click.Choice(["baseline", "candidate"]),
        help="PROGRAM is upstream's (test-backend-ops, llama-bench, ...): build and run this side's.",
    ),
    click.option(
        "--upstream", metavar="BUILD", shell_complete=pins, help="The side's pin (default: the lock's)."
    ),
)


def check_side(command: str, side: str | None, upstream: str | None) -> None:
    """Refuse a pin for no side. Raises USAGE_SYNTAX."""
    if side is None and upstream is not None:
        raise UsageError(
            "--upstream says of which pin a side is, and no --side was asked for",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side candidate --upstream BUILD -- test-backend-ops",
        )


def open_gpu(settings: Settings, arch: str) -> Gpu:
    """The GPU, with the profiles, the cache folder and the reporter of this run."""
    from patchkit.base.series_folder import find_series_dir
    from patchkit.gpu import api

    return api.open_gpu(
        arch,
        profiles=find_series_dir(settings.series_dir).profiles,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
    )


def prepare(settings: Settings, arch: str) -> tuple[GpuProfile, Compiler]:
    """The profile of a GPU that is emulated, and a compiler for it. Raises ARCH_NOT_EMULATED."""
    from patchkit.base.series_folder import find_series_dir
    from patchkit.gpu.api import emulated_profile
    from patchkit.toolchain.compiler import open_compiler
    from patchkit.toolchain.hip import find_toolchain

    profile = emulated_profile(find_series_dir(settings.series_dir).profiles, arch)
    cache_root, reporter = settings.cache_root(), settings.reporter()
    return profile, open_compiler(find_toolchain(cache_root, os.environ, reporter), cache_root, reporter)


def built_side(
    settings: Settings, gpu: Gpu, program: str, side: str | None, upstream: str | None
) -> Prepares | None:
    """What builds a program of upstream's from one side of the candidate; None for a user's own program."""
    if side is None:
        return None
    return partial(_upstreams, settings, gpu.compiler, side, upstream, program)


@contextlib.contextmanager
def _upstreams(
    settings: Settings,
    compiler: Compiler,
    side: str,
    upstream: str | None,
    program: str,
    gpu: EmulatedGpu,
    options: EmulationOptions,
) -> Iterator[Program]:
    from patchkit.carry.candidate.record import Wish
    from patchkit.gpu.api import Program
    from patchkit.gpu.emulated.emulated_sides import emulated_side
    from patchkit.prove.build import build_tree, check_programs, prepare_subject
    from patchkit.toolchain.units import SourceTree

    check_programs([program])
    subject, _ = prepare_subject(
        settings.workspace(), (gpu.device.arch,), upstream, "hip", os.environ, Wish()
    )
    root, tree = (
        (subject.baseline, subject.baseline_tree)
        if side == "baseline"
        else (subject.candidate, subject.candidate_tree)
    )
    subject.reporter.step(f"building {program} of the {side}")
    built = build_tree(subject, root, tree, "cpu", (program,), is_timed=False)
    rocwmma = not subject.is_without_rocwmma
    with emulated_side(built, SourceTree(root), gpu, compiler, options, rocwmma=rocwmma) as ready:
        yield Program(
            path=str(ready.built.folder / program), variables=dict(ready.built.environment), tree=root
        )
