"""Programs of one instruction, or a few, on random operands, with what they must leave.

A case has the form of isa-vectors.jsonl and more keys: ``before`` is what registers hold at the start (what
it does not name is as in that file), ``mode`` the low byte of MODE, ``text`` the program. ``numbers`` says
which results are to be read as floats, how far they may be off, and what else would do; ``ignored`` which
bits are not specified. Registers up to v15 and s15 are compared, as in that file.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pseudocode import lane_cases, matrices, memory_cases, scalar_cases, vector_cases, wave
from pseudocode.assembly import Assembler, Instruction, parse_line
from pseudocode.drafts import COMPARED, Draft, State
from pseudocode.floats import BF16, BY_TYPE, F16, F32
from pseudocode.wave import EXEC, LANES, M0, VCC, Operand, Text, Wave, find_text, read_operand

Case = dict[str, Any]

ONE_UNIT = re.compile(r"V_(S_)?(RCP|RCP_IFLAG|RSQ|SQRT|LOG|EXP)_F(16|32|64)")


@dataclass(frozen=True)
class Family:
    """Instructions that are tested alike."""

    draft: Callable[[Random, int, str], Iterator[Draft]]  # of how many per instruction, of which architecture
    surplus: int = 1  # as many times more are drafted, as the assembler refuses some
    per_count: int = 1  # as many times more are kept


FAMILIES = {
    "vop1": Family(vector_cases.draft_one_operand, 8),
    "vop2": Family(vector_cases.draft_two_operands, 8),
    "vop3": Family(vector_cases.draft_three_operands, 12),
    "carry": Family(vector_cases.draft_carries, 6),
    "compare": Family(vector_cases.draft_comparisons, 4),
    "compare_exec": Family(vector_cases.draft_comparisons_to_exec, 4),
    "packed": Family(vector_cases.draft_packed, 8, 2),
    "dot": Family(vector_cases.draft_dots, 16, 4),
    "mixed": Family(vector_cases.draft_mixed, 32, 8),
    "dual": Family(vector_cases.draft_dual),
    "lanes": Family(lane_cases.draft_permutations, 1, 4),
    "dpp": Family(lane_cases.draft_dpp, 1, 4),
    "matrix": Family(lane_cases.draft_matrices, 1, 2),
    "division": Family(lane_cases.draft_divisions, 1, 10),
    "branch": Family(scalar_cases.draft_branches, 1, 8),
    "sop1": Family(scalar_cases.draft_one_operand, 12, 8),
    "sop2": Family(scalar_cases.draft_two_operands, 12, 8),
    "sopc": Family(scalar_cases.draft_comparisons, 12, 8),
    "sopk": Family(scalar_cases.draft_short_constants, 12, 8),
    "lds": Family(memory_cases.draft_lds),
    "lds_atomics": Family(memory_cases.draft_lds_atomics),
    "memory": Family(memory_cases.draft_accesses),
    "memory_atomics": Family(memory_cases.draft_atomics),
    "scalar_loads": Family(memory_cases.draft_scalar_loads, 4, 4),
}


def generate(
    name: str,
    seed: int,
    count: int,
    assembler: Assembler,
    change: Callable[[State], None] | None = None,
) -> list[Case]:
    """Some cases for each instruction of a family, ``count`` or a fixed multiple of that.

    ``change`` may change what registers hold before.
    """
    family = FAMILIES[name]
    drafts = list(family.draft(Random(f"{name} {seed}"), count * family.surplus, assembler.architecture))
    kept: Counter[str] = Counter()
    cases: list[Case] = []
    for draft, codes in _assembled(drafts, assembler):
        if kept[draft.name] < count * family.per_count:
            case_name = f"{name}.{draft.name}.{kept[draft.name]}"
            state = draft.fill(Random(f"{seed} {case_name}"))
            if change is not None:
                change(state)
            cases.append(_finished(draft, codes, case_name, state, assembler.architecture))
            kept[draft.name] += 1
    return cases


def instructions_of(name: str, assembler: Assembler) -> set[str]:
    """The mnemonics in the programs of a family, as far as the assembler takes them."""
    family = FAMILIES[name]
    drafts = list(family.draft(Random(name), 2 * family.surplus, assembler.architecture))
    return {
        part.mnemonic
        for _, codes in _assembled(drafts, assembler)
        for _, text in codes
        for part in parse_line(text)
    }


def _assembled(
    drafts: Sequence[Draft], assembler: Assembler
) -> Iterator[tuple[Draft, list[tuple[bytes, str]]]]:
    made = iter(assembler.assemble([line for draft in drafts for line in draft.lines]))
    for draft in drafts:
        codes = [next(made) for _ in draft.lines]
        taken = [code for code in codes if code is not None]
        if len(taken) == len(codes):
            yield draft, taken


def _finished(
    draft: Draft, codes: list[tuple[bytes, str]], name: str, state: State, architecture: str
) -> Case:
    running = _started(state, architecture)
    numbers: list[Case] = []
    ignored: list[Case] = []
    ends = list(itertools.accumulate(len(code) for code, _ in codes))
    place = 0
    while place < len(codes):
        text = codes[place][1]
        parts = parse_line(text)
        if place == draft.tested and draft.judged:
            numbers = [entry for part in parts for entry in _numbers(running, part)]
            ignored = [entry for part in parts for entry in _ignored(running, part)]
        elif parts[0].mnemonic in matrices.SHAPES[running.architecture]:
            numbers = _matrix_numbers(running, parts[0])
        distance = running.run_line(text)
        place = place + 1 if distance is None else [0, *ends].index(ends[place] + 4 * distance)
    case: Case = {
        "name": name.replace(" ", "+"),
        "lanes": LANES,
        "code": b"".join(code for code, _ in codes).hex(),
        "mode": f"{state.mode:02x}",
        "before": _before(state),
        "after": _after(running),
        "text": "; ".join(text for _, text in codes),
    }
    if numbers:
        case["numbers"] = numbers
    if ignored:
        case["ignored"] = ignored
    return case


def _started(state: State, architecture: str) -> Wave:
    running = Wave(architecture, mode=state.mode)
    for number, lanes in state.v.items():
        running.v[number] = list(lanes)
    for number, bits in state.s.items():
        running.s[number] = bits
    running.s[VCC], running.s[EXEC], running.s[M0], running.scc = state.vcc, state.exec, state.m0, state.scc
    return running


def _before(state: State) -> Case:
    return {
        "v": {str(number): _lanes(lanes) for number, lanes in state.v.items()},
        "s": {str(number): _word(bits) for number, bits in state.s.items()},
        "vcc": _word(state.vcc),
        "scc": state.scc,
        "exec": _word(state.exec),
        "m0": _word(state.m0),
    }


def _after(running: Wave) -> Case:
    return {
        "v": {str(n): _lanes(running.v[n]) for n in range(COMPARED) if any(running.v[n])},
        "s": {str(n): _word(running.s[n]) for n in range(COMPARED) if running.s[n]},
        "vcc": _word(running.s[VCC]),
        "scc": running.scc,
        "exec": _word(running.s[EXEC]),
    }


def _word(bits: int) -> str:
    return f"{bits:08x}"


def _lanes(lanes: Sequence[int]) -> str | list[str]:
    return _word(lanes[0]) if len(set(lanes)) == 1 else [_word(bits) for bits in lanes]


# How results are judged


def _numbers(running: Wave, instruction: Instruction) -> list[Case]:
    """Which results are floats, and how near they must be."""
    if instruction.mnemonic.startswith(("v_cmp", "s_cmp")) or not instruction.operands:
        return []
    text = find_text(instruction.mnemonic, running.architecture)
    target = read_operand(instruction.operands[0])
    found = []
    for kind, shift in _elements(text, target):
        entry: Case = {"register": f"{target.kind}{target.number}", "shift": shift, "type": kind}
        if ONE_UNIT.fullmatch(text.name):
            entry["units"] = 1
        elif text.name.startswith(("V_SIN", "V_COS")):
            entry["within"] = 2.0**-9 if kind == "f16" else 2.0**-20
        elif text.name.startswith("V_DOT2"):
            entry |= {"units": 1, "or": _other_orders(running, instruction, text, target)}
        found.append(entry)
    return found


def _elements(text: Text, target: Operand) -> list[tuple[str, int]]:
    """Type and lowest bit of the floats in a result."""
    if re.fullmatch(r"V_PK_\w+_F16|[VS]_CVT_PK_RTZ_F16_F32|V_PACK_B32_F16", text.name):
        return [("f16", 0), ("f16", 16)]
    if text.name == "V_FMA_MIXHI_F16":
        return [("f16", 16)]
    if text.result in BY_TYPE:
        return [(text.result, 16 * (target.half or 0))]
    return []


def _ignored(running: Wave, instruction: Instruction) -> list[Case]:
    """The upper half of a scalar register that gets an f16 is not specified."""
    if instruction.mnemonic.startswith(("s_", "v_s_")) and not instruction.mnemonic.startswith("s_cmp"):
        text = find_text(instruction.mnemonic, running.architecture)
        if text.result == "f16":
            return [{"register": f"s{read_operand(instruction.operands[0]).number}", "mask": "ffff0000"}]
    return []


_LOW = "f16_to_f32(S0[15 : 0].f16) * f16_to_f32(S1[15 : 0].f16)"
_HIGH = "f16_to_f32(S0[31 : 16].f16) * f16_to_f32(S1[31 : 16].f16)"
_ORDERS = {
    "f32": (
        f"D0.f32 = ({_LOW} + {_HIGH}) + ADDEND.f32",
        f"D0.f32 = ({_HIGH} + ADDEND.f32) + {_LOW}",
        "D0.f32 = exact_dot(S0, S1, ADDEND.f32)",
    ),
    "f16": (
        "D0.f16 = fma(S0[31 : 16].f16, S1[31 : 16].f16, fma(S0[15 : 0].f16, S1[15 : 0].f16, ADDEND.f16))",
        "D0.f16 = fma(S0[15 : 0].f16, S1[15 : 0].f16, fma(S0[31 : 16].f16, S1[31 : 16].f16, ADDEND.f16))",
        "D0.f16 = exact_dot(S0, S1, ADDEND.f16)",
    ),
}


def _other_orders(running: Wave, instruction: Instruction, text: Text, target: Operand) -> list[list[str]]:
    """What else a sum of two products may be: the order and rounding of its parts are not promised."""
    found = []
    for body in _ORDERS[text.result]:
        changed = body.replace("ADDEND", "D0" if "ACC" in text.name else "S2")
        if "_BF16" in text.name:
            changed = changed.replace("f16", "bf16")
        trial = copy.deepcopy(running)
        wave.run_lanes(trial, instruction, replace(text, body=changed, result=text.result))
        found.append([_word(bits) for bits in trial.v[target.number]])
    return found


def _matrix_numbers(running: Wave, instruction: Instruction) -> list[Case]:
    """Sums are exact to within the rounding of every partial sum, in any order."""
    shape = matrices.SHAPES[running.architecture][instruction.mnemonic]
    if shape.sum is None:
        return []
    kind = {F16: "f16", F32: "f32", BF16: "bf16"}[shape.sum]
    bounds = matrices.rounding_bounds(running, instruction)
    return [
        {"register": f"v{number}", "shift": shift, "type": kind, "within": lanes}
        for (number, shift), lanes in bounds.items()
    ]
