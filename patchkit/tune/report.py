"""What a run of the tuner found: a JSON file in the cache that later runs read, and rows for the profile."""

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
    """What of the shipped record was made anew: ``units`` with the headers ``here``, ``differing`` of them.

    Of the headers ``absent`` the figures count as they were recorded, on the day ``made`` by ``compiler``.
    """

    made: str
    compiler: str
    here: tuple[str, ...]
    absent: tuple[str, ...]
    units: int
    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHeaders:
    """The table held against this machine's own rocWMMA: the variants that it makes worse, and why."""

    name: str
    worse: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """``current`` are the settings that the profile has now; ``complete``: every variant was looked at.

    ``untimed`` says why the order is not by modelled time, of those variants that have none. ``played`` is
    which of the headers the timed code was compiled with.

    ``record`` is what the table rests on, as it would be shipped: with every outcome by unit and headers. Its
    ``made`` is empty until it is.
    """

    json_keys: ClassVar = (
        "arch=record.arch kernel=record.kernel parameters build=record.build compiler=record.compiler "
        "headers llvm_mca=mca like=record.like complete reproduces_profile=reproduces record=basis "
        "own_headers=own order not_timed=untimed left_out=record.left_out profile=current "
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
        """The names of the headers, in the order of every figure."""
        return tuple(each.name for each in self.record.headers)

    @property
    def is_timed(self) -> bool:
        """Whether the order of some variants is by modelled time."""
        return any(verdict.upstream.modelled is not None for verdict in self.verdicts)

    @property
    def reproduces(self) -> bool:
        """Whether the profile has exactly these settings."""
        found = {verdict.variant: verdict.best.candidate.setting for verdict in self.verdicts}
        return all(self.current.get(variant) == setting for variant, setting in found.items())

    def spills(self, index: int) -> tuple[int, int]:
        """Spilled registers over all variants with the headers of that index: upstream's, and ours."""
        return (
            sum(verdict.upstream.figures[index].spills for verdict in self.verdicts),
            sum(verdict.best.figures[index].spills for verdict in self.verdicts),
        )

    @property
    def order(self) -> str:
        """By what candidates are ordered."""
        return "modelled time" if self.is_timed else "judgement"

    @property
    def spilled(self) -> list[dict[str, object]]:
        """Spilled registers with all headers: upstream's, and ours."""
        found = [(name, *self.spills(index)) for index, name in enumerate(self.headers)]
        return [{"headers": name, "upstream": theirs, "ours": ours} for name, theirs, ours in found]


def report_path(cache_root: Path, arch: str, kernel: str, build: int) -> Path:
    """Where the report of a run lies."""
    return cache_root / "tune" / f"{arch}-{kernel}-{build_name(build)}.json"


def write_report(cache_root: Path, report: TuneReport) -> Path:
    """Keep a report; it replaces that of an earlier run of its kind in one step. Raises CacheError.

    A run that compiled a short list only never replaces the report of the whole space.
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
    """The kept report of another GPU, as plain data.

    Raises:
        TUNE_REPORT_MISSING: there is none, or it does not have every variant, where it must be ``whole``.
    """
    path = report_path(cache_root, arch, kernel, build)
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _missing(arch, kernel, path, str(error)) from error
    if not isinstance(found, dict) or (whole and not found.get("complete")):
        raise _missing(arch, kernel, path, "it does not have every variant")
    return found


def _missing(arch: str, kernel: str, path: Path, why: str) -> UsageError:
    return UsageError(
        f"there is no report of {kernel} for {arch} to start from",
        code="TUNE_REPORT_MISSING",
        where=Location(path=str(path)),
        why=why,
        hint=f"patchkit tune --arch {arch} --kernel {kernel}",
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
    """The ``most`` settings of each variant that would be the best if the relative's figures held here.

    Its registers and LDS are taken, and waves are counted anew with this GPU's limits.
    """
    chosen: dict[str, tuple[Setting, ...]] = {}
    for entry in report["variants"]:
        variant = entry["variant"]
        if variant not in settings:
            continue
        compiled: dict[str, tuple[Outcome, ...]] = {}
        for each in entry["candidates"]:
            unit = family.unit(Candidate(variant, tuple(each["setting"])))
            compiled[unit] = tuple(_moved(OUTCOME.validate_python(one), limits) for one in each["figures"])
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


def _moved(outcome: Outcome, limits: HardwareLimits) -> Outcome:
    if not isinstance(outcome, Figures):
        return outcome
    return replace(
        outcome,
        waves=reported_waves(outcome.vgprs, outcome.lds_bytes, outcome.threads, limits),
        resident=resident_waves(outcome.vgprs, outcome.lds_bytes, outcome.threads, limits),
    )


def profile_rows(report: TuneReport, today: date, measured: Mapping[str, str]) -> list[Row]:
    """The winning table as rows of the profile, sorted, each with where its figures come from.

    ``measured`` is what the profile says of hardware for a variant whose setting was kept for it.
    """
    return [
        _line(report, verdict, today, measured)
        for verdict in sorted(report.verdicts, key=lambda each: variant_of(each.variant))
    ]


def timed_rows(report: TuneReport, profile: ArchProfile, today: date) -> list[Row]:
    """Rows of mul_mat_q: those that hardware chose as they are, and for other types what the model prefers.

    A row holds from a number of columns on, so that neighbours with the same block are one, and those of
    fewer columns come behind those of more.
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
            groups.pop()  # below the last row upstream's own stand
        rows += [_timed_row(kind, group, report, today) for group in groups]
    return rows


def _by_time(verdict: Verdict) -> Judged:
    """What the model prefers: upstream's setting where it has no say."""
    return verdict.best if verdict.best.modelled is not None else verdict.upstream


def timed_tile_rows(report: TuneReport, profile: ArchProfile, today: date) -> list[Row]:
    """Rows of flash_attn_tile: those that hardware chose as they are, and others that the model prefers."""
    kept = [row for row in profile.tuning.tile if not row.measured_on.startswith(MODELLED_ONLY)]
    known = {(row.head_size_k, row.ncols) for row in kept}
    rows = [row_of(row) for row in kept]
    for verdict in report.verdicts:
        head_size, columns = numbers_of(verdict.variant)
        if _by_time(verdict) is not verdict.upstream and (head_size, columns) not in known:
            row: Row = {"head_size_k": head_size, "head_size_v": head_size, "ncols": columns}
            row |= dict(zip(report.parameters, verdict.best.candidate.setting, strict=True))
            rows.append(row | _told(report, [verdict], today))
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
        **_told(report, group, today),
    }


def _told(report: TuneReport, group: Sequence[Verdict], today: date) -> Row:
    """Where a row of the model's comes from, and what is known of the error."""
    timed = [each.best.modelled for each in group if each.best.modelled is not None]
    run = f"patchkit tune of {today.isoformat()}, {report.record.compiler}"
    if not timed:
        return {
            "source": f"upstream's own setting ({run}): nothing that the model plays runs it",
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
        f"{MODELLED_ONLY}{report.record.arch}{code}, no hardware; of {of} "
        f"of such kernels ({error}) half were met within {modelled.half:.1%}"
    )


def _line(report: TuneReport, verdict: Verdict, today: date, measured: Mapping[str, str]) -> Row:
    record, variant = report.record, variant_of(verdict.variant)
    stride, nwarps = verdict.best.candidate.setting[:2]
    told = [f"patchkit tune of {today.isoformat()}, {record.compiler}"]
    for name, before, after in zip(
        report.headers, verdict.upstream.figures, verdict.best.figures, strict=True
    ):
        change = "" if verdict.best is verdict.upstream else f" -> {_figures(after)}"
        told.append(f"{name}: {_figures(before)}{change}")
    if verdict.kept is not None:
        told.append(verdict.kept)
    if not verdict.measured:
        told.append(f"ahead by {verdict.margin}" if ":" in verdict.margin else verdict.margin)
    if verdict.reachable < FEWEST_WAVES:
        which = "no legal setting" if record.like is None else "no setting compiled"
        told.append(f"{which} reaches more than {verdict.reachable} waves")
    if variant.acc == "f16":
        told.append(NO_MODEL_RUNS_IT)
    where = f"{COMPILER_ONLY}{record.arch}, no hardware"
    if record.like is not None:
        own = (
            "its own figures with fewer headers" if record.like == record.arch else f"those of {record.like}"
        )
        where += f"; compiled were the legal settings that are the first by {own}"
    if verdict.best.modelled is not None:
        where = _modelled_on(report, verdict.best.modelled, f" with {report.headers[report.played]}")
        told.append(f"modelled as {1 / verdict.best.modelled.ratio:.2f} times as fast as upstream's")
    if verdict.best is verdict.upstream:
        where += "; upstream's parameters kept"
    return {
        "head_size": variant.head_size,
        "ncols": variant.ncols,
        "acc": variant.acc,
        "kq_stride": stride,
        "nwarps": nwarps,
        "min_waves": 1,
        "source": "; ".join(told),
        "measured_on": measured[verdict.variant] if verdict.measured else where,
    }


def _figures(figures: Figures) -> str:
    return f"{figures.vgprs} registers, {figures.spills} spilled, {figures.waves} waves"
