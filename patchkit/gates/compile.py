"""Gate ``compile``: what the patches touch compiles for their GPUs, host and device, without new warnings.

By default the touched units, pass by pass; ``library`` also builds and links the whole HIP library of the
candidate through upstream's CMake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.build.cmake import BuildFailed, BuiltLibrary, build_library
from patchkit.build.compile import CompiledUnit, CompileFailed
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.remarks import Diagnostic
from patchkit.candidate.subject import Subject
from patchkit.gates.base import GateResult
from patchkit.gates.touched import Pair, compile_touched

_NOT_LINKED = "linking, and units that no patch touches: patchkit verify --no-gpu --full"


class NewWarning(GateError):
    """The compiler warns about the candidate and not about the baseline."""

    code = "COMPILE_NEW_WARNING"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileGate:
    """The touched units; with ``library`` everything else of the HIP library, too."""

    library: bool = False
    name: str = "compile"

    def run(self, subject: Subject) -> GateResult:
        """Compile both trees. Raises what the compiler and the disk raise."""
        if subject.toolchain is None:
            return GateResult(
                gate=self.name, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",)
            )
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        pairs = compile_touched(subject, compiler, ("device", "host"))
        problems: list[PatchkitError] = list(_problems(pairs, subject))
        good = [pair for pair in pairs if isinstance(pair.after, CompiledUnit)]
        units = len({pair.unit for pair in pairs})
        fresh = [
            made
            for pair in pairs
            for made in (pair.before, pair.after)
            if isinstance(made, CompiledUnit) and not made.cached
        ]
        seconds = sum(made.seconds for made in fresh)
        told = (
            f"{len(fresh)} passes compiled now ({seconds:.0f} s of compiler time), "
            f"{2 * len(pairs) - len(fresh)} taken from the cache"
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
            verdict="failed" if problems else "passed",
            summary=(
                f"{len(good)} of {len(pairs)} passes of {units} touched units compile for "
                f"{' '.join(subject.archs)}, host and device; {_warnings(problems)} new warnings"
            ),
            problems=tuple(problems),
            evidence={
                "passes": [_pair_json(pair) for pair in pairs],
                "library": [_library_json(one) for one in built],
            },
            not_run=() if self.library else (_NOT_LINKED,),
            lines=(told, *(_library_line(one) for one in built)),
        )


def _library(subject: Subject, arch: str, compiler: Compiler) -> BuiltLibrary:
    subject.reporter.step(f"building the whole HIP library for {arch}")
    folder = subject.cache_root / "builds" / f"{subject.candidate_tree[:16]}-{arch}"
    return build_library(subject.candidate, folder, arch, compiler)


def _library_error(error: BuildFailed, arch: str, subject: Subject) -> GateError:
    where = [
        Location(
            path=place.path,
            line=place.line,
            label=", ".join(subject.patches_of(place.path, place.line)) or None,
        )
        for place in (_below(found, subject.candidate) for found in error.where)
    ]
    return GateError(
        f"the library for {arch} does not build",
        code="COMPILE_CANDIDATE",
        where=where,
        why=error.why,
        hint=error.hint,
    )


def _below(place: Location, root: Path) -> Location:
    path = place.path.removeprefix(f"{root}/")
    return Location(path=path, line=place.line, column=place.column)


def _library_line(one: BuiltLibrary) -> str:
    return (
        f"whole library: {one.path.name}, {one.units} units, {one.size_bytes / 1e6:.1f} MB, linked, "
        f"cmake {one.cmake}, {one.seconds:.0f} s"
        f"{f' with {one.cached_by}' if one.cached_by else ''}, {len(one.warnings)} warnings"
    )


def _library_json(one: BuiltLibrary) -> dict[str, object]:
    return {
        "path": str(one.path),
        "size_bytes": one.size_bytes,
        "units": one.units,
        "cmake": one.cmake,
        "cached_by": one.cached_by,
        "seconds": one.seconds,
        "warnings": [f"{found.where}: {found.text}" for found in one.warnings],
    }


def _problems(pairs: Sequence[Pair], subject: Subject) -> Iterator[PatchkitError]:
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


def _compile_error(pair: Pair, error: CompileFailed, subject: Subject) -> GateError:
    where = [
        Location(
            path=place.path,
            line=place.line,
            column=place.column,
            label=", ".join(subject.patches_of(place.path, place.line)) or None,
        )
        for place in error.where
    ]
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
    """Warnings the baseline has not, or not as often; lines move, so they do not count."""
    known = Counter((found.where.path, found.text, found.flag) for found in before)
    for found in after:
        key = (found.where.path, found.text, found.flag)
        if known[key]:
            known[key] -= 1
        else:
            yield found


def _new_warning(pair: Pair, found: Diagnostic, subject: Subject) -> NewWarning:
    patches = ", ".join(subject.patches_of(found.where.path, found.where.line))
    return NewWarning(
        f"{pair.unit.rpartition('/')[2]} for {pair.arch} ({pair.which} pass): {found.text}",
        where=Location(
            path=found.where.path, line=found.where.line, column=found.where.column, label=patches or None
        ),
        why=f"the baseline has no such warning{f' [{found.flag}]' if found.flag else ''}",
        hint=f"patchkit diff --patch {patches.split(',')[0]}" if patches else None,
    )


def _warnings(problems: Sequence[PatchkitError]) -> int:
    return sum(isinstance(problem, NewWarning) for problem in problems)


def _pair_json(pair: Pair) -> dict[str, object]:
    after = pair.after
    return {
        "unit": pair.unit,
        "arch": pair.arch,
        "pass": pair.which,
        "compiles": isinstance(after, CompiledUnit),
        "warnings_baseline": len(pair.before.diagnostics),
        "warnings_candidate": len(after.diagnostics),
        "seconds_baseline": pair.before.seconds,
        "seconds_candidate": after.seconds if isinstance(after, CompiledUnit) else None,
        "object_baseline": pair.before.key,
        "object_candidate": after.key if isinstance(after, CompiledUnit) else None,
    }
