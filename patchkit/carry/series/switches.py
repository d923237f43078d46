"""Run-time switches: the patches of a candidate that one environment variable turns off.

A patch has a switch if only host code chooses between it and upstream's code: then the same program computes
both ways. A patch of the series adds the header with the switches (``[switches]`` in patch.toml); the
conditions of the others ask them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.carry.series.patch import Patch


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The switch of one patch. ``requires``: the patches with a switch that must be on for it, in order."""

    patch: str
    requires: tuple[str, ...] = ()

    @property
    def member(self) -> str:
        """The name of its member in the header: ``rope-block-size`` is ``rope_block_size``."""
        return member_of(self.patch)

    @property
    def needed(self) -> tuple[str, ...]:
        """The members of those that it requires."""
        return tuple(map(member_of, self.requires))

    @property
    def name(self) -> str:
        """C++ expression of the switch."""
        return f"ggml_cuda_patches().{self.member}"

    @property
    def ran(self) -> str:
        """C++ statement that counts a use of the patch's code."""
        return f"{self.name}.runs++;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """All switches of a candidate, in the order of its patches; ``header`` is the path of the file.

    ``fixed``: guarded patches without a switch.
    """

    header: str
    all: tuple[Switch, ...]
    fixed: tuple[str, ...]

    def of(self, patch: str) -> Switch | None:
        """The switch of a patch; None if it has none."""
        return next((each for each in self.all if each.patch == patch), None)


def has_switch(patch: Patch) -> bool:
    """Whether only host code chooses between the patch and upstream's code.

    Device code is compiled one way or the other, so an edit there cannot be turned off at run time, unless
    the patch says that its kernels differ only in launches that the host chooses.
    """
    if isinstance(patch.guard, str) or patch.switches is not None or patch.aliases:
        return False
    sides = [edit.side for edit in patch.edits if edit.verb != "add_include"]
    return "host" in sides and ("device" not in sides or patch.guard.host_chooses)


def switches_of(patches: Sequence[Patch]) -> Switches | None:
    """The switches of applied patches; None if none of them adds the header, or none has a switch."""
    header = next((each.switches.header for each in patches if each.switches is not None), None)
    switched = [each for each in patches if has_switch(each)]
    if header is None or not switched:
        return None
    needs: dict[str, set[str]] = {}
    for each in switched:  # a patch comes after those that it requires
        direct = {one.patch for one in each.requires} & needs.keys()
        needs[each.id] = direct.union(*(needs[name] for name in direct))
    return Switches(
        header=header,
        all=tuple(
            Switch(patch=name, requires=tuple(one for one in needs if one in required))
            for name, required in needs.items()
        ),
        fixed=tuple(
            each.id
            for each in patches
            if not each.is_plain and each.switches is None and each.id not in needs
        ),
    )


def turn_off(patches: Sequence[str]) -> dict[str, str]:
    """The environment of a program in which these patches are off."""
    return {"GGML_PATCHES_OFF": ",".join(patches)}


def member_of(patch: str) -> str:
    """A C++ name for a patch: its id is not a keyword and begins with a letter."""
    name = patch.replace("-", "_")
    name = name if "_" in name else f"{name}_patch"
    return name if name[0].isalpha() else f"patch_{name}"
