"""``patchkit model``: times with what limits them, published ones beside, requests that mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock
from small_disk import on_small_disk

pytestmark = [pytest.mark.hip, pytest.mark.slow]

Model = Callable[..., "subprocess.CompletedProcess[str]"]
_HEADS = ("--head-size", "64", "--heads", "8")
_SIDES = ("upstream", "rocWMMA", "candidate")
_HUGE = ("--type", "f32", "--rows", "1048576")
_PRODUCT = ("--type", "q4_0", "--rows", "256", "--columns", "256", "--tokens", "1")


@pytest.fixture(scope="module")
def model(gates_cache: Path, test_cache: Path) -> Model:
    """Runs the command in a process of its own, where there is a candidate."""
    made = [sys.executable, "-m", "patchkit", "--cache-dir", str(gates_cache), "apply", "--arch", "gfx1151"]
    with FileLock(test_cache / "gates.lock"):
        subprocess.run([*made, "--upstream", "b6900"], check=True, capture_output=True)

    def run(
        *arguments: str | Path, arch: str = "gfx1151", below: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        argv = [*below, sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, "model", "--arch", arch]
        if "--against" not in arguments:  # whose rows name their builds
            argv += ["--upstream", "b6900"]
        return subprocess.run(
            [*map(str, argv), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=900
        )

    return run


def test_a_product_has_a_time_for_each_kernel_and_says_what_limits_it(model: Model):
    done = model(*_PRODUCT, "--json")
    assert done.returncode == 0, done.stderr
    upstream = json.loads(done.stdout)["upstream"]
    names = [kernel["played"]["kernel"] for kernel in upstream["kernels"]]
    assert ["quantize_q8_1" in names[0], "mul_mat_vec_q" in names[1], len(names)] == [True, True, 2]
    assert upstream["us"] == pytest.approx(sum(kernel["us"] for kernel in upstream["kernels"]))
    assert (upstream["kind"], upstream["modelled"], upstream["not_modelled"]) == ("mmvq", True, [])
    small = upstream["kernels"][1]
    assert (small["limit"], small["played"]["blocks"]) == ("launch", 256)
    shown = model(*_PRODUCT).stdout
    assert shown.startswith("MUL_MAT q4_0 of 1 tokens (modelled, not measured)\nclock of a cool machine ")
    assert "\nupstream: " in shown


def test_larger_matrices_take_longer_and_those_in_a_cache_do_not_wait_for_dram(model: Model):
    large = ("--type", "q8_0", "--rows", "4096", "--columns", "4096", "--tokens", "1", "--json")
    far, near = (json.loads(model(*large, *more).stdout)["upstream"] for more in ((), ("--repeated",)))
    assert far["us"] > 2 * near["us"]
    assert (far["kernels"][1]["limit"], near["kernels"][1]["played"]["busy"]["dram"]) == ("DRAM", 0.0)


def test_attention_is_modelled_with_the_kernels_that_its_batch_gets(model: Model):
    decode = (
        "--head-size",
        "64",
        "--heads",
        "8",
        "--kv-heads",
        "2",
        "--kv",
        "512",
        "--tokens",
        "1",
        "--json",
    )
    done = model(*decode)
    assert done.returncode == 0, done.stderr
    sides = json.loads(done.stdout)
    first = {side: time["kernels"][0]["played"]["kernel"] for side, time in sides.items() if side in _SIDES}
    assert "flash_attn_tile" in first["upstream"]
    assert "flash_attn_ext_vec" in first["rocWMMA"]
    assert "flash_attn_tile" in first["candidate"]


def test_published_times_stand_beside_modelled_ones_and_the_rest_says_why_not(model: Model, tmp_path: Path):
    file = tmp_path / "measured.toml"
    file.write_text(
        "[[row]]\nkind = 'kernel-time'\ngroup = 'one'\ndate = '2025-10-31'\n"
        "what = 'MUL_MAT via mul_mat_vec_q (MMVQ)'\ntype = 'q4_0'\nM = 256\nN = 1\nK = 256\nus_before = 8.0\n"
        "[[row]]\nkind = 'model-decode'\ngroup = 'two'\n"
        "[[row]]\nkind = 'model-decode'\ngroup = 'three'\ndate = '2025-10-28'\nwhat = 'tg128'\n"
        "model = 'llama 1B Q4_K - Medium'\nconfig_before = 'HIP, no rocWMMA'\nts_before = '195.65'\n",
        "utf-8",
    )
    done = model("--against", file, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (point,) = found["points"]
    assert (point["build"], point["kind"], point["measured_us"]) == (6900, "mmvq", 8.0)
    assert point["error"] == pytest.approx(point["modelled_us"] / 8.0 - 1)
    assert found["errors"]["points"]["all points"]["points"] == 1
    why = "whole model: no shape of ''"
    assert found["not_modelled"] == [{"row": 1, "group": "two", "side": None, "why": why}]
    (whole,) = found["models"]
    assert (whole["test"], whole["batch"], whole["depth"], whole["build"]) == ("tg128", 1, 63, 6900)
    assert abs(whole["error"]) < 0.2  # published by lhl: 195.65 tokens per second
    assert list(found["errors"]["models"]) == ["generated tokens"]
    shown = model("--against", file).stdout
    assert f"two: {why}" in shown
    assert "llama 1B Q4_K - Medium, tg128: 1 tokens @ d63" in shown


def test_a_product_of_experts_says_that_its_error_is_not_known(model: Model):
    done = model(*_PRODUCT, "--experts", "8", "--used", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MUL_MAT_ID q4_0 of 1 tokens")
    assert "no MoE matmul was compared with a published time" in done.stdout


def _shape(file: Path, layers: int) -> Path:
    kinds = ("attn_q", "attn_output", "ffn_up", "ffn_down")
    tensors = [
        '{ name = "token_embd.weight", shape = [256, 512], type = "Q4_0" }',
        *(
            f'{{ name = "blk.*.{kind}.weight", shape = [256, 256], type = "Q4_0", count = {layers} }}'
            for kind in kinds
        ),
    ]
    file.write_text(
        f'name = "{file.stem}"\nsource = "made up"\nlayers = {layers}\nheads = 4\nkv_heads = 4\n'
        f"head_size = 64\ntensors = [{', '.join(tensors)}]\n"
    )
    return file


def test_a_step_with_drafts_takes_the_time_of_drafting_and_of_verifying(model: Model, tmp_path: Path):
    large, small = _shape(tmp_path / "large.toml", 4), _shape(tmp_path / "small.toml", 1)
    step = ("--shape", large, "--pp", "0", "--tg", "2", "--drafts", "3")
    done = model(*step, "--draft-model", small, "--acceptance", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["tests"]) == ["tg2 @ d0", "verify4 @ d1", "draft1 @ d1"]
    assert set(found["drafts"]) == {"upstream", "rocWMMA", "candidate"}
    for side, drafted in found["drafts"].items():
        token, verify, draft = (found["tests"][test][side]["tokens_per_second"] for test in found["tests"])
        assert (drafted["depth"], drafted["drafts"], drafted["acceptance"]) == (1, 3, 0.5)
        assert drafted["verifying_seconds"] == pytest.approx(4 / verify)
        assert drafted["drafting_seconds"] == pytest.approx(3 / draft)
        seconds = 4 / verify + 3 / draft
        assert drafted["tokens_per_second"] == pytest.approx(2.5 / seconds)
        assert drafted["tokens_per_second_if_all_are_accepted"] == pytest.approx(4 / seconds)
        assert drafted["pays_from"] == pytest.approx(seconds * token)
    shown = model(*step).stdout
    assert "Speculative decoding: a step verifies 3 drafts" in shown
    assert "if 71 % are (--acceptance)" in shown
    assert "Drafting is not counted" in shown


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ((), 2, "OPERATION_NOT_NAMED"),
        (("--type", "q4_0", "--rows", "256", "--tokens", "1"), 2, "OPERATION_NOT_NAMED"),
        ((*_PRODUCT, "--head-size", "64", "--kv", "256"), 2, "OPERATION_NOT_NAMED"),
        (("--type", "q4_9", "--rows", "256", "--columns", "256", "--tokens", "1"), 2, "TENSOR_TYPE_UNKNOWN"),
        (("--type", "q4_K", "--rows", "256", "--columns", "300", "--tokens", "1"), 2, "COLUMNS_NOT_WHOLE"),
        ((*_PRODUCT, "--experts", "2", "--used", "3"), 2, "USAGE_SYNTAX"),
        ((*_HEADS, "--kv-heads", "3", "--kv", "256", "--tokens", "1"), 2, "USAGE_SYNTAX"),
        ((*_HEADS, "--kv", "256", "--tokens", "1", "--kv-type", "q9"), 2, "TENSOR_TYPE_UNKNOWN"),
        ((*_HUGE, "--columns", "1048576", "--tokens", "1"), 6, "TIMING_RUN_FAILED"),
        (("--against", "missing.toml"), 2, "TOML_MISSING"),
        (("--against", "missing.toml", "--tokens", "3"), 2, "USAGE_SYNTAX"),
        (("--gguf", "missing.gguf"), 2, "GGUF_BAD"),
        ((*_PRODUCT, "--drafts", "3"), 2, "USAGE_SYNTAX"),
        ((*_PRODUCT, "--acceptance", "0.5"), 2, "OPTIONS_CONTRADICT"),
        (("--shape", "m.toml", "--timeline", "--drafts", "3"), 2, "USAGE_SYNTAX"),
        (("--against", "missing.toml", "--drafts", "3"), 2, "USAGE_SYNTAX"),
    ],
)
def test_a_request_that_means_nothing_is_refused(model: Model, arguments, status, code):
    done = model(*arguments, "--json")
    assert (json.loads(done.stdout)["error"]["code"], done.returncode) == (code, status)


def test_a_full_disk_ends_a_recording_and_leaves_no_part_of_it(model: Model, gates_cache: Path):
    traces = gates_cache / "timing" / "traces"
    script = f"\"$@\"; status=$?; find '{traces}' -name '.partial*'; exit $status"
    done = model(*_PRODUCT, "--json", below=on_small_disk(traces, 64, script))
    told, end = json.JSONDecoder().raw_decode(done.stdout)
    assert (told["error"]["code"], done.returncode, done.stdout[end:].strip()) == ("DISK_FULL", 8, "")


def test_a_gpu_of_which_nothing_is_known_is_refused(model: Model):
    done = model(*_PRODUCT, "--json", arch="gfx1201")
    assert json.loads(done.stdout)["error"]["code"] == "TIMING_UNKNOWN"
