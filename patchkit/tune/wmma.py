"""flash_attn_ext_f16, the rocWMMA attention kernel: its legal settings and a unit for each.

The kernel is used with the patch applied, and cut after its body: the rest of upstream's file launches it,
and would instantiate all variants. Its table of parameters is the patch's own template, rendered once per
setting, so the assertions of the template apply here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.context import make_context, make_guard
from patchkit.carry.placing.place import place_patch
from patchkit.carry.placing.templates import PatchRenderer
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.placing.wmma import UPSTREAM, VARIANTS, WmmaParams, WmmaVariant, legal_params, vkq_stride
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, HeadSize, TunedWmma, WmmaColumns
from patchkit.carry.series.selection import Selected
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.shape import ModelShape, load_models
from patchkit.tune.family import (
    COMPILER_ONLY,
    MODELLED_ONLY,
    UNIT_FOLDER,
    Candidate,
    Row,
    Setting,
    Site,
    TimedFamily,
    Traits,
    Tunable,
    binding_bounds,
    includes,
    prelude_text,
    row_of,
    unit_text,
)
from patchkit.tune.timed import attention_cases

KERNEL_FILE = llama_cpp().gpu_file("fattn-wmma-f16.cu")
TABLE_FILE = llama_cpp().gpu_file("fattn-wmma-config.cuh")
_TABLE_NAME = TABLE_FILE.rpartition("/")[2]
_PARAMETERS = ("kq_stride", "nwarps", "min_waves")
_TYPES = {"f16": "half", "f32": "float"}
_ACCUMULATOR = 4  # index of the accumulator type in the kernel's template arguments
_SOFTCAP = (128, 256)  # head sizes for which upstream's kernel supports soft cap
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"\n/]+)"', re.MULTILINE)

# A note in rows for the accumulator f16. This holds in all trees that were read, from build 6900 to 9093;
# image encoders request F32, too.
NO_MODEL_RUNS_IT = (
    "no model runs it: f16 is for GGML_PREC_DEFAULT (fattn-wmma-f16.cu, ggml_cuda_flash_attn_ext_wmma_f16), "
    "and models ask for GGML_PREC_F32 (build 6900, src/llama-graph.cpp, llm_graph_context::build_attn_mha)"
)

Table = Callable[[Mapping[WmmaVariant, WmmaParams]], bytes]


def name_of(variant: WmmaVariant) -> str:
    """``64-16-f32``: head size, columns, accumulator."""
    return f"{variant.head_size}-{variant.ncols}-{variant.acc}"


def variant_of(name: str) -> WmmaVariant:
    """The inverse of :func:`name_of`; raises KeyError for other names."""
    return {name_of(variant): variant for variant in VARIANTS}[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaFamily(TimedFamily):
    """The kernel of one build: ``source`` is the patched kernel, ``headers`` are its includes.

    ``table`` renders the table of settings; ``placed`` are upstream's files with the patch applied. With a
    third parameter, settings include the minimum waves per SIMD for the compiler. ``models`` provide cases
    for timing.
    """

    name = "wmma"
    kernel = "flash_attn_ext_f16"
    timed_as = "wmma"
    # A variant has a dozen settings at most. By the compiler's figures, 256/8 dominates 128/8, which was
    # measured at 0.43 to 0.47 of upstream's time (64-32-f32, PR 16827), so the figures must not exclude any.
    times_all = True
    rocwmma = True
    prelude = f"{UNIT_FOLDER}/wmma-prelude.cuh"
    source: bytes
    headers: tuple[str, ...]
    table: Table
    placed: Mapping[str, bytes] = field(default_factory=dict)
    models: Sequence[ModelShape] = ()

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """By the rules of :mod:`patchkit.carry.placing.wmma`, with the bounds that can have an effect."""
        pairs = [(each.kq_stride, each.nwarps) for each in legal_params(variant_of(variant), self.limits)]
        if len(self.parameters) < len(_PARAMETERS):
            return tuple(pairs)
        bounds = binding_bounds(self.limits, UPSTREAM.min_waves)
        return tuple((*pair, bound) for pair in pairs for bound in bounds)

    def traits(self, candidate: Candidate) -> Traits:
        """An iteration of the loop covers kq_stride rows."""
        stride, nwarps = candidate.setting[:2]
        return Traits(
            threads=nwarps * self.limits.wave_size, rows=stride, columns=variant_of(candidate.variant).ncols
        )

    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """The unit without soft cap, and one with soft cap if the kernel supports it."""
        stem = f"{_folder(candidate.setting)}/{candidate.variant}"
        capped = variant_of(candidate.variant).head_size in _SOFTCAP
        return (f"{stem}.cu", f"{stem}-softcap.cu") if capped else (f"{stem}.cu",)

    def cases(self, variant: str) -> tuple[Case, ...]:
        """Attention operations of the models, for the f32 accumulator, with a token per column of a block."""
        found = variant_of(variant)
        if found.acc != "f32":
            return ()  # NO_MODEL_RUNS_IT
        blocks = [(each.head_size, each.ncols) for each in VARIANTS if each.acc == found.acc]
        return attention_cases(self.models, (found.head_size, found.ncols), blocks, most_shared=1)

    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """The patched files and the table."""
        rows = {variant_of(variant): WmmaParams(*setting) for variant, setting in settings.items()}
        return {**self.placed, TABLE_FILE: self.table(rows)}

    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """flash_attn_ext_f16<head size, columns, waves, VKQ stride, accumulator, soft cap>."""
        found = variant_of(variant)
        arguments = name.arguments or ()
        return (
            name.base == self.kernel
            and [name.integer(0), name.integer(1)] == [found.head_size, found.ncols]
            and arguments[_ACCUMULATOR : _ACCUMULATOR + 1] == (_TYPES[found.acc],)
        )

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """All rows of the profile."""
        return {variant: self._setting(row) for variant, row in rows_by_variant(profile).items()}

    def measured(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """The rows whose figures are not from a compiler or the timing model."""
        return {
            variant: self._setting(row)
            for variant, row in rows_by_variant(profile).items()
            if not row.measured_on.startswith((COMPILER_ONLY, MODELLED_ONLY))
        }

    def _setting(self, row: TunedWmma) -> Setting:
        return tuple(getattr(row, name) for name in self.parameters)

    def shared_sources(self) -> Mapping[str, bytes]:
        """One folder per setting, with the kernel and the rendered table."""
        by_setting: dict[Setting, list[WmmaVariant]] = {}
        for variant in VARIANTS:
            for setting in self.legal(name_of(variant)):
                by_setting.setdefault(setting, []).append(variant)
        files = {self.prelude: prelude_text(self.headers, "../", "#include <rocwmma/rocwmma.hpp>")}
        for setting, variants in by_setting.items():
            folder, params = _folder(setting), WmmaParams(*setting)
            files[f"{folder}/{_TABLE_NAME}"] = self.table(dict.fromkeys(variants, params))
            files[f"{folder}/kernel.cuh"] = self.source
        return files

    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """Each instantiation includes the kernel and the table of its setting."""
        variant, (stride, nwarps) = variant_of(candidate.variant), candidate.setting[:2]
        vkq = vkq_stride(variant, WmmaParams(stride, nwarps))
        sizes = f"{variant.head_size}, {variant.ncols}, {nwarps}, {vkq}, {_TYPES[variant.acc]}"
        # The headers are also included by path, so that a scan of quoted includes finds them.
        lines = [*includes(self.headers, "../../"), '#include "kernel.cuh"']
        for path, softcap in zip(self.units(candidate), ("false", "true"), strict=False):
            yield path, unit_text(lines, f"{self.kernel}<{sizes}, {softcap}>")


def cut_after(source: SourceText, function: str) -> bytes:
    """The bytes of a file up to the end of a function.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the file does not define the function exactly once.
    """
    found = [entity for entity in parse_scopes(source).entities if entity.answers_to(function)]
    found = [entity for entity in found if entity.kind == "function"]
    if len(found) != 1:
        raise ToolchainError(
            f"{source.path} defines {function} {len(found)} times, expected once",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=source.path),
            hint="use another build, for example: --upstream b11549",
        )
    return source.data[: found[0].span.end] + b"\n"


def _folder(setting: Setting) -> str:
    bound = f"-w{setting[2]}" if setting[2:] not in ((), (UPSTREAM.min_waves,)) else ""
    return f"{UNIT_FOLDER}/wmma-s{setting[0]}-n{setting[1]}{bound}"


def family_of(
    limits: HardwareLimits,
    placed: Mapping[str, bytes],
    table: Table,
    models: Sequence[ModelShape] = (),
    *,
    bounds: bool = False,
) -> WmmaFamily:
    """The family for a GPU; with ``bounds``, settings have the minimum waves per SIMD as a third value.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the file does not define the kernel exactly once.
    """
    source = cut_after(SourceText(KERNEL_FILE, placed[KERNEL_FILE]), WmmaFamily.kernel)
    headers = dict.fromkeys(name.decode() for name in _INCLUDE.findall(source))
    base = (UPSTREAM.kq_stride, UPSTREAM.nwarps, UPSTREAM.min_waves)
    values = len(_PARAMETERS) if bounds else len(_PARAMETERS) - 1
    return WmmaFamily(
        limits=limits,
        rows={name_of(variant): base[:values] for variant in VARIANTS},
        parameters=_PARAMETERS[:values],
        source=source,
        headers=tuple(name for name in headers if name != _TABLE_NAME),
        table=table,
        placed=placed,
        models=models,
    )


def make_wmma_family(site: Site) -> WmmaFamily:
    """The family for a site, with the patch applied on the pin, whether the profile enables it or not.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU does not use this kernel, or the patch does not support this build.
        ErrorGroup: the patch cannot be placed.
    """
    workspace, profile = site.workspace, site.profile
    series = load_series(workspace.series.patches)
    following = [patch for patch in series.patches if "wmma" in patch.launches.tables]
    patch = next((patch for patch in following if patch.builds.covers(site.pin.build)), None)
    if patch is None:
        name = following[0].id if following else "a patch"
        raise UsageError(
            f"{name} does not support the rocWMMA kernel of build {site.pin.build}",
            code="TUNE_KERNEL_UNTUNABLE",
            hint=f"list the supported builds with: patchkit show {name}" if following else None,
        )
    site.require_matrix("wmma", known="the fragments of gfx11")
    files = read_upstream(site.repository, site.base, series.read)
    selected = Selected(patch=patch, targets=(profile,), reason="tuning")
    placed = place_patch(selected, files, workspace.series.patches, workspace.series.templates)

    def table(rows: Mapping[WmmaVariant, WmmaParams]) -> bytes:
        return _render_table(workspace, patch, profile, rows)

    models = load_models(workspace.series.profiles)
    return family_of(site.limits, placed.changes, table, models, bounds=site.bounds)


def _render_table(
    workspace: Workspace, patch: Patch, profile: ArchProfile, rows: Mapping[WmmaVariant, WmmaParams]
) -> bytes:
    tuned = tuple(_row(variant, params, profile) for variant, params in rows.items())
    target = replace(profile, tuning=replace(profile.tuning, wmma=tuned))
    guard = make_guard(patch.guard, (target,))
    renderer = PatchRenderer(
        patch,
        workspace.series.patches / patch.folder,
        workspace.series.templates,
        make_context(guard, (target,), patch.context),
    )
    ((template, where),) = (
        (file.template, file.where)
        for file in patch.files
        if file.path == TABLE_FILE and file.template is not None
    )
    return renderer.file(template, where).encode()


def _row(variant: WmmaVariant, params: WmmaParams, profile: ArchProfile) -> TunedWmma:
    return TunedWmma(
        head_size=cast("HeadSize", variant.head_size),
        ncols=cast("WmmaColumns", variant.ncols),
        acc=variant.acc,
        kq_stride=params.kq_stride,
        nwarps=params.nwarps,
        min_waves=params.min_waves,
        source="a candidate of patchkit tune",
        measured_on="not measured",
        where=profile.where,
    )


def rows_by_variant(profile: ArchProfile) -> dict[str, TunedWmma]:
    """The rows of the profile by the names of their variants."""
    return {name_of(WmmaVariant(row.head_size, row.ncols, row.acc)): row for row in profile.tuning.wmma}


def _rows_with(profile: ArchProfile, variant: str, setting: Setting, measured_on: str) -> list[Row]:
    changed: Row = {"kq_stride": setting[0], "nwarps": setting[1], "measured_on": measured_on}
    return [
        {**row_of(row), **(changed if name == variant else {})}
        for name, row in rows_by_variant(profile).items()
    ]


TUNABLE = Tunable(make=make_wmma_family, table="wmma", rows_with=_rows_with)
