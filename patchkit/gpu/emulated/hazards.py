"""Hazards of the chip that no run shows: what the machine code in a file says about them, without running it.

What is found is *static*: the code has the form that went wrong on silicon, whether it ever does so or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.files import open_regular, temporary_folder
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.gpu.emulated.emulator import CodePlace
from patchkit.gpu.emulated.findings import Instruction, SourceLines

HazardKind = Literal["dual", "barrier"]

_TIMEOUT_S = 3600.0  # of one file; 6 million instructions took 50 s of one core (2026-11-26)

ABOUT: dict[HazardKind, str] = {
    "dual": "on GFX11 a dual instruction whose halves read registers of one parity may miss what a lane "
    "pattern (DPP) still writes there: LLVM pull request 220348, ROCm/aotriton issue 183. "
    "A clang with that change makes no such pairs, -mllvm -amdgpu-enable-vopd=0 none at all",
    "barrier": "clang 22 drops the wait of __syncthreads() where a loop stores only behind its barrier. It "
    "is a fault if another wave of the block reads what was stored: sanitize --check waits tells, in a run",
}
"""What each kind of hazard is, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """One place: ``at`` with the ``other`` instruction that it conflicts with, in code for ``gpu``."""

    kind: HazardKind
    what: str
    gpu: str
    at: Instruction
    other: Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLook:
    """What was seen in the code of a file.

    ``gpus``: those that the code objects are for, one for each. ``lacks``: of each bundle without code for
    the GPU that was asked for, what it has instead. ``unread``: why pieces of the file could not be looked
    at. ``pairs`` are dual instructions, ``same_parity`` those that read two registers of one parity at one
    place.
    """

    hazards: tuple[Hazard, ...] = ()
    gpus: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    instructions: int = 0
    pairs: int = 0
    same_parity: int = 0

    def others(self, arch: str) -> tuple[str, ...]:
        """Of ``lacks`` what does not run on ``arch`` either: code of a family runs on each of its members."""
        family = f"{arch.removesuffix(arch[-2:])}-generic"
        return tuple(held for held in self.lacks if family not in held.split(","))


def look_at_file(path: Path, *, arch: str, program: Path, disassembler: Path, reporter: Reporter) -> CodeLook:
    """Look at all code for AMD GPUs in a file; ``program`` is that of :func:`.emulator.build_look`.

    Raises:
        CODE_UNREADABLE: the file cannot be read, or has no code for AMD GPUs.
        ToolFailed, ToolCrashed, ToolTimeout: the program did not end well.
    """
    try:
        with open_regular(path):
            pass
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    with temporary_folder("look") as folder:
        seen = _look(
            path, folder, (), arch=arch, program=program, disassembler=disassembler, reporter=reporter
        )
    if not seen.gpus and not seen.lacks:
        why = "; ".join(seen.unread) or "it is neither a code object nor an offload bundle, and holds none"
        raise _unreadable(path, why)
    return seen


def look_at_objects(
    paths: Sequence[Path],
    kernels: Collection[str],
    *,
    arch: str,
    program: Path,
    disassembler: Path,
    reporter: Reporter,
) -> CodeLook:
    """Look at these kernels in code objects that ran. Raises what the program that looks raises."""
    looks = []
    for path in paths:
        with temporary_folder("look") as folder:
            looks.append(
                _look(
                    path,
                    folder,
                    sorted(kernels),
                    arch=arch,
                    program=program,
                    disassembler=disassembler,
                    reporter=reporter,
                )
            )
    return CodeLook(
        hazards=_distinct(one for look in looks for one in look.hazards),
        gpus=tuple(gpu for look in looks for gpu in look.gpus),
        lacks=tuple(held for look in looks for held in look.lacks),
        unread=tuple(why for look in looks for why in look.unread),
        instructions=sum(look.instructions for look in looks),
        pairs=sum(look.pairs for look in looks),
        same_parity=sum(look.same_parity for look in looks),
    )


def _look(
    path: Path,
    folder: Path,
    kernels: Sequence[str],
    *,
    arch: str,
    program: Path,
    disassembler: Path,
    reporter: Reporter,
) -> CodeLook:
    done = run_tool(
        [str(program), str(disassembler), arch, str(path.absolute()), str(folder)],
        stdin="".join(f"{kernel}\n" for kernel in kernels).encode("utf-8", "surrogateescape"),
        env={"LD_LIBRARY_PATH": str(disassembler.parent)},
        timeout_s=_TIMEOUT_S,
        reporter=reporter,
    )
    lines = iter(done.stdout.decode("utf-8", "replace").split("\n"))
    try:
        return _parse(lines, SourceLines(folder))
    except (ValueError, StopIteration) as error:
        raise ToolchainError(
            "the program that looks at code answered what is no answer",
            code="CODE_UNREADABLE",
            where=Location(path=str(path)),
            why=str(error),
        ) from error


def _parse(lines: Iterator[str], places: SourceLines) -> CodeLook:
    hazards: list[Hazard] = []
    gpus: list[str] = []
    lacks: list[str] = []
    unread: list[str] = []
    counts = [0, 0, 0]
    name = function = ""
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "object":
            name, _, gpu = rest.partition(" ")
            gpus.append(gpu)
        elif word == "lacks":
            lacks.append(rest)
        elif word == "unread":
            unread.append(rest)
        elif word == "function":
            function = rest
        elif word == "looked":
            counts = [sum(pair) for pair in zip(counts, map(int, rest.split()), strict=True)]
        elif word == "hazard":
            kind, *offsets = rest.split()
            if kind not in get_args(HazardKind):
                raise ValueError(f"there is no hazard '{kind}'")
            at, other = (
                places.find(CodePlace(object=name, function=function, offset=int(offset), text=next(lines)))
                for offset in offsets
            )
            hazards.append(
                Hazard(kind=cast("HazardKind", kind), what=next(lines), gpu=gpus[-1], at=at, other=other)
            )
    return CodeLook(
        hazards=_distinct(hazards),
        gpus=tuple(gpus),
        lacks=tuple(lacks),
        unread=tuple(unread),
        instructions=counts[0],
        pairs=counts[1],
        same_parity=counts[2],
    )


def _distinct(hazards: Collection[Hazard] | Iterator[Hazard]) -> tuple[Hazard, ...]:
    """Instances of a template have one line of the source: told once, as findings are."""
    result: dict[tuple[object, ...], Hazard] = {}
    for one in hazards:
        places = (one.at.places, one.other.places) if one.at.file is not None else (one.at, one.other)
        result.setdefault((one.kind, *places), one)
    return tuple(result.values())


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "there is no code to look at",
        code="CODE_UNREADABLE",
        where=Location(path=str(path)),
        why=why,
        hint="--code wants a HIP program, a library, an object file, an offload bundle or a code object",
    )
