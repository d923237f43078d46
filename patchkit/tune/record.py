"""The record of a tuning run, shipped beside the profiles: figures of compilers and headers not everyone has.

``arch_profiles/tuned/<gfx>-<kernel>-b<build>.json``: no profile reads it, no candidate depends on it.
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
    """One version of rocWMMA; ``sha256`` is over its files' names and bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A legal candidate that must not be taken."""

    variant: str
    setting: Setting
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run. ``units`` has the outcomes of each unit in the order of ``headers``.

    ``sources`` is the digest of all units with what they include of ours; ``like`` the GPU whose figures
    chose the candidates, None when all legal ones were compiled.
    """

    arch: str
    kernel: str
    build: int
    made: str
    compiler: str
    sources: str
    like: str | None
    headers: tuple[RecordedHeaders, ...]
    left_out: tuple[LeftOut, ...]
    candidates: Mapping[str, tuple[Setting, ...]]
    units: Mapping[str, tuple[Outcome, ...]]


def record_path(profiles: Path, arch: str, kernel: str, build: int) -> Path:
    """Where the record of a run lies."""
    return profiles / "tuned" / f"{arch}-{kernel}-{build_name(build)}.json"


def load_record(profiles: Path, arch: str, kernel: str, build: int) -> Record | None:
    """The record, or None when there is none.

    Raises:
        TUNE_RECORD_UNREADABLE: the file is none of ours.
        CacheError: it cannot be read.
    """
    path = record_path(profiles, arch, kernel, build)
    if not path.is_file():
        return None
    with disk_errors(path, "reading the record"):
        data = path.read_bytes()
    return parse_record(data, str(path))


def parse_record(data: bytes, where: str) -> Record:
    """The record of a file's bytes. Raises TUNE_RECORD_UNREADABLE."""
    try:
        found = json.loads(data)
        _check(found)
        return Record(
            **{name: found[name] for name in _WORDS},
            headers=tuple(RecordedHeaders(**each) for each in found["headers"]),
            left_out=tuple(
                LeftOut(variant=each["variant"], setting=tuple(each["setting"]), why=each["why"])
                for each in found["left_out"]
            ),
            candidates={name: tuple(map(tuple, settings)) for name, settings in found["candidates"].items()},
            units={path: tuple(map(_outcome, row)) for path, row in found["units"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "the record of a tuning run cannot be read",
            code="TUNE_RECORD_UNREADABLE",
            where=Location(path=where),
            why=f"{type(error).__name__}: {error}",
            hint="git checkout it, or take it away: patchkit tune then tunes by the headers that are here",
        ) from error


def render_record(record: Record) -> bytes:
    """The file of a record: one line for each unit, sorted, so that a change reads as one."""
    head = {
        "version": _VERSION,
        **{name: getattr(record, name) for name in _WORDS},
        "headers": [{"name": each.name, "sha256": each.sha256} for each in record.headers],
        "left_out": [
            {"variant": each.variant, "setting": list(each.setting), "why": each.why}
            for each in record.left_out
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
    """Put the record beside the profiles in one step; whether the file changed. Raises CacheError."""
    path = record_path(profiles, record.arch, record.kernel, record.build)
    made = render_record(record)
    with disk_errors(path, "writing the record"):
        if path.is_file() and path.read_bytes() == made:
            return False
    write_whole(path, made, "writing the record")
    return True


def merge(
    record: Record, here: Sequence[int], compiled: Mapping[str, tuple[Outcome, ...]]
) -> dict[str, tuple[Outcome, ...]]:
    """Outcomes by all headers of the record: those of ``here`` as compiled, the others as recorded.

    A unit that is not in the record counts as not compiled with headers that are not here.
    """
    unknown = Failure(code="TUNE_NOT_RECORDED", message="not in the record, and its headers are not here")
    merged: dict[str, tuple[Outcome, ...]] = {}
    for unit, outcomes in compiled.items():
        row = list(record.units.get(unit, [unknown] * len(record.headers)))
        for index, outcome in zip(here, outcomes, strict=True):
            row[index] = outcome
        merged[unit] = tuple(row)
    return merged


def same_figures(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes say the same; how long the compiler took does not count."""
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
        raise ValueError(f"version {found['version']} or its columns are not of this patchkit")
    if any(len(row) != len(found["headers"]) for row in found["units"].values()):
        raise ValueError("a unit has not one outcome for each headers")


def _outcome(row: dict[str, str] | list[int | None]) -> Outcome:
    if isinstance(row, dict):
        return Failure(code=row["code"], message=row["message"])
    named: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    loop = {name: named.pop(f"loop.{name}") for name in _LOOP}
    return Figures(**named, loop=LoopMix(**loop), seconds=0.0)
