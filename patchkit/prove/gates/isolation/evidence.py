"""Evidence of gate ``isolation``: every reading of both trees, and the assembly that was compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from patchkit.base.digests import sha256
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.prove.gates.base import Count, Evidence, Many, Record
from patchkit.toolchain.units import Platform

_FUNCTION = re.compile(r"^([A-Za-z_.$][\w.$]*):")
_DIGEST = 12


class Unreadable(Record):
    """Why the preprocessor gave no output."""

    error: str


class Reading(Record):
    """One unit in one configuration: the digest of each tree's tokens, or why there is none."""

    configuration: str
    unit: str
    baseline: str | Unreadable
    candidate: str | Unreadable

    @property
    def agrees(self) -> bool:
        """Whether both trees were read and are equal."""
        return isinstance(self.baseline, str) and self.baseline == self.candidate


class Compared(Record):
    """Code of one unit for one GPU from both trees; ``difference`` describes the first line that differs.

    ``form`` is what was compared. If the IR before optimization is the same, so is the assembly, which is
    then not generated; ``lines`` is 0.
    """

    unit: str
    arch: str
    sha256: str
    lines: Count
    form: Literal["assembly", "ir"] = "assembly"
    equal: bool
    difference: str

    @classmethod
    def of(cls, unit: str, arch: str, before: str, after: str) -> Compared:
        """Compare two assembly texts."""
        return cls(
            unit=unit,
            arch=arch,
            sha256=sha256(before),
            lines=before.count("\n"),
            equal=before == after,
            difference="" if before == after else _first_difference(before, after),
        )

    @classmethod
    def same_ir(cls, unit: str, arch: str, sha256: str) -> Compared:
        """The record of two trees with the same IR."""
        return cls(unit=unit, arch=arch, sha256=sha256, lines=0, form="ir", equal=True, difference="")

    @property
    def text(self) -> str:
        """The result in a few words."""
        if self.is_uncompiled:
            return "does not compile in either tree"
        if not self.equal:
            return self.difference
        return "same code" if self.form == "assembly" else "same code (same IR before optimization)"

    @property
    def is_uncompiled(self) -> bool:
        """Whether neither tree compiles there, so that both texts are the same one-line error message."""
        return self.equal and self.lines == 0 and self.form == "assembly"


class HostBranch(Record):
    """Units with differing host tokens; all units with closed regions; differing units with a dead branch."""

    differing_units: Many[str] = ()
    regions_closed: Many[Reading] = ()
    branch_dead_assembly: Many[Compared] = ()


class Declared(Record):
    """A plain patch: its files, and the units of GPU backends that they change."""

    patch: str
    files: Many[str]
    units: Many[str]

    def __str__(self) -> str:
        where = counted(len(self.units), "GPU unit") if self.units else "no GPU unit"
        return (
            f"{self.patch} changes code for every backend, by declaration: {', '.join(self.files)} ({where})"
        )


class IsolationEvidence(Evidence):
    """All that the gate compared (units by platform, readings, code), and declared changes."""

    changed_files: Many[str]
    units: Mapping[Platform, Many[str]]
    stand_in_headers: Many[str]
    readings: Many[Reading]
    host_branch: HostBranch
    device_code: Many[Compared]
    declared: Many[Declared] = ()

    @property
    def outcome(self) -> str:
        """Names the plain patches, if there are any."""
        return ", ".join(one.patch for one in self.declared)

    def blocks(self) -> Iterator[Block]:
        """Readings by configuration, those that differ in full, and the code that was compared."""
        different = [one for one in self.readings if one.baseline != one.candidate]
        if different:
            yield Table(
                name="leaks",
                caption="Preprocessor outputs that differ from the baseline's",
                columns=columns("configuration", "unit", "baseline", "candidate"),
                rows=tuple(
                    Row(
                        cells=(one.configuration, one.unit, _short(one.baseline), _short(one.candidate)),
                    )
                    for one in different
                ),
            )
        differ = Counter(one.configuration for one in different)
        total = Counter(one.configuration for one in self.readings)
        yield Table(
            name="readings",
            caption="Preprocessor outputs of the touched units by configuration",
            columns=columns("configuration", "identical #", "different #"),
            rows=tuple(
                Row(
                    cells=(name, str(total[name] - differ[name]), str(differ[name])),
                )
                for name in sorted(total)
            ),
            is_detail=True,
        )
        if self.declared:
            yield Table(
                name="declared",
                caption="Changes for every backend, by declaration",
                columns=columns("patch", "files", "GPU units"),
                rows=tuple(
                    Row(cells=(one.patch, ", ".join(one.files), ", ".join(one.units) or "none"))
                    for one in self.declared
                ),
            )
        code = [("device", one) for one in self.device_code]
        code += [("host, conditions false", one) for one in self.host_branch.branch_dead_assembly]
        yield Table(
            name="assembly",
            caption="Assembly compared with the baseline's",
            columns=columns("unit", "GPU", "pass", "lines #", "result"),
            rows=tuple(_assembly(which, one) for which, one in code),
            is_detail=True,
        )


def _short(reading: str | Unreadable) -> str:
    """A shortened digest, or why there is none."""
    return reading[:_DIGEST] if isinstance(reading, str) else f"unreadable: {reading.error}"


def _assembly(which: str, one: Compared) -> Row:
    lines = str(one.lines) if one.form == "assembly" else "-"
    return Row(cells=(one.unit, one.arch, which, lines, one.text))


def _first_difference(before: str, after: str) -> str:
    """``in <function>: 'a' became 'b'``, for the first line that differs."""
    function = "the head of the file"
    left, right = before.splitlines(), after.splitlines()
    for old, new in zip(left, right, strict=False):
        found = _FUNCTION.match(new)
        if old != new:
            return f"in {function}: '{old.strip()}' became '{new.strip()}'"
        if found and not found[1].startswith(".L"):
            function = found[1]
    return f"{len(left)} lines became {len(right)}"
