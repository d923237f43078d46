"""Parses clang's stderr: resource usage remarks, warnings and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from patchkit.base.errors import Location, ToolchainError

REMARK_FLAG = "-Rpass-analysis=kernel-resource-usage"

# As printed by clang 22, which also prints "AGPRs" and "Dynamic Stack" (not used).
_FIELDS = {
    "TotalSGPRs": "sgprs",
    "VGPRs": "vgprs",
    "ScratchSize [bytes/lane]": "scratch_bytes",
    "Occupancy [waves/SIMD]": "waves",
    "SGPRs Spill": "sgpr_spills",
    "VGPRs Spill": "vgpr_spills",
    "LDS Size [bytes/block]": "lds_bytes",
}
_REMARK = re.compile(
    r"remark:\s+(?:\S+:\d+:\d+: )?(?P<field>[^:\n]+): (?P<value>\S+) "
    r"\[-Rpass-analysis=kernel-resource-usage\]\s*$"
)
_DIAGNOSTIC = re.compile(
    r"^(?P<path>[^\s:][^:\n]*):(?P<line>\d+):(?P<column>\d+): "
    r"(?P<kind>warning|error|fatal error): (?P<text>.*?)(?: \[(?P<flag>-W[^\]]+)\])?$"
)
# For IR input clang prints the position after the kind; without line tables it is <unknown>:0:0.
_OF_IR = re.compile(r"^(?P<kind>warning|error): (?P<place>[^\s:]+:\d+:\d+): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRemark:
    """Resource usage of one kernel, as reported by the compiler.

    Registers are per lane (``vgprs``) and per wave (``sgprs``), ``scratch_bytes`` per lane, ``lds_bytes``
    per block, ``waves`` per SIMD. ``name`` is the mangled name.
    """

    name: str
    sgprs: int
    vgprs: int
    scratch_bytes: int
    waves: int
    sgpr_spills: int
    vgpr_spills: int
    lds_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One warning or error; ``flag`` is the option that controls a warning (-Wunused), if any."""

    kind: Literal["warning", "error"]
    where: Location
    text: str
    flag: str | None


def parse_remarks(stderr: str) -> tuple[ResourceRemark, ...]:
    """The resource remarks of all kernels, in the compiler's order.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: a value is missing or not a number.
    """
    return tuple(_remark(name, fields) for name, fields in _blocks(stderr))


def _blocks(stderr: str) -> Iterator[tuple[str, dict[str, str]]]:
    name: str | None = None
    fields: dict[str, str] = {}
    for line in stderr.splitlines():
        found = _REMARK.search(line)
        if found is None:
            continue
        field, value = found["field"].strip(), found["value"]
        if field == "Function Name":
            if name is not None:
                yield name, fields
            name, fields = value, {}
        else:
            fields[field] = value
    if name is not None:
        yield name, fields


def _remark(name: str, fields: dict[str, str]) -> ResourceRemark:
    missing = [field for field in _FIELDS if not fields.get(field, "").isdigit()]
    if missing:
        raise ToolchainError(
            f"the compiler's resource remarks for {name} lack {' and '.join(missing)}",
            code="COMPILER_OUTPUT_UNREADABLE",
            why="the format differs from that of clang 22",
            hint="check the compiler version with patchkit doctor; the option is " + REMARK_FLAG,
        )
    return ResourceRemark(name=name, **{ours: int(fields[theirs]) for theirs, ours in _FIELDS.items()})


def parse_diagnostics(stderr: str) -> tuple[Diagnostic, ...]:
    """Warnings and errors in order, without duplicates; in paths, ``x/../`` is removed."""
    found: dict[tuple[str, str, str], Diagnostic] = {}
    for line in stderr.splitlines():
        match = _DIAGNOSTIC.match(_OF_IR.sub(r"\g<place>: \g<kind>: ", line))
        if match is None:
            continue
        row, column = int(match["line"]) or None, int(match["column"]) or None
        where = Location(path=_fold(match["path"]), line=row, column=column)
        kind: Literal["warning", "error"] = "warning" if match["kind"] == "warning" else "error"
        found.setdefault(
            (kind, str(where), match["text"]),
            Diagnostic(kind=kind, where=where, text=match["text"], flag=match["flag"]),
        )
    return tuple(found.values())


def _fold(path: str) -> str:
    """Simplify ``a/b/../c`` to ``a/c``, without access to the disk."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in {"", ".."}:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
