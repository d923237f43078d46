"""One wave of 32 lanes that runs instructions as the pseudocode says.

What the pseudocode leaves out is here: where operands come from, modifiers of sources and results,
constants, halves of registers, and how lanes become masks (instruction set guides of RDNA3 and RDNA3.5,
chapters 3, 6, 7, 11 and 12).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import cast

from pseudocode import floats, matrices, syntax
from pseudocode.assembly import Instruction, parse_line
from pseudocode.corrections import corrected
from pseudocode.evaluate import Frame, Value, run, truth, type_of, whole
from pseudocode.floats import BY_TYPE, Rounding
from pseudocode.published import load_pseudocode

LANES = 32
VCC, M0, NULL, EXEC = 106, 125, 124, 126  # as scalar registers
NAMED = {
    "vcc_lo": VCC,
    "vcc_hi": 107,
    "vcc": VCC,
    "m0": M0,
    "exec_lo": EXEC,
    "exec_hi": 127,
    "exec": EXEC,
    "null": NULL,
}
BUFFER, KERNARG = 0x7F00_0000_0000, 0x7F10_0000_0000  # where the zeroed buffer and its pointer lie here
WORD = 0xFFFFFFFF


class NotModelled(ValueError):
    """An instruction or operand that this evaluator cannot do."""


@dataclass(frozen=True)
class Text:
    """The pseudocode of one instruction with what can be read off it."""

    name: str  # without encoding
    encoding: str
    body: str
    sources: tuple[tuple[str, int], ...]  # of S0, S1, S2: the type of their elements, and bits in all
    result: str  # the type in which D0 is first assigned, or ""
    names: frozenset[str]


@dataclass(frozen=True)
class Operand:
    kind: str  # v, s, whole, literal, float
    number: int  # of the register, or the value
    count: int = 1  # registers
    half: int | None = None  # 0 or 1 of a register
    negate: bool = False
    absolute: bool = False
    text: str = ""


ENCODINGS = {
    "e32": ("VOP1Op", "VOP2Op", "VOPCOp"),
    "e64": ("VOP3Op", "VOP3SDOp"),
    "v": ("VOP3Op", "VOP3SDOp", "VOP3POp", "VOP2Op", "VOP1Op", "VOPDOp"),
    "s": ("SOP1Op", "SOP2Op", "SOPCOp", "SOPKOp", "SMEMOp"),
    "ds": ("DSOp",),
    "flat": ("FLATOp", "VFLATOp"),
    "global": ("GLOBALOp", "VGLOBALOp"),
    "scratch": ("SCRATCHOp", "VSCRATCHOp"),
}


@cache
def find_text(mnemonic: str, architecture: str) -> Text:
    """The pseudocode of an instruction by the name that LLVM gives it."""
    name = re.sub(r"_(dpp|e64_dpp)$", "", mnemonic).upper().replace("V_DUAL_", "V_")
    bare = re.sub(r"_E(32|64)$", "", name)
    groups = ENCODINGS[name[-3:].lower() if name != bare else mnemonic.split("_", maxsplit=1)[0]]
    published = load_pseudocode(architecture)
    for group in groups:
        for form in (name, bare + "_E64", bare, bare + "_E32", bare.replace("V_", "V_DUAL_", 1)):
            if form in published.get(group, {}):
                return _read_text(bare, group, corrected(bare, published[group][form]))
    raise NotModelled(f"{mnemonic} has no pseudocode")


def _read_text(name: str, encoding: str, body: str) -> Text:
    if encoding == "SOPKOp" and "SIMM16" not in body:  # RDNA4's texts call the constant the first source
        body = re.sub(r"\bS0\b", "SIMM16", body)
    nodes = syntax.walk(syntax.parse(body))
    sources = tuple(_source_type(nodes, f"S{number}") for number in range(3))
    names = frozenset(node.name for node in nodes if isinstance(node, syntax.Name))
    return Text(name, encoding, body, sources, _result_type(nodes), names)


def _source_type(nodes: list[syntax.Node], name: str) -> tuple[str, int]:
    found, width = "", 0
    for node in nodes:
        if not isinstance(node, syntax.Typed | syntax.Slice):
            continue
        sliced = node.base if isinstance(node, syntax.Typed) and isinstance(node.base, syntax.Slice) else None
        if isinstance(node, syntax.Typed) and node.base == syntax.Name(name):
            found, width = found or node.type, max(width, type_of(node.type)[1])
        elif isinstance(node, syntax.Typed) and sliced is not None and sliced.base == syntax.Name(name):
            found = found or node.type
        elif isinstance(node, syntax.Slice) and node.base == syntax.Name(name):
            high = int(node.high.text) + 1 if isinstance(node.high, syntax.Literal) else 32
            width = max(width, 64 if high > 32 else 32)
    return found or "u32", width or 32


def _result_type(nodes: list[syntax.Node]) -> str:
    for node in nodes:
        if not isinstance(node, syntax.Assign):
            continue
        for part in syntax.walk(node.target):
            if isinstance(part, syntax.Typed) and syntax.Name("D0") in syntax.walk(part.base):
                return part.type
    return ""


def read_operand(text: str) -> Operand:
    bare = text
    negate = bare.startswith("-") and not re.match(r"-[\d.]", bare)
    bare = bare.removeprefix("-") if negate else bare
    absolute = bare.startswith("|")
    bare = bare.strip("|")
    match = re.fullmatch(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])(?:\.([lh]))?", bare)
    if match is not None:
        first = int(match[2] or match[3])
        count = int(match[4]) - first + 1 if match[4] else 1
        half = {"l": 0, "h": 1}.get(match[5]) if match[5] else None
        return Operand(match[1], first, count, half, negate, absolute, bare)
    if bare in NAMED:
        return Operand("s", NAMED[bare], 1, None, negate, absolute, bare)
    literal = re.fullmatch(r"lit\((.+)\)", bare)
    if literal is not None or bare.startswith("0x"):
        return Operand("literal", int(literal[1] if literal else bare, 16), 1, None, negate, absolute, bare)
    if re.fullmatch(r"-?\d+", bare):
        return Operand("whole", int(bare), 1, None, negate, absolute, bare)
    if re.fullmatch(r"-?\d+\.\d+", bare):
        return Operand("float", 0, 1, None, negate, absolute, bare)
    raise NotModelled(f"operand {text}")


def constant_bits(operand: Operand, kind: str) -> int:
    """The bits of a constant where a source of some type is read."""
    width = type_of(kind)[1]
    if operand.kind == "whole":
        return operand.number & ((1 << max(width, 32)) - 1)
    if operand.kind == "literal":
        return operand.number << 32 if kind == "f64" else operand.number
    # 16-bit whole numbers see the f32 pattern (LLVM: getInlineEncodingV216), 64-bit ones that of f64.
    form = {"f16": floats.F16, "bf16": floats.BF16}.get(kind) or (floats.F64 if width == 64 else floats.F32)
    return floats.from_float(float(operand.text), form)


class Space:
    """Bytes at an address."""

    def __init__(self, size: int, base: int = 0) -> None:
        self.base = base
        self._size = size

    @cached_property
    def bytes(self) -> bytearray:
        return bytearray(self._size)

    def read(self, address: int, size: int) -> int:
        at = self._at(address, size)
        return int.from_bytes(self.bytes[at : at + size], "little")

    def write(self, address: int, size: int, bits: int) -> None:
        at = self._at(address, size)
        self.bytes[at : at + size] = bits.to_bytes(size, "little")

    def _at(self, address: int, size: int) -> int:
        at = address - self.base
        if not 0 <= at <= len(self.bytes) - size:
            raise NotModelled(
                f"{size} bytes at {address:#x} lie outside of the {len(self.bytes)} at {self.base:#x}"
            )
        return at


@dataclass
class Wave:
    architecture: str = "rdna3"
    lanes: int = LANES
    v: list[list[int]] = field(default_factory=lambda: [[0] * LANES for _ in range(256)])
    s: list[int] = field(default_factory=lambda: [0] * 128)
    scc: int = 0
    mode: int = 0xC0  # f32 denormals flushed, those of f16 and f64 kept; to nearest even
    lds: Space = field(default_factory=lambda: Space(65536))
    scratch: list[Space] = field(default_factory=lambda: [Space(65536) for _ in range(LANES)])
    buffer: Space = field(default_factory=lambda: Space(4096, BUFFER))
    kernarg: Space = field(default_factory=lambda: Space(8, KERNARG))

    def __post_init__(self) -> None:
        self.s[EXEC] = (1 << self.lanes) - 1
        self.buffer = Space(max(64 * self.lanes, 2048) + 76, BUFFER)
        self.kernarg.write(KERNARG, 8, BUFFER)
        self.write_scalar(80, KERNARG, 2)
        self.v[255] = list(range(LANES))

    # Registers

    def read_scalar(self, number: int, count: int = 1) -> int:
        return sum(0 if number + i == NULL else self.s[number + i] << 32 * i for i in range(count))

    def write_scalar(self, number: int, bits: int, count: int = 1) -> None:
        for i in range(count):
            if number != NULL:
                self.s[number + i] = bits >> 32 * i & WORD

    def read_vector(self, number: int, lane: int, count: int = 1) -> int:
        return sum(self.v[number + i][lane] << 32 * i for i in range(count))

    def write_vector(self, number: int, lane: int, bits: int, count: int = 1) -> None:
        for i in range(count):
            self.v[number + i][lane] = bits >> 32 * i & WORD

    def active(self) -> list[int]:
        return [lane for lane in range(LANES) if self.s[EXEC] >> lane & 1]

    def read(self, operand: Operand, kind: str, width: int, lane: int, upper: int = 0) -> int:
        """A source as the instruction gets it, before its modifiers."""
        count = max(1, width // 32)
        if operand.kind == "v":
            bits = self.read_vector(operand.number, lane, count)
            return bits >> 16 * operand.half & 0xFFFF if operand.half is not None else bits
        if operand.kind == "s":
            bits = self.read_scalar(operand.number, count)
        else:
            bits = constant_bits(operand, kind)
        return bits >> 16 if upper else bits

    # Running

    def run(self, instruction: Instruction) -> None:
        encoding = instruction.mnemonic.split("_")[0]
        if instruction.mnemonic in _NOTHING or instruction.mnemonic.startswith(("s_waitcnt", "s_wait_")):
            return
        if instruction.mnemonic in matrices.SHAPES[self.architecture]:
            matrices.run(self, instruction)
            return
        {
            "s": _run_scalar,
            "v": _run_vector,
            "ds": _run_lds,
            "global": _run_memory,
            "flat": _run_memory,
            "scratch": _run_memory,
        }[encoding](self, instruction)

    def run_line(self, text: str) -> int | None:
        """Runs one line of assembly; gives how many words after its end a branch that is taken goes on."""
        parts = parse_line(text)
        if _is_branch(parts[0]):
            return _distance(self, parts[0])
        if len(parts) == 1:
            self.run(parts[0])
        else:
            self.run_dual(parts[0], parts[1])
        return None

    def run_dual(self, first: Instruction, second: Instruction) -> None:
        """Both halves read before either writes."""
        before = [list(register) for register in self.v]
        self.run(first)
        written = self.v
        self.v = [list(register) for register in before]
        self.run(second)
        for number, register in enumerate(written):
            if register != before[number]:
                self.v[number] = register

    # What the pseudocode names

    def frame(self, text: Text, lane: int = 0) -> Frame:
        names: dict[str, Value | list[Value] | syntax.Lambda] = {
            "laneId": whole(lane),
            "laneID": whole(lane),
            "SCC": whole(self.scc, "u", 1),
            "EXEC": whole(self.s[EXEC], "b", 64),
            "EXEC_LO": whole(self.s[EXEC], "b", 32),
            "VCC": whole(self.s[VCC], "b", 64),
            "M0": whole(self.s[M0], "b", 32),
            "WAVE_MODE.IEEE": truth(condition=True),
        }
        if "CVT_OFF_TABLE" in text.names:
            sixteenths = [number if number < 8 else number - 16 for number in range(16)]
            names["CVT_OFF_TABLE"] = [
                Value("f", 32, floats.from_float(number / 16, floats.F32)) for number in sixteenths
            ]
        rounding = cast("list[Rounding]", ["even", "up", "down", "zero"])
        modes = {"f32": rounding[self.mode & 3], "f64": rounding[self.mode >> 2 & 3]}
        return Frame(names, partial(_call_other, self.architecture), registers=_Vectors(self), rounding=modes)

    def flushes(self, kind: str, *, output: bool) -> bool:
        shift = 4 if kind == "f32" else 6
        return kind in {"f16", "f32", "f64"} and not self.mode >> (shift + output) & 1


class _Vectors:
    """The vector registers as ``VGPR[lane][register]``."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def read(self, lane: int, register: int) -> int:
        return self._wave.v[register][lane]

    def write(self, lane: int, register: int, bits: int) -> None:
        self._wave.v[register][lane] = bits


def _call_other(architecture: str, name: str, arguments: list[Value], frame: Frame) -> Value:
    """Another instruction used as a function: ``v_min_f32(a, b)``."""
    text = find_text(name, architecture)
    names = {key: frame.names[key] for key in ("WAVE_MODE.IEEE", "laneId") if key in frame.names}
    for number, value in enumerate(arguments):
        names[f"S{number}"] = value
    inner = Frame({**names, "D0": Value("b", 128, 0)}, frame.call, rounding=frame.rounding)
    run(text.body, inner)
    kind, width = type_of(text.result)
    result = inner.names["D0"]
    assert isinstance(result, Value)
    return Value(kind, width, result.bits & ((1 << width) - 1))


_NOTHING = frozenset(
    [
        "s_nop",
        "s_delay_alu",
        "s_clause",
        "s_barrier",
        "s_wait_idle",
        "s_dcache_inv",
        "s_gl1_inv",
        "s_sleep",
        "s_code_end",
        "s_endpgm",
        "s_set_inst_prefetch_distance",
        "buffer_gl0_inv",
        "buffer_gl1_inv",
        "v_nop",
        "s_icache_inv",
        "s_sendmsg",
    ]
)


def _value(frame: Frame, name: str) -> int:
    held = frame.names[name]
    assert isinstance(held, Value)
    return held.bits


# Branches


def _is_branch(instruction: Instruction) -> bool:
    return instruction.mnemonic == "s_branch" or instruction.mnemonic.startswith("s_cbranch_")


def _distance(wave: Wave, instruction: Instruction) -> int | None:
    condition = instruction.mnemonic.rpartition("_")[2]
    if not {
        "branch": True,
        "scc0": not wave.scc,
        "scc1": bool(wave.scc),
        "vccz": not wave.s[VCC],
        "vccnz": bool(wave.s[VCC]),
        "execz": not wave.s[EXEC],
        "execnz": bool(wave.s[EXEC]),
    }[condition]:
        return None
    words = int(instruction.operands[0], 0)
    return words - (1 << 16) if words >> 15 else words


# Scalar instructions


def _run_scalar(wave: Wave, instruction: Instruction) -> None:
    text = find_text(instruction.mnemonic, wave.architecture)
    if text.encoding == "SMEMOp":
        _run_scalar_load(wave, instruction, text)
        return
    operands = [read_operand(operand) for operand in instruction.operands]
    frame = wave.frame(text)
    has_result = "D0" in text.names
    target = operands.pop(0) if has_result else None
    if target is not None:
        frame.names["D0"] = whole(wave.read_scalar(target.number, target.count), "b", 64)
    if "SIMM16" in text.names:
        frame.names["SIMM16"] = whole(operands.pop().number, "b", 16)
    if "SIMM32" in text.names:
        constant = operands.pop(-1 if "AAK" in text.name else 1)
        frame.names["SIMM32"] = whole(_flushed(wave, constant_bits(constant, "f32"), "f32"), "b", 32)
    for number, operand in enumerate(operands):
        kind, width = text.sources[number]
        bits = wave.read(operand, kind, max(width, 32), 0)
        frame.names[f"S{number}"] = whole(_flushed(wave, bits, kind), "b", 64)
    run(text.body, frame)
    wave.scc = _value(frame, "SCC") & 1
    wave.s[EXEC] = _value(frame, "EXEC") & WORD
    if target is not None:
        bits = _value(frame, "D0")
        wave.write_scalar(target.number, _finished(wave, bits, text.result), target.count)


def _run_scalar_load(wave: Wave, instruction: Instruction, text: Text) -> None:
    target, base = (read_operand(operand) for operand in instruction.operands[:2])
    offset = read_operand(instruction.operands[2].removeprefix("-"))
    address = wave.read_scalar(base.number, 2) + instruction.number("offset")
    distance = offset.number if offset.kind in {"whole", "literal"} else wave.read_scalar(offset.number)
    address += -distance if instruction.operands[2].startswith("-") else distance
    frame = wave.frame(text)
    frame.names |= dict.fromkeys(("ADDR", "sgpr_base"), whole(address, "u", 64))
    frame.names |= {"offset": whole(0, "u", 64), "SDATA": Value("b", 512, 0)}
    frame.memory = _Everywhere(wave)
    run(text.body, frame)
    wave.write_scalar(target.number, _value(frame, "SDATA"), target.count)


# Vector instructions


def _flushed(wave: Wave, bits: int, kind: str) -> int:
    if not wave.flushes(kind, output=False):
        return bits
    form = BY_TYPE[kind]
    mask = (1 << form.width) - 1
    return bits & ~mask | floats.flushed(bits & mask, form)


_POWERS = {"mul:2": 1, "mul:4": 2, "div:2": -1}


def _finished(wave: Wave, bits: int, kind: str, *, clamps: bool = False, power: int = 0) -> int:
    """A result after output modifiers; ``power`` of two by which it is multiplied.

    But for clamping they are off in IEEE mode, which only RDNA4 has not, and where denormals are results.
    """
    if kind not in {"f16", "f32", "f64"}:
        return bits
    form = BY_TYPE[kind]
    mask = (1 << form.width) - 1
    number = bits & mask
    if power and wave.architecture == "rdna4" and wave.flushes(kind, output=True):
        number = floats.scaled(number, power, form)
    if clamps:
        one = floats.from_float(1.0, form)
        if floats.is_nan(number, form) or floats.is_negative(number, form):
            number = 0
        elif floats.less(one, number, form):
            number = one
    if wave.flushes(kind, output=True):
        number = floats.flushed(number, form)
    return bits & ~mask | number


def _run_vector(wave: Wave, instruction: Instruction) -> None:
    text = find_text(instruction.mnemonic, wave.architecture)
    special = next((run for pattern, run in _SPECIAL if re.fullmatch(pattern, text.name)), None)
    if special is not None:
        special(wave, instruction, text)
    elif text.name.startswith("V_CMP"):
        _run_compare(wave, instruction, text)
    else:
        run_lanes(wave, instruction, text)


@dataclass
class _Shape:
    """The operands of a vector instruction by what they are."""

    target: Operand
    sources: list[Operand]
    carry_out: Operand | None = None
    carry_in: Operand | None = None
    constant: Operand | None = None


def _shape(instruction: Instruction, text: Text) -> _Shape:
    operands = [read_operand(operand) for operand in instruction.operands]
    target = operands.pop(0)
    shape = _Shape(target, operands)
    if text.encoding == "VOP3SDOp" or re.search(r"_CO_(CI_)?U32$", text.name):
        shape.carry_out = operands.pop(0)
    if re.search(r"CO_CI|CNDMASK", text.name):
        has_carry = len(operands) > 2
        shape.carry_in = operands.pop() if has_carry else Operand("s", VCC)
    if "DIV_FMAS" in text.name:
        shape.carry_in = Operand("s", VCC)
    if "SIMM32" in text.names:
        shape.constant = operands.pop(-1 if "AAK" in text.name else 1)
    return shape


def run_lanes(wave: Wave, instruction: Instruction, text: Text) -> None:
    shape = _shape(instruction, text)
    clamps = "clamp" in instruction.flags
    results: list[tuple[int, Frame]] = []
    for lane in _written_lanes(wave, instruction):
        frame = wave.frame(text, lane)
        frame.saturates = clamps and text.result not in BY_TYPE and not text.name.endswith("F16")
        frame.names |= _sources(wave, instruction, text, shape.sources, lane)
        count = shape.target.count
        old = wave.read(shape.target, "b32", 32 * count, lane)
        if "FMAC" in text.name:  # the old value is a source
            old = _flushed(wave, old, text.result)
        frame.names |= {"D0": whole(old, "b", 128), "D1": Value("b", 1, 0)}
        frame.names.setdefault("S2", frame.names["D0"])
        frame.names |= {"DST": whole(shape.target.number), "SRC0": whole(shape.sources[0].number)}
        if shape.constant is not None:
            bits = constant_bits(shape.constant, text.result)
            frame.names["SIMM32"] = whole(_flushed(wave, bits, text.result), "b", 32)
        if shape.carry_in is not None:
            frame.names["VCC"] = whole(wave.read_scalar(shape.carry_in.number), "b", 64)
        run(text.body, frame)
        results.append((lane, frame))
    for lane, frame in results:
        _write_result(wave, instruction, text, shape, lane, _value(frame, "D0"))
        if text.name.startswith("V_SWAP"):
            _write_part(wave, shape.sources[0], lane, _value(frame, "S0"))
    if shape.carry_out is not None:
        carry = sum(_carry(text, frame, lane) << lane for lane, frame in results)
        wave.write_scalar(shape.carry_out.number, carry)


def _carry(text: Text, frame: Frame, lane: int) -> int:
    if "D1" in text.names:
        return _value(frame, "D1") & 1
    return int(bool(_value(frame, "VCC"))) if "DIV_SCALE" in text.name else _value(frame, "VCC") >> lane & 1


def _write_result(
    wave: Wave, instruction: Instruction, text: Text, shape: _Shape, lane: int, bits: int
) -> None:
    if "D0" not in text.names:
        return
    clamps = "clamp" in instruction.flags
    if re.fullmatch(r"V_PK_\w+_F16", text.name):
        bits = _finished(wave, bits & 0xFFFF, "f16", clamps=clamps) | (
            _finished(wave, bits >> 16 & 0xFFFF, "f16", clamps=clamps) << 16
        )
    elif text.name == "V_FMA_MIXHI_F16":
        bits = bits & 0xFFFF | _finished(wave, bits >> 16 & 0xFFFF, "f16", clamps=clamps) << 16
    else:
        power = next((_POWERS[flag] for flag in instruction.flags & _POWERS.keys()), 0)
        bits = _finished(wave, bits, text.result, clamps=clamps, power=power)
    _write_part(wave, shape.target, lane, bits)


def _write_part(wave: Wave, target: Operand, lane: int, bits: int) -> None:
    if target.half is not None:
        shift = 16 * target.half
        old = wave.v[target.number][lane]
        bits = old & ~(0xFFFF << shift) | (bits & 0xFFFF) << shift
    wave.write_vector(target.number, lane, bits, target.count)


def _sources(
    wave: Wave, instruction: Instruction, text: Text, operands: list[Operand], lane: int
) -> Mapping[str, Value | list[Value]]:
    if text.encoding == "VOP3POp":
        return _packed_sources(wave, instruction, text, operands, lane)
    selected = instruction.bits("op_sel", 0, 4)
    found: dict[str, Value | list[Value]] = {}
    for number, operand in enumerate(operands):
        kind, width = text.sources[number]
        source_lane = _dpp_lane(wave, instruction, lane) if number == 0 else lane
        if source_lane is None:
            found[f"S{number}"] = whole(0, "b", 64)
            continue
        bits = wave.read(operand, kind, max(width, 32), source_lane, upper=selected[number])
        if width == 16:
            bits &= 0xFFFF
        bits = _with_sign(bits, operand, type_of(kind)[1] if width <= 64 else width)
        if text.name != "V_CMP_CLASS" and "CLASS" not in text.name:
            bits = _flushed(wave, bits, kind)
        found[f"S{number}"] = whole(bits, "b", max(width, 32) if width <= 64 else width)
    return found


def _with_sign(bits: int, operand: Operand, width: int) -> int:
    if operand.absolute:
        bits &= ~(1 << (width - 1))
    if operand.negate:
        bits ^= 1 << (width - 1)
    return bits


def _packed_sources(
    wave: Wave, instruction: Instruction, text: Text, operands: list[Operand], lane: int
) -> Mapping[str, Value | list[Value]]:
    if "FMA_MIX" in text.name:
        return _mixed_sources(wave, instruction, operands, lane)
    low, high = instruction.bits("op_sel", 0, 3), instruction.bits("op_sel_hi", 1, 3)
    negate_low, negate_high = instruction.bits("neg_lo", 0, 3), instruction.bits("neg_hi", 0, 3)
    found: dict[str, Value | list[Value]] = {
        "NEG": whole(sum(bit << i for i, bit in enumerate(negate_low)), "b", 3)
    }
    for number, operand in enumerate(operands):
        kind = text.sources[number][0]
        bits = wave.read(operand, kind, 32, lane)
        if _is_packed(text, number):
            halves = [bits >> 16 * bit & 0xFFFF for bit in (low[number], high[number])]
            if kind in {"f16", "bf16"}:
                halves[0] ^= negate_low[number] << 15
                halves[1] ^= negate_high[number] << 15
                halves = [_flushed(wave, half, kind) for half in halves]
            bits = halves[0] | halves[1] << 16
        elif kind == "f32":
            bits = _flushed(wave, bits & ~(negate_high[number] << 31) ^ negate_low[number] << 31, kind)
        found[f"S{number}"] = whole(bits, "b", 32)
    return found


def _is_packed(text: Text, number: int) -> bool:
    return text.name.startswith("V_PK_") or (text.name.startswith("V_DOT2_F32") and number < 2)


def _mixed_sources(
    wave: Wave, instruction: Instruction, operands: list[Operand], lane: int
) -> Mapping[str, Value | list[Value]]:
    halves, upper = instruction.bits("op_sel_hi", 0, 3), instruction.bits("op_sel", 0, 3)
    found: list[Value] = []
    for number, operand in enumerate(operands):
        # As f16, an inline constant is the f16 number in the low half (LLVM PR 183487).
        is_half_constant = halves[number] and operand.kind == "float"
        bits = wave.read(operand, "f16" if is_half_constant else "f32", 16 if is_half_constant else 32, lane)
        if halves[number]:
            shift = 16 * upper[number]
            half = _flushed(wave, _with_sign(bits >> shift & 0xFFFF, operand, 16), "f16")
            bits = bits & ~(0xFFFF << shift) | half << shift
        else:
            bits = _flushed(wave, _with_sign(bits, operand, 32), "f32")
        found.append(whole(bits, "b", 32))
    return {
        "S": found,
        "OPSEL": whole(sum(bit << i for i, bit in enumerate(upper)), "b", 3),
        "OPSEL_HI": whole(sum(bit << i for i, bit in enumerate(halves)), "b", 3),
    }


def _dpp_lane(wave: Wave, instruction: Instruction, lane: int) -> int | None:
    """The lane whose value the first source is, as DPP has it; None where it reads zero."""
    if "_dpp" not in instruction.mnemonic:
        return lane
    source = _dpp_source(instruction, lane)
    inactive = source is not None and not wave.s[EXEC] >> source & 1 and "fi:1" not in instruction.flags
    return None if inactive else source


def _dpp_source(instruction: Instruction, lane: int) -> int | None:
    """None where no such lane is in the row of 16."""
    lists, numbers = dict(instruction.lists), dict(instruction.numbers)
    row, place = lane & ~15, lane & 15
    if "dpp8" in lists:
        return lane & ~7 | lists["dpp8"][lane & 7]
    if "quad_perm" in lists:
        return lane & ~3 | lists["quad_perm"][lane & 3]
    by = next(
        (number for name, number in numbers.items() if name.startswith("row_") and name != "row_mask"), 0
    )
    if "row_mirror" in instruction.flags:
        return row | 15 - place
    if "row_half_mirror" in instruction.flags:
        return lane ^ 7
    source = {
        "row_shl": place + by,
        "row_shr": place - by,
        "row_ror": (place - by) % 16,
        "row_share": by,
        "row_xmask": place ^ by,
    }[next(name for name in numbers if name.startswith("row_") and name != "row_mask")]
    return row | source if 0 <= source < 16 else None


def _written_lanes(wave: Wave, instruction: Instruction) -> list[int]:
    """Active lanes but for those that DPP leaves alone."""
    lanes = wave.active()
    if "_dpp" not in instruction.mnemonic or dict(instruction.lists).get("dpp8"):
        return lanes
    rows, banks = instruction.number("row_mask", 15), instruction.number("bank_mask", 15)
    lanes = [lane for lane in lanes if rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1]
    if "bound_ctrl:1" in instruction.flags:
        return lanes
    return [lane for lane in lanes if _dpp_lane(wave, instruction, lane) is not None]


def _run_compare(wave: Wave, instruction: Instruction, text: Text) -> None:
    operands = [read_operand(operand) for operand in instruction.operands]
    changes_exec = text.name.startswith("V_CMPX")
    target = Operand("s", EXEC) if changes_exec else operands.pop(0)
    mask = 0
    for lane in _written_lanes(wave, instruction):
        frame = wave.frame(text, lane)
        frame.names |= {**_sources(wave, instruction, text, operands, lane), "D0": Value("b", 64, 0)}
        run(text.body, frame)
        mask |= (_value(frame, "EXEC" if changes_exec else "D0") >> lane & 1) << lane
    wave.write_scalar(target.number, mask)


# Instructions that reach across lanes


def _run_across(wave: Wave, instruction: Instruction, text: Text) -> None:
    operands = [read_operand(operand) for operand in instruction.operands]
    target, sources = operands[0], operands[1:]
    frame = wave.frame(text)
    frame.names |= {"VDST": whole(target.number), "D0": Value("b", 32, 0)}
    for number, operand in enumerate(sources):
        if operand.kind == "v":
            frame.names[f"SRC{number}"] = whole(operand.number)
        else:
            frame.names[f"S{number}"] = whole(wave.read(operand, "b32", 32, 0), "b", 32)
    run(text.body, frame)
    if target.kind == "s":
        wave.write_scalar(target.number, _value(frame, "D0"))


_SPECIAL: tuple[tuple[str, Callable[[Wave, Instruction, Text], None]], ...] = (
    (r"V_S_\w+", lambda wave, instruction, _: _run_scalar(wave, instruction)),
    (r"V_(READ|WRITE)LANE_B32|V_READFIRSTLANE_B32|V_PERMLANE\w+", _run_across),
)


# Memory


class _Everywhere:
    """Buffer and kernarg."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def read(self, address: int, size: int) -> int:
        return self._space(address).read(address, size)

    def write(self, address: int, size: int, bits: int) -> None:
        self._space(address).write(address, size, bits)

    def _space(self, address: int) -> Space:
        return self._wave.kernarg if address >= KERNARG else self._wave.buffer


def _run_lds(wave: Wave, instruction: Instruction) -> None:
    if instruction.mnemonic == "ds_swizzle_b32":
        _run_swizzle(wave, instruction)
        return
    text = find_text(instruction.mnemonic, wave.architecture)
    operands = [read_operand(operand) for operand in instruction.operands]
    returns = "RETURN_DATA" in text.names and (
        "_RTN" in text.name or "LOAD" in text.name or "PERMUTE" in text.name
    )
    if "PERMUTE" in text.name:
        _run_permute(wave, instruction, text, operands)
        return
    target = operands.pop(0) if returns else None
    two = instruction.number("offset0"), instruction.number("offset1")
    for lane in wave.active():
        frame = wave.frame(text, lane)
        frame.memory = wave.lds
        vector = address = wave.read_vector(operands[0].number, lane)
        if not text.names & {"OFFSET", "OFFSET0"}:
            address += instruction.number("offset")
        frame.names |= {
            "ADDR": whole(address, "u", 32),
            "ADDR_BASE": whole(address, "u", 32),
            "vgpr_a": whole(vector, "u", 32),
            "offset": whole(instruction.number("offset"), "b", 32),
            "OFFSET": whole(instruction.number("offset"), "b", 32),
            "OFFSET0": whole(two[0], "b", 32),
            "OFFSET1": whole(two[1], "b", 32),
        }
        for name, operand in zip(("DATA", "DATA2"), operands[1:], strict=False):
            frame.names[name] = whole(_read_data(wave, operand, lane), "b", 128)
        _run_access(wave, text, frame, target, lane, "RETURN_DATA")


def _read_data(wave: Wave, operand: Operand, lane: int) -> int:
    return wave.read(operand, "b32", 32 * operand.count, lane)


def _run_access(wave: Wave, text: Text, frame: Frame, target: Operand | None, lane: int, name: str) -> None:
    # Writes of 16 bits keep the rest of the register; others fill it.
    old = wave.read_vector(target.number, lane, target.count) if target is not None else 0
    frame.names[name] = whole(old, "b", 128)
    run(text.body, frame)
    if target is not None:
        wave.write_vector(target.number, lane, _value(frame, name), target.count)


def _run_permute(wave: Wave, instruction: Instruction, text: Text, operands: list[Operand]) -> None:
    frame = wave.frame(text)
    frame.names |= {
        "VDST": whole(operands[0].number),
        "ADDR": whole(operands[1].number),
        "DATA0": whole(operands[2].number),
        "OFFSET": whole(instruction.number("offset"), "b", 32),
    }
    run(text.body, frame)


def _run_swizzle(wave: Wave, instruction: Instruction) -> None:
    """The published text is cut short; this is the guide's (RDNA3, DS_SWIZZLE_B32) without its FFT mode."""
    target, source = (read_operand(operand) for operand in instruction.operands)
    find = _swizzle(instruction.text.partition("offset:")[2])
    before = list(wave.v[source.number])
    for lane in wave.active():
        other = find(lane)
        wave.v[target.number][lane] = before[other] if wave.s[EXEC] >> other & 1 else 0


def _swizzle(text: str) -> Callable[[int], int]:
    """Which lane each lane reads; LLVM prints the modes with names."""
    mode, arguments = re.findall(r"\w+", text)[1], re.findall(r"\w+", text)[2:]
    if mode == "QUAD_PERM":
        return lambda lane: lane & ~3 | int(arguments[lane & 3])
    if mode == "SWAP":
        return lambda lane: lane ^ int(arguments[0])
    if mode == "REVERSE":
        return lambda lane: lane ^ (int(arguments[0]) - 1)
    if mode == "BROADCAST":
        return lambda lane: lane & ~(int(arguments[0]) - 1) | int(arguments[1])
    if mode == "BITMASK_PERM":
        rules = arguments[0]  # of bits 4 to 0: 0, 1, p(reserve), i(nvert)
        keep, flip, ones = (
            int("".join(str(int(rule in wanted)) for rule in rules), 2) for wanted in ("pi", "i", "1")
        )
        return lambda lane: (lane & keep | ones) ^ flip
    raise NotModelled(f"swizzle {text}")


def _run_memory(wave: Wave, instruction: Instruction) -> None:
    text = find_text(instruction.mnemonic, wave.architecture)
    operands = list(instruction.operands)
    space = instruction.mnemonic.split("_")[0]
    is_load = "_LOAD_" in text.name
    returns = is_load or ("ATOMIC" in text.name and bool(instruction.flags & {"glc", "th:TH_ATOMIC_RETURN"}))
    target = read_operand(operands.pop(0)) if returns else None
    vector = operands.pop(0)
    data = read_operand(operands.pop(0)) if not is_load else None
    base = operands.pop(0) if operands else "off"
    name = "RETURN_DATA" if "ATOMIC" in text.name else "VDATA"
    for lane in wave.active():
        frame = wave.frame(text, lane)
        address = instruction.number("offset") + _address(wave, space, vector, base, lane)
        frame.memory = wave.scratch[lane] if space == "scratch" else _Everywhere(wave)
        frame.names |= dict.fromkeys(("ADDR", "v_addr", "v_addr_off"), whole(address, "u", 64))
        frame.names |= dict.fromkeys(("s_saddr", "s_saddr_off", "flat_scratch"), whole(0, "u", 64))
        if data is not None:
            frame.names["DATA"] = frame.names["VDATA"] = whole(_read_data(wave, data, lane), "b", 128)
        if name == "VDATA" and data is not None:
            run(text.body, frame)
        else:
            _run_access(wave, text, frame, target, lane, name)


def _address(wave: Wave, space: str, vector: str, base: str, lane: int) -> int:
    if space == "scratch":
        scalar = 0 if base == "off" else wave.read_scalar(read_operand(base).number)
        return scalar + (0 if vector == "off" else wave.read_vector(read_operand(vector).number, lane))
    operand = read_operand(vector)
    if base == "off":
        return wave.read_vector(operand.number, lane, 2)
    return wave.read_scalar(read_operand(base).number, 2) + wave.read_vector(operand.number, lane)
