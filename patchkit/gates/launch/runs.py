"""The launches of quantized matrices, in the runs of small models with such weights."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from patchkit.base.errors import GateError, PatchkitError
from patchkit.build.compiler import Compiler
from patchkit.build.jobs import run_parallel
from patchkit.candidate.subject import PatchPart
from patchkit.gates.launch.errors import BlockMismatch, CandidateAborts, KernelMissing, KernelTraps, finding
from patchkit.gates.launch.geometry import Guarded, code_of
from patchkit.gates.launch.rules import Broken, CasePair, attention, grouping_applies
from patchkit.gpu.backend import RecordedBackend
from patchkit.gpu.cases import Case, CaseNotUnderstood, OpRow, own_cases, upstream_case
from patchkit.gpu.device import PlayedDevice
from patchkit.gpu.log import Launch
from patchkit.gpu.models import SmallModel
from patchkit.gpu.session import (
    BenchRun,
    CaseRecord,
    Figures,
    RecordedRun,
    RecordedRunFailed,
    RecordedRunHangs,
    Session,
)

Transition = tuple[str, str, str]  # phase, kind of kernel before, after

_SAMPLE_TOKENS = (1, 512)
_SAMPLE_KV = 65536
_SAMPLE_GQA = 4
_PHASES = ("f16, grouped", "f16", "f32, grouped", "f32", "quantized, grouped", "quantized")
_NONE = "not supported"
_WIDTH = 100  # characters of a row, before what verify puts in front
_FEW = 3  # values of a variable that are listed


def guarded_lines(compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]) -> list[str]:
    """A GPU that a patch is for: decode and prefill by kind of kernel, samples, models, upstream's own."""
    before, after = (sum(row.is_supported for row in rows) for rows in compared.support)
    recorded = f"{len(pairs)} cases and {len(compared.benches)} model runs recorded"
    return [
        f"{compared.device.arch}: upstream's list has {before} supported cases, {after} after; {recorded}",
        *(f"  {line}" for line in _transition_lines(pairs)),
        *(f"  {line}" for line in _sample_lines(pairs)),
        *(f"  {line}" for line in _model_lines(compared)),
        *(f"  {line}" for line in _own_lines(own)),
    ]


def other_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """The GPUs that no patch is for: all that launch the same together, a line for each that does not."""
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
    """Cases in which upstream's own code ends the process, each once with the GPUs as which it does."""
    where: dict[str, list[str]] = defaultdict(list)
    for compared in comparisons:
        for told in compared.aborting:
            where[told].append(compared.device.arch)
    return [f"{told}, as {' '.join(archs)}" for told, archs in where.items()]


def transitions(pairs: Sequence[CasePair]) -> Counter[Transition]:
    """How many cases of each phase went from which kind of kernel to which."""
    return Counter((_phase(pair.case), _family(pair.before), _family(pair.after)) for pair in pairs)


def samples(pairs: Sequence[CasePair]) -> list[CasePair]:
    """One decode and one prefill per head size: grouped queries, f16, deep."""
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


def _family(record: CaseRecord) -> str:
    if not record.is_supported:
        return _NONE
    return "+".join(dict.fromkeys(launch.kernel.family for launch in attention(record))).upper() or "nothing"


def _transition_lines(pairs: Sequence[CasePair]) -> Iterator[str]:
    counted: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for (phase, before, after), count in transitions(pairs).most_common():
        counted[phase].append((before, after, count))
    known = [f"{what} {kind}" for what in ("decode", "prefill") for kind in _PHASES]
    yield "which kernel, before -> after, in how many cases (grouped: query heads share K and V):"
    for phase in [*(name for name in known if name in counted), *sorted(set(counted) - set(known))]:
        changed = [f"{old} -> {new} {count}" for old, new, count in counted[phase] if old != new]
        same = [f"{old} {count}" for old, new, count in counted[phase] if old == new]
        told = [", ".join(changed)] if changed else []
        told += [f"{'still' if changed else 'as before:'} {', '.join(same)}"] if same else []
        yield f"  {phase:26}{'; '.join(told)}"


def _sample_lines(pairs: Sequence[CasePair]) -> Iterator[str]:
    chosen = samples(pairs)
    if not chosen:
        return
    yield f"at {_SAMPLE_KV} KV rows, gqa {_SAMPLE_GQA}, f16: kernel, grid of blocks:"
    for pair in chosen:
        case = pair.case
        old, new = _shape(attention(pair.before)), _shape(attention(pair.after))
        what = f"D={case.head_size}, {'decode' if case.is_decode else f'{case.tokens} tokens'}"
        yield f"  {what:26}{old} -> {new if new != old else 'the same'}"


def _model_lines(compared: Comparison) -> Iterator[str]:
    """Runs of one model and kind that went from one kernel to one other, with the geometry of the last."""
    groups: dict[tuple[str, str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for run, before, after in compared.benches:
        if run.model.weights:
            continue  # attention is that of the same model with other weights
        first, last = (_attention_of(last_step(side)) for side in (before, after))
        kind = f"{run.model.name} {run.test}", _families(first), _families(last)
        groups[kind].append((run.depth, _shape(first), _shape(last)))
    if groups:
        yield "llama-bench on models of our own (the last depth's geometry):"
    for (what, _, _), rows in groups.items():
        depths = " ".join(str(depth) for depth, _, _ in rows)
        _, old, new = rows[-1]
        yield f"  {what:26}{old} -> {new if new != old else 'the same'}, depth {depths}"


def _own_lines(own: Sequence[Broken]) -> Iterator[str]:
    """What upstream breaks by itself: which kernel and why, and what the cases have in common."""
    groups: dict[tuple[str, str, str], dict[str, Case]] = defaultdict(dict)
    for broken in own:
        groups[broken.message, broken.kernel.base, broken.how][broken.case.id] = broken.case
    for (message, kernel, how), cases in groups.items():
        yield f"upstream's own, before and after, {len(cases)} cases: {message}"
        yield f"  {kernel} {how}".rstrip() + f" ({_in_common(cases.values())})"


def _in_common(cases: Collection[Case]) -> str:
    """The few values of the variables that have few, over all cases."""
    values: Mapping[str, list[str]] = {
        "KV": sorted({case.type_k for case in cases}),
        "D": [str(size) for size in sorted({case.head_size for case in cases})],
        "KV rows": [str(rows) for rows in sorted({case.kv for case in cases})],
        "tokens": [str(tokens) for tokens in sorted({case.tokens for case in cases})],
        "gqa": [str(heads) for heads in sorted({case.gqa for case in cases})],
    }
    told = [f"{name} {' '.join(found)}" for name, found in values.items() if len(found) <= _FEW]
    return ", ".join(told) or "all kinds of shapes"


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


_HEAD_SIZES = (64, 128, 256)
_PROMPT, _GENERATED = 512, 4
# Generation ends at a multiple of 256 tokens: llama-bench makes the KV cache as long as depth and tokens, and
# the selection of build 6900 takes another branch for a KV length that is not a multiple of 256.
_SHALLOW = (0, 4096)
_DEEP = (0, 4096, 16384, 65536)
_FIRST = 256  # the shallowest such end
# MMQ and MMVQ: decode, and batches where a GPU's limits decide. MMVQ takes up to 8 columns where nothing says
# otherwise, MMQ up to 64 on GPUs whose MMA it does not use, the rest is for hipBLAS (both at build 6900); the
# table of MMQ blocks that a patch changes begins at 48.
_QUANTIZED = SmallModel(head_size=64, weights=("Q4_K", "Q6_K", "Q8_0"))
_COLUMNS = (5, 48, _PROMPT)
_MOST_ABORTING = 16  # kinds of cases, of more than a hundred


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two backends, and what the compiler said about their kernels for the GPUs of the candidate."""

    before: RecordedBackend
    after: RecordedBackend
    figures: Mapping[str, tuple[Mapping[str, Figures], Mapping[str, Figures]]]

    def sessions(self, device: PlayedDevice, compiler: Compiler) -> tuple[Session, Session]:
        """Both on one GPU; without figures for it, kernels are assumed to use all registers."""
        before, after = self.figures.get(device.arch, ({}, {}))
        root = compiler.store.root.parent
        return (
            self.before.session(device, before, root, compiler),
            self.after.session(device, after, root, compiler),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One GPU. ``cases`` and ``benches`` hold the runs before and after.

    ``aborting``: what was not asked of either side, because upstream's own code ends the process there.
    """

    device: PlayedDevice
    support: tuple[tuple[OpRow, ...], tuple[OpRow, ...]]
    asked: tuple[Case, ...]
    not_understood: tuple[str, ...]
    aborting: tuple[str, ...] = ()
    cases: tuple[RecordedRun, RecordedRun]
    benches: tuple[tuple[BenchRun, RecordedRun, RecordedRun], ...]

    @property
    def cases_identical(self) -> bool:
        """Whether both sides launched exactly the same for every case."""
        return self.cases[0].digest == self.cases[1].digest

    def pairs(self) -> list[CasePair]:
        """Every case before and after. Raises RecordingUnreadable, RecordingIncomplete."""
        before, after = (run.records(self.asked) for run in self.cases)
        return [
            CasePair(case=case, before=old, after=new)
            for case, old, new in zip(self.asked, before, after, strict=True)
        ]


def known_cases(rows: Sequence[OpRow]) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Upstream's cases and ours, and those of upstream's that we cannot build, by their variables."""
    cases: list[Case] = []
    unknown: list[str] = []
    for number, row in enumerate(rows):
        try:
            cases.append(upstream_case(row.params, number))
        except CaseNotUnderstood:
            unknown.append(row.params)
    return (*cases, *own_cases()), tuple(unknown)


def bench_runs(*, deep: bool, matrices: bool) -> tuple[BenchRun, ...]:
    """One prompt and one generation per model and depth; ``deep`` goes to 65536 tokens.

    With ``matrices`` besides: quantized weights, in batches of few and of many columns.
    """
    runs = []
    for size in _HEAD_SIZES:
        model = SmallModel(head_size=size)
        for depth in _DEEP if deep else _SHALLOW:
            runs.append(BenchRun(model=model, prompt=_PROMPT, generated=0, depth=depth))
            before = max(depth, _FIRST) - _GENERATED
            runs.append(BenchRun(model=model, prompt=0, generated=_GENERATED, depth=before))
    if matrices:
        runs += [BenchRun(model=_QUANTIZED, prompt=columns, generated=0, depth=0) for columns in _COLUMNS]
        runs.append(BenchRun(model=_QUANTIZED, prompt=0, generated=_GENERATED, depth=_FIRST - _GENERATED))
    return tuple(runs)


def compare_on(
    device: PlayedDevice, sides: Sides, compiler: Compiler, *, deep: bool, matrices: bool
) -> Comparison:
    """Run everything on one GPU, both sides.

    Raises:
        CandidateAborts: the candidate's host code ended badly where the baseline's ended well.
        RecordedRunFailed, RecordedRunHangs: the baseline's did, and not because of single shapes.
        RECORDER_MISCONFIGURED, SupportMalformed: a program or the recorder did something else.
    """
    before, after = sides.sessions(device, compiler)
    old_support = before.support()
    known, unknown = known_cases(old_support)
    asked, old_cases, aborting = without_aborts(before.run_cases, known)
    with _blaming_the_candidate():
        new_support, new_cases = after.support(), after.run_cases(asked)
    runs = bench_runs(deep=deep, matrices=matrices)
    made = _benches((before, after), runs, compiler)
    return Comparison(
        device=device,
        support=(old_support, new_support),
        asked=asked,
        not_understood=unknown,
        aborting=aborting,
        cases=(old_cases, new_cases),
        benches=tuple(zip(runs, made[::2], made[1::2], strict=True)),
    )


def without_aborts(
    run: Callable[[Sequence[Case]], RecordedRun], cases: Sequence[Case]
) -> tuple[tuple[Case, ...], RecordedRun, tuple[str, ...]]:
    """The cases of the baseline that end well, their run, and a sentence about each kind that does not.

    Upstream says of some shapes that it supports them and aborts when they come: at build 10068 with
    rocWMMA on, head size 320, which its selection sends there and the kernel does not have. Such kinds
    are left out on both sides; more than a few are no shapes, but a backend that does not run.

    Raises RecordedRunFailed when a case is not named, or when too many kinds abort.
    """
    left = tuple(cases)
    aborting: list[str] = []
    while True:
        try:
            return left, run(left), tuple(aborting)
        except RecordedRunFailed as error:
            culprit = next((case for case in left if case.id == error.case), None)
            if culprit is None or len(aborting) == _MOST_ABORTING:
                raise
            kind = _kind(culprit)
            before = len(left)
            left = tuple(case for case in left if _kind(case) != kind)
            shape = f"head size {kind[0]}/{kind[1]}, {kind[2]} query heads per KV head"
            aborting.append(
                f"{shape} ({before - len(left)} cases): the baseline itself aborts in case {culprit.id}"
            )


def _kind(case: Case) -> tuple[int, int, int]:
    """What upstream's selection and kernels tell apart first."""
    return (case.head_size, case.head_size_v, case.gqa)


@contextmanager
def _blaming_the_candidate() -> Iterator[None]:
    """What the baseline did not do is the candidate's fault, not the recorder's."""
    try:
        yield
    except (RecordedRunFailed, RecordedRunHangs) as error:
        raise CandidateAborts(error.message, why=error.why, hint=error.hint) from error


@lru_cache(maxsize=256)  # asked for by a rule and by the report
def last_step(recorded: RecordedRun) -> tuple[Launch, ...]:
    """The launches of the last graph: the last chunk of the prompt, or the last generated token."""
    steps = recorded.recording().sections[0].steps
    return steps[-1] if steps else ()


def _benches(
    sessions: tuple[Session, Session], runs: Sequence[BenchRun], compiler: Compiler
) -> list[RecordedRun]:
    def work(item: tuple[Session, BenchRun]) -> RecordedRun:
        session, run = item
        if session is sessions[0]:
            return session.run_bench(run)
        with _blaming_the_candidate():
            return session.run_bench(run)

    return run_parallel(
        [(session, run) for run in runs for session in sessions],
        work,
        reporter=compiler.reporter,
        what=f"llama-bench as {sessions[0].device.arch}",
        unit="runs",
        stop=compiler.stop,
    )


_FILES = ("mmq", "mmvq")  # how upstream's files about them begin, builds 6900 to 11549
_BOUNDED = ("mul_mat_q", "mul_mat_vec_q")  # compiled for one block size, as attention is
_AROUND = ("quantize_",)


def about_matrices(patches: Iterable[PatchPart]) -> tuple[str, ...]:
    """The ids of the patches that change a file of the matrix kernels."""
    return tuple(
        patch.id
        for patch in patches
        if any(path.rpartition("/")[2].startswith(_FILES) for path in (*patch.touched, *patch.new_files))
    )


def is_matrix(launch: Launch) -> bool:
    """Whether it belongs to the product with a quantized matrix."""
    return launch.kernel.name.base.startswith((*_BOUNDED, *_AROUND))


def check_matrices(compared: Comparison, guarded: Guarded) -> list[PatchkitError]:
    """Matrix kernels that are launched have code, which is no trap, and the block they are compiled for.

    Code is known of the units that a patch touches. What the baseline does alike is upstream's own.
    """
    broken: dict[type[GateError], list[str]] = {}
    for run, before, after in _runs(compared):
        own = {(kind, how) for _, kind, how in _broken(before, guarded.before)}
        for launch, kind, how in _broken(after, guarded):
            if (kind, how) not in own:
                broken.setdefault(kind, []).append(f"{run}: {launch.kernel.name} {how}".rstrip())
    arch = guarded.device.arch
    hint = "the logs are named in the evidence"
    return [
        finding(kind, f"{arch}: a quantized matrix {_SAYS[kind]}", examples, hint=hint)
        for kind, examples in broken.items()
    ]


def matrix_lines(compared: Comparison) -> Iterator[str]:
    """One line per run of a quantized model: which kernels with how many threads, before and after."""
    runs = _runs(compared)
    if runs:
        yield "quantized matrices, kernel x launches of threads per block:"
    for run, before, after in runs:
        old, new = _told(before), _told(after)
        yield f"  {run.test:6}{old}{f' -> {new}' if new != old else ', as before'}"


def unshown_matrices(compared: Comparison, about: Sequence[str]) -> list[str]:
    """What was not shown: patches about matrices of which no recorded launch tells anything."""
    differ = any(_shapes(before) != _shapes(after) for _, before, after in _runs(compared))
    if differ or not about:
        return []
    types = " ".join(dict.fromkeys(kind for run, _, _ in _runs(compared) for kind in run.model.weights))
    return [f"{' '.join(about)} on {compared.device.arch}: no launch of our models ({types}) shows an effect"]


_SAYS: dict[type[GateError], str] = {
    KernelMissing: "launches a kernel that is not in its code object",
    KernelTraps: "launches a kernel that is a trap",
    BlockMismatch: "launches blocks of another size than the kernel is compiled for",
}


def _runs(compared: Comparison) -> list[tuple[BenchRun, RecordedRun, RecordedRun]]:
    return [each for each in compared.benches if each[0].model.weights]


def _broken(recorded: RecordedRun, guarded: Guarded) -> Iterator[tuple[Launch, type[GateError], str]]:
    for launch in filter(is_matrix, last_step(recorded)):
        code = code_of(launch, guarded.code)
        if code is None:
            known = [unit for unit in launch.kernel.units if unit in guarded.code]
            if known:
                yield launch, KernelMissing, f"of {known[0]}"
        elif code.is_trap:
            yield launch, KernelTraps, ""
        elif launch.kernel.name.base in _BOUNDED and code.threads != launch.threads:
            how = f"with {launch.threads} threads per block, compiled for {code.threads}"
            yield launch, BlockMismatch, how


def _shapes(recorded: RecordedRun) -> list[tuple[object, ...]]:
    return [
        (launch.kernel.name, launch.grid, launch.block, launch.lds)
        for launch in filter(is_matrix, last_step(recorded))
    ]


def _told(recorded: RecordedRun) -> str:
    counted = Counter(
        (launch.kernel.name.base, launch.threads)
        for launch in last_step(recorded)
        if launch.kernel.name.base in _BOUNDED
    )
    return (
        ", ".join(f"{base} x{count} of {threads}" for (base, threads), count in sorted(counted.items()))
        or "nothing"
    )
