"""Counts the instructions of a kernel's main loop in the compiler's assembly.

Loops are found by the comments that LLVM adds to the labels of basic blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.toolchain.compile import kernel_code

_LABEL = re.compile(r"^(?:\.L(?P<label>BB\d+_\d+):|; %bb\.\d+:)(?P<comment>.*)$")
_HEADER = re.compile(r"Loop Header: Depth=1\b")
_MEMBER = re.compile(r"(?:Header|Parent Loop)[= ](BB\d+_\d+) Depth=1\b")
_INSTRUCTION = re.compile(r"^\t([a-z]\w+)(?:\s|$)")
_MATRIX = re.compile(r"v_(?:wmma|swmmac|mfma|smfmac)_")
_DOT = re.compile(r"v_dot\d")
_LDS = re.compile(r"ds_(load|read|store|write|bpermute|permute|swizzle)")
_LDS_SIZE = re.compile(r"_[bui](\d+)(?:_|$)")
_FREE = re.compile(r"s_(?:waitcnt|delay_alu|nop|clause|wait_)")  # do not occupy an execution unit
_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMix:
    """Instructions of one wave in one iteration of the main loop; ``lds_bytes`` are per lane."""

    instructions: int
    matrix: int
    dot: int
    valu: int
    lds: int
    lds_bytes: int
    loads: int
    stores: int
    scratch: int
    barriers: int


def mix_of(assembly: str, kernel: str) -> LoopMix:
    """The instruction mix of the main loop of a kernel, by its mangled name.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: the kernel was not found.
    """
    names = [found[1] for line in loop_lines(assembly, kernel) if (found := _INSTRUCTION.match(line))]
    counted = [name for name in names if not _FREE.match(name)]
    return LoopMix(
        instructions=len(counted),
        matrix=sum(bool(_MATRIX.match(name)) for name in counted),
        dot=sum(bool(_DOT.match(name)) for name in counted),
        valu=sum(name.startswith("v_") for name in counted),
        lds=sum(bool(_LDS.match(name)) for name in counted),
        lds_bytes=sum(_lds_bytes(name) for name in counted),
        loads=sum(name.startswith(("global_load", "flat_load", "buffer_load")) for name in counted),
        stores=sum(name.startswith(("global_store", "flat_store", "buffer_store")) for name in counted),
        scratch=sum(name.startswith("scratch_") for name in counted),
        barriers=sum(name.startswith("s_barrier") and "wait" not in name for name in counted),
    )


def loop_lines(assembly: str, kernel: str) -> list[str]:
    """The lines of the main loop with its labels, or of the whole body if there is no loop.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: the kernel was not found.
    """
    blocks = list(_blocks(kernel_code(assembly, kernel).splitlines()))
    loops: dict[str, list[str]] = {}
    for label, comment, lines in blocks:
        header = label if _HEADER.search(comment) else None
        found = _MEMBER.search(comment)
        name = header or (found[1] if found else None)
        if name is not None:
            loops.setdefault(name, []).extend(lines)
    if not loops:
        return [line for _, _, lines in blocks for line in lines]
    return max(loops.values(), key=_weight)


def _weight(lines: list[str]) -> tuple[int, int]:
    names = [found[1] for line in lines if (found := _INSTRUCTION.match(line))]
    return (sum(bool(_MATRIX.match(name)) for name in names), len(names))


def _blocks(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """The label, its comments, and the lines of each basic block."""
    label, comment = "", ""
    block: list[str] = []
    for line in lines:
        found = _LABEL.match(line)
        if found is not None:
            yield label, comment, block
            label, comment, block = found["label"] or "", found["comment"], [line]
        elif line.lstrip().startswith(";") and len(block) == 1:
            comment += line
        else:
            block.append(line)
    yield label, comment, block


def _lds_bytes(name: str) -> int:
    if not _LDS.match(name):
        return 0
    size = _LDS_SIZE.search(name)
    bits = int(size[1]) if size else 32  # swizzles move one register
    return bits // _BITS * (2 if "_2addr" in name or name.startswith(("ds_read2", "ds_write2")) else 1)
