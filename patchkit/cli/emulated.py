"""Options and helpers that ``emulate``, ``sanitize`` and ``model`` share."""

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
    """Raise USAGE_SYNTAX if one of the options, by parameter name, was given to the running command.

    ``why`` continues the sentence that starts with the option's name.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        is_default = context.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT
        if parameter.name in names and not is_default:
            raise UsageError(f"{parameter.opts[0]} {why}", code="USAGE_SYNTAX", hint=hint)


def _schedule(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[Schedule, int]:
    """Parse --schedule into the schedule and the seed of a shuffle."""
    name, _, seed = text.partition(":")
    if text in {"in-order", "late"}:
        return cast("Schedule", text), 0
    if name == "shuffle" and _is_seed(seed):
        return "shuffle", int(seed)
    raise click.BadParameter("expected in-order, late or shuffle:SEED, with SEED a whole number above 0")


def _is_seed(text: str) -> bool:
    # int() raises ValueError for thousands of digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= _SEED_DIGITS
    return is_number and 0 < int(text) < _MOST_SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChoice:
    """Which tree to build upstream's program from: baseline or candidate, on a pin or a user's commit."""

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
    """Return the side, or None for a user's own program. Raises USAGE_SYNTAX, OPTIONS_CONTRADICT."""
    clone = make_onto(onto, repo, upstream=upstream)
    if side is not None:
        return SideChoice(name=side, upstream=upstream, onto=clone)
    command = click.get_current_context().command.name
    if clone is not None:
        raise UsageError(
            "--onto and --repo require --side",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side baseline --onto HEAD -- test-backend-ops; "
            "baseline is your commit unchanged, candidate your commit with the patches",
        )
    if upstream is not None:
        raise UsageError(
            "--upstream requires --side",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side candidate --upstream BUILD -- test-backend-ops",
        )
    return None


arch_option = click.option(
    "--arch",
    required=True,
    metavar="GFX",
    shell_complete=gpus,
    help="GPU to emulate, for example gfx1151; patchkit list shows the GPUs that have a profile.",
)
program_options = options(
    click.option(
        "--schedule",
        callback=_schedule,
        default="in-order",
        show_default=True,
        metavar="in-order|late|shuffle:SEED",
        help="When asynchronous work runs: immediately, as late as HIP allows, or in a random order that HIP "
        "allows.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1, max=4096),
        help="CPU threads of the emulator (default: one per core).",
    ),
    click.option(
        "--limit",
        type=click.IntRange(min=1, max=_MOST_SEED - 1),
        metavar="N",
        help="Stop a kernel when one wave has executed N instructions. Only checked after many backward "
        "jumps (4096 at first), so short kernels are never stopped.",
    ),
    click.option(
        "--blocks",
        type=click.IntRange(min=1, max=2**31 - 1),
        metavar="N",
        help="Run at most N blocks of each launch, including the first and the last. The program's results "
        "are then meaningless. Cooperative launches run completely.",
    ),
    click.option(
        "--profile",
        is_flag=True,
        help="Show which kernels take the time in the emulator (not on a GPU).",
    ),
    packed(
        "side",
        _make_side,
        click.option(
            "--side",
            type=click.Choice(["baseline", "candidate"]),
            help="Build PROGRAM (test-backend-ops, llama-bench, ...) from llama.cpp: baseline is upstream, "
            "candidate has the patches.",
        ),
        click.option(
            "--upstream",
            metavar="PIN",
            shell_complete=pins,
            help="With --side: the llama.cpp build (default: the lock's default).",
        ),
        CLONE,
    ),
)


def sampled(report: EmulationReport) -> str | None:
    """Return a warning if only a sample of the blocks ran, else None."""
    if not report.left_out:
        return None
    blocks = counted(report.left_out, "block")
    kernels = counted(sum(one.left_out > 0 for one in report.kernels), "kernel")
    return (
        f"SAMPLE ONLY: {blocks} of {kernels} did not run. The program's results are meaningless, and later "
        "kernels may have read data that those blocks would have written"
    )


_SHOWN_KERNELS = 20


def profile_lines(report: EmulationReport) -> Iterator[str]:
    """List the kernels by the time they took in the emulator; this does not predict their time on a GPU."""
    kernels = sorted((one for one in report.kernels if one.launches), key=lambda one: -one.seconds)
    whole = sum(one.seconds for one in kernels)
    yield f"{whole:.1f} s in kernels, in the emulator on this machine's CPU (not a GPU time):"
    yield f"{'share':>7} {'s':>8} {'launches':>8} {'instructions':>13} {'M/s':>6}  kernel"
    for one in kernels[:_SHOWN_KERNELS]:
        rate = one.instructions / one.seconds / 1e6 if one.seconds else 0.0
        yield (
            f"{one.seconds / whole if whole else 0.0:>7.1%} {one.seconds:>8.2f} {one.launches:>8} "
            f"{one.instructions:>13} {rate:>6.1f}  {read_name(one.name)}"
        )
    if len(kernels) > _SHOWN_KERNELS:
        yield f"{len(kernels) - _SHOWN_KERNELS} more (--json lists all)"


def open_gpu(settings: Settings, arch: str) -> Gpu:
    """Open the emulated GPU with the profiles, cache folder and reporter of this run."""
    return api.open_gpu(
        arch,
        profiles=find_series_dir(settings.series_dir).profiles,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
    )


def prepare(settings: Settings, arch: str) -> tuple[GpuProfile, Compiler]:
    """Return the profile of an emulated GPU and a compiler for it. Raises ARCH_NOT_EMULATED."""
    profile = emulated_profile(find_series_dir(settings.series_dir).profiles, arch)
    cache_root, reporter = settings.cache_root(), settings.reporter()
    return profile, open_compiler(find_toolchain(cache_root, os.environ, reporter), cache_root, reporter)


def built_side(settings: Settings, gpu: Gpu, program: str, side: SideChoice | None) -> Prepares | None:
    """Return what builds upstream's program from the side; None for a user's own program."""
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
    """Return the tree of a side, and whether it includes upstream's rocWMMA attention kernel.

    The baseline of --onto is the user's commit itself, so it needs no candidate.
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
    """Export the tree of a commit of the user's clone, unchanged.

    Raises ONTO_NOT_LLAMA_CPP, and what reading the clone and the disk raise.
    """
    pin = find_commit_pin(onto, workspace)
    made = export_pin(pin, workspace)
    return Source(root=made.root, tree=made.tree, build=pin.build, commit=made.commit[:9])
