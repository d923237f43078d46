"""``patchkit try``: what the last edit of a kernel changed, in one table.

The series as it is on disk is placed on the pin and written as commits that no branch names. The code of its
kernels is compared with that of the existing candidate or of upstream. Then the operations run on the
emulated GPU, and the shapes named by patches on the timing model, as in ``verify``. If all kernels of the
changed units are for certain tensor types, only cases and shapes of those types run, and the summary names
them; such a partial run is not evidence, and none is written.
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

from patchkit.base.errors import GitError, PatchkitError
from patchkit.base.jobs import open_pool, run_tasks
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
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.modelled.operation import name_of_type
from patchkit.prove.build import Machine
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.emulated import choose_emulated
from patchkit.prove.gates.record import find_gate
from patchkit.prove.gates.resources import KernelRow, demangle, kernel_rows
from patchkit.prove.gates.sides import sides_on
from patchkit.prove.gates.speed import JudgedShape, SpeedEvidence, SpeedGate, shapes_of
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
"""The gates that run after compiling: correctness, and speed by the timing model."""

# With the checks that verify uses, so that runs of the baseline are reused here, and verify reuses these
# runs.
_CHECKED = ("sanitize",)

# Differences in the assembly of identical code: comments, source lines, label numbers.
_NOISE = re.compile(r"\s*;.*|^\s*\.(?:loc|file|cfi_\w+)\b.*|^\.L(?:tmp|func_\w+)\d+:", re.MULTILINE)
_TYPE = re.compile(r"\(ggml_type\)(\d+)")
_WORD = re.compile(rb"[A-Za-z_]\w+")
_LOWER = 9  # added to the nice value, so that these compilers yield to the others
_LABEL = re.compile(r"\.LBB\d+_|\.Ltmp\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedShape:
    """One shape of a patch with its modelled microseconds before and now; None where it does not run."""

    json_keys: ClassVar = "patch arch shape before_us now_us change"

    patch: str
    arch: str
    shape: str
    before_us: float | None
    now_us: float | None

    @property
    def change(self) -> float | None:
        """The speedup since before, as a fraction."""
        if self.before_us is None or not self.now_us:
            return None
        return self.before_us / self.now_us - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result. ``before`` names what it is compared with; ``tree`` and ``before_tree`` are hashes.

    ``commit`` is the short hash of the commit in the user's clone that the series was placed on; None on a
    pin of the lock. ``units`` counts the units whose input differs, ``skipped`` those of them that were
    skipped. ``kernels`` are those whose code changed. ``checked`` are the results of the gates that ran
    afterwards; empty if nothing changed or no gates were requested.
    """

    json_keys: ClassVar = (
        "ok archs build commit before before_tree tree patches units skipped kernels checked=checks "
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
    skipped: int
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
        """The results of the gates without their evidence."""
        return [
            {"gate": gate.gate, "verdict": gate.verdict, "summary": gate.summary} for gate in self.checked
        ]

    @property
    def failed(self) -> bool:
        """Whether an operation is wrong, or slower by more than the model's error."""
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
    on_kernels: Callable[[Sequence[KernelRow]], None] | None = None,
) -> Tried:
    """Place, compile, compare, and with ``run`` emulate and model; ``onto`` a commit of the user's clone.

    ``on_kernels`` is called with the changed kernels of a unit as soon as it is compiled. Units that contain
    the words of changed lines come first: for a changed row of a table this is most often the unit that the
    row is about. ``likely``: skip all other units, if there are such units.

    Raises:
        An ErrorGroup of the edits that could not be placed.
        CompileFailed: a unit does not compile; the error shows in which tree.
        ToolchainMissing, SDK_UNUSABLE: no compiler, or none for these GPUs.
        The errors of gates, git and the disk.
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
        gates = None
        if is_run:
            gates = _BackgroundGates(
                subject=subject, wanted=wanted, before=trees[0], compiler=compiler, thread=thread
            )
        try:
            if gates is not None:
                gates.start()
            kernels, variants = compare_kernels(
                wanted, trees, subject.archs, subject.profiles, compiler, on_kernels
            )
            if gates is not None:
                at = plan.pin if onto is not None else plan.pin.name
                checked = _check(workspace, candidate, at, environ, gates, types_of(variants))
        except BaseException:
            subject.stop.set()  # nothing waits for the work in the background
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
        skipped=len(units) - len(wanted),
        kernels=tuple(kernels),
        checked=checked,
        shapes=tuple(_shapes(checked, shapes_of(find_gate(workspace.cache_root, before_tree, "speed")))),
        seconds=round(time.monotonic() - began, 1),
    )


@dataclass(slots=True, kw_only=True)
class _BackgroundGates:
    """The gates that follow the compiler, and their preparation in a thread while it runs.

    Compiling a unit keeps one process busy, so work that does not depend on it starts early, in one thread:
    the libraries of both sides, then the speed by the timing model, whose kernels are compiled one by one.
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
        _ = self.subject.trees  # created here, because two threads use them
        self.hardware = choose_hardware(
            self.subject.archs, None, model=None, emulated=True, only=(*GATES, *_CHECKED)
        )

    @property
    def gates(self) -> dict[str, BackendOpsGate | SpeedGate]:
        """The gates that can run on a part of the cases, by name."""
        inner = [gate.inner if isinstance(gate, Reusing) else gate for gate in self.hardware.gates]
        return {gate.name: gate for gate in inner if isinstance(gate, BackendOpsGate | SpeedGate)}

    def start(self) -> None:
        """Start the work that can be done in advance."""
        if all(name in self.gates for name in GATES):
            self._libraries = self.thread.submit(self._make_libraries)
            self._speed = self.thread.submit(self._model)

    def gate(self, name: str, types: tuple[str, ...]) -> GateResult:
        """The result of a gate for some tensor types. Raises the errors of the gate."""
        if name == "speed" and self._speed is not None:
            known, result = self._speed.result()
            if result is not None and known == types:
                return result
        if self._libraries is not None:
            self._libraries.result()
        return replace(self.gates[name], types=types).run(self.subject)

    def _make_libraries(self) -> None:
        # Linux has a priority per thread, which child compilers inherit: the unit's own compiler goes first.
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, min(mine + _LOWER, 19))
        emulated = choose_emulated(self.subject.archs)
        if emulated is not None:
            with (
                contextlib.suppress(PatchkitError),  # the gate reports it
                sides_on(Machine(backend="hip", emulates=emulated), self.subject),
            ):
                pass

    def _model(self) -> tuple[tuple[str, ...], GateResult | None]:
        """The speed for the tensor types of the units before the change."""
        with contextlib.suppress(PatchkitError):
            types = types_of(self._known_kernels())
            if types and self.is_first:
                return types, replace(self.gates["speed"], types=types).run(self.subject)
        return (), None

    @property
    def is_first(self) -> bool:
        """Whether no earlier run covered all cases; if one did, a few cases add nothing to it."""
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
    gates: _BackgroundGates,
    types: tuple[str, ...],
) -> tuple[GateResult, ...]:
    """Run the gates; stop at the first that fails."""
    if types and gates.is_first:
        return tuple(_check_types(workspace, gates, types))
    here = {gate.name for gate in gates.hardware.gates}
    report = run_verify(
        workspace,
        archs=candidate.archs,
        upstream=upstream,
        only=tuple(name for name in GATES if name in here),
        full=False,
        environ=environ,
        candidate=candidate,
        hardware=gates.hardware,
    )
    return tuple(gate for gate in report.gates if gate.gate in GATES)


def _check_types(
    workspace: Workspace, gates: _BackgroundGates, types: tuple[str, ...]
) -> Iterator[GateResult]:
    """The gates on cases and shapes of some tensor types; the results do not become evidence."""
    subject = gates.subject
    with lock_evidence(workspace.cache_root, subject.candidate_tree, workspace.reporter):
        for name in gates.gates:
            workspace.reporter.step(f"gate {name}, only {', '.join(types)}")
            result = gates.gate(name, types)
            yield result
            if result.verdict == "failed":
                return


def types_of(variants: Iterable[str]) -> tuple[str, ...]:
    """The tensor types in the template arguments of kernels; empty if one of the kernels has none there."""
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
    """What the series is compared with: its name, its exported tree and that tree's hash."""
    trees = workspace.cache_root / "trees"
    if against == "candidate":
        try:
            _, known = find_candidate(workspace, candidate.archs, pin)
        except GitError:  # no candidate: compare with upstream
            pass
        else:
            exported = export_tree(repository, known.tip, trees)
            return known.branch, exported.root, exported.tree
    exported = export_tree(repository, candidate.base, trees)
    name = (
        f"upstream {build_name(candidate.build)}"
        if not isinstance(pin, Pin)
        else f"your {candidate.base[:12]}"
    )
    return name, exported.root, exported.tree


def compare_kernels(
    units: Sequence[str],
    trees: tuple[SourceTree, SourceTree],
    archs: Sequence[str],
    profiles: Mapping[str, ArchProfile],
    compiler: Compiler,
    on_kernels: Callable[[Sequence[KernelRow]], None] | None = None,
) -> tuple[list[KernelRow], list[str]]:
    """The kernels whose code differs, and the names of all kernels in the units whose input differs.

    ``profiles`` has those of ``archs``; ``on_kernels`` as for :func:`run_try`. Raises CompileFailed,
    ToolchainError and CacheError.
    """
    has_rocwmma = rocwmma_for(compiler.toolchain, archs[0]) is not None
    wanted = [(unit, arch) for unit in units for arch in archs]

    def work(item: tuple[str, str]) -> tuple[list[KernelRow], list[str]]:
        unit, arch = item
        old, new = (
            compile_unit(device_job(tree, unit, arch, rocwmma=has_rocwmma), compiler) for tree in trees
        )
        return ([], []) if old.key == new.key else _changed_rows(old, new, profiles[arch], compiler)

    found: dict[tuple[str, str], list[KernelRow]] = {}
    variants: list[str] = []
    with open_pool("threads") as pool:
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
            if rows and on_kernels is not None:
                on_kernels(rows)
    return [row for item in sorted(found) for row in found[item]], variants


def _changed_rows(
    old: CompiledUnit, new: CompiledUnit, profile: ArchProfile, compiler: Compiler
) -> tuple[list[KernelRow], list[str]]:
    """The kernels whose code changed, and the names of all kernels of the unit."""
    changed = _changed_kernels(old, new)
    mine = dict.fromkeys(kernel.name for unit in (old, new) for kernel in unit.kernels)
    names = demangle(mine, compiler.toolchain, compiler.reporter)
    rows = kernel_rows(old, new, names, limits_of(profile))
    every = [row.variant for row in rows]
    return [row for name, row in zip(mine, rows, strict=True) if name in changed], every


def differing_units(before: SourceTree, after: SourceTree) -> tuple[list[str], list[str]]:
    """Units whose input differs in any byte, and those of them that mention most of what changed.

    Units are ranked by the share of the words in their own text that also occur in changed lines, because a
    long unit mentions nearly everything. A unit that changed itself ranks first. Lower-ranked units may still
    be affected.
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
    """The words of lines that only one side has, and of the two lines before each, such as a condition."""
    sides = [text.splitlines() for text in (old, new)]
    matcher = difflib.SequenceMatcher(None, sides[0], sides[1], autojunk=False)
    lines: list[bytes] = []
    for tag, first, until, start, stop in matcher.get_opcodes():
        if tag != "equal":
            lines += [*sides[0][max(0, first - 2) : until], *sides[1][max(0, start - 2) : stop]]
    return set(_WORD.findall(b"\n".join(lines)))


def _changed_kernels(old: CompiledUnit, new: CompiledUnit) -> set[str]:
    """Mangled names of the kernels whose instructions or figures differ between the sides."""
    texts = [unit.output.read_text("utf-8", "replace") for unit in (old, new)]
    sides = [
        {kernel.name: (kernel, instructions_of(text, kernel.name)) for kernel in unit.kernels}
        for unit, text in zip((old, new), texts, strict=True)
    ]
    return {name for name in sides[0].keys() | sides[1].keys() if sides[0].get(name) != sides[1].get(name)}


def instructions_of(assembly: str, name: str) -> str:
    """The instructions of a kernel in an assembly text, without labels and source lines."""
    lines = _LABEL.sub("L", _NOISE.sub("", kernel_code(assembly, name))).splitlines()
    return "\n".join(line for line in lines if line.strip())


def _shapes(checked: Sequence[GateResult], earlier: Sequence[JudgedShape]) -> Iterator[TriedShape]:
    """The modelled times now, and those before from the ``earlier`` evidence of the tree before."""
    evidence = next((gate.evidence for gate in checked if gate.gate == "speed"), None)
    known = {(one.arch, one.shape): one.candidate_us for one in earlier}
    for one in evidence.shapes if isinstance(evidence, SpeedEvidence) else ():
        before = known.get((one.arch, one.shape), one.baseline_us)
        yield TriedShape(
            patch=one.patch, arch=one.arch, shape=one.shape, before_us=before, now_us=one.candidate_us
        )


def series_state(folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Size and modification time of every file of a series, which ``--watch`` compares."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith(".") and not path.name.endswith("~"):
                state = path.stat()
                found[path] = (state.st_size, state.st_mtime_ns)
    return found
