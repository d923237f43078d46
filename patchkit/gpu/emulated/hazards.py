"""Static analysis of machine code for hardware hazards that running the code in the emulator does not show.

A finding means that the code has the form that failed on real GPUs, not that it fails in every run.
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

_TIMEOUT_S = 3600.0  # per file; 6 million instructions took 50 s on one core (2026-11-26)

ABOUT: dict[HazardKind, str] = {
    "dual": "on GFX11, a dual-issue (VOPD) instruction whose halves read registers of the same parity may "
    "miss a value that a DPP instruction is still writing to one: LLVM pull request 220348, ROCm/aotriton "
    "issue 183. A clang with that change avoids such pairs; -mllvm -amdgpu-enable-vopd=0 disables VOPD",
    "barrier": "clang 22 drops the wait of __syncthreads() in a loop that stores only after its barrier. "
    "It is a fault if another wave of the block reads the stored value: run patchkit sanitize --check waits",
}
"""What each kind of hazard is, and how to avoid it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """One hazard: instruction ``at`` conflicts with the instruction ``other``, in code for ``gpu``."""

    kind: HazardKind
    what: str
    gpu: str
    at: Instruction
    other: Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLook:
    """The result of analysing a file's code.

    ``gpus``: the GPU of each code object. ``lacks``: for each bundle without code for the requested GPU, the
    GPUs it has code for. ``unread``: why parts of the file could not be analysed. ``pairs``: number of VOPD
    instructions; ``same_parity``: those that read two registers of the same parity in the same operand slot.
    """

    hazards: tuple[Hazard, ...] = ()
    gpus: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    instructions: int = 0
    pairs: int = 0
    same_parity: int = 0

    def others(self, arch: str) -> tuple[str, ...]:
        """The part of ``lacks`` without generic code for the family of ``arch``, which ``arch`` can run."""
        family = f"{arch.removesuffix(arch[-2:])}-generic"
        return tuple(held for held in self.lacks if family not in held.split(","))


def look_at_file(path: Path, *, arch: str, program: Path, disassembler: Path, reporter: Reporter) -> CodeLook:
    """Analyse all code for AMD GPUs in a file; ``program`` is built by :func:`.emulator.build_look`.

    Raises:
        CODE_UNREADABLE: the file cannot be read, or has no code for AMD GPUs.
        ToolFailed, ToolCrashed, ToolTimeout: the program failed.
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
        why = "; ".join(seen.unread) or "it is not a code object or offload bundle, and contains none"
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
    """Analyse the given kernels in code objects that ran. Raises the errors of running the program."""
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
            "the output of the code analysis program is invalid",
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
                raise ValueError(f"unknown hazard '{kind}'")
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
    """Merge hazards at the same source line, such as those of several instances of a template."""
    result: dict[tuple[object, ...], Hazard] = {}
    for one in hazards:
        places = (one.at.places, one.other.places) if one.at.file is not None else (one.at, one.other)
        result.setdefault((one.kind, *places), one)
    return tuple(result.values())


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "the file has no code to analyse",
        code="CODE_UNREADABLE",
        where=Location(path=str(path)),
        why=why,
        hint="--code takes a HIP program, a library, an object file, an offload bundle or a code object",
    )
