"""Programs before it is known whether the assembler takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pseudocode import patterns
from pseudocode.wave import LANES

COMPARED = 16  # of v and s registers, from the first
ALL = (1 << LANES) - 1
WORD = 0xFFFFFFFF
LLAMA_MODE, FLUSHING_MODE = 0xF0, 0xC0  # what compute kernels run with; f32 denormals flushed


@dataclass
class State:
    """What registers hold before."""

    v: dict[int, list[int]] = field(default_factory=dict)
    s: dict[int, int] = field(default_factory=dict)
    vcc: int = 0
    scc: int = 0
    exec: int = ALL
    m0: int = 0
    mode: int = LLAMA_MODE

    def fill_vector(self, random: Random, number: int, kind: str, count: int = 1) -> None:
        """Registers that hold nothing yet get random values of a type."""
        for first in range(number, number + count, 2 if count > 1 else 1):
            values = [patterns.pattern(random, kind) for _ in range(LANES)]
            for place in range(min(2, number + count - first)):
                self.v.setdefault(first + place, [value >> 32 * place & WORD for value in values])

    def fill_scalar(self, random: Random, number: int, kind: str, count: int = 1) -> None:
        value = patterns.pattern(random, kind)
        for place in range(count):
            self.s.setdefault(number + place, value >> 32 * place & WORD)


@dataclass(frozen=True)
class Draft:
    """``fill`` makes the state once the program is accepted."""

    name: str  # of the instruction under test, or of the program
    lines: tuple[str, ...]
    fill: Callable[[Random], State]
    tested: int = 0  # the line with the instruction whose results are judged
    judged: bool = True  # whether results are read by the type of that instruction
    notes: dict[str, Any] = field(default_factory=dict)


def vector_name(number: int, count: int = 1, half: int | None = None) -> str:
    if count > 1:
        return f"v[{number}:{number + count - 1}]"
    return f"v{number}" + ("" if half is None else ".h" if half else ".l")


def scalar_name(number: int, count: int = 1) -> str:
    return f"s[{number}:{number + count - 1}]" if count > 1 else f"s{number}"


def random_vector(random: Random, count: int = 1) -> int:
    return random.randrange(COMPARED - count + 1)


def random_scalar(random: Random, count: int = 1) -> int:
    step = 1 if count == 1 else 2 if count == 2 else 4
    return random.randrange(0, COMPARED - count + 1, step)


def random_exec(random: Random) -> int:
    """Mostly all lanes."""
    if random.random() < 0.7:
        return ALL
    return random.choice((random.getrandbits(LANES), 1, 1 << 31, 0xFFFF, 0, random.getrandbits(LANES)))


def constant(random: Random, kind: str, *, literal: bool) -> str | None:
    """An operand that is no register, as assembly text; None where the type has none."""
    if literal:
        bits = patterns.pattern(random, kind)
        if kind == "f64":
            return hex(bits >> 32)
        if kind in {"u64", "i64", "b64"}:
            return hex(random.getrandbits(31) | 0x100)  # how the upper half is filled differs by type
        return hex(bits & (0xFFFF if kind.endswith("16") else WORD))
    if kind.startswith("f") and random.random() < 0.7:
        return random.choice(("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"))
    return str(random.randrange(-16, 65))
