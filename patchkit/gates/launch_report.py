"""What the launch gate keeps as evidence: plain data, with the logs by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from patchkit.gates.launch_lines import samples, transitions
from patchkit.gates.launch_rules import Broken, CasePair, attention
from patchkit.gates.launch_runs import Comparison, Sides, last_step
from patchkit.gates.subject import Subject
from patchkit.recorder.library import SELECTION_UNIT
from patchkit.recorder.runs import CaseRecord

_KEPT = 20  # examples of what upstream itself breaks


def build_evidence(subject: Subject, sides: Sides) -> dict[str, object]:
    """What was built, how, and with what."""
    toolchain = subject.toolchain
    rocwmma = toolchain.rocwmma if toolchain is not None else None
    return {
        "baseline": sides.before.as_json(),
        "candidate": sides.after.as_json(),
        "traced_unit": SELECTION_UNIT,
        "definitions": "upstream's defaults with GGML_HIP_ROCWMMA_FATTN and GGML_BACKEND_DL",
        "clang": toolchain.clang_version if toolchain is not None else None,
        "hip_headers": toolchain.hip_version if toolchain is not None else None,
        "rocwmma": f"{rocwmma.kind} {rocwmma.version}" if rocwmma is not None else "stand-in",
        "figures": {
            arch: {"before": len(before), "after": len(after)}
            for arch, (before, after) in sides.figures.items()
        },
    }


def arch_evidence(compared: Comparison) -> dict[str, object]:
    """One GPU: what was recorded, and where the logs are."""
    return {
        "supported": [sum(row.is_supported for row in rows) for rows in compared.support],
        "operations": len(compared.support[0]),
        "cases": len(compared.asked),
        "cases_identical": compared.cases_identical,
        "logs": [str(run.log) for run in compared.cases],
        "benches": [
            {
                "run": str(run),
                "identical": before.digest == after.digest,
                "logs": [str(before.log), str(after.log)],
            }
            for run, before, after in compared.benches
        ],
    }


def guarded_evidence(
    compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]
) -> dict[str, object]:
    """A GPU that a patch is for, besides: which kernels before and after, with names and geometry in full."""
    examples: dict[str, list[str]] = {}
    for broken in own:
        examples.setdefault(broken.message, []).append(str(broken))
    return {
        "transitions": [
            {"phase": phase, "before": before, "after": after, "cases": count}
            for (phase, before, after), count in sorted(transitions(pairs).items())
        ],
        "kernels": {
            "before": _kernels([pair.before for pair in pairs]),
            "after": _kernels([pair.after for pair in pairs]),
        },
        "samples": [
            {
                "case": str(pair.case),
                "before": [launch.as_json() for launch in attention(pair.before)],
                "after": [launch.as_json() for launch in attention(pair.after)],
            }
            for pair in samples(pairs)
        ],
        "models": [
            {
                "run": str(run),
                "before": [launch.as_json() for launch in last_step(before)],
                "after": [launch.as_json() for launch in last_step(after)],
            }
            for run, before, after in compared.benches
        ],
        "upstream": {
            message: {"cases": len(each), "first": each[:_KEPT]} for message, each in examples.items()
        },
    }


def _kernels(records: Sequence[CaseRecord]) -> dict[str, int]:
    counted = Counter(str(launch.kernel.name) for record in records for launch in attention(record))
    return dict(sorted(counted.items()))
