"""Both sides for gates on a device: build them, describe the builds, attribute errors to the candidate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from patchkit.base.errors import GateError, ToolchainError
from patchkit.base.jobs import run_parallel
from patchkit.base.reporter import Reporter
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions, Schedule, emulated_gpu
from patchkit.prove.build import Machine, Sides, build_sides
from patchkit.prove.gates.base import Many, Record
from patchkit.prove.gates.touched import touched_units
from patchkit.prove.gates.used import COUNTING
from patchkit.prove.subject import Subject
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.parts import GATE_PROGRAMS
from patchkit.toolchain.sides import BuiltSide

_Broken = TypeVar("_Broken", bound=GateError)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def sides_on(
    machine: Machine,
    subject: Subject,
    programs: Sequence[str] = GATE_PROGRAMS,
    *,
    schedule: Schedule = "in-order",
) -> Iterator[Sides]:
    """Both sides, ready to run on the machine for the duration of the context.

    ``schedule``: when asynchronous work runs on the emulated GPU.

    On the emulated GPU they contain upstream's rocWMMA kernel unless the candidate is built without it. Trees
    without that kernel are compiled with its macro as well: nothing reads it there, but it is part of the key
    of cached results.

    Raises:
        CandidateBuildFailed: only the candidate does not build.
        The errors of :func:`patchkit.prove.build.build_sides`, and on the emulated GPU those of
        :func:`patchkit.gpu.emulated.emulator.emulated_gpu` and
        :func:`patchkit.gpu.emulated.emulated_sides.emulated_side`.
    """
    if machine.emulates is None:
        sides = build_sides(subject, machine.backend, programs, is_timed=not machine.is_cpu)
        yield replace(sides, after=_counting(sides.after))
        return
    gpu, compiler = emulated_gpu_of(subject, machine.emulates)
    sides = build_sides(subject, "cpu", programs, is_timed=False)
    trees = subject.trees
    emulated = partial(
        emulated_side,
        gpu=gpu,
        compiler=compiler,
        options=EmulationOptions(schedule=(schedule, 0)),
        rocwmma=not subject.is_without_rocwmma,
        fresh=machine.is_fresh,
        whole=touched_units(subject),
    )
    with emulated(sides.before, trees[0]) as before, emulated(sides.after, trees[1]) as after:
        yield replace(sides, before=before.built, after=_counting(after.built))


def emulated_gpu_of(
    subject: Subject, arch: str, adapt: Callable[[Compiler], Compiler] = lambda compiler: compiler
) -> tuple[EmulatedGpu, Compiler]:
    """A GPU of the candidate, emulated, and the compiler for it, which ``adapt`` may change.

    Raises COMPILER_MISSING, and the errors of :func:`patchkit.gpu.emulated.emulator.emulated_gpu`.
    """
    if subject.toolchain is None:
        raise ToolchainError(
            "the emulated GPU needs a HIP toolchain", code="COMPILER_MISSING", hint="patchkit sdk install"
        )
    compiler = adapt(
        open_compiler(subject.toolchain, subject.cache_root, subject.reporter, stop=subject.stop)
    )
    return emulated_gpu(device_of(subject.profiles[arch], guess_units=True), compiler), compiler


def _counting(candidate: BuiltSide) -> BuiltSide:
    """The candidate, with programs that say how often they used each patch."""
    return replace(candidate, environment={**candidate.environment, **COUNTING})


class BuiltPart(Record):
    """A part of llama.cpp that was built; ``shared``: both sides use the same build."""

    part: str
    key: str
    shared: bool
    log: str
    compiler: str


BuiltSides = dict[str, Many[BuiltPart]]


def built_sides(sides: Sides) -> BuiltSides:
    """The parts of ``baseline`` and ``candidate``."""
    shared = {one.part.key for one in sides.before.parts} & {one.part.key for one in sides.after.parts}
    return {
        name: tuple(
            BuiltPart(
                part=built.part.name,
                key=built.part.key,
                shared=built.part.key in shared,
                log=str(built.log),
                compiler=built.part.compiler,
            )
            for built in side.parts
        )
        for name, side in (("baseline", sides.before), ("candidate", sides.after))
    }


def run_each(
    machine: Machine,
    items: Sequence[_Item],
    work: Callable[[_Item, threading.Event], _Result],
    *,
    reporter: Reporter,
    what: str,
    unit: str,
) -> list[_Result]:
    """Call ``work`` on each item; the results are in the order of the items.

    In parallel on the emulated GPU, because there it mostly waits for the compiler of one unit; one after the
    other on a real device. ``work`` also gets the event that ends its programs when another item fails.
    """
    stop = threading.Event()
    if machine.is_emulated:
        return run_parallel(
            items, lambda item: work(item, stop), reporter=reporter, what=what, unit=unit, stop=stop
        )
    done = []
    with reporter.progress(what, unit) as advance:
        for item in items:
            done.append(work(item, stop))
            advance(len(done), len(items))
    return done


def blame_candidate(error: ToolchainError, kind: type[_Broken], doing: str = "") -> _Broken:
    """Turn the error of a run into a finding about the candidate: the same run of the baseline finished."""
    what = f"only on the candidate, {doing}" if doing else "only on the candidate"
    return kind(f"{what}: {error.message}", where=error.where, why=error.why, hint=error.hint)
