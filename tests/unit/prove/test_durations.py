"""How long measuring takes, counted by hand."""

from __future__ import annotations

import json

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.modelled.estimate import MeasuredSpeed
from patchkit.gpu.modelled.roofline import Figure, Peaks, bound_of
from patchkit.gpu.modelled.roofline import Test as Run
from patchkit.gpu.modelled.shape import Layer, ModelShape, Weight
from patchkit.prove.durations import call_seconds, durations_of, seconds_from

F16 = tensor_kinds_by_name()["F16"]
MODEL = ModelShape(
    name="m",
    source="test",
    layers=(Layer(heads=8, kv_heads=8, head_size_k=64, head_size_v=64),) * 4,
    weights=(Weight(name="w.weight", shape=(4096, 4096), kind=F16, role="matrix", count=4),),
)


def _figure(value: float, unit: str) -> Figure:
    return Figure(value=value, unit=unit, kind="given", source="test", confidence="-")


PEAKS = Peaks(bandwidth=_figure(200, "GB/s"), compute=_figure(50, "TFLOPS"))


def by_tokens(test: Run) -> float:
    """A token takes a second; at a depth, a thousandth more for each token before."""
    return test.tokens * (1 + test.depth / 1000)


def test_a_call_fills_the_cache_warms_up_and_repeats() -> None:
    plan = BenchPlan(depths=(0,), prompts=(512,), generated=(128,), repetitions=3)
    assert call_seconds(plan, by_tokens) == 4 * 512 + 1 + 3 * 128
    plan = BenchPlan(depths=(0, 1000), prompts=(), generated=(10,), repetitions=2)
    assert call_seconds(plan, by_tokens) == (1 + 20) + 1000 + 2 * (1 + 20)


def test_the_commands_make_as_many_calls_as_their_defaults_ask_for() -> None:
    found = {each.command: each for each in durations_of(by_tokens)}
    assert {name: each.calls for name, each in found.items()} == {
        "bench run": 2 * 3 * 5,
        "verify --gate bench": 3 * 10,
        "pick": 2 * (5 + 8) + 24 * 10,
    }
    assert found["pick"].seconds == 266 * (4 * 512 + 1 + 3 * 128)


def test_a_measurement_scales_the_tests_of_its_kind() -> None:
    bound = seconds_from(MODEL, PEAKS, F16, {})
    prompt, token = Run(tokens=512, depth=4096, batch=512), Run(tokens=128, depth=0, batch=1)
    assert bound(prompt) == bound_of(MODEL, prompt, PEAKS, F16).seconds
    at = Run(tokens=512, depth=0, batch=512)
    rate = bound_of(MODEL, at, PEAKS, F16).rate / 3  # a third of the bound
    measured = MeasuredSpeed(
        prompt=512, generated=0, depth=0, rate=rate, samples=3, base_rate=rate, base_depth=0
    )
    scaled = seconds_from(MODEL, PEAKS, F16, {(512, 0, 0): measured})
    assert scaled(prompt) == pytest.approx(3 * bound(prompt))
    assert scaled(token) == bound(token)


def test_estimate_shows_drafts_and_durations(checkout, capsys) -> None:
    shape = checkout / "arch_profiles" / "models" / "qwen3-30b-a3b-q4_k_m.toml"
    argv = ["estimate", "--arch", "gfx1151", "--shape", str(shape), "--depth", "0,4096"]
    assert main([*argv, "--drafts", "3", "--durations", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["durations"][0]["command"] == "bench run"
    # Four tokens use more experts than one, so a step costs more, but less than four tokens do.
    assert all(1.2 < each["pays_from"] < 4 for each in document["drafts"])
    assert all(each["drafting_seconds"] is None for each in document["drafts"])
    small = shape.with_name("llama-3.2-1b-q4_k_m.toml")
    drafting = (*argv, "--drafts", "3", "--draft-model", str(small), "--acceptance", "0.5", "--json")
    assert main([*drafting]) == 0
    for free, paid in zip(document["drafts"], json.loads(capsys.readouterr().out)["drafts"], strict=True):
        assert paid["verifying_seconds"] == free["verifying_seconds"]
        seconds = paid["verifying_seconds"] + paid["drafting_seconds"]
        assert paid["tokens_per_second"] == pytest.approx(2.5 / seconds)
        assert paid["pays_from"] > free["pays_from"]
    assert main([*argv, "--drafts", "3", "--durations"]) == 0
    shown = capsys.readouterr().out
    assert "Speculative decoding" in shown
    assert "at least, computed from the bound" in shown
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["drafts"], document.get("durations")) == ([], None)
    for options in (("--draft-model", str(small)), ("--acceptance", "0.5")):
        assert main([*argv, *options, "--json"]) == ExitCode.USAGE
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "OPTIONS_CONTRADICT"
