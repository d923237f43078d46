"""What is read of LLVM IR: functions of one basic block over integers, halves, floats and pointers.

A *shape* is an IR type as this package sees it: so many elements of so many bits; a pointer
is a 64-bit number. An *operation* is one line of a function. Whatever lies outside (branches, structures
with several members, unknown calls) is refused with :class:`IR_UNSUPPORTED`: a proof must not pass over
what it does not understand.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """``count`` elements of ``bits`` bits; a scalar has one."""

    bits: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Constant:
    """Bits of each element; None for poison and undef."""

    elements: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A shape, with a register's name or a constant."""

    shape: Shape
    value: str | Constant

    @property
    def elements(self) -> tuple[int | None, ...]:
        """The elements of a constant; nothing where a register stands."""
        return self.value.elements if isinstance(self.value, Constant) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One line: ``name`` is the opcode, or the callee of a call; ``shape`` is that of the result.

    ``align`` is in bytes (loads and stores), ``scale`` the bytes per index (getelementptr).
    """

    name: str
    line: int
    result: str | None = None
    shape: Shape | None = None
    operands: tuple[Operand, ...] = ()
    align: int = 1
    scale: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A device function: its parameters (each a register), and what it does. ``path`` is for messages."""

    name: str
    path: str
    parameters: tuple[Operand, ...]
    operations: tuple[Operation, ...]
