"""flash_attn_ext_f16, the rocWMMA attention kernel: its legal settings and a unit for each.

The kernel comes as the patch leaves it, cut behind its body: what follows in upstream's file launches
it, and would instantiate every variant. The table of parameters beside it is the patch's own template,
rendered once per setting, so the rules that the template asserts hold here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.source import SourceText
from patchkit.cpp.scopes import parse_scopes
from patchkit.kernels.occupancy import HardwareLimits
from patchkit.kernels.wmma import UPSTREAM, VARIANTS, WmmaParams, WmmaVariant, legal_params, vkq_stride
from patchkit.tune.family import UNIT_FOLDER, Candidate, Setting, Traits, binding_bounds

KERNEL_FILE = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"
TABLE_FILE = "ggml/src/ggml-cuda/fattn-wmma-config.cuh"
_KERNEL = "flash_attn_ext_f16"
_TYPES = {"f16": "half", "f32": "float"}
_SOFTCAP = (128, 256)  # head sizes with soft cap, as upstream's kernel says
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"\n/]+)"', re.MULTILINE)

Table = Callable[[Mapping[WmmaVariant, WmmaParams]], bytes]


def name_of(variant: WmmaVariant) -> str:
    """``64-16-f32``: head size, columns, accumulator."""
    return f"{variant.head_size}-{variant.ncols}-{variant.acc}"


def variant_of(name: str) -> WmmaVariant:
    """The inverse of :func:`name_of`; KeyError for a name of none."""
    return {name_of(variant): variant for variant in VARIANTS}[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaFamily:
    """``kernel_file``: upstream's file with the patch; ``table`` renders the patch's table of settings.

    With ``bounds`` a setting has a third value, the least waves per SIMD told to the compiler.
    """

    limits: HardwareLimits
    kernel_file: bytes
    table: Table
    bounds: bool = False
    name: str = "wmma"
    kernel: str = _KERNEL
    rocwmma: bool = True
    prelude: str | None = f"{UNIT_FOLDER}/wmma-prelude.cuh"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the values of a setting."""
        return ("kq_stride", "nwarps", "min_waves") if self.bounds else ("kq_stride", "nwarps")

    @property
    def variants(self) -> tuple[str, ...]:
        """All 23 of HIP."""
        return tuple(name_of(variant) for variant in VARIANTS)

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """By the rules of :mod:`patchkit.kernels.wmma`, with the bounds that can change anything."""
        pairs = [(each.kq_stride, each.nwarps) for each in legal_params(variant_of(variant), self.limits)]
        if not self.bounds:
            return tuple(pairs)
        bounds = binding_bounds(self.limits, UPSTREAM.min_waves)
        return tuple((*pair, bound) for pair in pairs for bound in bounds)

    def baseline(self, variant: str) -> Setting:
        """256 and 4, and no bound, for every variant."""
        del variant
        pair = (UPSTREAM.kq_stride, UPSTREAM.nwarps)
        return (*pair, UPSTREAM.min_waves) if self.bounds else pair

    def traits(self, candidate: Candidate) -> Traits:
        """A turn of the loop covers kq_stride rows."""
        stride, nwarps = candidate.setting[:2]
        return Traits(
            threads=nwarps * self.limits.wave_size, rows=stride, columns=variant_of(candidate.variant).ncols
        )

    def unit(self, candidate: Candidate) -> str:
        """Without soft cap."""
        return f"{_folder(candidate.setting)}/{candidate.variant}.cu"

    def checks(self, candidate: Candidate) -> tuple[str, ...]:
        """The variant with soft cap, which reads the same row."""
        if variant_of(candidate.variant).head_size not in _SOFTCAP:
            return ()
        return (f"{_folder(candidate.setting)}/{candidate.variant}-softcap.cu",)

    def sources(self, settings: Mapping[str, Sequence[Setting]]) -> Mapping[str, bytes]:
        """One folder per setting: the cut kernel, the rendered table, and the units.

        Raises:
            TUNE_KERNEL_NOT_FOUND: the file does not define the kernel exactly once.
        """
        kernel = cut_behind(SourceText(KERNEL_FILE, self.kernel_file), _KERNEL)
        own_table = TABLE_FILE.rpartition("/")[2]
        headers = [name for name in dict.fromkeys(_INCLUDE.findall(kernel)) if name.decode() != own_table]
        by_setting: dict[Setting, list[WmmaVariant]] = {}
        for variant in VARIANTS:
            for setting in self.legal(name_of(variant)):
                by_setting.setdefault(setting, []).append(variant)
        includes = [f'#include "../{name.decode()}"' for name in headers]
        lines = ["#pragma once", *includes, "#include <rocwmma/rocwmma.hpp>", ""]
        files = {f"{UNIT_FOLDER}/wmma-prelude.cuh": "\n".join(lines).encode()}
        for setting, variants in by_setting.items():
            folder = _folder(setting)
            rows = {variant: WmmaParams(*setting) for variant in variants}
            files[f"{folder}/{own_table}"] = self.table(rows)
            files[f"{folder}/kernel.cuh"] = kernel
            for variant in variants:
                candidate = Candidate(name_of(variant), setting)
                wanted = [*settings.get(candidate.variant, ()), self.baseline(candidate.variant)]
                if candidate.variant not in settings or setting not in wanted:
                    continue
                files[self.unit(candidate)] = _unit(variant, setting, headers, softcap=False)
                for check in self.checks(candidate):
                    files[check] = _unit(variant, setting, headers, softcap=True)
        return files


def cut_behind(source: SourceText, function: str) -> bytes:
    """The bytes of a file up to the end of a function.

    Raises:
        TUNE_KERNEL_NOT_FOUND: it does not define the function exactly once.
    """
    found = [entity for entity in parse_scopes(source).entities if entity.answers_to(function)]
    found = [entity for entity in found if entity.kind == "function"]
    if len(found) != 1:
        raise ToolchainError(
            f"{source.path} defines {function} {len(found)} times, expected once",
            code="TUNE_KERNEL_NOT_FOUND",
            where=Location(path=source.path),
            hint="this build is outside of what this kernel can be tuned for; patchkit show lists the builds",
        )
    return source.data[: found[0].span.end] + b"\n"


def _folder(setting: Setting) -> str:
    bound = f"-w{setting[2]}" if setting[2:] not in ((), (UPSTREAM.min_waves,)) else ""
    return f"{UNIT_FOLDER}/wmma-s{setting[0]}-n{setting[1]}{bound}"


def _unit(variant: WmmaVariant, setting: Setting, headers: Sequence[bytes], *, softcap: bool) -> bytes:
    stride = vkq_stride(variant, WmmaParams(setting[0], setting[1]))
    # The headers are named by their path too, so that whoever follows quoted includes finds them.
    lines = [f'#include "../../{header.decode()}"' for header in headers]
    arguments = (
        f"{variant.head_size}, {variant.ncols}, {setting[1]}, {stride}, {_TYPES[variant.acc]}, "
        f"{'true' if softcap else 'false'}"
    )
    lines += [
        '#include "kernel.cuh"',
        "fattn_kernel_t patchkit_tuned_kernel();",
        f"fattn_kernel_t patchkit_tuned_kernel() {{ return {_KERNEL}<{arguments}>; }}",
        "",
    ]
    return "\n".join(lines).encode()
