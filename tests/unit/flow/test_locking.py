"""What counts as an input of a result: every file that a template can reach."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.flow.locking import LockInputUnusable, read_inputs
from patchkit.series_dir import SeriesDir


@pytest.fixture
def series(tmp_path: Path) -> SeriesDir:
    root = tmp_path / "series"
    for name in ("patches/0001-demo/.parts/deep", "templates/.hidden"):
        (root / name).mkdir(parents=True)
    for name in ("patches/series.toml", "patches/0001-demo/patch.toml", "templates/shared.jinja"):
        (root / name).write_text(name)
    return SeriesDir(root=root, origin="named")


def _inputs(series: SeriesDir) -> dict[str, str]:
    selected = SimpleNamespace(patch=SimpleNamespace(folder="0001-demo"))
    return read_inputs(SimpleNamespace(profiles=(), steps=((selected, None),)), series)


@pytest.mark.parametrize(
    "name",
    [
        "patches/0001-demo/.part.jinja",
        "patches/0001-demo/.parts/deep/part.jinja",
        "templates/.hidden/part.jinja",
    ],
)
def test_hidden_templates_are_inputs(series: SeriesDir, name: str) -> None:
    before = _inputs(series)
    assert list(before) == ["patches/0001-demo/patch.toml", "patches/series.toml", "templates/shared.jinja"]
    (series.root / name).write_text("text")
    after = _inputs(series)
    assert after == {**before, name: hashlib.sha256(b"text").hexdigest()}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_the_lock_cannot_hold(series: SeriesDir) -> None:
    (series.root / "templates" / os.fsdecode(b"\xff.jinja")).write_text("text")
    with pytest.raises(LockInputUnusable, match="is not UTF-8"):
        _inputs(series)


def test_a_file_that_cannot_be_read(series: SeriesDir, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads everything, so the refusal is made by hand.
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LockInputUnusable) as caught:
        _inputs(series)
    assert caught.value.why is not None
    assert caught.value.why.endswith("Permission denied")
