"""Export an evidence file from measurements of gate ``bench``, of ``bench run`` or of ``pick``."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.evidence import (
    Digest,
    EvidenceFile,
    MeasuredArm,
    MeasuredMachine,
    MeasuredTest,
    ObjectId,
)
from patchkit.carry.series.lock import Lock, Pin, Result
from patchkit.carry.series.measured import digest_of_rendered
from patchkit.gpu.hardware.bench.journal import JOURNAL, load_journal
from patchkit.gpu.hardware.bench.measure import Called
from patchkit.gpu.hardware.bench.rows import BenchTest, parse_rows
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE, ranges_of, version_of
from patchkit.prove.bench.test_list import parse_tests
from patchkit.prove.bench.visits import Checked, JournalEntry, Visited
from patchkit.prove.evidence.check import PlacePatches
from patchkit.prove.evidence.figures import verdicts_of
from patchkit.prove.gates.bench import BenchEvidence
from patchkit.prove.gates.record import read_gate
from patchkit.toolchain.parts import BackendName


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measurement from any source; ``source`` names it in errors.

    ``arms`` are trees by name; ``patches`` are the patches of trees that may be in no lock.
    """

    source: str
    machine: MeasuredMachine
    day: dt.date
    arms: Mapping[str, str]
    tests: Sequence[MeasuredTest]
    conditions: Sequence[Mapping[str, str]] = ()
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Exports measurements of builds for ``archs``; their trees are in ``lock``, or reproduced by ``place``.

    ``codes`` are digests of the series' patches (:func:`patchkit.carry.series.measured.codes_of`). ``by`` is
    the name under which the owner of the machine wants to be listed, if any.
    """

    lock: Lock
    archs: tuple[str, ...]
    place: PlacePatches
    codes: Mapping[str, str]
    by: str | None = None

    def export(self, found: Measurement) -> EvidenceFile:
        """The evidence file.

        Raises:
            EVIDENCE_NOT_EXPORTED: the tree of a build is in no lock and no candidate, or the file format
                cannot express how it was measured.
        """
        pin = self._pin(found)
        arms = tuple(self._arm(found, pin, name, tree) for name, tree in found.arms.items())
        ranges = ranges_of(found.conditions)
        try:
            return EvidenceFile.model_validate(
                {
                    "format": 1,
                    "patchkit": version_of(importlib.metadata.version("patchkit")) or "0",
                    "by": self.by,
                    "day": found.day.isoformat(),
                    "machine": found.machine.model_copy(update=dict(ranges)).model_dump(),
                    "archs": self.archs,
                    "codes": {name: self.codes[name] for arm in arms for name in arm.patches},
                    "build": pin.build,
                    "tree": pin.tree,
                    "arms": [arm.model_dump() for arm in arms],
                    "tests": [test.model_dump() for test in found.tests],
                    "verdicts": [one.model_dump() for one in verdicts_of(arms, found.tests)],
                }
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise not_exported(found.source, f"{where}: {first['msg']}") from error

    def _pin(self, found: Measurement) -> Pin:
        """The pin whose tree is that of the build without patches."""
        pin = next((each for each in self.lock.pins if each.tree in found.arms.values()), None)
        if pin is None:
            why = (
                "none of its builds is a pin of the lock, so there is no baseline to compare the patches with"
            )
            hint = "measure on a pin: --upstream bNUMBER (patchkit status lists them)"
            raise not_exported(found.source, why, hint)
        return pin

    def _arm(self, found: Measurement, pin: Pin, name: str, tree: str) -> MeasuredArm:
        if tree == pin.tree:
            return MeasuredArm(name=name, tree=tree, patches={})
        result = self._result(found, pin, tree)
        if result is None:
            what = f"build '{name}' has tree {tree[:12]}"
            raise not_exported(
                found.source, f"{what}, which is neither in the lock nor the tree of a candidate"
            )
        patches = {patch: digest_of_rendered(result, patch) for patch in result.patches}
        return MeasuredArm(name=name, tree=tree, patches=patches)

    def _result(self, found: Measurement, pin: Pin, tree: str) -> Result | None:
        """The patches and base of a tree."""
        for result in self.lock.results:
            if (result.pin, result.archs, result.tree) == (pin.name, tuple(sorted(self.archs)), tree):
                return result
        patches = found.patches.get(tree)
        placed = self.place(pin, self.archs, patches) if patches else None
        return placed if placed is not None and placed.tree == tree else None


def not_exported(source: str, why: str, hint: str | None = None) -> UsageError:
    """The error for a measurement that cannot be exported."""
    return UsageError(
        "this measurement cannot be exported as an evidence file",
        code="EVIDENCE_NOT_EXPORTED",
        where=Location(path=source),
        why=why,
        hint=hint or "create a candidate with patchkit apply, then measure it: patchkit verify --gate bench",
    )


_SETTING = re.compile(
    r"(?P<model>.+), (?P<model_bytes>\d+) bytes, b(?P<batch>\d+), ub(?P<micro_batch>\d+), t(?P<threads>\d+), "
    r"ngl(?P<layers>-?\d+), load (?P<load>\w+)"
)


_Round = Mapping[str, Sequence[int]]
"""By arm, the nanoseconds of its repetitions."""


def _test(test: BenchTest, rounds: Sequence[_Round], head_size: int | None, source: str) -> MeasuredTest:
    """A test as in llama-bench's rows. Raises EVIDENCE_NOT_EXPORTED."""
    found = _SETTING.fullmatch(test.setting)
    setting = found.groupdict() if found is not None else {"model": test.setting, "load": "unknown"}
    numbers = ("model_bytes", "batch", "micro_batch", "threads", "layers")
    return _validated_test(
        {
            **{name: int(setting[name]) for name in numbers if name in setting},
            "model": setting["model"],
            "load": setting["load"],
            "model_sha256": None,
            "head_size": head_size,
            "prompt": test.prompt,
            "generated": test.generated,
            "depth": test.depth,
            "type_k": test.type_k.lower(),
            "type_v": test.type_v.lower(),
            "flash": test.flash,
        },
        rounds,
        source,
    )


def _validated_test(fields: Mapping[str, object], rounds: Sequence[_Round], source: str) -> MeasuredTest:
    whole = [{arm: tuple(times) for arm, times in one.items()} for one in rounds]
    try:
        return MeasuredTest.model_validate({**fields, "rounds": whole})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise not_exported(source, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_gate_measurement(path: Path) -> Measurement:
    """The measurement of gate ``bench``, from ``evidence/<tree>/bench.json`` in the cache folder.

    Raises:
        EVIDENCE_NOT_EXPORTED: it measured nothing, or an older patchkit did not record the machine.
        EvidenceUnreadable, EvidenceMalformed: the file is not evidence of a gate.
        ConfigError: there is no such file.
    """
    try:
        gate = read_gate(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(
            "gate bench has not measured this candidate",
            code="EVIDENCE_MISSING",
            where=Location(path=str(path)),
            why=error.strerror,
            hint="patchkit verify --gate bench --model MODEL.gguf",
        ) from error
    evidence = gate.evidence
    if not isinstance(evidence, BenchEvidence) or evidence.identity is None or not evidence.samples.tests:
        raise not_exported(str(path), f"gate {gate.name} measured nothing there")
    if evidence.machine is None:
        hint = "measure again: patchkit verify --gate bench --fresh"
        raise not_exported(str(path), "it does not record the machine", hint)
    tests = []
    for one in evidence.samples.tests:
        test = BenchTest(**one.model_dump(exclude={"samples_ns"}))
        arms = one.samples_ns
        rounds = [
            {"upstream": before, "candidate": after, "upstream-again": again}
            for before, after, again in zip(arms.baseline, arms.candidate, arms.again, strict=True)
        ]
        tests.append(_test(test, rounds, evidence.head_size, str(path)))
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
        tests=tests,
        conditions=evidence.conditions,
    )


_FOLDER_HINT = "name a folder that patchkit pick or patchkit bench run wrote"
_LINES: TypeAdapter[Called | JournalEntry] = TypeAdapter(
    Annotated[Called | Visited | Checked, Field(discriminator="kind")]
)
_HERE = "this machine"  # the name of LocalRunner

MachineHere = Callable[[str, BackendName], MeasuredMachine]


class _Arm(BaseModel):
    tree: ObjectId


class _Setup(BaseModel):
    """The fields of a journal's first line that are needed here."""

    archs: tuple[str, ...]
    runner: str


class _SweepSetup(_Setup):
    """The first line for ``bench run``, with the trees by label."""

    backend: Literal["hip", "cuda", "cpu"]
    arms: dict[str, _Arm]


class _PickSetup(_Setup):
    """The first line for ``pick``; ``models`` are sha256 by name."""

    device: Literal["hip", "cuda", "cpu"]
    models: dict[str, Digest]
    model_words: dict[str, tuple[str, int]] = {}  # by name: llama-bench's description, and the size in bytes
    batch: tuple[int, int]
    cache_type: str
    threads: int | None


def load_measurement(folder: Path, machine_here: MachineHere) -> tuple[tuple[str, ...], Measurement]:
    """The measurement of ``bench run`` or ``pick`` in a folder, and the GPUs that its builds are for.

    ``machine_here`` reads this machine's facts, for a journal written here that does not record the machine.

    Raises:
        EVIDENCE_NOT_EXPORTED: there is no journal, nothing was measured, two of its builds have one tree, or
            the machine is another one and not recorded.
        CacheError: the disk is full or not writable.
    """
    path = folder / JOURNAL
    if not path.is_file():
        raise not_exported(
            str(folder), "it is not a folder of patchkit pick or patchkit bench run", _FOLDER_HINT
        )
    try:
        header, lines = load_journal(path, _LINES)
        if header.setup.get("device") == "emulated":
            raise not_exported(str(path), "its times are modelled; modelled times are not a measurement")
        setup = (_PickSetup if "models" in header.setup else _SweepSetup).model_validate(header.setup)
        calls = [line for line in lines if isinstance(line, Called)]
        visits = [line for line in lines if isinstance(line, Visited)]
        if isinstance(setup, _SweepSetup):
            backend, arms = setup.backend, _sweep_arms(setup, path)
            tests = list(_sweep_tests(calls, path))
        else:
            backend, arms = setup.device, {_arm_name(visit): visit.tree for visit in visits}
            tests = list(_picked_tests(setup, visits, str(path)))
    except UsageError as error:
        if error.code == "EVIDENCE_NOT_EXPORTED":
            raise
        raise not_exported(str(path), error.why or error.message, _FOLDER_HINT) from error
    except (ValueError, KeyError) as error:
        why = f"it is not a journal of patchkit pick or patchkit bench run: {str(error)[:200]}"
        raise not_exported(str(path), why, _FOLDER_HINT) from error
    if not tests:
        raise not_exported(
            str(path), "nothing was measured there", "run the same command to continue measuring"
        )
    return tuple(sorted(setup.archs)), Measurement(
        source=str(path),
        machine=_machine(folder, setup, backend, machine_here),
        day=dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC).date(),
        arms=arms,
        tests=tests,
        conditions=[*(call.conditions for call in calls), *(visit.conditions for visit in visits)],
        patches={visit.tree: visit.arm for visit in visits if visit.arm},
    )


def _sweep_arms(setup: _SweepSetup, path: Path) -> dict[str, str]:
    """The trees by label. ``bench run`` measures no build twice, so its files have no noise to judge by."""
    trees = {label: arm.tree for label, arm in setup.arms.items()}
    if len(set(trees.values())) < len(trees):
        named = " and ".join(trees)
        why = f"{named} are several builds of one tree, but evidence files identify builds by their trees"
        raise not_exported(str(path), why)
    return trees


def _sweep_tests(calls: Sequence[Called], path: Path) -> Iterator[MeasuredTest]:
    rounds: dict[BenchTest, dict[int, dict[str, Sequence[int]]]] = {}
    for call in calls:
        for row in parse_rows(call.rows, str(path)):
            rounds.setdefault(row.test, {}).setdefault(call.round, {})[call.label] = row.samples_ns
    for test, found in sorted(rounds.items()):
        yield _test(test, [found[number] for number in sorted(found)], None, str(path))


def _arm_name(visit: Visited) -> str:
    name = "upstream" if not visit.arm else f"build-{visit.tree[:12]}"
    return f"{name}-again" if visit.again else name


def _picked_tests(setup: _PickSetup, visits: Sequence[Visited], source: str) -> Iterator[MeasuredTest]:
    """A round is one stage and number. Hashes replace the names of models, which are file names."""
    found: dict[tuple[str, str], dict[tuple[str, int], dict[str, Sequence[int]]]] = {}
    for visit in visits:
        for name, times in visit.samples_ns.items():
            rounds = found.setdefault((visit.model, name), {})
            rounds.setdefault((visit.stage, visit.round), {})[_arm_name(visit)] = times
    for (model, name), rounds in found.items():
        (test,) = parse_tests(name)
        word, size = setup.model_words.get(model, (f"model {setup.models[model][:12]}", 0))
        fields = {
            "model": word,
            "model_bytes": size,
            "model_sha256": setup.models[model],
            "head_size": None,
            "prompt": test.prompt,
            "generated": test.generated,
            "depth": test.depth,
            "type_k": setup.cache_type.lower(),
            "type_v": setup.cache_type.lower(),
            "flash": "on",
            "batch": setup.batch[0],
            "micro_batch": setup.batch[1],
            "threads": -1 if setup.threads is None else setup.threads,
            "layers": 0 if setup.device == "cpu" else 99,
            "load": "none",
        }
        yield _validated_test(fields, list(rounds.values()), source)


def _machine(folder: Path, setup: _Setup, backend: BackendName, machine_here: MachineHere) -> MeasuredMachine:
    path = folder / MACHINE_FILE
    if path.is_file():
        try:
            return MeasuredMachine.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            hint = "move it away and run the same command on the measured machine, which writes it again"
            raise not_exported(str(path), "it does not record the machine", hint) from error
    if setup.runner != _HERE:
        raise not_exported(str(folder), f"it was measured on {setup.runner}, whose facts were not recorded")
    return machine_here("cpu" if backend == "cpu" else setup.archs[0], backend)
