"""Gate ``compile``: touched units compile for their GPUs, host and device pass, without new warnings.

By default only the touched units; ``library`` also builds and links the candidate's whole HIP library with
upstream's CMake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.report.blocks import Block, Row, Table, columns, was_is
from patchkit.prove.gates.base import Count, Evidence, GateResult, Many, Number, Record, RunSetup
from patchkit.prove.gates.touched import CompiledPair, compile_touched, unpaired_units, unreached_files
from patchkit.prove.subject import Subject
from patchkit.toolchain.cmake import BuildFailed, BuiltLibrary, build_library
from patchkit.toolchain.compile import CompiledUnit, CompileFailed
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.remarks import Diagnostic

_NOT_LINKED = "linking, and units that no patch touches (--full compiles and links all)"
_ALONE = "only the candidate has it, so there is no baseline to compare with"
_HOST_BUILD = "gate cpu-build checks what is built for the CPU"


class NewWarning(GateError):
    """The compiler warns about the candidate but not about the baseline."""

    code = "COMPILE_NEW_WARNING"


class Pass(Record):
    """One pass of one unit in both trees; the candidate's figures are None where it does not compile."""

    unit: str
    arch: str
    which: str = Field(validation_alias="pass", serialization_alias="pass")
    compiles: bool
    warnings_baseline: Count
    warnings_candidate: Count | None
    seconds_baseline: Number
    seconds_candidate: Number | None
    object_baseline: str
    object_candidate: str | None

    @classmethod
    def of(cls, pair: CompiledPair) -> Pass:
        """The record of a compiled pair."""
        after = pair.after
        unit = after if isinstance(after, CompiledUnit) else None
        return cls(
            unit=pair.unit,
            arch=pair.arch,
            which=pair.which,
            compiles=unit is not None,
            warnings_baseline=len(pair.before.diagnostics),
            warnings_candidate=len(after.diagnostics),
            seconds_baseline=pair.before.seconds,
            seconds_candidate=unit.seconds if unit is not None else None,
            object_baseline=pair.before.key,
            object_candidate=unit.key if unit is not None else None,
        )


class Library(Record):
    """The whole library for one GPU, built by upstream's CMake."""

    path: str
    size_bytes: Count
    units: Count
    cmake: str
    cached_by: str | None
    seconds: Number
    warnings: Many[str]

    @classmethod
    def of(cls, built: BuiltLibrary) -> Library:
        """The record of a built library."""
        return cls(
            path=str(built.path),
            size_bytes=built.size_bytes,
            units=built.units,
            cmake=built.cmake,
            cached_by=built.cached_by,
            seconds=built.seconds,
            warnings=tuple(f"{found.where}: {found.text}" for found in built.warnings),
        )


class CompileEvidence(Evidence):
    """Every pass of every touched unit, and the libraries that were built."""

    passes: Many[Pass]
    library: Many[Library] = ()

    def blocks(self) -> Iterator[Block]:
        """The passes, and the whole library if it was built."""
        yield Table(
            name="passes",
            caption="Units compiled in both trees",
            columns=columns("unit", "GPU", "pass", "result", "warnings #", "seconds #"),
            rows=tuple(_pass_row(one) for one in self.passes),
            is_detail=True,
        )
        if self.library:
            yield Table(
                name="library",
                caption="The whole library, through upstream's CMake",
                columns=columns("file", "units #", "size #", "seconds #"),
                rows=tuple(
                    Row(
                        cells=(
                            one.path,
                            str(one.units),
                            f"{one.size_bytes / 1e6:.1f} MB",
                            f"{one.seconds:.0f}",
                        )
                    )
                    for one in self.library
                ),
                is_detail=True,
            )


def _pass_row(one: Pass) -> Row:
    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:g}"

    cells = (
        one.unit,
        one.arch,
        one.which,
        "compiles" if one.compiles else "FAILS",
        was_is(figure(one.warnings_baseline), figure(one.warnings_candidate)),
        was_is(figure(one.seconds_baseline), figure(one.seconds_candidate)),
    )
    return Row(cells=cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileGate:
    """Compiles the touched units; with ``library`` also the rest of the HIP library."""

    library: bool = False
    name: str = "compile"

    @classmethod
    def make(cls, setup: RunSetup) -> CompileGate:
        """The gate of a run."""
        return cls(library=setup.full)

    def _not_run(self, subject: Subject) -> Iterator[str]:
        if not self.library:
            yield _NOT_LINKED
            yield from (f"{unit}: {_ALONE} (--full compiles it)" for unit in unpaired_units(subject))
        for path in unreached_files(subject):
            yield f"{path}: no unit of the HIP backend includes it, and {_HOST_BUILD}"

    def _skips_units(self, subject: Subject) -> bool:
        return not self.library and bool(unpaired_units(subject))

    def run(self, subject: Subject) -> GateResult:
        """Compile both trees. Raises the errors of the compiler and the disk."""
        if subject.toolchain is None:
            return GateResult.without_compiler(self.name)
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        pairs = compile_touched(subject, compiler, ("device", "host"))
        problems: list[PatchkitError] = list(_problems(pairs, subject))
        good = [pair for pair in pairs if isinstance(pair.after, CompiledUnit)]
        units = len({pair.unit for pair in pairs})
        fresh = [
            unit
            for pair in pairs
            for unit in (pair.before, pair.after)
            if isinstance(unit, CompiledUnit) and not unit.cached
        ]
        seconds = sum(unit.seconds for unit in fresh)
        effort = (
            f"{len(fresh)} passes compiled now ({seconds:.0f} s of compiler time), "
            f"{2 * len(pairs) - len(fresh)} from the cache"
        )
        built: list[BuiltLibrary] = []
        if self.library and not problems:
            for arch in subject.archs:
                try:
                    built.append(_library(subject, arch, compiler))
                except BuildFailed as error:
                    problems.append(_library_error(error, arch, subject))
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "not run" if self._skips_units(subject) else "passed",
            summary=(
                f"{len(good)} of {len(pairs)} passes of {units} touched units compile for "
                f"{' '.join(subject.archs)}, host and device; {_warnings(problems)} new warnings"
            ),
            problems=tuple(problems),
            evidence=CompileEvidence(
                passes=tuple(Pass.of(pair) for pair in pairs), library=tuple(Library.of(one) for one in built)
            ),
            not_run=tuple(self._not_run(subject)),
            lines=(effort, *(_library_line(one) for one in built)),
        )


def _library(subject: Subject, arch: str, compiler: Compiler) -> BuiltLibrary:
    subject.reporter.step(f"building the whole HIP library for {arch}")
    folder = subject.cache_root / "builds" / f"{subject.candidate_tree[:16]}-{arch}"
    return build_library(subject.candidate, folder, arch, compiler)


def _library_error(error: BuildFailed, arch: str, subject: Subject) -> GateError:
    root = f"{subject.candidate}/"
    places = (Location(path=place.path.removeprefix(root), line=place.line) for place in error.where)
    return GateError(
        f"the library for {arch} does not build",
        code="COMPILE_CANDIDATE",
        where=[subject.with_patches(place) for place in places],
        why=error.why,
        hint=error.hint,
    )


def _library_line(one: BuiltLibrary) -> str:
    return (
        f"whole library: {one.path.name}, {one.units} units, {one.size_bytes / 1e6:.1f} MB, linked, "
        f"cmake {one.cmake}, {one.seconds:.0f} s"
        f"{f' with {one.cached_by}' if one.cached_by else ''}, {len(one.warnings)} warnings"
    )


def _problems(pairs: Sequence[CompiledPair], subject: Subject) -> Iterator[PatchkitError]:
    seen: set[str] = set()
    for pair in pairs:
        if isinstance(pair.after, CompileFailed):
            error = _compile_error(pair, pair.after, subject)
            if error.message not in seen:
                seen.add(error.message)
                yield error
            continue
        for new in _new_warnings(pair.before.diagnostics, pair.after.diagnostics):
            if str(new.where) not in seen:
                seen.add(str(new.where))
                yield _new_warning(pair, new, subject)


def _compile_error(pair: CompiledPair, error: CompileFailed, subject: Subject) -> GateError:
    where = [subject.with_patches(place) for place in error.where]
    blamed = next((place.label for place in where if place.label), "none: the error is in upstream's lines")
    first = error.diagnostics[0].text if error.diagnostics else error.message
    return GateError(
        f"{pair.unit.rpartition('/')[2]} does not compile for {pair.arch} ({pair.which} pass): {first}",
        code="COMPILE_CANDIDATE",
        where=where,
        why=f"the baseline compiles; the nearest patch is {blamed}\n{error.why or ''}".rstrip(),
        hint=error.hint,
    )


def _new_warnings(before: Sequence[Diagnostic], after: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Warnings that the baseline lacks or has less often. Lines are not compared because they move."""
    known = Counter((found.where.path, found.text, found.flag) for found in before)
    for found in after:
        key = (found.where.path, found.text, found.flag)
        if known[key]:
            known[key] -= 1
        else:
            yield found


def _new_warning(pair: CompiledPair, found: Diagnostic, subject: Subject) -> NewWarning:
    where = subject.with_patches(found.where)
    return NewWarning(
        f"{pair.unit.rpartition('/')[2]} for {pair.arch} ({pair.which} pass): {found.text}",
        where=where,
        why=f"the baseline does not have this warning{f' [{found.flag}]' if found.flag else ''}",
        hint=f"patchkit diff --patch {where.label.split(',')[0]}" if where.label else None,
    )


def _warnings(problems: Sequence[PatchkitError]) -> int:
    return sum(isinstance(problem, NewWarning) for problem in problems)
