"""What ``pick`` refuses before it does anything."""

from __future__ import annotations

import pytest
from command_line import run_patchkit


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--emulated",), "HARDWARE_REFUSED"),
        (("--modelled",), "HARDWARE_REFUSED"),
        (("--emulated", "--modelled", "--backend", "hip"), "HARDWARE_REFUSED"),
        (("--emulated", "--modelled", "--runner", "ssh://x"), "HARDWARE_REFUSED"),
        (("--tests", "pp"), "PICK_TEST_BAD"),
        (("--plot", "gains.gif"), "BENCH_PLOT_FORMAT_UNKNOWN"),
        (("--model", "none.gguf"), "OPTIONS_CONTRADICT"),
        (("--backend", "cpu"), "MODEL_MISSING"),
        (("--minutes", "0"), "USAGE_VALUE"),
        (("--minutes", "nan"), "USAGE_VALUE"),
        (("--minutes", "inf"), "USAGE_VALUE"),
        (("--least", "nan"), "USAGE_VALUE"),
        (("--builds", "0"), "USAGE_VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(more, code, tmp_path):
    argv = ["pick", "--arch", "gfx1151", "--model", "none.gguf", *more]
    done = run_patchkit(*argv, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr


def test_a_model_whose_name_cannot_be_written_down_is_refused(tmp_path):
    (tmp_path / "bad\udcff.gguf").write_bytes(b"GGUF")
    argv = ["pick", "--arch", "gfx1151", "--backend", "cpu", "--model", "bad\udcff.gguf"]
    done = run_patchkit(*argv, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2
    assert "error[MODEL_UNREADABLE]: the name of a model is not UTF-8" in done.stderr
    assert not list(tmp_path.rglob("journal.jsonl"))
