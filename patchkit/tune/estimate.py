"""A bound on the throughput of a candidate, from its instructions; an estimate, never a measurement.

Per turn of the main loop one wave of a SIMD with w resident waves takes at least

    max(issue, lds, latency / w)  cycles, where

- issue counts one cycle per instruction and 32 per matrix instruction: a 16x16x16 product is 8192
  operations, and a SIMD does 256 per cycle (512 per CU and two SIMDs per CU: the clock times CUs times 512
  is the FP16 peak in the profiles' sources);
- lds is what it moves through LDS at 64 bytes per cycle and SIMD (128 per CU: from memory, not looked up);
- latency is llvm-mca's time for a wave that is alone, which w waves hide from each other; without llvm-mca
  it is left out.

What is not in it: caches and DRAM, waiting at barriers, instructions that issue in pairs, branches. It can
therefore be wrong by a factor; it orders settings of one variant whose memory traffic is the same.
The *tail* is the share of the last round of blocks that finds work, on a GPU of that many CUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.occupancy.waves import HardwareLimits, resident_blocks
from patchkit.tune.family import Traits
from patchkit.tune.outcome import Figures

MATRIX_CYCLES = 32
LDS_BYTES_PER_CYCLE = 64
# A prompt of 512 tokens on 32 heads over 4096 KV rows: the middle of what the series is measured with.
_TOKENS, _HEADS, _KV_ROWS = 512, 32, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cycles of one pool (WGP) per KV row and column of the result, and what bounds them.

    ``bound`` is issue, lds or latency; ``tail`` the share of slots that work, 0 to 1. Barriers and LDS
    bytes are per KV row and block, the matrix share is of the cycles of issue.
    """

    cycles: float
    bound: str
    tail: float
    barriers_per_row: float
    lds_bytes_per_row: float
    matrix_share: float

    @property
    def cost(self) -> float:
        """Cycles with the idle part of the last round added."""
        return self.cycles / self.tail


def estimate(figures: Figures, traits: Traits, limits: HardwareLimits, compute_units: int | None) -> Estimate:
    """The bound for one candidate; ``compute_units`` of the whole GPU, None when not known: no tail then."""
    loop = figures.loop
    waves = -(-traits.threads // limits.wave_size)
    issue = loop.instructions + (MATRIX_CYCLES - 1) * loop.matrix
    lds_bytes = loop.lds_bytes * limits.wave_size
    times = {
        "issue": float(issue),
        "lds": lds_bytes / LDS_BYTES_PER_CYCLE,
        "latency": (figures.latency or 0) / max(1, figures.resident),
    }
    bound = max(times, key=lambda name: times[name])
    blocks = max(1, resident_blocks(figures.vgprs, figures.lds_bytes, traits.threads, limits))
    tail = 1.0
    if compute_units is not None:
        pools = max(1, compute_units * _simds_per_cu(limits) // limits.simds_per_pool)
        tail = tail_share(traits, blocks * pools)
    return Estimate(
        cycles=times[bound] * waves / limits.simds_per_pool / traits.rows / traits.columns,
        bound=bound,
        tail=tail,
        barriers_per_row=loop.barriers / traits.rows,
        lds_bytes_per_row=lds_bytes * waves / traits.rows,
        matrix_share=MATRIX_CYCLES * loop.matrix / issue if issue else 0.0,
    )


def tail_share(traits: Traits, slots: int) -> float:
    """How full the rounds of blocks are.

    Attention splits KV as well as it can, as launch_fattn does; a kernel with ``tiles`` splits nothing.
    """
    if traits.tiles is not None:
        return traits.tiles / (-(-traits.tiles // slots) * slots)
    tiles = -(-_TOKENS // traits.columns) * _HEADS
    most = max(1, _KV_ROWS // traits.rows)
    shares = (tiles * parts / (-(-tiles * parts // slots) * slots) for parts in range(1, most + 1))
    return max(shares)


def _simds_per_cu(limits: HardwareLimits) -> int:
    """Four SIMDs of a WGP are those of two CUs; a pool of GCN and CDNA is a CU."""
    return limits.simds_per_pool // 2 if limits.wave_size == 32 else limits.simds_per_pool  # noqa: PLR2004 - RDNA
