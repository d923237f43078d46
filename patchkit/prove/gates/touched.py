"""The units that a candidate touches, and compiling them for its GPUs from both trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from patchkit.gpu.emulated.runtime import host_job
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import CompiledUnit, CompileFailed, Job, compile_all, device_job
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.hip import rocwmma_for
from patchkit.toolchain.units import Platform, SourceTree, platform_units, units_including

_Which = Literal["host", "device"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPair:
    """One pass of one unit, compiled from both trees; the candidate's may have failed."""

    unit: str
    arch: str
    which: _Which
    before: CompiledUnit
    after: CompiledUnit | CompileFailed


def touched_units(subject: Subject, platform: Platform = "hip") -> tuple[str, ...]:
    """Units of a backend that include a changed file, in the baseline or in the candidate, sorted."""
    found = {
        unit
        for tree in subject.trees
        for unit in units_including(tree, subject.changed_files, platform_units(tree.root, platform))
    }
    return tuple(sorted(found))


def unpaired_units(subject: Subject) -> tuple[str, ...]:
    """Touched units that only the candidate has, so there is no baseline to compare with."""
    return tuple(unit for unit in touched_units(subject) if not (subject.baseline / unit).is_file())


def unreached_files(subject: Subject) -> tuple[str, ...]:
    """Files changed by plain patches that no unit of the HIP backend includes, sorted."""
    files = {path for part in subject.plain for path in (*part.touched, *part.new_files)}
    units = platform_units(subject.candidate, "hip") if files else ()
    _, candidate = subject.trees
    return tuple(sorted(path for path in files if not units_including(candidate, [path], units)))


def match_changed_files(changed: Sequence[str], table: Sequence[tuple[str, Value]]) -> list[Value] | None:
    """For each changed file, the value of the first row of ``table`` whose prefix its name starts with.

    None if a file matches no row: it could affect anything.
    """
    values = []
    for path in changed:
        name = path.rpartition("/")[2]
        found = [value for start, value in table if name.startswith(start)]
        if not found:
            return None
        values.append(found[0])
    return values


def compile_touched(subject: Subject, compiler: Compiler, passes: Sequence[_Which]) -> list[CompiledPair]:
    """Compile each touched unit that both trees have, for each GPU of the candidate, largest first.

    Raises:
        CompileFailed: the baseline does not compile, so nothing can be concluded about the candidate.
        ToolchainError, CacheError: as :func:`patchkit.toolchain.compile.compile_unit`.
    """
    trees = subject.trees
    has_rocwmma = rocwmma_for(compiler.toolchain, subject.archs[0]) is not None
    wanted = [
        (unit, arch, which, tree)
        for unit in touched_units(subject)
        if all(tree.has(unit) for tree in trees)
        for arch in subject.archs
        for which in passes
        for tree in trees
    ]

    def job(unit: str, arch: str, which: _Which, tree: SourceTree) -> Job:
        # The same jobs as the recorder's and the emulated GPU's, so that later gates find them compiled.
        if which == "host":
            return host_job(tree, unit, arch, compiler, rocwmma=has_rocwmma)
        return device_job(tree, unit, arch, rocwmma=has_rocwmma)

    units = compile_all([job(*each) for each in wanted], compiler, what="compiling units", unit="passes")
    pairs = []
    for (unit, arch, which, _), before, after in zip(wanted[::2], units[::2], units[1::2], strict=True):
        if isinstance(before, CompileFailed):
            raise before
        pairs.append(CompiledPair(unit=unit, arch=arch, which=which, before=before, after=after))
    return pairs
