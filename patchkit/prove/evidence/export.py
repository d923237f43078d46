"""Making an evidence file of what was measured here: by the gate ``bench``, or by ``bench run``."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, UsageError
from patchkit.base.evidence import EvidenceFile, MeasuredArm, MeasuredMachine, MeasuredTest
from patchkit.carry.series.lock import Lock, Pin, Result
from patchkit.carry.series.measured import digest_of_rendered
from patchkit.gpu.hardware.bench.folder import RunNote
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchTest, parse_rows
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE, ranges_of, version_of
from patchkit.prove.evidence.check import Made
from patchkit.prove.evidence.figures import verdicts_of
from patchkit.prove.gates.bench import BenchEvidence
from patchkit.prove.gates.record import read_gate

Rounds = Mapping[BenchTest, Sequence[Mapping[str, Sequence[int]]]]
"""By test the rounds, each with the nanoseconds of the repetitions by arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured, of whichever source, which ``source`` names in errors.

    ``arms`` are trees by name, ``patches`` what is known of a tree that no lock may have.
    """

    source: str
    machine: MeasuredMachine
    day: dt.date
    arms: Mapping[str, str]
    rounds: Rounds
    head_size: int | None = None
    conditions: Sequence[Mapping[str, str]] = ()
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes measurements of builds for ``archs``; their trees are those of ``lock``, or are ``made`` anew.

    ``by`` is the name that the owner of the machine wants to be known by, if any.
    """

    lock: Lock
    archs: tuple[str, ...]
    made: Made
    by: str | None = None

    def export(self, found: Measurement) -> EvidenceFile:
        """The file.

        Raises:
            EVIDENCE_NOT_EXPORTED: a build is of something that no lock and no candidate has, or was measured
                in a way that the file has no words for.
        """
        pin = self._pin(found)
        arms = tuple(self._arm(found, pin, name, tree) for name, tree in found.arms.items())
        ranges = ranges_of(found.conditions)
        try:
            tests = [_test(test, rounds, found.head_size) for test, rounds in sorted(found.rounds.items())]
            return EvidenceFile.model_validate(
                {
                    "format": 1,
                    "patchkit": version_of(importlib.metadata.version("patchkit")) or "0",
                    "by": self.by,
                    "day": found.day.isoformat(),
                    "machine": found.machine.model_copy(update=dict(ranges)).model_dump(),
                    "archs": self.archs,
                    "build": pin.build,
                    "tree": pin.tree,
                    "arms": [arm.model_dump() for arm in arms],
                    "tests": [test.model_dump() for test in tests],
                    "verdicts": [one.model_dump() for one in verdicts_of(arms, tests)],
                }
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise not_exported(found.source, f"{where}: {first['msg']}") from error

    def _pin(self, found: Measurement) -> Pin:
        """The one whose tree is that of the build without patches."""
        pin = next((each for each in self.lock.pins if each.tree in found.arms.values()), None)
        if pin is None:
            why = "no build in it is of a pin of the lock: what the patches are compared with is not known"
            raise not_exported(found.source, why)
        return pin

    def _arm(self, found: Measurement, pin: Pin, name: str, tree: str) -> MeasuredArm:
        if tree == pin.tree:
            return MeasuredArm(name=name, tree=tree, patches={})
        result = self._result(found, pin, tree)
        if result is None:
            what = f"build '{name}' is of tree {tree[:12]}"
            raise not_exported(
                found.source, f"{what}, and neither the lock nor a candidate says what that is"
            )
        patches = {patch: digest_of_rendered(result, patch) for patch in result.patches}
        return MeasuredArm(name=name, tree=tree, patches=patches)

    def _result(self, found: Measurement, pin: Pin, tree: str) -> Result | None:
        """What a tree is made of."""
        for result in self.lock.results:
            if (result.build, result.archs, result.tree) == (pin.build, tuple(sorted(self.archs)), tree):
                return result
        patches = found.patches.get(tree)
        made = self.made(pin, self.archs, patches) if patches else None
        return made if made is not None and made.tree == tree else None


def not_exported(source: str, why: str, hint: str | None = None) -> UsageError:
    """The error for what no file can be made of."""
    return UsageError(
        "no evidence file can be made of this measurement",
        code="EVIDENCE_NOT_EXPORTED",
        where=Location(path=source),
        why=why,
        hint=hint or "patchkit apply makes the candidate; then patchkit verify --gate bench measures it",
    )


_SETTING = re.compile(
    r"(?P<model>.+), (?P<model_bytes>\d+) bytes, b(?P<batch>\d+), ub(?P<micro_batch>\d+), t(?P<threads>\d+), "
    r"ngl (?P<layers>-?\d+), load (?P<load>\w+)"
)


def _test(
    test: BenchTest, rounds: Sequence[Mapping[str, Sequence[int]]], head_size: int | None
) -> MeasuredTest:
    found = _SETTING.fullmatch(test.setting)
    said = found.groupdict() if found is not None else {"model": test.setting, "load": "unknown"}
    numbers = ("model_bytes", "batch", "micro_batch", "threads", "layers")
    return MeasuredTest.model_validate(
        {
            **{name: int(said[name]) for name in numbers if name in said},
            "model": said["model"],
            "load": said["load"],
            "model_sha256": None,
            "head_size": head_size,
            "prompt": test.prompt,
            "generated": test.generated,
            "depth": test.depth,
            "type_k": test.type_k.lower(),
            "type_v": test.type_v.lower(),
            "flash": test.flash,
            "rounds": [{arm: tuple(times) for arm, times in one.items()} for one in rounds],
        }
    )


def load_gate_measurement(path: Path) -> Measurement:
    """What the gate ``bench`` left, ``evidence/<tree>/bench.json`` of the cache folder.

    Raises:
        EVIDENCE_NOT_EXPORTED: it measured nothing, or is of a patchkit that noted no machine.
        EvidenceUnreadable, EvidenceMalformed: it is no evidence of a gate.
        ConfigError: there is no such file.
    """
    try:
        gate = read_gate(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(
            "the gate bench has not measured this candidate",
            code="EVIDENCE_ABSENT",
            where=Location(path=str(path)),
            why=error.strerror,
            hint="patchkit verify --gate bench --model MODEL.gguf",
        ) from error
    evidence = gate.evidence
    if not isinstance(evidence, BenchEvidence) or evidence.identity is None or not evidence.samples.tests:
        raise not_exported(str(path), f"gate {gate.name} measured nothing there")
    if evidence.machine is None:
        hint = "measure again: patchkit verify --gate bench --fresh"
        raise not_exported(str(path), "it does not say on which machine", hint)
    rounds: dict[BenchTest, list[dict[str, Sequence[int]]]] = {}
    for one in evidence.samples.tests:
        test = BenchTest(**one.model_dump(exclude={"samples_ns"}))
        arms = one.samples_ns
        rounds[test] = [
            {"upstream": before, "candidate": after, "upstream-again": again}
            for before, after, again in zip(arms.baseline, arms.candidate, arms.again, strict=True)
        ]
    trees = evidence.identity
    return Measurement(
        source=str(path),
        machine=evidence.machine,
        day=dt.datetime.fromisoformat(evidence.run_at or "").date(),
        arms={
            "upstream": trees.baseline_tree,
            "upstream-again": trees.baseline_tree,
            "candidate": trees.candidate_tree,
        },
        rounds=rounds,
        head_size=evidence.head_size,
        conditions=evidence.conditions,
    )


_RUN = re.compile(r"(?P<repetition>\d{3,})-d(?P<depth>\d+)-(?P<label>[A-Za-z0-9._-]+)")


def load_sweep_measurement(folder: Path) -> Measurement:
    """What ``bench run`` left in a folder.

    It measures no build twice, so that such a file decides nothing by itself.

    Raises:
        EVIDENCE_NOT_EXPORTED: it is none, it has two builds of one tree, or it does not say on which machine.
        BenchUnreadable: a run in it was damaged since.
    """
    source = str(folder)
    try:
        setup = json.loads((folder / "session.json").read_text("utf-8"))
        trees = {str(label): str(arm["tree"]) for label, arm in setup["arms"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise not_exported(source, "it is no folder of patchkit bench run") from error
    if len(set(trees.values())) < len(trees):
        why = (
            f"{' and '.join(trees)} are several builds of one tree, and the file tells builds by their trees"
        )
        raise not_exported(source, why)
    try:
        machine = MeasuredMachine.model_validate_json((folder / "runs" / MACHINE_FILE).read_bytes())
    except (OSError, ValueError) as error:
        hint = "measure again: patchkit bench run --fresh"
        raise not_exported(source, "it does not say on which machine", hint) from error
    runs = sorted(_runs(folder), key=lambda each: (each.repetition, each.label))
    rounds: dict[BenchTest, dict[int, dict[str, Sequence[int]]]] = {}
    for run in runs:
        for row in run.rows:
            rounds.setdefault(row.test, {}).setdefault(run.repetition, {})[run.label] = row.samples_ns
    if not runs:
        raise not_exported(source, "nothing was measured there")
    return Measurement(
        source=source,
        machine=machine,
        day=dt.datetime.fromtimestamp(min(run.changed for run in runs), dt.UTC).date(),
        arms=trees,
        rounds={test: [found[number] for number in sorted(found)] for test, found in rounds.items()},
        conditions=[run.conditions for run in runs],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    repetition: int
    label: str
    rows: tuple[BenchRow, ...]
    changed: float
    conditions: Mapping[str, str] = field(default_factory=dict)


def _runs(folder: Path) -> Iterator[_Run]:
    errors: list[PatchkitError] = []
    for path in sorted((folder / "runs").glob("*.jsonl")):
        named = _RUN.fullmatch(path.stem)
        if named is None:
            continue
        try:
            rows = parse_rows(path.read_text("utf-8", "replace"), str(path))
        except PatchkitError as error:
            errors.append(error)
            continue
        try:
            note = RunNote.model_validate_json(path.with_suffix(".json").read_bytes())
        except (OSError, ValueError):
            note = RunNote()
        yield _Run(
            repetition=int(named["repetition"]),
            label=named["label"],
            rows=rows,
            changed=path.stat().st_mtime,
            conditions=note.conditions,
        )
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("runs cannot be read", errors)


def load_measurement(folder: Path) -> tuple[tuple[str, ...], Measurement]:
    """What a command measured into a folder, and for which GPUs its builds are.

    Raises:
        EVIDENCE_NOT_EXPORTED: none that patchkit knows did.
        As :func:`load_sweep_measurement`.
    """
    found = load_sweep_measurement(folder)
    setup = json.loads((folder / "session.json").read_text("utf-8"))
    return tuple(sorted(map(str, setup.get("archs", ())))), found
