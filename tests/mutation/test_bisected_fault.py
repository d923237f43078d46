"""``patchkit bisect`` on the emulated GPU, with a fault planted in one of three patches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from patchkit.base.series_folder import SeriesDir
from patchkit.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.hip, pytest.mark.hours]  # five minutes with compiled kernels


def test_the_patch_with_half_of_its_threads_is_found(
    series: SeriesDir, gates_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "upstreams", series.root / "upstreams", dirs_exist_ok=True)
    patch = series.root / "patches" / "0026-rope-block-size" / "patch.toml"
    text = patch.read_text()
    assert text.count("MIN(ne00/2, CUDA_ROPE_BLOCK_SIZE)") == 2
    patch.write_text(text.replace("MIN(ne00/2, CUDA_ROPE_BLOCK_SIZE)", "MIN(ne00/4, CUDA_ROPE_BLOCK_SIZE)"))
    names = ("patch-switches", "fattn-vec-heads-first", "moe-sum-coalesce", "rope-block-size")
    argv = [
        *("bisect", "--series-dir", str(series.root), "--cache-dir", str(gates_cache)),
        *("--arch", "gfx1151", "--emulated", *(word for name in names for word in ("--only", name))),
        *("--op", "ROPE", "--case", r"type=f32,ne_a=\[128,32,2,1\],n_dims=128"),
        *("--out", str(tmp_path / "out"), "--json"),
    ]
    capsys.readouterr()
    assert main(argv) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["patch"], told["without"], told["skipped"]) == ("rope-block-size", "good", [])
    assert told["good"] == "b11549 + moe-sum-coalesce"
    assert [each["outcome"] for each in told["tested"]] == ["good", "bad", "good", "good", "good"]
