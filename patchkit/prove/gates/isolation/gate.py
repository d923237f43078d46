"""Gate ``isolation``: nothing changes outside of what the patches are for.

For CUDA, MUSA, and every GPU outside of the guards, the preprocessor reads each touched unit in both trees,
host and device pass; the tokens must be equal. For some of those GPUs the device code is also compiled and
compared. A guard that requires rocWMMA is *live* only with rocWMMA on; with it off, the readings for the
target GPUs must be equal as well. HIP has one host pass for all GPUs, which contains the run-time branch of a
live guard; :mod:`patchkit.prove.gates.isolation.host_branch` defines what is proven about it instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Literal

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.jobs import run_parallel
from patchkit.carry.placing.tree import ROCWMMA_OPTION
from patchkit.prove.gates.base import GateResult, RunSetup
from patchkit.prove.gates.isolation.evidence import Compared, Declared, HostBranch, IsolationEvidence
from patchkit.prove.gates.isolation.host_branch import (
    HostBranchLeaks,
    HostExpressionForeign,
    closed_tree,
    dead_tree,
)
from patchkit.prove.gates.isolation.kernel_bodies import trees_without_bodies
from patchkit.prove.gates.isolation.readings import (
    Configuration,
    ReadUnit,
    compare,
    cuda_configurations,
    explain,
    hip_configurations,
    musa_configurations,
    rocwmma_flags,
    stand_in_headers,
)
from patchkit.prove.gates.touched import touched_units
from patchkit.prove.subject import PatchPart, Subject
from patchkit.toolchain.compile import CompileFailed, Job, compile_unit, ir_digest
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.heads import head_of
from patchkit.toolchain.hip import Toolchain, rocwmma_for
from patchkit.toolchain.units import Platform, SourceTree, platform_units, units_including


def _summary(reads: Sequence[ReadUnit], host: HostBranch) -> str:
    read = [each for each in reads if not each.is_unread]
    configurations = len({each.configuration.name for each in read})
    return (
        f"{sum(each.agrees for each in read)} of {len(read)} preprocessor outputs identical "
        f"({len({each.unit for each in read})} units, {configurations} configurations); "
        f"HIP host code unchanged for other GPUs in {_proven(host)} units"
    )


def _proven(host: HostBranch) -> str:
    """Proven units of all: each needs one equal assembly, or two where rocWMMA makes a difference."""
    assembly = host.branch_dead_assembly
    return f"{sum(one.equal for one in assembly)} of {max(len(assembly), len(host.differing_units))}"


def _lines(reads: Sequence[ReadUnit], found: IsolationEvidence) -> Iterator[str]:
    def kind(each: ReadUnit) -> tuple[str, bool, str]:
        return each.configuration.platform, each.configuration.rocwmma, each.configuration.which

    for (platform, rocwmma, which), group in groupby(sorted(reads, key=kind), key=kind):
        rows = [each for each in group if not each.is_unread]
        good = [each for each in rows if each.agrees]
        archs = list(dict.fromkeys(each.configuration.arch for each in rows))
        state = (", rocWMMA on" if rocwmma else ", rocWMMA off") if platform == "hip" else ""
        result = "identical tokens" if len(good) == len(rows) else f"{len(rows) - len(good)} DIFFER"
        where = "one for all GPUs" if archs == ["all"] else f"{len(archs)} GPUs ({' '.join(archs)})"
        yield f"{platform}{state}, {which} pass, {where}: {len(rows)} preprocessor outputs, {result}"
    host = found.host_branch
    if host.differing_units:
        names = ", ".join(name.rpartition("/")[2] for name in host.differing_units)
        same = sum(reading.agrees for reading in host.regions_closed)
        yield (
            f"hip, host pass, one for all GPUs: {names} have run-time conditions; equal to the baseline: "
            f"{same} of {len(host.regions_closed)} preprocessor outputs without the generated regions, "
            f"assembly of {_proven(host)} with every condition false"
        )
    for one in found.device_code:
        size = f" ({one.lines} lines)" if one.equal and one.lines else ""
        result = one.text if one.equal else "code differs"
        yield f"device code of {one.unit.rpartition('/')[2]} for {one.arch}: {result}{size}"
    if found.stand_in_headers:
        yield f"replaced by empty headers: {', '.join(found.stand_in_headers)}"


def _not_run(
    subject: Subject, reads: Sequence[ReadUnit], device_code: Sequence[Compared], *, has_rocwmma: bool
) -> Iterator[str]:
    if not has_rocwmma:
        yield "everything with rocWMMA on: no rocWMMA header found"
    unread = sorted({each.configuration.name for each in reads if each.is_unread})
    if unread:
        yield f"{', '.join(unread)}: upstream's own units cannot be preprocessed there with these headers"
    for one in device_code:
        if one.is_uncompiled:
            yield f"device code of {one.unit} for {one.arch}: upstream's own unit does not compile there"
    for arch in _partly_guarded(subject):
        yield f"{arch} is a target of some patches only: effects of the other patches on it are not separated"
    yield "CUDA and MUSA with nvcc and mcc: clang preprocessed them, with empty vendor headers"


_PLATFORMS: tuple[Platform, ...] = ("cuda", "musa", "hip")


def _declared(part: PatchPart, subject: Subject) -> Declared:
    """The files of a plain patch, and the GPU units that include them; the rest is other host code.

    For files that the patch removes, the units are those of the baseline.
    """
    files = (*part.touched, *part.new_files)
    gone = [path for path in files if not (subject.candidate / path).is_file()]
    units = {
        unit
        for tree, named in zip(subject.trees, (gone, files), strict=True)
        for platform in (_PLATFORMS if named else ())
        for unit in units_including(tree, named, platform_units(tree.root, platform))
    }
    return Declared(patch=part.id, files=tuple(sorted(files)), units=tuple(sorted(units)))


# Fixed values for differences without meaning: line numbers, and the name of the unit's fat binary, which
# clang derives from the folder.
_COMPARABLE = ("-D__LINE__=0", "-Wno-builtin-macro-redefined", "-cuid=patchkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationGate:
    """``device_code``: the touched units to compile and compare for a few other GPUs.

    ``sample``: only units that patches edit directly.
    """

    device_code: Literal["none", "sample", "all"] = "sample"
    name: str = "isolation"

    @classmethod
    def make(cls, setup: RunSetup) -> IsolationGate:
        """The gate of a run."""
        return cls(device_code="all" if setup.full else "sample")

    def run(self, subject: Subject) -> GateResult:
        """Compare candidate and baseline. Raises the errors of the compiler and the disk.

        plain patches are applied on both sides, and their changes are
        listed.
        """
        if subject.toolchain is None:
            return GateResult.without_compiler(self.name)
        declared = tuple(_declared(part, subject) for part in subject.plain)
        if not declared:
            return self._guarded(subject, subject.toolchain)
        lines = tuple(map(str, declared))
        summary = (
            f"changes code for every backend, by declaration: {', '.join(one.patch for one in declared)}"
        )
        own = subject.guarded_part
        if not own.patches:
            evidence = IsolationEvidence(
                changed_files=subject.changed_files,
                units={},
                stand_in_headers=(),
                readings=(),
                host_branch=HostBranch(),
                device_code=(),
                declared=declared,
            )
            reason = "no patch is guarded, so there was nothing to isolate"
            return GateResult(
                gate=self.name,
                verdict="passed",
                summary=summary,
                evidence=evidence,
                not_run=(reason,),
                lines=lines,
            )
        found = self._guarded(own, subject.toolchain)
        read = found.evidence
        return replace(
            found,
            summary=f"{found.summary}; {summary}",
            evidence=read.model_copy(update={"declared": declared})
            if isinstance(read, IsolationEvidence)
            else read,
            lines=(*found.lines, *lines),
        )

    def _guarded(self, subject: Subject, toolchain: Toolchain) -> GateResult:
        compiler = open_compiler(toolchain, subject.cache_root, subject.reporter)
        trees = subject.trees
        problems = list(_lists(subject, trees))
        if problems:
            return GateResult(
                gate=self.name,
                verdict="failed",
                summary="the set of compiled files changed",
                problems=tuple(problems),
            )
        touched = {platform: touched_units(subject, platform) for platform in _PLATFORMS}
        problems += _unreached(subject, trees, touched)
        headers, stand_ins = stand_in_headers(
            (name for tree in trees for unit in touched["cuda"] for name in tree.system_headers(unit)),
            subject.cache_root / "stand-in",
        )
        configurations = [
            *cuda_configurations(headers),
            *musa_configurations(headers),
            *hip_configurations(toolchain, sorted(subject.profiles), host_arch=subject.archs[0]),
        ]
        reached = _reached(subject, trees[1])
        closed = [
            (one, unit)
            for one in configurations
            for unit in touched[one.platform]
            if not _is_open(subject, one, unit, reached)
        ]
        reads = compare(closed, trees, compiler)
        problems += explain(reads, trees, compiler, subject)
        branches = [one for one in configurations if _is_branch(subject, one)]
        host, found = _host_branch(
            subject, trees, compiler, [(one, unit) for one in branches for unit in touched["hip"]]
        )
        problems += found
        device_code, found = self._device_code(subject, trees, compiler, touched["hip"])
        problems += found
        evidence = IsolationEvidence(
            changed_files=subject.changed_files,
            units=touched,
            stand_in_headers=stand_ins,
            readings=tuple(each.reading for each in reads),
            host_branch=host,
            device_code=tuple(device_code),
        )
        has_rocwmma = rocwmma_for(toolchain, subject.archs[0]) is not None
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=_summary(reads, host),
            problems=tuple(problems),
            evidence=evidence,
            not_run=tuple(_not_run(subject, reads, device_code, has_rocwmma=has_rocwmma)),
            lines=tuple(_lines(reads, evidence)),
        )

    def _device_code(
        self,
        subject: Subject,
        trees: tuple[SourceTree, SourceTree],
        compiler: Compiler,
        units: Sequence[str],
    ) -> tuple[list[Compared], list[PatchkitError]]:
        has_rocwmma = rocwmma_for(compiler.toolchain, subject.archs[0]) is not None
        pairs = [
            (unit, arch, has_rocwmma)
            for arch in _sampled_archs(subject)
            for unit in (units if self.device_code == "all" else _sampled_units(subject, units))
            if self.device_code != "none"
        ]
        compared = _compile_both(pairs, trees, compiler, "device", host_arch=subject.archs[0])
        return compared, [
            GateError(
                f"{one.unit} has different code for {one.arch}, which no patch targets: {one.difference}",
                code="ISOLATION_DEVICE_CODE",
                where=Location(path=one.unit),
                hint=f"patchkit verify --no-gpu --gate isolation --arch {' --arch '.join(subject.archs)}",
            )
            for one in compared
            if not one.equal
        ]


def _host_branch(
    subject: Subject,
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    wanted: Sequence[tuple[Configuration, str]],
) -> tuple[HostBranch, list[PatchkitError]]:
    """Prove what is possible about the ``wanted`` host passes, in which a guard is live."""
    nothing = HostBranch(differing_units=(), regions_closed=(), branch_dead_assembly=())
    if not wanted:
        return nothing, []
    differing = [each for each in compare(wanted, trees, compiler, whether=True) if not each.agrees]
    closed = (trees[0], SourceTree(closed_tree(subject)))
    reads = compare(wanted, closed, compiler)
    readings = tuple(each.reading for each in reads)
    problems = explain(reads, closed, compiler, subject, HostBranchLeaks)
    try:
        dead = SourceTree(dead_tree(subject))
    except HostExpressionForeign as error:
        return nothing.model_copy(update={"regions_closed": readings}), [*problems, error]
    pairs = [(each.unit, subject.archs[0], each.configuration.rocwmma) for each in _distinct(differing)]
    read = {path for unit, *_ in pairs for tree in (trees[0], dead) for path in tree.closure(unit)}
    bodyless = trees_without_bodies(trees[0].root, dead.root, read)
    compared = _compile_both(
        pairs,
        (trees[0], dead),
        compiler,
        "host",
        host_arch=subject.archs[0],
        bodyless=None if bodyless is None else (SourceTree(bodyless[0]), SourceTree(bodyless[1])),
    )
    problems += [_host_leak(one, subject) for one in compared if not one.equal]
    return HostBranch(
        differing_units=tuple(sorted({each.unit for each in differing})),
        regions_closed=readings,
        branch_dead_assembly=tuple(compared),
    ), problems


def _lists(subject: Subject, trees: tuple[SourceTree, SourceTree]) -> Iterator[PatchkitError]:
    for platform in _PLATFORMS:
        before, after = (set(platform_units(tree.root, platform)) for tree in trees)
        for unit in sorted(before ^ after):
            what = "adds" if unit in after else "removes"
            yield GateError(
                f"the candidate {what} {unit}, which upstream's CMake compiles for {platform}",
                code="ISOLATION_UNITS",
                where=Location(path=unit, label=", ".join(subject.patches_of(unit)) or None),
                why="the build for every GPU would change, and no guard can prevent that",
                hint="put the code into a header that is included under the guard",
            )


def _unreached(
    subject: Subject, trees: tuple[SourceTree, SourceTree], touched: dict[Platform, tuple[str, ...]]
) -> Iterator[PatchkitError]:
    reached = {
        path for tree in trees for units in touched.values() for unit in units for path in tree.closure(unit)
    }
    for path in subject.changed_files:
        if path not in reached:
            yield GateError(
                f"{path} is changed, but no unit of a GPU backend includes it",
                code="ISOLATION_UNREACHED",
                where=Location(path=path, label=", ".join(subject.patches_of(path)) or None),
                why="this gate reads only GPU units, so effects of this change elsewhere are not checked",
                hint="remove the file from the patch",
            )


def _live(subject: Subject, configuration: Configuration) -> tuple[PatchPart, ...]:
    """The patches whose guard can hold in a configuration; only HIP has any."""
    if configuration.platform != "hip":
        return ()
    return tuple(
        patch
        for patch in subject.patches
        if configuration.rocwmma or ROCWMMA_OPTION not in patch.guard.macros
    )


def _is_branch(subject: Subject, configuration: Configuration) -> bool:
    return configuration.which == "host" and bool(_live(subject, configuration))


def _reached(subject: Subject, candidate: SourceTree) -> dict[str, frozenset[str]]:
    """The HIP units that read a file which a patch changes, by patch."""
    units = platform_units(candidate.root, "hip")
    return {
        patch.id: frozenset(units_including(candidate, (*patch.touched, *patch.new_files), units))
        for patch in subject.patches
    }


def _is_open(
    subject: Subject, configuration: Configuration, unit: str, reached: Mapping[str, frozenset[str]]
) -> bool:
    """Whether a patch is allowed to change the unit in the configuration."""
    live = _live(subject, configuration)
    if configuration.which == "host":
        return bool(live)
    return any(configuration.arch in patch.archs and unit in reached[patch.id] for patch in live)


def _distinct(reads: Sequence[ReadUnit]) -> list[ReadUnit]:
    """One per pair of readings: if rocWMMA changes nothing, both configurations have the same readings."""
    return list({(each.unit, str(each.before), str(each.after)): each for each in reads}.values())


def _partly_guarded(subject: Subject) -> tuple[str, ...]:
    """GPUs that some patches target and others do not."""
    every: list[set[str]] = [set(patch.archs) for patch in subject.patches]
    some = {arch for archs in every for arch in archs}
    return tuple(sorted(arch for arch in some if not all(arch in archs for archs in every)))


def _sampled_archs(subject: Subject) -> list[str]:
    """GPUs outside of the guards: the nearest one, one without matrix units, one with another wave size."""
    guarded = {arch for patch in subject.patches for arch in patch.archs}
    outside = [arch for arch in sorted(subject.profiles) if arch not in guarded]

    def value(arch: str, name: str) -> object:
        fact = subject.profiles[arch].facts.report(name)
        return fact.value if fact is not None else None

    target = subject.archs[0]
    groups = [
        [arch for arch in outside if value(arch, "matrix") == value(target, "matrix")],
        [arch for arch in outside if value(arch, "matrix") == "none"],
        [arch for arch in outside if value(arch, "wave_size") != value(target, "wave_size")],
    ]
    return sorted({group[0] for group in groups if group})


def _sampled_units(subject: Subject, units: Sequence[str]) -> list[str]:
    """The units that patches edit directly; of several instances of one template only the first.

    Code generation takes half a minute per instance, and the preprocessed text was compared for all of them.
    """
    baseline = subject.trees[0]
    found: dict[str, str] = {}
    for unit in units:
        if unit in subject.changed_files:
            head = baseline.head(unit) if baseline.has(unit) else None
            found.setdefault(unit if head is None else head[0], unit)
    return list(found.values())


def _compile_both(
    pairs: Sequence[tuple[str, str, bool]],
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    which: Literal["host", "device"],
    *,
    host_arch: str,
    bodyless: tuple[SourceTree, SourceTree] | None = None,
) -> list[Compared]:
    """Compare the code of both trees, by unit, GPU and rocWMMA; the assembly only where the IR differs.

    Units that do not compile in the baseline either are reported as such. ``bodyless``: both trees without
    kernel bodies, which give no host code. If the baseline's IR is the same with and without bodies, and
    equal to the other tree's IR without them, the other tree is not compiled with bodies.
    """
    return run_parallel(
        pairs,
        partial(_compare_code, trees, compiler, which, host_arch, bodyless),
        reporter=compiler.reporter,
        what=f"comparing {which} code",
        unit="units",
        stop=compiler.stop,
    )


def _compare_code(
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    which: Literal["host", "device"],
    host_arch: str,
    bodyless: tuple[SourceTree, SourceTree] | None,
    pair: tuple[str, str, bool],
) -> Compared:
    toolchain = compiler.toolchain
    unit, arch, rocwmma = pair
    flags = (*_COMPARABLE, *rocwmma_flags(toolchain, arch, rocwmma_for(toolchain, host_arch)))
    shares_head = all(head_of(tree, unit) is not None for tree in trees)  # the same in the bodyless trees

    def job_of(tree: SourceTree) -> Job:
        return Job(
            tree=tree,
            unit=unit,
            arch=arch,
            which=which,
            rocwmma=rocwmma,
            flags=flags,
            shares_head=shares_head,
        )

    jobs = [job_of(tree) for tree in trees]
    groups = [jobs] if bodyless is None else [[jobs[0], *map(job_of, bodyless)], jobs]
    for same in groups:
        with contextlib.suppress(CompileFailed):
            found = {ir_digest(job, compiler) for job in same}
            if len(found) == 1:
                return Compared.same_ir(unit, arch, found.pop())

    def text(job: Job) -> str:
        try:
            return compile_unit(job, compiler).output.read_text("utf-8")
        except CompileFailed as error:
            return error.message

    return Compared.of(unit, arch, *map(text, jobs))


def _host_leak(one: Compared, subject: Subject) -> HostBranchLeaks:
    patches = ", ".join(subject.patches_of(one.unit))
    return HostBranchLeaks(
        f"{one.unit}: the host code of GPUs outside of the guard changes: {one.difference}",
        where=Location(path=one.unit, label=patches or None),
        why="with every host expression false, the compiler should produce the baseline's assembly",
        hint="when @{ guard.host('cc') }@ is false, every host edit must do what upstream does",
    )
