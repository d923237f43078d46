"""What the launch gate can find wrong, one class each."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.base.errors import GateError, Location

_SHOWN = 3


class SupportLost(GateError):
    """An operation that was supported no longer is: it would silently move to the CPU."""

    code = "LAUNCH_SUPPORT_LOST"


class NothingLaunched(GateError):
    """A supported case launched no attention kernel, or there was nothing to compare."""

    code = "LAUNCH_NOTHING"


class CandidateAborts(GateError):
    """The candidate's host code aborts, crashes or never ends in a run that the baseline ends well."""

    code = "LAUNCH_ABORTED"


class DecodeOnWmma(GateError):
    """Decode on a guarded GPU launches the WMMA kernel."""

    code = "LAUNCH_DECODE_WMMA"


class DecodeOnVec(GateError):
    """Decode with f16 KV and grouped queries on a guarded GPU launches the vector kernel."""

    code = "LAUNCH_DECODE_VEC"


class PrefillNotWmma(GateError):
    """Prefill of a shape in the parameter table does not launch the WMMA kernel."""

    code = "LAUNCH_PREFILL_NOT_WMMA"


class FamilyChanged(GateError):
    """A case launches another attention kernel than before, and no patch says so."""

    code = "LAUNCH_FAMILY_CHANGED"


class FamilyKept(GateError):
    """A patch says that its GPUs leave a kernel, and a case still launches it."""

    code = "LAUNCH_FAMILY_KEPT"


class UnguardedChanged(GateError):
    """A GPU outside the guard launches something else than the baseline."""

    code = "LAUNCH_UNGUARDED_CHANGED"


class KernelMissing(GateError):
    """A launched kernel is not in the code object of the unit that registers it."""

    code = "LAUNCH_KERNEL_MISSING"


class KernelTraps(GateError):
    """A launched kernel's body is a trap."""

    code = "LAUNCH_KERNEL_TRAPS"


class BlockMismatch(GateError):
    """The host launches other blocks than the kernel was compiled for, or than the table says."""

    code = "LAUNCH_BLOCK_MISMATCH"


class GranularityMismatch(GateError):
    """The grid over KV rows does not fit the rows that the kernel takes per step."""

    code = "LAUNCH_GRANULARITY"


class IllegalLaunch(GateError):
    """No GPU of this kind accepts the launch: grid, threads or LDS."""

    code = "LAUNCH_ILLEGAL"


class GraphChanged(GateError):
    """A model's graph launches other kernels than before besides attention."""

    code = "LAUNCH_GRAPH_CHANGED"


def finding(
    kind: type[GateError], message: str, examples: Sequence[str], *, where: str | None = None, hint: str
) -> GateError:
    """One error for all cases that break one rule: how many, and the first few that read differently."""
    shown = list(dict.fromkeys(examples))[:_SHOWN]
    if len(examples) > len(shown):
        shown.append(f"and {len(examples) - len(shown)} more")
    count = f"{len(examples)} case{'s'[: len(examples) != 1]}"
    return kind(
        f"{message} ({count})",
        where=Location(path=where) if where is not None else None,
        why="; ".join(shown),
        hint=hint,
    )
