"""The machine that is measured: llama-bench of each arm, and the gates that say whether an arm is right."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable
from patchkit.base.errors import Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import FileStamp, disk_errors, file_stamp, write_whole
from patchkit.base.reporter import Reporter
from patchkit.carry.upstream.cache import alone_with
from patchkit.gpu.hardware.bench.conditions import read_conditions
from patchkit.gpu.hardware.bench.options import BenchOptions, BenchPlan, bench_arguments
from patchkit.gpu.hardware.bench.program import (
    ask_options,
    check_rows,
    keep_output,
    read_output,
    run_bench_program,
)
from patchkit.gpu.hardware.bench.rows import BenchRow
from patchkit.gpu.hardware.runner import LocalRunner, Runner, SshRunner
from patchkit.prove.bench.sweep import wait_for_orphans
from patchkit.prove.build import CandidateBuildFailed, Machine, check_device
from patchkit.prove.gates.backend_ops import NAME as BACKEND_OPS
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.logits import LogitsGate
from patchkit.prove.gates.logits_scenes import Group
from patchkit.prove.gates.record import read_gate
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.crossing import Arm
from patchkit.prove.pick.decide import Visit
from patchkit.prove.pick.journal import Sampled
from patchkit.prove.pick.wanted import WantedTest, plans_of
from patchkit.prove.verify.kept import own_code
from patchkit.prove.verify.reuse import machine_facts
from patchkit.toolchain.hip import toolchain_identity
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.store import key_of

_BETWEEN_LOOKS_S = 10.0  # at temperatures and clocks
_CASE = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\(")
_SHOWN = 200  # characters of a case


def told_arm(arm: Arm) -> str:
    """The arm in a few words."""
    return f"{len(arm)} patches" if len(arm) > 1 else arm[0] if arm else "upstream"


@dataclass(slots=True, kw_only=True)
class BenchSource:
    """``models`` by name; ``plan`` has what all tests share; ``folder`` gets outputs of runs that failed.

    ``stamps``: the files of models as they were when they were hashed; one that changed is not measured on.
    ``groups``: the small models whose logits are looked at; None: those of the kinds that a patch can change.
    ``is_fresh``: what was right on this machine before is checked again.
    """

    arms: Arms
    machine: Machine
    runner: Runner
    models: Mapping[str, Path]
    hashes: Mapping[str, str]
    tests: Sequence[WantedTest]
    plan: BenchPlan
    timeout_s: float
    folder: Path
    reporter: Reporter
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    groups: tuple[Group, ...] | None = None
    is_fresh: bool = False
    clock: Callable[[], float] = time.monotonic
    _session: str = field(default_factory=lambda: secrets.token_hex(4))
    _options: dict[str, BenchOptions] = field(default_factory=dict)
    _looked: float | None = None
    _wrong_ops: tuple[str, ...] = ()
    _count: int = 0

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Build what is missing of these."""
        wanted = list(dict.fromkeys(arms))
        for number, arm in enumerate(wanted, start=1):
            self.reporter.step(f"build {number} of {len(wanted)}: {told_arm(arm)}")
            self._side(arm)
        if isinstance(self.runner, LocalRunner):
            wait_for_orphans([self._side(arm).program("llama-bench") for arm in wanted], self.reporter)

    def sample(self, visit: Visit) -> Sampled:
        """Run llama-bench once per depth; raises as :class:`patchkit.prove.bench.sweep.Sweep`.

        And MODEL_CHANGED: the model's file is not the one that was hashed.
        """
        side = self._side(visit.arm)
        options = self._asked(side)
        began = self.clock()
        samples: dict[str, tuple[int, ...]] = {}
        for plan in plans_of(self.tests, self.plan):
            rows = self._run(visit, side, options, plan)
            samples |= {_name(row): row.samples_ns for row in rows}
        wanted = {test.name for test in self.tests}
        if set(samples) != wanted:
            raise ToolchainError(
                f"llama-bench measured {sorted(samples)} where {sorted(wanted)} were asked for",
                code="BENCH_TESTS_UNASKED",
                where=Location(path=str(side.folder)),
                hint="look at it with llama-bench --help; the options of this build may mean something else",
            )
        self._check_model(visit.model)
        conditions = self._conditions()
        return Sampled(samples_ns=samples, seconds=self.clock() - began, conditions=conditions)

    def _check_model(self, name: str) -> None:
        """What was just measured is what was hashed: another file of that name would count as the same."""
        path = self.models[name]
        try:
            now = file_stamp(path)
        except OSError:
            now = None
        if name in self.stamps and now != self.stamps[name]:
            raise UsageError(
                f"the model {name} changed while it was measured",
                code="MODEL_CHANGED",
                where=Location(path=str(path)),
                why="it is another file now" if now else "it is gone",
                hint="the same command goes on once it is what it was; another model is another measurement",
            )

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What backend-ops and logits say of an arm on this machine.

        The search for the patch looks at those operations alone that are known to be wrong. What
        was right here before is not checked again: minutes, when other models or tests are asked for.
        """
        self.reporter.step(f"{'which patch is wrong' if is_search else 'right or wrong'}: {told_arm(arm)}")
        self._side(())
        try:
            self._side(arm)
        except CandidateBuildFailed as error:
            return f"it does not build: {error.message}"
        # Gates read what they wrote: with four at once one took another's half-written file (2026-11-27).
        folder = self.arms.workspace.cache_root / "evidence" / self.tree_of(arm)
        with alone_with(folder, self.reporter, f"waiting for another patchkit that checks {told_arm(arm)}"):
            return self._fault_of(arm, is_search=is_search)

    def _fault_of(self, arm: Arm, *, is_search: bool) -> str | None:
        right = self._right_before(arm)
        if right.is_file() and not self.is_fresh:
            self.reporter.info(f"{told_arm(arm)}: was right on this machine before, same trees and tools")
            return None
        subject = self.arms.subject(arm)
        elsewhere = self.runner if isinstance(self.runner, SshRunner) else None
        ops = BackendOpsGate(
            machine=self.machine, elsewhere=elsewhere, ops=self._wrong_ops if is_search else ()
        )
        result = ops.run(subject)
        is_wrong = result.verdict == "failed"
        if not is_search:
            self._wrong_ops = tuple(sorted(set(_CASE.findall(_whys(result))))) if is_wrong else ()
        if is_wrong:
            return f"{told_failure(result)}{self._emulated_word(arm)}"
        if is_search and self._wrong_ops:
            return None  # what was wrong was seen above; logits of ten models take minutes
        logits = LogitsGate(machine=self.machine, elsewhere=elsewhere, groups=self.groups, is_sample=True)
        result = logits.run(subject)
        if result.verdict == "failed":
            return f"{told_failure(result)}{self._emulated_word(arm)}"
        write_whole(right, f"{told_arm(arm)}\n", "noting what is right")
        return None

    def _right_before(self, arm: Arm) -> Path:
        """The file that is there when the arm passed, and nothing that the gates look at has changed."""
        subject = self.arms.subject(arm)
        toolchain = subject.toolchain
        key = key_of(
            {
                "patchkit": own_code(),
                "trees": [self.tree_of(()), self.tree_of(arm)],
                "builds": [self._side(()).identity, self._side(arm).identity],
                "toolchain": None if toolchain is None else toolchain_identity(toolchain),
                "device": self.machine.told,
                "runner": self.runner.name,
                "machine": machine_facts(self.runner),
                "models": None if self.groups is None else [group.told for group in self.groups],
            }
        )
        return subject.cache_root / "pick" / "right" / key

    def tree_of(self, arm: Arm) -> str:
        """The hash of the tree of an arm."""
        return self.arms.tree_of(arm)

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        return self.hashes[model]

    def _side(self, arm: Arm) -> BuiltSide:
        return self.arms.build(arm, self.machine.backend)

    def _run(
        self, visit: Visit, side: BuiltSide, options: BenchOptions, plan: BenchPlan
    ) -> tuple[BenchRow, ...]:
        what = f"llama-bench of {told_arm(visit.arm)}"
        failed = self.folder / "failed.log"
        device = None if self.machine.is_cpu else self.machine.device
        model = self.runner.place(self.models[visit.model])
        try:
            done = run_bench_program(
                self.runner,
                side.folder,
                bench_arguments(options, replace(plan, device=device), model),
                tag=self._tag(),
                timeout_s=self.timeout_s,
                what=what,
                failed=failed,
            )
        except ToolchainError as error:
            if error.code == "BENCH_HUNG":
                error.hint = f"run the command again to go on; give it more with --timeout; {error.hint}"
            raise
        try:
            rows = read_output(done, failed)
            check_rows(rows, device)
            talk = done.stderr.decode("utf-8", "replace")
            check_device(self.machine, talk, self.arms.whole.archs, failed)
        except PatchkitError:
            keep_output(failed, done.stdout + done.stderr)
            raise
        return rows

    def _asked(self, side: BuiltSide) -> BenchOptions:
        """How this build spells its options; builds of equal programs are asked once."""
        key = next(built.part.key for built in side.parts if built.part.name == "programs")
        if key not in self._options:
            with disk_errors(self.folder, "preparing a measurement"):
                self.folder.mkdir(parents=True, exist_ok=True)
            self._options[key] = ask_options(
                self.runner, side.folder, tag=self._tag(), label="the build", kept=self.folder
            )
        return self._options[key]

    def _conditions(self) -> dict[str, str]:
        now = self.clock()
        if self._looked is not None and now - self._looked < _BETWEEN_LOOKS_S:
            return {}
        self._looked = now
        return read_conditions(self.runner, self._tag())

    def _tag(self) -> str:
        self._count += 1
        return f"{self._session}-{self._count}"

    def _emulated_word(self, arm: Arm) -> str:
        """What the emulated GPU said of the same trees, if it was ever asked: a difference is a finding."""
        if self.machine.backend != "hip":
            return ""
        subject = self.arms.subject(arm)
        path = subject.cache_root / "evidence" / subject.candidate_tree / f"{BACKEND_OPS}.json"
        try:
            found = read_gate(path.read_bytes(), str(path))
        except (OSError, EvidenceUnreadable, EvidenceMalformed):
            return "; the emulated GPU was not asked (patchkit verify --emulated --gate backend-ops)"
        if found.verdict == "failed":
            return "; the emulated GPU says the same"
        return f"; the emulated GPU said otherwise ({found.verdict}): please report that"


def _name(row: BenchRow) -> str:
    test = row.test
    return WantedTest(depth=test.depth, prompt=test.prompt, generated=test.generated).name


def _whys(result: GateResult) -> str:
    return "\n".join(f"{problem.message}\n{problem.why or ''}" for problem in result.problems)


def told_failure(result: GateResult) -> str:
    """The first problem of a gate, with the first case of it."""
    problem = result.problems[0]
    lines = [line for line in (problem.why or "").splitlines() if line.strip()]
    return f"{result.gate}: {problem.message}" + (f", as {lines[0].strip()[:_SHOWN]}" if lines else "")
