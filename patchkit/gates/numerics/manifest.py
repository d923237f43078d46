"""What a bundle says about itself: a JSON file, read strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.gates.numerics.sets import Point, Program, Table
from patchkit.kernels.wmma import Accumulator, WmmaVariant

MANIFEST = "numerics.json"
_FORMAT = 1
JobKind = Literal["check", "ops", "perf"]


class NotABundle(UsageError):
    """A folder has no manifest of a bundle, or one that this patchkit does not read."""

    code = "NOT_A_BUNDLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one program; ``cases`` counts those of a case file, ``limit_s`` is in seconds."""

    name: str
    kind: JobKind
    program: str
    limit_s: int
    argv: tuple[str, ...]
    cases: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The bundle. ``touched`` are units whose objects must be equal on both sides; empty: not compared."""

    candidate_tree: str
    baseline_tree: str
    archs: tuple[str, ...]
    build: int
    tables: tuple[Table, ...]
    extra: tuple[Table, ...]
    programs: tuple[Program, ...]
    jobs: tuple[Job, ...]
    touched: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data that :func:`load_manifest` reads back."""
        return {
            "format": _FORMAT,
            "candidate_tree": self.candidate_tree,
            "baseline_tree": self.baseline_tree,
            "archs": list(self.archs),
            "build": self.build,
            "tables": [_table(table) for table in self.tables],
            "extra": [_table(table) for table in self.extra],
            "programs": [
                {"name": each.name, "points": _points(each.points), "planted": each.is_planted}
                for each in self.programs
            ],
            "jobs": [
                {
                    "name": job.name,
                    "kind": job.kind,
                    "program": job.program,
                    "limit_s": job.limit_s,
                    "argv": list(job.argv),
                    "cases": job.cases,
                }
                for job in self.jobs
            ],
            "touched": list(self.touched),
        }


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle.

    Raises:
        NotABundle: there is none, or it is not what :meth:`Manifest.as_json` writes.
        CacheError: the disk refused.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise _not_a_bundle(path, "there is no such file")
    try:
        with disk_errors(path, "reading a bundle"):
            text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise _not_a_bundle(path, str(error)) from error
    try:
        return _parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _not_a_bundle(path, f"{type(error).__name__}: {error}") from error


def _not_a_bundle(path: Path, why: str) -> NotABundle:
    return NotABundle(
        f"{path.parent} holds no bundle that can be read",
        where=Location(path=str(path)),
        why=why,
        hint="patchkit numerics build DIR --arch gfx1151 makes one",
    )


def _parse(data: dict[str, object]) -> Manifest:
    if data["format"] != _FORMAT:
        raise ValueError(f"format {data['format']!r} is not {_FORMAT}")
    programs = tuple(
        Program(
            name=_text(each["name"]), points=_read_points(each["points"]), is_planted=each["planted"] is True
        )
        for each in _dicts(data["programs"])
    )
    jobs = tuple(
        Job(
            name=_text(each["name"]),
            kind=_kind(each["kind"]),
            program=_text(each["program"]),
            limit_s=_number(each["limit_s"]),
            argv=_texts(each["argv"]),
            cases=_number(each["cases"]),
        )
        for each in _dicts(data["jobs"])
    )
    return Manifest(
        candidate_tree=_text(data["candidate_tree"]),
        baseline_tree=_text(data["baseline_tree"]),
        archs=_texts(data["archs"]),
        build=_number(data["build"]),
        tables=_tables(data["tables"]),
        extra=_tables(data["extra"]),
        programs=programs,
        jobs=jobs,
        touched=_texts(data["touched"]),
    )


def _table(table: Table) -> dict[str, object]:
    return {"name": table.name, "points": _points(table.points)}


def _points(points: tuple[Point, ...]) -> list[list[object]]:
    return [
        [each.variant.head_size, each.variant.ncols, each.variant.acc, each.kq_stride, each.nwarps]
        for each in points
    ]


def _tables(data: object) -> tuple[Table, ...]:
    return tuple(
        Table(name=_text(each["name"]), points=_read_points(each["points"])) for each in _dicts(data)
    )


def _read_points(data: object) -> tuple[Point, ...]:
    found = []
    for row in _list(data):
        size, columns, acc, stride, warps = _list(row)
        if acc not in get_args(Accumulator):
            raise ValueError(f"{acc!r} is no accumulator")
        variant = WmmaVariant(_number(size), _number(columns), cast("Accumulator", acc))
        found.append(Point(variant, _number(stride), _number(warps)))
    return tuple(found)


def _list(data: object) -> list[object]:
    if not isinstance(data, list):
        raise TypeError(f"a list was expected, not {data!r:.60}")
    return data


def _dicts(data: object) -> list[dict[str, object]]:
    rows = _list(data)
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"an object was expected, not {row!r:.60}")
    return cast("list[dict[str, object]]", rows)


def _texts(data: object) -> tuple[str, ...]:
    return tuple(_text(each) for each in _list(data))


def _text(data: object) -> str:
    if not isinstance(data, str):
        raise TypeError(f"a text was expected, not {data!r:.60}")
    return data


def _number(data: object) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise TypeError(f"a number was expected, not {data!r:.60}")
    return data


def _kind(data: object) -> JobKind:
    if data not in get_args(JobKind):
        raise ValueError(f"{data!r} is no kind of job")
    return cast("JobKind", data)
