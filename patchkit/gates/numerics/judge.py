"""What the results of a bundle prove; nothing is read from disk or run here.

Limits. Upstream allows an NMSE of 5e-4 against sums that the CPU rounds too. Ours are against double
precision, where upstream's own parameters (stride 256, 4 warps) had at most 2.8e-6 over a result and
3.0e-5 in a row (NVIDIA H200, nvcc 13.0, build 6900, 1092 cases, 2026-11-21); the limits are ten times
that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.numerics.evidence import (
    Counts,
    CudaSides,
    JobEnd,
    Limits,
    NumericsEvidence,
    PlantedRow,
    PointRow,
    TableRow,
    Timing,
)
from patchkit.gates.numerics.manifest import Job, Manifest
from patchkit.gates.numerics.outputs import (
    Check,
    Launch,
    Output,
    ResultsUnreadable,
    RunResults,
    parse_check,
    parse_ops,
    parse_perf,
)
from patchkit.gates.numerics.sets import STATIC_LIMIT, Point, Program, Table
from patchkit.kernels.wmma import WmmaVariant


@dataclass(slots=True, kw_only=True)
class Figure:
    """What was measured of one point. ``nmse`` and ``row`` are the largest of our cases."""

    own: int = 0
    upstream: int = 0
    failed: int = 0
    nmse: float = 0.0
    row: float = 0.0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Tally:
    """The figures of every point that ran, and how many cases the backend does not support."""

    figures: dict[Point, Figure] = field(default_factory=dict)
    unsupported: int = 0

    def sum(self, name: Literal["own", "upstream", "failed"]) -> int:
        """Cases of all points."""
        return sum(getattr(figure, name) for figure in self.figures.values())


def _illegal_points(manifest: Manifest) -> tuple[str, ...]:
    """The settings of the tables that CUDA cannot run, each with its shared memory."""
    return tuple(
        f"{table.name}, {point}: {point.static_bytes} bytes of static shared memory, CUDA has {STATIC_LIMIT}"
        for table in manifest.tables
        for point in table.points
        if not point.is_legal_here
    )


def _point_row(point: Point, figure: Figure) -> PointRow:
    return PointRow(
        head_size=point.variant.head_size,
        ncols=point.variant.ncols,
        acc=point.variant.acc,
        kq_stride=point.kq_stride,
        nwarps=point.nwarps,
        static_bytes=point.static_bytes,
        own_cases=figure.own,
        upstream_cases=figure.upstream,
        failed=figure.failed,
        nmse_max=figure.nmse,
        row_nmse_max=figure.row,
        failures=tuple(figure.examples),
    )


def _table_row(table: Table, figures: Mapping[Point, Figure]) -> TableRow:
    mine = [figures[point] for point in table.points if point in figures]
    return TableRow(
        name=table.name,
        settings=len(table.points),
        measured=len(mine),
        passed=sum(not figure.failed for figure in mine),
        cases=sum(figure.own + figure.upstream for figure in mine),
        failed=sum(figure.failed for figure in mine),
        nmse_max=max((figure.nmse for figure in mine), default=None),
        not_run=tuple(str(point) for point in table.points if not point.is_legal_here),
    )


def _lines(evidence: NumericsEvidence) -> Iterator[str]:
    """What a person reads below the summary: tables, runs that must fail, both sides on CUDA."""
    for row in evidence.tables:
        yield (
            f"{row.name}: {row.passed} of {row.settings - len(row.not_run)} settings pass, "
            f"{row.cases} cases, {row.failed} failed, {len(row.not_run)} not run here"
        )
    noticed = sum(bool(row.failed) or row.crashed for row in evidence.planted)
    yield f"planted: {noticed} of {len(evidence.planted)} runs with broken rules noticed"
    if evidence.isolation is not None:
        yield from _cuda_lines(evidence.isolation)


def _cuda_lines(sides: CudaSides) -> Iterator[str]:
    ratios = [row.ratio for row in sides.timings.values()]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "not measured"
    unsteady = ", ".join(sides.unsteady_objects)
    again = f", after building again where nvcc made more than one: {unsteady}" if unsteady else ""
    what = "one file on both sides" if sides.programs_equal else "two files"
    yield f"CUDA: {sides.equal_objects} of {sides.units} touched units compile to equal objects{again}"
    yield f"CUDA: upstream's test program is {what}"
    yield (
        f"CUDA: FLASH_ATTN_EXT passes {sides.counts['baseline']} before and {sides.counts['candidate']} after"
    )
    yield f"CUDA: time after to before, medians of {len(ratios)} tests: {spread}"


# Of the time. One program, byte for byte the same on both sides, differed from itself by up to 3.7 % in the
# median of three rounds (NVIDIA H200, 12 tests of 8 to 38 microseconds, 2026-11-21).
NOISE = 0.05
_SIDES = ("baseline", "candidate")
_SHOWN = 6


def _judge_isolation(manifest: Manifest, results: RunResults) -> tuple[CudaSides | None, list[PatchkitError]]:
    """Evidence and problems; neither where the bundle does not compare the sides."""
    if not manifest.touched:
        return None, []
    problems: list[PatchkitError] = []
    equal, differing, missing = _objects(manifest, results)
    if missing:
        problems.append(
            GateError(
                f"{len(missing)} objects of CUDA units are missing",
                code="NUMERICS_UNFINISHED",
                why=", ".join(missing),
            )
        )
    if differing:
        problems.append(
            GateError(
                f"{len(differing)} of {len(manifest.touched)} CUDA units compile to something else",
                code="CUDA_OBJECTS_DIFFER",
                why=", ".join(differing[:_SHOWN]),
                hint="patchkit verify --no-gpu --gate isolation shows the tokens",
            )
        )
    one = results.programs.get("bin/baseline-ops")
    same = one is not None and one == results.programs.get("bin/candidate-ops")
    counts, found = _counts(results)
    problems += found
    timings = _timings(results)
    slower = [name for name, row in timings.items() if row.slower]
    if not timings:
        problems.append(
            GateError("attention on CUDA was not timed on both sides", code="NUMERICS_UNFINISHED")
        )
    if slower and not same:
        problems.append(
            GateError(
                f"{len(slower)} tests are slower on CUDA", code="CUDA_SLOWER", why="; ".join(slower[:_SHOWN])
            )
        )
    return CudaSides(
        units=len(manifest.touched),
        equal_objects=len(equal),
        differing=tuple(differing),
        unsteady_objects={
            name: tuple(sorted(sums)) for name, sums in sorted(results.objects.items()) if len(sums) > 1
        },
        programs_equal=same,
        counts=counts,
        timings=timings,
    ), problems


def _objects(manifest: Manifest, results: RunResults) -> tuple[list[str], list[str], list[str]]:
    equal: list[str] = []
    differing: list[str] = []
    missing: list[str] = []
    for unit in manifest.touched:
        name = f"{unit.rpartition('/')[2]}.o"
        before, after = (results.objects.get(f"{side}/{name}", frozenset()) for side in _SIDES)
        if not before or not after:
            missing.append(unit)
        else:
            (equal if before & after else differing).append(unit)
    return equal, differing, missing


def _counts(results: RunResults) -> tuple[dict[str, str], list[PatchkitError]]:
    told: dict[str, str] = {}
    verdicts: dict[str, list[tuple[str, str]]] = {}
    problems: list[PatchkitError] = []
    for side in _SIDES:
        output = results.outputs.get(f"ops-{side}")
        told[side] = "not run"
        if output is None:
            problems.append(GateError(f"ops-{side} has no result", code="NUMERICS_UNFINISHED"))
            continue
        try:
            run = parse_ops(output.stdout, f"results/ops-{side}.out")
        except ResultsUnreadable as error:
            problems.append(error)
            continue
        told[side] = f"{run.passed} of {run.total}"
        verdicts[side] = [(case.params, case.verdict) for case in run.cases]
        if not run.is_complete or not run.total:
            problems.append(
                GateError(
                    f"ops-{side} did not come to its count",
                    code="NUMERICS_UNFINISHED",
                    why=output.stderr[-400:],
                )
            )
    if len(verdicts) == len(_SIDES) and verdicts["baseline"] != verdicts["candidate"]:
        first = next(
            (f"{a} became {b}" for a, b in zip(*verdicts.values(), strict=False) if a != b),
            "another number of cases",
        )
        problems.append(GateError("upstream's tests differ on CUDA", code="CUDA_COUNTS_DIFFER", why=first))
    return told, problems


def _timings(results: RunResults) -> dict[str, Timing]:
    """Of every test that both sides were timed in."""
    rounds: Mapping[str, dict[str, list[float]]] = {side: defaultdict(list) for side in _SIDES}
    for name, output in results.outputs.items():
        kind, _, rest = name.partition("-")
        side = rest.rpartition("-")[0]
        if kind == "perf" and side in rounds:
            for params, microseconds in parse_perf(output.stdout).items():
                rounds[side][params].append(microseconds)
    timings = {}
    for params, before in rounds["baseline"].items():
        after = rounds["candidate"].get(params)
        if after and all(value > 0 for value in (*before, *after)):
            ratio = statistics.median(after) / statistics.median(before)
            timings[params] = Timing(
                before_us=tuple(before),
                after_us=tuple(after),
                ratio=round(ratio, 4),
                slower=min(after) > max(before) and ratio > 1 + NOISE,
            )
    return timings


NMSE_LIMIT = 2.8e-5
ROW_LIMIT = 3.0e-4
_LANES = 32
_TIMEOUT, _KILLED = 124, 137
_SHOWN_LINES = 6  # of the end of a program's stderr
_LOST = ("CUDA error", "no device", "GPU is lost", "fallen off the bus", "uncorrectable")


def judge_numerics(manifest: Manifest, results: RunResults) -> GateResult:
    """The gate's answer. Every problem of every job is told, and what did run is in the evidence."""
    problems: list[PatchkitError] = []
    tally = _Tally()
    planted: list[PlantedRow] = []
    by_name = {program.name: program for program in manifest.programs}
    for job in manifest.jobs:
        output = results.outputs.get(job.name)
        program = by_name.get(job.program)
        if program is not None and program.planted:
            planted += _planted(job, program, output, problems)
        elif program is not None:
            problems += _measured(job, program, output, tally)
    figures = dict(sorted(tally.figures.items()))
    for table in manifest.tables:
        problems += _complete(table, figures)
    problems += [_wrong(point, figure) for point, figure in figures.items() if figure.failed]
    if not results.is_gpu_there_after:
        problems.append(
            GateError(
                "the GPU did not answer after the run",
                code="NVIDIA_GPU_LOST",
                hint="nvidia-smi; dmesg | grep -i xid",
            )
        )
    isolation, found = _judge_isolation(manifest, results)
    problems += found
    not_run = _illegal_points(manifest)
    gpu = results.gpus[0]
    evidence = NumericsEvidence(
        candidate_tree=manifest.candidate_tree,
        baseline_tree=manifest.baseline_tree,
        build=manifest.build,
        gpu=gpu,
        nvcc=results.nvcc,
        limits=Limits(nmse=NMSE_LIMIT, row_nmse=ROW_LIMIT),
        counts=Counts(
            own=tally.sum("own"),
            upstream=tally.sum("upstream"),
            failed=tally.sum("failed"),
            unsupported=tally.unsupported,
        ),
        points=tuple(_point_row(point, figure) for point, figure in figures.items()),
        tables=tuple(_table_row(table, figures) for table in (*manifest.tables, *manifest.extra)),
        planted=tuple(planted),
        isolation=isolation,
        jobs={
            name: JobEnd(status=each.status, seconds=each.seconds) for name, each in results.outputs.items()
        },
    )
    ran = evidence.counts.own + evidence.counts.upstream
    worst = max((figure.nmse for figure in figures.values()), default=0.0)
    return GateResult(
        gate="numerics",
        verdict="failed" if problems else "passed",
        summary=f"{ran} cases over {len(figures)} settings on {gpu.name}, {evidence.counts.failed} failed, "
        f"NMSE at most {worst:.1e}",
        problems=tuple(problems),
        evidence=evidence,
        not_run=not_run,
        lines=tuple(_lines(evidence)),
    )


def job_problem(job: Job, output: Output | None) -> PatchkitError | None:
    """Why a job proves nothing; None when it came to its end (status 1 is a failed comparison)."""
    if output is None:
        return GateError(
            f"job {job.name} has no result",
            code="NUMERICS_UNFINISHED",
            why="run.sh ended before it",
            hint="sh run.sh run in the bundle",
        )
    said = "\n".join((output.stderr + output.stdout[-2000:]).splitlines()[-_SHOWN_LINES:])
    where = Location(path=f"results/{job.name}.err")
    if output.status == _TIMEOUT or (output.status == _KILLED and output.seconds >= job.limit_s):
        return GateError(
            f"{job.name} did not end within {job.limit_s} s",
            code="NUMERICS_TIMEOUT",
            where=where,
            why=said or None,
            hint=_again(job),
        )
    lost = next((line for line in (output.stderr + output.stdout).splitlines() if _is_lost(line)), None)
    if lost is not None:
        return GateError(
            f"{job.name} ended with an error of CUDA",
            code="NVIDIA_GPU_LOST",
            where=where,
            why=lost.strip(),
            hint=_again(job),
        )
    if output.status not in {0, 1}:
        how = "was killed, by hand or for memory" if output.status == _KILLED else "ended"
        return GateError(
            f"{job.name} {how}: status {output.status}",
            code="NUMERICS_CRASH",
            where=where,
            why=said or None,
            hint=_again(job),
        )
    return None


def _is_lost(line: str) -> bool:
    return not line.startswith("PATCHKIT-LAUNCH") and any(word in line for word in _LOST)


def _again(job: Job) -> str:
    return f"run it by hand in the bundle: {' '.join(job.argv)}"


def _measured(job: Job, program: Program, output: Output | None, tally: _Tally) -> Iterator[PatchkitError]:
    problem = job_problem(job, output)
    if problem is not None:
        yield problem
    if output is None:
        return
    points = {point.variant: point for point in program.points}
    try:
        yield from (_own if job.kind == "check" else _upstream)(job, points, output, tally)
    except ResultsUnreadable as error:
        yield error


_Points = Mapping[WmmaVariant, Point]


def _own(job: Job, points: _Points, output: Output, tally: _Tally) -> Iterator[PatchkitError]:
    run = parse_check(output.stdout, f"results/{job.name}.out")
    for check in run.checks:
        if not check.supported:
            tally.unsupported += 1
            continue
        point, why = _point_of(check.launches, points)
        if point is None:
            yield _other(job, check.case, why)
            continue
        figure = tally.figures.setdefault(point, Figure())
        figure.own += 1
        if check.finite:
            figure.nmse = max(figure.nmse, check.nmse or 0.0)
            figure.row = max(figure.row, check.row or 0.0)
        if _fails(check):
            figure.failed += 1
            figure.examples.append(f"{job.name} {check.case}")
    if not run.is_complete or len(run.checks) != job.cases:
        yield _unfinished(job, f"{len(run.checks)} of {job.cases} cases")


def _upstream(job: Job, points: _Points, output: Output, tally: _Tally) -> Iterator[PatchkitError]:
    run = parse_ops(output.stdout, f"results/{job.name}.out")
    for case in run.cases:
        if case.verdict == "not supported":
            continue
        variants = {launch.variant for launch in case.launches}
        if variants and not variants.intersection(points):
            continue  # a variant that this program has with upstream's setting
        point, why = _point_of(case.launches, points)
        if point is None:
            yield _other(job, case.params, why)
            continue
        figure = tally.figures.setdefault(point, Figure())
        figure.upstream += 1
        if case.verdict == "FAIL":
            figure.failed += 1
            figure.examples.append(f"{job.name} {case.params}")
    if not run.is_complete:
        yield _unfinished(job, f"{len(run.cases)} cases, and its own count is {run.passed} of {run.total}")


def _planted(
    job: Job, program: Program, output: Output | None, problems: list[PatchkitError]
) -> Iterator[PlantedRow]:
    """A planted point is noticed when its cases fail, or when it takes the program down."""
    problem = job_problem(job, output)
    if output is None or (problem is not None and problem.code == "NUMERICS_TIMEOUT"):
        problems.append(problem or _unfinished(job, "nothing"))
        return
    failed, ran = 0, 0
    try:
        if job.kind == "check":
            checks = parse_check(output.stdout, f"results/{job.name}.out").checks
            ran, failed = len(checks), sum(_fails(check) for check in checks)
        else:
            cases = [case for case in parse_ops(output.stdout).cases if case.verdict != "not supported"]
            ran, failed = len(cases), sum(case.verdict == "FAIL" for case in cases)
    except ResultsUnreadable as error:
        problems.append(error)
        return
    crashed = problem is not None
    if failed == 0 and not crashed:
        problems.append(
            GateError(
                f"{job.name}: all {ran} cases pass although the settings break the kernel's rules",
                code="NUMERICS_BLIND",
                why=f"planted: {', '.join(str(point) for point in program.points)}",
                hint=_again(job),
            )
        )
    yield PlantedRow(job=job.name, cases=ran, failed=failed, crashed=crashed)


def _fails(check: Check) -> bool:
    if not check.supported:
        return False
    if not check.finite or check.nmse is None or check.row is None:
        return True
    return check.nmse > NMSE_LIMIT or check.row > ROW_LIMIT


def _point_of(launches: Sequence[Launch], points: _Points) -> tuple[Point | None, str]:
    kernels = [launch for launch in launches if launch.variant is not None]
    if len(kernels) != 1 or len(launches) != 1:
        return None, f"{len(launches)} attention kernels were launched, {len(kernels)} of them WMMA"
    launch = kernels[0]
    point = points.get(launch.variant) if launch.variant is not None else None
    if point is None:
        return None, f"it launched {launch.variant}"
    threads = point.nwarps * _LANES
    wanted = ((_LANES, point.nwarps, 1), threads, point.static_bytes, 0)
    seen = (launch.block, launch.threads, launch.static_bytes, launch.dynamic_bytes)
    if seen != wanted:
        return None, f"block, launch bound, static and dynamic shared memory are {seen}, for {point} {wanted}"
    return point, ""


def _complete(table: Table, figures: Mapping[Point, Figure]) -> Iterator[PatchkitError]:
    missing = [
        point for point in table.points if point.is_legal_here and not figures.get(point, Figure()).own
    ]
    if missing:
        yield GateError(
            f"{table.name}: {len(missing)} of {len(table.points)} settings were not measured",
            code="NUMERICS_NOT_MEASURED",
            why="; ".join(map(str, missing[:_SHOWN_LINES])),
            hint="look at the jobs that ended early",
        )


def _wrong(point: Point, figure: Figure) -> GateError:
    return GateError(
        f"{point}: {figure.failed} of {figure.own + figure.upstream} cases are wrong",
        code="NUMERICS_WRONG",
        why=f"NMSE up to {figure.nmse:.1e}, in a row {figure.row:.1e}; limits {NMSE_LIMIT:.1e} and "
        f"{ROW_LIMIT:.1e}; first: {figure.examples[0]}",
        hint="take the row out of the profile, or find what the kernel does with it",
    )


def _other(job: Job, case: str, why: str) -> GateError:
    return GateError(
        f"{job.name}: case {case} did not run what was to be measured",
        code="NUMERICS_OTHER_KERNEL",
        why=why,
        hint=_again(job),
    )


def _unfinished(job: Job, what: str) -> GateError:
    return GateError(
        f"{job.name} did not come to its end: {what}",
        code="NUMERICS_UNFINISHED",
        where=Location(path=f"results/{job.name}.out"),
        hint=_again(job),
    )
