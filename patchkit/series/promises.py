"""What a patch promises, for the gates to hold it to: resources, kernels, launches and speed.

Without ``[resources]`` nothing may get worse: no variant spills more registers, none loses waves, and no
kernel comes into being. A patch that trades one for the other, or compiles more, says how much, and why;
kernels that need other numbers have an entry of their own in ``[[resources.allow]]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from patchkit.series.toml import TomlModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGain:
    """Tests whose name fits the shell pattern ``test`` must be faster by ``gain``, a fraction, on ``archs``.

    ``head_sizes`` are those of the models it was measured with: it is asked of no other model.
    """

    test: str
    gain: float
    archs: tuple[str, ...]
    head_sizes: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRules:
    """``allowed_loss`` is the fraction that any test may lose.

    ``control`` are patterns of tests that the patch does not touch: when one of them gains, the machine
    changed, and no gain is believed.
    """

    allowed_loss: float = 0.0
    control: tuple[str, ...] = ()
    expected: tuple[ExpectedGain, ...] = ()
    why: str = ""


class _ExpectedGain(TomlModel):
    test: str = Field(min_length=1)
    gain: float = Field(gt=0, lt=10)
    archs: list[str] = Field(min_length=1)
    head_sizes: list[int] = Field(default_factory=list)
    source: str = Field(min_length=1)


class BenchRulesModel(TomlModel):
    """What the table must be."""

    allowed_loss: float = Field(default=0.0, ge=0, lt=0.5)
    control: list[str] = Field(default_factory=list)
    expected: list[_ExpectedGain] = Field(default_factory=list)
    why: str = Field(min_length=1)

    def build(self) -> BenchRules:
        """The table as data."""
        return BenchRules(
            allowed_loss=self.allowed_loss,
            control=tuple(self.control),
            expected=tuple(
                ExpectedGain(
                    test=row.test,
                    gain=row.gain,
                    archs=tuple(row.archs),
                    head_sizes=tuple(row.head_sizes),
                    source=row.source,
                )
                for row in self.expected
            ),
            why=self.why.strip(),
        )


_Family = Literal["wmma", "mma", "tile", "vec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMove:
    """Cases with one of ``head_sizes`` (empty: every one) go from ``origin`` to one of ``to``.

    ``may_stay``: some do; which ones is upstream's choice.
    """

    origin: str
    to: tuple[str, ...]
    head_sizes: tuple[int, ...]
    why: str
    may_stay: bool = False

    def covers(self, head_size: int) -> bool:
        """Whether the move is about cases of that head size."""
        return not self.head_sizes or head_size in self.head_sizes

    def allows(self, head_size: int, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a case may launch the families ``after`` where it launched ``before``."""
        return self.covers(head_size) and self.origin in before and set(after) <= {*self.to}


class KernelMoveModel(TomlModel):
    """What a table must be."""

    origin: _Family = Field(alias="from")
    to: list[_Family] = Field(min_length=1)
    head_sizes: list[int] = Field(default_factory=list)
    may_stay: bool = False
    why: str = Field(min_length=1)

    def build(self) -> KernelMove:
        """The table as data."""
        return KernelMove(
            origin=self.origin,
            to=tuple(self.to),
            head_sizes=tuple(self.head_sizes),
            may_stay=self.may_stay,
            why=self.why.strip(),
        )


class CasePromise(TomlModel):
    """One ``[[launches.cases]]`` table: these attention cases launch ``only`` that kernel, or ``never`` it.

    Empty lists and the defaults leave nothing out. With ``never`` a case may change to any other kernel.
    """

    code: str = Field(pattern=r"^LAUNCH(_[A-Z]+)+$", description="the error when it is broken")
    broken: str = Field(min_length=1, description="what that error says")
    only: _Family | None = None
    never: _Family | None = None
    min_tokens: int = Field(default=1, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    head_sizes: tuple[int, ...] = Field(default=(), strict=False)
    kv_types: tuple[str, ...] = Field(default=(), strict=False)
    kv_multiple_of: int = Field(default=1, ge=1)
    grouped: bool = Field(default=False, description="only where upstream can share K and V between heads")

    @model_validator(mode="after")
    def _one_promise(self) -> Self:
        if (self.only is None) == (self.never is None):
            raise ValueError("give 'only' or 'never', one of them")
        return self


class LaunchPromises(TomlModel):
    """The ``[launches]`` table: what a patch promises about the launches of the GPUs it is on.

    ``tables`` are tables of the GPU's profile that the kernels of that name and their launches both follow.
    """

    tables: tuple[Literal["wmma"], ...] = Field(default=(), strict=False)
    cases: tuple[CasePromise, ...] = Field(default=(), strict=False)


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
