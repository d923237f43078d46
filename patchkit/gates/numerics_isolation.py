"""CUDA isolation by running: the candidate's CUDA build is the baseline's, object by object and test by test.

Vocabulary: a *round* is one timing of both sides, in turn. A test is *slower* when the candidate's best
round is below the baseline's worst one and the medians are further apart than :data:`NOISE`. Where the
two programs are one file, byte for byte, every difference in time is noise, and is shown as what noise is
on that machine.

nvcc does not always make the same object of the same source. A unit is *equal* when one of its builds is,
byte for byte, one of the other side's; those with more than one object of a side are named in the evidence.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping

from patchkit.errors import GateError, PatchkitError
from patchkit.numerics.manifest import Manifest
from patchkit.numerics.outputs import OutputGarbled, parse_ops, parse_perf
from patchkit.numerics.results import RunResults

# Of the time. One program, byte for byte the same on both sides, differed from itself by up to 3.7 % in the
# median of three rounds (NVIDIA H200, 12 tests of 8 to 38 microseconds, 2026-11-21).
NOISE = 0.05
_SIDES = ("baseline", "candidate")
_SHOWN = 6


def judge_isolation(
    manifest: Manifest, results: RunResults
) -> tuple[dict[str, object] | None, tuple[str, ...], list[PatchkitError]]:
    """Evidence, lines for a person, and problems; nothing of all that where the bundle does not compare."""
    if not manifest.touched:
        return None, (), []
    problems: list[PatchkitError] = []
    equal, differing, missing = _objects(manifest, results)
    unsteady = sorted(name for name, sums in results.objects.items() if len(sums) > 1)
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
    slower = [name for name, row in timings.items() if row["slower"]]
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
    evidence: dict[str, object] = {
        "units": len(manifest.touched),
        "equal_objects": len(equal),
        "differing": differing,
        "unsteady_objects": {name: sorted(results.objects[name]) for name in unsteady},
        "programs_equal": same,
        "counts": counts,
        "timings": timings,
    }
    ratios = [float(str(row["ratio"])) for row in timings.values()]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "not measured"
    again = f", after building again where nvcc made more than one: {', '.join(unsteady)}" if unsteady else ""
    what = "one file on both sides" if same else "two files"
    told = (
        f"CUDA: {len(equal)} of {len(manifest.touched)} touched units compile to equal objects{again}",
        f"CUDA: upstream's test program is {what}",
        f"CUDA: FLASH_ATTN_EXT passes {counts['baseline']} before and {counts['candidate']} after",
        f"CUDA: time after to before, medians of {len(ratios)} tests: {spread}",
    )
    return evidence, told, problems


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
        except OutputGarbled as error:
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


def _timings(results: RunResults) -> dict[str, dict[str, object]]:
    """Per test: median microseconds of both sides, their ratio, and whether the candidate is slower."""
    rounds: Mapping[str, dict[str, list[float]]] = {side: defaultdict(list) for side in _SIDES}
    for name, output in results.outputs.items():
        kind, _, rest = name.partition("-")
        side = rest.rpartition("-")[0]
        if kind == "perf" and side in rounds:
            for timing in parse_perf(output.stdout):
                rounds[side][timing.params].append(timing.microseconds)
    return dict(_rows(rounds))


def _rows(rounds: Mapping[str, Mapping[str, list[float]]]) -> Iterator[tuple[str, dict[str, object]]]:
    for params, before in rounds["baseline"].items():
        after = rounds["candidate"].get(params)
        if not after or not all(value > 0 for value in (*before, *after)):
            continue
        medians = statistics.median(before), statistics.median(after)
        ratio = medians[1] / medians[0]
        yield (
            params,
            {
                "before_us": before,
                "after_us": after,
                "ratio": round(ratio, 4),
                "slower": min(after) > max(before) and ratio > 1 + NOISE,
            },
        )
