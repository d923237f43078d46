"""The record of a tuning run, shipped with the profiles: figures for compilers and headers users may lack.

``arch_profiles/tuned/<gfx>-<kernel>-b<build>.json``; neither profiles nor candidates depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchkit.base.errors import ConfigError, Location
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.upstreams import build_name
from patchkit.tune.family import Setting
from patchkit.tune.isa import LoopMix
from patchkit.tune.outcome import Failure, Figures, Outcome

_VERSION = 1
_LOOP = tuple(LoopMix.__dataclass_fields__)
_PLAIN = ("vgprs", "spills", "sgpr_spills", "scratch_bytes", "lds_bytes", "waves", "resident", "threads")
_WORDS = ("arch", "kernel", "build", "made", "compiler", "sources", "like")
_COLUMNS = (*_PLAIN, "latency", *(f"loop.{name}" for name in _LOOP))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHeaders:
    """One version of rocWMMA; ``sha256`` covers the names and bytes of its files."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A legal candidate that must not be chosen."""

    variant: str
    setting: Setting
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of one run. ``units`` has the outcomes of each unit in the order of ``headers``.

    ``sources`` is the digest of all units and of the overlay's files that they include. ``like`` is the GPU
    whose figures selected the candidates, or None if all legal ones were compiled.
    """

    arch: str
    kernel: str
    build: int
    made: str
    compiler: str
    sources: str
    like: str | None
    headers: tuple[RecordedHeaders, ...]
    excluded: tuple[Exclusion, ...]
    candidates: Mapping[str, tuple[Setting, ...]]
    units: Mapping[str, tuple[Outcome, ...]]


def record_path(profiles: Path, arch: str, kernel: str, build: int) -> Path:
    """The path of the record of a run."""
    return profiles / "tuned" / f"{arch}-{kernel}-{build_name(build)}.json"


def load_record(profiles: Path, arch: str, kernel: str, build: int) -> Record | None:
    """The record, or None if there is none.

    Raises:
        TUNE_RECORD_BAD: the file is not a record of this format.
        CacheError: the file cannot be read.
    """
    path = record_path(profiles, arch, kernel, build)
    if not path.is_file():
        return None
    with disk_errors(path, "reading the record"):
        data = path.read_bytes()
    return parse_record(data, str(path))


def parse_record(data: bytes, where: str) -> Record:
    """Parse the bytes of a record. Raises TUNE_RECORD_BAD."""
    try:
        found = json.loads(data)
        _check(found)
        return Record(
            **{name: found[name] for name in _WORDS},
            headers=tuple(RecordedHeaders(**each) for each in found["headers"]),
            excluded=tuple(
                Exclusion(variant=each["variant"], setting=tuple(each["setting"]), why=each["why"])
                for each in found.get("excluded", found.get("left_out"))  # its earlier name
            ),
            candidates={name: tuple(map(tuple, settings)) for name, settings in found["candidates"].items()},
            units={path: tuple(map(_outcome, row)) for path, row in found["units"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "cannot read the record of a tuning run",
            code="TUNE_RECORD_BAD",
            where=Location(path=where),
            why=f"{type(error).__name__}: {error}",
            hint="restore it with git checkout, or delete it to tune with the headers of this machine only",
        ) from error


def render_record(record: Record) -> bytes:
    """The bytes of a record: one line per unit, sorted, for readable diffs."""
    head = {
        "version": _VERSION,
        **{name: getattr(record, name) for name in _WORDS},
        "headers": [{"name": each.name, "sha256": each.sha256} for each in record.headers],
        "excluded": [
            {"variant": each.variant, "setting": list(each.setting), "why": each.why}
            for each in record.excluded
        ],
        "candidates": {name: [list(each) for each in rows] for name, rows in record.candidates.items()},
        "columns": list(_COLUMNS),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = [
        f"  {json.dumps(path)}: {json.dumps([_row(each) for each in outcomes])}"
        for path, outcomes in sorted(record.units.items())
    ]
    return "\n".join(["{", *lines, ' "units": {', ",\n".join(rows), " }", "}", ""]).encode()


def write_record(profiles: Path, record: Record) -> bool:
    """Write the record (atomically); returns whether the file changed. Raises CacheError."""
    path = record_path(profiles, record.arch, record.kernel, record.build)
    data = render_record(record)
    with disk_errors(path, "writing the record"):
        if path.is_file() and path.read_bytes() == data:
            return False
    write_whole(path, data, "writing the record")
    return True


def merge(
    record: Record, here: Sequence[int], compiled: Mapping[str, tuple[Outcome, ...]]
) -> dict[str, tuple[Outcome, ...]]:
    """The outcomes for all headers of the record: compiled ones for ``here``, recorded ones for the others.

    A unit that is not in the record counts as failed for headers that this machine lacks.
    """
    unknown = Failure(code="TUNE_RECORD_BAD", message="not in the record, and this machine lacks the headers")
    merged: dict[str, tuple[Outcome, ...]] = {}
    for unit, outcomes in compiled.items():
        row = list(record.units.get(unit, [unknown] * len(record.headers)))
        for index, outcome in zip(here, outcomes, strict=True):
            row[index] = outcome
        merged[unit] = tuple(row)
    return merged


def same_figures(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes are equal, apart from compile time and the text of failures."""
    if isinstance(first, Figures) and isinstance(second, Figures):
        return replace(first, seconds=0.0) == replace(second, seconds=0.0)
    return isinstance(first, Failure) and isinstance(second, Failure) and first.code == second.code


def _row(outcome: Outcome) -> list[int | None] | dict[str, str]:
    if isinstance(outcome, Failure):
        return {"code": outcome.code, "message": outcome.message}
    plain = [getattr(outcome, name) for name in (*_PLAIN, "latency")]
    return [*plain, *(getattr(outcome.loop, name) for name in _LOOP)]


def _check(found: Mapping[str, Any]) -> None:
    if found["version"] != _VERSION or found["columns"] != list(_COLUMNS):
        raise ValueError(f"version {found['version']}, or its columns, are not supported by this patchkit")
    if any(len(row) != len(found["headers"]) for row in found["units"].values()):
        raise ValueError("a unit does not have one outcome per headers")


def _outcome(row: dict[str, str] | list[int | None]) -> Outcome:
    if isinstance(row, dict):
        return Failure(code=row["code"], message=row["message"])
    named: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    loop = {name: named.pop(f"loop.{name}") for name in _LOOP}
    return Figures(**named, loop=LoopMix(**loop), seconds=0.0)
