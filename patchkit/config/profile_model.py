"""What a profile file and a family file may say, as pydantic models; :mod:`profile` turns them into data."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from patchkit.config.facts import FactsModel
from patchkit.config.toml import TomlModel

PatchDefault = Literal["on", "opt-in", "off"]
WmmaAccumulator = Literal["f16", "f32"]
WmmaColumns = Literal[16, 32]
_HeadSize = Literal[64, 80, 96, 112, 128, 256]  # switch of ggml_cuda_flash_attn_ext_wmma_f16, build 6900

_ARCH = r"^gfx[0-9a-f]{3,4}$"
_NAME = r"^[a-z0-9_]+$"


class PatchChoiceModel(TomlModel):
    """Whether a patch is part of the series of this GPU when nobody asks."""

    default: PatchDefault
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)


class WmmaRowModel(TomlModel):
    """Parameters of flash_attn_ext_f16 that were measured for one variant; they win over the model."""

    head_size: _HeadSize
    ncols: WmmaColumns
    acc: WmmaAccumulator = Field(description="Accumulator of KQ: half or float")
    kq_stride: int = Field(gt=0, description="KV rows per step of the loop")
    nwarps: int = Field(gt=0, description="Waves per block")
    min_waves: int = Field(gt=0, description="Second value of __launch_bounds__: waves per SIMD; 1: no cap")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3, description="Hardware, or the compiler that gave the figures")


_QuantType = Annotated[str, Field(pattern=r"^[A-Z0-9_]+$", description="ggml_type without GGML_TYPE_")]
_FRAGMENT_ROWS = 16  # rows of one matrix fragment, and of one wave's tile (mmq.cuh of build 11549)


class TileRowModel(TomlModel):
    """A row for the table of flash_attn_tile (fattn-tile.cuh); the names are upstream's."""

    head_size_k: int = Field(gt=0)
    head_size_v: int = Field(gt=0)
    ncols: int = Field(gt=0, description="Query columns per block")
    nthreads: int = Field(gt=0, le=512, multiple_of=32)
    occupancy: int = Field(gt=0, le=8, description="Second value of __launch_bounds__: waves per SIMD")
    nbatch_fa: int = Field(gt=0, le=256, multiple_of=32, description="KV rows per step")
    nbatch_k: int = Field(gt=0, le=256, description="Elements of a K row in LDS at once")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class MmqRowModel(TomlModel):
    """The block of mul_mat_q for every quantization, where J, its columns, is at least ``min_j``."""

    min_j: int = Field(gt=0, multiple_of=8)
    nthreads: int = Field(gt=0, le=512, multiple_of=32)
    occupancy: int = Field(gt=0, le=8, description="Second value of __launch_bounds__: waves per SIMD")
    i: int = Field(gt=0, multiple_of=32, description="Rows of the weight matrix per block")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)

    @model_validator(mode="after")
    def _every_wave_writes_its_rows(self) -> Self:
        rows = self.nthreads // 32 * _FRAGMENT_ROWS
        if self.i != rows:
            raise ValueError(
                f"i must be nthreads/32*{_FRAGMENT_ROWS} = {rows}: each wave writes back {_FRAGMENT_ROWS}"
                " rows, and another value corrupts the result without an error"
            )
        return self


class MmvqBatchModel(TomlModel):
    """Up to how many columns a matrix of one quantization takes the vector kernel (MMVQ)."""

    type: _QuantType
    max_batch: int = Field(gt=0, le=8, description="MMVQ_MAX_BATCH_SIZE is 8")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class MmvqWarpsModel(TomlModel):
    """Waves per block of the vector kernel for one column (decode)."""

    type: _QuantType
    nwarps: int = Field(gt=0, le=8)
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class TuningModel(TomlModel):
    """Explicit parameter tables."""

    wmma: tuple[WmmaRowModel, ...] = Field(default=(), strict=False)
    tile: tuple[TileRowModel, ...] = Field(default=(), strict=False)
    mmq: tuple[MmqRowModel, ...] = Field(default=(), strict=False)
    mmvq_batch: tuple[MmvqBatchModel, ...] = Field(default=(), strict=False)
    mmvq_warps: tuple[MmvqWarpsModel, ...] = Field(default=(), strict=False)


class BuildModel(TomlModel):
    """CMake options of a llama.cpp build for this GPU."""

    cmake: dict[str, str] = Field(description="Always")
    cmake_with_series: dict[str, str] = Field(
        default_factory=dict,
        description="Each option that is also a macro in the guard of an applied patch, in addition",
    )
    why: str = Field(min_length=10)


class FamilyModel(TomlModel):
    """arch_profiles/families/NAME.toml: what several GPUs share."""

    family: str = Field(pattern=_NAME)
    inherits: str | None = Field(default=None, pattern=_NAME)
    note: str | None = None
    facts: FactsModel


class ProfileModel(TomlModel):
    """arch_profiles/gfxNNNN.toml: one GPU."""

    arch: str = Field(pattern=_ARCH)
    inherits: str = Field(pattern=_NAME, description="A file of families/, without .toml")
    note: str = Field(min_length=10, description="What a person must know before trusting the series here")
    facts: FactsModel
    build: BuildModel
    patches: dict[str, PatchChoiceModel] = Field(default_factory=dict)
    tuning: TuningModel = Field(default_factory=TuningModel)
