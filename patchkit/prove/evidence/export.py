"""Making an evidence file of what was measured: by the gate ``bench``, by ``bench run`` or by ``pick``."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, UsageError
from patchkit.base.evidence import (
    Digest,
    EvidenceFile,
    MeasuredArm,
    MeasuredMachine,
    MeasuredTest,
    Nanoseconds,
    ObjectId,
)
from patchkit.carry.series.lock import Lock, Pin, Result
from patchkit.carry.series.measured import digest_of_rendered
from patchkit.gpu.hardware.bench.folder import RunNote
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchTest, parse_rows
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE, ranges_of, version_of
from patchkit.prove.evidence.check import Made
from patchkit.prove.evidence.figures import verdicts_of
from patchkit.prove.gates.bench import BenchEvidence
from patchkit.prove.gates.record import read_gate
from patchkit.toolchain.parts import BackendName


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured, of whichever source, which ``source`` names in errors.

    ``arms`` are trees by name, ``patches`` what is known of a tree that no lock may have.
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
    """Writes measurements of builds for ``archs``; their trees are those of ``lock``, or are ``made`` anew.

    ``codes`` are digests of the series' patches (:func:`patchkit.carry.series.measured.codes_of`). ``by`` is
    the name that the owner of the machine wants to be known by, if any.
    """

    lock: Lock
    archs: tuple[str, ...]
    made: Made
    codes: Mapping[str, str]
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
        """The one whose tree is that of the build without patches."""
        pin = next((each for each in self.lock.pins if each.tree in found.arms.values()), None)
        if pin is None:
            why = "no build in it is of a pin of the lock: what the patches are compared with is not known"
            hint = "measure on one: --upstream bNUMBER, as patchkit status lists them"
            raise not_exported(found.source, why, hint)
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
    r"ngl(?P<layers>-?\d+), load (?P<load>\w+)"
)


_Round = Mapping[str, Sequence[int]]
"""The nanoseconds of the repetitions by arm."""


def _test(test: BenchTest, rounds: Sequence[_Round], head_size: int | None, source: str) -> MeasuredTest:
    """A test as llama-bench's rows have it. Raises EVIDENCE_NOT_EXPORTED."""
    found = _SETTING.fullmatch(test.setting)
    said = found.groupdict() if found is not None else {"model": test.setting, "load": "unknown"}
    numbers = ("model_bytes", "batch", "micro_batch", "threads", "layers")
    return _made_test(
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
        },
        rounds,
        source,
    )


def _made_test(fields: Mapping[str, object], rounds: Sequence[_Round], source: str) -> MeasuredTest:
    whole = [{arm: tuple(times) for arm, times in one.items()} for one in rounds]
    try:
        return MeasuredTest.model_validate({**fields, "rounds": whole})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise not_exported(source, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


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


_FOLDER_HINT = "name the folder that patchkit pick or patchkit bench run wrote into"
_NO_FORM = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file raises that is not of its form; RecursionError: JSON within JSON, thousands deep."""


def _plain_text(path: Path, errors: str = "strict") -> str:
    """The text of a plain file; a pipe of that name would be waited for. Raises OSError, ValueError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device")
    return path.read_text("utf-8", errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """Of ``session.json`` of ``bench run``: the trees by label, and for which GPUs they are."""

    trees: dict[str, str]
    archs: tuple[str, ...]


def _session(folder: Path) -> _Session:
    try:
        said = json.loads(_plain_text(folder / "session.json"))
        return _Session(
            trees={str(label): str(arm["tree"]) for label, arm in said["arms"].items()},
            archs=tuple(sorted(map(str, said.get("archs", ())))),
        )
    except _NO_FORM as error:
        why = "it is no folder of patchkit pick or patchkit bench run"
        raise not_exported(str(folder), why, _FOLDER_HINT) from error


_RUN = re.compile(r"(?P<repetition>\d{3,})-d(?P<depth>\d+)-(?P<label>[A-Za-z0-9._-]+)")


def load_sweep_measurement(folder: Path) -> Measurement:
    """What ``bench run`` left in a folder.

    It measures no build twice, so that such a file decides nothing by itself.

    Raises:
        EVIDENCE_NOT_EXPORTED: it is none, it has two builds of one tree, or it does not say on which machine.
        BenchUnreadable: a run in it was damaged since.
    """
    source = str(folder)
    trees = _session(folder).trees
    if len(set(trees.values())) < len(trees):
        why = (
            f"{' and '.join(trees)} are several builds of one tree, and the file tells builds by their trees"
        )
        raise not_exported(source, why)
    try:
        machine = MeasuredMachine.model_validate_json(_plain_text(folder / "runs" / MACHINE_FILE))
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
        tests=[
            _test(test, [found[number] for number in sorted(found)], None, source)
            for test, found in sorted(rounds.items())
        ],
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
            rows = parse_rows(_plain_text(path, "replace"), str(path))
        except OSError as error:
            errors.append(not_exported(str(path), error.strerror or str(error), _FOLDER_HINT))
            continue
        except PatchkitError as error:
            errors.append(error)
            continue
        try:
            note = RunNote.model_validate_json(_plain_text(path.with_suffix(".json")))
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


JOURNAL = "journal.jsonl"
"""What ``pick`` calls the file of all that it measured."""

_PICKED = re.compile(r"(?P<kind>pp|tg)(?P<tokens>[0-9]{1,7})(?:@d(?P<depth>[0-9]{1,7}))?")


class _Begun(BaseModel):
    """Of the first line of a journal what is needed here; ``models`` are sha256 by name."""

    archs: tuple[str, ...]
    device: Literal["hip", "cuda", "cpu"]
    runner: str
    models: dict[str, Digest]
    model_words: dict[str, tuple[str, int]] = {}  # by name llama-bench's word for it, and its bytes
    batch: tuple[int, int]
    cache_type: str
    threads: int | None


class _Visit(BaseModel):
    """One run of one build: ``again`` is the second one of upstream's in its round."""

    stage: str
    round: int
    again: bool
    arm: tuple[str, ...]
    tree: ObjectId
    model: str
    samples_ns: dict[str, tuple[Nanoseconds, ...]]
    conditions: dict[str, str]


def load_pick_measurement(
    folder: Path, machine_here: Callable[[str, BackendName], MeasuredMachine]
) -> tuple[tuple[str, ...], Measurement]:
    """What ``pick`` left in a folder, and for which GPUs; a round is what has one stage and number.

    ``machine_here`` asks this machine, for a journal that was made here and does not say where. Names of
    models are names of files there, so that hashes stand for them.

    Raises:
        EVIDENCE_NOT_EXPORTED: it is no journal, or was made on another machine that is not known.
    """
    path = folder / JOURNAL
    try:
        begun, visits = _journal(path)
        tests = list(_picked_tests(begun, visits, str(path)))
    except _NO_FORM as error:
        why = f"it is no journal of patchkit pick: {str(error)[:200]}"
        raise not_exported(str(path), why, _FOLDER_HINT) from error
    if not tests:
        hint = "patchkit pick with the same options goes on measuring"
        raise not_exported(str(path), "nothing was measured there", hint)
    return begun.archs, Measurement(
        source=str(path),
        machine=_machine_of_journal(folder, begun, machine_here),
        day=dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC).date(),
        arms={_arm_name(visit): visit.tree for visit in visits},
        tests=tests,
        conditions=[visit.conditions for visit in visits],
        patches={visit.tree: visit.arm for visit in visits if visit.arm},
    )


def _journal(path: Path) -> tuple[_Begun, list[_Visit]]:
    """The lines of a journal; the last one may have been cut off. Raises what ``_NO_FORM`` has."""
    begun: _Begun | None = None
    visits = []
    for number, line in enumerate(_plain_text(path).split("\n")[:-1], 1):
        body, _, digest = line.rpartition("\t")
        if hashlib.sha256(body.encode()).hexdigest()[:16] != digest:
            raise ValueError(f"line {number} is not as it was written")
        entry = json.loads(body)
        if entry["kind"] == "begun":
            if entry["setup"].get("device") == "emulated":
                raise not_exported(str(path), "its times are modelled, and nothing modelled is a measurement")
            begun = _Begun.model_validate(entry["setup"])
        elif entry["kind"] == "visit":
            visits.append(_Visit.model_validate(entry))
    if begun is None:
        raise ValueError("its first line does not say what was measured")
    return begun, visits


def _arm_name(visit: _Visit) -> str:
    name = "upstream" if not visit.arm else f"build-{visit.tree[:12]}"
    return f"{name}-again" if visit.again else name


def _picked_tests(begun: _Begun, visits: Sequence[_Visit], source: str) -> Iterator[MeasuredTest]:
    found: dict[tuple[str, str], dict[tuple[str, int], dict[str, Sequence[int]]]] = {}
    for visit in visits:
        for name, times in visit.samples_ns.items():
            rounds = found.setdefault((visit.model, name), {})
            rounds.setdefault((visit.stage, visit.round), {})[_arm_name(visit)] = times
    for (model, name), rounds in found.items():
        test = _PICKED.fullmatch(name)
        if test is None:
            raise ValueError(f"'{name}' is no test")
        word, size = begun.model_words.get(model, (f"model {begun.models[model][:12]}", 0))
        tokens = int(test["tokens"])
        fields = {
            "model": word,
            "model_bytes": size,
            "model_sha256": begun.models[model],
            "head_size": None,
            "prompt": tokens if test["kind"] == "pp" else 0,
            "generated": tokens if test["kind"] == "tg" else 0,
            "depth": int(test["depth"] or 0),
            "type_k": begun.cache_type.lower(),
            "type_v": begun.cache_type.lower(),
            "flash": "on",
            "batch": begun.batch[0],
            "micro_batch": begun.batch[1],
            "threads": -1 if begun.threads is None else begun.threads,
            "layers": 0 if begun.device == "cpu" else 99,
            "load": "none",
        }
        yield _made_test(fields, list(rounds.values()), source)


def _machine_of_journal(
    folder: Path, begun: _Begun, machine_here: Callable[[str, BackendName], MeasuredMachine]
) -> MeasuredMachine:
    path = folder / MACHINE_FILE
    if path.is_file():
        try:
            return MeasuredMachine.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            hint = "move it away; the same patchkit pick writes it again, on the machine that measured"
            raise not_exported(str(path), "it does not say on which machine", hint) from error
    if begun.runner != _HERE:
        raise not_exported(str(folder), f"it was measured on {begun.runner}, of which nothing is noted")
    return machine_here("cpu" if begun.device == "cpu" else begun.archs[0], begun.device)


_HERE = "this machine"  # as LocalRunner is called


def load_measurement(
    folder: Path, machine_here: Callable[[str, BackendName], MeasuredMachine]
) -> tuple[tuple[str, ...], Measurement]:
    """What a command measured into a folder, and for which GPUs its builds are.

    Raises:
        EVIDENCE_NOT_EXPORTED: none that patchkit knows did, or as the loaders of each say.
    """
    if (folder / JOURNAL).is_file():
        return load_pick_measurement(folder, machine_here)
    found = load_sweep_measurement(folder)
    return _session(folder).archs, found
