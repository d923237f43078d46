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
    from patchkit.tune.family import Row, Tunable
    from patchkit.tune.report import TuneReport

KernelName = Literal["wmma", "tile", "mma", "mmq", "mmvq"]
DEFAULT: KernelName = "mmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One tunable kernel.

    ``name`` is used for ``--kernel``, in reports and for the profile's table. ``about`` describes it in one
    line; ``note`` is an additional sentence for the help. ``tunable`` references the module's ``TUNABLE``; if
    empty, the kernel has no settings to compile, and its batch limits are modelled (batch.py). ``timed_rows``
    references the function that creates rows of the profile's table by modelled time, if any.
    ``keeps_record``: the figures for its table are shipped with the profile (record.py).
    """

    name: KernelName
    about: str
    note: str = ""
    tunable: str = ""
    timed_rows: str = ""
    keeps_record: bool = False


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="wmma",
        about="flash_attn_ext_f16 with rocWMMA: attention on matrix units, in earlier builds",
        note="wmma is only in earlier builds: --upstream b6900.",
        tunable="patchkit.tune.wmma:TUNABLE",
        keeps_record=True,
    ),
    Kernel(
        name="tile",
        about="flash_attn_tile: attention without matrix units",
        tunable="patchkit.tune.tile:TUNABLE",
        timed_rows="patchkit.tune.report:timed_tile_rows",
    ),
    Kernel(
        name="mma",
        about="flash_attn_ext_f16: attention on matrix units, in later builds",
        tunable="patchkit.tune.mma:TUNABLE",
    ),
    Kernel(
        name="mmq",
        about="mul_mat_q: quantized matmul",
        tunable="patchkit.tune.mmq:TUNABLE",
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


def tunable(name: str) -> Tunable:
    """The ``TUNABLE`` of a kernel that has settings to compile."""
    found: Tunable = resolve_name(find_kernel(name).tunable)
    return found


def rows_by_time(name: str) -> Callable[[TuneReport, ArchProfile, date], list[Row]] | None:
    """The function that creates rows of the profile's table by modelled time, or None."""
    reference = find_kernel(name).timed_rows
    return resolve_name(reference) if reference else None
