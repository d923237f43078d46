"""Recording the cases and small models of one GPU, before and after."""

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
from patchkit.gpu.emulated.device import PlayedDevice
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


Bench = tuple[BenchRun, RecordedRun, RecordedRun]  # a run of llama-bench, before and after


class CandidateAborts(GateError):
    """The candidate's host code aborts, crashes or never ends in a run that the baseline ends well."""

    code = "LAUNCH_ABORTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePair:
    """One case on one GPU, before and after."""

    case: Case
    before: CaseRecord[Case]
    after: CaseRecord[Case]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two backends, and the code of both that is known, by GPU of the candidate."""

    before: RecordedBackend
    after: RecordedBackend
    code: Mapping[str, tuple[Code, Code]]

    def kernels(self, arch: str) -> list[dict[str, CompiledKernel]]:
        """The kernels of each side; without code for a GPU they are assumed to be large."""
        both = self.code.get(arch, ({}, {}))
        return [{name: kernel for unit in code.values() for name, kernel in unit.items()} for code in both]

    def sessions(self, device: PlayedDevice, compiler: Compiler) -> tuple[Session, Session]:
        """Both on one GPU."""
        old, new = self.kernels(device.arch)
        return (
            Session(backend=self.before, device=device, kernels=old, compiler=compiler),
            Session(backend=self.after, device=device, kernels=new, compiler=compiler),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One GPU. ``cases`` are the runs of all cases, before and after.

    ``aborting``: what was not asked of either side, because upstream's own code ends the process there.
    """

    device: PlayedDevice
    support: tuple[tuple[OpRow, ...], tuple[OpRow, ...]]
    asked: tuple[Case, ...]
    not_understood: tuple[str, ...]
    aborting: tuple[str, ...] = ()
    cases: tuple[RecordedRun, RecordedRun]
    benches: tuple[Bench, ...]

    @property
    def cases_identical(self) -> bool:
        """Whether both sides launched exactly the same for every case."""
        return self.cases[0].digest == self.cases[1].digest

    @property
    def quantized(self) -> tuple[Bench, ...]:
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
