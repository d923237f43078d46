"""``patchkit tune`` on the real kernel with a real compiler."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.cli.app import main
from patchkit.tune import run as tune_compile
from patchkit.tune.measure import measure
from patchkit.tune.record import load_record, record_path, render_record

pytestmark = [pytest.mark.hip, pytest.mark.slow]

VARIANT = "128-16-f32"
SEED = ("--kernel", "wmma", "--upstream", "b6900")


@pytest.fixture
def cache(pin_cache, test_cache, hip_toolchain) -> Path:
    """The pin, the SDK of the tests, and what the tests compiled before."""
    assert hip_toolchain.clang.exists()
    (test_cache / "gates" / "objects").mkdir(parents=True, exist_ok=True)
    (pin_cache / "objects").symlink_to(test_cache / "gates" / "objects")
    (pin_cache / "sdk").symlink_to(test_cache / "sdk" / "sdk")
    return pin_cache


@pytest.fixture
def tune(cache, capsys):
    def run(*arguments: str, headers=("stand-in",)) -> tuple[int, dict]:
        argv = ["tune", *SEED, *(word for each in headers for word in ("--rocwmma", each)), "--json"]
        code = main([*argv, "--cache-dir", str(cache), "--variant", VARIANT, *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def _objects(test_cache: Path) -> set[str]:
    return {path.name for path in (test_cache / "gates" / "objects").glob("*/*") if len(path.name) == 64}


def test_the_best_is_never_worse_than_upstream_and_a_second_run_compiles_nothing(tune, test_cache) -> None:
    code, first = tune("--arch", "gfx1151", "--near", "1")
    assert code == 0, first
    (variant,) = first["variants"]
    by_setting = {tuple(each["setting"]): each for each in variant["candidates"]}
    upstream, best = by_setting[256, 4]["figures"][0], by_setting[tuple(variant["best"])]["figures"][0]
    assert best["spills"] <= upstream["spills"]
    assert best["waves"] >= upstream["waves"]
    assert best["resident"] >= upstream["resident"]
    # Head size 128, 16 columns, float: 21248 bytes of LDS by the formula and by upstream's own code.
    assert (upstream["lds_bytes"], upstream["threads"]) == (21248, 128)
    assert upstream["loop"]["matrix"] == 64  # 256 rows in steps of 4*16, 8 products for K and as many for V
    assert not first["complete"]
    assert {each["setting"][0] == 256 or each["setting"][1] == 4 for each in variant["candidates"]} == {True}

    before = _objects(test_cache)
    code, second = tune("--arch", "gfx1151", "--near", "1")
    assert (code, second) == (0, first)
    assert _objects(test_cache) == before


def test_the_record_gives_the_profiles_table_again_on_a_machine_that_has_the_stand_in_only(
    cache, capsys, checkout
) -> None:
    argv = ["tune", *SEED, "--arch", "gfx1151", "--variant", VARIANT, "--cache-dir", str(cache)]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shipped = load_record(checkout / "arch_profiles", "gfx1151", "wmma", 6900)
    assert shipped is not None
    assert found["reproduces_profile"]
    assert found["headers"] == [each.name for each in shipped.headers]
    basis = found["record"]
    assert len(basis["here"]) >= 1
    assert sorted([*basis["here"], *basis["absent"]]) == sorted(found["headers"])
    (variant,) = found["variants"]
    # Upstream's setting and one unit with soft cap for each of the two that were confirmed, at most.
    assert len(variant["candidates"]) <= basis["units"] <= len(variant["candidates"]) + 2
    assert basis["differing"] == [] or basis["compiler"] != found["compiler"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "it already has these settings" in text
    assert f"using the figures recorded on {shipped.made} with" in text


@pytest.fixture
def series(tmp_path, checkout) -> Path:
    folder = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(checkout / name, folder / name)
    return folder


def test_a_record_of_another_kernel_or_of_no_header_that_is_here_is_refused(tune, series) -> None:
    path = record_path(series / "arch_profiles", "gfx1151", "wmma", 6900)
    whole = path.read_bytes()
    argv = ["--arch", "gfx1151", "--series-dir", str(series)]
    path.write_bytes(re.sub(rb'"sources": "[0-9a-f]{8}', b'"sources": "00000000', whole))
    assert tune(*argv, headers=())[1]["error"]["code"] == "TUNE_RECORD_BAD"
    path.write_bytes(re.sub(rb'"sha256": "[0-9a-f]{8}', b'"sha256": "00000000', whole))
    code, found = tune(*argv, headers=())
    assert (code, found["error"]["code"]) == (2, "TUNE_RECORD_BAD")
    assert "--rocwmma stand-in" in found["error"]["hint"]
    path.write_bytes(whole[:-20])
    assert tune(*argv, headers=())[1]["error"]["code"] == "TUNE_RECORD_BAD"


def test_a_figure_that_is_not_as_recorded_is_named(tune, series) -> None:
    record = load_record(series / "arch_profiles", "gfx1151", "wmma", 6900)
    assert record is not None
    (unit,) = [path for path in record.units if path.endswith(f"s256-n4/{VARIANT}.cu")]
    changed = [replace(each, vgprs=each.vgprs + 1) for each in record.units[unit]]
    path = record_path(series / "arch_profiles", "gfx1151", "wmma", 6900)
    path.write_bytes(render_record(replace(record, units={**record.units, unit: tuple(changed)})))
    code, found = tune("--arch", "gfx1151", "--series-dir", str(series), headers=())
    assert code == 0
    assert unit in found["record"]["differing"]


@pytest.mark.usefixtures("hip_toolchain")
def test_after_ctrl_c_a_run_goes_on_where_it_was(pin_cache, test_cache, capsys, monkeypatch) -> None:
    (pin_cache / "sdk").symlink_to(test_cache / "sdk" / "sdk")  # and an empty store of its own
    argv = [
        "tune",
        *SEED,
        "--arch",
        "gfx1151",
        "--rocwmma",
        "stand-in",
        "--variant",
        "64-16-f16",
        "--near",
        "1",
    ]
    for warps in (1, 2, 8, 16):
        argv += ["--exclude", f"64-16-f16:256/{warps}"]
    argv += ["--jobs", "1", "--json", "--cache-dir", str(pin_cache)]
    asked: list[str] = []

    def until_the_third(unit, bench):
        asked.append(unit)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(unit, bench)

    monkeypatch.setattr(tune_compile, "measure", until_the_third)
    assert main(argv) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "INTERRUPTED"
    kept = {path: path.stat().st_mtime_ns for path in pin_cache.glob("objects/*/*/outcome.json")}
    assert len(kept) == 2

    monkeypatch.setattr(tune_compile, "measure", measure)
    assert main(argv) == 0
    (variant,) = json.loads(capsys.readouterr().out)["variants"]
    assert len(variant["candidates"]) == len(set(asked)) == 3
    now = {path: path.stat().st_mtime_ns for path in pin_cache.glob("objects/*/*/outcome.json")}
    assert len(now) == 3
    assert kept.items() <= now.items()


def test_of_rdnas_own_table_nothing_is_ranked_above_what_spills_less_at_equal_waves(cache, capsys) -> None:
    # Nothing is known of how fast this GPU is, so the order is by judgement.
    argv = ["tune", *SEED, "--arch", "gfx1150", "--kernel", "tile", "--variant", "256-32", "--near", "1"]
    assert main([*argv, "--json", "--cache-dir", str(cache)]) == 0
    (variant,) = json.loads(capsys.readouterr().out)["variants"]
    figures = {tuple(each["setting"]): each["figures"][0] for each in variant["candidates"]}
    order = [figures[tuple(setting)] for setting in variant["order"]]
    assert len(order) > 3
    for place, better in enumerate(order):
        for worse in order[place + 1 :]:
            if better["waves"] == worse["waves"]:
                assert better["spills"] <= worse["spills"]
    assert any(
        "exceeds limit" in failure["message"] for failure in variant["failures"]
    )  # a row too large for LDS


def test_a_relative_compiles_only_what_is_first_by_the_report(tune, cache) -> None:
    code, found = tune("--arch", "gfx1100", "--like", "gfx1151")
    assert (code, found["error"]["code"]) == (2, "TUNE_RECORD_BAD")
    code, full = tune("--arch", "gfx1151", "--near", "1")
    assert code == 0
    path = cache / "tune" / "gfx1151-wmma-b6900.json"
    path.write_text(json.dumps({**full, "complete": True}))
    code, found = tune("--arch", "gfx1100", "--like", "gfx1151", "--shortlist", "1")
    assert code == 0
    (variant,) = found["variants"]
    compiled = {tuple(each["setting"]) for each in variant["candidates"]}
    assert compiled == {(256, 4), tuple(full["variants"][0]["best"])}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--arch", "gfx906"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx906", "--kernel", "mmq"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx1151", "--kernel", "mma"), 2, "TUNE_KERNEL_UNTUNABLE"),  # this build has no table
        (("--arch", "gfx1151", "--kernel", "mmq"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx1151", "--variant", "64-8-f16"), 2, "TUNE_OPTIONS"),
        (("--arch", "gfx1151", "--exclude", "80-32-f32:17/3"), 2, "TUNE_OPTIONS"),
        (("--arch", "gfx1151", "--near", "1", "--write"), 2, "TUNE_OPTIONS"),
        (("--arch", "gfx1151", "--rocwmma", "/nowhere"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx1151", "--device", "/nowhere"), 2, "TUNE_OPTIONS"),
    ],
)
def test_what_cannot_be_is_said(tune, arguments, code, said) -> None:
    found, document = tune(*arguments)
    assert (found, document["error"]["code"]) == (code, said)


def test_headers_that_do_not_know_the_gpu_are_refused(tune, tmp_path) -> None:
    folder = tmp_path / "include"
    (folder / "rocwmma" / "internal").mkdir(parents=True)
    (folder / "rocwmma" / "rocwmma.hpp").write_text("")
    (folder / "rocwmma" / "internal" / "config.hpp").write_text("__gfx1100__")
    code, document = tune("--arch", "gfx1151", "--rocwmma", str(folder))
    assert (code, document["error"]["code"]) == (2, "TUNE_KERNEL_UNTUNABLE")
    assert "does not support gfx1151" in document["error"]["message"]
    shutil.rmtree(folder)
