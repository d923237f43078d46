"""The ``[resources]`` table of patch.toml: what a patch may cost a kernel that was there before.

Without the table nothing may get worse: no variant spills more registers, none loses waves, and no kernel
comes into being. A patch that trades one for the other, or compiles more, says how much, and why; kernels
that need other numbers have an entry of their own in ``[[resources.allow]]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from patchkit.config.toml import TomlModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much worse a variant of some kernels may become.

    ``kernels`` are names without template arguments (empty: every kernel); ``more_spills`` is how many
    VGPRs more a variant may spill, ``fewer_waves`` how many waves per SIMD it may lose.
    """

    kernels: tuple[str, ...] = ()
    more_spills: int = 0
    fewer_waves: int = 0
    why: str = ""

    def covers(self, kernel: str) -> bool:
        """Whether it speaks of this kernel, a name without template arguments."""
        return kernel in self.kernels or (not self.kernels and bool(self.more_spills or self.fewer_waves))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules(Allowance):
    """What a patch may do to the kernels of the units that it touches.

    The table's own numbers are one allowance; ``allow`` holds further ones, for other kernels.
    ``new_kernels`` are shell patterns of demangled names (``f<*, false>``) of the kernels that come into
    being.
    """

    new_kernels: tuple[str, ...] = ()
    allow: tuple[Allowance, ...] = ()

    def allowance(self, kernel: str) -> Allowance | None:
        """The first allowance that speaks of this kernel, a name without template arguments."""
        return next((each for each in (self, *self.allow) if each.covers(kernel)), None)


class AllowanceModel(TomlModel):
    """One ``[[resources.allow]]`` table as it stands in patch.toml."""

    kernels: list[str] = Field(min_length=1)
    more_spills: int = Field(default=0, ge=0, le=512)
    fewer_waves: int = Field(default=0, ge=0, le=16)
    why: str = Field(min_length=1)

    def build(self) -> Allowance:
        """The allowance it declares."""
        return Allowance(
            kernels=tuple(self.kernels),
            more_spills=self.more_spills,
            fewer_waves=self.fewer_waves,
            why=self.why.strip(),
        )


class ResourceRulesModel(TomlModel):
    """What the table must be."""

    kernels: list[str] = Field(default_factory=list)
    more_spills: int = Field(default=0, ge=0, le=512)
    fewer_waves: int = Field(default=0, ge=0, le=16)
    new_kernels: list[str] = Field(default_factory=list)
    why: str = Field(min_length=1)
    allow: list[AllowanceModel] = Field(default_factory=list)

    def build(self) -> ResourceRules:
        """The table as data."""
        return ResourceRules(
            kernels=tuple(self.kernels),
            more_spills=self.more_spills,
            fewer_waves=self.fewer_waves,
            new_kernels=tuple(self.new_kernels),
            why=self.why.strip(),
            allow=tuple(each.build() for each in self.allow),
        )
