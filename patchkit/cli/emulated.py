"""Running a program on the emulated GPU from the command line: what its commands have in common."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

import click
from click.core import ParameterSource

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import UsageError
from patchkit.base.series_folder import find_series_dir
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.onto.pin import Onto, find_commit_pin, find_onto_pin
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.upstream.exported import export_pin
from patchkit.cli.clone import CLONE, make_onto
from patchkit.cli.completing import gpus, pins
from patchkit.cli.settings import Settings, options, packed
from patchkit.gpu import api
from patchkit.gpu.api import Gpu, Prepares, Program, emulated_profile
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions, EmulationReport, Schedule
from patchkit.gpu.emulated.names import read_name
from patchkit.prove.build import check_programs, prepare_subject
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source, build_side
from patchkit.toolchain.sides import Workshop
from patchkit.toolchain.units import SourceTree

_MOST_SEED = 2**63
_SEED_DIGITS = len(str(_MOST_SEED))


def refuse_given(names: Collection[str], why: str, hint: str) -> None:
    """Refuse the options of the running command, by their parameters, that mean nothing here.

    ``why`` goes on from the option's name. Raises USAGE_SYNTAX.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        is_default = context.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT
        if parameter.name in names and not is_default:
            raise UsageError(f"{parameter.opts[0]} {why}", code="USAGE_SYNTAX", hint=hint)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChoice:
    """Which side of llama.cpp a program of upstream's is built from, on a pin or on a user's commit."""

    name: Literal["baseline", "candidate"]
    upstream: str | None
    onto: Onto | None


def _make_side(
    *,
    side: Literal["baseline", "candidate"] | None,
    upstream: str | None,
    onto: str | None,
    repo: Path | None,
) -> SideChoice | None:
    """None for a user's own program. Raises USAGE_SYNTAX, OPTIONS_CONTRADICT."""
    clone = make_onto(onto, repo, upstream=upstream)
    if side is not None:
        return SideChoice(name=side, upstream=upstream, onto=clone)
    command = click.get_current_context().command.name
    if clone is not None:
        raise UsageError(
            "--onto and --repo say of which commit a side is, and no --side was asked for",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side baseline --onto HEAD -- test-backend-ops: your "
            "commit as it is; --side candidate: the patches on it",
        )
    if upstream is not None:
        raise UsageError(
            "--upstream says of which pin a side is, and no --side was asked for",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side candidate --upstream BUILD -- test-backend-ops",
        )
    return None


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
        help="Stop a kernel of which one wave executed so many instructions. Looked at when a wave "
        "jumped backwards many times, 4096 at first: a kernel that ends sooner is never stopped.",
    ),
    click.option(
        "--blocks",
        type=click.IntRange(min=1, max=2**31 - 1),
        metavar="N",
        help="Of each launch run N blocks at most, the first and the last among them: a sample, whose "
        "results mean nothing. Cooperative launches run whole.",
    ),
    click.option("--profile", is_flag=True, help="Say which kernels take the time, here and on no GPU."),
    packed(
        "side",
        _make_side,
        click.option(
            "--side",
            type=click.Choice(["baseline", "candidate"]),
            help="PROGRAM is upstream's (test-backend-ops, llama-bench, ...): build and run this side's.",
        ),
        click.option(
            "--upstream", metavar="BUILD", shell_complete=pins, help="The side's pin (default: the lock's)."
        ),
        CLONE,
    ),
)


def sampled(report: EmulationReport) -> str | None:
    """That only a sample of the blocks ran, for a person; None where all of them did."""
    if not report.left_out:
        return None
    blocks = counted(report.left_out, "block")
    kernels = counted(sum(one.left_out > 0 for one in report.kernels), "kernel")
    return (
        f"A SAMPLE, not a whole run: {blocks} of {kernels} did not run. What the program computed says "
        "nothing, and later kernels may have read what those would have written"
    )


_SHOWN_KERNELS = 20


def profile_lines(report: EmulationReport) -> Iterator[str]:
    """Which kernels took the time on this machine, the longest first; nothing of a GPU's time follows."""
    kernels = sorted((one for one in report.kernels if one.launches), key=lambda one: -one.seconds)
    whole = sum(one.seconds for one in kernels)
    yield f"{whole:.1f} s in kernels, on this machine's CPU (no time of a GPU):"
    yield f"{'share':>7} {'s':>8} {'launches':>8} {'instructions':>13} {'M/s':>6}  kernel"
    for one in kernels[:_SHOWN_KERNELS]:
        rate = one.instructions / one.seconds / 1e6 if one.seconds else 0.0
        yield (
            f"{one.seconds / whole if whole else 0.0:>7.1%} {one.seconds:>8.2f} {one.launches:>8} "
            f"{one.instructions:>13} {rate:>6.1f}  {read_name(one.name)}"
        )
    if len(kernels) > _SHOWN_KERNELS:
        yield f"{len(kernels) - _SHOWN_KERNELS} more: --json has all"


def open_gpu(settings: Settings, arch: str) -> Gpu:
    """The GPU, with the profiles, the cache folder and the reporter of this run."""
    return api.open_gpu(
        arch,
        profiles=find_series_dir(settings.series_dir).profiles,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
    )


def prepare(settings: Settings, arch: str) -> tuple[GpuProfile, Compiler]:
    """The profile of a GPU that is emulated, and a compiler for it. Raises ARCH_NOT_EMULATED."""
    profile = emulated_profile(find_series_dir(settings.series_dir).profiles, arch)
    cache_root, reporter = settings.cache_root(), settings.reporter()
    return profile, open_compiler(find_toolchain(cache_root, os.environ, reporter), cache_root, reporter)


def built_side(settings: Settings, gpu: Gpu, program: str, side: SideChoice | None) -> Prepares | None:
    """What builds a program of upstream's from one side; None for a user's own program."""
    if side is None:
        return None
    return partial(_upstreams, settings, gpu.compiler, side, program)


@contextlib.contextmanager
def _upstreams(
    settings: Settings,
    compiler: Compiler,
    side: SideChoice,
    program: str,
    gpu: EmulatedGpu,
    options: EmulationOptions,
) -> Iterator[Program]:
    check_programs([program])
    source, rocwmma = _source_of(settings, gpu.device.arch, side)
    reporter = settings.reporter()
    reporter.step(f"building {program} of the {side.name}")
    built = build_side(
        source,
        "cpu",
        archs=(gpu.device.arch,),
        toolchain=None,
        programs=(program,),
        workshop=Workshop(cache_root=settings.cache_root(), reporter=reporter),
        with_rocwmma=rocwmma,
        is_timed=False,
    )
    with emulated_side(built, SourceTree(source.root), gpu, compiler, options, rocwmma=rocwmma) as ready:
        yield Program(
            path=str(ready.built.folder / program), variables=dict(ready.built.environment), tree=source.root
        )


def _source_of(settings: Settings, arch: str, side: SideChoice) -> tuple[Source, bool]:
    """The tree of a side, and whether upstream's attention kernel on rocWMMA is in it.

    A commit of the user's own is its own baseline: no candidate need be there for it.
    """
    workspace = settings.workspace()
    if side.onto is not None and side.name == "baseline":
        return source_of_commit(workspace, side.onto), True
    pin: PinWanted = side.upstream
    if side.onto is not None:
        pin = find_onto_pin(side.onto, workspace, (arch,))
    subject, _ = prepare_subject(workspace, (arch,), pin, "hip", os.environ, Wish())
    root, tree = (
        (subject.baseline, subject.baseline_tree)
        if side.name == "baseline"
        else (subject.candidate, subject.candidate_tree)
    )
    commit = subject.base[:9] or subject.baseline_tree[:9]
    return Source(root=root, tree=tree, build=subject.build, commit=commit), not subject.is_without_rocwmma


def source_of_commit(workspace: Workspace, onto: Onto) -> Source:
    """The tree of a commit of the user's clone, as it is.

    Raises ONTO_NOT_LLAMA_CPP, and what reading the clone and the disk raise.
    """
    pin = find_commit_pin(onto, workspace)
    made = export_pin(pin, workspace)
    return Source(root=made.root, tree=made.tree, build=pin.build, commit=made.commit[:9])
