"""The ``[resources]`` table of patch.toml: what a patch may cost a kernel that was there before.

Without the table nothing may get worse: no variant spills more registers, none loses waves, and no kernel
comes into being. A patch that trades one for the other, or compiles more, says how much, and why.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from patchkit.config.toml import TomlModel

__all__ = ["ResourceRules", "ResourceRulesModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """What a patch may do to a kernel that exists before and after it.

    ``kernels`` are names without template arguments (empty: every kernel); ``more_spills`` is how many
    VGPRs more a variant may spill, ``fewer_waves`` how many waves per SIMD it may lose. ``new_kernels``
    are shell patterns of demangled names (``f<*, false>``) of the kernels that come into being.
    """

    kernels: tuple[str, ...] = ()
    more_spills: int = 0
    fewer_waves: int = 0
    new_kernels: tuple[str, ...] = ()
    why: str = ""


class ResourceRulesModel(TomlModel):
    """What the table must be."""

    kernels: list[str] = Field(default_factory=list)
    more_spills: int = Field(default=0, ge=0, le=512)
    fewer_waves: int = Field(default=0, ge=0, le=16)
    new_kernels: list[str] = Field(default_factory=list)
    why: str = Field(min_length=1)

    def build(self) -> ResourceRules:
        """The table as data."""
        return ResourceRules(
            kernels=tuple(self.kernels),
            more_spills=self.more_spills,
            fewer_waves=self.fewer_waves,
            new_kernels=tuple(self.new_kernels),
            why=self.why.strip(),
        )
