"""The loop of somebody who tunes a kernel: what became of it since, in one table.

The series as it stands is placed on the pin and written as commits that no branch names. What its kernels
cost is compared with the candidate that there is, or with upstream; then the operations run on the emulated
GPU and the shapes that patches name on the timing model, as ``verify`` runs them. Where all kernels of the
units that changed are of some types of tensors, only cases and shapes of those types are looked at, and the
summary says so: that is no evidence and none is written.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable
from patchkit.base.errors import GitError, PatchkitError
from patchkit.base.jobs import cores, local_pool, run_tasks
from patchkit.base.occupancy import limits_of
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.onto.pin import Onto
from patchkit.carry.onto.plan import place_request
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.modelled.operation import name_of_type
from patchkit.prove.build import Machine
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.emulated import choose_emulated
from patchkit.prove.gates.record import read_gate
from patchkit.prove.gates.resources import KernelRow, demangle, kernel_rows
from patchkit.prove.gates.sides import sides_on
from patchkit.prove.gates.speed import SpeedEvidence, SpeedGate
from patchkit.prove.subject import Subject, lock_evidence, make_subject
from patchkit.prove.verify.hardware import Hardware, choose_hardware
from patchkit.prove.verify.reuse import Reusing
from patchkit.prove.verify.run import run_verify
from patchkit.toolchain.compile import CompiledUnit, compile_unit, device_job, kernel_code
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import check_archs, find_toolchain, rocwmma_for
from patchkit.toolchain.units import SourceTree, platform_units

Against = Literal["candidate", "upstream"]

GATES = ("backend-ops", "speed")
"""What runs behind the compiler: is it right, and how fast by the timing model."""

# With the checks that verify has on: what the baseline did there is taken again, and verify finds this done.
_CHECKED = ("sanitize",)

# What differs in the assembly of equal code: comments, lines of the source, and numbers of labels.
_NOISE = re.compile(r"\s*;.*|^\s*\.(?:loc|file|cfi_\w+)\b.*|^\.L(?:tmp|func_\w+)\d+:", re.MULTILINE)
_TYPE = re.compile(r"\(ggml_type\)(\d+)")
_WORD = re.compile(rb"[A-Za-z_]\w+")
_LOWER = 9  # steps of priority below other compilers
_LABEL = re.compile(r"\.LBB\d+_|\.Ltmp\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedShape:
    """One shape of a patch, in modelled microseconds: as it was, and now; None where it does not run."""

    json_keys: ClassVar = "patch arch shape before_us now_us change"

    patch: str
    arch: str
    shape: str
    before_us: float | None
    now_us: float | None

    @property
    def change(self) -> float | None:
        """How much faster it is now, as a fraction."""
        if self.before_us is None or not self.now_us:
            return None
        return self.before_us / self.now_us - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of it. ``before`` names what it is compared with, ``tree`` and ``before_tree`` are hashes.

    ``commit`` is the one of the user's clone that it stands on, in short; None on a pin of the lock.
    ``units`` is how many units read differently, ``left_out`` how many of them nobody looked at, ``kernels``
    those whose code is not what it was; ``checked`` what the gates behind the compiler say, none of them when
    nothing changed or nobody asked.
    """

    json_keys: ClassVar = (
        "ok archs build commit before before_tree tree patches units left_out kernels checked=checks "
        "shapes seconds"
    )

    archs: tuple[str, ...]
    build: int
    commit: str | None
    before: str
    before_tree: str
    tree: str
    patches: tuple[str, ...]
    units: int
    left_out: int
    kernels: tuple[KernelRow, ...]
    checked: tuple[GateResult, ...]
    shapes: tuple[TriedShape, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def checks(self) -> list[dict[str, str]]:
        """What the gates found, without their evidence."""
        return [
            {"gate": gate.gate, "verdict": gate.verdict, "summary": gate.summary} for gate in self.checked
        ]

    @property
    def failed(self) -> bool:
        """Whether an operation is wrong, or slower than the model's error allows."""
        return any(gate.verdict == "failed" for gate in self.checked)


def run_try(
    workspace: Workspace,
    request: Request,
    *,
    onto: Onto | None = None,
    against: Against,
    run: bool,
    environ: Mapping[str, str],
    likely: bool = False,
    hear: Callable[[Sequence[KernelRow]], None] | None = None,
) -> Tried:
    """Place, compile, compare, and with ``run`` emulate and model; ``onto`` a commit of the user's clone.

    ``hear`` is told the changed kernels of a unit as soon as it is compiled. Units that name what stands in
    changed lines come first: of a row of a table, most often the one that it is about. ``likely``: the others
    are left out, where there are such units.

    Raises:
        An ErrorGroup of what could not be placed.
        CompileFailed: a unit does not compile, on the side that its tree says.
        ToolchainMissing, SDK_COMPILER_LACKS_ARCH: no compiler, or none for these GPUs.
        What the gates, git and the disk raise.
    """
    began = time.monotonic()
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    check_archs(toolchain, request.archs, workspace.reporter)
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    cache = open_cache(workspace.cache_root)
    plan = place_request(request, onto, workspace)
    with cache.hold(workspace.reporter) as repository:
        candidate, _ = write_plan(plan, repository, unlocked=True)
    subject = make_subject(workspace, repository, candidate, toolchain)
    pin: PinWanted = plan.pin if onto is not None else request.upstream
    name, root, before_tree = _before(workspace, pin, repository, candidate, against)
    trees = SourceTree(root), SourceTree(subject.candidate)
    units, named = differing_units(*trees)
    wanted = named if likely and named else units
    is_run = run and before_tree != subject.candidate_tree and bool(candidate.commits)
    checked: tuple[GateResult, ...] = ()
    with ThreadPoolExecutor(1) as thread:
        behind = None
        if is_run:
            behind = _Behind(
                subject=subject, wanted=wanted, before=trees[0], compiler=compiler, thread=thread
            )
        try:
            if behind is not None:
                behind.begin()
            kernels, variants = _compare(wanted, trees, subject, compiler, hear or (lambda _: None))
            if behind is not None:
                at = plan.pin if onto is not None else plan.pin.name
                checked = _check(workspace, candidate, at, environ, behind, types_of(variants))
        except BaseException:
            subject.stop.set()  # nobody waits for what else was begun
            thread.shutdown(wait=False, cancel_futures=True)
            raise
    return Tried(
        archs=candidate.archs,
        build=candidate.build,
        commit=candidate.base[:12] if onto is not None else None,
        before=name,
        before_tree=before_tree,
        tree=subject.candidate_tree,
        patches=candidate.ids,
        units=len(units),
        left_out=len(units) - len(wanted),
        kernels=tuple(kernels),
        checked=checked,
        shapes=tuple(_shapes(checked, workspace.cache_root / "evidence" / before_tree / "speed.json")),
        seconds=round(time.monotonic() - began, 1),
    )


@dataclass(slots=True, kw_only=True)
class _Behind:
    """The gates behind the compiler. The code of a unit is one process: what needs none of it is done ahead.

    In a thread of their own, one after the other: the libraries of both sides, and how fast it is by the
    model, whose kernels are compiled one by one.
    """

    subject: Subject
    wanted: Sequence[str]
    before: SourceTree
    compiler: Compiler
    thread: ThreadPoolExecutor
    hardware: Hardware = field(init=False)
    _libraries: Future[None] | None = field(init=False, default=None)
    _speed: Future[tuple[tuple[str, ...], GateResult | None]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        _ = self.subject.trees  # made once: two threads ask for them
        self.hardware = choose_hardware(
            self.subject.archs, None, model=None, emulated=True, only=(*GATES, *_CHECKED)
        )

    @property
    def gates(self) -> dict[str, BackendOpsGate | SpeedGate]:
        """Those that can look at a part."""
        inner = [gate.inner if isinstance(gate, Reusing) else gate for gate in self.hardware.gates]
        return {gate.name: gate for gate in inner if isinstance(gate, BackendOpsGate | SpeedGate)}

    def begin(self) -> None:
        """What can be done ahead."""
        if all(name in self.gates for name in GATES):
            self._libraries = self.thread.submit(self._make_libraries)
            self._speed = self.thread.submit(self._model)

    def gate(self, name: str, types: tuple[str, ...]) -> GateResult:
        """What a gate says of some types. Raises what the gate raises."""
        if name == "speed" and self._speed is not None:
            known, result = self._speed.result()
            if result is not None and known == types:
                return result
        if self._libraries is not None:
            self._libraries.result()
        return replace(self.gates[name], types=types).run(self.subject)

    def _make_libraries(self) -> None:
        # Linux has a priority for each thread, and its compilers inherit it: the unit's code goes first.
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, min(mine + _LOWER, 19))
        emulated = choose_emulated(self.subject.archs)
        if emulated is not None:
            with (
                contextlib.suppress(PatchkitError),  # its gate says so
                sides_on(Machine(backend="hip", emulates=emulated), self.subject),
            ):
                pass

    def _model(self) -> tuple[tuple[str, ...], GateResult | None]:
        """Of the types that the units had before."""
        with contextlib.suppress(PatchkitError):
            types = types_of(self._known_kernels())
            if types and self.is_first:
                return types, replace(self.gates["speed"], types=types).run(self.subject)
        return (), None

    @property
    def is_first(self) -> bool:
        """Whether no earlier run looked at all cases: it says more than a few would."""
        ops = next((gate for gate in self.hardware.gates if gate.name == GATES[0]), None)
        return isinstance(ops, Reusing) and ops.earlier(self.subject) is None

    def _known_kernels(self) -> Iterable[str]:
        chain = self.compiler.toolchain
        has_rocwmma = rocwmma_for(chain, self.subject.archs[0]) is not None
        units = (
            compile_unit(device_job(self.before, unit, arch, rocwmma=has_rocwmma), self.compiler)
            for unit in self.wanted
            for arch in self.subject.archs
        )
        names = [kernel.name for unit in units for kernel in unit.kernels]
        return demangle(names, chain, self.compiler.reporter).values()


def _check(
    workspace: Workspace,
    candidate: Candidate,
    upstream: PinWanted,
    environ: Mapping[str, str],
    behind: _Behind,
    types: tuple[str, ...],
) -> tuple[GateResult, ...]:
    """What the gates behind the compiler say; they stop at the first that fails."""
    if types and behind.is_first:
        return tuple(_check_types(workspace, behind, types))
    here = {gate.name for gate in behind.hardware.gates}
    report = run_verify(
        workspace,
        archs=candidate.archs,
        upstream=upstream,
        only=tuple(name for name in GATES if name in here),
        full=False,
        environ=environ,
        candidate=candidate,
        hardware=behind.hardware,
    )
    return tuple(gate for gate in report.gates if gate.gate in GATES)


def _check_types(workspace: Workspace, behind: _Behind, types: tuple[str, ...]) -> Iterator[GateResult]:
    """The gates on cases and shapes of some types; nothing of it becomes evidence."""
    subject = behind.subject
    with lock_evidence(workspace.cache_root, subject.candidate_tree, workspace.reporter):
        for name in behind.gates:
            workspace.reporter.step(f"gate {name}, of {', '.join(types)}")
            result = behind.gate(name, types)
            yield result
            if result.verdict == "failed":
                return


def types_of(variants: Iterable[str]) -> tuple[str, ...]:
    """The types of tensors in the template arguments of kernels; none where one of them has no type there."""
    found: set[str] = set()
    for variant in variants:
        own = [name_of_type(int(number)) for number in _TYPE.findall(variant)]
        if not own or None in own:
            return ()
        found.update(name for name in own if name is not None)
    return tuple(sorted(found))


def _before(
    workspace: Workspace,
    pin: PinWanted,
    repository: Repository,
    candidate: Candidate,
    against: Against,
) -> tuple[str, Path, str]:
    """What it is compared with: its name, its exported tree and that tree's hash."""
    trees = workspace.cache_root / "trees"
    if against == "candidate":
        try:
            _, known = find_candidate(workspace, candidate.archs, pin)
        except GitError:  # there is none: upstream it is
            pass
        else:
            made = export_tree(repository, known.tip, trees)
            return known.branch, made.root, made.tree
    made = export_tree(repository, candidate.base, trees)
    name = (
        f"upstream {build_name(candidate.build)}"
        if not isinstance(pin, Pin)
        else f"your {candidate.base[:12]}"
    )
    return name, made.root, made.tree


def _compare(
    units: Sequence[str],
    trees: tuple[SourceTree, SourceTree],
    subject: Subject,
    compiler: Compiler,
    hear: Callable[[Sequence[KernelRow]], None],
) -> tuple[list[KernelRow], list[str]]:
    """The kernels whose code differs; and by name all of the units that do not read the same."""
    has_rocwmma = rocwmma_for(compiler.toolchain, subject.archs[0]) is not None
    wanted = [(unit, arch) for unit in units for arch in subject.archs]

    def work(item: tuple[str, str]) -> tuple[list[KernelRow], list[str]]:
        unit, arch = item
        old, new = (
            compile_unit(device_job(tree, unit, arch, rocwmma=has_rocwmma), compiler) for tree in trees
        )
        return ([], []) if old.key == new.key else _changed_rows(old, new, subject, compiler)

    found: dict[tuple[str, str], list[KernelRow]] = {}
    variants: list[str] = []
    with local_pool("threads", cores()) as pool:
        for item, (rows, names) in run_tasks(
            pool,
            work,
            wanted,
            reporter=compiler.reporter,
            what="compiling units",
            unit="units",
            stop=compiler.stop,
        ):
            found[item] = rows
            variants += names
            if rows:
                hear(rows)
    return [row for item in sorted(found) for row in found[item]], variants


def _changed_rows(
    old: CompiledUnit, new: CompiledUnit, subject: Subject, compiler: Compiler
) -> tuple[list[KernelRow], list[str]]:
    """The kernels with another code, and the names of all that the unit has."""
    changed = _changed_kernels(old, new)
    mine = dict.fromkeys(kernel.name for unit in (old, new) for kernel in unit.kernels)
    names = demangle(mine, compiler.toolchain, compiler.reporter)
    rows = kernel_rows(old, new, names, limits_of(subject.profiles[new.arch]))
    every = [row.variant for row in rows]
    return [row for name, row in zip(mine, rows, strict=True) if name in changed], every


def differing_units(before: SourceTree, after: SourceTree) -> tuple[list[str], list[str]]:
    """Units that differ in the bytes they can read, and of these those that name most of what changed.

    By what share of the words of a unit's own text stands in changed lines, as a long unit names nearly
    everything; a unit that changed itself comes first. The others may change all the same.
    """
    both = [unit for unit in platform_units(after.root, "hip") if before.has(unit)]
    units = [unit for unit in both if before.digest(unit) != after.digest(unit)]
    files = {path for unit in units for path in after.closure(unit)}
    changed: set[bytes] = set()
    for path in sorted(files):
        texts = [tree.read(path) if tree.has(path) else b"" for tree in (before, after)]
        if texts[0] != texts[1]:
            changed |= _words_of_changes(*texts)
    words = {unit: set(_WORD.findall(after.read(unit))) for unit in units}
    everywhere = set.intersection(*words.values()) if len(words) > 1 else set()
    named: dict[str, float] = {}
    for unit, mine in words.items():
        own = mine - everywhere
        is_changed = before.read(unit) != after.read(unit)
        named[unit] = 1.0 if is_changed else len(own & changed) / max(1, len(own))
    units.sort(key=lambda unit: -named[unit])
    most = max(named.values(), default=0.0)
    return units, [unit for unit in units if most and named[unit] == most]


def _words_of_changes(old: bytes, new: bytes) -> set[bytes]:
    """The words of the lines that only one has, and of the two before each: a condition, say."""
    sides = [text.splitlines() for text in (old, new)]
    matcher = difflib.SequenceMatcher(None, sides[0], sides[1], autojunk=False)
    lines: list[bytes] = []
    for tag, first, until, start, stop in matcher.get_opcodes():
        if tag != "equal":
            lines += [*sides[0][max(0, first - 2) : until], *sides[1][max(0, start - 2) : stop]]
    return set(_WORD.findall(b"\n".join(lines)))


def _changed_kernels(old: CompiledUnit, new: CompiledUnit) -> set[str]:
    """The kernels whose instructions or figures are not the same on both sides, by mangled name."""
    texts = [unit.output.read_text("utf-8", "replace") for unit in (old, new)]
    sides = [
        {kernel.name: (kernel, _instructions(text, kernel.name)) for kernel in unit.kernels}
        for unit, text in zip((old, new), texts, strict=True)
    ]
    return {name for name in sides[0].keys() | sides[1].keys() if sides[0].get(name) != sides[1].get(name)}


def same_code(one: str, other: str, name: str) -> bool:
    """Whether a kernel has the same instructions in two texts of assembly, whatever lines they are of."""
    return _instructions(one, name) == _instructions(other, name)


def _instructions(assembly: str, name: str) -> str:
    lines = _LABEL.sub("L", _NOISE.sub("", kernel_code(assembly, name))).splitlines()
    return "\n".join(line for line in lines if line.strip())


def _shapes(checked: Sequence[GateResult], earlier: Path) -> Iterator[TriedShape]:
    """The modelled times now, beside those of ``earlier``, which is evidence of the tree before."""
    evidence = next((gate.evidence for gate in checked if gate.gate == "speed"), None)
    if not isinstance(evidence, SpeedEvidence):
        return
    known = _times(earlier)
    for one in evidence.shapes:
        before = known.get((one.arch, one.shape), one.baseline_us)
        yield TriedShape(
            patch=one.patch, arch=one.arch, shape=one.shape, before_us=before, now_us=one.candidate_us
        )


def _times(path: Path) -> dict[tuple[str, str], float | None]:
    try:
        evidence = read_gate(path.read_bytes(), str(path)).evidence
    except (OSError, EvidenceUnreadable, EvidenceMalformed):
        return {}
    if not isinstance(evidence, SpeedEvidence):
        return {}
    return {(one.arch, one.shape): one.candidate_us for one in evidence.shapes}


def series_state(folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Size and time of change of every file of a series: what ``--watch`` looks at."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith(".") and not path.name.endswith("~"):
                state = path.stat()
                found[path] = (state.st_size, state.st_mtime_ns)
    return found
