"""Running a device function for one wave, lane by lane, over a memory of named buffers.

A *register* holds, for each of the 32 lanes, a tuple of elements: their bits, or None where
the program has set none (poison). A *buffer* is what a pointer parameter points to. The *matrix unit* is
the function called for each matrix instruction; it gets its operands as they stand in the lanes.

Nothing here knows about layouts: those are in :mod:`stand_in_proof.isa`, and what is expected of a
header in :mod:`stand_in_proof.proof`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.base.errors import Location, ToolchainError
from stand_in_proof.ir import Constant, Function, Operand, Operation, Shape
from stand_in_proof.isa import LANES, Kind, Wave
from stand_in_proof.lane_rules import RULES, Value

_BASE_BITS = 32  # a pointer is the number of its buffer above so many bits of offset
_MATRIX_CALLS: Mapping[str, Kind] = {
    "llvm.amdgcn.wmma.f16.16x16x16.f16": "half",
    "llvm.amdgcn.wmma.f32.16x16x16.f16": "float",
}


class BadAccess(ToolchainError):
    """The program reads or writes where it must not, or what it has not computed."""

    code = "IR_BAD_ACCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplication:
    """What one matrix instruction was given. ``upper`` is gfx11's OPSEL for the accumulator."""

    kind: Kind
    a: Wave
    b: Wave
    c: Wave
    upper: bool


@dataclass(slots=True)
class Memory:
    """Buffers by number; an address is ``(number << 32) + offset``, so that none runs into the next.

    ``written`` collects the addresses of stored bytes; a byte stored twice is refused, for in what the
    proof runs each element has one owner.
    """

    buffers: dict[int, bytearray] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)

    def add(self, content: bytes) -> int:
        """Place a buffer; the result is its address, aligned to more than any access asks for."""
        number = len(self.buffers) + 1
        self.buffers[number] = bytearray(content)
        return number << _BASE_BITS

    def at(self, address: int) -> bytearray:
        """The buffer that an address was made for."""
        return self.buffers[address >> _BASE_BITS]

    def load(self, address: int, size: int) -> int:
        """Bits of ``size`` bytes. Raises :class:`IndexError` outside of the buffer."""
        buffer, offset = self._place(address, size)
        return int.from_bytes(buffer[offset : offset + size], "little")

    def store(self, address: int, size: int, bits: int) -> None:
        """Set ``size`` bytes. Raises :class:`IndexError` outside of the buffer, or the second time."""
        buffer, offset = self._place(address, size)
        fresh = set(range(address, address + size))
        if fresh & self.written:
            raise IndexError("stored twice")
        self.written |= fresh
        buffer[offset : offset + size] = bits.to_bytes(size, "little")

    def _place(self, address: int, size: int) -> tuple[bytearray, int]:
        buffer = self.buffers.get(address >> _BASE_BITS, bytearray())
        offset = address & ((1 << _BASE_BITS) - 1)
        if offset + size > len(buffer):
            raise IndexError("outside of the buffer")
        return buffer, offset


def run(
    function: Function,
    arguments: Sequence[int],
    memory: Memory,
    matrix_unit: Callable[[Multiplication], Wave],
    *,
    first_thread: int = 0,
) -> None:
    """Run a function to its end; what it stores is in ``memory`` afterwards.

    ``arguments`` are the bits of the parameters, the same for all lanes; ``first_thread`` is threadIdx.x
    of lane 0.

    Raises:
        IR_UNSUPPORTED: an operation that is not interpreted.
        BadAccess: an address outside of its buffer or not aligned as claimed, a store of no value, or
            two stores to one place.
    """
    if len(arguments) != len(function.parameters):
        raise ValueError(f"{function.name} takes {len(function.parameters)} arguments, not {len(arguments)}")
    machine = _Machine(function, memory, matrix_unit, first_thread)
    for parameter, bits in zip(function.parameters, arguments, strict=True):
        machine.registers[str(parameter.value)] = [(bits,)] * LANES
    for operation in function.operations:
        machine.step(operation)


@dataclass(slots=True)
class _Machine:
    function: Function
    memory: Memory
    matrix_unit: Callable[[Multiplication], Wave]
    first_thread: int
    registers: dict[str, list[Value]] = field(default_factory=dict)

    def step(self, operation: Operation) -> None:
        lanes = [self.read(operand) for operand in operation.operands]
        if operation.name == "store":
            self.store(operation, lanes)
        elif operation.name != "ret":
            self.registers[str(operation.result)] = self.compute(operation, lanes)

    def compute(self, operation: Operation, lanes: list[list[Value]]) -> list[Value]:
        if operation.name == "llvm.amdgcn.workitem.id.x":
            return [(self.first_thread + lane,) for lane in range(LANES)]
        if operation.name == "llvm.amdgcn.ds.swizzle":
            return self.swizzle(operation, lanes)
        for prefix, kind in _MATRIX_CALLS.items():
            if operation.name.startswith(prefix + "."):
                return self.multiply(kind, lanes)
        return [self.in_lane(operation, [one[lane] for one in lanes]) for lane in range(LANES)]

    def in_lane(self, operation: Operation, values: list[Value]) -> Value:
        if operation.name == "load":
            return self.load(operation, values[0][0])
        rule = RULES.get(operation.name)
        if rule is None or operation.shape is None:
            raise ToolchainError(
                f"cannot interpret '{operation.name}'",
                code="IR_UNSUPPORTED",
                where=self.place(operation),
                why="a proof must not pass over what it does not understand",
            )
        return rule(operation, operation.shape, values)

    def read(self, operand: Operand) -> list[Value]:
        if isinstance(operand.value, Constant):
            return [operand.value.elements] * LANES
        return self.registers[operand.value]

    def multiply(self, kind: Kind, lanes: list[list[Value]]) -> list[Value]:
        upper = len(lanes) > 3 and lanes[3][0] == (1,)  # a, b, c, then OPSEL if it has one
        given = Multiplication(kind=kind, a=lanes[0], b=lanes[1], c=lanes[2], upper=upper)
        return [tuple(lane) for lane in self.matrix_unit(given)]

    def swizzle(self, operation: Operation, lanes: list[list[Value]]) -> list[Value]:
        """DS_SWIZZLE_B32 in bit-mask mode: five bits each of and, or, xor (RDNA3 ISA guide, 16.15)."""
        (pattern,) = lanes[1][0]
        if pattern is None or pattern & 0x8000:
            raise ToolchainError(
                "cannot interpret this swizzle", code="IR_UNSUPPORTED", where=self.place(operation)
            )
        and_, or_, xor = (pattern >> shift & 0x1F for shift in (0, 5, 10))
        return [lanes[0][(lane & and_ | or_) ^ xor] for lane in range(LANES)]

    def load(self, operation: Operation, address: int | None) -> Value:
        shape = operation.shape or Shape(0)
        start = self.aligned(operation, address)
        size = shape.bits // 8
        try:
            return tuple(self.memory.load(start + size * i, size) for i in range(shape.count))
        except IndexError as exc:
            raise BadAccess(f"load {exc}", where=self.place(operation)) from exc

    def store(self, operation: Operation, lanes: list[list[Value]]) -> None:
        size = operation.operands[0].shape.bits // 8
        for lane in range(LANES):
            start = self.aligned(operation, lanes[1][lane][0])
            for i, bits in enumerate(lanes[0][lane]):
                if bits is None:
                    raise BadAccess(f"lane {lane} stores what has no value", where=self.place(operation))
                try:
                    self.memory.store(start + size * i, size, bits)
                except IndexError as exc:
                    raise BadAccess(f"lane {lane}: store {exc}", where=self.place(operation)) from exc

    def aligned(self, operation: Operation, address: int | None) -> int:
        if address is None or address % operation.align:
            raise BadAccess(f"address is not aligned to {operation.align} bytes", where=self.place(operation))
        return address

    def place(self, operation: Operation) -> Location:
        return Location(path=self.function.path, line=operation.line, label=f"in {self.function.name}")
