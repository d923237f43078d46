"""Exchanging two folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.exchange import exchange_by_renames, exchange_folders

WAYS = [exchange_folders, exchange_by_renames]


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("exchange", WAYS)
def test_each_folder_is_at_the_place_of_the_other(
    tmp_path: Path, exchange: Callable[[Path, Path], None]
) -> None:
    new, old = tmp_path / "stage" / "patches", tmp_path / "patches"
    (new / "deep").mkdir(parents=True)
    old.mkdir()
    (new / "deep" / "new").write_text("new")
    (old / "old").write_text("old")
    exchange(new, old)
    assert names(tmp_path) == [
        "patches",
        "patches/deep",
        "patches/deep/new",
        "stage",
        "stage/patches",
        "stage/patches/old",
    ]


@pytest.mark.parametrize("exchange", WAYS)
def test_without_one_of_them_nothing_changes(tmp_path: Path, exchange: Callable[[Path, Path], None]) -> None:
    old = tmp_path / "patches"
    old.mkdir()
    (old / "old").write_text("old")
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "none", old)
    assert names(tmp_path) == ["patches", "patches/old"]
