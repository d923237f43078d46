"""The optional [bench] table of patch.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError, ErrorGroup
from patchkit.series.patch import Patch, parse_patch
from patchkit.series.promises import NO_GAIN, BenchRules, ExpectedGain
from patchkit.series.toml import load_toml

ROOT = Path(__file__).resolve().parents[3]
_PATCH = ROOT / "patches" / "0002-tile-unprune" / "patch.toml"
_SHIPPED = _PATCH.read_text("utf-8").partition("\n[bench]")[0]
_EXPECTED = '[bench]\nwhy = "w"\n[[bench.expected]]\ntest = "pp*"\narchs = ["gfx1151"]\n{}\n'


def _patch(folder: Path, table: str) -> Patch:
    path = folder / "patch.toml"
    path.write_text(f"{_SHIPPED}\n{table}", "utf-8")
    return parse_patch(load_toml(path), folder="0002-tile-unprune", number=2)


def test_without_the_table_a_patch_promises_nothing_and_may_lose_nothing(tmp_path: Path) -> None:
    assert _patch(tmp_path, "").bench == NO_GAIN
    assert (NO_GAIN.allowed_loss, NO_GAIN.expected) == (0.0, ())


def test_a_gain_has_tests_gpus_and_a_source(tmp_path: Path) -> None:
    table = (
        '[bench]\nallowed_loss = 0.01\ncontrol = ["tg*@d0"]\nwhy = "w"\n'
        '[[bench.expected]]\ntest = "pp*@d16384"\ngain = 0.5\narchs = ["gfx1151"]\nhead_sizes = [64]\n'
        'source = "who and how"\n'
    )
    gain = ExpectedGain(
        test="pp*@d16384", gain=0.5, archs=("gfx1151",), head_sizes=(64,), source="who and how"
    )
    expected = BenchRules(allowed_loss=0.01, control=("tg*@d0",), expected=(gain,), why="w")
    assert _patch(tmp_path, table).bench == expected


@pytest.mark.parametrize(
    "table",
    [
        "[bench]\nallowed_loss = 0.01\n",
        '[bench]\nallowed_loss = -0.01\nwhy = "w"\n',
        '[bench]\nallowed_loss = 0.5\nwhy = "w"\n',
        _EXPECTED.format("gain = 0.5"),
        _EXPECTED.format('gain = 0.0\nsource = "s"'),
    ],
    ids=["no reason", "negative", "half the speed", "no source", "no gain"],
)
def test_a_table_that_says_too_little_is_refused_with_its_line(tmp_path: Path, table: str) -> None:
    with pytest.raises((ConfigError, ErrorGroup)) as caught:
        _patch(tmp_path, table)
    error = caught.value.errors[0] if isinstance(caught.value, ErrorGroup) else caught.value
    assert error.where[0].path == str(tmp_path / "patch.toml")
    assert error.where[0].line
