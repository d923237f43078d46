"""Gate ``speed``: the shapes that patches name, by the timing model, on the baseline and on the candidate.

Nothing is measured here: a ratio of two modelled times is taken to be off by as much as the model was off
where others measured such kernels. What a bench on hardware says of the same trees stands above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable
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
from patchkit.gpu.emulated.emulated_sides import EmulatedSide, emulated_side
from patchkit.gpu.emulated.emulator import EmulationOptions, emulated_gpu
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
from patchkit.gpu.modelled.recording import Recorder, Timed, as_measured
from patchkit.prove.build import CandidateBuildFailed, Machine, build_sides
from patchkit.prove.gates.base import (
    Both,
    DeviceEvidence,
    DeviceSetup,
    GateResult,
    Many,
    Number,
    Record,
)
from patchkit.prove.gates.bench import BenchEvidence, JudgedTest
from patchkit.prove.gates.emulated import emulated_on
from patchkit.prove.gates.record import read_gate
from patchkit.prove.gates.sides import blame_candidate
from patchkit.prove.subject import PatchPart, Subject
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.parts import GATE_PROGRAMS
from patchkit.toolchain.units import SourceTree

NAME = "speed"
_LARGEST_ERROR = 0.9  # an interval of a larger one would say nothing

Judgement = SpeedVerdict | Literal["not judged"]


class SpeedBroken(GateError):
    """A shape runs on the baseline and not on the candidate."""

    code = "SPEED_BROKEN"


class JudgedShape(Record):
    """One shape of a patch on one GPU: modelled microseconds of both sides and the kernel that takes most.

    ``change`` is how much faster the candidate is, a fraction, with the ``interval`` that the model's error
    leaves. The judgement is ``same`` where the whole interval is within 2 %, as in gate bench, or where both
    sides play alike, and ``unclear`` where it is wider and has zero in it. ``why`` says what it rests on,
    ``hardware`` what was measured, which decides. ``measured`` is what evidence files say of the patch in
    tests of that kind, ``doubt`` where one of them lies outside of what the model allows.
    """

    patch: str
    arch: str
    shape: str
    baseline_us: Number | None
    candidate_us: Number | None
    kernels: Both[str] | None
    change: Number | None
    interval: Both[Number] | None
    judgement: Judgement
    why: str
    hardware: str | None
    measured: Many[str] = ()
    doubt: str | None = None

    @property
    def told(self) -> str:
        """The judgement in words."""
        return self.judgement if self.judgement == "not judged" else f"{self.judgement} (modelled)"

    @property
    def is_lost(self) -> bool:
        """Whether it fails the gate: slower beyond the error, and nobody measured otherwise."""
        return self.judgement == "slower" and self.hardware is None and self.doubt is None


class SpeedEvidence(DeviceEvidence):
    """Every shape, and the sources of the model's errors."""

    shapes: Many[JudgedShape]
    errors: Many[str]

    def blocks(self) -> Iterator[Block]:
        """One table."""
        titles = ("result", "patch", "GPU", "operation", "baseline us #", "candidate us #", "change #")
        yield Table(
            name="speed",
            caption="How fast the shapes are that patches name: modelled, not measured",
            columns=columns(*titles, "interval #", "kernel ~", "why ~"),
            rows=tuple(
                Row(
                    cells=(
                        one.told,
                        one.patch,
                        one.arch,
                        one.shape,
                        *("-" if us is None else figure(us) for us in (one.baseline_us, one.candidate_us)),
                        "-" if one.change is None else percent(one.change),
                        "-" if one.interval is None else " to ".join(map(percent, one.interval)),
                        "-" if one.kernels is None else was_is(*one.kernels),
                        "; ".join(filter(None, (one.why, one.hardware, *one.measured, one.doubt))),
                    ),
                    state=one.judgement,
                )
                for one in self.shapes
            ),
            note="By the timing model (docs/records/timing-model.md). Nine of ten measured changes of such "
            "kernels lay within the interval; where none was measured, both times are taken to err by "
            "themselves. What was measured on hardware decides.",
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """What the intervals rest on, too."""
        yield from super().provenance()
        yield from (("error of the timing model", one) for one in self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedGate:
    """Runs on the emulated GPU, whose traces are played. ``types``: only shapes of these types of tensors."""

    machine: Machine
    types: tuple[str, ...] = ()

    @classmethod
    def make(cls, setup: DeviceSetup) -> SpeedGate:
        """The gate on a device."""
        return cls(machine=setup.machine)

    @property
    def name(self) -> str:
        """The gate's name on this machine."""
        return self.machine.gate_name(NAME)

    def run(self, subject: Subject) -> GateResult:
        """Model every shape on both sides, and compare.

        Raises:
            ToolchainError: building or recording the baseline failed.
            ConfigError, ErrorGroup: a timing file, or a shape, is wrong.
            CacheError: the disk refused.
        """
        if not self.machine.is_emulated:
            why = "needs the emulated GPU: the model plays what kernels execute there"
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
        told = f"of {len(every)}, those of {', '.join(self.types)}: {result.summary}"
        return replace(result, summary=told)

    def _result(
        self,
        subject: Subject,
        found: Sequence[JudgedShape],
        machines: Iterable[TimedMachine],
        open_ones: Sequence[str],
    ) -> GateResult:
        problems = tuple(_problems(subject, found))
        counts = {word: sum(one.judgement == word for one in found) for word in _WORDS}
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        unproven = [one for one in found if one.judgement in _OPEN]
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else MODELLED if len(unproven) < len(found) else "not run",
            summary=f"{counted(len(found), 'shape')}, modelled, not measured: {told}",
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


_WORDS: tuple[Judgement, ...] = (*get_args(SpeedVerdict), "not judged")
_OPEN: tuple[Judgement, ...] = ("unclear", "not judged")


def _open(one: JudgedShape) -> str:
    """Why nothing is proven of a shape."""
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
    """Of the matrix, or of what attention reads."""
    return type_name(type_of(shape.type or shape.kv_type))


def _judged(
    subject: Subject, arch: str, machine: TimedMachine, named: Sequence[_Named]
) -> Iterator[JudgedShape]:
    """Those of the patches that are live on the GPU."""
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

        # Several at once: most of it is waiting for the compiler of one unit.
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
        yield beside_measured(judged, one.shape, known)


def _machines(subject: Subject, open_ones: list[str]) -> Iterator[tuple[str, TimedMachine]]:
    """Every GPU of the candidate of whose speed something is known; the others are told."""
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
    """What records on both sides, for the duration of the context."""
    if subject.toolchain is None:
        raise ToolchainError(
            "the emulated GPU needs a HIP toolchain", code="COMPILER_MISSING", hint="patchkit sdk install"
        )
    sides = build_sides(subject, "cpu", GATE_PROGRAMS, is_timed=False)
    compiler = as_measured(
        open_compiler(
            subject.toolchain, subject.cache_root, subject.reporter, subject.scheduler, stop=subject.stop
        )
    )
    gpu = emulated_gpu(device_of(subject.profiles[arch], guess_units=True), compiler)
    trees = subject.trees
    options = EmulationOptions()
    with (
        emulated_side(sides.before, trees[0], gpu, compiler, options, whole=()) as before,
        emulated_side(sides.after, trees[1], gpu, compiler, options, whole=()) as after,
    ):

        def recorder(side: EmulatedSide, tree: SourceTree) -> Recorder:
            return Recorder(side=side, tree=tree, identity=None, gpu=gpu, compiler=compiler)

        yield recorder(before, trees[0]), recorder(after, trees[1])


def _of_candidate(machine: TimedMachine, case: Timed, recorder: Recorder) -> OperationTime | None:
    try:
        return time_operation(machine, case, recorder, repeated=False)
    except ToolchainError as error:
        raise blame_candidate(error, SpeedBroken) from error


def case_of(shape: SpeedShape) -> Timed:
    """The operation of a shape.

    Raises:
        TENSOR_TYPE_UNKNOWN, COLUMNS_NOT_WHOLE, USAGE_SYNTAX: there is no such one; where the shape stands.
    """
    try:
        if shape.type is not None and shape.rows is not None and shape.columns is not None:
            return matrix_case(
                shape.type, shape.rows, shape.columns, shape.tokens, experts=shape.experts, used=shape.used
            )
        if not (shape.head_size and shape.heads and shape.kv_heads and shape.kv):
            raise AssertionError("SpeedShape looks at that")
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
    """A shape in few words."""
    if shape.type is not None:
        of = f", {shape.used} of {shape.experts} experts" if shape.experts > 1 else ""
        return f"{shape.type} {shape.rows}x{shape.columns}{of}, {counted(shape.tokens, 'token')}"
    kv = f"{shape.kv} rows of {shape.kv_type}"
    heads = f"head size {shape.head_size}, {shape.heads} on {shape.kv_heads}"
    return f"attention, {heads}, {kv}, {counted(shape.tokens, 'token')}"


def hardware_bench(subject: Subject) -> BenchEvidence | None:
    """What llama-bench measured of this candidate on hardware, if it did and came to an end."""
    path = subject.cache_root / "evidence" / subject.candidate_tree / "bench.json"
    try:
        gate = read_gate(path.read_bytes(), str(path))
    except (OSError, EvidenceUnreadable, EvidenceMalformed):
        return None
    evidence = gate.evidence
    if gate.name != "bench" or not isinstance(evidence, BenchEvidence) or gate.verdict == "not run":
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
    """What the model says of a shape, from its times on both sides; None: no kernel does it there."""
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
        return found.model_copy(update={"why": f"no kernel of the {none} does it"})
    ratio = before.us / after.us
    told: dict[str, object] = {
        "baseline_us": before.us,
        "candidate_us": after.us,
        "kernels": (_main(before), _main(after)),
        "change": ratio - 1,
    }
    kinds = was_is(before.kind, after.kind)
    error = machine.ratio_error(before.kind, after.kind, shape.head_size)
    products = dict.fromkeys([*before.products, *after.products])
    if (before.kernels, before.products) == (after.kernels, after.products):
        told |= {"interval": (0.0, 0.0), "judgement": "same"}
        told["why"] = "both sides launch the same, alike in every figure of the model"
    elif products:
        told["why"] = f"a BLAS library computes {', '.join(products)}"
    elif shape.experts > 1 or error is None:
        such = f"such kernels ({in_words(kinds, shape.head_size)})"
        of = "products of experts" if shape.experts > 1 else such
        told["why"] = f"the model is not held to measurements of {of}: its error is not known"
    elif error > _LARGEST_ERROR:
        told["why"] = f"the model's error is {error:.0%} for such kernels ({kinds})"
    else:
        low, high = ratio / (1 + error) - 1, ratio / (1 - error) - 1
        told["interval"] = (low, high)
        told["judgement"] = judge_interval(
            Interval(low=low, middle=ratio - 1, high=high), margin=0.0, least=LEAST
        )
        known = machine.error_of(before.kind, shape.head_size) if before.kind == after.kind else None
        told["why"] = (
            f"nine of ten such ratios ({kinds}) were within {error:.1%}"
            if known is not None and known.ratio_p90 is not None
            else f"no such change ({kinds}) was measured: {error:.1%} is what both times err by"
        )
    return found.model_copy(update=told)


def beside_measured(judged: JudgedShape, shape: SpeedShape, known: Sequence[PatchMeasured]) -> JudgedShape:
    """The shape with what machines measured of its patch, and whether that is outside of the model's error.

    A test is of prompts where the shape has several tokens, else of generated ones, with attention of the
    same head size. It takes more than the one operation: a whole model changes by less than that does, in the
    same direction or not at all. So what is outside is a change beyond the interval, or to the other side.
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
            told = ", ".join(f"{one.text} by {one.file.who}" for one in outside[:_SHOWN])
            doubt = f"measured outside of the model's error: {told}"
    shown = tuple(f"measured by {one.file.who}: {one.text}" for one in rows[:_SHOWN])
    return judged.model_copy(update={"measured": shown, "doubt": doubt})


_SHOWN = 4  # measurements of one shape in a row of a table


def kept_doubts(patch: Patch, series: SeriesDir, lock: Lock, cache_root: Path) -> tuple[str, ...]:
    """Where the model is doubted of a patch: what the gate said last of each tree of the lock, beside files.

    Nothing is modelled anew; a tree that the gate did not look at on this machine is silent.
    """
    known = measured_in(series, {patch.id: patch.folder})
    shapes = {shape_text(shape): shape for shape in patch.speed.shapes} if patch.speed is not None else {}
    found: dict[str, None] = {}
    for result in lock.results if known else ():
        path = cache_root / "evidence" / result.tree / f"{NAME}.json"
        try:
            evidence = read_gate(path.read_bytes(), str(path)).evidence
        except (OSError, EvidenceUnreadable, EvidenceMalformed):
            continue
        for one in evidence.shapes if isinstance(evidence, SpeedEvidence) else ():
            shape = shapes.get(one.shape)
            doubt = beside_measured(one, shape, known).doubt if shape and one.patch == patch.id else None
            if doubt is not None and one.change is not None:
                found[f"{one.shape} on {one.arch}: modelled {percent(one.change)}; {doubt}"] = None
    return tuple(found)


def _main(time: OperationTime) -> str:
    """The kernel that takes most of the time."""
    if not time.kernels:
        return "none"
    return str(read_name(max(time.kernels, key=lambda kernel: kernel.us).played.kernel))


def _hardware(shape: SpeedShape, measured: BenchEvidence | None) -> str | None:
    """What hardware says of the same: prompts for several tokens, generation for one, the head size too."""
    if measured is None or (shape.head_size is not None and shape.head_size != measured.head_size):
        return None
    kind = "tg" if shape.tokens == 1 else "pp"
    tests = [test for test in measured.tests if test.test.startswith(kind)]
    if not tests:
        return None
    told = ", ".join(map(_measured, tests))
    return f"hardware decides: {measured.runner} measured {told}"


def _measured(test: JudgedTest) -> str:
    return f"{test.test} {percent(test.change)} ({test.verdict})"


def _problems(subject: Subject, found: Sequence[JudgedShape]) -> Iterator[PatchkitError]:
    shapes = {(one.part.id, shape_text(one.shape)): one.shape for one in _named(subject)}
    for one in found:
        if not one.is_lost or one.change is None or one.interval is None:
            continue
        yield GateError(
            f"{one.shape} becomes slower on {one.arch} by the timing model: {percent(one.change)}, "
            f"{figure(one.baseline_us or 0)} to {figure(one.candidate_us or 0)} us",
            code="SPEED_SLOWER",
            where=shapes[one.patch, one.shape].where,
            why=f"{percent(one.interval[0])} to {percent(one.interval[1])}: {one.why}; nothing was measured",
            hint=f"what limits it: patchkit model --arch {one.arch} --upstream {build_name(subject.build)} "
            f"{_options(shapes[one.patch, one.shape])}; gate bench on hardware decides",
        )


def _options(shape: SpeedShape) -> str:
    """The shape as options of ``patchkit model``."""
    names = (
        ("type", "rows", "columns") if shape.type is not None else ("head_size", "heads", "kv_heads", "kv")
    )
    told = [f"--{name.replace('_', '-')} {getattr(shape, name)}" for name in (*names, "tokens")]
    return " ".join(told)


def _line(one: JudgedShape) -> str:
    times = "" if one.change is None else f"{percent(one.change)}"
    interval = "" if one.interval is None else f" ({percent(one.interval[0])} to {percent(one.interval[1])})"
    hardware = "".join(f"; {told}" for told in (one.hardware, *one.measured, one.doubt) if told)
    return f"{one.told}: {one.patch}: {one.shape} on {one.arch} {times}{interval}{hardware}".rstrip()
