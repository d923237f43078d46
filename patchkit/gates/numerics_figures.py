"""What was measured of each setting, and how it is told.

Vocabulary: a *figure* is what was measured of one point: how many cases of ours and of upstream's ran
with it, how many failed, and the largest errors of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.numerics.manifest import Manifest
from patchkit.numerics.sets import STATIC_LIMIT, Point, Table


@dataclass(slots=True, kw_only=True)
class Figure:
    """What was measured of one point. ``nmse`` and ``row`` are the largest of our cases."""

    own: int = 0
    upstream: int = 0
    failed: int = 0
    nmse: float = 0.0
    row: float = 0.0
    examples: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "own_cases": self.own,
            "upstream_cases": self.upstream,
            "failed": self.failed,
            "nmse_max": self.nmse,
            "row_nmse_max": self.row,
            "failures": self.examples,
        }


def illegal_points(manifest: Manifest) -> tuple[str, ...]:
    """The settings of the tables that CUDA cannot run, each with its shared memory."""
    return tuple(
        f"{table.name}, {point}: {point.static_bytes} bytes of static shared memory, CUDA has {STATIC_LIMIT}"
        for table in manifest.tables
        for point in table.points
        if not point.is_legal_here
    )


def point_row(point: Point, figure: Figure) -> dict[str, object]:
    """One point as plain data."""
    variant = point.variant
    return {
        "head_size": variant.head_size,
        "ncols": variant.ncols,
        "acc": variant.acc,
        "kq_stride": point.kq_stride,
        "nwarps": point.nwarps,
        "static_bytes": point.static_bytes,
        **figure.as_json(),
    }


def table_row(table: Table, figures: Mapping[Point, Figure]) -> dict[str, object]:
    """One table as plain data: counts over its settings."""
    mine = [figures[point] for point in table.points if point in figures]
    return {
        "name": table.name,
        "settings": len(table.points),
        "measured": len(mine),
        "passed": sum(not figure.failed for figure in mine),
        "cases": sum(figure.own + figure.upstream for figure in mine),
        "failed": sum(figure.failed for figure in mine),
        "nmse_max": max((figure.nmse for figure in mine), default=None),
        "not_run": [str(point) for point in table.points if not point.is_legal_here],
    }


def table_lines(manifest: Manifest, figures: Mapping[Point, Figure]) -> Iterator[str]:
    """One line per table."""
    for table in (*manifest.tables, *manifest.extra):
        row = table_row(table, figures)
        legal = sum(point.is_legal_here for point in table.points)
        yield (
            f"{table.name}: {row['passed']} of {legal} settings pass, {row['cases']} cases, "
            f"{row['failed']} failed, "
            f"{len(table.points) - legal} not run here"
        )


def planted_line(planted: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """One line: how many of the runs that must fail were noticed."""
    noticed = sum(bool(row["failed"]) or bool(row["crashed"]) for row in planted)
    yield f"planted: {noticed} of {len(planted)} runs with broken rules noticed"
