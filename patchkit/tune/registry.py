"""The kernels that can be tuned: each is a module of its own with ``TUNABLE``, and a name here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from patchkit.tune.family import Tunable

KernelName = Literal["wmma", "tile", "mma", "mmq"]


def tunable(name: KernelName) -> Tunable:
    """What the module of that kernel offers."""
    found: Tunable = import_module(f"patchkit.tune.{name}").TUNABLE
    return found
