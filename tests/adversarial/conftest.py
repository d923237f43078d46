"""Upstreams that set traps: the real pinned tree with scripted edits, and the class each patch gets there.

A *trap* is a function from the files of the pin to those of a later upstream that never was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir, find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish, decide
from patchkit.carry.judging.classes import Classified
from patchkit.carry.judging.classify import Comparison, classify_series
from patchkit.carry.judging.rendering import Rendering, last_renderings
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import find_pinned

SEEDS = ("wmma-tile-params", "fattn-keep-gqa-tiles", "fattn-decode-tile")
CUDA = "ggml/src/ggml-cuda/"


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The pin, the seed series rendered on it, and how to classify it on anything else."""

    series_dir: SeriesDir
    series: Series
    profile: object
    pin: Pin
    files: UpstreamFiles
    last: Mapping[str, Rendering]

    def read(self, name: str) -> str:
        return self.files.base[CUDA + name].decode()

    def classify(
        self,
        changes: Mapping[str, str | bytes | None],
        *,
        build: int = 6901,
        patches: Callable[[Patch], Patch] = lambda patch: patch,
    ) -> dict[str, Classified]:
        """``changes``: new text by name below the CUDA folder, None for a file that is gone."""
        found, _ = self.step(changes, self.last, build=build, patches=patches)
        return found

    def step(
        self,
        changes: Mapping[str, str | bytes | None],
        last: Mapping[str, Rendering],
        *,
        build: int = 6901,
        patches: Callable[[Patch], Patch] = lambda patch: patch,
    ) -> tuple[dict[str, Classified], dict[str, Rendering]]:
        """As ``classify``, against another last rendering; and the renderings, for the step after it."""
        base = dict(self.files.base)
        gone = set()
        for name, text in changes.items():
            if text is None:
                del base[CUDA + name]
                gone.add(CUDA + name)
            else:
                base[CUDA + name] = text if isinstance(text, bytes) else text.encode()
        files = UpstreamFiles(base, self.files.names - gone)
        series = replace(self.series, patches=tuple(patches(patch) for patch in self.series.patches))
        found, renderings = classify_series(
            Comparison(
                workspace=Workspace(series=self.series_dir, cache_root=Path("none"), reporter=NullReporter()),
                build=build,
                chosen=decide(series, [self.profile], replace(self.pin, build=build), Wish()).selected,
                files=files,
                last=last,
            )
        )
        return {verdict.id: verdict for verdict in found}, {each.patch.id: each for each in renderings}


def ground_on(checkout: Path, warm_cache: Path, series_dir: SeriesDir, patches: tuple[str, ...]) -> Ground:
    series = load_series(series_dir.patches)
    series = replace(series, patches=tuple(patch for patch in series.patches if patch.id in patches))
    profile = load_profile(series_dir.profiles, "gfx1151")
    pin = load_lock(checkout / "patches" / "upstream.lock").pin("b6900")
    repository = open_cache(warm_cache).peek(NullReporter())
    pinned = find_pinned(repository, pin)
    files = read_upstream(repository, pinned, series.folders)
    chosen = decide(series, [profile], pin, Wish()).selected
    last = last_renderings(chosen, files, series_dir)
    assert len(last) == len(patches)
    return Ground(
        series_dir=series_dir,
        series=series,
        profile=profile,
        pin=pin,
        files=files.fresh(),
        last=last,
    )


@pytest.fixture
def make_ground(checkout: Path, warm_cache: Path) -> Callable[[Path, tuple[str, ...]], Ground]:
    """A ground of a series folder of the test's own."""
    return lambda folder, patches: ground_on(checkout, warm_cache, find_series_dir(folder), patches)


@pytest.fixture(scope="session")
def ground(checkout: Path, warm_cache: Path) -> Ground:
    """The seed series on build 6900."""
    return ground_on(checkout, warm_cache, find_series_dir(checkout), SEEDS)
