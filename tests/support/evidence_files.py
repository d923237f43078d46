"""The files of evidence that ``verify`` writes of a run with given results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from patchkit.base.plain import fields_of
from patchkit.prove.gates.base import GateResult
from patchkit.prove.verify.run import Report


def files_of(results: list[GateResult], **changes: object) -> dict[str, bytes]:
    """By name; ``changes`` are other values in ``report.json``. A gate with nothing to keep has no file."""
    report = Report(
        branch="candidate/gfx1151/b6900",
        archs=("gfx1151",),
        base="b" * 40,
        tip="c" * 40,
        tree="d" * 40,
        folder=Path("evidence"),
        proven_with=("clang 22.1.8",),
        gates=tuple(replace(result, seconds=1.5) for result in results),
    )
    kept = [result for result in results if result.evidence or result.problems]
    return {
        "report.json": json.dumps(fields_of(report) | changes).encode(),
        **{f"{result.gate}.json": json.dumps(fields_of(result)).encode() for result in kept},
    }
