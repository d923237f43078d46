"""Reading LLVM IR text into :mod:`stand_in_proof.ir`."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping

from patchkit.base.errors import Location, ToolchainError
from stand_in_proof.ir import Constant, Function, Operand, Operation, Shape

_TOKEN = re.compile(
    r"[%@][-\w.$]+|!\w*|#\w+|0xH[0-9A-F]+|0x[0-9A-F]+|-?\d+\.\d+e[+-]\d+|-?\d+|[a-zA-Z_][\w.]*|\S"
)
_DEFINE = re.compile(r"define\b.*?@(?P<name>[\w.$]+)\((?P<rest>.*)")
_NAMED = re.compile(r"%(?P<name>[\w.]+) = type \{ (?P<member>[^,]+?) \}$")
_SCALAR_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}
_CONSTANTS = {"poison", "undef", "zeroinitializer", "splat", "true", "false"}
_CASTS = {"zext", "sext", "trunc", "bitcast"}
_BINARY = {"add", "sub", "mul", "and", "or", "xor", "shl", "lshr"}
_VECTORS = {"select", "extractelement", "insertelement", "shufflevector"}


def parse_functions(text: str, path: str, names: Collection[str]) -> dict[str, Function]:
    """Those of the named functions that a module defines, by name. ``path`` is for messages.

    Others, such as what the headers bring along, are passed over unread.

    Raises:
        IR_UNSUPPORTED: something outside the subset stands in one of them.
    """
    named = {found["name"]: found["member"] for line in text.split("\n") if (found := _NAMED.match(line))}
    functions: dict[str, Function] = {}
    lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        found = _DEFINE.match(line)
        if found is None or found["name"] not in names:
            continue
        parameters = _Line(found["rest"], number, path, named).operands(")")
        operations = tuple(_operations(lines, path, named))
        functions[found["name"]] = Function(
            name=found["name"], path=path, parameters=parameters, operations=operations
        )
    return functions


def _operations(lines: Iterator[tuple[int, str]], path: str, named: Mapping[str, str]) -> Iterator[Operation]:
    for number, line in lines:
        if line == "}":
            return
        if line.strip() and not line.lstrip().startswith((";", "#dbg")):
            yield _Line(line, number, path, named).operation()


class _Line:
    """The tokens of one line, read from left to right. ``named`` are the structures with one member."""

    def __init__(self, text: str, number: int, path: str, named: Mapping[str, str]) -> None:
        self.text = text
        self.number = number
        self.path = path
        self.named = named
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def refusal(self, what: str) -> ToolchainError:
        return ToolchainError(
            f"cannot interpret {what} in: {self.text.strip()}",
            code="IR_UNSUPPORTED",
            where=Location(path=self.path, line=self.number),
            why="only straight-line code over integers, halves, floats and pointers is interpreted",
        )

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> str:
        word = self.peek()
        self.at += 1
        return word

    def expect(self, *words: str) -> None:
        for word in words:
            if (found := self.take()) != word:
                raise self.refusal(f"'{found}' where '{word}' should stand")

    def operation(self) -> Operation:
        result = None
        if self.peek(1) == "=":
            result = self.take()
            self.expect("=")
        name = self.take()
        if name in ("tail", "notail"):
            name = self.take()
        if name == "ret":
            self.expect("void")
            return Operation(name=name, line=self.number)
        if name == "load":
            shape = self.shape()
            self.expect(",")
            operands = self.operands("align")
            return Operation(
                name=name, line=self.number, result=result, shape=shape, operands=operands, align=self.bytes()
            )
        if name == "store":
            return Operation(name=name, line=self.number, operands=self.operands("align"), align=self.bytes())
        if name == "getelementptr":
            return self.address(result)
        callee, shape, operands = self.pure(name)
        return Operation(name=callee, line=self.number, result=result, shape=shape, operands=operands)

    def pure(self, name: str) -> tuple[str, Shape, tuple[Operand, ...]]:
        """What neither reads nor writes memory; the name is the callee's where it is a call."""
        if name == "call":
            self.skip_words()
            shape = self.shape()
            callee = self.take().removeprefix("@")
            self.expect("(")
            return callee, shape, self.operands(")")
        if name in _CASTS:
            self.skip_words()
            operand = self.operand()
            self.expect("to")
            return name, self.shape(), (operand,)
        if name in _BINARY:
            return name, *self.binary()
        if name == "icmp":
            if self.peek() == "samesign":
                self.take()
            predicate = self.take()
            shape, operands = self.binary()
            return f"icmp {predicate}", Shape(1, shape.count), operands
        if name in _VECTORS:
            operands = self.operands("")
            return name, _result_shape(name, operands), operands
        raise self.refusal(f"'{name}'")

    def binary(self) -> tuple[Shape, tuple[Operand, ...]]:
        self.skip_words()
        shape = self.shape()
        left = Operand(shape, self.value(shape))
        self.expect(",")
        return shape, (left, Operand(shape, self.value(shape)))

    def address(self, result: str | None) -> Operation:
        self.skip_words()
        element = self.shape()
        self.expect(",")
        operands = self.operands("")
        if len(operands) != 2:  # a base and one index
            raise self.refusal("an address with several indices")
        scale = element.bits * element.count // 8
        return Operation(
            name="getelementptr",
            line=self.number,
            result=result,
            shape=Shape(64),
            operands=operands,
            scale=scale,
        )

    def bytes(self) -> int:
        return int(self.take())

    def operands(self, end: str) -> tuple[Operand, ...]:
        """Up to and with the word ``end``; up to the end of the line or its metadata without one."""
        found: list[Operand] = []
        while self.peek() not in ("", end) and not self.peek().startswith("!"):
            found.append(self.operand())
            if self.peek() == ",":
                self.take()
        if end:
            self.expect(end)
        return tuple(found)

    def operand(self) -> Operand:
        shape = self.shape()
        self.skip_words()
        return Operand(shape, self.value(shape))

    def skip_words(self) -> None:
        """Past flags and attributes, with what stands in parentheses behind them."""
        while re.match(r"[a-z]", self.peek()) and self.peek() not in _CONSTANTS and not self.at_type():
            if self.take() == "align":
                self.take()
            if self.peek() == "(":
                while self.take() not in (")", ""):
                    pass

    def at_type(self) -> bool:
        word = self.peek()
        return (
            word in _SCALAR_BITS or word == "<" or word[1:] in self.named or bool(re.fullmatch(r"i\d+", word))
        )

    def shape(self) -> Shape:
        word = self.take()
        if word == "ptr" and self.peek() == "addrspace":
            self.at += len(("addrspace", "(", "1", ")"))
        if word in _SCALAR_BITS:
            return Shape(_SCALAR_BITS[word])
        if re.fullmatch(r"i\d+", word):
            return Shape(int(word[1:]))
        if word == "<":
            count = int(self.take())
            self.expect("x")
            element = self.shape()
            self.expect(">")
            return Shape(element.bits, count)
        if word.startswith("%") and word[1:] in self.named:
            return _Line(self.named[word[1:]], self.number, self.path, self.named).shape()
        raise self.refusal(f"the type '{word}'")

    def value(self, shape: Shape) -> str | Constant:
        word = self.take()
        if word.startswith("%"):
            return word
        if word in ("poison", "undef"):
            return Constant((None,) * shape.count)
        if word == "zeroinitializer":
            return Constant((0,) * shape.count)
        if word == "splat":
            self.expect("(")
            return Constant(self.operands(")")[0].elements * shape.count)
        if word == "<":
            return Constant(tuple(bits for one in self.operands(">") for bits in one.elements))
        return Constant((self.bits(word, shape),))

    def bits(self, word: str, shape: Shape) -> int:
        if word in ("true", "false"):
            return int(word == "true")
        if re.fullmatch(r"-?\d+", word):
            return int(word) % (1 << shape.bits)
        if word.startswith("0xH"):
            return int(word[3:], 16)
        if word.startswith("0x"):  # a float or double is written as the bits of a double
            (number,) = struct.unpack(">d", bytes.fromhex(word[2:].zfill(16)))
        elif re.fullmatch(r"-?\d+\.\d+e[+-]\d+", word):
            number = float(word)
        else:
            raise self.refusal(f"the value '{word}'")
        return int.from_bytes(struct.pack({16: "<e", 32: "<f"}.get(shape.bits, "<d"), number), "little")


def _result_shape(name: str, operands: tuple[Operand, ...]) -> Shape:
    first = operands[0].shape
    if name == "extractelement":
        return Shape(first.bits)
    if name == "shufflevector":
        return Shape(first.bits, operands[2].shape.count)
    return operands[1].shape if name == "select" else first
