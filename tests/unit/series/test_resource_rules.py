"""The optional [resources] table of patch.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError, ErrorGroup
from patchkit.series.patch import Patch, parse_patch
from patchkit.series.promises import NOTHING_WORSE, Allowance, ResourceRules
from patchkit.series.toml import load_toml

ROOT = Path(__file__).resolve().parents[3]
_SHIPPED = ROOT / "patches" / "0003-fattn-decode-tile" / "patch.toml"


def _patch(folder: Path, table: str) -> Patch:
    path = folder / "patch.toml"
    path.write_text(_SHIPPED.read_text("utf-8") + table, "utf-8")
    return parse_patch(load_toml(path), folder="0003-fattn-decode-tile", number=3)


def test_without_the_table_nothing_may_get_worse(tmp_path: Path) -> None:
    assert _patch(tmp_path, "").resources == NOTHING_WORSE
    assert (NOTHING_WORSE.more_spills, NOTHING_WORSE.fewer_waves) == (0, 0)


def test_the_table_says_how_much_for_which_kernels_and_why(tmp_path: Path) -> None:
    table = '\n[resources]\nkernels = ["flash_attn_ext_f16"]\nmore_spills = 4\nwhy = "traded for LDS"\n'
    rules = ResourceRules(kernels=("flash_attn_ext_f16",), more_spills=4, why="traded for LDS")
    assert _patch(tmp_path, table).resources == rules


def test_kernels_that_need_other_numbers_have_an_entry_of_their_own(tmp_path: Path) -> None:
    table = (
        '\n[resources]\nkernels = ["f"]\nfewer_waves = 7\nwhy = "half the threads"\n'
        '\n[[resources.allow]]\nkernels = ["g"]\nmore_spills = 4\nwhy = "traded for LDS"\n'
    )
    rules = _patch(tmp_path, table).resources
    assert rules.allowance("f") == rules
    assert rules.allowance("g") == Allowance(kernels=("g",), more_spills=4, why="traded for LDS")
    assert rules.allowance("h") is None


@pytest.mark.parametrize(
    "table",
    [
        "[resources]\nmore_spills = 4\n",
        '[resources]\nmore_spills = -1\nwhy = "x"\n',
        '[resources]\nwhy = "x"\n\n[[resources.allow]]\nfewer_waves = 1\nwhy = "y"\n',
        '[resources]\nwhy = "x"\n\n[[resources.allow]]\nkernels = ["f"]\nfewer_waves = 1\n',
    ],
    ids=["no reason", "negative", "no kernels", "no reason of its own"],
)
def test_a_table_that_says_too_little_is_refused_with_its_line(tmp_path: Path, table: str) -> None:
    with pytest.raises((ConfigError, ErrorGroup)) as caught:
        _patch(tmp_path, "\n" + table)
    error = caught.value.errors[0] if isinstance(caught.value, ErrorGroup) else caught.value
    assert str(tmp_path / "patch.toml") in str(error.where[0])
    assert error.where[0].line
