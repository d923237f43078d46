"""The machine that is measured: llama-bench of each arm, and the gates that check an arm's results."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, UsageError
from patchkit.base.files import FileStamp, file_stamp
from patchkit.base.reporter import Reporter
from patchkit.base.store import store_in
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.orphans import wait_for_orphans
from patchkit.gpu.hardware.bench.program import LlamaBench
from patchkit.gpu.hardware.bench.rows import BenchRow
from patchkit.gpu.hardware.runner import LocalRunner, Runner, SshRunner
from patchkit.prove.bench.test_list import WantedTest, plans_of
from patchkit.prove.build import CandidateBuildFailed, Machine, Sides, check_device, use_sides
from patchkit.prove.gates.backend_ops import NAME as BACKEND_OPS
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.logits import LogitsGate
from patchkit.prove.gates.logits_scenes import ModelGroup
from patchkit.prove.gates.record import find_gate
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.decide import Visit
from patchkit.prove.pick.factorial import Arm
from patchkit.prove.pick.meter import Sampled
from patchkit.prove.subject import lock_evidence
from patchkit.prove.verify.kept import own_code
from patchkit.prove.verify.reuse import machine_facts
from patchkit.toolchain.hip import toolchain_identity
from patchkit.toolchain.sides import BuiltSide

_CASE = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\(")
_SHOWN = 200  # characters of a case


def arm_text(arm: Arm) -> str:
    """The arm as short text."""
    return f"{len(arm)} patches" if len(arm) > 1 else arm[0] if arm else "upstream"


@dataclass(slots=True, kw_only=True)
class BenchSource:
    """``models`` by name; ``plan`` has options that all tests share; ``folder`` gets output of failed runs.

    ``stamps``: the model files when they were hashed; a file that changed is not measured. ``groups``: the
    small models whose logits are checked; None: those of the kinds that a patch can affect. ``is_fresh``:
    check arms again that were right on this machine before.
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
    groups: tuple[ModelGroup, ...] | None = None
    is_fresh: bool = False
    clock: Callable[[], float] = time.monotonic
    _session: str = field(default_factory=lambda: secrets.token_hex(4))
    _program: LlamaBench = field(init=False)
    _wrong_ops: tuple[str, ...] = ()
    _count: int = 0

    def __post_init__(self) -> None:
        self._program = LlamaBench(runner=self.runner, timeout_s=self.timeout_s, check_talk=self._check_talk)

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Build those arms that are not built yet."""
        wanted = list(dict.fromkeys(arms))
        for number, arm in enumerate(wanted, start=1):
            self.reporter.step(f"build {number} of {len(wanted)}: {arm_text(arm)}")
            self._side(arm)
        if isinstance(self.runner, LocalRunner):
            wait_for_orphans(
                [self._side(arm).program(llama_cpp().programs.bench) for arm in wanted], self.reporter
            )

    def sample(self, visit: Visit) -> Sampled:
        """Run llama-bench once per depth.

        Raises as :class:`LlamaBench`, and MODEL_CHANGED if the model's file is not the one that was hashed.
        """
        side = self._side(visit.arm)
        start = self.clock()
        samples: dict[str, tuple[int, ...]] = {}
        conditions: dict[str, str] = {}
        device = None if self.machine.is_cpu else self.machine.device
        for plan in plans_of(self.tests, replace(self.plan, device=device)):
            call = self._program.call(
                side.folder,
                self.models[visit.model],
                plan,
                tag=self._tag(),
                what=f"llama-bench of {arm_text(visit.arm)}",
                failed=self.folder / "failed.log",
                env=side.environment,
            )
            samples |= {_name(row): row.samples_ns for row in call.rows}
            conditions |= call.conditions
        self._check_model(visit.model)
        return Sampled(samples_ns=samples, seconds=self.clock() - start, conditions=conditions)

    def _check_model(self, name: str) -> None:
        """Raise if the file was replaced: another file with that name would count as the same model."""
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
                why="the file was replaced" if now else "the file no longer exists",
                hint="restore the file and run the same command to continue, or start over with --fresh",
            )

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """Run backend-ops and logits for an arm on this machine.

        A search for the faulty patch runs only the operations that are known to be wrong. Arms that were
        right here before are not checked again, which saves minutes when only models or tests differ.
        """
        self.reporter.step(
            f"{'searching for the faulty patch' if is_search else 'checking results'}: {arm_text(arm)}"
        )
        self._side(())
        try:
            if is_search:
                self._share(arm)
            else:
                self.arms.build_alone(arm, self.machine.backend)
        except CandidateBuildFailed as error:
            return f"it does not build: {error.message}"
        with lock_evidence(self.arms.workspace.cache_root, self.tree_of(arm), self.reporter):
            return self._fault_of(arm, is_search=is_search)

    def _share(self, arm: Arm) -> None:
        """Let the gates run an arm as it is measured, in a build with other patches that are turned off."""
        sides = Sides(before=self._side(()), after=self._side(arm))
        use_sides(self.arms.subject(arm), self.machine.backend, sides, is_timed=not self.machine.is_cpu)

    def _fault_of(self, arm: Arm, *, is_search: bool) -> str | None:
        right, key = store_in(self.arms.workspace.cache_root, "right"), self._right_key(arm)
        if not self.is_fresh and right.read(key) is not None:
            self.reporter.info(
                f"{arm_text(arm)}: right on this machine before, with the same trees and tools"
            )
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
            return f"{describe_failure(result)}{self._emulated_word(arm)}"
        if is_search and self._wrong_ops:
            return None  # the faulty operations ran above; logits of ten models would take minutes
        logits = LogitsGate(machine=self.machine, elsewhere=elsewhere, groups=self.groups, is_sample=True)
        result = logits.run(subject)
        if result.verdict == "failed":
            return f"{describe_failure(result)}{self._emulated_word(arm)}"
        right.write(key, arm_text(arm).encode())
        return None

    def _right_key(self, arm: Arm) -> str:
        """The key under which a passed check is kept: a digest of all that the gates of an arm depend on."""
        subject = self.arms.subject(arm)
        toolchain = subject.toolchain
        return key_of(
            {
                "patchkit": own_code(),
                "trees": [self.tree_of(()), self.tree_of(arm)],
                "builds": [self._side(()).identity, self._side(arm).identity],
                "toolchain": None if toolchain is None else toolchain_identity(toolchain),
                "device": self.machine.label,
                "runner": self.runner.name,
                "machine": machine_facts(self.runner),
                "models": None if self.groups is None else [group.label for group in self.groups],
            }
        )

    def tree_of(self, arm: Arm) -> str:
        """The hash of an arm's tree."""
        return self.arms.tree_of(arm)

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        return self.hashes[model]

    def _side(self, arm: Arm) -> BuiltSide:
        return self.arms.build(arm, self.machine.backend)

    def _check_talk(self, talk: str, where: Path) -> None:
        check_device(self.machine, talk, self.arms.whole.archs, where)

    def _tag(self) -> str:
        self._count += 1
        return f"{self._session}-{self._count}"

    def _emulated_word(self, arm: Arm) -> str:
        """The result of the emulated GPU for the same trees, if it ran; a difference is worth a report."""
        if self.machine.backend != "hip":
            return ""
        subject = self.arms.subject(arm)
        found = find_gate(subject.cache_root, subject.candidate_tree, BACKEND_OPS)
        if found is None:
            return "; not run on the emulated GPU (patchkit verify --emulated --gate backend-ops)"
        if found.verdict == "failed":
            return "; it also fails on the emulated GPU"
        return f"; on the emulated GPU the result is '{found.verdict}': please report this difference"


def _name(row: BenchRow) -> str:
    test = row.test
    return WantedTest(depth=test.depth, prompt=test.prompt, generated=test.generated).name


def _whys(result: GateResult) -> str:
    return "\n".join(f"{problem.message}\n{problem.why or ''}" for problem in result.problems)


def describe_failure(result: GateResult) -> str:
    """The first problem of a gate, with its first case."""
    problem = result.problems[0]
    lines = [line for line in (problem.why or "").splitlines() if line.strip()]
    return f"{result.gate}: {problem.message}" + (
        f", for example {lines[0].strip()[:_SHOWN]}" if lines else ""
    )
