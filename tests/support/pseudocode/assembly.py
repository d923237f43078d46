"""Instructions as LLVM writes and reads them."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.arch import architecture_of


@dataclass(frozen=True)
class Instruction:
    """One line of assembly text, taken apart; a dual instruction has two."""

    text: str
    mnemonic: str
    operands: tuple[str, ...]
    flags: frozenset[str]  # clamp, glc, mul:2, ...
    lists: tuple[tuple[str, tuple[int, ...]], ...]  # op_sel:[0,1]
    numbers: tuple[tuple[str, int], ...]  # offset:16

    def bits(self, name: str, default: int, count: int) -> tuple[int, ...]:
        """The bits of op_sel and its like."""
        return (*dict(self.lists).get(name, ()), *([default] * count))[:count]

    def number(self, name: str, default: int = 0) -> int:
        return dict(self.numbers).get(name, default)


def parse_line(text: str) -> list[Instruction]:
    return [_parse(part.strip()) for part in text.split(" :: ")]


def _parse(text: str) -> Instruction:
    mnemonic, _, rest = text.strip().partition(" ")
    parts = [part.strip() for part in rest.split(", ")] if rest.strip() else []
    words = re.split(r"\s+", parts[-1]) if parts else []
    operands, modifiers = [*parts[:-1], *words[:1]], words[1:]
    if operands and _is_modifier(operands[-1]):
        modifiers.insert(0, operands.pop())
    lists: list[tuple[str, tuple[int, ...]]] = []
    numbers: list[tuple[str, int]] = []
    flags: list[str] = []
    for word in modifiers:
        name, _, value = word.partition(":")
        if value.startswith("["):
            lists.append((name, tuple(int(bit) for bit in value.strip("[]").split(","))))
        elif re.fullmatch(r"-?\d+|0x[0-9a-f]+", value):
            numbers.append((name, int(value, 0)))
            flags.append(word)
        else:
            flags.append(word)
    return Instruction(text, mnemonic, tuple(operands), frozenset(flags), tuple(lists), tuple(numbers))


def _is_modifier(word: str) -> bool:
    return ":" in word and not re.match(r"[-|]?\|?-?(v|s|ttmp)\[", word) and not word.startswith("lit")


class Disassembler:
    """LLVM's disassembler, from its library."""

    def __init__(self, library: Path, processor: str) -> None:
        self._library = ctypes.CDLL(str(library))
        for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
            getattr(self._library, f"LLVMInitializeAMDGPU{part}")()
        create = self._library.LLVMCreateDisasmCPUFeatures
        create.restype = ctypes.c_void_p
        create.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_void_p, ctypes.c_int] + [ctypes.c_void_p] * 2
        self._context = create(b"amdgcn-amd-amdhsa", processor.encode(), b"+real-true16", None, 0, None, None)
        self._read = self._library.LLVMDisasmInstruction
        self._read.restype = ctypes.c_size_t
        self._read.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]

    def disassemble(self, code: bytes) -> list[tuple[int, str]]:
        """Offset and text of each instruction."""
        found: list[tuple[int, str]] = []
        at = 0
        while at < len(code):
            size, text = self._one(code[at:])
            found.append((at, text))
            at += size
        return found

    def _one(self, code: bytes) -> tuple[int, str]:
        text = ctypes.create_string_buffer(256)
        size = self._read(self._context, code, len(code), 0, text, len(text))
        if not size and code[3] >> 2 == 0x36:
            cleared = code[:7] + b"\0" + code[8:]
            size = self._read(self._context, cleared, len(cleared), 0, text, len(text))
        if not size:
            raise ValueError(f"no instruction: {code[:8].hex()}")
        return size, text.value.decode().strip()


class Assembler:
    """llvm-mc for one processor; ``library`` is the libLLVM that it needs."""

    def __init__(self, program: Path, library: Path, processor: str) -> None:
        self.architecture = architecture_of(processor).name
        self._command = [str(program), "-triple=amdgcn", f"-mcpu={processor}", "--show-encoding"]
        self._command.append("-mattr=+real-true16")
        self._environment = {"LD_LIBRARY_PATH": str(library.parent)}
        self._disassembler = Disassembler(library, processor)

    def assemble(self, lines: Sequence[str]) -> list[tuple[bytes, str] | None]:
        """Code of each line, and the text that it is read back as; None for what is no instruction.

        What the assembler understood may differ: it takes modifiers that the encoding has no bits for.
        """
        done = subprocess.run(
            self._command,
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        refused = {
            int(number) for number in re.findall(r"^<stdin>:(\d+):\d+: error:", done.stderr, re.MULTILINE)
        }
        if done.returncode and not refused:
            raise RuntimeError(done.stderr)
        made = self._made(done.stdout)
        return [None if number in refused else next(made) for number in range(1, len(lines) + 1)]

    def _made(self, output: str) -> Iterator[tuple[bytes, str] | None]:
        for line in output.splitlines():
            _, mark, encoding = line.partition("; encoding: [")
            if mark:
                if "A" in encoding:  # a word that it knows not, which a linker would have to
                    yield None
                    continue
                code = bytes.fromhex(encoding.rstrip("]").replace("0x", "").replace(",", ""))
                yield code, self._disassembler.disassemble(code)[0][1]
