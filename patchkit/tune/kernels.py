"""From a pin and a profile to a kernel family that the tuner understands, and its tree on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from patchkit.base.errors import Location, UsageError
from patchkit.build.tree import export_tree, overlay_tree
from patchkit.build.units import GPU_SOURCES, SourceTree
from patchkit.candidate.workspace import Workspace
from patchkit.edits.context import make_context, make_guard
from patchkit.edits.place import place_patch
from patchkit.edits.templates import PatchRenderer
from patchkit.edits.tree import read_upstream
from patchkit.kernels.occupancy import HardwareLimits, limits_of
from patchkit.kernels.wmma import WmmaParams, WmmaVariant
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Pin
from patchkit.series.patch import Patch
from patchkit.series.profile import ArchProfile, HeadSize, TunedWmma, WmmaColumns
from patchkit.series.selection import Selected
from patchkit.tune.mma import MMA_FILE, MmaFamily, make_mma_family
from patchkit.tune.mmq import MMQ_FILE, MMQ_PARTS, MmqFamily, config_file, make_mmq_family
from patchkit.tune.tile import TILE_FILE, TileFamily, make_tile_family
from patchkit.tune.wmma import KERNEL_FILE, TABLE_FILE, WmmaFamily
from patchkit.upstream.repository import Repository

WMMA_PATCH = "wmma-tile-params"
_RDNA_WAVE = 32


def wmma_family(
    workspace: Workspace,
    repository: Repository,
    base: str,
    pin: Pin,
    profile: ArchProfile,
    *,
    bounds: bool = False,
) -> WmmaFamily:
    """The attention kernel as the patch leaves it on this pin, for this GPU, whether the patch is on or not.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU has no such kernel, or the patch is not for this build.
        ErrorGroup: the patch cannot be placed.
    """
    limits = limits_of(profile)
    series = load_series(workspace.series.patches)
    patch = series.patch(WMMA_PATCH)
    if patch is None or not patch.builds.covers(pin.build):
        raise UsageError(
            f"the rocWMMA kernel of build {pin.build} is not what {WMMA_PATCH} is for",
            code="TUNE_KERNEL_UNTUNABLE",
            hint=f"patchkit show {WMMA_PATCH} says which builds",
        )
    if limits.matrix != "wmma":
        raise UsageError(
            f"the settings of {profile.arch} cannot be tuned: its matrix unit is '{limits.matrix}'",
            code="TUNE_KERNEL_UNTUNABLE",
            why="the rules of the kernel are known for the fragments of gfx11 only",
            hint="patchkit list names the GPUs",
        )
    files = read_upstream(repository, base, series.folders)
    selected = Selected(patch=patch, targets=(profile,), reason="tuning")
    placed = place_patch(selected, files, workspace.series.patches, workspace.series.templates)

    def table(rows: Mapping[WmmaVariant, WmmaParams]) -> bytes:
        return _render_table(workspace, patch, profile, rows)

    return WmmaFamily(limits=limits, kernel_file=placed.changes[KERNEL_FILE], table=table, bounds=bounds)


def tile_family(repository: Repository, base: str, profile: ArchProfile) -> TileFamily:
    """The attention kernel without matrix instructions, as upstream has it.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU has another table than RDNA's, or the build lacks the file.
        TUNE_KERNEL_NOT_FOUND: the file is not what it is at builds 6900 to 11549.
    """
    limits = limits_of(profile)
    if limits.wave_size != _RDNA_WAVE:
        raise UsageError(
            f"{profile.arch} does not read RDNA's table",
            code="TUNE_KERNEL_UNTUNABLE",
            hint="patchkit list names the GPUs",
        )
    return make_tile_family(limits, _read(repository, base, [TILE_FILE])[TILE_FILE])


def mma_family(repository: Repository, base: str, profile: ArchProfile) -> MmaFamily:
    """The attention kernel on matrix instructions, as upstream has it.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU has no such instructions, or the build no table for them.
    """
    limits = _with_fragments(profile)
    return make_mma_family(limits, _read(repository, base, [MMA_FILE])[MMA_FILE])


def mmq_family(repository: Repository, base: str, profile: ArchProfile) -> MmqFamily:
    """The quantized matrix product, as upstream has it.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU has no matrix instructions, or the build no table for its family.
        TUNE_KERNEL_NOT_FOUND: the files are not what they are at builds 10229 to 11549.
    """
    limits = _with_fragments(profile)
    family = profile.families[0]
    files = _read(repository, base, [MMQ_FILE, *MMQ_PARTS, config_file(family)])
    return make_mmq_family(limits, files, family)


def _with_fragments(profile: ArchProfile) -> HardwareLimits:
    limits = limits_of(profile)
    if limits.matrix not in ("wmma", "wmma_gfx12"):
        raise UsageError(
            f"the settings of {profile.arch} cannot be tuned: its matrix unit is '{limits.matrix}'",
            code="TUNE_KERNEL_UNTUNABLE",
            why="the rules of the kernel are known for 16x16 fragments in waves of 32 lanes only",
            hint="patchkit list names the GPUs",
        )
    return limits


def _read(repository: Repository, base: str, paths: Sequence[str]) -> Mapping[str, bytes]:
    there = {entry.path for entry in repository.list_files(base)}
    missing = [path for path in paths if path not in there]
    if missing:
        raise UsageError(
            f"this build has no {missing[0]}",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=missing[0]),
            why="the kernel keeps its parameters there, in the builds that can be tuned",
            hint="name another build, as --pin b11549",
        )
    return repository.read_blobs(base, paths)


def _render_table(
    workspace: Workspace, patch: Patch, profile: ArchProfile, rows: Mapping[WmmaVariant, WmmaParams]
) -> bytes:
    tuned = tuple(_row(variant, params, profile) for variant, params in rows.items())
    target = replace(profile, tuning=replace(profile.tuning, wmma=tuned))
    guard = make_guard(patch.guard.macros, (target,))
    renderer = PatchRenderer(
        patch,
        workspace.series.patches / patch.folder,
        workspace.series.templates,
        make_context(guard, (target,), patch.context),
    )
    (file,) = (file for file in patch.files if file.path == TABLE_FILE)
    return renderer.file(file.template, file.where).encode()


def _row(variant: WmmaVariant, params: WmmaParams, profile: ArchProfile) -> TunedWmma:
    return TunedWmma(
        head_size=cast("HeadSize", variant.head_size),
        ncols=cast("WmmaColumns", variant.ncols),
        acc=variant.acc,
        kq_stride=params.kq_stride,
        nwarps=params.nwarps,
        min_waves=params.min_waves,
        source="a candidate of patchkit tune",
        measured_on="nothing yet",
        where=profile.where,
    )


def make_overlay(repository: Repository, base: str, files: Mapping[str, bytes], trees: Path) -> SourceTree:
    """The pin's GPU sources with the family's ``files`` beside them, in ``trees``.

    Raises:
        TREE_ENTRY_REFUSED, CacheError: exporting failed.
    """
    exported = export_tree(repository, base, trees)
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path} {hashlib.sha256(data).hexdigest()}\n".encode())
    root = overlay_tree(exported.root, files, f"tune-{digest.hexdigest()[:12]}", below=GPU_SOURCES)
    return SourceTree(root)
