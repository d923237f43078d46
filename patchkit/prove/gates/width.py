"""Gate ``width``: a token's result depends on the size of its batch no more than upstream's does.

Speculative decoding computes several tokens in one batch and keeps those that single tokens would have given.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import GateError, PatchkitError, ToolchainError
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.gpu.emulated.models import Model, check_model, model_file
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.logits import Distance, compare_widths, parse_drafted, run_logits
from patchkit.gpu.hardware.operation_widths import DRIVER, TokenDistance, WidthCase, run_widths
from patchkit.gpu.hardware.program import ProgramRun, RemoteRunner, RunContext, describe_reused
from patchkit.prove.build import CandidateBuildFailed, Sides, check_device, runs_folder
from patchkit.prove.gates.base import (
    Both,
    Count,
    DeviceEvidence,
    DeviceGate,
    DeviceSetup,
    GateResult,
    Many,
    MeasuredNumber,
    Record,
)
from patchkit.prove.gates.emulated import not_proven_on, verdict_on
from patchkit.prove.gates.logits_scenes import knows
from patchkit.prove.gates.sides import BuiltSides, blame_candidate, built_sides, run_each, sides_on
from patchkit.prove.gates.width_scenes import DRAFT, SCENE, WIDTHS, Chosen, choose
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide


class WidthBroken(GateError):
    """The candidate cannot run a model or an operation that the baseline runs."""

    code = "WIDTH_BROKEN"


NAME = "width"
_TIMEOUT_S = 1800.0
# As for logits. Kernels of upstream that round alike differ by up to twice between sizes of batches (5e-4 to
# 1.2e-3 for Q8_0 and Q4_0 at build 11549, emulated), because their NMSE is that of a few tokens.
FACTOR = 3.0
_MOST_NAMES = 6


class WidthDistance(Record):
    """How far the results in batches of ``width`` tokens are from those of the same tokens one at a time.

    ``equal`` of ``rows`` are bit-identical. ``nmse`` is that of all rows, ``worst`` that of row
    ``worst_row``. Models: ``same_top`` rows have the same most likely token.
    """

    width: Count
    rows: Count
    equal: Count
    nmse: MeasuredNumber
    worst: MeasuredNumber
    worst_row: Count
    same_top: Count | None = None
    is_finite: bool

    @property
    def is_equal(self) -> bool:
        """Whether all rows are bit-identical."""
        return self.equal == self.rows

    @property
    def flips(self) -> int:
        """Rows with another most likely token."""
        return 0 if self.same_top is None else self.rows - self.same_top


class Declared(Record):
    """Widths for which ``patch`` declares that results may differ from those of single tokens."""

    patch: str
    widths: Many[int]


class Drafted(Record):
    """Greedy generation of ``tokens`` with a draft; the first ``same`` are as without one."""

    tokens: Count
    same: Count


class WidthScene(Record):
    """One model or operation: the distances of both sides from their own results for single tokens.

    A side has a distance for each width; none if it does not support the operation. ``drafted``: of a model.
    """

    kind: Literal["model", "operation"]
    name: str
    baseline: Many[WidthDistance]
    candidate: Many[WidthDistance]
    declared: Many[Declared] = ()
    drafted: Both[Drafted] | None = None

    @property
    def pairs(self) -> Iterator[tuple[WidthDistance, WidthDistance]]:
        """Both sides, by width."""
        return zip(self.baseline, self.candidate, strict=True)

    def may_differ(self, width: int) -> tuple[str, ...]:
        """The patches that declare that results of that width may differ from those of single tokens."""
        return tuple(one.patch for one in self.declared if width in one.widths)

    @property
    def lost(self) -> tuple[bool, bool]:
        """Whether a draft changes the tokens that are generated, on both sides."""
        before, after = self.drafted or (None, None)
        return (
            before is not None and before.same < before.tokens,
            after is not None and after.same < after.tokens,
        )

    @property
    def is_draft_exact(self) -> bool:
        """Whether the candidate's results in batches with a draft are bit-identical."""
        return all(one.is_equal for one in self.candidate if one.width <= DRAFT + 1)

    @property
    def excused(self) -> tuple[int, ...]:
        """The widths of which the candidate's results pass only because a patch declares a change."""
        bare = self.model_copy(update={"declared": ()})
        return tuple(
            old.width
            for old, new in self.pairs
            if self.may_differ(old.width) and _fault(bare, old, new) is not None
        )


class WidthLimits(Record):
    """The candidate's spread may be this factor of the baseline's (:func:`allowed_spread`)."""

    factor: MeasuredNumber


class WidthEvidence(DeviceEvidence):
    """Every model and operation."""

    device: str
    backend: str
    sides: BuiltSides
    limits: WidthLimits
    scenes: Many[WidthScene]

    @property
    def outcome(self) -> str:
        """How much was compared, and how much of it is bit-identical."""
        same = sum(all(new.is_equal for old, new in scene.pairs if old.is_equal) for scene in self.scenes)
        return f"batches of 1 to {max(WIDTHS)} tokens ({same} of {len(self.scenes)} as equal as upstream's)"

    def blocks(self) -> Iterator[Block]:
        """Every model and operation, with the spread of both sides."""
        yield Table(
            name=NAME,
            caption=f"Results in batches compared with those of single tokens, on {self.device}",
            columns=columns("model or operation", "baseline", "candidate", "other top token #"),
            rows=tuple(
                Row(
                    cells=(
                        scene.name,
                        format_spread(scene.baseline),
                        format_spread(scene.candidate),
                        _flips_of(scene) if scene.kind == "model" else "",
                    )
                )
                for scene in self.scenes
            ),
            note="equal: bit-identical; otherwise the largest NMSE, with its width",
            is_detail=True,
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the device."""
        yield from super().provenance()
        yield "device", self.device


def _flips_of(scene: WidthScene) -> str:
    before, after = (sum(one.flips for one in side) for side in (scene.baseline, scene.candidate))
    return f"{before} -> {after} of {sum(one.rows for one in scene.candidate)}"


def format_widths(widths: Sequence[int]) -> str:
    """Widths as text, consecutive ones as a range: ``2-8, 16``."""
    ranges: list[list[int]] = []
    for width in widths:
        if ranges and width == ranges[-1][-1] + 1:
            ranges[-1].append(width)
        else:
            ranges.append([width])
    return ", ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in ranges)


def format_spread(side: Sequence[WidthDistance]) -> str:
    """The widths with equal results, and the largest NMSE of the others: ``equal 2-8; 1.2e-07 (16)``."""
    if not side:
        return "not supported"
    equal = format_widths([one.width for one in side if one.is_equal])
    others = [one for one in side if not one.is_equal]
    parts = [f"equal {equal}"] if equal else []
    if others:
        far = max(others, key=lambda one: (not one.is_finite, one.nmse))
        value = f"{far.nmse:.1e}" if far.is_finite else "not finite"
        parts.append(f"{value} ({format_widths([one.width for one in others])})")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A model, or operations that run in one process; ``name`` is that of its files.

    A model is a generated one, or the user's file ``path``.
    """

    name: str
    model: Model | None = None
    path: Path | None = None
    cases: tuple[WidthCase, ...] = ()

    @property
    def is_model(self) -> bool:
        """Whether it is a model."""
        return not self.cases

    @property
    def parts(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names in reports, each with its operations (none: a whole model)."""
        if self.is_model:
            return [(self.name, ())]
        return [(str(case), case.operations) for case in self.cases]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    distances: tuple[WidthDistance, ...]
    drafted: Drafted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthGate(DeviceGate):
    """``model`` is the user's GGUF, which runs in addition to the small models.

    ``chosen``: what else runs; without it everything, or with ``is_sample`` what the changed files need.
    """

    NAME = NAME
    model: Path | None = None
    chosen: Chosen | None = None
    timeout_s: float = _TIMEOUT_S
    elsewhere: RemoteRunner | None = None
    is_sample: bool = False

    @classmethod
    def make(cls, setup: DeviceSetup) -> WidthGate:
        """The gate on a device."""
        return cls(
            machine=setup.machine,
            model=setup.model,
            elsewhere=setup.elsewhere,
            is_sample=not setup.full and (setup.machine.is_cpu or setup.machine.is_emulated),
        )

    def run(self, subject: Subject) -> GateResult:
        """Run every model and operation on both sides.

        Raises:
            MODEL_MISSING: ``model`` is not a file.
            ToolchainError: building or running the baseline failed.
            CacheError: the disk is full or not writable.
        """
        if self.model is not None:
            check_model(self.model)
        try:
            with sides_on(self.machine, subject, schedule="late") as sides:
                return self._run(subject, sides)
        except (CandidateBuildFailed, WidthBroken) as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides) -> GateResult:
        chosen = self.chosen or choose(subject.computing_files, is_sample=self.is_sample)
        unknown = [one.model for one in chosen.models if not knows(subject.baseline, one.model)]
        small = [one.model for one in chosen.models if one.model not in unknown]
        tasks = [
            *([_Task(name=self.model.name, path=self.model)] if self.model is not None else []),
            *(_Task(name=model.name, model=model) for model in small),
            *(_Task(name=f"operations-{number}", cases=some) for number, some in enumerate(chosen.cases)),
        ]
        ran: list[ProgramRun] = []
        done = run_each(
            self.machine,
            tasks,
            lambda task, stop: self._scenes(subject, sides, task, ran, stop),
            reporter=subject.reporter,
            what=NAME,
            unit="groups",
        )
        scenes = tuple(scene for some in done for scene in some)
        problems = tuple(judge_width(scenes))
        excused = sum(bool(scene.excused) for scene in scenes)
        declared = f", {excused} as a patch declares" if excused else ""
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=(
                f"{counted(sum(scene.kind == 'model' for scene in scenes), 'model')} and "
                f"{counted(sum(scene.kind == 'operation' for scene in scenes), 'operation')} in batches of "
                f"{format_widths((1, *WIDTHS))} tokens on {self.machine.label}; "
                f"{len(problems)} depend more on the batch than upstream's{declared}"
            ),
            problems=problems,
            evidence=WidthEvidence(
                device=self.machine.label,
                backend=self.machine.backend,
                sides=built_sides(sides),
                limits=WidthLimits(factor=FACTOR),
                scenes=scenes,
            ),
            not_run=(
                *(f"{model.name}: this upstream does not support the architecture" for model in unknown),
                *(f"{scene.name}: not supported on this device" for scene in scenes if not scene.baseline),
                *describe_excused(scenes),
                *((f"{', '.join(chosen.left)}: --full",) if chosen.left else ()),
                *not_proven_on(self.machine, subject),
            ),
            lines=(*describe_tokens(scenes), *describe_reused(ran)),
        )

    def _scenes(
        self,
        subject: Subject,
        sides: Sides,
        task: _Task,
        ran: list[ProgramRun],
        stop: threading.Event,
    ) -> tuple[WidthScene, ...]:
        """Run a task on both sides."""
        subject.reporter.step(f"{NAME}: {task.name}")
        place = RunContext(
            folder=runs_folder(subject, NAME, self.machine) / task.name,
            reporter=subject.reporter,
            elsewhere=self.elsewhere,
            stop=stop,
        )
        before = self._measure(subject, sides.before, subject.baseline, "baseline", task, place, ran)
        try:
            after = self._measure(subject, sides.after, subject.candidate, "candidate", task, place, ran)
        except ToolchainError as error:
            raise blame_candidate(error, WidthBroken, task.name) from error
        return tuple(
            WidthScene(
                kind="model" if task.is_model else "operation",
                name=name,
                baseline=old.distances,
                candidate=new.distances,
                declared=_declared(subject, operations),
                drafted=(old.drafted, new.drafted) if old.drafted and new.drafted else None,
            )
            for (name, operations), old, new in zip(task.parts, before, after, strict=True)
        )

    def _measure(
        self,
        subject: Subject,
        side: BuiltSide,
        tree: Path,
        what: str,
        task: _Task,
        place: RunContext,
        ran: list[ProgramRun],
    ) -> list[_Measured]:
        """Run a task on one side: the distances of each part."""
        name = "logits" if task.is_model else DRIVER
        driver = build_driver(name, side, tree, subject.cache_root, subject.reporter)
        if task.is_model:
            run, measured = self._run_model(subject, driver, side, task, what, place)
            found = [measured]
        else:
            run, by_case = run_widths(
                driver,
                side,
                device=self.machine.device,
                cases=task.cases,
                widths=WIDTHS,
                name=what,
                timeout_s=self.timeout_s,
                place=place,
            )
            found = [_Measured(distances=_distances(one)) for one in by_case]
        ran.append(run)
        check_device(self.machine, run.talk(), subject.archs, run.stderr)
        return found

    def _run_model(
        self, subject: Subject, driver: Path, side: BuiltSide, task: _Task, what: str, place: RunContext
    ) -> tuple[ProgramRun, _Measured]:
        path = task.path
        if task.model is not None:
            path = model_file(task.model, subject.cache_root, subject.reporter)
        if path is None:
            raise AssertionError("a model is generated or a file")
        run, logits = run_logits(
            driver,
            side,
            path,
            SCENE,
            device=self.machine.device,
            name=what,
            timeout_s=self.timeout_s,
            place=place,
        )
        compared = compare_widths(driver, logits, SCENE, name=f"{what}-widths", place=place)
        tokens, same = parse_drafted(run.text(), where=str(run.stdout))
        return run, _Measured(distances=_distances(compared), drafted=Drafted(tokens=tokens, same=same))


def _distances(found: Mapping[int, TokenDistance | Distance]) -> tuple[WidthDistance, ...]:
    made = []
    for width, one in found.items():
        values = {name: getattr(one, name, None) for name in WidthDistance.model_fields}
        made.append(WidthDistance.model_validate({**values, "width": width, "equal": one.equal or 0}))
    return tuple(made)


def _declared(subject: Subject, operations: Sequence[str]) -> tuple[Declared, ...]:
    found = []
    for part in subject.patches:
        widths = tuple(
            width for width in WIDTHS if any(change.covers(operations, width) for change in part.patch.widths)
        )
        if widths:
            found.append(Declared(patch=part.id, widths=widths))
    return tuple(found)


def judge_width(scenes: Sequence[WidthScene]) -> Iterator[PatchkitError]:
    """Check every rule for all models and operations."""
    for scene in scenes:
        if len(scene.candidate) != len(scene.baseline):
            yield GateError(f"{scene.name}: the candidate does not support it", code="WIDTH_BROKEN")
            continue
        bad = [(old, new, why) for old, new in scene.pairs if (why := _fault(scene, old, new)) is not None]
        if bad:
            old, new, why = max(bad, key=lambda one: (not one[1].is_finite, one[1].nmse))
            yield _differs(scene, [one.width for _, one, _ in bad], old, new, why)
    models = [scene for scene in scenes if scene.kind == "model" and scene.candidate]
    yield from _judge_flips(models)
    yield from _judge_drafts(models)


def _fault(scene: WidthScene, old: WidthDistance, new: WidthDistance) -> str | None:
    """Why the candidate's results of one width are wrong."""
    if not old.is_finite or new.is_equal:
        return None
    if not new.is_finite:
        return "they are not all finite"
    if old.is_equal and not scene.may_differ(old.width):
        return "upstream's are bit-identical"
    nmse, worst = allowed_spread(scene, old.width)
    if new.nmse <= nmse and new.worst <= worst:
        return None
    return f"at most {nmse:.1e} (worst token {worst:.1e}) are allowed"


def allowed_spread(scene: WidthScene, width: int) -> tuple[float, float]:
    """The largest allowed NMSE in batches of a width: of all tokens, and of the worst.

    A factor of upstream's largest in batches of up to that width; if a patch declares another kernel for
    them, in batches of all widths.
    """
    most = max(WIDTHS) if scene.may_differ(width) else width
    known = [one for one in scene.baseline if one.is_finite and one.width <= most]
    nmse = max((one.nmse for one in known), default=0.0)
    worst = max((one.worst for one in known), default=0.0)
    return FACTOR * nmse, FACTOR * worst


def _judge_flips(models: Sequence[WidthScene]) -> Iterator[PatchkitError]:
    """Fail if the most likely token changes more often than upstream's, over all models."""
    baseline, flips = count_flips(models)
    allowed = allowed_flips(models)
    if flips > allowed:
        yield GateError(
            f"in {flips} of {_rows(models)} rows of all models, the most likely token in a batch is another "
            "one than after single tokens",
            code="WIDTH_FLIPS",
            why=f"the baseline has {baseline}; {allowed:.1f} are allowed",
        )


def count_flips(models: Sequence[WidthScene]) -> tuple[int, int]:
    """How often the most likely token is another one than after single tokens, on both sides."""
    pairs = [pair for scene in models for pair in scene.pairs]
    return sum(old.flips for old, _ in pairs), sum(new.flips for _, new in pairs)


def allowed_flips(models: Sequence[WidthScene]) -> float:
    """How often the most likely token may change: as often as upstream's, and two standard deviations.

    For widths with a declared change: as often as with upstream's worst width.
    """
    by_width: dict[int, list[WidthDistance]] = {}
    for scene in models:
        for old in scene.baseline:
            by_width.setdefault(old.width, []).append(old)
    rate = max(
        (sum(one.flips for one in some) / sum(one.rows for one in some) for some in by_width.values()),
        default=0.0,
    )
    expected = sum(
        max(old.flips, rate * old.rows if scene.may_differ(old.width) else 0.0)
        for scene in models
        for old, _ in scene.pairs
    )
    return expected + 2 * math.sqrt(expected)


def _rows(models: Sequence[WidthScene]) -> int:
    return sum(new.rows for scene in models for _, new in scene.pairs)


def _judge_drafts(models: Sequence[WidthScene]) -> Iterator[PatchkitError]:
    """Fail if a draft changes the tokens of more models than upstream's does.

    Where results are not bit-identical, near ties decide: then only the number of models counts, with two
    standard deviations. The state after the prompt may differ from upstream's in rounding.
    """
    lost = [scene for scene in models if scene.lost[1]]
    theirs = sum(scene.lost[0] for scene in models)
    allowed = theirs + 2 * math.sqrt(max(theirs, 1))
    wrong = [scene for scene in lost if scene.is_draft_exact and not scene.lost[0]]
    if not wrong and len(lost) > allowed:
        wrong = [scene for scene in lost if not scene.lost[0]]
    for scene in wrong:
        yield GateError(
            f"{scene.name}: with speculative decoding the candidate generates other tokens than without",
            code="WIDTH_FLIPS",
            why=(
                f"greedy, {DRAFT} proposed tokens per batch; this happens with {len(lost)} of {len(models)} "
                f"models, on the baseline with {theirs}"
            ),
        )


def _differs(
    scene: WidthScene, widths: Sequence[int], old: WidthDistance, new: WidthDistance, why: str
) -> GateError:
    return GateError(
        f"{scene.name}: in batches of {format_widths(widths)} tokens the candidate's results differ from "
        "those of single tokens",
        code="WIDTH_DIFFERS",
        why=(
            f"{why}; in batches of {new.width} the NMSE is {new.nmse:.1e} (baseline {old.nmse:.1e}), "
            f"{new.equal} of {new.rows} tokens are equal, and the worst is token {new.worst_row} "
            f"(place {new.worst_row % new.width} of its batch)"
        ),
        hint="if a patch means to use another kernel for such batches: [[width]] in its patch.toml",
    )


def describe_tokens(scenes: Sequence[WidthScene]) -> Iterator[str]:
    """Sentences on how often the models' most likely tokens depend on the batch."""
    models = [scene for scene in scenes if scene.kind == "model" and scene.candidate]
    if models:
        before, after = count_flips(models)
        yield (
            f"another most likely token than with single tokens: {after} of {_rows(models)} rows of the "
            f"models; baseline {before}"
        )
        drafted = [scene.lost for scene in models if scene.drafted is not None]
        old, new = (sum(not pair[side] for pair in drafted) for side in (0, 1))
        yield (
            f"speculative decoding generates the tokens of single steps with {new} of "
            f"{counted(len(drafted), 'model')}; baseline {old}"
        )


def describe_excused(scenes: Sequence[WidthScene]) -> Iterator[str]:
    """A sentence for each change that a patch declares, with the results that pass because of it."""
    excused: dict[tuple[str, str], list[str]] = {}
    for scene in scenes:
        if scene.candidate and (widths := scene.excused):
            patches = ", ".join(dict.fromkeys(name for width in widths for name in scene.may_differ(width)))
            excused.setdefault((patches, format_widths(widths)), []).append(scene.name)
    for (patches, widths_text), names in excused.items():
        some = ", ".join(names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield (
            f"results as close to single tokens as upstream's in batches of {widths_text} tokens, because "
            f"{patches} uses another kernel: {some}{more}"
        )
