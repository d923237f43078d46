"""Which kernels run, before and after the patches: for one attention shape, or for a model's operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.build.compile import CompiledKernel, Job, compile_unit
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.jobs import run_parallel
from patchkit.build.toolchain import find_toolchain, rocwmma_for
from patchkit.build.units import SourceTree
from patchkit.candidate.find import find_candidate
from patchkit.candidate.subject import Subject, make_subject
from patchkit.candidate.workspace import Workspace
from patchkit.gates.launch.gate import make_cast
from patchkit.gpu.backend import RecordedBackend, build_backend
from patchkit.gpu.cases import Case, whole_blocks
from patchkit.gpu.device import PlayedDevice, device_of
from patchkit.gpu.log import Launch
from patchkit.gpu.operations import (
    OperationCase,
    operation_cases,
    operation_records,
    precision_of,
    route_of,
    run_operations,
)
from patchkit.gpu.programs import GPU_FOLDER
from patchkit.gpu.selection import Decision, Selection, select
from patchkit.gpu.session import Figures
from patchkit.series.lock import PinWanted, load_lock
from patchkit.series.profile import load_profile

Side = str
_SIDES: tuple[Side, Side] = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One side. ``code`` maps mangled names of launched kernels to what the compiler made of them."""

    side: Side
    selection: Selection
    code: Mapping[str, CompiledKernel]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "side": self.side,
            "supported": self.selection.is_supported,
            "decisions": [decision.as_json() for decision in self.selection.decisions],
            "launches": [self._launch_json(launch) for launch in self.selection.launches],
        }

    def _launch_json(self, launch: Launch) -> dict[str, object]:
        code = self.code.get(launch.kernel.name.mangled)
        row = {**launch.as_json(), "family": launch.kernel.family, "units": list(launch.kernel.units)}
        if code is not None:
            row |= {
                "vgprs": code.figures.vgprs,
                "sgprs": code.figures.sgprs,
                "vgpr_spills": code.figures.vgpr_spills,
                "static_lds": code.figures.lds_bytes,
                "waves_per_simd": code.figures.waves,
                "is_trap": code.is_trap,
            }
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Both sides of one case on one GPU."""

    arch: str
    branch: str
    case: Case
    tools: str
    accounts: tuple[Account, Account]

    @property
    def turn(self) -> tuple[Decision, Decision] | None:
        """The first decision that came out otherwise, before and after; None when both end alike."""
        before, after = (account.selection.decisions for account in self.accounts)
        if not before or not after or before[-1].text == after[-1].text:
            return None
        for old, new in zip(before, after, strict=False):
            if (old.kind, old.outcome) != (new.kind, new.outcome):
                return old, new
        return before[-1], after[-1]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        turn = self.turn
        return {
            "arch": self.arch,
            "branch": self.branch,
            "case": str(self.case),
            "tools": self.tools,
            "turn": {"before": turn[0].as_json(), "after": turn[1].as_json()} if turn is not None else None,
            "accounts": [account.as_json() for account in self.accounts],
        }


def explain_case(
    workspace: Workspace, *, arch: str, case: Case, upstream: PinWanted, environ: Mapping[str, str]
) -> Explanation:
    """Run one case on both trees of the candidate for ``arch``.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC: there is no such profile.
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is nothing to explain.
        ToolchainMissing: there is no compiler.
        ToolchainError: upstream or the recorder does not build, or the executed code cannot be told.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    load_profile(workspace.series.profiles, arch)  # a misspelt name is no missing candidate
    repository, candidate = find_candidate(workspace, (arch,), pin)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    subject = make_subject(workspace, repository, candidate, toolchain)
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    rocwmma = rocwmma_for(toolchain, arch)
    told = "none" if rocwmma is None else f"{rocwmma.version} ({rocwmma.kind})"
    before, after = (
        _account(side, SourceTree(root), subject, arch, case, compiler)
        for side, root in zip(_SIDES, (subject.baseline, subject.candidate), strict=True)
    )
    return Explanation(
        arch=arch,
        branch=candidate.branch,
        case=case,
        tools=f"clang {toolchain.clang_version}, HIP headers {toolchain.hip_version}, rocWMMA {told}",
        accounts=(before, after),
    )


def _account(
    side: Side, tree: SourceTree, subject: Subject, arch: str, case: Case, compiler: Compiler
) -> Account:
    """Twice: to learn which units the kernels are in, then with what these kernels really use."""
    compiler.reporter.step(f"{side} the patches: recording")
    backend = build_backend(tree, compiler, arch)
    device = device_of(subject.profiles[arch])
    root = subject.cache_root
    first = select(case, backend.session(device, {}, root, compiler), backend, compiler)
    code = _code(first.launches, backend, arch, compiler)
    figures = {
        name: Figures(vgprs=kernel.figures.vgprs, lds=kernel.figures.lds_bytes)
        for name, kernel in code.items()
    }
    selection = select(case, backend.session(device, figures, root, compiler), backend, compiler)
    return Account(side=side, selection=selection, code=code)


def _code(
    launches: Sequence[Launch], backend: RecordedBackend, arch: str, compiler: Compiler
) -> dict[str, CompiledKernel]:
    """The launched kernels of attention units, compiled for the GPU."""
    wanted = {launch.kernel.name.mangled for launch in launches}
    units = sorted(
        {
            unit
            for launch in launches
            if launch.kernel.name.base.startswith("flash_attn")
            for unit in launch.kernel.units
        }
    )
    has_rocwmma = rocwmma_for(compiler.toolchain, arch) is not None
    made = run_parallel(
        units,
        lambda unit: compile_unit(
            Job(tree=backend.tree, unit=unit, arch=arch, which="device", rocwmma=has_rocwmma), compiler
        ),
        reporter=compiler.reporter,
        what="compiling the launched kernels",
        unit="units",
        stop=compiler.stop,
    )
    return {kernel.name: kernel for unit in made for kernel in unit.kernels if kernel.name in wanted}


NOT_KNOWN = (
    "which instructions a kernel uses (dot products or matrix units): device code decides that",
    "what the BLAS library runs, and the types of its calls beyond the conversions before them",
    "what runs when operations are fused: each case is a graph of one operation",
    "other matrix sizes and batch sizes than those tried: a threshold lies between two of them",
    "times",
)
_ATTENTION_KV = 4096
_ATTENTION_BATCHES = (1, 2, 3, 4, 8, 9, 16, 17, 32, 33, 512, 2048)
# Head sizes of fattn.cu with the grouping that is usual for them; 576/512 is the latent pair, always grouped.
_HEADS = (
    *((size, size, gqa) for size in (64, 80, 96, 112, 128, 256) for gqa in (1, 4)),
    (576, 512, 16),
)
_CACHES = ("f16", "q8_0", "q4_0")
_KV_HEADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Batches from ``first`` to ``last`` tokens. ``route`` is empty when the CPU computes it.

    ``launches`` are those of the first of these batches, in full.
    """

    first: int
    last: int
    route: tuple[str, ...]
    precision: tuple[str, ...]
    launches: tuple[Launch, ...]

    @property
    def alike(self) -> tuple[tuple[int, int], tuple[str, ...], tuple[str, ...]]:
        """What two spans of different types have in common when the same happens in both."""
        route = ["dequantize" if name.startswith("dequantize_") else name for name in self.route]
        return (self.first, self.last), tuple(dict.fromkeys(route)), self.precision

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "first": self.first,
            "last": self.last,
            "route": list(self.route),
            "precision": list(self.precision),
            "launches": [
                {**launch.as_json(), "times": times} for launch, times in Counter(self.launches).items()
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """``op`` and ``what`` name the operation; ``sizes`` says which were tried."""

    gpu: str
    op: str
    what: str
    sizes: str
    before: tuple[Span, ...]
    after: tuple[Span, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the patches change what runs."""
        return [span.alike for span in self.before] != [span.alike for span in self.after]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "gpu": self.gpu,
            "op": self.op,
            "what": self.what,
            "sizes": self.sizes,
            "changed": self.is_changed,
            "before": [span.as_json() for span in self.before],
            "after": [span.as_json() for span in self.after],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReport:
    """All lines of the GPUs that were asked for."""

    branch: str
    build: int
    tools: str
    remarks: tuple[str, ...]
    lines: tuple[Line, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "branch": self.branch,
            "build": self.build,
            "tools": self.tools,
            "remarks": list(self.remarks),
            "not_known": list(NOT_KNOWN),
            "lines": [line.as_json() for line in self.lines],
        }


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
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is nothing to run.
        ToolchainMissing, ToolchainError: no compiler, or upstream or the recorder does not build.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    for name in (arch, *others):
        load_profile(workspace.series.profiles, name)
    repository, candidate = find_candidate(workspace, (arch,), pin)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    subject = make_subject(workspace, repository, candidate, toolchain)
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    cast = make_cast(subject, others)
    before, after = _backends(subject, compiler, arch)
    rocwmma = rocwmma_for(toolchain, arch)
    told = "none" if rocwmma is None else f"{rocwmma.version} ({rocwmma.kind})"
    wanted = {arch, *others}
    lines = [
        line
        for device in cast.devices
        if device.arch in wanted
        for line in _lines(device, before, after, subject, compiler)
    ]
    return PathReport(
        branch=candidate.branch,
        build=pin.build,
        tools=f"clang {toolchain.clang_version}, HIP headers {toolchain.hip_version}, rocWMMA {told}",
        remarks=tuple(remark for remark in cast.remarks if others and not remark.endswith("not asked for")),
        lines=tuple(lines),
    )


def _backends(subject: Subject, compiler: Compiler, arch: str) -> tuple[RecordedBackend, RecordedBackend]:
    before = build_backend(SourceTree(subject.baseline), compiler, arch)
    inside = all(path.startswith(f"{GPU_FOLDER}/") for path in subject.changed_files)
    programs = before.programs if inside else None
    return before, build_backend(SourceTree(subject.candidate), compiler, arch, programs=programs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One batch of one line on one side."""

    tokens: int
    is_supported: bool
    launches: tuple[Launch, ...]
    products: tuple[str, ...]


_Key = tuple[str, str, str]  # op, what, sizes


def _lines(
    device: PlayedDevice,
    before: RecordedBackend,
    after: RecordedBackend,
    subject: Subject,
    compiler: Compiler,
) -> Iterator[Line]:
    compiler.reporter.step(f"recording every operation as {device.arch}")
    sides = []
    for backend in (before, after):
        found: dict[_Key, list[_Found]] = {}
        session = backend.session(device, {}, subject.cache_root, compiler)
        cases = operation_cases()
        run = run_operations(session, backend, cases, compiler)
        for record in operation_records(cases, run.recording()):
            found.setdefault(_key_of(record.case), []).append(
                _Found(
                    tokens=record.case.tokens,
                    is_supported=record.is_supported,
                    launches=record.launches,
                    products=record.products,
                )
            )
        attention = _attention_cases()
        for each in session.run_cases(attention).records(attention):
            section = each.section
            found.setdefault(_attention_key(each.case), []).append(
                _Found(
                    tokens=each.case.tokens,
                    is_supported=each.is_supported,
                    launches=section.launches,
                    products=section.products,
                )
            )
        sides.append(found)
    for (op, what, sizes), old in sides[0].items():
        new = sides[1][op, what, sizes]
        yield Line(gpu=device.arch, op=op, what=what, sizes=sizes, before=_spans(old), after=_spans(new))


def _key_of(case: OperationCase) -> _Key:
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
    size = (
        f"{case.head_size}/{case.head_size_v}" if case.head_size_v != case.head_size else f"{case.head_size}"
    )
    heads = f"D={size} gqa={case.gqa} {case.type_k}"
    return (
        "FLASH_ATTN_EXT",
        heads,
        f"{case.kv} KV rows, {case.kv_heads} KV heads, mask; gqa: grouped query heads",
    )


def _spans(found: Sequence[_Found]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for each in sorted(found, key=lambda one: one.tokens):
        route = route_of(each.launches, each.products) if each.is_supported else ()
        precision = precision_of(each.launches, each.products)
        last = spans[-1] if spans else None
        if last is not None and (last.route, last.precision) == (route, precision):
            spans[-1] = Span(
                first=last.first, last=each.tokens, route=route, precision=precision, launches=last.launches
            )
            continue
        spans.append(
            Span(
                first=each.tokens,
                last=each.tokens,
                route=route,
                precision=precision,
                launches=each.launches,
            )
        )
    return tuple(spans)
