"""Errors found on a stage speak of the series: the stage is gone when a person reads them."""

from __future__ import annotations

from patchkit.base.errors import ConfigError, ErrorGroup, Location
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.candidate.staging import name_series


def test_every_part_of_an_error_names_the_series(tmp_path):
    stage, series = tmp_path / "cache" / "bump-1-x", SeriesDir(root=tmp_path / "home", origin="named")
    (series.root / "patches").mkdir(parents=True)
    (series.root / "patches" / "a.toml").write_text("")
    member = ConfigError(
        f"{stage}/patches is wrong",
        where=[Location(path=f"{stage}/patches/a.toml", line=3), Location(path="ggml/a.cu", line=4)],
        why=f"see {stage}/patches",
        hint=f"edit {stage}/patches/a.toml",
    )
    group = ErrorGroup(f"{stage}/patches has 1 problem", [ErrorGroup("inner", [member])])
    name_series(group, stage=stage, series=series)
    told = [str(group), member.message, str(member), member.why, member.hint, *map(str, member.where)]
    assert not [text for text in told if "bump-1" in text]
    assert [str(place) for place in member.where] == [f"{series.root}/patches/a.toml:3", "ggml/a.cu:4"]
