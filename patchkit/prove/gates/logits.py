"""Gate ``logits``: the logits of whole models are as close to the CPU's as before, compared on both sides."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.gpu.emulated.models import model_file
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.logits import PROGRAM as PERPLEXITY
from patchkit.gpu.hardware.logits import (
    Distance,
    Divergence,
    Scene,
    Text,
    compare_logits,
    diverge,
    run_logits,
    save_base,
    scenes,
)
from patchkit.gpu.hardware.program import ProgramRun, RemoteRunner, RunContext, describe_reused
from patchkit.prove.build import (
    CandidateBuildFailed,
    Sides,
    check_device,
    runs_folder,
)
from patchkit.prove.gates.base import (
    DeviceEvidence,
    DeviceGate,
    DeviceSetup,
    GateResult,
    Many,
    MeasuredNumber,
    Record,
)
from patchkit.prove.gates.emulated import not_proven_on, verdict_on
from patchkit.prove.gates.logits_scenes import Chosen, ModelGroup, choose, knows
from patchkit.prove.gates.sides import BuiltSides, blame_candidate, built_sides, run_each, sides_on
from patchkit.prove.subject import Subject
from patchkit.toolchain.parts import GATE_PROGRAMS
from patchkit.toolchain.sides import BuiltSide


class LogitsBroken(GateError):
    """The candidate cannot run a model that the baseline runs."""

    code = "LOGITS_BROKEN"


NAME = "logits"
_CPU = "CPU"
# Chosen, not measured on an AMD GPU. Upstream's CPU flash attention differs by 1.6e-5 (NMSE) and 2.6e-5 nats
# from its own path without flash attention (measured on these models at build 6900). The floor of KL also
# applies to a text, because llama-perplexity stores the base's logits in 16 bits.
_FACTOR, _FLOOR_NMSE, _FLOOR_KL = 3.0, 5e-5, 1e-4
_TIMEOUT_S = 1800.0
# Chosen: further off than any correct backend. With the coarsest quantizations, whose matmuls the GPU and the
# CPU round differently, build 6900 is off by 6e-3; where it computes something else it is off by 0.06 to 2
# (docs/records/emulator.md).
_ELSEWHERE = 0.03
# By this factor closer counts as a partial fix: with the patches for two of build 6900's three races, Mamba
# with two sequences goes from 1.5 to 0.05. New errors may hide below that, so such a scene does not count as
# proven.
_FIXES = 10.0


_BEFORE = Field(validation_alias="baseline", serialization_alias="baseline")
_AFTER = Field(validation_alias="candidate", serialization_alias="candidate")


class TextPair(Record):
    """Divergence of both sides from the base when reading a text."""

    before: Divergence = _BEFORE
    after: Divergence = _AFTER
    floor: MeasuredNumber

    @property
    def line(self) -> str:
        """The comparison in one line."""
        return (
            f"text: KL {self.after.mean:.6f} nats per token (baseline {self.before.mean:.6f}), perplexity "
            f"{self.after.perplexity:.4f} (CPU {self.after.base_perplexity:.4f})"
        )


def judge_text(pair: TextPair) -> Iterator[PatchkitError]:
    """Fail if the divergence exceeds three times the baseline's, and the floor."""
    allowed = max(_FACTOR * pair.before.mean, _FLOOR_KL)
    if not pair.after.mean <= allowed:
        yield GateError(
            f"the candidate's KL divergence from the CPU on the text is {pair.after.mean:.6f} nats per token",
            code="LOGITS_FAR",
            why=(
                f"at most {allowed:.6f} is allowed; the baseline has {pair.before.mean:.6f}; perplexity is "
                f"{pair.after.perplexity:.4f}, on the CPU {pair.after.base_perplexity:.4f}"
            ),
            hint="patchkit verify --gate backend-ops shows which shapes are wrong",
        )


class ScenePair(Record):
    """One scene of one model: the distance of each side from the reference.

    If the baseline itself is far off, ``apart`` is the distance of the candidate from the baseline.
    """

    model: str
    scene: Scene
    before: Distance = _BEFORE
    after: Distance = _AFTER
    apart: Distance | None = None

    @property
    def what(self) -> str:
        """Model and scene as text."""
        return f"{self.model}, {self.scene.name}"

    @property
    def is_upstreams(self) -> bool:
        """Whether upstream itself computes something different from its CPU backend."""
        return not _is_near(self.before)

    @property
    def is_another(self) -> bool:
        """Whether the candidate's logits match neither the CPU's nor, roughly, the baseline's.

        Not if they are much closer to the CPU's than the baseline's: then the patches fix part of an upstream
        bug.
        """
        if self.apart is None or not self.apart.is_finite or _is_near(self.after):
            return False
        if self.after.nmse * _FIXES <= self.before.nmse:
            return False
        return self.apart.nmse > max(_ELSEWHERE, self.before.nmse / 2)

    @property
    def is_judged(self) -> bool:
        """Whether the scene proves anything about the candidate."""
        return not self.is_upstreams or _is_near(self.after)


def _is_near(distance: Distance) -> bool:
    return distance.is_finite and distance.nmse <= _ELSEWHERE


class LogitsLimits(Record):
    """How far the candidate may be from the reference: a factor of the baseline's distance, and a floor."""

    factor: MeasuredNumber
    floor_nmse: MeasuredNumber
    floor_kl: MeasuredNumber
    elsewhere_nmse: MeasuredNumber | None = None


class LogitsEvidence(DeviceEvidence):
    """All scenes of all models, and the text comparison (None: no text was read)."""

    device: str
    backend: str
    reference: str
    sides: BuiltSides
    limits: LogitsLimits
    scenes: Many[ScenePair]
    text: TextPair | None

    @property
    def outcome(self) -> str:
        """How many scenes ran, each one model with one prompt."""
        text = " and one text" if self.text is not None else ""
        return f"{counted(len(self.scenes), 'logit scene')}{text}"

    def blocks(self) -> Iterator[Block]:
        """Every scene of every model."""
        rows = []
        for one in self.scenes:
            before, after = one.before, one.after
            nmse = f"{before.nmse:.1e} -> {after.nmse:.1e}"
            divergence = f"{before.kl:.1e} -> {after.kl:.1e}"
            finite = "yes" if after.is_finite else "NO"
            rows.append(Row(cells=(one.model, one.scene.name, nmse, divergence, finite)))
        yield Table(
            name="logits",
            caption=f"Logits compared with the CPU, on {self.device}",
            columns=columns("model", "scene", "NMSE #", "KL in nats #", "finite"),
            rows=tuple(rows),
            note=self.reference,
            is_detail=True,
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the device."""
        yield from super().provenance()
        yield "device", self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsGate(DeviceGate):
    """``model`` is the user's GGUF; without it, small models with random weights are generated.

    ``text`` is read with that model by llama-perplexity. ``groups`` are the small models; without it all of
    them run, or with ``is_sample`` those of the kinds that the changed files need.
    """

    NAME = NAME
    model: Path | None = None
    text: Path | None = None
    groups: tuple[ModelGroup, ...] | None = None
    timeout_s: float = _TIMEOUT_S
    elsewhere: RemoteRunner | None = None
    is_sample: bool = False

    @classmethod
    def make(cls, setup: DeviceSetup) -> LogitsGate:
        """The gate on a device."""
        return cls(
            machine=setup.machine,
            model=setup.model,
            text=setup.text,
            elsewhere=setup.elsewhere,
            is_sample=not setup.full and (setup.machine.is_cpu or setup.machine.is_emulated),
        )

    def run(self, subject: Subject) -> GateResult:
        """Run every scene of every model three times: reference, baseline, candidate.

        Raises:
            MODEL_MISSING: ``model`` is not a file.
            ToolchainError: building or running the baseline failed.
            CacheError: the disk is full or not writable.
        """
        self._check()
        programs = GATE_PROGRAMS if self.text is None else (*GATE_PROGRAMS, PERPLEXITY)
        try:
            with sides_on(self.machine, subject, programs, schedule="late") as sides:
                return self._run(subject, sides)
        except (CandidateBuildFailed, LogitsBroken) as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides) -> GateResult:
        chosen = self._chosen(subject)
        ran: list[ProgramRun] = []
        wanted = list(self._runs(subject, chosen))
        pairs = run_each(
            self.machine,
            wanted,
            lambda one, stop: self._pair(subject, sides, *one, ran, stop),
            reporter=subject.reporter,
            what="logits",
            unit="scenes",
        )
        read = None
        if self.model is not None and self.text is not None:
            read = self._read(subject, sides, Text(model=self.model, text=self.text))
        problems = (
            *judge_logits(pairs, is_repeatable=self.machine.is_emulated or self.machine.is_cpu),
            *(judge_text(read) if read is not None else ()),
        )
        judged = [pair for pair in pairs if pair.is_judged]
        if not judged and not problems:
            return GateResult.ended_by(
                self.name,
                GateError(
                    "upstream's own logits are wrong in every scene",
                    code="LOGITS_NOT_FINITE",
                    why="\n".join(_not_judged(pairs)),
                    hint="patchkit verify --gate backend-ops shows which operations are wrong",
                ),
            )
        worst = max(judged or pairs, key=lambda pair: pair.after.nmse)
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=(
                f"{len(pairs)} test runs of {len({pair.model for pair in pairs})} models on "
                f"{self.machine.label}; {len(problems)} too far from the CPU"
            ),
            problems=problems,
            evidence=LogitsEvidence(
                device=self.machine.label,
                backend=self.machine.backend,
                reference="the baseline's CPU backend, without flash attention unless V is quantized",
                sides=built_sides(sides),
                limits=LogitsLimits(
                    factor=_FACTOR,
                    floor_nmse=_FLOOR_NMSE,
                    floor_kl=_FLOOR_KL,
                    elsewhere_nmse=_ELSEWHERE,
                ),
                scenes=tuple(pairs),
                text=read,
            ),
            not_run=(
                *_not_judged(pairs),
                *self._skipped(subject, chosen),
                *not_proven_on(self.machine, subject),
                *(() if read is not None else ("a real text with a real model: --model and --text",)),
            ),
            lines=(
                (
                    f"furthest from the reference: NMSE {worst.after.nmse:.1e}, KL {worst.after.kl:.1e} nats "
                    f"({worst.model}, {worst.scene.name}); baseline there {worst.before.nmse:.1e}"
                ),
                *((read.line,) if read is not None else ()),
                *describe_reused(ran),
            ),
        )

    def _check(self) -> None:
        for path, option, what in ((self.model, "--model", "model"), (self.text, "--text", "text")):
            if path is not None and not path.is_file():
                raise UsageError(
                    f"{what} file not found",
                    code="MODEL_MISSING",
                    where=Location(path=str(path)),
                    hint=f"{option} must name a file",
                )
        if self.text is not None and self.model is None:
            raise UsageError(
                "--text needs a model",
                code="MODEL_MISSING",
                why="the models that patchkit generates have no vocabulary",
                hint="--model GGUF",
            )

    def _read(self, subject: Subject, sides: Sides, text: Text) -> TextPair:
        """Read the text three times: the base on the CPU, the baseline, the candidate."""
        subject.reporter.step(f"reading {text.text.name} with {text.model.name}")
        place = self._place(subject, "text")
        base = place.folder / "text.base"

        def read(side: BuiltSide, what: str) -> Divergence:
            return diverge(
                side,
                text,
                base,
                device=self.machine.device,
                name=f"text-{what}",
                timeout_s=self.timeout_s,
                place=place,
            )

        save_base(
            sides.before,
            text,
            base,
            device=_CPU,
            name="text-reference",
            timeout_s=self.timeout_s,
            place=place,
        )
        before = read(sides.before, "baseline")
        try:
            after = read(sides.after, "candidate")
        except ToolchainError as error:
            raise blame_candidate(error, LogitsBroken, "reading the text") from error
        finally:
            base.unlink(missing_ok=True)  # gigabytes: size of the vocabulary times tokens of the text
        return TextPair(before=before, after=after, floor=_FLOOR_KL)

    def _place(self, subject: Subject, name: str) -> RunContext:
        folder = runs_folder(subject, NAME, self.machine) / name
        return RunContext(folder=folder, reporter=subject.reporter, elsewhere=self.elsewhere)

    def _chosen(self, subject: Subject) -> Chosen:
        if self.model is not None:
            return Chosen(run=(), left=())
        if self.groups is not None:
            return Chosen(run=self.groups, left=())
        return choose(subject.computing_files, is_sample=self.is_sample)

    def _runs(self, subject: Subject, chosen: Chosen) -> Iterator[tuple[str, Path, Scene]]:
        if self.model is not None:
            yield from ((self.model.name, self.model, scene) for scene in scenes())
        for group in chosen.run:
            for model in group.models:
                if knows(subject.baseline, model):
                    path = model_file(model, subject.cache_root, subject.reporter)
                    yield from ((model.name, path, scene) for scene in group.scenes)

    def _skipped(self, subject: Subject, chosen: Chosen) -> Iterator[str]:
        for model in (model for group in chosen.run for model in group.models):
            if not knows(subject.baseline, model):
                yield f"{model.name}: this upstream does not support the architecture"
        yield from chosen.not_run()

    def _pair(
        self,
        subject: Subject,
        sides: Sides,
        name: str,
        path: Path,
        scene: Scene,
        runs: list[ProgramRun],
        stop: threading.Event,
    ) -> ScenePair:
        """Run the scene three times, add the runs to ``runs``, and compute the distances."""
        subject.reporter.step(f"logits of {name}, {scene.name}")
        place = replace(self._place(subject, name), stop=stop)
        driver = build_driver("logits", sides.before, subject.baseline, subject.cache_root, subject.reporter)
        device = self.machine.device

        def run(side: BuiltSide, tree: Path, one: Scene, on: str, what: str) -> Path:
            own = build_driver("logits", side, tree, subject.cache_root, subject.reporter)
            ran, logits = run_logits(
                own,
                side,
                path,
                one,
                device=on,
                name=f"{scene.name}-{what}",
                timeout_s=self.timeout_s,
                place=place,
            )
            runs.append(ran)
            if on != _CPU:
                check_device(self.machine, ran.talk(), subject.archs, ran.stderr)
            return logits

        def distance(other: Path, what: str) -> Distance:
            return compare_logits(driver, reference, other, name=f"{scene.name}-{what}-distance", place=place)

        reference = run(sides.before, subject.baseline, scene.as_reference(), _CPU, "reference")
        theirs = run(sides.before, subject.baseline, scene, device, "baseline")
        before = distance(theirs, "baseline")
        try:
            ours = run(sides.after, subject.candidate, scene, device, "candidate")
            after = distance(ours, "candidate")
        except ToolchainError as error:
            raise blame_candidate(error, LogitsBroken, f"{name} {scene.name}") from error
        apart = None
        if not _is_near(before):
            apart = compare_logits(driver, theirs, ours, name=f"{scene.name}-apart", place=place)
        return ScenePair(model=name, scene=scene, before=before, after=after, apart=apart)


def judge_logits(pairs: Sequence[ScenePair], *, is_repeatable: bool = True) -> Iterator[PatchkitError]:
    """Check every rule for all scenes.

    If upstream itself is wrong, the candidate must be right or give upstream's numbers. On a device whose
    runs are not ``is_repeatable`` different numbers prove nothing; the same holds if neither side gives
    numbers.
    """
    for pair in pairs:
        if pair.before.is_finite and not pair.after.is_finite:
            yield GateError(
                f"{pair.what}: the candidate's logits contain NaN or infinity", code="LOGITS_NOT_FINITE"
            )
        elif pair.is_upstreams:
            if is_repeatable and pair.is_another:
                yield _far(
                    pair, f"upstream's own are {_off(pair.before)}, and the candidate's differ from both"
                )
        elif not _is_allowed(pair):
            nmse, kl = allowed_distance(pair.before)
            yield _far(
                pair,
                f"at most {nmse:.1e} and {kl:.1e} are allowed; the baseline has {pair.before.nmse:.1e} and "
                f"{pair.before.kl:.1e}",
            )


def _is_allowed(pair: ScenePair) -> bool:
    nmse, kl = allowed_distance(pair.before)
    return pair.after.nmse <= nmse and pair.after.kl <= kl


def _far(pair: ScenePair, why: str) -> GateError:
    return GateError(
        f"{pair.what}: the candidate's logits differ from the CPU's by NMSE {pair.after.nmse:.1e}, "
        f"KL {pair.after.kl:.1e} nats",
        code="LOGITS_FAR",
        why=f"{why}; the most likely token is the same in {pair.after.same_top} of {pair.after.rows} rows",
        hint="the logits are next to the evidence; wrong operations: patchkit verify --gate backend-ops",
    )


def _off(distance: Distance) -> str:
    return f"NMSE {distance.nmse:.1e} from the CPU's" if distance.is_finite else "not all finite"


def _not_judged(pairs: Sequence[ScenePair]) -> Iterator[str]:
    for pair in pairs:
        if not pair.is_judged:
            yield f"{pair.what}: upstream's own logits are {_off(pair.before)}"


def allowed_distance(baseline: Distance) -> tuple[float, float]:
    """The largest allowed NMSE and KL: three times the baseline's, at least the floors."""
    return max(_FACTOR * baseline.nmse, _FLOOR_NMSE), max(_FACTOR * baseline.kl, _FLOOR_KL)
