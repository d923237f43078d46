"""What doctor finds on good and bad machines."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.cli import doctor
from patchkit.cli.doctor import Check, run_doctor

ROOT = Path(__file__).resolve().parents[3]


def _look(
    tmp_path: Path, *, series: Path = ROOT, cache: Path | None = None, **environ: str
) -> dict[str, Check]:
    checks = run_doctor(
        series_dir=series,
        cache_root=cache if cache is not None else tmp_path / "cache",
        environ={"PATH": os.environ["PATH"], **environ},
        reporter=NullReporter(),
    )
    return {check.name: check for check in checks}


def test_a_machine_that_can_run_the_tests_can_run_patchkit(tmp_path: Path) -> None:
    found = _look(tmp_path)
    assert {found[name].state for name in ("python", "git", "libclang", "cache", "series")} == {"ok"}
    assert found["libclang"].detail.startswith("clang 18.1")
    assert "10 patches, 16 GPUs" in found["series"].detail
    assert found["pins"].state == "absent"


def test_a_cached_pin_is_seen(made, tmp_path: Path) -> None:
    assert _look(tmp_path, cache=made.cache)["pins"].detail == "cached: b6900"


def test_no_git_is_a_failure_with_the_code_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = _look(tmp_path)["git"]
    assert check.state == "failed"
    assert check.error is not None
    assert check.error.code == "GIT_MISSING"
    assert check.hint


def test_a_cache_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    check = _look(tmp_path)["cache"]
    assert check.state == "failed"
    assert check.error is not None
    assert check.error.exit_code == 8


def test_too_little_space_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_FREE_BYTES", 10**18)
    check = _look(tmp_path)["cache"]
    assert check.error is not None
    assert check.error.code == "CACHE_LOW_SPACE"


def test_an_unsupported_python_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PYTHONS", ((3, 99), (3, 99)))
    check = _look(tmp_path)["python"]
    assert check.error is not None
    assert check.error.code == "PYTHON_UNSUPPORTED"


def test_every_broken_file_of_the_series_counts(tmp_path: Path) -> None:
    series = tmp_path / "series"
    for name in ("patches", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    (series / "arch_profiles" / "gfx1151.toml").write_text("arch = ")
    (series / "patches" / "upstream.lock").write_text("version = 2")
    check = _look(tmp_path, series=series)["series"]
    assert check.state == "failed"
    assert check.error is not None
    codes = str([str(place) for error in check.error.errors for place in error.where])
    assert "gfx1151.toml" in codes
    assert check.detail.startswith("the series is not in order: ")


def test_build_tools_are_only_absent(tmp_path: Path) -> None:
    found = _look(tmp_path, PATH=str(tmp_path))
    assert found["cmake"].state == "absent"
    assert found["cmake"].hint
    assert found["sdk"].hint == "to compile without ROCm: patchkit sdk install"


def test_build_tools_are_found_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "cmake").touch(mode=0o755)
    assert _look(tmp_path, PATH=str(tmp_path))["cmake"].detail == str(tmp_path / "cmake")


def test_a_damaged_cache_is_a_failure_that_says_what_to_delete(made, tmp_path: Path) -> None:
    blob = made.repository.write_object("blob", b"good")
    place = made.repository.path / "objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob 4\0evil"))
    check = _look(tmp_path, cache=made.cache)["pins"]
    assert check.error is not None
    assert check.error.code == "GIT_OBJECT_DAMAGED"
    assert "hash-path mismatch" in (check.error.why or "")
    assert "hint:" not in (check.error.why or "")
    assert f"delete {made.repository.path} " in (check.hint or "")
