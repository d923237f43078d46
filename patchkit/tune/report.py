"""The result of a tuning run: a JSON report in the cache for later runs, and rows for the profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

from patchkit.base.files import write_whole
from patchkit.base.plain import fields_of
from patchkit.base.upstreams import build_name
from patchkit.carry.series.profile import ArchProfile, TunedMmq
from patchkit.tune.cost import Judged, Modelled
from patchkit.tune.family import (
    MODELLED_ONLY,
    Exclusion,
    Row,
    Setting,
    numbers_of,
    row_of,
)
from patchkit.tune.mmq import rows_of_block
from patchkit.tune.search import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """The report of a run. ``current`` are the profile's settings; ``complete``: it covers all variants.

    ``untimed`` is why some variants are not ranked by modelled time, or None.
    """

    json_keys: ClassVar = (
        "arch kernel parameters build compiler llvm_mca=mca complete order not_timed=untimed excluded "
        "profile=current spills=spilled variants=verdicts"
    )

    arch: str
    kernel: str
    build: int
    compiler: str
    excluded: tuple[Exclusion, ...]
    parameters: tuple[str, ...]
    mca: bool
    complete: bool
    verdicts: tuple[Verdict, ...]
    current: Mapping[str, Setting]
    untimed: str | None = None

    @property
    def is_timed(self) -> bool:
        """Whether some variants are ranked by modelled time."""
        return any(verdict.upstream.modelled is not None for verdict in self.verdicts)

    @property
    def order(self) -> str:
        """The criterion by which candidates are ranked."""
        return "modelled time" if self.is_timed else "judgement"

    @property
    def spilled(self) -> dict[str, int]:
        """Spilled registers over all variants: upstream's and the best settings'."""
        return {
            "upstream": sum(verdict.upstream.figures.spills for verdict in self.verdicts),
            "ours": sum(verdict.best.figures.spills for verdict in self.verdicts),
        }


def write_report(cache_root: Path, report: TuneReport) -> Path:
    """Write a report, replacing (atomically) that of an earlier run of the same kind. Raises CacheError."""
    path = cache_root / "tune" / f"{report.arch}-{report.kernel}-{build_name(report.build)}.json"
    write_whole(path, json.dumps(fields_of(report), indent=1) + "\n", "writing the report")
    return path


def timed_rows(report: TuneReport, profile: ArchProfile, today: date) -> list[Row]:
    """Rows of mul_mat_q: measured rows are kept; for other types, the settings that the model prefers.

    A row applies from a minimum number of columns on, so neighbours with the same block are merged, and rows
    with more columns come first.
    """
    measured = [row for row in profile.tuning.mmq if not row.measured_on.startswith(MODELLED_ONLY)]
    rows = [_row_of_mmq(row) for row in measured]
    by_type: dict[str, list[Verdict]] = {}
    for verdict in report.verdicts:
        kind, _, columns = verdict.variant.partition("-")
        if columns.isdigit() and kind not in {row.type for row in measured}:
            by_type.setdefault(kind, []).append(verdict)
    for kind, verdicts in sorted(by_type.items()):
        groups: list[list[Verdict]] = []
        for verdict in sorted(verdicts, key=lambda each: -int(each.variant.rpartition("-")[2])):
            if groups and _by_time(groups[-1][0]).candidate.setting == _by_time(verdict).candidate.setting:
                groups[-1].append(verdict)
            else:
                groups.append([verdict])
        while groups and _by_time(groups[-1][0]) is groups[-1][0].upstream:
            groups.pop()  # below the last row, upstream's own settings apply
        rows += [_timed_row(kind, group, report, today) for group in groups]
    return rows


def _by_time(verdict: Verdict) -> Judged:
    """The candidate that the model prefers; upstream's if it was not timed."""
    return verdict.best if verdict.best.modelled is not None else verdict.upstream


def timed_tile_rows(report: TuneReport, profile: ArchProfile, today: date) -> list[Row]:
    """Rows of flash_attn_tile: measured rows are kept; others are the settings that the model prefers."""
    kept = [row for row in profile.tuning.tile if not row.measured_on.startswith(MODELLED_ONLY)]
    known = {(row.head_size_k, row.ncols) for row in kept}
    rows = [row_of(row) for row in kept]
    for verdict in report.verdicts:
        head_size, columns = numbers_of(verdict.variant)
        if _by_time(verdict) is not verdict.upstream and (head_size, columns) not in known:
            row: Row = {"head_size_k": head_size, "head_size_v": head_size, "ncols": columns}
            row |= dict(zip(report.parameters, verdict.best.candidate.setting, strict=True))
            rows.append(row | _provenance(report, [verdict], today))
    return sorted(rows, key=lambda row: (row["head_size_k"], row["head_size_v"], row["ncols"]))


def _row_of_mmq(row: TunedMmq) -> Row:
    found: Row = asdict(row)
    return {name: value for name, value in found.items() if name != "where"}


def _timed_row(kind: str, group: Sequence[Verdict], report: TuneReport, today: date) -> Row:
    threads, occupancy = _by_time(group[0]).candidate.setting
    return {
        "type": kind,
        "min_j": min(int(each.variant.rpartition("-")[2]) for each in group),
        "nthreads": threads,
        "occupancy": occupancy,
        "i": rows_of_block(threads),
        **_provenance(report, group, today),
    }


def _provenance(report: TuneReport, group: Sequence[Verdict], today: date) -> Row:
    """The keys ``source`` and ``measured_on`` of a modelled row, with the known error of the model."""
    timed = [each.best.modelled for each in group if each.best.modelled is not None]
    run = f"patchkit tune of {today.isoformat()}, {report.compiler}"
    if not timed:
        return {
            "source": f"upstream's own setting ({run}): no modelled operation uses it",
            "measured_on": f"{MODELLED_ONLY}{report.arch}, no hardware; not timed",
        }
    gains = sorted(1 / each.ratio for each in timed)
    return {
        "source": f"modelled ({run}): {gains[0]:.2f} to {gains[-1]:.2f} times as fast as upstream's",
        "measured_on": _modelled_on(report, timed[0]),
    }


def _modelled_on(report: TuneReport, modelled: Modelled) -> str:
    error = modelled.error
    of = f"{error.ratios} measured ratios" if error.ratios else f"{error.points} measured times"
    return (
        f"{MODELLED_ONLY}{report.arch}, no hardware; median error {modelled.half:.1%} "
        f"over {of} of such kernels ({error})"
    )
