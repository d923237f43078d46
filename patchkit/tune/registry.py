"""The one list of kernels that can be tuned: the command line, the tuner and the documents read it.

What the tuner asks of a kernel is named as ``module:name`` and imported when it is needed, so that whoever
asks for names alone imports nothing else.
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
    """One kernel.

    ``name`` is the word of ``--kernel``, of reports and of the profile's table. ``about`` is what is tuned,
    in one line; ``note`` a sentence for the help, where it needs one. ``tunable`` names what its module gives
    the tuner; empty: it has no settings to compile, and its limits by batch are modelled (batch.py).
    ``timed_rows`` names the function that makes the rows of the profile's table by modelled time; empty:
    there is none. ``keeps_record``: the figures that its table rests on lie beside the profile (record.py).
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
        about="flash_attn_ext_f16 by rocWMMA: attention on matrix units, in earlier builds",
        note="wmma belongs to earlier builds: --upstream b6900.",
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
        about="mul_mat_q: products of quantised matrices",
        tunable="patchkit.tune.mmq:TUNABLE",
        timed_rows="patchkit.tune.report:timed_rows",
    ),
    Kernel(
        name="mmvq",
        about="mul_mat_vec_q: up to how many columns it is taken in place of mul_mat_q",
        note="Of mmvq the batch limits: up to how many columns it is taken in place of mmq, by modelled "
        "time.",
    ),
)
"""Every kernel, in the order of the help."""


def kernel_names() -> tuple[KernelName, ...]:
    """Their names."""
    return tuple(kernel.name for kernel in KERNELS)


def find_kernel(name: str) -> Kernel:
    """The kernel of that name, which is one of :func:`kernel_names`."""
    return next(kernel for kernel in KERNELS if kernel.name == name)


def kernels_help() -> str:
    """What the help of ``--kernel`` says of single ones."""
    return " ".join(kernel.note for kernel in KERNELS if kernel.note)


def tunable(name: str) -> Tunable:
    """What the module of that kernel offers, of one with settings to compile."""
    found: Tunable = resolve_name(find_kernel(name).tunable)
    return found


def rows_by_time(name: str) -> Callable[[TuneReport, ArchProfile, date], list[Row]] | None:
    """What makes the rows of the profile's table by modelled time; None where there are none."""
    reference = find_kernel(name).timed_rows
    return resolve_name(reference) if reference else None
