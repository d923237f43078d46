"""Which instructions of a GPU are emulated, of all that LLVM's tables decode; and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted

State = Literal["yes", "some", "out", "no"]

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionState:
    """One instruction by its name, in a ``family`` of encodings (VALU, SALU, DS, memory, graphics).

    ``state``: every form of operands that was tried is emulated (``yes``), or not each (``some``); it is left
    out on purpose (``out``), or lacks (``no``). ``why`` says it of all but the first.
    """

    family: str
    name: str
    state: State
    why: str


def instruction_states(
    *, arch: str, program: Path, disassembler: Path, reporter: Reporter
) -> tuple[InstructionState, ...]:
    """All instructions of a GPU; ``program`` is that of :func:`.emulator.build_coverage`.

    Raises:
        COVERAGE_UNREADABLE: the program answered something else.
        ToolFailed, ToolCrashed, ToolTimeout: it did not end well.
    """
    done = run_tool(
        [str(program), str(disassembler), arch],
        env={"LD_LIBRARY_PATH": str(disassembler.parent)},
        timeout_s=_TIMEOUT_S,
        reporter=reporter,
    )
    try:
        return tuple(_parse(line) for line in done.stdout.decode("utf-8", "replace").splitlines())
    except ValueError as error:
        raise ToolchainError(
            "the program that counts instructions answered what is no answer",
            code="COVERAGE_UNREADABLE",
            where=Location(path=str(program)),
            why=str(error),
        ) from error


def _parse(line: str) -> InstructionState:
    family, name, state, *why = line.split(" ", 3)
    if state not in get_args(State):
        raise ValueError(f"'{line}' is no state of an instruction")
    return InstructionState(family=family, name=name, state=cast("State", state), why=" ".join(why))


def coverage_lines(states: Sequence[InstructionState], arch: str) -> Iterator[str]:
    """What ``emulate --coverage`` shows: counts by family, then what is not emulated by its reason."""
    for family in sorted({one.family for one in states}):
        of_family = [one for one in states if one.family == family]
        run = sum(one.state in {"yes", "some"} for one in of_family)
        out = sum(one.state == "out" for one in of_family)
        total = counted(len(of_family), "instruction")
        yield f"{family}: {run} of {total} of {arch} emulated, {out} left out"
    for state, title in (
        ("no", "not emulated"),
        ("some", "emulated in part"),
    ):
        yield from (f"{title}: {one.name}: {one.why}" for one in states if one.state == state)
    by_reason: dict[str, list[str]] = {}
    for one in states:
        if one.state == "out":
            by_reason.setdefault(one.why, []).append(one.name)
    for reason, names in sorted(by_reason.items()):
        yield f"left out, {reason}: {', '.join(names)}"


def coverage_document(states: Sequence[InstructionState], arch: str) -> dict[str, object]:
    """The same as ``--json`` shows it."""
    return {
        "arch": arch,
        "instructions": len(states),
        "emulated": sum(one.state in {"yes", "some"} for one in states),
        "left_out": sum(one.state == "out" for one in states),
        "lacking": [one.name for one in states if one.state == "no"],
        "states": [
            {"family": one.family, "name": one.name, "state": one.state, "why": one.why} for one in states
        ],
    }
