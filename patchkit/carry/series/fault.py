"""Known faults of upstream builds: the affected GPUs, the symptom, and the patch that fixes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from patchkit.base.errors import GateError, Location, UsageError
from patchkit.base.text import near_miss
from patchkit.base.toml import NOWHERE, NotInFile, Prose, Several, TomlTable
from patchkit.base.upstreams import CodeSign, build_name
from patchkit.carry.series.patch import BuildRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(TomlTable):
    """``[[fault]]`` of series.toml: a bug of some upstream builds on some GPUs."""

    named_by: ClassVar[str] = "id"
    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: Annotated[str, Field(min_length=1, max_length=72)]
    builds: BuildRange
    archs: Annotated[Several[Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]], Field(min_length=1)]
    symptom: Prose
    does: Annotated[Literal["wrong results", "aborts", "no harm seen"], Field(description="The consequence")]
    seen_on: Annotated[
        Literal["hardware", "emulated"],
        Field(
            description="hardware: reported from such GPUs; emulated: found by a check of the emulated GPU"
        ),
    ]
    links: Annotated[Several[str], Field(min_length=1)]
    code: Annotated[
        Several[CodeSign],
        Field(description="Signs in the code; a tree that has all of them has the fault, whatever its build"),
    ] = ()
    patch: Annotated[str | None, Field(description="The patch of the series that fixes it")] = None
    where: NotInFile[Location] = NOWHERE

    @property
    def is_harmful(self) -> bool:
        """Whether users are warned about it."""
        return self.does != "no harm seen"

    @property
    def refuses(self) -> bool:
        """Whether a candidate with this fault is rejected: it gives wrong results on real GPUs."""
        return self.does == "wrong results" and self.seen_on == "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHere:
    """A fault on a candidate: ``archs`` are the GPUs that have it and lack the patch that fixes it.

    ``fixed``: the candidate's other affected GPUs, on which it is fixed.
    """

    json_keys: ClassVar = (
        "id=fault.id title=fault.title archs fixed does=fault.does seen_on=fault.seen_on refused "
        "patch=fault.patch symptom=fault.symptom links=fault.links"
    )

    fault: Fault
    archs: tuple[str, ...]
    fixed: tuple[str, ...]

    def sentence(self) -> str:
        """The fault, the affected GPUs, and the patch that fixes it."""
        fault = self.fault
        seen = "" if fault.seen_on == "hardware" else ", seen on the emulated GPU only"
        how = f"fixed by the patch {fault.patch}" if fault.patch is not None else "no patch fixes it"
        return f"{fault.id} on {' '.join(self.archs)} ({fault.does}{seen}): {fault.title}; {how}"

    def state(self) -> str:
        """The sentence; if the fault is fixed on all GPUs, the patch that fixes it."""
        if self.archs:
            return self.sentence()
        return f"{self.fault.id} on {' '.join(self.fixed)}: fixed by {self.fault.patch}"

    @property
    def refused(self) -> bool:
        """Whether a candidate with it is rejected."""
        return self.fault.refuses and bool(self.archs)


def find_faults(
    faults: Iterable[Fault], build: int, archs: Sequence[str], live: Iterable[tuple[str, Sequence[str]]]
) -> tuple[FaultHere, ...]:
    """The faults of ``build`` on these GPUs; ``live`` has the applied patches with their GPUs."""
    targets = {patch: set(on) for patch, on in live}
    found = []
    for fault in faults:
        on = [arch for arch in archs if arch in fault.archs] if fault.builds.covers(build) else []
        fixed = tuple(arch for arch in on if arch in targets.get(fault.patch or "", ()))
        if on:
            left = tuple(arch for arch in on if arch not in fixed)
            found.append(FaultHere(fault=fault, archs=left, fixed=fixed))
    return tuple(found)


def refused_faults(found: Iterable[FaultHere], accepted: Sequence[str]) -> tuple[FaultHere, ...]:
    """The faults for which a candidate is rejected: unfixed, not accepted, and giving wrong results."""
    return tuple(
        each for each in found if each.archs and each.fault.refuses and each.fault.id not in accepted
    )


def check_faults(
    faults: Sequence[Fault], found: Iterable[FaultHere], build: int, accepted: Sequence[str]
) -> None:
    """Reject a candidate whose results are known to be wrong.

    Raises:
        FAULT_BAD: one of ``accepted`` is not a fault of the series.
        FAULT_UNMENDED: there are :func:`refused_faults`.
    """
    known = [fault.id for fault in faults]
    for name in accepted:
        if name not in known:
            raise UsageError(
                f"the series lists no fault '{name}'",
                code="FAULT_BAD",
                hint=near_miss(name, known) or (f"faults: {', '.join(known)}" if known else None),
            )
    left = refused_faults(found, accepted)
    if not left:
        return
    archs = dict.fromkeys(arch for each in left for arch in each.archs)
    raise GateError(
        f"{build_name(build)} computes wrong results on {' '.join(archs)}",
        code="FAULT_UNMENDED",
        where=[each.fault.where for each in left],
        why="\n".join(
            f"{each.sentence()}\n{' '.join(each.fault.symptom.split())}\n{each.fault.links[0]}"
            for each in left
        ),
        hint=_way_out(left),
    )


def _way_out(left: Sequence[FaultHere]) -> str:
    fixes = [f"apply the patch {each.fault.patch}" for each in left if each.fault.patch is not None]
    accept = shlex.join(word for each in left for word in ("--accept-fault", each.fault.id))
    return f"{'; '.join([*fixes, 'use a build without the fault'])}; or accept the wrong results: {accept}"
