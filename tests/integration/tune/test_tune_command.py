"""``patchkit tune`` on the real kernel with a real compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.cli.app import main
from patchkit.tune import run as tune_compile
from patchkit.tune.measure import measure

pytestmark = [pytest.mark.hip, pytest.mark.slow]

VARIANT = "256-32"
SEED = ("--kernel", "tile", "--upstream", "b6900")


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
    def run(*arguments: str) -> tuple[int, dict]:
        argv = ["tune", *SEED, "--json"]
        code = main([*argv, "--cache-dir", str(cache), "--variant", VARIANT, *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def _objects(test_cache: Path) -> set[str]:
    return {path.name for path in (test_cache / "gates" / "objects").glob("*/*") if len(path.name) == 64}


def test_the_best_is_never_worse_than_upstream_and_a_second_run_compiles_nothing(tune, test_cache) -> None:
    # Nothing is known of how fast this GPU is, so nothing is timed.
    code, first = tune("--arch", "gfx1150", "--near", "1")
    assert code == 0, first
    (variant,) = first["variants"]
    by_setting = {tuple(each["setting"]): each for each in variant["candidates"]}
    upstream, best = (by_setting[tuple(variant[name])]["figures"] for name in ("upstream", "best"))
    assert best["spills"] <= upstream["spills"]
    assert best["waves"] >= upstream["waves"]
    assert best["resident"] >= upstream["resident"]
    assert len(by_setting) > 3
    assert upstream["loop"]["matrix"] == 0  # TILE does without matrix instructions
    assert not first["complete"]

    before = _objects(test_cache)
    code, second = tune("--arch", "gfx1150", "--near", "1")
    assert (code, second) == (0, first)
    assert _objects(test_cache) == before


@pytest.mark.usefixtures("hip_toolchain")
def test_after_ctrl_c_a_run_goes_on_where_it_was(pin_cache, test_cache, capsys, monkeypatch) -> None:
    (pin_cache / "sdk").symlink_to(test_cache / "sdk" / "sdk")  # and an empty store of its own
    # Nothing is known of how fast this GPU is, so nothing is timed.
    argv = ["tune", *SEED, "--arch", "gfx1150", "--variant", VARIANT, "--near", "1"]
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
    now = {path: path.stat().st_mtime_ns for path in pin_cache.glob("objects/*/*/outcome.json")}
    assert len(now) >= len(variant["candidates"]) + len(variant["failures"]) > len(kept)
    assert kept.items() <= now.items()


def test_of_rdnas_own_table_nothing_is_ranked_above_what_spills_less_at_equal_waves(cache, capsys) -> None:
    # Nothing is known of how fast this GPU is, so the order is by judgement.
    argv = ["tune", *SEED, "--arch", "gfx1150", "--variant", VARIANT, "--near", "1"]
    assert main([*argv, "--json", "--cache-dir", str(cache)]) == 0
    (variant,) = json.loads(capsys.readouterr().out)["variants"]
    figures = {tuple(each["setting"]): each["figures"] for each in variant["candidates"]}
    order = [figures[tuple(setting)] for setting in variant["order"]]
    assert len(order) > 3
    for place, better in enumerate(order):
        for worse in order[place + 1 :]:
            if better["waves"] == worse["waves"]:
                assert better["spills"] <= worse["spills"]
    assert any(
        "exceeds limit" in failure["message"] for failure in variant["failures"]
    )  # a row too large for LDS


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--arch", "gfx906"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx906", "--kernel", "mmq"), 2, "TUNE_KERNEL_UNTUNABLE"),
        (("--arch", "gfx1151", "--kernel", "mmq"), 2, "TUNE_KERNEL_UNTUNABLE"),  # this build has no table
        (("--arch", "gfx1151", "--variant", "64-8-f16"), 2, "TUNE_OPTIONS"),
        (("--arch", "gfx1151", "--exclude", "256-32:17/3"), 2, "TUNE_OPTIONS"),
        (("--arch", "gfx1150", "--near", "1", "--write"), 2, "TUNE_OPTIONS"),
    ],
)
def test_what_cannot_be_is_said(tune, arguments, code, said) -> None:
    found, document = tune(*arguments)
    assert (found, document["error"]["code"]) == (code, said)
