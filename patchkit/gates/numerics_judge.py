"""What the results of a bundle prove: pure, from the manifest and what came back.

Vocabulary: a *figure* is what was measured of one point: how many cases of ours and of upstream's ran
with it, how many failed, and the largest errors. A case counts for a point only when the launch that was
seen has the point's variant, warps per block (of the launch and of the kernel's launch bound) and shared
memory.

Limits. Upstream allows an NMSE of 5e-4 against sums that the CPU rounds too. Ours are against double
precision, where upstream's own parameters (stride 256, 4 warps) had at most 2.8e-6 over a result and
3.0e-5 in a row (NVIDIA H200, nvcc 13.0, build 6900, 1092 cases, 2026-11-21); the limits are ten times
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchkit.errors import GateError, Location, PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.numerics_errors import (
    JobTimedOut,
)
from patchkit.gates.numerics_figures import (
    Figure,
    illegal_points,
    planted_line,
    point_row,
    table_lines,
    table_row,
)
from patchkit.gates.numerics_isolation import judge_isolation
from patchkit.numerics.manifest import Job, Manifest
from patchkit.numerics.outputs import Check, Launch, OutputGarbled, parse_check, parse_ops
from patchkit.numerics.results import Output, RunResults
from patchkit.numerics.sets import Point, Program, Table
from patchkit.occupancy.wmma import WmmaVariant

NMSE_LIMIT = 2.8e-5
ROW_LIMIT = 3.0e-4
_LANES = 32
_TIMEOUT, _KILLED = 124, 137
_SHOWN_LINES = 6  # of the end of a program's stderr
_LOST = ("CUDA error", "no device", "GPU is lost", "fallen off the bus", "uncorrectable")


def judge_numerics(manifest: Manifest, results: RunResults) -> GateResult:
    """The gate's answer. Every problem of every job is told, and what did run is in the evidence."""
    problems: list[PatchkitError] = []
    figures: dict[Point, Figure] = {}
    counts = {"own": 0, "upstream": 0, "failed": 0, "unsupported": 0}
    planted: list[dict[str, object]] = []
    by_name = {program.name: program for program in manifest.programs}
    for job in manifest.jobs:
        output = results.outputs.get(job.name)
        program = by_name.get(job.program)
        if program is not None and program.is_planted:
            planted += _planted(job, program, output, problems)
        elif program is not None:
            problems += _measured(job, program, output, figures, counts)
    for table in manifest.tables:
        problems += _complete(table, figures)
    problems += [_wrong(point, figure) for point, figure in sorted(figures.items()) if figure.failed]
    if not results.is_gpu_there_after:
        problems.append(
            GateError(
                "the GPU did not answer after the run",
                code="NVIDIA_GPU_LOST",
                hint="nvidia-smi; dmesg | grep -i xid",
            )
        )
    isolation, told, found = judge_isolation(manifest, results)
    problems += found
    not_run = illegal_points(manifest)
    gpu = results.gpus[0]
    evidence: dict[str, object] = {
        "candidate_tree": manifest.candidate_tree,
        "baseline_tree": manifest.baseline_tree,
        "build": manifest.build,
        "gpu": {"name": gpu[0], "driver": gpu[1], "compute_capability": gpu[2]},
        "nvcc": results.nvcc,
        "limits": {"nmse": NMSE_LIMIT, "row_nmse": ROW_LIMIT},
        "counts": counts,
        "points": [point_row(point, figure) for point, figure in sorted(figures.items())],
        "tables": [table_row(table, figures) for table in (*manifest.tables, *manifest.extra)],
        "planted": planted,
        "isolation": isolation,
        "jobs": {
            name: {"status": each.status, "seconds": each.seconds} for name, each in results.outputs.items()
        },
    }
    ran = counts["own"] + counts["upstream"]
    worst = max((figure.nmse for figure in figures.values()), default=0.0)
    return GateResult(
        gate="numerics",
        verdict="failed" if problems else "passed",
        summary=f"{ran} cases over {len(figures)} settings on {gpu[0]}, {counts['failed']} failed, "
        f"NMSE at most {worst:.1e}",
        problems=tuple(problems),
        evidence=evidence,
        not_run=not_run,
        lines=(*table_lines(manifest, figures), *planted_line(planted), *told),
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
        return JobTimedOut(
            f"{job.name} did not end within {job.limit_s} s", where=where, why=said or None, hint=_again(job)
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


def _measured(
    job: Job, program: Program, output: Output | None, figures: dict[Point, Figure], counts: dict[str, int]
) -> Iterator[PatchkitError]:
    problem = job_problem(job, output)
    if problem is not None:
        yield problem
    if output is None:
        return
    try:
        if job.kind == "check":
            yield from _own(job, program, output, figures, counts)
        else:
            yield from _upstream(job, program, output, figures, counts)
    except OutputGarbled as error:
        yield error


def _own(
    job: Job, program: Program, output: Output, figures: dict[Point, Figure], counts: dict[str, int]
) -> Iterator[PatchkitError]:
    run = parse_check(output.stdout, f"results/{job.name}.out")
    points = {point.variant: point for point in program.points}
    for check in run.checks:
        if not check.is_supported:
            counts["unsupported"] += 1
            continue
        point, why = _point_of(check.launches, points)
        if point is None:
            yield _other(job, check.case, why)
            continue
        figure = figures.setdefault(point, Figure())
        figure.own += 1
        counts["own"] += 1
        figure.nmse = max(figure.nmse, check.nmse or 0.0)
        figure.row = max(figure.row, check.row or 0.0)
        if _fails(check):
            figure.failed += 1
            counts["failed"] += 1
            figure.examples.append(f"{job.name} {check.case}")
    if not run.is_complete or len(run.checks) != job.cases:
        yield _unfinished(job, f"{len(run.checks)} of {job.cases} cases")


def _upstream(
    job: Job, program: Program, output: Output, figures: dict[Point, Figure], counts: dict[str, int]
) -> Iterator[PatchkitError]:
    run = parse_ops(output.stdout, f"results/{job.name}.out")
    points = {point.variant: point for point in program.points}
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
        figure = figures.setdefault(point, Figure())
        figure.upstream += 1
        counts["upstream"] += 1
        if case.verdict == "FAIL":
            figure.failed += 1
            counts["failed"] += 1
            figure.examples.append(f"{job.name} {case.params}")
    if not run.is_complete:
        yield _unfinished(job, f"{len(run.cases)} cases, and its own count is {run.passed} of {run.total}")


def _planted(
    job: Job, program: Program, output: Output | None, problems: list[PatchkitError]
) -> Iterator[dict[str, object]]:
    """A planted point is noticed when its cases fail, or when it takes the program down."""
    problem = job_problem(job, output)
    if output is None or isinstance(problem, JobTimedOut):
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
    except OutputGarbled as error:
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
    yield {"job": job.name, "cases": ran, "failed": failed, "crashed": crashed}


def _fails(check: Check) -> bool:
    if not check.is_supported:
        return False
    if check.nmse is None or check.row is None:
        return True
    return check.nmse > NMSE_LIMIT or check.row > ROW_LIMIT


def _point_of(launches: Sequence[Launch], points: Mapping[WmmaVariant, Point]) -> tuple[Point | None, str]:
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
