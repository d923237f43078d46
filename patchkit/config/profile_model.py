"""What a profile file and a family file may say, as pydantic models; :mod:`profile` turns them into data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from patchkit.config.facts import FactsModel
from patchkit.config.toml import TomlModel

__all__ = ["FamilyModel", "PatchDefault", "ProfileModel", "WmmaAccumulator", "WmmaColumns"]

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


class TuningModel(TomlModel):
    """Explicit parameter tables."""

    wmma: tuple[WmmaRowModel, ...] = Field(default=(), strict=False)


class BuildModel(TomlModel):
    """CMake options of a llama.cpp build for this GPU."""

    cmake: dict[str, str] = Field(description="Always")
    cmake_with_series: dict[str, str] = Field(
        default_factory=dict, description="In addition, when patches of the series are applied"
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
