"""The branches that upstream took when it selected the attention kernel for a case, from executed blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import run_tool
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.log import Launch
from patchkit.gpu.emulated.runtime import HOST_FLAGS, SELECTION_UNIT
from patchkit.gpu.emulated.session import Session
from patchkit.toolchain.compile import hip_definitions
from patchkit.toolchain.compiler import Compiler, nice
from patchkit.toolchain.hip import hip_flags, llvm_tool
from patchkit.toolchain.units import SourceTree, include_folders, tree_definitions

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedBlock:
    """Source place of executed code: ``function`` as the symbolizer names it; ``entry``: its first block."""

    function: str
    line: int
    column: int
    entry: bool


def locate_blocks(blocks: Sequence[int], library: Path, compiler: Compiler) -> tuple[ExecutedBlock, ...]:
    """Source places of executed blocks, in order.

    Raises:
        SYMBOLIZER_MISSING: there is no llvm-symbolizer next to the compiler.
        BLOCKS_UNKNOWN: it does not find every block.
    """
    # One next to the compiler may be a wrapper that knows where its libraries are.
    own = compiler.toolchain.clang.with_name("llvm-symbolizer")
    known = llvm_tool(compiler.toolchain, "llvm-symbolizer", compiler.reporter)
    tool = own if own.is_file() else known
    if tool is None:
        raise ToolchainError(
            "explain needs llvm-symbolizer",
            code="SYMBOLIZER_MISSING",
            why=f"there is none next to {compiler.toolchain.clang}",
            hint="install the LLVM package of the compiler, for example llvm-22",
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
            f"llvm-symbolizer found the source lines of {len(symbols)} of {len(blocks)} executed blocks",
            code="BLOCKS_UNKNOWN",
            hint="check the toolchain with: patchkit doctor",
        )
    starts: dict[str, int] = {}
    for offset, symbol in zip(blocks, symbols, strict=True):
        name = symbol["FunctionName"]
        starts[name] = min(starts.get(name, offset), offset)
    return tuple(
        ExecutedBlock(
            function=symbol["FunctionName"],
            line=symbol["Line"],
            column=symbol["Column"],
            entry=starts[symbol["FunctionName"]] == offset,
        )
        for offset, symbol in zip(blocks, symbols, strict=True)
    )


_BRANCHING = frozenset({b"if", b"switch"})


class BranchDecision(BaseModel):
    """One branch. ``text`` is the condition, switched value or returned value; ``outcome`` its result.

    ``decided_by`` is the last evaluated operand of && or ||. It is None if there is only one operand, or if
    all operands decided together (all of && true, none of || true).
    """

    model_config = ConfigDict(frozen=True)

    where: Annotated[Location, PlainSerializer(str)]
    kind: str
    text: str
    outcome: str
    decided_by: str | None


def decisions(
    blocks: Sequence[ExecutedBlock], source: SourceText, function: str, active: Collection[int]
) -> tuple[BranchDecision, ...]:
    """The decisions in the last call of ``function``, in order, ending with its return statement.

    Args:
        blocks: executed blocks in order, including those of other functions.
        source: the file of the function.
        function: its name without parameters.
        active: the lines of the file that the preprocessor keeps.

    Raises:
        SELECTION_UNREADABLE: the file has no such function, or it did not run.
    """
    scopes = parse_scopes(source)
    entity = next((each for each in scopes.entities if each.answers_to(function)), None)
    own = [block for block in blocks if block.function.split("(", 1)[0] == function]
    entries = [index for index, block in enumerate(own) if block.entry]
    if entity is None or not entries:
        raise ToolchainError(
            f"{function} is not in {source.path}, or it did not run",
            code="SELECTION_UNREADABLE",
            where=Location(path=source.path),
            why="builds 6900 to 11549 select the attention kernel there",
            hint="compare with patchkit/prove/explain/selection.py",
        )
    visited = [
        source.line_span(block.line).start + max(block.column - 1, 0)
        for block in own[entries[-1] :]
        if block.line
    ]
    walker = _Walker(scopes, entity.span, frozenset(visited), active)
    return tuple(walker.walk())


class _Walker:
    """Follows one call through a function without loops; executed blocks show which branches were taken."""

    def __init__(
        self, scopes: ScopeMap, function: Span, visited: Collection[int], active: Collection[int]
    ) -> None:
        self.scopes = scopes
        self.source = scopes.source
        self.visited = visited
        self.active = active
        tokens = scopes.code_in(function)
        self.end = tokens[-1]
        self.start = next(
            index for index in tokens if scopes.code[index].text == b"{" and scopes.match[index] == self.end
        )
        self.is_over = False

    def walk(self) -> Iterator[BranchDecision]:
        """All decisions of the function's body."""
        yield from self._block(self.start + 1, self.end)

    def _block(self, at: int, end: int) -> Iterator[BranchDecision]:
        while at < end and not self.is_over:
            if not self._is_active(at):
                at += 1
                continue
            text = self.scopes.code[at].text
            after = self._whole(at, end)
            if text == b"if":
                yield from self._if(at, end)
            elif text == b"switch":
                yield from self._switch(at)
            elif text == b"{":
                yield from self._block(at + 1, self.scopes.match[at])
            elif text == b"return":
                yield self._decision(at, "return", Span(self._from(at + 1), self._to(after - 2)), "")
                self.is_over = True
            at = after

    def _if(self, at: int, end: int) -> Iterator[BranchDecision]:
        opening = at + 1 if self.scopes.code[at + 1].text == b"(" else at + 2  # if constexpr (
        closing = self.scopes.match[opening]
        body_end = self._after(closing + 1, end)
        taken = self._was_visited(closing + 1, body_end)
        decider = self._decider(opening + 1, closing, taken=taken)
        condition = Span(self._from(opening + 1), self._to(closing - 1))
        yield self._decision(at, "if", condition, "true" if taken else "false", decider)
        if taken:
            yield from self._block(closing + 1, body_end)
        elif body_end < end and self.scopes.code[body_end].text == b"else":
            yield from self._block(body_end + 1, self._whole(body_end + 1, end))

    def _switch(self, at: int) -> Iterator[BranchDecision]:
        opening, body = at + 1, self.scopes.match[at + 1] + 1
        value = Span(self._from(opening + 1), self._to(self.scopes.match[opening] - 1))
        label = "no case"
        for first, last, name in self._labelled(body + 1, self.scopes.match[body]):
            label = name or label
            if self._was_visited(first, last):
                yield self._decision(at, "switch", value, label)
                yield from self._until_break(first, self.scopes.match[body])
                return
        yield self._decision(at, "switch", value, "no case")

    def _labelled(self, at: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Statements of a switch, each with the labels directly before it ("" if there are none)."""
        code = self.scopes.code
        labels: list[str] = []
        while at < end:
            if code[at].text in {b"case", b"default"}:
                colon = next(index for index in range(at, end) if code[index].text == b":")
                labels.append(self._text(at, colon))
                at = colon + 1
                continue
            after = self._whole(at, end)
            yield at, after, " or ".join(labels)
            labels.clear()
            at = after

    def _until_break(self, at: int, end: int) -> Iterator[BranchDecision]:
        for first, last, _ in self._labelled(at, end):
            if self.is_over or self.scopes.code[first].text == b"break":
                return
            yield from self._block(first, last)

    def _whole(self, at: int, end: int) -> int:
        """The token after the statement at ``at``, including every else that belongs to it."""
        after = self._after(at, end)
        if self.scopes.code[at].text == b"if":
            while after < end and self.scopes.code[after].text == b"else":
                after = self._whole(after + 1, end)
        return after

    def _after(self, at: int, end: int) -> int:
        """The token after the statement at ``at``; an if ends after its own statement, before else."""
        code, match = self.scopes.code, self.scopes.match
        if at < end and code[at].text in _BRANCHING:
            while code[at].text != b"(":
                at += 1
            return self._after(match[at] + 1, end)
        if at < end and code[at].text == b"{":
            return match[at] + 1
        while at < end and code[at].text != b";":
            at = match[at] + 1 if match.get(at, -1) > at else at + 1
        return at + 1

    def _decider(self, first: int, last: int, *, taken: bool) -> str | None:
        """The top-level operand of a condition that decided it alone."""
        operands, joined_by = self._operands(first, last)
        if joined_by == ({b"&&"} if taken else {b"||"}) or len(operands) == 1:
            return None
        reached = [operand for operand in operands[1:] if self._was_visited(*operand)]
        return self._text(*(reached[-1] if reached else operands[0]))

    def _operands(self, first: int, last: int) -> tuple[list[tuple[int, int]], set[bytes]]:
        """Token ranges between top-level && and || of a condition in active lines, and these operators."""
        code, match = self.scopes.code, self.scopes.match
        found: list[tuple[int, int]] = []
        joined_by: set[bytes] = set()
        start, at = first, first
        while at < last:
            if self._is_active(at) and code[at].text in {b"&&", b"||"}:
                found.append((start, at))
                joined_by.add(code[at].text)
                start = at + 1
            at = match[at] + 1 if match.get(at, -1) > at else at + 1
        return [*found, (start, last)], joined_by

    def _is_active(self, index: int) -> bool:
        return self.source.line_of(self._from(index)) in self.active

    def _was_visited(self, first: int, last: int) -> bool:
        low, high = self._from(first), self._to(last - 1)
        return any(low <= offset < high for offset in self.visited)

    def _from(self, index: int) -> int:
        return self.scopes.code[index].span.start

    def _to(self, index: int) -> int:
        return self.scopes.code[index].span.end

    def _text(self, first: int, last: int) -> str:
        return self._plain(Span(self._from(first), self._to(last - 1)))

    def _plain(self, span: Span) -> str:
        """The code in a span on one line, without lines that the preprocessor drops."""
        lines = [
            line
            for line in range(self.source.line_of(span.start), self.source.line_of(span.end) + 1)
            if line in self.active
        ]
        pieces = []
        for line in lines:
            whole = self.source.line_span(line)
            cut = Span(max(whole.start, span.start), min(whole.end, span.end))
            pieces.append(self.source.text(cut).decode("utf-8", "replace"))
        return " ".join(" ".join(pieces).split())

    def _decision(
        self, at: int, kind: str, span: Span, outcome: str, decided_by: str | None = None
    ) -> BranchDecision:
        return BranchDecision(
            where=self.source.locate(self._from(at)),
            kind=kind,
            text=self._plain(span),
            outcome=outcome,
            decided_by=decided_by,
        )


SELECTION_FUNCTION = "ggml_cuda_get_best_fattn_kernel"
_SELECTION_TIMEOUT_S = 300.0
_MARKER = re.compile(rb'^# (\d+) "([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """``decisions`` end with the return statement; ``launches`` are all kernels of the case, in order."""

    is_supported: bool
    decisions: tuple[BranchDecision, ...]
    launches: tuple[Launch, ...]


def select(case: Case, session: Session) -> Selection:
    """Run one case and record its executed basic blocks.

    Raises:
        SELECTION_UNREADABLE, SYMBOLIZER_MISSING, BLOCKS_UNKNOWN: the executed code cannot be determined.
        RecordedRunFailed: upstream's code aborted.
    """
    case = replace(case, id="explained")
    (record,) = session.run_cases([case], traced=True).records([case])
    backend, compiler = session.backend, session.compiler
    source = SourceText(SELECTION_UNIT, backend.tree.read(SELECTION_UNIT))
    blocks = locate_blocks(record.section.blocks, backend.library.path, compiler)
    active = active_lines(backend.tree, SELECTION_UNIT, backend.arch, compiler)
    return Selection(
        is_supported=record.is_supported,
        decisions=decisions(blocks, source, SELECTION_FUNCTION, active),
        launches=record.section.launches,
    )


def active_lines(tree: SourceTree, unit: str, arch: str, compiler: Compiler) -> frozenset[int]:
    """The lines of a unit that the preprocessor keeps, in the host pass of the recorder."""
    done = run_tool(
        [
            *nice(),
            str(compiler.toolchain.clang),
            *hip_flags(compiler.toolchain, arch, which="host"),
            *hip_definitions(rocwmma=True),
            *tree_definitions(tree.root),
            *(f"-I{folder}" for folder in include_folders(tree.root)),
            *HOST_FLAGS,
            "-E",
            unit,
        ],
        cwd=tree.root,
        timeout_s=_SELECTION_TIMEOUT_S,
        reporter=compiler.reporter,
    )
    lines: set[int] = set()
    path, number = b"", 0
    for text in done.stdout.split(b"\n"):
        if (marker := _MARKER.match(text)) is not None:
            number, path = int(marker[1]), marker[2]
            continue
        if path == unit.encode() and text.strip():
            lines.add(number)
        number += 1
    if not lines:
        raise ToolchainError(
            f"the preprocessor output has no line of {unit}", hint="check the toolchain with: patchkit doctor"
        )
    return frozenset(lines)
