"""Single operations in batches of several widths, compared with batches of one token, by our own driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.sides import BuiltSide

DRIVER = "operation_widths"
_LINE = re.compile(
    r"(?P<id>\S+) width=(?P<width>\d+) rows=(?P<rows>\d+) equal=(?P<equal>\d+) nmse=(?P<nmse>\S+) "
    r"worst=(?P<worst>\S+) at=(?P<at>\d+) finite=(?P<finite>[01])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthCase:
    """One operation, or a few that models run in a row.

    ``op`` is ggml's name, or one of ``GLU``, ``NORM`` and ``NORM_ADD_NORM``, which end in matmuls
    (native/operation_widths.cpp). ``type`` is that of the weights, or of K and V. ``rows`` are outputs,
    ``columns`` inputs of a matmul. ``head_size`` and the fields after it are for attention.
    """

    op: str
    type: str
    rows: int = 64
    columns: int = 512
    experts: int = 1
    used: int = 1
    head_size: int = 0
    head_size_v: int = 0
    heads: int = 0
    kv_heads: int = 0
    kv: int = 0
    sinks: bool = False
    softcap: float = 0.0

    def __str__(self) -> str:
        if self.op == "FLASH_ATTN_EXT":
            same = self.head_size == self.head_size_v
            size = f"{self.head_size}" if same else f"{self.head_size}/{self.head_size_v}"
            more = [f"d{size}", f"gqa{self.heads // self.kv_heads}", f"kv{self.kv}"]
            more += ["sinks"] if self.sinks else []
            more += ["softcap"] if self.softcap else []
        elif self.op == "MUL_MAT_ID":
            more = [f"{self.rows}x{self.columns}", f"{self.used} of {self.experts}"]
        else:
            more = [f"{self.rows}x{self.columns}"]
        return " ".join((self.op, self.type, *more))

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of ggml's operations whose kernels it runs."""
        chains = {"GLU": ("GLU", "MUL_MAT"), "NORM": ("ADD", "RMS_NORM", "MUL_MAT")}
        return {**chains, "NORM_ADD_NORM": chains["NORM"]}.get(self.op, (self.op,))

    def line(self, number: int) -> str:
        """The case's line in a case file; ``number`` is its id."""
        return (
            f"{number} op={self.op} type={self.type} rows={self.rows} columns={self.columns} "
            f"experts={self.experts} used={self.used} size={self.head_size} size_v={self.head_size_v} "
            f"heads={self.heads} kv_heads={self.kv_heads} kv={self.kv} sinks={self.sinks:d} "
            f"softcap={self.softcap}\n"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDistance:
    """How far the results of ``rows`` tokens are from those in batches of one.

    ``equal`` of them are bit-identical. ``worst`` is the NMSE of the worst token, number ``worst_row``.
    """

    rows: int
    equal: int
    nmse: float
    worst: float
    worst_row: int
    is_finite: bool


def run_widths(
    driver: Path,
    side: BuiltSide,
    *,
    device: str,
    cases: Sequence[WidthCase],
    widths: Sequence[int],
    name: str,
    timeout_s: float,
    place: RunContext,
) -> tuple[ProgramRun, tuple[dict[int, TokenDistance], ...]]:
    """Compute each case in batches of each width. A case that the device does not support has no distances.

    Raises:
        PROGRAM_FAILED: a line is missing or has another form; the device does not exist.
        The errors of :func:`run_program`.
    """
    lines = "".join(case.line(number) for number, case in enumerate(cases))
    file = place.write(f"{name}.cases", lines, "writing the cases of operations")
    argv = [str(driver), str(side.module), device, str(file), ",".join(map(str, widths))]
    ran = run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s, kept=side.kept)
    return ran, parse_widths(ran.text(), len(cases), widths, where=str(ran.stdout))


def parse_widths(
    text: str, cases: int, widths: Sequence[int], *, where: str
) -> tuple[dict[int, TokenDistance], ...]:
    """Parse the driver's output: for each case one line per width, or a line that it is not supported.

    Raises PROGRAM_FAILED.
    """
    found: list[dict[int, TokenDistance]] = [{} for _ in range(cases)]
    missing = {(str(number), str(width)) for number in range(cases) for width in widths}
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, rest = line.partition(" ")
        match = _LINE.fullmatch(line)
        if rest == "unsupported":
            missing -= {(name, str(width)) for width in widths}
        elif match is not None and (match["id"], match["width"]) in missing:
            missing.remove((match["id"], match["width"]))
            found[int(match["id"])][int(match["width"])] = TokenDistance(
                rows=int(match["rows"]),
                equal=int(match["equal"]),
                nmse=float(match["nmse"]),
                worst=float(match["worst"]),
                worst_row=int(match["at"]),
                is_finite=match["finite"] == "1",
            )
        else:
            raise _unreadable(f"cannot parse the line {line[:160]!r}", where, number)
    if missing:
        raise _unreadable(f"case {min(missing)[0]} has no result", where, None)
    return tuple(found)


def _unreadable(what: str, where: str, line: int | None) -> ToolchainError:
    return ToolchainError(
        f"the results of operations in several batches: {what}",
        code="PROGRAM_FAILED",
        where=Location(path=where, line=line),
        hint="run the command again; the output is kept in that file",
    )
