"""Record the cases and small models of one GPU, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from patchkit.base.errors import GateError
from patchkit.base.jobs import run_parallel
from patchkit.gpu.emulated.cases import (
    Case,
    CaseNotUnderstood,
    OpRow,
    own_cases,
    upstream_case,
    without_aborts,
)
from patchkit.gpu.emulated.device import EmulatedDevice
from patchkit.gpu.emulated.log import Launch
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.runtime import RecordedBackend
from patchkit.gpu.emulated.session import (
    BenchRun,
    CaseRecord,
    RecordedRun,
    RecordedRunFailed,
    RecordedRunHangs,
    Session,
)
from patchkit.prove.gates.launch.geometry import Code
from patchkit.toolchain.compile import CompiledKernel
from patchkit.toolchain.compiler import Compiler

_HEAD_SIZES = (64, 128, 256)
_PROMPT, _GENERATED = 512, 4
# Generation ends at a multiple of 256 tokens, because llama-bench sizes the KV cache to depth plus tokens,
# and the selection of build 6900 takes another branch for a KV length that is not a multiple of 256.
_SHALLOW = (0, 4096)
_DEEP = (0, 4096, 16384, 65536)
_FIRST = 256  # the smallest such end
# MMQ and MMVQ: decode, and batch sizes at which a GPU's limits matter. By default MMVQ takes up to 8 columns,
# MMQ up to 64 on GPUs whose matrix units it does not use, and hipBLAS the rest (both at build 6900). The
# table of MMQ blocks that a patch changes starts at 48.
_QUANTIZED = SmallModel(head_size=64, weights=("Q4_K", "Q6_K", "Q8_0"))
_COLUMNS = (5, 48, _PROMPT)


BenchPair = tuple[BenchRun, RecordedRun, RecordedRun]  # a run of llama-bench, before and after


class CandidateAborts(GateError):
    """The candidate's host code aborts, crashes or hangs in a run that the baseline completes."""

    code = "LAUNCH_ABORTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePair:
    """One case on one GPU, before and after."""

    case: Case
    before: CaseRecord[Case]
    after: CaseRecord[Case]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSides:
    """The two backends, and the known code of both by GPU of the candidate."""

    before: RecordedBackend
    after: RecordedBackend
    code: Mapping[str, tuple[Code, Code]]

    def kernels(self, arch: str) -> list[dict[str, CompiledKernel]]:
        """The kernels of each side; without code for a GPU, kernels are assumed to be large."""
        both = self.code.get(arch, ({}, {}))
        return [{name: kernel for unit in code.values() for name, kernel in unit.items()} for code in both]

    def sessions(self, device: EmulatedDevice, compiler: Compiler) -> tuple[Session, Session]:
        """Both sides on one GPU."""
        old, new = self.kernels(device.arch)
        return (
            Session(backend=self.before, device=device, kernels=old, compiler=compiler),
            Session(backend=self.after, device=device, kernels=new, compiler=compiler),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One GPU. ``cases`` are the runs of all cases, before and after.

    ``aborting``: cases that ran on neither side, because upstream's own code ends the process there.
    """

    device: EmulatedDevice
    support: tuple[tuple[OpRow, ...], tuple[OpRow, ...]]
    asked: tuple[Case, ...]
    not_understood: tuple[str, ...]
    aborting: tuple[str, ...] = ()
    cases: tuple[RecordedRun, RecordedRun]
    benches: tuple[BenchPair, ...]

    @property
    def cases_identical(self) -> bool:
        """Whether both sides made exactly the same launches for every case."""
        return self.cases[0].digest == self.cases[1].digest

    @property
    def quantized(self) -> tuple[BenchPair, ...]:
        """The runs of models with quantized matrices."""
        return tuple(each for each in self.benches if each[0].model.weights)

    def pairs(self) -> list[CasePair]:
        """Every case before and after. Raises RecordingUnreadable, RecordingIncomplete."""
        before, after = (run.records(self.asked) for run in self.cases)
        return [
            CasePair(case=case, before=old, after=new)
            for case, old, new in zip(self.asked, before, after, strict=True)
        ]


def known_cases(rows: Sequence[OpRow]) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Upstream's cases and patchkit's, and the parameters of upstream's cases that cannot be built here."""
    cases: list[Case] = []
    unknown: list[str] = []
    for number, row in enumerate(rows):
        try:
            cases.append(upstream_case(row.params, number))
        except CaseNotUnderstood:
            unknown.append(row.params)
    return (*cases, *own_cases()), tuple(unknown)


def bench_runs(*, deep: bool, matrices: bool) -> tuple[BenchRun, ...]:
    """One prompt and one generation per model and depth; ``deep`` reaches 65536 tokens.

    With ``matrices`` also quantized weights, in batches of few and of many columns.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRuns:
    """The runs of one GPU; ``deep`` and ``matrices`` as for :func:`bench_runs`."""

    device: EmulatedDevice
    deep: bool
    matrices: bool


def compare_all(
    wanted: Sequence[GpuRuns], sides: RecordedSides, compiler: Compiler
) -> list[Comparison | CandidateAborts]:
    """Run everything for every GPU, both sides; results are in the order of ``wanted``.

    GPUs do not wait for each other: a list of cases is one program that takes as long as 30 runs of
    llama-bench. If the candidate's host code fails on a GPU where the baseline's does not, the result for
    that GPU is the error, and its other runs are skipped, because each of them may hang.

    Raises:
        RecordedRunFailed, RecordedRunHangs: the baseline failed, and not only for single shapes.
        RECORDER_MISCONFIGURED, SupportMalformed: unexpected output of a program or of the recorder.
    """
    sessions = [sides.sessions(one.device, compiler) for one in wanted]
    runs = [bench_runs(deep=one.deep, matrices=one.matrices) for one in wanted]
    aborted: dict[int, CandidateAborts] = {}

    def cases_of(number: int) -> _Cases | None:
        try:
            return _record_cases(*sessions[number])
        except CandidateAborts as error:
            aborted[number] = error
            return None

    def bench_of(item: tuple[int, int, BenchRun]) -> RecordedRun | None:
        number, side, run = item
        if number in aborted:
            return None
        try:
            return _record_bench(sessions[number], side, run)
        except CandidateAborts as error:
            aborted.setdefault(number, error)
            return None

    cases = run_parallel(
        range(len(wanted)),
        cases_of,
        reporter=compiler.reporter,
        what="attention cases",
        unit="GPUs",
        stop=compiler.stop,
    )
    items = [(number, side, run) for number in range(len(wanted)) for run in runs[number] for side in (0, 1)]
    recorded = run_parallel(
        items, bench_of, reporter=compiler.reporter, what="llama-bench", unit="runs", stop=compiler.stop
    )
    benched = {item: done for item, done in zip(items, recorded, strict=True) if done is not None}
    found: list[Comparison | CandidateAborts] = []
    for number, (one, of_cases) in enumerate(zip(wanted, cases, strict=True)):
        if of_cases is None or number in aborted:
            found.append(aborted[number])
            continue
        found.append(
            Comparison(
                device=one.device,
                support=of_cases.support,
                asked=of_cases.asked,
                not_understood=of_cases.not_understood,
                aborting=of_cases.aborting,
                cases=of_cases.runs,
                benches=tuple(
                    (run, benched[number, 0, run], benched[number, 1, run]) for run in runs[number]
                ),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """The cases of one GPU, as in :class:`Comparison`."""

    support: tuple[tuple[OpRow, ...], tuple[OpRow, ...]]
    asked: tuple[Case, ...]
    not_understood: tuple[str, ...]
    aborting: tuple[str, ...]
    runs: tuple[RecordedRun, RecordedRun]


def _record_cases(before: Session, after: Session) -> _Cases:
    """Record all cases of one GPU, both sides. Raises as :func:`compare_all`, and CandidateAborts."""
    old_support = before.support()
    known, unknown = known_cases(old_support)
    asked, old_cases, aborting = without_aborts(before.run_cases, known)
    with _blaming_the_candidate():
        new_support, new_cases = after.support(), after.run_cases(asked)
    return _Cases(
        support=(old_support, new_support),
        asked=asked,
        not_understood=unknown,
        aborting=aborting,
        runs=(old_cases, new_cases),
    )


def _record_bench(sessions: tuple[Session, Session], side: int, run: BenchRun) -> RecordedRun:
    if side == 0:
        return sessions[0].run_bench(run)
    with _blaming_the_candidate():
        return sessions[1].run_bench(run)


@contextmanager
def _blaming_the_candidate() -> Iterator[None]:
    """Turn errors into errors of the candidate: the baseline's run succeeded."""
    try:
        yield
    except (RecordedRunFailed, RecordedRunHangs) as error:
        raise CandidateAborts(error.message, why=error.why, hint=error.hint) from error


@lru_cache(maxsize=256)  # used by a rule and by the report
def last_step(recorded: RecordedRun) -> tuple[Launch, ...]:
    """The launches of the last graph: the last chunk of the prompt, or the last generated token."""
    steps = recorded.recording().sections[0].steps
    return steps[-1] if steps else ()
