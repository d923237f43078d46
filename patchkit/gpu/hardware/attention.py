"""Runs our attention cases on a device and compares the results with a double-precision reference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.gpu.emulated.cases import HEAD_SIZES, SOFTCAP_SIZES, Case, CaseAborted, case_line
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.sides import BuiltSide

# 1 is decode; 2 and 3 are at the limit of the vector kernel, 33 at that of 32 columns; masks are scanned from
# 1024.
_TOKENS = (1, 2, 3, 33, 512, 1024)
_FEW, _MANY = 33, 512
_SAMPLE_KV = 512
_KV, _DEEP_KV, _ODD_KV = (
    4096,
    16384,
    4160,
)  # the last is not a multiple of 256, another branch of the selection
_BLOCK = {"f16": 1, "q8_0": 32}
_DONE = re.compile(
    r"(?P<id>\S+) done rows=(?P<rows>\d+) nmse=(?P<nmse>\S+) worst=(?P<worst>\S+) "
    r"at=(?P<at>[\d,]+) finite=(?P<finite>[01])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionResult:
    """Result of one case on one device; ``rows`` were compared; ``worst_at`` is token, head and sequence."""

    case: Case
    is_supported: bool
    rows: int = 0
    nmse: float = 0.0
    worst: float = 0.0
    worst_at: str = ""
    is_finite: bool = True


def gate_cases(*, is_sample: bool = False) -> tuple[Case, ...]:
    """The cases of the gate: every head size and batch at depth 4096, GQA ratios, types, and each option.

    The sample has the same cases at depth 512 with batches up to 512, and the deepest case: it takes minutes
    on an emulated GPU. Long batches and deep decode matter: otherwise each block has a single KV tile, and
    the state that a kernel carries from one tile to the next is not tested.
    """
    cases = _cases()
    if is_sample:
        cases = (_shallow(case) for case in cases if case.tokens <= _MANY)
    return tuple(replace(case, id=f"own-{number}") for number, case in enumerate(cases))


def _shallow(case: Case) -> Case:
    return case if case.kv == _DEEP_KV else replace(case, kv=case.kv % _KV + _SAMPLE_KV)


def _cases() -> Iterator[Case]:
    for size, size_v in HEAD_SIZES:
        plain = Case(id="", head_size=size, head_size_v=size_v, kv_heads=2, gqa=4, kv=_KV, tokens=1)
        for tokens in _TOKENS:
            for kind, block in _BLOCK.items():
                if size % block == 0 and size_v % block == 0:
                    # Fewer heads for long batches, so that the whole list takes only minutes on a CPU.
                    gqa = 4 if tokens <= _FEW else 2
                    yield replace(plain, tokens=tokens, gqa=gqa, type_k=kind, type_v=kind)
        for gqa in (1, 8, 16):
            for tokens in (1, 3, _FEW):
                yield replace(plain, gqa=gqa, tokens=tokens)
        yield replace(plain, kv=_DEEP_KV)
        yield replace(plain, kv=_ODD_KV)
        yield replace(plain, kv=_ODD_KV, tokens=_FEW)
        yield from _options(plain)


def _options(plain: Case) -> Iterator[Case]:
    for tokens in (1, _FEW):
        case = replace(plain, tokens=tokens)
        yield replace(case, mask=False)
        yield replace(case, sinks=True)
        yield replace(case, max_bias=8.0)
        yield replace(case, precise=False)
        yield replace(case, sequences=3)
        if case.head_size in SOFTCAP_SIZES:
            yield replace(case, softcap=10.0)


def run_attention(
    driver: Path,
    side: BuiltSide,
    *,
    device: str,
    cases: Sequence[Case],
    name: str,
    timeout_s: float,
    place: RunContext,
) -> tuple[ProgramRun, tuple[AttentionResult, ...]]:
    """Compute each case and compare it.

    Raises:
        CaseAborted: the program crashed, in that case.
        PROGRAM_FAILED: a case is missing, or a line is not one of the driver's.
        The errors of :func:`run_program`; PROGRAM_FAILED if the device does not exist.
    """
    file = place.write(f"{name}.cases", "".join(map(case_line, cases)), "writing attention cases")
    argv = [str(driver), str(side.module), device, str(file)]
    try:
        ran = run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s, kept=side.kept)
    except ToolchainError as error:
        if error.code != "PROGRAM_CRASHED":
            raise
        missing = _first_missing(place.folder / f"{name}.out", cases)
        raise CaseAborted.of(error, missing, error.message) from error
    return ran, parse_measured(ran.text(), cases, where=str(ran.stdout))


def _first_missing(output: Path, cases: Sequence[Case]) -> str | None:
    """The case that a program was in when it ended: the first one without a result line."""
    printed = {line.partition(" ")[0] for line in output.read_text("utf-8", "replace").splitlines()}
    return next((case.id for case in cases if case.id not in printed), None)


def parse_measured(text: str, cases: Sequence[Case], *, where: str) -> tuple[AttentionResult, ...]:
    """Parse the driver's output, one line per case, in the order of the cases.

    Raises:
        PROGRAM_FAILED: a line is missing or has another form.
    """
    lines = text.splitlines()
    found = []
    for number, case in enumerate(cases, start=1):
        line = lines[number - 1] if number <= len(lines) else ""
        match = _DONE.fullmatch(line)
        if line == f"{case.id} unsupported":
            found.append(AttentionResult(case=case, is_supported=False))
        elif match is not None and match["id"] == case.id:
            found.append(
                AttentionResult(
                    case=case,
                    is_supported=True,
                    rows=int(match["rows"]),
                    nmse=float(match["nmse"]),
                    worst=float(match["worst"]),
                    worst_at=match["at"],
                    is_finite=match["finite"] == "1",
                )
            )
        else:
            raise ToolchainError(
                f"cannot parse the line of case {case}" if line else f"the line of case {case} is missing",
                code="PROGRAM_FAILED",
                where=Location(path=where, line=number),
                why=f"the line: {line[:160]!r}",
                hint="run the command again; the output is kept in that file",
            )
    return tuple(found)
