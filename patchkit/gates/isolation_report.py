"""What the isolation gate looked at and found, as evidence and as lines for a person.

Vocabulary: a *host proof* is what stands in for equal tokens in the one pass whose tokens differ by
design; the words for it are never "identical".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from patchkit.build.units import Platform
from patchkit.errors import PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.readings import Case
from patchkit.gates.subject import Subject

_FUNCTION = re.compile(r"^([A-Za-z_.$][\w.$]*):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Assembly of one unit for one GPU from both trees; ``difference`` names the first line that differs."""

    unit: str
    arch: str
    sha256: str
    lines: int
    equal: bool
    difference: str

    @classmethod
    def of(cls, unit: str, arch: str, before: str, after: str) -> Compared:
        """Compare two texts."""
        return cls(
            unit=unit,
            arch=arch,
            sha256=hashlib.sha256(before.encode()).hexdigest(),
            lines=before.count("\n"),
            equal=before == after,
            difference="" if before == after else _first_difference(before, after),
        )

    @property
    def is_uncompiled(self) -> bool:
        """Whether neither tree compiles there: an error message is one line."""
        return self.equal and self.lines == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProof:
    """Units whose host tokens differ; all units with the regions closed; those with the branch dead."""

    differing: tuple[str, ...] = ()
    closed: tuple[Case, ...] = ()
    assembly: tuple[Compared, ...] = ()

    @property
    def wanted(self) -> int:
        """How many assemblies have to be equal: one per unit, or two where rocWMMA makes a difference."""
        return max(len(self.assembly), len(self.differing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything the gate looked at. ``partly``: GPUs that only some of the patches are for."""

    cases: Sequence[Case]
    host: HostProof
    device_code: Sequence[Compared]
    touched: Mapping[Platform, tuple[str, ...]]
    stand_ins: Sequence[str]
    problems: Sequence[PatchkitError]
    has_rocwmma: bool
    partly: Sequence[str]


def isolation_result(subject: Subject, found: Findings) -> GateResult:
    """Put everything together; failed when there is a problem."""
    read = [case for case in found.cases if not case.is_unread]
    agreeing = sum(case.agrees for case in read)
    configurations = len({case.configuration.name for case in read})
    proven = sum(one.equal for one in found.host.assembly)
    summary = (
        f"{agreeing} of {len(read)} readings identical ({len({case.unit for case in read})} units, "
        f"{configurations} configurations); host branch of HIP proven on {proven} of "
        f"{found.host.wanted} units"
    )
    return GateResult(
        gate="isolation",
        verdict="failed" if found.problems else "passed",
        summary=summary,
        problems=tuple(found.problems),
        evidence={
            "changed_files": list(subject.changed_files),
            "units": {platform: list(names) for platform, names in found.touched.items()},
            "stand_in_headers": list(found.stand_ins),
            "readings": [_case_json(case) for case in found.cases],
            "host_branch": {
                "differing_units": list(found.host.differing),
                "regions_closed": [_case_json(case) for case in found.host.closed],
                "branch_dead_assembly": [asdict(one) for one in found.host.assembly],
            },
            "device_code": [asdict(one) for one in found.device_code],
        },
        not_run=tuple(_not_run(found)),
        lines=tuple(_lines(found)),
    )


def _lines(found: Findings) -> Iterator[str]:
    host = found.host

    def kind(case: Case) -> tuple[str, bool, str]:
        return case.configuration.platform, case.configuration.rocwmma, case.configuration.which

    for (platform, rocwmma, which), group in groupby(sorted(found.cases, key=kind), key=kind):
        rows = [case for case in group if not case.is_unread]
        good = [case for case in rows if case.agrees]
        archs = list(dict.fromkeys(case.configuration.arch for case in rows))
        state = (", rocWMMA on" if rocwmma else ", rocWMMA off") if platform == "hip" else ""
        told = "identical tokens" if len(good) == len(rows) else f"{len(rows) - len(good)} DIFFER"
        where = "one for all GPUs" if archs == ["all"] else f"{len(archs)} GPUs ({' '.join(archs)})"
        yield f"{platform}{state}, {which} pass, {where}: {len(rows)} readings, {told}"
    if host.differing:
        names = ", ".join(name.rpartition("/")[2] for name in host.differing)
        same = sum(case.agrees for case in host.closed)
        proven = sum(one.equal for one in host.assembly)
        yield (
            f"hip, host pass, one for all GPUs: {names} differ by the branch at run time; "
            f"with the generated regions closed {same} of {len(host.closed)} readings are the baseline's, "
            f"with the branch dead the assembly of {proven} of {host.wanted} is"
        )
    for one in found.device_code:
        state = "does not compile in either tree" if one.is_uncompiled else "code differs"
        told = f"same code ({one.lines} lines)" if one.equal and not one.is_uncompiled else state
        yield f"device code of {one.unit.rpartition('/')[2]} for {one.arch}: {told}"
    if found.stand_ins:
        yield f"empty stand-ins of ours for: {', '.join(found.stand_ins)}"


def _not_run(found: Findings) -> Iterator[str]:
    if not found.has_rocwmma:
        yield "everything with rocWMMA on: no rocWMMA header is there"
    unread = sorted({case.configuration.name for case in found.cases if case.is_unread})
    if unread:
        yield f"{', '.join(unread)}: upstream's own units cannot be read there with these headers"
    for one in found.device_code:
        if one.is_uncompiled:
            yield f"device code of {one.unit} for {one.arch}: upstream's own unit does not compile there"
    for arch in found.partly:
        yield f"{arch} is guarded by some patches only: what the others do to it is not told apart"
    yield "CUDA and MUSA are read by clang with empty vendor headers, not by nvcc and mcc"


def _case_json(case: Case) -> dict[str, object]:
    return {
        "configuration": case.configuration.name,
        "unit": case.unit,
        "baseline": case.before if isinstance(case.before, str) else {"error": case.before.message},
        "candidate": case.after if isinstance(case.after, str) else {"error": case.after.message},
    }


def _first_difference(before: str, after: str) -> str:
    """``in <function>: 'a' became 'b'``, of the first line that differs."""
    function = "the head of the file"
    left, right = before.splitlines(), after.splitlines()
    for old, new in zip(left, right, strict=False):
        found = _FUNCTION.match(new)
        if old != new:
            return f"in {function}: '{old.strip()}' became '{new.strip()}'"
        if found and not found[1].startswith(".L"):
            function = found[1]
    return f"{len(left)} lines became {len(right)}"
