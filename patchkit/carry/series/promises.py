"""What a patch promises in patch.toml: its gain, its kernels' resources, and which kernels it launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from patchkit.base.errors import Location
from patchkit.base.toml import NOWHERE, NotInFile, Prose, Several, TomlTable, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGain(TomlTable):
    """Tests matching the shell pattern ``test`` must be faster by ``gain``, a fraction, on ``archs``.

    ``head_sizes`` are those of the models it was measured with; models with others are not checked.
    """

    test: Words
    gain: Annotated[float, Field(gt=0, lt=10)]
    archs: Annotated[Several[str], Field(min_length=1)]
    head_sizes: Several[int] = ()
    source: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRules(TomlTable):
    """``[bench]``. ``allowed_loss`` is the largest fraction of its speed that any test may lose.

    ``control`` are patterns of tests that the patch does not affect. If one of them gains, the machine
    changed during the measurement, and no gain is accepted.
    """

    allowed_loss: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    control: Several[str] = ()
    expected: Several[ExpectedGain] = ()
    why: Prose


NO_GAIN = BenchRules(why="")
"""The value for a patch without ``[bench]``."""

_Family = Literal["wmma", "mma", "tile", "vec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMove(TomlTable):
    """``[[moves]]``: attention cases with these head sizes (empty: all) move from ``origin`` to ``to``.

    ``may_stay``: some cases keep their kernel; which ones is decided by upstream.
    """

    origin: Annotated[_Family, Field(alias="from")]
    to: Annotated[Several[_Family], Field(min_length=1)]
    head_sizes: Several[int] = ()
    may_stay: bool = False
    why: Prose

    def covers(self, head_size: int) -> bool:
        """Whether the move includes cases of that head size."""
        return not self.head_sizes or head_size in self.head_sizes

    def allows(self, head_size: int, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a case that launched the families ``before`` may now launch ``after``."""
        return self.covers(head_size) and self.origin in before and set(after) <= {*self.to}


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthChange(TomlTable):
    """``[[width]]``: results of ``operations`` in batches of these sizes may differ from those of one token.

    Without it, they must be bit-identical where upstream's are. ``operations`` are ggml's names. With it,
    they may differ as much as upstream's do between its kernels for few tokens and for prompts.
    """

    operations: Annotated[Several[Words], Field(min_length=1)]
    min_tokens: Annotated[int, Field(ge=2)]
    max_tokens: Annotated[int, Field(ge=2)]
    why: Prose

    def covers(self, operations: Sequence[str], tokens: int) -> bool:
        """Whether it is about a batch of ``tokens`` of one of these operations; empty: of a whole model."""
        is_named = not operations or bool(set(operations) & set(self.operations))
        return is_named and self.min_tokens <= tokens <= self.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePromise(TomlTable):
    """``[[launches.cases]]``: the matching attention cases launch ``only`` that kernel, or ``never`` it.

    Empty lists and the defaults match every case. With ``never``, a case may use any other kernel.
    """

    code: Annotated[
        str, Field(pattern=r"^LAUNCH(_[A-Z]+)+$", description="error code if the promise is broken")
    ]
    broken: Annotated[str, Field(min_length=1, description="message of that error")]
    only: _Family | None = None
    never: _Family | None = None
    min_tokens: Annotated[int, Field(ge=1)] = 1
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    head_sizes: Several[int] = ()
    kv_types: Annotated[
        Several[str], Field(description="types of K; V may differ, but is not quantized if K is not")
    ] = ()
    kv_multiple_of: Annotated[int, Field(ge=1)] = 1
    grouped: Annotated[bool, Field(description="only cases where K and V are shared between heads")] = False

    def __post_init__(self) -> None:
        if (self.only is None) == (self.never is None):
            raise ValueError("give either 'only' or 'never'")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPromises(TomlTable):
    """``[launches]``: what a patch promises about kernel launches on the GPUs that get it.

    ``tables`` are tables of the GPU's profile that the kernels of that name and their launches must match.
    Kernel names are without template arguments. ``to_host`` are kernels that a model may launch less often,
    because the scheduler moves their work to the CPU. ``replaces`` are kernels that it may launch less often
    because kernels of the patch, ``own``, do their work.
    """

    tables: Several[Literal["wmma"]] = ()
    cases: Several[CasePromise] = ()
    to_host: Several[Words] = ()
    replaces: Several[Words] = ()
    own: Several[Words] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(TomlTable):
    """``[[resources.allow]]``: how much worse a variant of some kernels may become.

    ``kernels`` are names without template arguments (empty: every kernel). ``more_spills`` is the number of
    additional VGPRs that a variant may spill, ``fewer_waves`` the waves per SIMD that it may lose.
    """

    kernels: Annotated[Several[str], Field(min_length=1)]
    more_spills: Annotated[int, Field(ge=0, le=512)] = 0
    fewer_waves: Annotated[int, Field(ge=0, le=16)] = 0
    why: Prose

    def covers(self, kernel: str) -> bool:
        """Whether it applies to this kernel, a name without template arguments."""
        return kernel in self.kernels or (not self.kernels and bool(self.more_spills or self.fewer_waves))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules(Allowance):
    """``[resources]``: how a patch may change the kernels of the units that it touches.

    Without the table nothing may get worse: no variant may spill more registers or lose waves, and no kernel
    may be added. The table's own numbers are one allowance; ``allow`` has further ones, for other kernels.
    ``new_kernels`` are shell patterns of demangled names (``f<*, false>``) of the kernels that it adds.
    """

    kernels: Several[str] = ()
    new_kernels: Several[str] = ()
    allow: Several[Allowance] = ()

    def allowance(self, kernel: str) -> Allowance | None:
        """The first allowance that applies to this kernel, a name without template arguments."""
        return next((each for each in (self, *self.allow) if each.covers(kernel)), None)


NOTHING_WORSE = ResourceRules(why="")
"""The value for a patch without ``[resources]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRules(TomlTable):
    """``[results]``: a claim that the patch's results are bit-identical to upstream's.

    ``differ`` are kernels without that claim, as shell patterns of names without template arguments: results
    of graphs that launch one of them may differ within a bound. Without the table a patch claims nothing.
    """

    differ: Several[str] = ()
    why: Prose


_Size = Annotated[int, Field(ge=1, le=2**20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedShape(TomlTable):
    """``[[speed.shapes]]``: one operation on ``tokens`` tokens that the timing model compares on both sides.

    A matmul has ``type``, ``rows`` (outputs) and ``columns`` (inputs); in a MoE model also ``experts``, of
    which ``used`` are active per token. Attention has ``head_size``, ``heads``, ``kv_heads``, ``kv`` rows
    and, unless it is f16, their ``kv_type``.
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
            raise ValueError("a shape needs type, rows and columns; or head_size, heads, kv_heads and kv")
        if self.used > self.experts:
            raise ValueError("'used' must not exceed 'experts'")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRules(TomlTable):
    """``[speed]``: the operations for which the gate ``speed`` estimates a patch's effect."""

    shapes: Annotated[Several[SpeedShape], Field(min_length=1)]
    why: Prose
