"""What the tuner asks of a kernel that it can tune."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from patchkit.kernels.occupancy import HardwareLimits, waves_by_vgprs


def numbers_of(variant: str) -> tuple[int, int]:
    """Head size and columns."""
    head_size, columns = variant.split("-")
    return int(head_size), int(columns)


def ways_of(stem: str, heads: Sequence[int], softcaps: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """File name, query heads per block, soft cap as C++ says it; the name leaves the first heads out."""
    for capped in softcaps:
        for shared in heads:
            named = [f"-{shared}-heads"] if shared != heads[0] else []
            yield "".join([stem, *named, *(["-softcap"] if capped == "true" else []), ".cu"]), shared, capped


_MOST = 8  # upstream's tables assert it


def binding_bounds(limits: HardwareLimits, base: int) -> tuple[int, ...]:
    """Upstream's ``base``, and the bounds that a kernel of the most registers does not meet."""
    free = waves_by_vgprs(limits.max_vgprs_per_wave, limits)
    return tuple(sorted({base, *range(free + 1, _MOST + 1)}))


UNIT_FOLDER = "ggml/src/ggml-cuda/patchkit-tune"  # of the overlay; never part of a candidate branch

Setting = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One setting of one variant, the values in the order of the family's parameters."""

    variant: str
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What follows from a candidate without compiling it.

    ``threads`` per block; ``rows`` of KV (or of the inner dimension) that one turn of the main loop of
    a block covers; ``columns`` of the result that one block computes (or values, where its rows depend
    on the setting). ``launch_lds_bytes`` is LDS of a block that the host asks for at launch and the compiler
    does not see. ``tiles`` are the blocks of the problem that the tail is counted for; None: attention's.
    """

    threads: int
    rows: int
    columns: int
    launch_lds_bytes: int = 0
    tiles: int | None = None


class Family(Protocol):
    """One kernel. ``parameters`` are the names of the values of a setting; ``kernel`` the function's."""

    @property
    def name(self) -> str:
        """The word for ``--kernel``."""

    @property
    def kernel(self) -> str:
        """The name of the device function."""

    @property
    def rocwmma(self) -> bool:
        """Whether it is compiled with GGML_HIP_ROCWMMA_FATTN."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of a setting's values."""

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant, in the order of the table."""

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """Every legal setting of a variant, sorted."""

    def baseline(self, variant: str) -> Setting:
        """Upstream's setting."""

    def traits(self, candidate: Candidate) -> Traits:
        """What follows from the candidate alone."""

    def unit(self, candidate: Candidate) -> str:
        """The path of its unit in the overlay."""

    def checks(self, candidate: Candidate) -> tuple[str, ...]:
        """Units of further instantiations that share the row; they must not be worse than upstream's."""

    @property
    def prelude(self) -> str | None:
        """The path of a header in the overlay with what every unit includes, if there is one."""

    def sources(self, settings: Mapping[str, Sequence[Setting]]) -> Mapping[str, bytes]:
        """The files of the overlay: units of these settings and of upstream's, and what they include.

        The bytes of a unit and of what it includes do not depend on which others are asked for.
        """
