"""What a run of the tuner found: a JSON file in the cache that later runs read, and rows for the profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import write_whole
from patchkit.kernels.occupancy import HardwareLimits, reported_waves, resident_waves
from patchkit.tune.cost import FEWEST_WAVES, Judged
from patchkit.tune.family import Candidate, Family, Row, Setting
from patchkit.tune.outcome import OUTCOME, Figures, Outcome
from patchkit.tune.record import Record
from patchkit.tune.search import Verdict, choose
from patchkit.tune.wmma import COMPILER_ONLY, NO_MODEL_RUNS_IT, variant_of


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

    ``record`` is what the table rests on, as it would be shipped: with every outcome by unit and headers. Its
    ``made`` is empty until it is.
    """

    record: Record
    parameters: tuple[str, ...]
    mca: bool
    complete: bool
    verdicts: tuple[Verdict, ...]
    current: Mapping[str, Setting]
    basis: Basis | None
    own: OwnHeaders | None

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers, in the order of every figure."""
        return tuple(each.name for each in self.record.headers)

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

    def as_json(self) -> dict[str, object]:
        """As ``--json`` shows it and the cache keeps it, with every candidate."""
        return {
            "arch": self.record.arch,
            "kernel": self.record.kernel,
            "parameters": list(self.parameters),
            "build": self.record.build,
            "compiler": self.record.compiler,
            "headers": list(self.headers),
            "llvm_mca": self.mca,
            "like": self.record.like,
            "complete": self.complete,
            "reproduces_profile": self.reproduces,
            "record": asdict(self.basis) if self.basis is not None else None,
            "own_headers": asdict(self.own) if self.own is not None else None,
            "left_out": [asdict(each) for each in self.record.left_out],
            "profile": {variant: list(setting) for variant, setting in self.current.items()},
            "spills": [
                {"headers": name, "upstream": self.spills(index)[0], "ours": self.spills(index)[1]}
                for index, name in enumerate(self.headers)
            ],
            "variants": [_verdict_json(verdict) for verdict in self.verdicts],
        }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    return {
        "variant": verdict.variant,
        "upstream": list(verdict.upstream.candidate.setting),
        "best": list(verdict.best.candidate.setting),
        "margin": verdict.margin,
        "kept": verdict.kept,
        "measured": verdict.measured,
        "most_waves_reachable": verdict.reachable,
        "front": [list(each.candidate.setting) for each in verdict.front],
        "order": [list(each.candidate.setting) for each in verdict.order],
        "candidates": [_judged_json(each) for each in (*verdict.order, *verdict.others)],
        "failures": [
            {"setting": list(candidate.setting), **asdict(failure)} for candidate, failure in verdict.failures
        ],
    }


def _judged_json(judged: Judged) -> dict[str, object]:
    return {
        "setting": list(judged.candidate.setting),
        "refused": judged.refused,
        "figures": [asdict(figures) for figures in judged.figures],
        "estimates": [{**asdict(each), "cost": each.cost} for each in judged.estimates],
    }


def report_path(cache_root: Path, arch: str, kernel: str, build: int) -> Path:
    """Where the report of a run lies."""
    return cache_root / "tune" / f"{arch}-{kernel}-b{build}.json"


def write_report(cache_root: Path, report: TuneReport) -> Path:
    """Keep a report; it replaces that of an earlier run of its kind in one step. Raises CacheError.

    A run that compiled a short list only never replaces the report of the whole space.
    """
    record = report.record
    name = record.kernel if record.like is None else f"{record.kernel}-like-{record.like}"
    name += "-bounds" if "min_waves" in report.parameters else ""
    path = report_path(cache_root, record.arch, name, record.build)
    write_whole(path, json.dumps(report.as_json(), indent=1) + "\n", "writing the report")
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
