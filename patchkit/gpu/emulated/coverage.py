"""Which instructions that LLVM decodes for a GPU are emulated, and why the others are not."""

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
    """State of one instruction, in a ``family`` of encodings (VALU, SALU, DS, memory, graphics).

    ``state``: all operand forms that were tried are emulated (``yes``), only some of them (``some``), the
    instruction is excluded on purpose (``out``), or it is missing (``no``). ``why``: the reason for the last
    three.
    """

    family: str
    name: str
    state: State
    why: str


def instruction_states(
    *, arch: str, program: Path, disassembler: Path, reporter: Reporter
) -> tuple[InstructionState, ...]:
    """The state of all instructions of a GPU; ``program`` is built by :func:`.emulator.build_coverage`.

    Raises:
        ToolchainError: the program's output has another form.
        ToolFailed, ToolCrashed, ToolTimeout: the program failed.
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
            "the output of the instruction coverage program is invalid",
            where=Location(path=str(program)),
            why=str(error),
        ) from error


def _parse(line: str) -> InstructionState:
    family, name, state, *why = line.split(" ", 3)
    if state not in get_args(State):
        raise ValueError(f"'{line}' is not the state of an instruction")
    return InstructionState(family=family, name=name, state=cast("State", state), why=" ".join(why))


def coverage_lines(states: Sequence[InstructionState], arch: str) -> Iterator[str]:
    """The output of ``emulate --coverage``: counts per family, then what is not emulated, by reason."""
    for family in sorted({one.family for one in states}):
        of_family = [one for one in states if one.family == family]
        run = sum(one.state in {"yes", "some"} for one in of_family)
        out = sum(one.state == "out" for one in of_family)
        total = counted(len(of_family), "instruction")
        yield f"{family}: {run} of {total} of {arch} emulated, {out} excluded"
    for state, title in (
        ("no", "not emulated"),
        ("some", "partly emulated"),
    ):
        yield from (f"{title}: {one.name}: {one.why}" for one in states if one.state == state)
    by_reason: dict[str, list[str]] = {}
    for one in states:
        if one.state == "out":
            by_reason.setdefault(one.why, []).append(one.name)
    for reason, names in sorted(by_reason.items()):
        yield f"excluded, {reason}: {', '.join(names)}"


def coverage_document(states: Sequence[InstructionState], arch: str) -> dict[str, object]:
    """The coverage as a JSON document."""
    return {
        "arch": arch,
        "instructions": len(states),
        "emulated": sum(one.state in {"yes", "some"} for one in states),
        "not_emulated": sum(one.state == "out" for one in states),
        "lacking": [one.name for one in states if one.state == "no"],
        "states": [
            {"family": one.family, "name": one.name, "state": one.state, "why": one.why} for one in states
        ],
    }
