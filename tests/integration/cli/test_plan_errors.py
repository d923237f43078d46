"""``plan`` on a series that no longer fits: everything at once, as text and as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from shipped import SEED

from patchkit.cli.app import main

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def argv(pin_cache: Path, tmp_path: Path) -> list[str]:
    """``plan`` with a series in which two patches name functions that upstream does not have."""
    series = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    for folder, function in (
        ("0002-fattn-keep-gqa-tiles", "flash_attn_tile"),
        ("0003-fattn-decode-tile", "ggml_cuda_get_best_fattn_kernel"),
    ):
        path = series / "patches" / folder / "patch.toml"
        text = path.read_text("utf-8")
        assert f'function = "{function}"' in text
        path.write_text(text.replace(f'function = "{function}"', f'function = "{function}_x"'), "utf-8")
    return [
        "plan",
        *SEED,
        "--cache-dir",
        str(pin_cache),
        "--series-dir",
        str(series),
    ]


def test_every_place_that_fails_is_shown_beside_what_holds(argv: list[str], capsys) -> None:
    assert main(["--quiet", *argv]) == 3
    out, err = capsys.readouterr()
    assert "fattn-keep-gqa-tiles: " in out
    assert "\n  failed" in out
    assert "fattn-wmma-f16.cu:" in out, "the places of patches that hold are shown too"
    assert "flash_attn_tile_x" in err
    assert "ggml_cuda_get_best_fattn_kernel_x" in err
    assert "0002-fattn-keep-gqa-tiles/patch.toml:" in err
    assert "0003-fattn-decode-tile/patch.toml:" in err
    assert err.rstrip().endswith("some patches cannot be applied: 2 errors")


def test_json_has_the_plan_and_the_errors_in_one_document(argv: list[str], capsys) -> None:
    assert main([*argv, "--quiet", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    states = {patch["id"]: patch["state"] for patch in document["patches"]}
    assert states["wmma-tile-params"] == "apply"
    assert states["fattn-keep-gqa-tiles"] == states["fattn-decode-tile"] == "failed"
    assert len(document["error"]["errors"]) == 2
    assert all(member["exit_code"] == 3 and member["where"] for member in document["error"]["errors"])


def test_apply_refuses_the_same_series_and_makes_nothing(argv: list[str], capsys, pin_cache: Path) -> None:
    assert main(["apply", "--json", *argv[1:]]) == 3
    assert len(json.loads(capsys.readouterr().out)["error"]["errors"]) == 2
    assert main(["status", "--json", "--cache-dir", str(pin_cache)]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"] == []
