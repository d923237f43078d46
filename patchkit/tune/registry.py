"""The list of tunable kernels, for the command line, the tuner and the documentation.

The code of a kernel is referenced as ``module:name`` and imported on demand, so that listing names imports
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import date

    from patchkit.carry.series.profile import ArchProfile
    from patchkit.tune.family import Family, Row, Site
    from patchkit.tune.report import TuneReport

KernelName = Literal["tile", "mmq", "mmvq"]
DEFAULT: KernelName = "mmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One tunable kernel.

    ``name`` is used for ``--kernel``, in reports and for the profile's table. ``about`` describes it in one
    line; ``note`` is an additional sentence for the help. ``family`` references the function that creates its
    family for a site, and ``timed_rows`` the one that creates rows of the profile's table by modelled time.
    Without them, the kernel has no settings to compile, and its batch limits are modelled (batch.py).
    """

    name: KernelName
    about: str
    note: str = ""
    family: str = ""
    timed_rows: str = ""


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="tile",
        about="flash_attn_tile: attention without matrix units",
        family="patchkit.tune.tile:make_family",
        timed_rows="patchkit.tune.report:timed_tile_rows",
    ),
    Kernel(
        name="mmq",
        about="mul_mat_q: quantized matmul",
        family="patchkit.tune.mmq:make_family",
        timed_rows="patchkit.tune.report:timed_rows",
    ),
    Kernel(
        name="mmvq",
        about="mul_mat_vec_q: up to how many columns it is used instead of mul_mat_q",
        note="For mmvq the batch limits are tuned: up to how many columns it is used instead of mmq, by "
        "modelled time.",
    ),
)
"""All tunable kernels, in the order of the help."""


def kernel_names() -> tuple[KernelName, ...]:
    """The names of all tunable kernels."""
    return tuple(kernel.name for kernel in KERNELS)


def find_kernel(name: str) -> Kernel:
    """The kernel called ``name``, one of :func:`kernel_names`."""
    return next(kernel for kernel in KERNELS if kernel.name == name)


def kernels_help() -> str:
    """The notes on single kernels for the help of ``--kernel``."""
    return " ".join(kernel.note for kernel in KERNELS if kernel.note)


def make_family(name: str, site: Site) -> Family:
    """The family of a kernel that has settings to compile."""
    make: Callable[[Site], Family] = resolve_name(find_kernel(name).family)
    return make(site)


def rows_by_time(name: str, report: TuneReport, profile: ArchProfile, today: date) -> list[Row]:
    """The rows of the profile's table by modelled time."""
    make: Callable[[TuneReport, ArchProfile, date], list[Row]] = resolve_name(find_kernel(name).timed_rows)
    return make(report, profile, today)
