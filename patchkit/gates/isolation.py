"""Gate ``isolation``: nothing changes outside of what the patches are for.

For CUDA, MUSA, and every GPU outside of the guards, each touched unit is read by the preprocessor in both
trees, host and device pass: the tokens must be equal. For some of those GPUs the device code is compiled
and compared too. A guard that asks for rocWMMA is *live* only with rocWMMA on: without it the targets'
own readings must be equal as well. The host pass of HIP is one for all GPUs and holds the branch at run
time where a guard is live; :mod:`patchkit.gates.host_branch` says what is proven of it instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.build.compile import CompileFailed, Job, compile_unit
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.parallel import run_parallel
from patchkit.build.sources import SourceTree
from patchkit.build.toolchain import rocwmma_for
from patchkit.build.units import Platform, platform_units, units_including
from patchkit.errors import GateError, Location, PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.configurations import (
    ROCWMMA_MACRO,
    Configuration,
    cuda_configurations,
    hip_configurations,
    musa_configurations,
    rocwmma_flags,
    stand_in_headers,
)
from patchkit.gates.host_branch import HostExpressionForeign, closed_tree, dead_tree
from patchkit.gates.isolation_errors import (
    HostBranchLeaks,
)
from patchkit.gates.isolation_report import Compared, Findings, HostProof, isolation_result
from patchkit.gates.readings import Case, compare, explain, units_for
from patchkit.gates.subject import PatchPart, Subject

_PLATFORMS: tuple[Platform, ...] = ("cuda", "musa", "hip")
# Neutral values for what may differ without meaning anything: line numbers, and the name of the unit's
# fat binary, which clang makes from the folder.
_COMPARABLE = ("-D__LINE__=0", "-Wno-builtin-macro-redefined", "-cuid=patchkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationGate:
    """``device_code``: of which touched units it is compiled and compared, for a few other GPUs.

    ``sample``: of those that patches edit themselves.
    """

    device_code: Literal["none", "sample", "all"] = "sample"
    name: str = "isolation"

    def run(self, subject: Subject) -> GateResult:
        """Compare candidate and baseline. Raises what the compiler and the disk raise."""
        toolchain = subject.toolchain
        if toolchain is None:
            return GateResult(
                gate=self.name, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",)
            )
        compiler = open_compiler(toolchain, subject.cache_root, subject.reporter)
        trees = (SourceTree(subject.baseline), SourceTree(subject.candidate))
        problems = list(_lists(subject, trees))
        if problems:
            return GateResult(
                gate=self.name,
                verdict="failed",
                summary="the set of compiled files changed",
                problems=tuple(problems),
            )
        touched = {platform: _touched(subject, trees, platform) for platform in _PLATFORMS}
        problems += _unreached(subject, trees, touched)
        headers, stand_ins = stand_in_headers(
            (name for tree in trees for unit in touched["cuda"] for name in tree.graph.system_headers(unit)),
            subject.cache_root / "stand-in",
        )
        wanted = rocwmma_for(toolchain, subject.archs[0])
        configurations = [
            *cuda_configurations(headers),
            *musa_configurations(headers),
            *hip_configurations(toolchain, sorted(subject.profiles), host_arch=subject.archs[0]),
        ]
        closed = [one for one in configurations if not _is_open(subject, one)]
        jobs = [case for one in closed for case in units_for(touched[one.platform], [one])]
        cases = compare(jobs, trees, compiler)
        problems += explain(cases, trees, compiler, subject)
        host = [one for one in configurations if _is_branch(subject, one)]
        proof, found = self._host_branch(subject, trees, compiler, host, touched["hip"])
        problems += found
        compared, found = self._device_code(subject, trees, compiler, touched["hip"])
        problems += found
        findings = Findings(
            cases=cases,
            host=proof,
            device_code=compared,
            touched=touched,
            stand_ins=stand_ins,
            problems=problems,
            has_rocwmma=wanted is not None,
            partly=_partly_guarded(subject),
        )
        return isolation_result(subject, findings)

    def _host_branch(
        self,
        subject: Subject,
        trees: tuple[SourceTree, SourceTree],
        compiler: Compiler,
        host: Sequence[Configuration],
        units: Sequence[str],
    ) -> tuple[HostProof, list[PatchkitError]]:
        if not host:
            return HostProof(), []
        differing = [case for case in compare(units_for(units, host), trees, compiler) if not case.agrees]
        closed = (trees[0], SourceTree(closed_tree(subject)))
        cases = compare(units_for(units, host), closed, compiler)
        problems = explain(cases, closed, compiler, subject, HostBranchLeaks)
        try:
            dead = SourceTree(dead_tree(subject))
        except HostExpressionForeign as error:
            return HostProof(closed=tuple(cases)), [*problems, error]
        names = tuple(sorted({case.unit for case in differing}))
        pairs = [(case.unit, subject.archs[0], case.configuration.rocwmma) for case in _distinct(differing)]
        compared = _compile_both(pairs, (trees[0], dead), compiler, "host", host_arch=subject.archs[0])
        for one in compared:
            if not one.equal:
                problems.append(_host_leak(one, subject))
        return HostProof(differing=names, closed=tuple(cases), assembly=tuple(compared)), problems

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
                f"{one.unit} compiles to other code for {one.arch}, which no patch is for: {one.difference}",
                code="ISOLATION_DEVICE_CODE",
                where=Location(path=one.unit),
                hint=f"patchkit verify --no-gpu --gate isolation --arch {' --arch '.join(subject.archs)}",
            )
            for one in compared
            if not one.equal
        ]


def _lists(subject: Subject, trees: tuple[SourceTree, SourceTree]) -> Iterator[PatchkitError]:
    for platform in _PLATFORMS:
        before, after = (set(platform_units(tree.root, platform)) for tree in trees)
        for unit in sorted(before ^ after):
            what = "adds" if unit in after else "removes"
            yield GateError(
                f"the candidate {what} {unit}, which upstream's CMake compiles for {platform}",
                code="ISOLATION_UNITS",
                where=Location(path=unit, label=", ".join(subject.patches_of(unit)) or None),
                why="every GPU's build would change, with no guard that could help",
                hint="put the code into a header that is included under the guard",
            )


def _touched(subject: Subject, trees: tuple[SourceTree, SourceTree], platform: Platform) -> tuple[str, ...]:
    units = platform_units(trees[0].root, platform)
    found = {unit for tree in trees for unit in units_including(tree.root, subject.changed_files, units)}
    return tuple(sorted(found))


def _unreached(
    subject: Subject, trees: tuple[SourceTree, SourceTree], touched: dict[Platform, tuple[str, ...]]
) -> Iterator[PatchkitError]:
    reached = {
        path
        for tree in trees
        for units in touched.values()
        for unit in units
        for path in tree.graph.closure(unit)
    }
    for path in subject.changed_files:
        if path not in reached:
            yield GateError(
                f"{path} is changed, and no unit of a GPU backend includes it",
                code="ISOLATION_UNREACHED",
                where=Location(path=path, label=", ".join(subject.patches_of(path)) or None),
                why="this gate reads GPU units; what the change does elsewhere is not looked at",
                hint="leave the file out of the patch",
            )


def _live(subject: Subject, configuration: Configuration) -> tuple[PatchPart, ...]:
    """The patches whose guard can hold in a configuration of HIP; none elsewhere."""
    if configuration.platform != "hip":
        return ()
    return tuple(
        patch for patch in subject.patches if configuration.rocwmma or ROCWMMA_MACRO not in patch.guard.macros
    )


def _is_branch(subject: Subject, configuration: Configuration) -> bool:
    return configuration.which == "host" and bool(_live(subject, configuration))


def _is_open(subject: Subject, configuration: Configuration) -> bool:
    """Whether a patch may change what is read there."""
    live = _live(subject, configuration)
    return bool(live) and (
        configuration.which == "host" or any(configuration.arch in patch.archs for patch in live)
    )


def _distinct(cases: Sequence[Case]) -> list[Case]:
    """One case for each pair of readings: where rocWMMA changes nothing, both configurations read alike."""
    return list({(case.unit, str(case.before), str(case.after)): case for case in cases}.values())


def _partly_guarded(subject: Subject) -> tuple[str, ...]:
    """GPUs that some patches are for and others are not."""
    every: list[set[str]] = [set(patch.archs) for patch in subject.patches]
    some = {arch for archs in every for arch in archs}
    return tuple(sorted(arch for arch in some if not all(arch in archs for archs in every)))


def _sampled_archs(subject: Subject) -> list[str]:
    """Outside of the guards: the nearest relative, one without matrix units, one with wave64."""
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
    """The units that patches edit themselves."""
    return [unit for unit in units if unit in subject.changed_files]


def _compile_both(
    pairs: Sequence[tuple[str, str, bool]],
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    which: Literal["host", "device"],
    *,
    host_arch: str,
) -> list[Compared]:
    """Assembly of both trees, by unit, GPU and whether rocWMMA is on.

    What the baseline itself does not compile to is said so.
    """
    toolchain = compiler.toolchain
    wanted = rocwmma_for(toolchain, host_arch)

    def work(pair: tuple[str, str, bool]) -> Compared:
        unit, arch, rocwmma = pair
        flags = (*_COMPARABLE, *rocwmma_flags(toolchain, arch, wanted))
        texts = []
        for tree in trees:
            job = Job(tree=tree, unit=unit, arch=arch, which=which, rocwmma=rocwmma, flags=flags)
            try:
                texts.append(compile_unit(job, compiler).output.read_text("utf-8"))
            except CompileFailed as error:
                texts.append(error.message)
        return Compared.of(unit, arch, texts[0], texts[1])

    return run_parallel(
        pairs,
        work,
        reporter=compiler.reporter,
        what=f"comparing {which} code",
        unit="units",
        stop=compiler.stop,
    )


def _host_leak(one: Compared, subject: Subject) -> HostBranchLeaks:
    patches = ", ".join(subject.patches_of(one.unit))
    return HostBranchLeaks(
        f"{one.unit}: the host code of GPUs outside of the guard changes: {one.difference}",
        where=Location(path=one.unit, label=patches or None),
        why="with every host expression false, the compiler should write the baseline's assembly",
        hint="every host edit must do what upstream does when @{ guard.host('cc') }@ is false",
    )
