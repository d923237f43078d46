"""``patchkit model``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import ExitCode, GitError, UsageError
from patchkit.base.evidence import load_evidence_folder
from patchkit.base.jobs import run_parallel
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.onto.pin import Onto, find_onto_pin
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.upstream.exported import ExportedTree, export_pin, export_tree
from patchkit.cli.clone import CLONE, make_onto
from patchkit.cli.completing import files, gpus, pins
from patchkit.cli.draft_options import draft_lines, draft_options
from patchkit.cli.emulated import open_gpu, prepare, refuse_given, source_of_commit
from patchkit.cli.settings import FOLDER, Settings, verb
from patchkit.cli.timelines import TimelineRequest, model_timelines, timeline_lines
from patchkit.gpu.api import ProgramTime
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.gguf import load_gguf_parts
from patchkit.gpu.modelled.against import Errors, Release
from patchkit.gpu.modelled.compare import Comparison, compare
from patchkit.gpu.modelled.drafting import DraftStep
from patchkit.gpu.modelled.machine import Machine, RateError, in_words
from patchkit.gpu.modelled.measured import MeasuredComparison, compare_measured, ratio_error
from patchkit.gpu.modelled.network import Batch, ModelTime, operations_of, time_model
from patchkit.gpu.modelled.operation import (
    OperationTime,
    attention_case,
    head_size_of,
    is_moe,
    matrix_case,
)
from patchkit.gpu.modelled.recording import Recorder, Timed
from patchkit.gpu.modelled.shape import ModelShape, shape_of_file, shape_of_header
from patchkit.gpu.modelled.timeline import Timeline
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.machine import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The tree whose kernels are modelled: a pin of the lock, or a commit of the user's clone."""

    upstream: str | None = None
    onto: Onto | None = None


_EXAMPLE_OF_DRAFTS = "patchkit model --arch gfx1151 --gguf model.gguf --drafts 3"
_SIZE = click.IntRange(min=1, max=2**20)
_BATCH = click.IntRange(min=0, max=4096)
_TOKENS = click.IntRange(min=1, max=4096)
_EXPERTS = click.IntRange(min=1, max=1024)
_DEPTH = click.IntRange(min=1, max=2**18)


@verb(
    "model",
    example=(
        "patchkit model --arch gfx1151 --type q4_K --rows 4096 --columns 4096 --tokens 512",
        "patchkit model --arch gfx1151 --head-size 128 --heads 32 --kv-heads 8 --kv 16384 --tokens 512",
        "patchkit model --arch gfx1151 --type q4_0 --rows 4096 --columns 14336 --tokens 1 --repeated --json",
        "patchkit model --arch gfx1151 --gguf model.gguf --depth 16384 --pp 512 --tg 128",
        "patchkit model --arch gfx1151 --gguf model.gguf --drafts 3 --draft-model small.gguf",
        "patchkit model --arch gfx1151 --gguf model.gguf --timeline --parallel 4",
        "patchkit model --arch gfx1151 --onto HEAD --head-size 128 --kv 16384 --tokens 512",
        "patchkit model --arch gfx1151 --against measured.toml",
        "patchkit model --arch gfx1151 -- ./saxpy",
    ),
)
@click.option(
    "--arch",
    required=True,
    metavar="GFX",
    shell_complete=gpus,
    help="GPU to emulate: one with a file in arch_profiles/timing (gfx1151 or gfx1100).",
)
@click.option("--type", "kind", metavar="TYPE", help="Matmul: data type of the weights, for example q4_K.")
@click.option("--rows", type=_SIZE, metavar="M", help="Matmul: rows of the weights (outputs).")
@click.option("--columns", type=_SIZE, metavar="K", help="Matmul: columns of the weights (inputs).")
@click.option(
    "--experts", type=_EXPERTS, default=1, metavar="N", help="Matmul of an MoE model: number of experts."
)
@click.option(
    "--used", type=_EXPERTS, default=1, metavar="N", help="Matmul of an MoE model: experts used per token."
)
@click.option("--head-size", type=_SIZE, metavar="D", help="Attention: head size.")
@click.option(
    "--heads", type=_SIZE, default=32, metavar="N", show_default=True, help="Attention: query heads."
)
@click.option(
    "--kv-heads", type=_SIZE, default=8, metavar="N", show_default=True, help="Attention: KV heads."
)
@click.option(
    "--kv",
    type=_DEPTH,
    metavar="ROWS",
    help="Attention: tokens in the KV cache, those of the batch included.",
)
@click.option(
    "--kv-type", default="f16", metavar="TYPE", show_default=True, help="Data type of the KV cache."
)
@click.option("--tokens", type=_TOKENS, metavar="N", help="Tokens in the batch; 1 is decode.")
@click.option(
    "--repeated",
    is_flag=True,
    help="Model repeated runs on the same tensors, as test-backend-ops perf does, so that data that "
    "fits is in "
    "the caches. By default weights and KV cache come from DRAM, as in a model.",
)
@click.option(
    "--gguf", type=FOLDER, metavar="FILE", help="Model a whole GGUF model (only its header is read)."
)
@click.option(
    "--shape", type=FOLDER, metavar="FILE.toml", help="Model a whole model from a description file."
)
@click.option(
    "--depth",
    type=click.IntRange(min=0, max=2**18),
    default=0,
    show_default=True,
    metavar="N",
    help="Tokens already in the KV cache (llama-bench -d).",
)
@click.option(
    "--pp",
    "prompt",
    type=_BATCH,
    default=512,
    show_default=True,
    metavar="N",
    help="Prompt length in tokens (0 to skip).",
)
@click.option(
    "--tg",
    "generated",
    type=_BATCH,
    default=128,
    show_default=True,
    metavar="N",
    help="Tokens to generate (0 to skip).",
)
@draft_options
@click.option(
    "--power",
    type=click.IntRange(min=1, max=1000),
    metavar="WATTS",
    help="Model the clock of a machine that sustains this power, for example 100 for a warm one "
    "(default: a cool machine without a limit).",
)
@click.option(
    "--upstream",
    metavar="PIN",
    shell_complete=pins,
    help="llama.cpp build whose kernels to model (default: the lock's default).",
)
@CLONE
@click.option(
    "--timeline",
    is_flag=True,
    help="With --gguf or --shape: record the launches and copies of llama.cpp's own host code on a "
    "reduced copy "
    "of the model (few layers), and list each kernel's time, its limit and its roofline.",
)
@click.option(
    "--parallel",
    multiple=True,
    type=click.IntRange(min=2, max=64),
    metavar="N",
    help="With --timeline: also generate N parallel sequences. May be repeated.",
)
@click.option(
    "--against",
    type=FOLDER,
    metavar="FILE",
    help="Compare modelled with measured times: a file of published times, or an evidence file.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def command(
    settings: Settings,
    arch: str,
    against: Path | None,
    upstream: str | None,
    onto: str | None,
    repo: Path | None,
    program: tuple[str, ...],
    **options: Any,
) -> None:
    """Predict how long a GPU takes for an operation, a model or a program: modelled, not measured.

    Runs some blocks of each kernel's machine code on the emulated GPU, and simulates the instructions on a
    timing model of one work group processor with its caches and memory. Shows upstream's kernels and, if
    there is a candidate branch, the patched ones; what limits each of them; and the error of such
    predictions against published measurements.

    docs/how-it-works/gpu.md describes the timing model.

    To time a program of your own, put it after --. Only some blocks of each launch run, so its results are
    meaningless; you get the time of each kernel.
    """
    if program:
        parameters = click.get_current_context().command.params
        refuse_given(
            {str(each.name) for each in parameters if each.expose_value} - {"arch", "program"},
            "cannot be combined with a program",
            "patchkit model --arch gfx1151 -- ./program arguments",
        )
        timed = open_gpu(settings, arch).time(program, quiet=settings.json)
        settings.show(timed, _program(timed))
        if timed.cut_short:
            settings.reporter().warn(f"{program[0]} was killed by a signal; its later launches are missing")
            raise click.exceptions.Exit(ExitCode.GATE_FAILED)
        return
    tree = Kernels(upstream=upstream, onto=make_onto(onto, repo, upstream=upstream))
    profile, compiler = prepare(settings, arch)
    timings = Timings.of(settings.workspace(), profile, compiler, watts=options["power"])
    if against is not None:
        _refuse_with_against(tree, options)
        workspace = settings.workspace()
        lock = load_lock(workspace.series.lock)

        def source_of(release: Release) -> Source:
            return _source(workspace, lock.pin(build_name(release.build)))

        found = compare(timings, against, lock.pins, source_of)
        settings.show(found, _comparison(found))
        return
    if options["timeline"] or options["parallel"]:
        _timeline(settings, timings, profile, tree, options)
        return
    if options["gguf"] is not None or options["shape"] is not None:
        network = _network(options["gguf"], options["shape"])
        tests, measured, steps = _tests(timings, network, tree, options)
        document = {
            "arch": arch,
            "watts": options["power"],
            "model": network.name,
            "tests": tests,
            "errors": _rate_errors(timings.machine, tests),
            "measured": measured,
            "drafts": steps,
        }
        settings.show(document, _models(timings.machine, tests, network, measured, steps))
        return
    if options["drafting"] is not None:
        raise _no_drafts(
            "--drafts requires --gguf or --shape",
            "a model drafts and verifies tokens, one operation does not",
        )
    case = _case(options)
    sides = _sides(timings, case, tree, repeated=options["repeated"])
    settings.show(
        {"arch": arch, "watts": options["power"], "repeated": options["repeated"], **sides},
        _operation(timings.machine, sides, case),
    )


def _no_drafts(what: str, why: str) -> UsageError:
    return UsageError(what, code="USAGE_SYNTAX", why=why, hint=_EXAMPLE_OF_DRAFTS)


def _refuse_with_against(tree: Kernels, of: Mapping[str, Any]) -> None:
    hint = f"patchkit model --arch {click.get_current_context().params['arch']} --against FILE"
    if tree != Kernels() or any(of[name] is not None for name in ("kind", "head_size", "tokens", "drafting")):
        raise UsageError(
            "--against cannot be combined with options that select what to model",
            code="USAGE_SYNTAX",
            hint=hint,
        )
    if of["power"] is not None:
        raise UsageError(
            "--against cannot be combined with --power",
            code="USAGE_SYNTAX",
            why="the errors of the timing file are those of a machine without a power limit",
            hint=hint,
        )


def _timeline(
    settings: Settings, timings: Timings, profile: GpuProfile, tree: Kernels, of: Mapping[str, Any]
) -> None:
    if not of["timeline"] or (of["gguf"] is None) == (of["shape"] is None):
        raise UsageError(
            "--timeline requires exactly one of --gguf and --shape, and --parallel requires --timeline",
            code="USAGE_SYNTAX",
            hint="patchkit model --arch gfx1151 --gguf model.gguf --timeline",
        )
    if of["drafting"] is not None:
        raise _no_drafts(
            "--timeline cannot be combined with --drafts",
            "only the times of whole models are computed for drafts, not those of each launch",
        )
    request = TimelineRequest(
        gguf=of["gguf"],
        shape=of["shape"],
        depth=of["depth"],
        prompt=of["prompt"],
        generated=of["generated"],
        parallel=of["parallel"],
        kv_type=of["kv_type"],
    )
    with contextlib.ExitStack() as stack:
        recorders = _recorders(timings, tree, stack, with_rocwmma=False)
        name, tests = model_timelines(timings, profile, recorders, request)
    document = {
        "arch": profile.arch,
        "watts": of["power"],
        "model": name,
        "timeline": tests,
        "errors": _rate_errors(timings.machine, tests, is_timeline=True),
    }
    settings.show(document, timeline_lines(timings.machine, name, tests))


def _rate_errors(
    machine: Machine, tests: Mapping[str, Mapping[str, ModelTime | Timeline]], *, is_timeline: bool = False
) -> dict[str, dict[str, RateError | None]]:
    """The known error of each test's tokens per second, by side."""
    return {
        test: {side: machine.rate_error(time.kind, is_timeline=is_timeline) for side, time in times.items()}
        for test, times in tests.items()
    }


def _program(timed: ProgramTime) -> Iterator[str]:
    yield f"{timed.arch}: modelled, not measured; only some blocks of each launch ran"
    head = f"{'total us':>10} {'launches':>8} {'max us':>9} {'blocks':>7} {'threads':>7} {'waves/SIMD':>10}"
    yield f"{head}  {'limited by':<18} kernel"
    for kernel in timed.kernels:
        longest, played = kernel.longest, kernel.longest.played
        yield (
            f"{kernel.us:>10.1f} {kernel.launches:>8} {longest.us:>9.1f} {played.blocks:>7} "
            f"{math.prod(kernel.head.block):>7} {played.waves_per_simd:>10.1f}  {longest.limit:<18} "
            f"{kernel.head.kernel[:48]}"
        )
    yield f"{timed.us:>10.1f} us in total, without overlap; the program's exit status was {timed.status}"


def _case(of: Mapping[str, Any]) -> Timed:
    is_matrix = None not in (of["kind"], of["rows"], of["columns"], of["tokens"])
    is_attention = None not in (of["head_size"], of["kv"], of["tokens"])
    if is_attention and of["kind"] is None:
        return attention_case(
            of["head_size"], of["heads"], of["kv_heads"], kv=of["kv"], tokens=of["tokens"], kind=of["kv_type"]
        )
    if of["used"] > of["experts"]:
        raise UsageError(
            f"--used {of['used']} is more than --experts {of['experts']}",
            code="USAGE_SYNTAX",
        )
    if is_matrix and of["head_size"] is None:
        return matrix_case(
            of["kind"], of["rows"], of["columns"], of["tokens"], experts=of["experts"], used=of["used"]
        )
    raise UsageError(
        "no operation is selected",
        code="OPERATION_NOT_NAMED",
        why="a matmul needs --type, --rows, --columns and --tokens; attention --head-size, --kv and --tokens",
        hint="patchkit model --arch gfx1151 --type q4_K --rows 4096 --columns 4096 --tokens 512",
    )


def _sides(
    timings: Timings, case: Timed, tree: Kernels, *, repeated: bool
) -> dict[str, OperationTime | None]:
    with contextlib.ExitStack() as stack:
        return {
            name: timings.time(case, recorder, repeated=repeated)
            for name, recorder in _recorders(
                timings, tree, stack, with_rocwmma=isinstance(case, Case)
            ).items()
        }


def _source(workspace: Workspace, pin: Pin) -> Source:
    return _as_source(export_pin(pin, workspace), pin)


def _as_source(exported: ExportedTree, pin: Pin) -> Source:
    return Source(root=exported.root, tree=exported.tree, build=pin.build, commit=exported.commit[:9])


def _recorders(
    timings: Timings, tree: Kernels, stack: contextlib.ExitStack, *, with_rocwmma: bool
) -> dict[str, Recorder]:
    """Make recorders for upstream as built by default and, if there is one, for the candidate.

    With ``with_rocwmma``, and if this build has one, also for upstream's rocWMMA attention kernel.
    """
    workspace = timings.workspace
    if tree.onto is None:
        pin = load_lock(workspace.series.lock).pin(tree.upstream)
        upstream = _source(workspace, pin)
    else:
        pin = find_onto_pin(tree.onto, workspace, (timings.gpu.device.arch,))
        upstream = source_of_commit(workspace, replace(tree.onto, revision=pin.commit or tree.onto.revision))
    found = {"upstream": timings.record(upstream, stack, rocwmma=False)}
    if with_rocwmma and found["upstream"].tree.has(llama_cpp().gpu_file("fattn-wmma-f16.cu")):
        found["rocWMMA"] = timings.record(upstream, stack)
    try:
        repository, candidate = find_candidate(workspace, (timings.gpu.device.arch,), pin)
    except GitError as error:
        workspace.reporter.warn(f"modelling upstream's kernels only: {error.message}")
        return found
    exported = export_tree(repository, candidate.tip, workspace.cache_root / "trees")
    found["candidate"] = timings.record(_as_source(exported, pin), stack)
    return found


def _network(gguf: Path | None, shape: Path | None) -> ModelShape:
    if gguf is not None and shape is not None:
        raise UsageError("--gguf cannot be combined with --shape", code="USAGE_SYNTAX")
    if gguf is not None:
        return shape_of_header(load_gguf_parts(gguf), gguf)
    if shape is None:
        raise AssertionError("one of them is there")
    return shape_of_file(shape)


def _tests(
    timings: Timings, network: ModelShape, tree: Kernels, of: Mapping[str, Any]
) -> tuple[dict[str, dict[str, ModelTime]], dict[str, list[MeasuredComparison]], dict[str, DraftStep]]:
    """Return the times by test and side, the series' measurements of the tests, and the step by side."""
    files = tuple(load_evidence_folder(timings.workspace.series.evidence).values())
    middle = of["depth"] + of["generated"] // 2  # the token in the middle stands for all of them
    prompt, token = f"pp{of['prompt']} @ d{of['depth']}", f"tg{of['generated']} @ d{of['depth']}"
    wanted: dict[str, tuple[ModelShape, Batch]] = {}
    if of["prompt"]:
        wanted[prompt] = (network, Batch(tokens=of["prompt"], depth=of["depth"]))
    if of["generated"]:
        wanted[token] = (network, Batch(tokens=1, depth=middle))
    if not wanted:
        raise UsageError(
            "nothing to model: --pp and --tg are both 0", code="NOTHING_TO_ESTIMATE", hint="--pp 512 --tg 128"
        )
    drafting = of["drafting"]
    verify, draft = "", ""
    if drafting is not None:
        if not of["generated"]:
            raise _no_drafts(
                "--drafts cannot be combined with --tg 0", "drafts are compared with token generation"
            )
        size = drafting.drafts + 1
        verify, draft = f"verify{size} @ d{middle}", f"draft1 @ d{middle}"
        wanted[verify] = (network, Batch(tokens=size, depth=middle, outputs=size))
        small = drafting.shape(of["gguf"])
        if small is not None:
            wanted[draft] = (small, Batch(tokens=1, depth=middle))
    found, trees = _times(timings, tree, wanted, of["kv_type"], network.name)
    measured = {
        test: [
            *compare_measured(
                files,
                timings.machine,
                model=network.name,
                trees=trees,
                times=found[test],
                is_prompt=test == prompt,
                count=of["prompt"] if test == prompt else of["generated"],
                depth=of["depth"],
            )
        ]
        for test in (prompt, token)
        if test in found
    }
    steps = {
        side: DraftStep(
            depth=middle,
            drafting=drafting,
            verifying_seconds=time.us / 1e6,
            token_seconds=found[token][side].us / 1e6,
            draft_seconds=found[draft][side].us / 1e6 if draft in found else None,
        )
        for side, time in found.get(verify, {}).items()
    }
    return found, measured, steps


def _times(
    timings: Timings, tree: Kernels, wanted: Mapping[str, tuple[ModelShape, Batch]], kv: str, what: str
) -> tuple[dict[str, dict[str, ModelTime]], dict[str, str]]:
    """Model each batch on each side; returns the times by test and side, and the tree of each side."""
    with contextlib.ExitStack() as stack:
        recorders = _recorders(timings, tree, stack, with_rocwmma=True)
        cases = dict.fromkeys(
            case for shape, batch in wanted.values() for case in operations_of(shape, batch, kv)
        )
        runs = [(side, case) for case in cases for side in recorders]
        times = run_parallel(
            runs,
            lambda one: timings.time(one[1], recorders[one[0]], repeated=False),
            reporter=timings.workspace.reporter,
            what=f"modelling {what}",
            unit="operations",
            stop=timings.compiler.stop,
        )
        trees = {side: recorder.side.built.tree for side, recorder in recorders.items() if side != "rocWMMA"}
    known: dict[str, dict[Timed, OperationTime | None]] = {side: {} for side in recorders}
    for (side, case), time in zip(runs, times, strict=True):
        known[side][case] = time
    found = {
        test: {side: time_model(shape, batch, kv, known[side].__getitem__) for side in known}
        for test, (shape, batch) in wanted.items()
    }
    return found, trees


def _models(
    machine: Machine,
    tests: dict[str, dict[str, ModelTime]],
    network: ModelShape,
    measured: dict[str, list[MeasuredComparison]],
    steps: Mapping[str, DraftStep],
) -> Iterator[str]:
    yield f"{network.name} (modelled, not measured; {network.source})"
    yield machine.box
    yield f"{'test':<18} {'side':<10} {'t/s':>9} {'attention':>9} {'BLAS':>6}  largest shares of the time"
    for test, times in tests.items():
        for side, time in times.items():
            most = sorted(time.parts, key=lambda part: -part.us)[:3]
            largest = ", ".join(f"{part.us / time.us:.0%} {part.count} x {part.case}" for part in most)
            shares = f"{time.attention:>9.1%} {time.of_library:>6.0%}"
            yield f"{test:<18} {side:<10} {time.rate:>9.1f} {shares}  {largest}"
            yield from (f"  no kernel for {missing}" for missing in time.missing)
        for kind in dict.fromkeys(time.kind for time in times.values()):
            yield f"  {machine.rate_error_text(kind)}"
        after = times.get("candidate")
        yield from _gains(
            {side: time.rate for side, time in times.items()},
            {side: ratio_error(machine, time, after) for side, time in times.items() if after is not None},
        )
        yield from (line for one in measured.get(test, ()) for line in one.lines())
    yield from draft_lines(list(steps.items()), "side")
    yield from _gains({side: step.expected_rate for side, step in steps.items()}, {})


def _gains(rates: Mapping[str, float], errors: Mapping[str, float | None]) -> Iterator[str]:
    """Yield how much faster the candidate is than each other side, with the error of that ratio."""
    after = rates.get("candidate")
    for name, before in rates.items() if after is not None else ():
        if after is not None and name != "candidate":
            error = errors.get(name)
            yield (
                f"the candidate is {after / before:.3f} times as fast as {name} (modelled, "
                + (
                    f"±{error * after / before:.2f})"
                    if error is not None and error < 1
                    else "its error is unknown)"
                )
            )


def _operation(machine: Machine, sides: dict[str, OperationTime | None], case: Timed) -> Iterator[str]:
    yield f"{case} (modelled, not measured)"
    yield machine.box
    times = {}
    for name, time in sides.items():
        if time is None:
            yield f"{name}: the backend has no kernel for it"
            continue
        yield f"{name}: {time.us:.1f} us{_error(time)}"
        yield from (f"  not modelled: {call} (BLAS)" for call in time.products)
        yield f"  {'us':>9} {'blocks':>7} {'waves/SIMD':>10} {'MHz':>5}  {'limited by':<18} kernel"
        for kernel in time.kernels:
            played = kernel.played
            shares = ", ".join(f"{what} {part:.0%}" for what, part in list(kernel.shares.items())[:4])
            yield (
                f"  {kernel.us:>9.1f} {played.blocks:>7} {played.waves_per_simd:>10.1f} "
                f"{played.clock_mhz:>5.0f}  {kernel.limit:<18} {played.kernel[:48]}"
            )
            yield f"  {'':>35} {shares}"
        if not time.products:
            times[name] = time
    after = times.get("candidate")
    errors = {
        name: _error_of_ratio(machine, time, after) for name, time in times.items() if after is not None
    }
    yield from _gains({name: 1 / time.us for name, time in times.items()}, errors)


def _error_of_ratio(machine: Machine, before: OperationTime, after: OperationTime) -> float | None:
    if (before.kernels, before.products) == (after.kernels, after.products):
        return 0.0
    if is_moe(after.case):
        return None
    return machine.ratio_error(before.kind, after.kind, head_size_of(after.case))


def _error(time: OperationTime) -> str:
    if is_moe(time.case):
        return "; its error is unknown: no MoE matmul was compared with a published time"
    known = time.error
    if known is None:
        of = in_words(time.kind, head_size_of(time.case))
        return f"; its error is unknown: no such kernel was compared with a published time ({of})"
    return (
        f"; error against {known.points} published times of such kernels ({known}): median "
        f"{known.median:.0%}, 90th percentile {known.p90:.0%}"
    )


def _errors(title: str, by_name: Mapping[str, Errors]) -> Iterator[str]:
    yield ""
    yield f"{title:<28} {'points':>6} {'median':>7} {'90th':>7} {'bias':>6}"
    for name, one in by_name.items():
        yield f"{name:<28} {one.points:>6} {one.median:>7.1%} {one.p90:>7.1%} {one.bias:>6.2f}"


def _compared_models(found: Comparison) -> Iterator[str]:
    """Yield the speeds of whole models and their errors."""
    if not found.models:
        return
    yield ""
    head = f"{'row':>4} {'side':<7} {'build':>6} {'measured':>9} {'modelled':>9} {'error':>7} {'BLAS':>5}"
    yield f"{head}  tokens per second of"
    for one in found.models:
        point, batch = one.point, one.point.batch
        notes = ("rocWMMA" if point.rocwmma else "", point.note, *one.modelled.missing)
        note = ", ".join(filter(None, notes))
        yield (
            f"{point.index:>4} {point.side:<7} {point.pin.name:>6} {point.measured:>9.1f} "
            f"{one.modelled.rate:>9.1f} {one.error:>+7.1%} {one.modelled.of_library:>5.0%}  "
            f"{point.model.name}, {point.what}: {batch.tokens} tokens @ d{batch.depth}"
            f"{f' ({note})' if note else ''}"
        )
    yield from _errors("whole models", found.model_errors())


def _compared_attention(found: Comparison) -> Iterator[str]:
    """Yield the times of attention, of kernels or as differences between two depths, and their errors."""
    if not found.attention:
        return
    yield ""
    head = f"{'row':>4} {'side':<7} {'build':>6} {'measured':>9} {'modelled':>9} {'error':>7}  {'kernel':<9}"
    yield f"{head}  microseconds of"
    for one in found.attention:
        point = one.point
        notes = ", ".join(filter(None, ("rocWMMA" if point.rocwmma else "", point.note)))
        start = f"{point.index:>4} {point.side:<7} {point.pin.name:>6} {point.measured_us:>9.0f}"
        if one.modelled_us is None:
            yield f"{start} {'-':>9} {'-':>7}  {one.kind:<9}  {point}: {one.why}"
            continue
        note = f" ({notes})" if notes else ""
        yield f"{start} {one.modelled_us:>9.0f} {one.error:>+7.1%}  {one.kind:<9}  {point}{note}"
    yield from _errors("attention", found.attention_errors())


def _comparison(found: Comparison) -> Iterator[str]:
    head = f"{'row':>4} {'side':<6} {'build':>6} {'measured':>9} {'modelled':>9}"
    yield f"{head} {'error':>7}  {'limited by':<18} operation"
    for one in found.compared:
        point = one.point
        start = f"{point.index:>4} {point.side:<6} {point.pin.name:>6} {point.measured_us:>9.1f}"
        what = f"{point.case.op} {point.case.type} {point.case.rows}x{point.case.tokens}x{point.case.columns}"
        note = ", ".join(filter(None, (str(point.config or ""), point.note)))
        if one.modelled is None:
            yield f"{start} {'-':>9} {'-':>7}  {'':<18} {what}: {one.why}"
            continue
        limit = max(one.modelled.kernels, key=lambda kernel: kernel.us).limit
        remark = f" ({note})" if note else ""
        yield f"{start} {one.modelled.us:>9.1f} {one.error:>+7.1%}  {limit:<18} {what}{remark}"
    for refused in found.refused:
        side = refused.side or ""
        none = f"{'-':>6} {'':>9} {'-':>9} {'-':>7}  {'':<18}"
        yield f"{refused.index:>4} {side:<6} {none} {refused.group}: {refused.why}"
    yield from _errors("", found.errors())
    yield from _compared_models(found)
    yield from _compared_attention(found)
    if found.ratios:
        yield ""
        for ratio in found.ratios:
            yield (
                f"{ratio.index:>4} before/after: measured {ratio.measured:.3f}, "
                f"modelled {ratio.modelled:.3f} ({ratio.error:+.1%}) {ratio.case}"
            )
        signs = found.signs()
        yield (
            f"ratios: {len(found.ratios)}, median error {found.ratio_errors().median:.1%}; "
            f"of {signs[1]} that differ by 4 % or more {signs[0]} have the right sign"
        )
    yield "Modelled times are computed without a GPU; measured ones are from the file."
