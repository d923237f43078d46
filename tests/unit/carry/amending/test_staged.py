"""A changed copy of a series is moved into place as a whole, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusing import refused

from patchkit.base.series_folder import SeriesDir
from patchkit.carry.amending.staged import Amendment, read_series


@pytest.fixture
def series(tmp_path: Path) -> SeriesDir:
    """A series with a patch, a lock, a link and a profile."""
    found = SeriesDir(root=tmp_path / "series", origin="named")
    (found.patches / "0001-one").mkdir(parents=True)
    (found.patches / "0001-one" / "patch.toml").write_text("one")
    (found.patches / "latest").symlink_to("0001-one/patch.toml")
    found.lock.write_text("lock")
    found.profiles.mkdir()
    (found.profiles / "gfx1.toml").write_text("profile")
    return found


@pytest.fixture
def amendment(series: SeriesDir, tmp_path: Path) -> Amendment:
    """A copy in which the patch has another folder, and the lock and the profile another text."""
    copy = SeriesDir(root=tmp_path / "copy", origin="named")
    shutil.copytree(series.root, copy.root)
    before = read_series(copy)
    (copy.patches / "0001-one").rename(copy.patches / "0002-one")
    copy.lock.write_text("new lock")
    (copy.profiles / "gfx1.toml").write_text("new profile")
    stage: Any = SimpleNamespace(series=copy)  # only its folder is used
    return Amendment(stage=stage, before=before)


@pytest.mark.parametrize("profiles_first", [False, True])
def test_the_series_has_the_files_of_the_copy(
    series: SeriesDir, amendment: Amendment, *, profiles_first: bool
) -> None:
    amendment.publish(series, profiles_first=profiles_first)
    assert sorted(path.name for path in series.patches.iterdir()) == ["0002-one", "latest", "upstream.lock"]
    assert series.lock.read_text() == "new lock"
    assert (series.patches / "latest").is_symlink()
    assert (series.profiles / "gfx1.toml").read_text() == "new profile"
    assert sorted(path.name for path in series.root.iterdir()) == ["arch_profiles", "patches"]


@pytest.mark.parametrize(
    "path", ["patches/0001-one/patch.toml", "patches/0001-one/new", "arch_profiles/gfx1.toml"]
)
def test_a_series_that_changed_meanwhile_is_left_alone(
    series: SeriesDir, amendment: Amendment, path: str
) -> None:
    (series.root / path).write_text("by somebody else")
    now = read_series(series)
    with refused("PATCH_CHANGED"):
        amendment.publish(series, profiles_first=True)
    assert read_series(series) == now
