"""Trees of upstream's, and candidates over them, whose programs run on an emulated GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.pin import obtain
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulationOptions, emulated_gpu
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.machine import Source, build_side
from patchkit.toolchain.sides import BuiltSide, Workshop
from patchkit.toolchain.units import SourceTree

ROOT = Path(__file__).resolve().parents[2]
ARCH = "gfx1151"
CORPUS = ROOT / "tests" / "upstream" / "corpus.toml"


@dataclass(frozen=True)
class EmulatedTrees:
    """Builds a tree's host code, and its kernels when they are launched; all of it is kept in ``cache``."""

    cache: Path
    compiler: Compiler
    arch: str = ARCH

    @contextlib.contextmanager
    def running(
        self,
        build: int,
        options: EmulationOptions,
        *,
        programs: Sequence[str] = ("test-backend-ops",),
        candidate: Path | None = None,
        whole: Collection[str] | None = None,
    ) -> Iterator[BuiltSide]:
        """Upstream's programs of a build; the HIP backend is that of ``candidate`` where there is one.

        ``whole``: as :func:`patchkit.gpu.emulated.emulated_sides.emulated_side`.
        """
        commit, root = self._tree(build)
        built = build_side(
            Source(root=root, tree=str(build), build=build, commit=commit[:9]),
            "cpu",
            archs=(self.arch,),
            toolchain=self.compiler.toolchain,
            programs=programs,
            workshop=Workshop(cache_root=self.cache, reporter=self.compiler.reporter),
            with_rocwmma=True,
            is_timed=False,
        )
        gpu = emulated_gpu(device_of(load_profile(ROOT / "arch_profiles", self.arch)), self.compiler)
        tree = SourceTree(candidate if candidate is not None else root)
        with emulated_side(built, tree, gpu, self.compiler, options, whole=whole) as side:
            yield side.built

    def root(self, build: int) -> Path:
        """The folder of a build's tree."""
        return self._tree(build)[1]

    def _tree(self, build: int) -> tuple[str, Path]:
        store = open_cache(self.cache)
        commit = obtain(load_lock(CORPUS).pin(str(build)), cache=store, reporter=self.compiler.reporter)
        repository = store.peek(self.compiler.reporter)
        assert repository is not None
        return commit, export_tree(repository, commit, self.cache / "trees").root
