"""``estimate``: rows for each test and depth, figures with their source, and mistakes in the options."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_tensor("token_embd.weight", np.zeros((32, 64), dtype=np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((64, 64), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_each_test_and_depth_has_a_row_and_figures_have_their_source(capsys, model):
    assert main(["estimate", "--arch", "gfx1151", "--model", str(model), "--depth", "0,4096"]) == 0
    out = capsys.readouterr().out
    for name in ("pp512 ", "pp512 @ d4096", "tg128 ", "tg128 @ d4096"):
        assert f"\n{name}" in out
    assert "GB/s (measured, medium confidence: " in out
    assert "TFLOPS (specified, medium confidence: " in out
    assert "upper bound, not a forecast" in out


def test_the_document_has_what_the_text_has(capsys, model):
    speeds = ["--bandwidth", "100", "--tflops", "10"]
    argv = ["estimate", "--arch", "gfx1151", "--model", str(model), "--depth", "4096", "--kv-type", "q8_0"]
    assert main([*argv, "--pp", "0", *speeds, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert (row["test"], row["limit"], row["measured"]) == ("tg128 @ d4096", "memory", None)
    assert document["bandwidth"]["kind"] == "given"
    # One row of the embedding, one matrix, the tied output; a KV row is 4 heads of 16 values, K and V.
    kept = (4096 + 64.5) * 4 * 32 * 34 / 32
    assert row["bytes_per_token"] == pytest.approx(128 + 64 * 64 * 2 + 32 * 64 * 2 + kept)
    assert row["largest_attention_gain"] == pytest.approx(1 / (1 - row["attention_share"]))


def test_a_measurement_is_put_beside_the_bound(capsys, model, checkout):
    recorded = sorted((checkout / "tests/unit/gpu/hardware/recorded").glob("*.jsonl"))
    bench = recorded[0]
    row = json.loads(bench.read_text("utf-8").splitlines()[0])
    tokens = ["--pp", str(row["n_prompt"]), "--tg", str(row["n_gen"])]
    argv = ["estimate", "--arch", "gfx1151", "--model", str(model), *tokens, "--depth", str(row["n_depth"])]
    assert main([*argv, "--kv-type", row["type_k"], "--bench", str(bench), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert any(one["measured"] is not None and one["measured"]["tokens_per_second"] > 0 for one in rows)
    assert main([*argv, "--kv-type", row["type_k"], "--bench", str(bench)]) == 0
    assert "columns after 'measured'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], "OPTIONS_CONTRADICT"),
        (["--model", "MODEL", "--shape", "x.toml"], "OPTIONS_CONTRADICT"),
        (["--model", "MODEL", "--depth", "many"], "USAGE_VALUE"),
        (["--model", "MODEL", "--depth", "0,,1"], "USAGE_VALUE"),
        (["--model", "MODEL", "--depth", "99999999"], "USAGE_VALUE"),
        (["--model", "MODEL", "--pp", "0", "--tg", "0"], "NOTHING_TO_ESTIMATE"),
        (["--model", "MODEL", "--bandwidth", "nan"], "USAGE_VALUE"),
        (["--model", "MODEL", "--tflops", "inf"], "USAGE_VALUE"),
        (["--model", "MODEL", "--arch", "gfx1115"], "ARCH_UNKNOWN"),
        (["--model", "missing.gguf"], "GGUF_BAD"),
        (["--shape", "missing.toml"], "TOML_MISSING"),
        (["--model", "MODEL", "--bench", "missing.jsonl"], "BENCH_FILE_BAD"),
        (["--model", "MODEL", "--bench", "MODEL"], "BENCH_FILE_BAD"),
        (["--model", "MODEL", "--bench", "DAMAGED"], "BENCH_FILE_BAD"),
    ],
)
def test_bad_options_have_an_error_of_their_own(capsys, tmp_path, model, options, code):
    (damaged := tmp_path / "damaged.jsonl").write_text("build: 6900\n")
    files = {"MODEL": str(model), "DAMAGED": str(damaged)}
    named = [files.get(option, option) for option in options]
    assert main(["estimate", "--arch", "gfx1151", *named]) == ExitCode.USAGE
    assert f"error[{code}]" in capsys.readouterr().err


def test_a_description_that_is_not_there_is_answered_with_one_that_is(capsys, tmp_path, monkeypatch):
    """Outside of the clone ``arch_profiles/models`` of the example is nowhere below the current folder."""
    monkeypatch.chdir(tmp_path)
    argv = ["estimate", "--arch", "gfx1151", "--shape"]
    assert main([*argv, "arch_profiles/models/gpt-oss-20b-f16.toml"]) == ExitCode.USAGE
    hint = capsys.readouterr().err.rpartition("hint: --shape ")[2].strip()
    assert Path(hint).is_absolute()
    assert Path(hint).is_file()
    assert main([*argv, "other.toml"]) == ExitCode.USAGE
    folder = capsys.readouterr().err.rpartition("hint: ls ")[2].partition(" lists")[0]
    assert (Path(folder) / "gpt-oss-20b-f16.toml").is_file()


def test_a_file_that_llama_bench_did_not_write_is_told_with_how_to_make_one(capsys, model):
    main(["estimate", "--arch", "gfx1151", "--model", str(model), "--bench", str(model)])
    assert "hint: measure again: llama-bench ... -o jsonl > FILE" in capsys.readouterr().err


def test_a_damaged_model_is_refused(capsys, model):
    model.write_bytes(model.read_bytes()[:200])
    assert main(["estimate", "--arch", "gfx1151", "--model", str(model)]) == ExitCode.USAGE
    assert "error[GGUF_BAD]" in capsys.readouterr().err
