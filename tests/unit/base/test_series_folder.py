"""Finding the series: named, checkout, installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base import series_folder as folder
from patchkit.base.errors import ExitCode
from patchkit.base.series_folder import find_series_dir, find_texts


def _fill(root: Path) -> Path:
    for name in ("patches", "templates", "arch_profiles"):
        (root / name).mkdir(parents=True)
    return root


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code runs from a folder of the test."""
    monkeypatch.setattr(folder, "_PACKAGE", tmp_path / "patchkit")


def test_the_named_folder_wins(tmp_path: Path) -> None:
    named = _fill(tmp_path / "mine")
    found = find_series_dir(named)
    assert (found.root, found.origin) == (named, "named")
    assert found.lock == named / "patches" / "upstream.lock"
    assert found.profiles == named / "arch_profiles"
    assert found.templates == named / "templates"


@pytest.mark.usefixtures("package")
def test_a_checkout_is_read_in_place(tmp_path: Path) -> None:
    _fill(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    _fill(tmp_path / "patchkit" / "data")
    found = find_series_dir(None)
    assert (found.root, found.origin) == (tmp_path, "checkout")


@pytest.mark.usefixtures("package")
def test_a_foreign_patches_folder_in_site_packages_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    _fill(tmp_path / "patchkit" / "data")
    found = find_series_dir(None)
    assert (found.root, found.origin) == (tmp_path / "patchkit" / "data", "installed")


@pytest.mark.parametrize("make", [Path.touch, lambda _: None])
def test_a_named_folder_that_does_not_exist(tmp_path: Path, make) -> None:
    make(tmp_path / "x")
    with refused("SERIES_DIR_MISSING", match="is not a series folder") as caught:
        find_series_dir(tmp_path / "x")
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.why in {"it is a file", "the path does not exist"}
    # init itself stops at this folder if the variable names it.
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("unset PATCHKIT_SERIES; patchkit init DIR")


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    _fill(tmp_path)
    (tmp_path / "arch_profiles").rmdir()
    with refused("SERIES_DIR_MISSING", match=r"^arch_profiles/ missing"):
        find_series_dir(tmp_path)


def test_shared_templates_are_optional(tmp_path: Path) -> None:
    _fill(tmp_path)
    (tmp_path / "templates").rmdir()
    assert find_series_dir(tmp_path).root == tmp_path


@pytest.mark.usefixtures("package")
def test_patchkits_own_texts_come_from_its_own_series(tmp_path: Path) -> None:
    data = _fill(tmp_path / "patchkit" / "data")
    with refused("SERIES_DIR_MISSING", match="^templates/patchkit/ missing"):
        find_texts()
    (data / "templates" / "patchkit").mkdir()
    assert find_texts() == data / "templates" / "patchkit"


@pytest.mark.usefixtures("package")
def test_an_installation_without_data_reports_the_fix(tmp_path: Path) -> None:
    with refused("SERIES_DIR_MISSING", match="patches/ and arch_profiles/") as caught:
        find_series_dir(None)
    assert caught.value.hint == "pip install --force-reinstall patchkit"


@pytest.mark.parametrize(
    ("rules", "is_whole"), [("plain = true\n", True), ("plain = \n", True), ("plain = false\n", False)]
)
def test_a_plain_series_has_no_profiles(tmp_path: Path, rules: str, *, is_whole: bool) -> None:
    """Rules that cannot be read are accepted here; loading them reports the error."""
    _fill(tmp_path)
    (tmp_path / "arch_profiles").rmdir()
    (tmp_path / "patches" / "series.toml").write_text(rules)
    if is_whole:
        assert find_series_dir(tmp_path).root == tmp_path
    else:
        with refused("SERIES_DIR_MISSING"):
            find_series_dir(tmp_path)
