"""The result of a tuning run: a JSON report in the cache for later runs, and rows for the profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import write_whole
from patchkit.base.occupancy import HardwareLimits, reported_waves, resident_waves
from patchkit.base.plain import fields_of
from patchkit.base.upstreams import build_name
from patchkit.carry.series.profile import ArchProfile, TunedMmq
from patchkit.tune.cost import FEWEST_WAVES, Judged, Modelled
from patchkit.tune.family import (
    COMPILER_ONLY,
    MODELLED_ONLY,
    Candidate,
    Family,
    Row,
    Setting,
    numbers_of,
    row_of,
)
from patchkit.tune.mmq import rows_of_block
from patchkit.tune.outcome import OUTCOME, Figures, Outcome
from patchkit.tune.record import Record
from patchkit.tune.search import Verdict, choose
from patchkit.tune.wmma import NO_MODEL_RUNS_IT, variant_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """How the run compares with the shipped record, which was created on the day ``made`` by ``compiler``.

    ``units`` were compiled again with the headers ``here``, of which ``differing`` gave other figures. For
    the headers ``absent`` the recorded figures are used.
    """

    made: str
    compiler: str
    here: tuple[str, ...]
    absent: tuple[str, ...]
    units: int
    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHeaders:
    """A check of the table with this machine's own rocWMMA: the variants that are worse, and why."""

    name: str
    worse: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """The report of a run. ``current`` are the profile's settings; ``complete``: it covers all variants.

    ``untimed`` is why some variants are not ranked by modelled time, or None. ``played`` is the index of the
    headers that the timed code was compiled with.

    ``record`` is the record for the table, with all outcomes by unit and headers; its ``made`` is empty until
    it is written.
    """

    json_keys: ClassVar = (
        "arch=record.arch kernel=record.kernel parameters build=record.build compiler=record.compiler "
        "headers llvm_mca=mca like=record.like complete reproduces_profile=reproduces record=basis "
        "own_headers=own order not_timed=untimed excluded=record.excluded profile=current "
        "spills=spilled variants=verdicts"
    )

    record: Record
    parameters: tuple[str, ...]
    mca: bool
    complete: bool
    verdicts: tuple[Verdict, ...]
    current: Mapping[str, Setting]
    basis: Basis | None
    own: OwnHeaders | None
    untimed: str | None = None
    played: int = 0

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers, in the order of the figures."""
        return tuple(each.name for each in self.record.headers)

    @property
    def is_timed(self) -> bool:
        """Whether some variants are ranked by modelled time."""
        return any(verdict.upstream.modelled is not None for verdict in self.verdicts)

    @property
    def reproduces(self) -> bool:
        """Whether the profile has exactly the best settings found."""
        found = {verdict.variant: verdict.best.candidate.setting for verdict in self.verdicts}
        return all(self.current.get(variant) == setting for variant, setting in found.items())

    def spills(self, index: int) -> tuple[int, int]:
        """Spilled registers over all variants, with the headers of that index: upstream's and the best's."""
        return (
            sum(verdict.upstream.figures[index].spills for verdict in self.verdicts),
            sum(verdict.best.figures[index].spills for verdict in self.verdicts),
        )

    @property
    def order(self) -> str:
        """The criterion by which candidates are ranked."""
        return "modelled time" if self.is_timed else "judgement"

    @property
    def spilled(self) -> list[dict[str, object]]:
        """Spilled registers for each of the headers: upstream's and the best settings'."""
        found = [(name, *self.spills(index)) for index, name in enumerate(self.headers)]
        return [{"headers": name, "upstream": theirs, "ours": ours} for name, theirs, ours in found]


def report_path(cache_root: Path, arch: str, kernel: str, build: int) -> Path:
    """The path of the report of a run."""
    return cache_root / "tune" / f"{arch}-{kernel}-{build_name(build)}.json"


def write_report(cache_root: Path, report: TuneReport) -> Path:
    """Write a report, replacing (atomically) that of an earlier run of the same kind. Raises CacheError.

    Runs with a short list or with bounds have other file names, so they do not replace a full report.
    """
    record = report.record
    name = record.kernel if record.like is None else f"{record.kernel}-like-{record.like}"
    name += "-bounds" if "min_waves" in report.parameters else ""
    path = report_path(cache_root, record.arch, name, record.build)
    write_whole(path, json.dumps(fields_of(report), indent=1) + "\n", "writing the report")
    return path


def read_report(
    cache_root: Path, arch: str, kernel: str, build: int, *, whole: bool = True
) -> Mapping[str, Any]:
    """Read a saved report as plain data.

    Raises:
        TUNE_RECORD_BAD: there is none, or it must be ``whole`` and does not cover all variants.
    """
    path = report_path(cache_root, arch, kernel, build)
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _missing(arch, kernel, path, str(error)) from error
    if not isinstance(found, dict) or (whole and not found.get("complete")):
        raise _missing(arch, kernel, path, "it does not cover all variants")
    return found


def _missing(arch: str, kernel: str, path: Path, why: str) -> UsageError:
    return UsageError(
        f"no complete tuning report of {kernel} for {arch}",
        code="TUNE_RECORD_BAD",
        where=Location(path=str(path)),
        why=why,
        hint=f"create it with: patchkit tune --arch {arch} --kernel {kernel}",
    )


def shortlist(
    report: Mapping[str, Any],
    family: Family,
    settings: Mapping[str, Sequence[Setting]],
    *,
    limits: HardwareLimits,
    compute_units: int | None,
    most: int,
) -> dict[str, tuple[Setting, ...]]:
    """The ``most`` best settings of each variant by the report of a related GPU.

    Registers and LDS are taken from that report, and waves are recomputed with this GPU's limits.
    """
    chosen: dict[str, tuple[Setting, ...]] = {}
    for entry in report["variants"]:
        variant = entry["variant"]
        if variant not in settings:
            continue
        compiled: dict[str, tuple[Outcome, ...]] = {}
        for each in entry["candidates"]:
            unit = family.unit(Candidate(variant, tuple(each["setting"])))
            compiled[unit] = tuple(_adapted(OUTCOME.validate_python(one), limits) for one in each["figures"])
        known = [tuple(each["setting"]) for each in entry["candidates"]]
        winner = tuple(entry["best"])
        verdict = choose(
            family,
            variant,
            [setting for setting in known if setting in settings[variant]],
            compiled,
            lambda units: dict.fromkeys(units, ()),
            limits=limits,
            compute_units=compute_units,
        )
        first = [each.candidate.setting for each in verdict.order[:most]]
        wanted = [*first, *([winner] if winner in settings[variant] else [])]
        chosen[variant] = tuple(dict.fromkeys(wanted))
    return chosen


def _adapted(outcome: Outcome, limits: HardwareLimits) -> Outcome:
    if not isinstance(outcome, Figures):
        return outcome
    return replace(
        outcome,
        waves=reported_waves(outcome.vgprs, outcome.lds_bytes, outcome.threads, limits),
        resident=resident_waves(outcome.vgprs, outcome.lds_bytes, outcome.threads, limits),
    )


def profile_rows(report: TuneReport, today: date, measured: Mapping[str, str]) -> list[Row]:
    """The best settings as sorted rows of the profile, with the source of their figures.

    ``measured`` has the profile's ``measured_on`` for variants whose setting was measured on hardware.
    """
    return [
        _wmma_row(report, verdict, today, measured)
        for verdict in sorted(report.verdicts, key=lambda each: variant_of(each.variant))
    ]


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
    run = f"patchkit tune of {today.isoformat()}, {report.record.compiler}"
    if not timed:
        return {
            "source": f"upstream's own setting ({run}): no modelled operation uses it",
            "measured_on": f"{MODELLED_ONLY}{report.record.arch}, no hardware; not timed",
        }
    gains = sorted(1 / each.ratio for each in timed)
    return {
        "source": f"modelled ({run}): {gains[0]:.2f} to {gains[-1]:.2f} times as fast as upstream's",
        "measured_on": _modelled_on(report, timed[0]),
    }


def _modelled_on(report: TuneReport, modelled: Modelled, code: str = "") -> str:
    error = modelled.error
    of = f"{error.ratios} measured ratios" if error.ratios else f"{error.points} measured times"
    return (
        f"{MODELLED_ONLY}{report.record.arch}{code}, no hardware; median error {modelled.half:.1%} "
        f"over {of} of such kernels ({error})"
    )


def _wmma_row(report: TuneReport, verdict: Verdict, today: date, measured: Mapping[str, str]) -> Row:
    record, variant = report.record, variant_of(verdict.variant)
    stride, nwarps = verdict.best.candidate.setting[:2]
    source = [f"patchkit tune of {today.isoformat()}, {record.compiler}"]
    for name, before, after in zip(
        report.headers, verdict.upstream.figures, verdict.best.figures, strict=True
    ):
        change = "" if verdict.best is verdict.upstream else f" -> {_figures(after)}"
        source.append(f"{name}: {_figures(before)}{change}")
    if verdict.kept is not None:
        source.append(verdict.kept)
    if not verdict.measured:
        source.append(f"better by {verdict.margin}" if ":" in verdict.margin else verdict.margin)
    if verdict.reachable < FEWEST_WAVES:
        which = "no legal setting" if record.like is None else "no compiled setting"
        source.append(f"{which} reaches more than {verdict.reachable} waves")
    if variant.acc == "f16":
        source.append(NO_MODEL_RUNS_IT)
    where = f"{COMPILER_ONLY}{record.arch}, no hardware"
    if record.like is not None:
        own = (
            "its own figures with fewer headers"
            if record.like == record.arch
            else f"the figures of {record.like}"
        )
        where += f"; only the best legal settings by {own} were compiled"
    if verdict.best.modelled is not None:
        where = _modelled_on(report, verdict.best.modelled, f" with {report.headers[report.played]}")
        source.append(f"modelled as {1 / verdict.best.modelled.ratio:.2f} times as fast as upstream's")
    if verdict.best is verdict.upstream:
        where += "; upstream's parameters kept"
    return {
        "head_size": variant.head_size,
        "ncols": variant.ncols,
        "acc": variant.acc,
        "kq_stride": stride,
        "nwarps": nwarps,
        "min_waves": 1,
        "source": "; ".join(source),
        "measured_on": measured[verdict.variant] if verdict.measured else where,
    }


def _figures(figures: Figures) -> str:
    return f"{figures.vgprs} registers, {figures.spills} spilled, {figures.waves} waves"
