"""Where executed basic blocks are in the source.

Vocabulary: a *block* is an offset in the host library that the recorder wrote down; a *place* is its line and
column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.compiler import Compiler
from patchkit.build.toolchain import llvm_tool
from patchkit.errors import ToolchainError
from patchkit.proc import run_tool

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Executed code: ``function`` as the symbolizer names it, ``entry``: the function begins here."""

    function: str
    path: str
    line: int
    column: int
    entry: bool


def places_of(blocks: Sequence[int], library: Path, compiler: Compiler) -> tuple[Place, ...]:
    """Source places of executed blocks, in order.

    Raises:
        SYMBOLIZER_MISSING: there is no llvm-symbolizer beside the compiler.
        BLOCKS_UNKNOWN: it does not answer for each block.
    """
    # Beside the compiler it may be a wrapper that knows where its libraries are.
    beside = compiler.toolchain.clang.with_name("llvm-symbolizer")
    known = llvm_tool(compiler.toolchain, "llvm-symbolizer", compiler.reporter)
    tool = beside if beside.is_file() else known
    if tool is None:
        raise ToolchainError(
            "explain needs llvm-symbolizer",
            code="SYMBOLIZER_MISSING",
            why=f"there is none beside {compiler.toolchain.clang}",
            hint="install the LLVM package of the compiler, such as llvm-22",
        )
    text = "".join(f"{offset:#x}\n" for offset in blocks)
    done = run_tool(
        [str(tool), f"--obj={library}", "--output-style=JSON", "--no-inlines"],
        stdin=text.encode(),
        timeout_s=_TIMEOUT_S,
        reporter=compiler.reporter,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    symbols = [row["Symbol"][0] for row in rows if row.get("Symbol")]
    if len(symbols) != len(blocks):
        raise ToolchainError(
            f"the symbolizer knows {len(symbols)} of {len(blocks)} executed blocks",
            code="BLOCKS_UNKNOWN",
            hint="patchkit doctor",
        )
    starts: dict[str, int] = {}
    for offset, symbol in zip(blocks, symbols, strict=True):
        name = symbol["FunctionName"]
        starts[name] = min(starts.get(name, offset), offset)
    return tuple(
        Place(
            function=symbol["FunctionName"],
            path=symbol["FileName"],
            line=symbol["Line"],
            column=symbol["Column"],
            entry=starts[symbol["FunctionName"]] == offset,
        )
        for offset, symbol in zip(blocks, symbols, strict=True)
    )
