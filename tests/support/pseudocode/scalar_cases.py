"""Cases of scalar instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from pseudocode.drafts import Draft, State, constant, random_exec, random_scalar, scalar_name
from pseudocode.evaluate import type_of
from pseudocode.published import load_pseudocode
from pseudocode.wave import Text, find_text, read_operand

LEFT_OUT = {
    r"S_(GETPC|SETPC|SWAPPC|RFE|CALL)_B64": "they move the program counter",
    r"S_MOVREL\w+|S_SENDMSG\w+|S_GETREG\w+|S_SETREG\w+|S_VERSION|S_WAITCNT\w+": "no registers, or others",
    r"S_ALLOC_VGPR|S_(GET_)?BARRIER\w+|S_SLEEP_VAR": "waves and their registers, no results",
    r"S_\w+(SAVEEXEC|WREXEC)_B64": "a wave of 32 lanes has no upper half of EXEC",
}
PER_COUNT = 8  # a scalar instruction has one lane, so more programs


def draft_one_operand(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    yield from _drafts(random, "SOP1Op", count, architecture)


def draft_two_operands(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    yield from _drafts(random, "SOP2Op", count, architecture)


def draft_comparisons(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    yield from _drafts(random, "SOPCOp", count, architecture)


def draft_short_constants(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    yield from _drafts(random, "SOPKOp", count, architecture)


def draft_branches(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    """Forwards over some instructions, and back into them."""
    for condition in (
        "s_branch",
        *(f"s_cbranch_{name}" for name in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")),
    ):
        for _ in range(8 * count):
            over = random.randrange(4)
            steps = tuple(f"s_add_u32 s{n}, s{n}, {random.randrange(1, 60)}" for n in range(4))
            # s8 counts how often the loop has been gone through; the branch back ends it.
            back = (
                ("s_sub_u32 s8, s8, 1", "s_cmp_lg_u32 s8, 0", "s_cbranch_scc1 0xfff8")
                if random.random() < 0.5
                else ()
            )
            lines = (f"{condition} {over}", *steps, *back)
            yield Draft(condition, lines, _fill_branch, judged=False)


def _fill_branch(random: Random) -> State:
    def flags() -> int:
        return random.choice((0, random.getrandbits(32)))

    state = State(exec=flags(), vcc=flags(), scc=random.getrandbits(1))
    for number in range(8):
        state.fill_scalar(random, number, "b32")
    state.s[8] = random.randrange(1, 5)
    return state


def _drafts(random: Random, encoding: str, count: int, architecture: str) -> Iterator[Draft]:
    for name in sorted(load_pseudocode(architecture)[encoding]):
        if any(re.fullmatch(pattern, name) for pattern in LEFT_OUT):
            continue
        for _ in range(count):
            yield _draft(Random(random.getrandbits(64)), find_text(name.lower(), architecture))


def _draft(random: Random, text: Text) -> Draft:
    operands: list[tuple[str, str]] = []
    if "D0" in text.names:
        operands.append(
            (_register(random, type_of(text.result)[1] if text.result else 32), text.result or "b32")
        )
    for number in range(2):
        if f"S{number}" in text.names:
            kind, width = text.sources[number]
            is_short = text.encoding == "SOPKOp"
            operands.append(
                (_register(random, width) if is_short else _source(random, text, kind, width), kind)
            )
    words = [word for word, _ in operands]
    if "SIMM16" in text.names:
        words.append(hex(random.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, random.getrandbits(16)))))
    if "SIMM32" in text.names:
        words.insert(2 if "MK" in text.name else 3, constant(random, "f32", literal=True) or "0")

    def fill(values: Random) -> State:
        state = State(exec=random_exec(values), scc=values.getrandbits(1), vcc=values.getrandbits(32))
        for word, kind in operands:
            operand = read_operand(word)
            if operand.kind == "s" and operand.number < 16:
                state.fill_scalar(values, operand.number, kind, operand.count)
        _relate(values, state, [word for word, _ in operands])
        return state

    return Draft(text.name.lower(), (f"{text.name.lower()} {', '.join(words)}",), fill)


def _register(random: Random, width: int) -> str:
    count = max(1, width // 32)
    return scalar_name(random_scalar(random, count), count)


def _source(random: Random, text: Text, kind: str, width: int) -> str:
    choice = random.random()
    if choice < 0.7 or text.name == "S_CVT_HI_F32_F16":  # what the upper half of a constant is, is not said
        return _register(random, width)
    if choice < 0.76 and width < 64:
        return random.choice(("vcc_lo", "exec_lo"))
    return constant(random, "f32" if kind == "f16" and choice < 0.8 else kind, literal=choice > 0.9) or "0"


def _relate(random: Random, state: State, words: list[str]) -> None:
    """Sometimes the two sources are equal."""
    registers = [read_operand(word) for word in words[-2:] if re.match(r"s[\d\[]", word)]
    if len(registers) == 2 and registers[0].count == registers[1].count and random.random() < 0.15:
        for place in range(registers[0].count):
            state.s[registers[1].number + place] = state.s[registers[0].number + place]
