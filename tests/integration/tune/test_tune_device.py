"""Racing builds by llama-bench: programs that write recorded output, faster and slower by a known factor."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from patchkit.cli.app import main
from patchkit.gpu.hardware.bench.journal import load_journal
from patchkit.gpu.hardware.bench.measure import CALLS
from patchkit.tune.report import report_path
from patchkit.tune.search import NOT_WORTH_TIMING

RECORDED = Path(__file__).parents[2] / "unit" / "gpu" / "hardware" / "recorded"

# A recorded row at each depth with every time scaled, and a noise of at most a tenth of a per cent.
PROGRAM = """\
#!/bin/sh
[ "$1" = --help ] && {{ cat {recorded}/b6900-help.txt; exit 0; }}
n=$(cat {here}/count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {here}/count
{trouble}
for depth in 0 4096 16384; do
  sed -n "1s/prompt\\": 64/prompt\\": 512/;1s/depth\\": 0/depth\\": $depth/p" {recorded}/b6900-cpu.jsonl
done | awk -v n=$n -v f={factor} '{{
  match($0, /"samples_ns": \\[[^]]*\\]/)
  head = substr($0, 1, RSTART - 1); tail = substr($0, RSTART + RLENGTH)
  base = 1000000 * NR * f * (1 + ((n * 5) % 13 - 6) / 6500)
  printf "%s\\"samples_ns\\": [ %d, %d, %d ]%s\\n", head, base, base * 1.001, base * 0.999, tail
}}'
"""
VARIANT = "64-32-f32"


@pytest.fixture
def series(tmp_path, checkout) -> Path:
    folder = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        for path in (checkout / name).rglob("*"):
            target = folder / path.relative_to(checkout)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def cache(tmp_path) -> Path:
    folder = tmp_path / "cache"
    path = report_path(folder, "gfx1151", "wmma", 6900)
    path.parent.mkdir(parents=True)
    settings = [[256, 8], [128, 8], [256, 4]]
    entry = {
        "variant": VARIANT,
        "upstream": [256, 4],
        "order": settings,
        "candidates": [
            {"setting": setting, "estimates": [{"cost": cost}]}
            for setting, cost in zip(settings, (0.5, 0.8, 1.0), strict=True)
        ],
    }
    path.write_text(json.dumps({"complete": True, "variants": [entry]}))
    return folder


@pytest.fixture
def builds(tmp_path):
    def make(factors: dict[str, float], trouble: str = "") -> Path:
        for name, factor in factors.items():
            folder = tmp_path / "builds" / name
            folder.mkdir(parents=True, exist_ok=True)
            program = folder / "llama-bench"
            program.write_text(
                PROGRAM.format(
                    recorded=RECORDED,
                    here=folder,
                    factor=factor,
                    trouble=trouble if name != "upstream" else "",
                )
            )
            program.chmod(0o755)
        (tmp_path / "m.gguf").write_bytes(b"model")
        return tmp_path / "builds"

    return make


@pytest.fixture
def tune(series, cache, tmp_path, capsys):
    def run(*arguments: str, device: Path | None = None) -> tuple[int, dict]:
        argv = ["tune", "--arch", "gfx1151", "--kernel", "wmma", "--upstream", "b6900", "--variant", VARIANT]
        argv += [
            "--gpu",
            "none",
            "--json",
            "--device",
            str(device or tmp_path / "builds"),
            "--model",
            str(tmp_path / "m.gguf"),
        ]
        code = main([*argv, "--series-dir", str(series), "--cache-dir", str(cache), *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_the_measured_winner_goes_into_the_profile_over_the_estimated_one(tune, builds, series) -> None:
    builds({"upstream": 1.0, "128-8": 0.5, "256-8": 0.9})
    code, document = tune("--write")
    assert (code, document["winner"], document["written"]) == (0, [128, 8], True)
    first = document["standings"][0]
    assert first["measured"] == pytest.approx(2.0, rel=0.01)
    assert (first["expected"], first["expected_by"]) == (pytest.approx(1.25), "estimated")
    assert first["rounds"] > document["standings"][1]["rounds"] or first["rounds"] == 12
    profile = tomllib.loads((series / "arch_profiles" / "gfx1151.toml").read_text())
    rows = {(row["head_size"], row["ncols"], row["acc"]): row for row in profile["tuning"]["wmma"]}
    row = rows[64, 32, "f32"]
    assert (row["kq_stride"], row["nwarps"]) == (128, 8)
    assert row["measured_on"].startswith("gfx1151 by patchkit tune --device")
    assert "+100" in row["measured_on"]
    assert "+25 %" in row["measured_on"]
    assert len(rows) == 23


def test_rows_of_later_builds_are_raced_and_written_also_those_not_worth_timing(
    builds, series, cache, tmp_path, capsys
) -> None:
    settings = [[256, 3, 64, 128], [256, 3, 64, 64], [256, 3, 128, 64]]
    modelled = {"us": [1.0], "ratio": 1.0, "error": 0.1}
    beside = (
        {"modelled": modelled, "refused": None},
        {"modelled": None, "refused": NOT_WORTH_TIMING},
        {"modelled": None, "refused": "spills 300 registers, upstream's 0"},
    )
    entry = {
        "variant": "256-32",
        "upstream": settings[0],
        "order": settings[:1],
        "candidates": [
            {"setting": setting, "estimates": [{"cost": 1.0}], **rest}
            for setting, rest in zip(settings, beside, strict=True)
        ],
    }
    path = report_path(cache, "gfx1151", "tile", 11549)
    path.write_text(json.dumps({"complete": False, "variants": [entry]}))
    builds({"upstream": 1.0, "256-3-64-64": 0.5, "256-3-64-128": 1.0, "256-3-128-64": 0.1})
    argv = ["tune", "--arch", "gfx1151", "--kernel", "tile", "--upstream", "b11549", "--variant", "256-32"]
    argv += ["--gpu", "none", "--device", str(tmp_path / "builds"), "--model", str(tmp_path / "m.gguf")]
    argv += ["--json", "--write", "--series-dir", str(series), "--cache-dir", str(cache)]
    code = main(argv)
    document = json.loads(capsys.readouterr().out)
    assert (code, document["winner"], document["written"]) == (0, [256, 3, 64, 64], True)
    # The fastest one is no arm: it is worse than upstream's by the figures, where hardware has no say yet.
    expected = {tuple(each["setting"]): each["expected_by"] for each in document["standings"]}
    assert expected == {(256, 3, 64, 64): "estimated", (256, 3, 64, 128): "modelled"}
    tuning = tomllib.loads((series / "arch_profiles" / "gfx1151.toml").read_text())["tuning"]
    row = next(each for each in tuning["tile"] if (each["head_size_k"], each["ncols"]) == (256, 32))
    assert (row["nthreads"], row["occupancy"], row["nbatch_fa"], row["nbatch_k"]) == (256, 3, 64, 64)
    assert "+100" in row["measured_on"]
    assert len(tuning["wmma"]) == 23


def test_a_kernel_without_a_table_in_profiles_is_raced_but_not_written(
    builds, series, cache, tmp_path, capsys
) -> None:
    settings = [[256, 2], [128, 2]]
    entry = {
        "variant": "Q4_K-128",
        "upstream": settings[0],
        "order": settings,
        "candidates": [{"setting": setting, "estimates": [{"cost": 1.0}]} for setting in settings],
    }
    path = report_path(cache, "gfx1151", "mmq", 11549)
    path.write_text(json.dumps({"complete": False, "variants": [entry]}))
    builds({"upstream": 1.0, "128-2": 0.5})
    argv = ["tune", "--arch", "gfx1151", "--kernel", "mmq", "--upstream", "b11549", "--variant", "Q4_K-128"]
    argv += ["--gpu", "none", "--device", str(tmp_path / "builds"), "--model", str(tmp_path / "m.gguf")]
    argv += ["--json", "--series-dir", str(series), "--cache-dir", str(cache)]
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["winner"] == [128, 2]
    code = main([*argv, "--write"])
    assert (code, json.loads(capsys.readouterr().out)["error"]["code"]) == (2, "TUNE_PROFILE_NOT_WRITTEN")


def test_equal_builds_have_no_winner_and_write_nothing(tune, builds, series) -> None:
    before = (series / "arch_profiles" / "gfx1151.toml").read_bytes()
    builds({"upstream": 1.0, "128-8": 1.0, "256-8": 1.0})
    code, document = tune("--write")
    assert (code, document["winner"], document["written"]) == (0, None, False)
    assert (series / "arch_profiles" / "gfx1151.toml").read_bytes() == before


def test_a_race_that_broke_off_goes_on_where_it_was(tune, builds, tmp_path) -> None:
    builds({"upstream": 1.0, "128-8": 0.5}, trouble="[ $n -le 2 ] || exit 3")
    code, document = tune()
    assert code != 0
    assert document["error"]["code"].startswith("BENCH_")
    (journal,) = (tmp_path / "cache" / "tune" / "runs").rglob("journal.jsonl")
    assert len(load_journal(journal, CALLS)[1]) >= 2
    counted = int((tmp_path / "builds" / "128-8" / "count").read_text())
    builds({"128-8": 0.5})
    code, document = tune()
    assert (code, document["winner"]) == (0, [128, 8])
    again = int((tmp_path / "builds" / "128-8" / "count").read_text()) - counted
    assert again == document["standings"][0]["rounds"] - 2


@pytest.mark.parametrize(
    ("names", "why"),
    [({"128-8": 1.0}, "upstream"), ({"upstream": 1.0, "17-3": 1.0}, "has the name of an eligible setting")],
)
def test_builds_that_are_missing_are_an_error(tune, builds, names, why) -> None:
    builds(names)
    code, document = tune()
    assert (code, document["error"]["code"]) == (2, "TUNE_OPTIONS")
    assert why in document["error"]["why"]


def test_one_variant_at_a_time(tune, builds) -> None:
    builds({"upstream": 1.0, "128-8": 1.0})
    code, document = tune("--variant", "80-16-f16")
    assert (code, document["error"]["code"]) == (2, "TUNE_OPTIONS")
