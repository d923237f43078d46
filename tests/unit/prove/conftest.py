"""Small subjects and kernels for gate tests; no compiler takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.carry.placing.context import make_guard
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import GuardMacros
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.promises import NOTHING_WORSE, ResourceRules
from patchkit.prove.subject import PatchPart, Subject
from patchkit.toolchain.compile import CompiledKernel, CompiledUnit
from patchkit.toolchain.remarks import ResourceRemark

ROOT = Path(__file__).resolve().parents[3]
UNIT = "ggml/src/ggml-cuda/k.cu"


@pytest.fixture
def make_subject(tmp_path: Path) -> Callable[..., Subject]:
    """A subject of one patch for gfx1151 over two folders of files."""

    def make(
        before: dict[str, str] | None = None,
        after: dict[str, str] | None = None,
        *,
        rules: ResourceRules | None = None,
        authors: dict[str, tuple[str | None, ...]] | None = None,
        touched: tuple[str, ...] = (UNIT,),
        macros: tuple[str, ...] = ("GGML_USE_HIP",),
    ) -> Subject:
        for name, files in (("baseline", before or {}), ("candidate", after or {})):
            for path, text in files.items():
                place = tmp_path / name / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
        profiles = {arch: load_profile(ROOT / "arch_profiles", arch) for arch in ("gfx1100", "gfx1151")}
        guard = make_guard(GuardMacros(macros=macros), [profiles["gfx1151"]])
        shipped = load_series(ROOT / "patches").patches[0]
        patch = replace(
            shipped, id="my-patch", guard=GuardMacros(macros=macros), resources=rules or NOTHING_WORSE
        )
        part = PatchPart(patch=patch, commit="0" * 40, guard=guard, touched=touched, new_files=())
        return Subject(
            baseline=tmp_path / "baseline",
            baseline_tree="b" * 40,
            candidate=tmp_path / "candidate",
            candidate_tree="c" * 40,
            build=6900,
            archs=("gfx1151",),
            patches=(part,),
            profiles=profiles,
            profiles_folder=ROOT / "arch_profiles",
            authors=authors or {},
            toolchain=None,
            cache_root=tmp_path / "cache",
            reporter=NullReporter(),
        )

    return make


@pytest.fixture
def make_unit() -> Callable[..., CompiledUnit]:
    """A compiled unit of kernels given as name -> figures; ``threads`` 128 and no trap by default."""

    def make(kernels: dict[str, dict[str, int]]) -> CompiledUnit:
        made = []
        for name, given in kernels.items():
            figures = {"vgprs": 100, "sgprs": 30, "scratch_bytes": 0, "waves": 12, "lds_bytes": 1024}
            figures |= {"sgpr_spills": 0, "vgpr_spills": 0} | given
            trap, threads = bool(figures.pop("trap", 0)), figures.pop("threads", 128)
            made.append(
                CompiledKernel(figures=ResourceRemark(name=name, **figures), threads=threads, is_trap=trap)
            )
        return CompiledUnit(
            unit=UNIT,
            arch="gfx1151",
            which="device",
            key="0" * 64,
            output=Path("none"),
            kernels=tuple(made),
            diagnostics=(),
            seconds=1.0,
            cached=True,
        )

    return make
