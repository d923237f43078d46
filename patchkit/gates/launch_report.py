"""What the launch gate shows: rows for a person, plain data for a program.

Vocabulary: a *transition* is a kind of attention kernel before and after, with the number of cases that
made it; an *exhibit* is one chosen case with its geometry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from patchkit.gates.base import Subject
from patchkit.gates.launch_rules import CasePair, attention
from patchkit.gates.launch_runs import Comparison, Sides, last_step
from patchkit.recorder.cases import Case
from patchkit.recorder.library import SELECTION_UNIT
from patchkit.recorder.log import Launch
from patchkit.recorder.session import CaseRecord

__all__ = ["arch_evidence", "arch_lines", "build_evidence"]

_EXHIBIT_TOKENS = (1, 512)
_EXHIBIT_KV = 65536
_EXHIBIT_GQA = 4


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


def arch_evidence(compared: Comparison, pairs: Sequence[CasePair] | None) -> dict[str, object]:
    """One GPU as plain data, in full with ``pairs``; the logs stay in the cache and are named."""
    evidence: dict[str, object] = {
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
    if pairs is not None:
        evidence["transitions"] = [
            {"phase": phase, "before": before, "after": after, "cases": count}
            for (phase, before, after), count in _transitions(pairs).items()
        ]
        evidence["kernels"] = {
            "before": _kernels([pair.before for pair in pairs]),
            "after": _kernels([pair.after for pair in pairs]),
        }
        evidence["exhibits"] = [
            {
                "case": str(pair.case),
                "before": [launch.as_json() for launch in attention(pair.before)],
                "after": [launch.as_json() for launch in attention(pair.after)],
            }
            for pair in _exhibits(pairs)
        ]
    return evidence


def arch_lines(compared: Comparison, pairs: Sequence[CasePair] | None) -> list[str]:
    """The rows a person reads: one line for an unguarded GPU, tables for a guarded one."""
    arch = compared.device.arch
    supported = [sum(row.is_supported for row in rows) for rows in compared.support]
    runs = len(compared.benches)
    if pairs is None:
        same = sum(before.digest == after.digest for _, before, after in compared.benches)
        what = "identical" if compared.cases_identical else "DIFFERENT"
        return [f"{arch}: {len(compared.asked)} cases {what}, {same} of {runs} model runs identical"]
    counts = f"{len(pairs)} cases and {runs} model runs recorded"
    lines = [f"{arch}: supported attention cases {supported[0]} before, {supported[1]} after; {counts}"]
    for (phase, before, after), count in sorted(_transitions(pairs).items()):
        lines.append(f"  {phase:24} {before:>8} -> {after:8} {count:5} cases")
    lines += [f"  {_exhibit(pair)}" for pair in _exhibits(pairs)]
    lines += [f"  {line}" for line in _bench_lines(compared)]
    return lines


def _bench_lines(compared: Comparison) -> list[str]:
    lines = []
    for run, before, after in compared.benches:
        old, new = (_attention_of(last_step(side)) for side in (before, after))
        lines.append(f"{run!s:34} {_shape(old)} -> {_shape(new)}")
    return lines


def _transitions(pairs: Sequence[CasePair]) -> Counter[tuple[str, str, str]]:
    counted: Counter[tuple[str, str, str]] = Counter()
    for pair in pairs:
        counted[_phase(pair.case), _family(pair.before), _family(pair.after)] += 1
    return counted


def _phase(case: Case) -> str:
    kind = "quantized" if case.is_quantized else case.type_k
    if not case.is_decode:
        return f"prefill {kind}"
    return f"decode {kind}{' grouped' if case.gqa > 1 else ''}"


def _family(record: CaseRecord) -> str:
    if not record.is_supported:
        return "none"
    return "+".join(dict.fromkeys(launch.kernel.family for launch in attention(record))).upper() or "nothing"


def _kernels(records: Sequence[CaseRecord]) -> dict[str, int]:
    counted = Counter(str(launch.kernel.name) for record in records for launch in attention(record))
    return dict(sorted(counted.items()))


def _exhibits(pairs: Sequence[CasePair]) -> list[CasePair]:
    """One decode and one prefill per head size: grouped queries, f16, deep."""
    return [
        pair
        for pair in pairs
        if pair.case.id.startswith("own-")
        and pair.case.tokens in _EXHIBIT_TOKENS
        and pair.case.kv == _EXHIBIT_KV
        and pair.case.gqa == _EXHIBIT_GQA
        and pair.case.type_k == "f16"
        and pair.after.is_supported
    ]


def _exhibit(pair: CasePair) -> str:
    return f"{pair.case!s:44} {_shape(attention(pair.before))} -> {_shape(attention(pair.after))}"


def _attention_of(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    found = [launch for launch in launches if launch.kernel.family != "other"]
    return tuple(found[-1:])


def _shape(launches: Sequence[Launch]) -> str:
    return (
        " ".join(
            f"{launch.kernel.name} {_times(launch.grid)} of {_times(launch.block)}" for launch in launches
        )
        or "nothing"
    )


def _times(size: tuple[int, int, int]) -> str:
    return "x".join(str(part) for part in size)
