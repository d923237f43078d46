"""Which kernels run for the operations of language models, before and after the patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import computed_field

from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.cases import Case, whole_blocks
from patchkit.gpu.emulated.device import EmulatedDevice
from patchkit.gpu.emulated.operations import (
    OperationCase,
    operation_cases,
    precision_of,
    route_of,
    run_operations,
)
from patchkit.gpu.emulated.runtime import RecordedBackend, build_backend
from patchkit.gpu.emulated.session import CaseRecord, Session
from patchkit.prove.build import build_sides
from patchkit.prove.gates.base import Count, Many, Record
from patchkit.prove.gates.launch.evidence import LaunchRow
from patchkit.prove.gates.launch.launch_text import launch_row
from patchkit.prove.gates.launch.recorded_gpus import choose_gpus
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain, rocwmma_for
from patchkit.toolchain.units import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedCandidate:
    """The candidate for one GPU, with its compiler; ``tools`` describes the latter."""

    subject: Subject
    branch: str
    compiler: Compiler
    tools: str


def _open_candidate(
    workspace: Workspace, arch: str, upstream: PinWanted, environ: Mapping[str, str]
) -> _OpenedCandidate:
    """Raises the errors of :func:`explain_paths`."""
    load_profile(workspace.series.profiles, arch)  # reports a misspelt name, instead of a missing candidate
    repository, candidate = find_candidate(workspace, (arch,), upstream)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    rocwmma = rocwmma_for(toolchain, arch)
    version = "none" if rocwmma is None else f"{rocwmma.version} ({rocwmma.kind})"
    return _OpenedCandidate(
        subject=make_subject(workspace, repository, candidate, toolchain),
        branch=candidate.branch,
        compiler=open_compiler(toolchain, workspace.cache_root, workspace.reporter),
        tools=f"clang {toolchain.clang_version}, HIP headers {toolchain.hip_version}, rocWMMA {version}",
    )


def _backends(opened: _OpenedCandidate, arch: str) -> tuple[RecordedBackend, RecordedBackend]:
    """Baseline and candidate, ready to be recorded."""
    subject = opened.subject
    built = build_sides(subject, "cpu", is_timed=False)
    before, after = (
        build_backend(SourceTree(tree), opened.compiler, arch, programs)
        for tree, programs in ((subject.baseline, built.before), (subject.candidate, built.after))
    )
    return before, after


NOT_KNOWN = (
    "the instructions of a kernel (dot products or matrix units), which device code selects",
    "the kernels of the BLAS library, and the types of its calls beyond the conversions before them",
    "the effect of fusing operations: each case is a graph of one operation",
    "matrix and batch sizes other than those tried: a threshold is between two of them",
    "times",
)
_ATTENTION_KV = 4096
_ATTENTION_BATCHES = (1, 2, 3, 4, 8, 9, 16, 17, 32, 33, 512, 2048)
# Head sizes of fattn.cu with their usual grouping; 576/512 is the MLA pair, which is always grouped.
_HEADS = (
    *((size, size, gqa) for size in (64, 80, 96, 112, 128, 256) for gqa in (1, 4)),
    (576, 512, 16),
)
_CACHES = ("f16", "q8_0", "q4_0")
_KV_HEADS = 2


class TimedLaunch(LaunchRow):
    """A launch, and how often it occurs."""

    times: Count


class BatchSpan(Record):
    """Batches from ``first`` to ``last`` tokens.

    ``route`` is empty if the CPU computes them or this build lacks the operation.
    ``launches`` are all launches of the first of these batches.
    """

    first: Count
    last: Count
    route: Many[str]
    precision: Many[str]
    launches: Many[TimedLaunch]

    @property
    def alike(self) -> tuple[tuple[int, int], tuple[str, ...], tuple[str, ...]]:
        """The part of a span that is equal for different types if the same happens for both."""
        route = ["dequantize" if name.startswith("dequantize_") else name for name in self.route]
        return (self.first, self.last), tuple(dict.fromkeys(route)), self.precision


class PathLine(Record):
    """``op`` and ``what`` name the operation; ``sizes`` are the sizes that were tried."""

    gpu: str
    op: str
    what: str
    sizes: str
    before: Many[BatchSpan]
    after: Many[BatchSpan]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def changed(self) -> bool:
        """Whether the patches change the kernels that run."""
        return [span.alike for span in self.before] != [span.alike for span in self.after]


class PathReport(Record):
    """All lines of the requested GPUs."""

    branch: str
    build: int
    tools: str
    remarks: Many[str]
    not_known: Many[str] = NOT_KNOWN
    lines: Many[PathLine]


def explain_paths(
    workspace: Workspace,
    *,
    arch: str,
    others: Sequence[str],
    upstream: PinWanted,
    environ: Mapping[str, str],
) -> PathReport:
    """Run every case on both trees of the candidate for ``arch``, as that GPU and as ``others``.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC: there is no such profile.
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no usable candidate.
        ToolchainMissing, ToolchainError: no compiler, or upstream or the recorder does not build.
    """
    for name in (arch, *others):
        load_profile(workspace.series.profiles, name)
    opened = _open_candidate(workspace, arch, upstream, environ)
    gpus = choose_gpus(opened.subject, others)
    before, after = _backends(opened, arch)
    lines = [
        line
        for device in gpus.devices
        if device.arch in {arch, *others}
        for line in _lines(device, before, after, opened.compiler)
    ]
    return PathReport(
        branch=opened.branch,
        build=opened.subject.build,
        tools=opened.tools,
        remarks=tuple(remark for remark in gpus.remarks if others and not remark.endswith("not requested")),
        lines=tuple(lines),
    )


_Record = CaseRecord[Case] | CaseRecord[OperationCase]
_Key = tuple[str, str, str]  # op, what, sizes


def _lines(
    device: EmulatedDevice, before: RecordedBackend, after: RecordedBackend, compiler: Compiler
) -> Iterator[PathLine]:
    compiler.reporter.step(f"recording every operation as {device.arch}")
    sides = []
    for backend in (before, after):
        session = Session(backend=backend, device=device, kernels={}, compiler=compiler)
        operations, attention = operation_cases(), _attention_cases()
        found: dict[_Key, list[_Record]] = {}
        for operation in run_operations(session, operations).records(operations):
            found.setdefault(_key_of(operation.case), []).append(operation)
        for shape in session.run_cases(attention).records(attention):
            found.setdefault(_attention_key(shape.case), []).append(shape)
        sides.append(found)
    for (op, what, sizes), old in sides[0].items():
        new = sides[1][op, what, sizes]
        yield PathLine(gpu=device.arch, op=op, what=what, sizes=sizes, before=_spans(old), after=_spans(new))


def _key_of(case: OperationCase) -> _Key:
    if case.op in {"GATED_DELTA_NET", "LIGHTNING_INDEXER"}:
        return case.op, f"{case.rows} heads {case.type}", f"head size {case.columns}"
    if case.op in {"ADD_ID", "SSM_CONV", "TOP_K"}:
        return case.op, f"{case.columns} values per token", case.type
    if case.op not in {"MUL_MAT", "MUL_MAT_ID", "GET_ROWS", "SET_ROWS"}:
        return "others", case.op, f"{case.columns} values per token"
    experts = f", {case.used} of {case.experts} experts" if case.experts > 1 else ""
    return case.op, case.type, f"{case.rows} x {case.columns}{experts}"


def _attention_cases() -> list[Case]:
    return [
        Case(
            id=f"path-{size}-{gqa}-{kind}-{tokens}",
            head_size=size,
            head_size_v=size_v,
            kv_heads=_KV_HEADS,
            gqa=gqa,
            kv=_ATTENTION_KV,
            tokens=tokens,
            type_k=kind,
            type_v=kind,
        )
        for size, size_v, gqa in _HEADS
        for kind in _CACHES
        if (whole_blocks(size, kind), whole_blocks(size_v, kind)) == (size, size_v)
        for tokens in _ATTENTION_BATCHES
    ]


def _attention_key(case: Case) -> _Key:
    sizes = f"{case.kv} KV rows, {case.kv_heads} KV heads, mask; gqa: query heads per KV head"
    return "FLASH_ATTN_EXT", f"D={case.sizes} gqa={case.gqa} {case.type_k}", sizes


_COPIED = ("hipMemcpy",)  # what a copy that launches nothing calls


def _spans(found: Sequence[_Record]) -> tuple[BatchSpan, ...]:
    spans: list[BatchSpan] = []
    for each in sorted(found, key=lambda one: one.case.tokens):
        route = (route_of(each.section) or _COPIED) if each.is_supported else ()
        precision = precision_of(each.section)
        if spans and (spans[-1].route, spans[-1].precision) == (route, precision):
            spans[-1] = spans[-1].model_copy(update={"last": each.case.tokens})
            continue
        spans.append(
            BatchSpan(
                first=each.case.tokens,
                last=each.case.tokens,
                route=route,
                precision=precision,
                launches=tuple(
                    TimedLaunch(**launch_row(launch).model_dump(), times=times)
                    for launch, times in Counter(each.section.launches).items()
                ),
            )
        )
    return tuple(spans)
