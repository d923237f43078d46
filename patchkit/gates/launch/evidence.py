"""What the launch gate keeps of its recordings, as one model that is written and read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from patchkit.gates.launch.rules import Broken, grouping_applies
from patchkit.gates.launch.runs import CasePair, Comparison, last_step
from patchkit.gpu.cases import Case
from patchkit.gpu.log import Launch, LaunchRow
from patchkit.gpu.session import CaseRecord

SAMPLE_KV = 65536
SAMPLE_GQA = 4
_SAMPLE_TOKENS = (1, 512)
_KEPT = 20  # examples of what upstream itself breaks


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchRow(_Model):
    """One run of llama-bench, both sides."""

    run: str
    identical: bool
    logs: tuple[str, str]


class Transition(_Model):
    """So many ``cases`` of a phase went from one kind of kernel to another, or stayed."""

    phase: str
    before: str
    after: str
    cases: int


class Sample(_Model):
    """The attention launches of one case."""

    case: str
    before: tuple[LaunchRow, ...]
    after: tuple[LaunchRow, ...]


class ModelRun(_Model):
    """The launches of a model's last graph."""

    run: str
    before: tuple[LaunchRow, ...]
    after: tuple[LaunchRow, ...]


class Kernels(_Model):
    """How often each attention kernel was launched."""

    before: dict[str, int]
    after: dict[str, int]


class UpstreamOwn(_Model):
    """How many cases break a rule in the baseline already, and the first of them."""

    cases: int
    first: tuple[str, ...]


class OtherGpu(_Model):
    """A GPU that no patch is for: what was recorded, and where the logs are."""

    supported: tuple[int, int]
    operations: int
    cases: int
    cases_identical: bool
    logs: tuple[str, str]
    benches: tuple[BenchRow, ...]


class GuardedGpu(OtherGpu):
    """A GPU that a patch is for: which kernels before and after, with names and geometry in full."""

    transitions: tuple[Transition, ...]
    kernels: Kernels
    samples: tuple[Sample, ...]
    models: tuple[ModelRun, ...]
    upstream: dict[str, UpstreamOwn]


class Side(_Model):
    """How one side was built."""

    programs: str = "upstream's CMake, -O1, GGML_BACKEND_DL, CPU only"
    programs_key: str
    host_library: str
    host_library_key: str
    device_code: str = "none: kernels are registered by name, with the unit they come from"


class Built(_Model):
    """What was built, how, and with what; ``figures`` counts the kernels whose registers are known."""

    baseline: Side
    candidate: Side
    traced_unit: str
    definitions: str = "upstream's defaults with GGML_HIP_ROCWMMA_FATTN and GGML_BACKEND_DL"
    clang: str
    hip_headers: str
    rocwmma: str
    figures: dict[str, dict[str, int]]


class LaunchEvidence(_Model):
    """The evidence of the gate, by GPU."""

    built: Built
    archs: dict[str, GuardedGpu | OtherGpu]


def other_evidence(compared: Comparison) -> OtherGpu:
    """The evidence of a GPU that no patch is for."""
    before, after = (sum(row.is_supported for row in rows) for rows in compared.support)
    old, new = compared.cases
    return OtherGpu(
        supported=(before, after),
        operations=len(compared.support[0]),
        cases=len(compared.asked),
        cases_identical=compared.cases_identical,
        logs=(str(old.log), str(new.log)),
        benches=tuple(
            BenchRow(run=str(run), identical=was.digest == now.digest, logs=(str(was.log), str(now.log)))
            for run, was, now in compared.benches
        ),
    )


def guarded_evidence(compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]) -> GuardedGpu:
    """The evidence of a GPU that a patch is for."""
    examples: dict[str, list[str]] = {}
    for broken in own:
        examples.setdefault(broken.message, []).append(str(broken))
    return GuardedGpu(
        **dict(other_evidence(compared)),
        transitions=tuple(
            Transition(phase=phase, before=before, after=after, cases=count)
            for (phase, before, after), count in sorted(transitions(pairs).items())
        ),
        kernels=Kernels(
            before=_kernels([pair.before for pair in pairs]), after=_kernels([pair.after for pair in pairs])
        ),
        samples=tuple(
            Sample(
                case=str(pair.case), before=_rows(pair.before.attention), after=_rows(pair.after.attention)
            )
            for pair in samples(pairs)
        ),
        models=tuple(
            ModelRun(run=str(run), before=_rows(last_step(before)), after=_rows(last_step(after)))
            for run, before, after in compared.benches
        ),
        upstream={
            message: UpstreamOwn(cases=len(each), first=tuple(each[:_KEPT]))
            for message, each in examples.items()
        },
    )


def _rows(launches: Sequence[Launch]) -> tuple[LaunchRow, ...]:
    return tuple(launch.row for launch in launches)


def _kernels(records: Sequence[CaseRecord[Case]]) -> dict[str, int]:
    counted = Counter(str(launch.kernel.name) for record in records for launch in record.attention)
    return dict(sorted(counted.items()))


def transitions(pairs: Sequence[CasePair]) -> Counter[tuple[str, str, str]]:
    """How many cases of each phase went from which kind of kernel to which."""
    return Counter((_phase(pair.case), _family(pair.before), _family(pair.after)) for pair in pairs)


def samples(pairs: Sequence[CasePair]) -> list[CasePair]:
    """One decode and one prefill per head size: grouped queries, f16, deep."""
    return [
        pair
        for pair in pairs
        if pair.case.is_own
        and pair.case.tokens in _SAMPLE_TOKENS
        and pair.case.kv == SAMPLE_KV
        and pair.case.gqa == SAMPLE_GQA
        and pair.case.type_k == "f16"
        and pair.after.is_supported
    ]


def _phase(case: Case) -> str:
    kind = "quantized" if case.is_quantized else case.type_k
    if not case.is_decode:
        return f"prefill {kind}"
    return f"decode {kind}{', grouped' if grouping_applies(case) else ''}"


def _family(record: CaseRecord[Case]) -> str:
    if not record.is_supported:
        return "not supported"
    return "+".join(dict.fromkeys(launch.kernel.family for launch in record.attention)).upper() or "nothing"
