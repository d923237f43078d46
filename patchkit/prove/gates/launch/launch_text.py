"""The launches recorded for a GPU, as evidence and as lines of text."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.log import Launch
from patchkit.gpu.emulated.session import CaseRecord, RecordedRun
from patchkit.prove.gates.launch.evidence import (
    BenchRow,
    GpuRecord,
    Kernels,
    LaunchRow,
    ModelRun,
    Sample,
    Transition,
    UpstreamOwn,
)
from patchkit.prove.gates.launch.rules import MATRIX_KERNELS, Broken, grouping_applies
from patchkit.prove.gates.launch.runs import CasePair, Comparison, last_step

_SAMPLE_KV = 65536
_SAMPLE_GQA = 4
_SAMPLE_TOKENS = (1, 512)
_KEPT = 20  # examples of rules that upstream itself breaks
_PHASES = ("f16, grouped", "f16", "f32, grouped", "f32", "quantized, grouped", "quantized")
_WIDTH = 100  # characters of a line, without the prefix that verify adds
_FEW = 3  # up to so many values of a variable are listed


def other_evidence(compared: Comparison) -> GpuRecord:
    """The evidence of a GPU that no patch targets."""
    before, after = (sum(row.is_supported for row in rows) for rows in compared.support)
    old, new = compared.cases
    return GpuRecord(
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


def guarded_evidence(compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]) -> GpuRecord:
    """The evidence of a GPU that a patch targets."""
    examples: dict[str, list[str]] = {}
    for broken in own:
        examples.setdefault(broken.message, []).append(str(broken))
    return GpuRecord(
        **other_evidence(compared).model_dump(exclude_unset=True),
        transitions=tuple(
            Transition(phase=phase, before=before, after=after, cases=count)
            for (phase, before, after), count in sorted(_transitions(pairs).items())
        ),
        kernels=Kernels(
            before=_kernels([pair.before for pair in pairs]), after=_kernels([pair.after for pair in pairs])
        ),
        samples=tuple(
            Sample(
                case=str(pair.case), before=_rows(pair.before.attention), after=_rows(pair.after.attention)
            )
            for pair in _samples(pairs)
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


def launch_row(launch: Launch) -> LaunchRow:
    """A launch as recorded in evidence."""
    return LaunchRow(
        kernel=str(launch.kernel.name),
        grid=launch.grid,
        block=launch.block,
        lds=launch.lds,
        resident=launch.resident,
    )


def _rows(launches: Sequence[Launch]) -> tuple[LaunchRow, ...]:
    return tuple(map(launch_row, launches))


def _kernels(records: Sequence[CaseRecord[Case]]) -> dict[str, int]:
    counted = Counter(str(launch.kernel.name) for record in records for launch in record.attention)
    return dict(sorted(counted.items()))


def _transitions(pairs: Sequence[CasePair]) -> Counter[tuple[str, str, str]]:
    """The number of cases of each phase by the kinds of kernel before and after."""
    return Counter((_phase(pair.case), _family(pair.before), _family(pair.after)) for pair in pairs)


def _samples(pairs: Sequence[CasePair]) -> list[CasePair]:
    """One decode and one prefill case per head size: GQA, f16, deep."""
    return [
        pair
        for pair in pairs
        if pair.case.is_own
        and pair.case.tokens in _SAMPLE_TOKENS
        and pair.case.kv == _SAMPLE_KV
        and pair.case.gqa == _SAMPLE_GQA
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


def guarded_lines(compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]) -> list[str]:
    """A GPU that a patch targets: kernels of decode and prefill, samples, models, upstream's own faults."""
    before, after = (sum(row.is_supported for row in rows) for rows in compared.support)
    recorded = f"{len(pairs)} cases and {len(compared.benches)} model runs recorded"
    return [
        f"{compared.device.arch}: upstream's list has {before} supported cases, {after} after; {recorded}",
        *(f"  {line}" for line in _transition_lines(pairs)),
        *(f"  {line}" for line in _sample_lines(pairs)),
        *(f"  {line}" for line in _model_lines(compared)),
        *(f"  {line}" for line in _own_lines(own)),
        *(f"  {line}" for line in matrix_lines(compared)),
    ]


def other_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """GPUs that no patch targets: all with identical launches together, and a line for each other one."""
    same: dict[tuple[int, int], list[str]] = defaultdict(list)
    lines = []
    for compared in comparisons:
        runs = [old.digest == new.digest for _, old, new in compared.benches]
        if compared.cases_identical and all(runs):
            same[len(compared.asked), len(runs)].append(compared.device.arch)
        else:
            what = "identical" if compared.cases_identical else "DIFFERENT"
            lines.append(
                f"{compared.device.arch}: {len(compared.asked)} cases {what}, "
                f"{sum(runs)} of {len(runs)} model runs identical"
            )
    for (cases, count), archs in same.items():
        lines.append(f"the same launches in all {cases} cases and {count} model runs, {len(archs)} GPUs:")
        lines += textwrap.wrap(" ".join(archs), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return lines


def aborting_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Cases in which upstream's own code aborts, each once with the GPUs where it does."""
    where: dict[str, list[str]] = defaultdict(list)
    for compared in comparisons:
        for text in compared.aborting:
            where[text].append(compared.device.arch)
    return [f"{text}, as {' '.join(archs)}" for text, archs in where.items()]


def _transition_lines(pairs: Sequence[CasePair]) -> Iterator[str]:
    counted: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for (phase, before, after), count in _transitions(pairs).most_common():
        counted[phase].append((before, after, count))
    known = [f"{what} {kind}" for what in ("decode", "prefill") for kind in _PHASES]
    yield "attention kernel, before -> after, number of cases (grouped: GQA, query heads share K and V):"
    for phase in [*(name for name in known if name in counted), *sorted(set(counted) - set(known))]:
        changed = [f"{old} -> {new} {count}" for old, new, count in counted[phase] if old != new]
        same = [f"{old} {count}" for old, new, count in counted[phase] if old == new]
        parts = [", ".join(changed)] if changed else []
        parts += [f"{'still' if changed else 'unchanged:'} {', '.join(same)}"] if same else []
        yield f"  {phase:26}{'; '.join(parts)}"


def _sample_lines(pairs: Sequence[CasePair]) -> Iterator[str]:
    chosen = _samples(pairs)
    if not chosen:
        return
    yield f"at {_SAMPLE_KV} KV rows, gqa {_SAMPLE_GQA}, f16: kernel, blocks of threads:"
    for pair in chosen:
        case = pair.case
        old, new = _shape(pair.before.attention), _shape(pair.after.attention)
        what = f"D={case.head_size}, {'decode' if case.is_decode else f'{case.tokens} tokens'}"
        yield f"  {what:26}{old} -> {new if new != old else 'the same'}"


def _model_lines(compared: Comparison) -> Iterator[str]:
    """Runs of one model and kind with the same kernels before and after, with the geometry of the deepest."""
    groups: dict[tuple[str, str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for run, before, after in compared.benches:
        if run.model.weights:
            continue  # its attention is the same as in the model without quantized weights
        first, last = (_attention_of(last_step(side)) for side in (before, after))
        kind = f"{run.model.name} {run.test}", _families(first), _families(last)
        groups[kind].append((run.depth, _shape(first), _shape(last)))
    if groups:
        yield "llama-bench on patchkit's small models (geometry of the last depth):"
    for (what, _, _), rows in groups.items():
        depths = " ".join(str(depth) for depth, _, _ in rows)
        _, old, new = rows[-1]
        yield f"  {what:26}{old} -> {new if new != old else 'the same'}, depth {depths}"


def _own_lines(own: Sequence[Broken]) -> Iterator[str]:
    """Rules that upstream itself breaks: kernel and reason, and what the cases have in common."""
    groups: dict[tuple[str, str, str], dict[str, Case]] = defaultdict(dict)
    for broken in own:
        groups[broken.message, broken.kernel.base, broken.how][broken.case.id] = broken.case
    for (message, kernel, how), cases in groups.items():
        yield f"upstream's own, before and after, {len(cases)} cases: {message}"
        yield f"  {kernel} {how}".rstrip() + f" ({_in_common(cases.values())})"


def _in_common(cases: Collection[Case]) -> str:
    """The values of those variables that have only a few over all cases."""
    values: Mapping[str, list[str]] = {
        "KV": sorted({case.type_k for case in cases}),
        "D": [str(size) for size in sorted({case.head_size for case in cases})],
        "KV rows": [str(rows) for rows in sorted({case.kv for case in cases})],
        "tokens": [str(tokens) for tokens in sorted({case.tokens for case in cases})],
        "gqa": [str(heads) for heads in sorted({case.gqa for case in cases})],
    }
    common = [f"{name} {' '.join(found)}" for name, found in values.items() if len(found) <= _FEW]
    return ", ".join(common) or "shapes of all kinds"


def _families(launches: Sequence[Launch]) -> str:
    return "+".join(launch.kernel.family for launch in launches).upper()


def _attention_of(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    found = [launch for launch in launches if launch.kernel.family != "other"]
    return tuple(found[-1:])


def _shape(launches: Sequence[Launch]) -> str:
    return (
        " + ".join(
            f"{launch.kernel.family.upper()} {_times(launch.grid)} of {_times(launch.block[:2])}"
            for launch in launches
        )
        or "nothing"
    )


def _times(size: Sequence[int]) -> str:
    return "x".join(str(part) for part in size)


def matrix_lines(compared: Comparison) -> Iterator[str]:
    """One line per run of a quantized model: its kernels and their threads, before and after."""
    if compared.quantized:
        yield "quantized matmuls, kernel x launches of threads per block:"
    for run, before, after in compared.quantized:
        old, new = _matrix_text(before), _matrix_text(after)
        yield f"  {run.test:6}{old}{f' -> {new}' if new != old else ', unchanged'}"


def _matrix_text(recorded: RecordedRun) -> str:
    counted = Counter(
        (launch.kernel.name.base, launch.threads)
        for launch in last_step(recorded)
        if launch.kernel.name.base in MATRIX_KERNELS
    )
    return (
        ", ".join(f"{base} x{count} of {threads}" for (base, threads), count in sorted(counted.items()))
        or "nothing"
    )
