"""What a patch promises in patch.toml: the cost to kernels, the gain, and which kernels take over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from patchkit.base.errors import Location
from patchkit.base.toml import NOWHERE, NotInFile, Prose, Several, TomlTable, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGain(TomlTable):
    """Tests whose name fits the shell pattern ``test`` must be faster by ``gain``, a fraction, on ``archs``.

    ``head_sizes`` are those of the models it was measured with: it is asked of no other model.
    """

    test: Words
    gain: Annotated[float, Field(gt=0, lt=10)]
    archs: Annotated[Several[str], Field(min_length=1)]
    head_sizes: Several[int] = ()
    source: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRules(TomlTable):
    """``[bench]``. ``allowed_loss`` is the fraction that any test may lose.

    ``control`` are patterns of tests that the patch does not touch: when one of them gains, the machine
    changed, and no gain is believed.
    """

    allowed_loss: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    control: Several[str] = ()
    expected: Several[ExpectedGain] = ()
    why: Prose


NO_GAIN = BenchRules(why="")
"""What a patch without ``[bench]`` promises."""

_Family = Literal["wmma", "mma", "tile", "vec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMove(TomlTable):
    """``[[moves]]``: cases with one of ``head_sizes`` (empty: every one) go from ``origin`` to one of ``to``.

    ``may_stay``: some do; which ones is upstream's choice.
    """

    origin: Annotated[_Family, Field(alias="from")]
    to: Annotated[Several[_Family], Field(min_length=1)]
    head_sizes: Several[int] = ()
    may_stay: bool = False
    why: Prose

    def covers(self, head_size: int) -> bool:
        """Whether the move is about cases of that head size."""
        return not self.head_sizes or head_size in self.head_sizes

    def allows(self, head_size: int, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a case may launch the families ``after`` where it launched ``before``."""
        return self.covers(head_size) and self.origin in before and set(after) <= {*self.to}


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePromise(TomlTable):
    """One ``[[launches.cases]]`` table: these attention cases launch ``only`` that kernel, or ``never`` it.

    Empty lists and the defaults leave nothing out. With ``never`` a case may change to any other kernel.
    """

    code: Annotated[str, Field(pattern=r"^LAUNCH(_[A-Z]+)+$", description="the error when it is broken")]
    broken: Annotated[str, Field(min_length=1, description="what that error says")]
    only: _Family | None = None
    never: _Family | None = None
    min_tokens: Annotated[int, Field(ge=1)] = 1
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    head_sizes: Several[int] = ()
    kv_types: Annotated[
        Several[str], Field(description="types of K; V may be another, not quantized where K is not")
    ] = ()
    kv_multiple_of: Annotated[int, Field(ge=1)] = 1
    grouped: Annotated[bool, Field(description="only where upstream can share K and V between heads")] = False

    def __post_init__(self) -> None:
        if (self.only is None) == (self.never is None):
            raise ValueError("give 'only' or 'never', one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPromises(TomlTable):
    """The ``[launches]`` table: what a patch promises about the launches of the GPUs it is on.

    ``tables`` are tables of the GPU's profile that the kernels of that name and their launches both follow.
    Kernels go by name without template arguments. ``to_host`` are those that a model may launch less often:
    the scheduler gives their work to the CPU. ``replaces`` are the same where kernels of the patch, ``own``,
    do it.
    """

    tables: Several[Literal["wmma"]] = ()
    cases: Several[CasePromise] = ()
    to_host: Several[Words] = ()
    replaces: Several[Words] = ()
    own: Several[Words] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(TomlTable):
    """``[[resources.allow]]``: how much worse a variant of some kernels may become.

    ``kernels`` are names without template arguments (empty: every kernel); ``more_spills`` is how many
    VGPRs more a variant may spill, ``fewer_waves`` how many waves per SIMD it may lose.
    """

    kernels: Annotated[Several[str], Field(min_length=1)]
    more_spills: Annotated[int, Field(ge=0, le=512)] = 0
    fewer_waves: Annotated[int, Field(ge=0, le=16)] = 0
    why: Prose

    def covers(self, kernel: str) -> bool:
        """Whether it speaks of this kernel, a name without template arguments."""
        return kernel in self.kernels or (not self.kernels and bool(self.more_spills or self.fewer_waves))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules(Allowance):
    """``[resources]``: what a patch may do to the kernels of the units that it touches.

    Without the table nothing may get worse: no variant spills more registers, none loses waves, and no
    kernel comes into being. The table's own numbers are one allowance; ``allow`` holds further ones, for
    other kernels. ``new_kernels`` are shell patterns of demangled names (``f<*, false>``) of the kernels
    that come into being.
    """

    kernels: Several[str] = ()
    new_kernels: Several[str] = ()
    allow: Several[Allowance] = ()

    def allowance(self, kernel: str) -> Allowance | None:
        """The first allowance that speaks of this kernel, a name without template arguments."""
        return next((each for each in (self, *self.allow) if each.covers(kernel)), None)


NOTHING_WORSE = ResourceRules(why="")
"""What a patch without ``[resources]`` may do."""

_Size = Annotated[int, Field(ge=1, le=2**20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedShape(TomlTable):
    """``[[speed.shapes]]``: one operation of ``tokens`` that the timing model compares on both sides.

    A product of matrices has ``type``, ``rows`` (outputs) and ``columns`` (inputs), of experts with
    ``experts`` and ``used`` of them. Attention has ``head_size``, ``heads``, ``kv_heads``, ``kv`` rows and,
    unless it is f16, the ``kv_type`` of these.
    """

    tokens: Annotated[int, Field(ge=1, le=4096)]
    type: Words | None = None
    rows: _Size | None = None
    columns: _Size | None = None
    experts: Annotated[int, Field(ge=1, le=1024)] = 1
    used: Annotated[int, Field(ge=1, le=1024)] = 1
    head_size: _Size | None = None
    heads: _Size | None = None
    kv_heads: _Size | None = None
    kv: Annotated[int | None, Field(ge=1, le=2**18)] = None
    kv_type: Words = "f16"
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        matrix = [self.type, self.rows, self.columns]
        attention = [self.head_size, self.heads, self.kv_heads, self.kv]
        is_matrix = None not in matrix and not any(attention)
        if not is_matrix and (None in attention or any(matrix)):
            raise ValueError("a shape has type, rows and columns, or head_size, heads, kv_heads and kv")
        if self.used > self.experts:
            raise ValueError("used is at most experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRules(TomlTable):
    """``[speed]``: the operations by which the gate ``speed`` judges a patch."""

    shapes: Annotated[Several[SpeedShape], Field(min_length=1)]
    why: Prose
