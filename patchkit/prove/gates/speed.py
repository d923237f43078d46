"""Gate ``speed``: the shapes that patches name, by the timing model, on baseline and candidate.

Nothing is measured here. The error of a ratio of two modelled times is taken to be the model's error for such
kernels where others measured them. A bench of the same trees on hardware overrides this gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from patchkit.base.errors import ConfigError, GateError, PatchkitError, ToolchainError
from patchkit.base.jobs import run_parallel
from patchkit.base.report.blocks import Block, Row, Table, columns, figure, percent, was_is
from patchkit.base.series_folder import SeriesDir
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.base.verdict import MODELLED, SpeedVerdict
from patchkit.carry.series.lock import Lock
from patchkit.carry.series.measured import PatchMeasured, measured_in
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.promises import SpeedShape
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.hardware.bench.statistics import LEAST, Interval, judge_interval
from patchkit.gpu.modelled.machine import Machine as TimedMachine
from patchkit.gpu.modelled.machine import in_words, load_machine
from patchkit.gpu.modelled.operation import (
    OperationTime,
    attention_case,
    matrix_case,
    time_operation,
    type_name,
    type_of,
)
from patchkit.gpu.modelled.recording import Recorder, Timed, as_measured, recorder_of
from patchkit.prove.build import CandidateBuildFailed, build_sides
from patchkit.prove.gates.base import (
    Both,
    DeviceEvidence,
    DeviceGate,
    GateResult,
    Many,
    Number,
    Record,
)
from patchkit.prove.gates.bench import BenchEvidence, JudgedTest
from patchkit.prove.gates.emulated import emulated_on
from patchkit.prove.gates.record import GateReport, find_gate
from patchkit.prove.gates.sides import blame_candidate, emulated_gpu_of
from patchkit.prove.subject import PatchPart, Subject
from patchkit.toolchain.parts import GATE_PROGRAMS

NAME = "speed"
_LARGEST_ERROR = 0.9  # with a larger error the interval would be meaningless

SpeedJudgement = SpeedVerdict | Literal["not judged"]


class SpeedBroken(GateError):
    """A shape runs on the baseline but not on the candidate."""

    code = "SPEED_BROKEN"


class JudgedShape(Record):
    """One shape of a patch on one GPU: modelled microseconds and the slowest kernel of both sides.

    ``change`` is the candidate's speedup as a fraction, ``interval`` its range given the model's error. The
    judgement is ``same`` if the whole interval is within 2 %, as in gate bench, or if both sides are
    identical for the model; it is ``unclear`` if the interval is wider and contains zero. ``why`` is the
    reason. ``hardware`` is a measurement, which decides. ``measured`` lists what evidence files report of the
    patch in tests of that kind; ``doubt`` is set if one of them is outside of what the model allows.
    """

    patch: str
    arch: str
    shape: str
    baseline_us: Number | None
    candidate_us: Number | None
    kernels: Both[str] | None
    change: Number | None
    interval: Both[Number] | None
    judgement: SpeedJudgement
    why: str
    hardware: str | None
    measured: Many[str] = ()
    doubt: str | None = None

    @property
    def label(self) -> str:
        """The judgement as text."""
        return self.judgement if self.judgement == "not judged" else f"{self.judgement} (modelled)"

    @property
    def is_lost(self) -> bool:
        """Whether it fails the gate: slower by more than the error, and no measurement contradicts it."""
        return self.judgement == "slower" and self.hardware is None and self.doubt is None


class SpeedEvidence(DeviceEvidence):
    """All shapes, and the sources of the model's errors."""

    shapes: Many[JudgedShape]
    errors: Many[str]

    @property
    def outcome(self) -> str:
        """How many operations the model puts where."""
        counts = {word: sum(one.judgement == word for one in self.shapes) for word in _WORDS}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

    def blocks(self) -> Iterator[Block]:
        """A chart and a table of all shapes."""
        titles = ("result", "patch", "GPU", "operation", "baseline us #", "candidate us #", "change #")
        yield Table(
            name="speed",
            caption="Modelled speed of the shapes that patches name (not measured)",
            columns=columns(*titles, "interval #", "kernel", "why"),
            rows=tuple(
                Row(
                    cells=(
                        one.label,
                        one.patch,
                        one.arch,
                        one.shape,
                        *("-" if us is None else figure(us) for us in (one.baseline_us, one.candidate_us)),
                        "-" if one.change is None else percent(one.change),
                        "-" if one.interval is None else " to ".join(map(percent, one.interval)),
                        "-" if one.kernels is None else was_is(*one.kernels),
                        "; ".join(filter(None, (one.why, one.hardware, *one.measured, one.doubt))),
                    ),
                )
                for one in self.shapes
            ),
            note="By the timing model (docs/records/timing-model.md). Nine of ten measured changes of such "
            "kernels were within the interval; if no such change was measured, the interval combines the "
            "errors of both times. Measurements on hardware override the model.",
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the sources of the intervals."""
        yield from super().provenance()
        yield from (("error of the timing model", one) for one in self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedGate(DeviceGate):
    """Models traces of the emulated GPU. ``types``: only shapes of these tensor types."""

    NAME = NAME
    types: tuple[str, ...] = ()

    def run(self, subject: Subject) -> GateResult:
        """Model every shape on both sides, and compare.

        Raises:
            ToolchainError: building or recording the baseline failed.
            ConfigError, ErrorGroup: a timing file or a shape is invalid.
            CacheError: the disk is full or not writable.
        """
        if not self.machine.is_emulated:
            why = "needs the emulated GPU, whose traces the timing model replays"
            return GateResult(gate=self.name, verdict="not run", summary=why)
        open_ones = [
            f"{part.id}: its kernels; patch.toml names no shapes ([speed])"
            for part in subject.patches
            if part.patch.speed is None
        ]
        every = list(_named(subject))
        named = [one for one in every if not self.types or _type_of(one.shape) in self.types]
        machines = dict(_machines(subject, open_ones)) if named else {}
        if not machines:
            of = f" of {', '.join(self.types)}" if every and not named else ""
            why = (
                "no GPU of the candidate has a timing file"
                if named
                else f"no patch names shapes{of} ([speed])"
            )
            return GateResult(gate=self.name, verdict="not run", summary=why, not_run=tuple(open_ones))
        found: list[JudgedShape] = []
        try:
            for arch, machine in machines.items():
                found += _judged(subject, arch, machine, named)
        except (CandidateBuildFailed, SpeedBroken) as error:
            return GateResult.ended_by(self.name, error)
        result = self._result(subject, found, machines.values(), open_ones)
        if len(named) == len(every):
            return result
        summary = f"of {len(every)}, those of {', '.join(self.types)}: {result.summary}"
        return replace(result, summary=summary)

    def _result(
        self,
        subject: Subject,
        found: Sequence[JudgedShape],
        machines: Iterable[TimedMachine],
        open_ones: Sequence[str],
    ) -> GateResult:
        problems = tuple(_problems(subject, found))
        counts = {word: sum(one.judgement == word for one in found) for word in _WORDS}
        words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        unproven = [one for one in found if one.judgement in _OPEN]
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else MODELLED if len(unproven) < len(found) else "not run",
            summary=f"{counted(len(found), 'shape')}, modelled, not measured: {words}",
            problems=problems,
            evidence=SpeedEvidence(
                emulated=emulated_on(self.machine),
                shapes=tuple(found),
                errors=tuple(
                    f"{machine.device.arch}, {error}: {error.source}"
                    for machine in machines
                    for error in machine.file.error
                ),
            ),
            not_run=(
                *open_ones,
                *(f"{one.patch}: {one.shape} on {one.arch}: {_open(one)}" for one in unproven),
            ),
            lines=tuple(map(_line, found)),
        )


_WORDS: tuple[SpeedJudgement, ...] = (*get_args(SpeedVerdict), "not judged")
_OPEN: tuple[SpeedJudgement, ...] = ("unclear", "not judged")


def _open(one: JudgedShape) -> str:
    """Why a shape is not proven."""
    return (
        one.why if one.interval is None else f"unclear, {' to '.join(map(percent, one.interval))}: {one.why}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """A shape that a patch names, and its operation."""

    part: PatchPart
    shape: SpeedShape
    case: Timed


def _named(subject: Subject) -> Iterator[_Named]:
    for part in subject.patches:
        for shape in part.patch.speed.shapes if part.patch.speed is not None else ():
            yield _Named(part=part, shape=shape, case=case_of(shape))


def _type_of(shape: SpeedShape) -> str:
    """The type of the matrix, or of the KV cache for attention."""
    return type_name(type_of(shape.type or shape.kv_type))


def _judged(
    subject: Subject, arch: str, machine: TimedMachine, named: Sequence[_Named]
) -> Iterator[JudgedShape]:
    """The shapes of patches that are active on the GPU."""
    measured = hardware_bench(subject)
    series = SeriesDir(root=subject.profiles_folder.parent, origin="named")
    known = measured_in(series, {one.id: one.patch.folder for one in subject.patches})
    live = [one for one in named if arch in one.part.archs]
    with _recorders(subject, arch) as (before, after):

        def times_of(one: _Named) -> tuple[OperationTime | None, OperationTime | None]:
            return (
                time_operation(machine, one.case, before, repeated=False),
                _of_candidate(machine, one.case, after),
            )

        # In parallel, because most of the time is spent waiting for the compiler of one unit.
        times = run_parallel(
            live,
            times_of,
            reporter=subject.reporter,
            what=f"modelling on {arch}",
            unit="shapes",
            stop=before.compiler.stop,
        )
    for one, both in zip(live, times, strict=True):
        judged = judged_shape(one.part.id, one.shape, machine, both, measured)
        yield compare_with_measured(judged, one.shape, known)


def _machines(subject: Subject, open_ones: list[str]) -> Iterator[tuple[str, TimedMachine]]:
    """The GPUs of the candidate that have a timing file; the others are added to ``open_ones``."""
    for arch in subject.archs:
        profile = subject.profiles[arch]
        try:
            yield arch, load_machine(subject.profiles_folder, device_of(profile, guess_units=True))
        except ConfigError as error:
            if error.code != "TIMING_UNKNOWN":
                raise
            open_ones.append(f"{arch}: {error.message}")


@contextmanager
def _recorders(subject: Subject, arch: str) -> Iterator[tuple[Recorder, Recorder]]:
    """The recorders of both sides, for the duration of the context."""
    gpu, compiler = emulated_gpu_of(subject, arch, as_measured)
    sides = build_sides(subject, "cpu", GATE_PROGRAMS, is_timed=False)
    trees = subject.trees
    with (
        recorder_of(sides.before, trees[0], gpu, compiler) as before,
        recorder_of(sides.after, trees[1], gpu, compiler) as after,
    ):
        yield before, after


def _of_candidate(machine: TimedMachine, case: Timed, recorder: Recorder) -> OperationTime | None:
    try:
        return time_operation(machine, case, recorder, repeated=False)
    except ToolchainError as error:
        raise blame_candidate(error, SpeedBroken) from error


def case_of(shape: SpeedShape) -> Timed:
    """The operation of a shape.

    Raises:
        TENSOR_TYPE_UNKNOWN, COLUMNS_NOT_WHOLE, USAGE_SYNTAX: the shape is invalid, with its place.
    """
    try:
        if shape.type is not None and shape.rows is not None and shape.columns is not None:
            return matrix_case(
                shape.type, shape.rows, shape.columns, shape.tokens, experts=shape.experts, used=shape.used
            )
        if not (shape.head_size and shape.heads and shape.kv_heads and shape.kv):
            raise AssertionError("SpeedShape checks that")
        return attention_case(
            shape.head_size,
            shape.heads,
            shape.kv_heads,
            kv=shape.kv,
            tokens=shape.tokens,
            kind=shape.kv_type,
        )
    except PatchkitError as error:
        raise ConfigError(
            error.message, code=error.code, where=shape.where, why=error.why, hint=error.hint
        ) from error


def shape_text(shape: SpeedShape) -> str:
    """A shape as short text."""
    if shape.type is not None:
        of = f", {shape.used} of {shape.experts} experts" if shape.experts > 1 else ""
        return f"{shape.type} {shape.rows}x{shape.columns}{of}, {counted(shape.tokens, 'token')}"
    kv = f"{shape.kv} rows of {shape.kv_type}"
    heads = f"head size {shape.head_size}, {shape.heads} heads, {shape.kv_heads} KV heads"
    return f"attention, {heads}, {kv}, {counted(shape.tokens, 'token')}"


def hardware_bench(subject: Subject) -> BenchEvidence | None:
    """What llama-bench measured for this candidate on hardware, if it finished."""
    gate = find_gate(subject.cache_root, subject.candidate_tree, "bench")
    evidence = None if gate is None or gate.verdict == "not run" else gate.evidence
    if not isinstance(evidence, BenchEvidence):
        return None
    known = evidence.identity
    same = known is not None and (known.baseline_tree, known.candidate_tree) == (
        subject.baseline_tree,
        subject.candidate_tree,
    )
    return evidence if same and evidence.emulated is None else None


def judged_shape(
    patch: str,
    shape: SpeedShape,
    machine: TimedMachine,
    times: tuple[OperationTime | None, OperationTime | None],
    measured: BenchEvidence | None,
) -> JudgedShape:
    """Judge a shape from its modelled times on both sides (None: no kernel computes it on that side)."""
    before, after = times
    found = JudgedShape(
        patch=patch,
        arch=machine.device.arch,
        shape=shape_text(shape),
        baseline_us=None,
        candidate_us=None,
        kernels=None,
        change=None,
        interval=None,
        judgement="not judged",
        why="",
        hardware=_hardware(shape, measured),
    )
    if before is None or after is None:
        sides = (("baseline", before), ("candidate", after))
        none = " and the ".join(name for name, time in sides if time is None)
        return found.model_copy(update={"why": f"no kernel of the {none} computes it"})
    ratio = before.us / after.us
    judged: dict[str, object] = {
        "baseline_us": before.us,
        "candidate_us": after.us,
        "kernels": (_main(before), _main(after)),
        "change": ratio - 1,
    }
    kinds = was_is(before.kind, after.kind)
    error = machine.ratio_error(before.kind, after.kind, shape.head_size)
    products = dict.fromkeys([*before.products, *after.products])
    if (before.kernels, before.products) == (after.kernels, after.products):
        judged |= {"interval": (0.0, 0.0), "judgement": "same"}
        judged["why"] = "both sides launch the same kernels with the same figures for the model"
    elif products:
        judged["why"] = f"a BLAS library computes {', '.join(products)}"
    elif shape.experts > 1 or error is None:
        such = f"such kernels ({in_words(kinds, shape.head_size)})"
        of = "MoE matmuls" if shape.experts > 1 else such
        judged["why"] = f"the model was not validated against measurements of {of}, so its error is unknown"
    elif error > _LARGEST_ERROR:
        judged["why"] = f"the model's error is {error:.0%} for such kernels ({kinds})"
    else:
        low, high = ratio / (1 + error) - 1, ratio / (1 - error) - 1
        judged["interval"] = (low, high)
        judged["judgement"] = judge_interval(
            Interval(low=low, middle=ratio - 1, high=high), margin=0.0, least=LEAST
        )
        known = machine.error_of(before.kind, shape.head_size) if before.kind == after.kind else None
        judged["why"] = (
            f"nine of ten such ratios ({kinds}) were within {error:.1%}"
            if known is not None and known.ratio_p90 is not None
            else f"no such change ({kinds}) was measured; {error:.1%} is the combined error of both times"
        )
    return found.model_copy(update=judged)


def compare_with_measured(
    judged: JudgedShape, shape: SpeedShape, known: Sequence[PatchMeasured]
) -> JudgedShape:
    """Add what machines measured for the patch, and a doubt if that is outside of the model's error.

    A test of prompt processing matches shapes with several tokens, one of token generation shapes with one
    token; for attention the head size must match. A test runs a whole model, which changes by less than one
    operation does, in the same direction or not at all. So only a change beyond the interval or in the other
    direction is outside.
    """
    rows = [
        one
        for one in known
        if one.patch == judged.patch
        and one.file.machine.arch == judged.arch
        and one.verdict.verdict != "unclear"
        and bool(one.test.generated) == (shape.tokens == 1)
        and (shape.head_size is None or shape.head_size == one.test.head_size)
    ]
    doubt = None
    if judged.interval is not None:
        low, high = min(0.0, judged.interval[0]), max(0.0, judged.interval[1])
        outside = [one for one in rows if one.verdict.high < low or one.verdict.low > high]
        if outside:
            tests = ", ".join(f"{one.text} by {one.file.who}" for one in outside[:_SHOWN])
            doubt = f"measured outside of the model's error: {tests}"
    shown = tuple(f"measured by {one.file.who}: {one.text}" for one in rows[:_SHOWN])
    return judged.model_copy(update={"measured": shown, "doubt": doubt})


_SHOWN = 4  # measurements per shape in a row of a table


def shapes_of(gate: GateReport | None) -> tuple[JudgedShape, ...]:
    """The shapes in a result of this gate; none if it has no evidence."""
    return gate.evidence.shapes if gate is not None and isinstance(gate.evidence, SpeedEvidence) else ()


def kept_doubts(patch: Patch, series: SeriesDir, lock: Lock, cache_root: Path) -> tuple[str, ...]:
    """Doubts about the model for a patch: the gate's last results for each tree of the lock, against files.

    Nothing is modelled again; a tree that the gate did not check on this machine is skipped.
    """
    known = measured_in(series, {patch.id: patch.folder})
    shapes = {shape_text(shape): shape for shape in patch.speed.shapes} if patch.speed is not None else {}
    found: dict[str, None] = {}
    for result in lock.results if known else ():
        for one in shapes_of(find_gate(cache_root, result.tree, NAME)):
            shape = shapes.get(one.shape)
            doubt = (
                compare_with_measured(one, shape, known).doubt if shape and one.patch == patch.id else None
            )
            if doubt is not None and one.change is not None:
                found[f"{one.shape} on {one.arch}: modelled {percent(one.change)}; {doubt}"] = None
    return tuple(found)


def _main(time: OperationTime) -> str:
    """The kernel that takes most of the time."""
    if not time.kernels:
        return "none"
    return str(read_name(max(time.kernels, key=lambda kernel: kernel.us).played.kernel))


def _hardware(shape: SpeedShape, measured: BenchEvidence | None) -> str | None:
    """Measurements on hardware: pp tests for several tokens, tg tests for one, with the same head size."""
    if measured is None or (shape.head_size is not None and shape.head_size != measured.head_size):
        return None
    kind = "tg" if shape.tokens == 1 else "pp"
    tests = [test for test in measured.tests if test.test.startswith(kind)]
    if not tests:
        return None
    results = ", ".join(map(_measured, tests))
    return f"hardware decides: {measured.runner} measured {results}"


def _measured(test: JudgedTest) -> str:
    return f"{test.test} {percent(test.change)} ({test.verdict})"


def _problems(subject: Subject, found: Sequence[JudgedShape]) -> Iterator[PatchkitError]:
    shapes = {(one.part.id, shape_text(one.shape)): one.shape for one in _named(subject)}
    for one in found:
        if not one.is_lost or one.change is None or one.interval is None:
            continue
        yield GateError(
            f"{one.shape} is slower on {one.arch} by the timing model: {percent(one.change)}, "
            f"{figure(one.baseline_us or 0)} to {figure(one.candidate_us or 0)} us",
            code="SPEED_SLOWER",
            where=shapes[one.patch, one.shape].where,
            why=f"{percent(one.interval[0])} to {percent(one.interval[1])}: {one.why}; not measured",
            hint=f"what limits it: patchkit model --arch {one.arch} --upstream {build_name(subject.build)} "
            f"{_options(shapes[one.patch, one.shape])}; gate bench on hardware overrides this",
        )


def _options(shape: SpeedShape) -> str:
    """The shape as options of ``patchkit model``."""
    names = (
        ("type", "rows", "columns") if shape.type is not None else ("head_size", "heads", "kv_heads", "kv")
    )
    options = [f"--{name.replace('_', '-')} {getattr(shape, name)}" for name in (*names, "tokens")]
    return " ".join(options)


def _line(one: JudgedShape) -> str:
    times = "" if one.change is None else f"{percent(one.change)}"
    interval = "" if one.interval is None else f" ({percent(one.interval[0])} to {percent(one.interval[1])})"
    hardware = "".join(f"; {text}" for text in (one.hardware, *one.measured, one.doubt) if text)
    return f"{one.label}: {one.patch}: {one.shape} on {one.arch} {times}{interval}{hardware}".rstrip()
