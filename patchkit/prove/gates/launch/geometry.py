"""Rules for one launch: the GPU allows it, its kernel is compiled for it, and it agrees with the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from patchkit.carry.placing.wmma import UPSTREAM, WmmaRow
from patchkit.carry.series.promises import CasePromise, KernelMove
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.device import EmulatedDevice
from patchkit.gpu.emulated.log import Launch
from patchkit.toolchain.compile import CompiledKernel

_MAX_THREADS = 1024
# hipDeviceProp_t.maxGridSize is 65535 for y and z; the runtime accepts 65536 and rejects more (rocSPARSE's
# tests of strided batches, on gfx1201).
_MAX_GRID = (2**31 - 1, 65536, 65536)
# Template arguments of the WMMA kernel: D, columns, warps, VKQ stride, accumulator, soft cap.
_D, _NCOLS, _NWARPS, _ACC = 0, 1, 2, 4

Code = Mapping[str, Mapping[str, CompiledKernel]]  # unit -> mangled name -> kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A GPU that patches target, as the rules need it: its device, and the code of both sides.

    ``moves`` and ``promises`` are declared by its patches. ``rows`` is the WMMA table, by head size, columns
    and accumulator, if a patch promises to follow it. ``about_matrices`` are the patches that change
    quantized matmuls. ``leaving`` are kernels whose work may move to the CPU or to kernels of a patch;
    ``own`` are the latter.
    """

    device: EmulatedDevice
    code: Code
    code_before: Code
    rows: Mapping[tuple[int, int, str], WmmaRow]
    moves: tuple[KernelMove, ...] = ()
    promises: tuple[CasePromise, ...] = ()
    about_matrices: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def before(self) -> Guarded:
        """The same with the baseline as the candidate: its code, no patch, no table."""
        return replace(self, rows={}, code=self.code_before, moves=(), promises=(), about_matrices=())


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRule:
    """``broken`` describes how a launch of a case breaks the rule; None if it does not."""

    code: str
    message: str
    broken: Callable[[Case, Launch, Guarded], str | None]


def code_of(launch: Launch, code: Code) -> CompiledKernel | None:
    """The code of a launched kernel; None if its unit was not compiled."""
    units = (code.get(unit, {}) for unit in launch.kernel.units)
    return next((unit[name] for unit in units if (name := launch.kernel.name.mangled) in unit), None)


def _row(launch: Launch, guarded: Guarded) -> WmmaRow | None:
    """The table's row for a WMMA launch."""
    name = launch.kernel.name
    size, columns = name.integer(_D), name.integer(_NCOLS)
    accumulator = {"half": "f16", "float": "f32"}.get(name.arguments[_ACC] if name.arguments else "")
    if size is None or columns is None or accumulator is None:
        return None
    return guarded.rows.get((size, columns, accumulator))


def _legal(_case: Case, launch: Launch, guarded: Guarded) -> str | None:
    for axis, size, most in zip("xyz", launch.grid, _MAX_GRID, strict=True):
        if not 1 <= size <= most:
            return f"with {size} blocks in {axis}, a grid has 1 to {most}"
    if not 1 <= launch.threads <= _MAX_THREADS:
        return f"with {launch.threads} threads per block"
    code = code_of(launch, guarded.code)
    lds = launch.lds + (code.figures.lds_bytes if code is not None else 0)
    if lds > guarded.device.lds_per_block:
        return f"with {lds} bytes of LDS, the limit is {guarded.device.lds_per_block}"
    if launch.resident == 0:
        return f"with {lds} bytes of LDS and {launch.threads} threads: no block fits"
    return None


def _block(_case: Case, launch: Launch, guarded: Guarded) -> str | None:
    """Attention kernels index by wave, so a block of another size than compiled for computes garbage."""
    if launch.kernel.family not in {"wmma", "tile"}:
        return None
    if launch.block[0] != guarded.device.wave_size:
        return f"with {launch.block[0]} lanes, a wave has {guarded.device.wave_size}"
    code = code_of(launch, guarded.code)
    if code is not None and code.threads != launch.threads:
        return f"with {launch.threads} threads per block, compiled for {code.threads}"
    if launch.kernel.family == "wmma":
        row = _row(launch, guarded)
        expected = row.params.nwarps if row is not None else launch.kernel.name.integer(_NWARPS)
        if launch.block[1] != expected:
            return f"with {launch.block[1]} waves per block, the table has {expected}"
    return None


def _granularity(case: Case, launch: Launch, guarded: Guarded) -> str | None:
    """grid.y splits KV rows into at most as many parts as there are steps, and exactly so many if all fit.

    launch_fattn (fattn-common.cuh of build 6900) splits into all steps if one multiprocessor holds as many
    blocks as there are steps. If its granularity is not the kernel's step, the number is lower.
    """
    if launch.kernel.family != "wmma":
        return None
    row = _row(launch, guarded)
    stride = row.params.kq_stride if row is not None else UPSTREAM.kq_stride
    steps = -(-case.kv // stride)
    if launch.grid[1] > steps:
        return f"with {launch.grid[1]} parts of KV, there are {steps} steps of {stride} rows"
    if launch.resident is not None and steps <= launch.resident and launch.grid[1] != steps:
        return f"with {launch.grid[1]} parts of KV where {steps} steps of {stride} rows fit at once"
    return None


LAUNCH_RULES = (
    LaunchRule(code="LAUNCH_ILLEGAL", message="a launch that the GPU rejects", broken=_legal),
    LaunchRule(
        code="LAUNCH_BLOCK_MISMATCH",
        message="blocks of another size than the kernel is compiled for",
        broken=_block,
    ),
    LaunchRule(
        code="LAUNCH_GRANULARITY",
        message="the split of KV rows does not match the kernel's step",
        broken=_granularity,
    ),
)
