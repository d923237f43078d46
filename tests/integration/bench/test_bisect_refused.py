"""Options of ``patchkit bisect`` that do not go together; nothing is fetched or built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.gpu.emulated.models import SmallModel

GPU = ("--arch", "gfx1151")
CPU = (*GPU, "--backend", "cpu")


@pytest.mark.parametrize(
    ("words", "code", "match"),
    [
        (CPU, "OPTIONS_CONTRADICT", "exactly one test"),
        (GPU, "OPTIONS_CONTRADICT", "exactly one test"),
        ((*CPU, "--op", "MUL_MAT", "--", "true"), "OPTIONS_CONTRADICT", "exactly one test"),
        ((*CPU, "--op", "MUL_MAT", "--bench", "pp512"), "OPTIONS_CONTRADICT", "exactly one test"),
        ((*CPU, "--bench", "pp512"), "OPTIONS_CONTRADICT", "requires --model"),
        ((*CPU, "--bench", "fast", "--model", "MODEL"), "USAGE_VALUE", "'fast' is not a test"),
        ((*CPU, "--bench", "pp512", "--model", "none.gguf"), "MODEL_MISSING", "not found"),
        ((*CPU, "--op", "ROPE", "--model", "MODEL"), "OPTIONS_CONTRADICT", "--model"),
        ((*CPU, "--case", "x", "--", "true"), "OPTIONS_CONTRADICT", "--case"),
        ((*CPU, "--op", "ROPE", "--program", "llama-cli"), "OPTIONS_CONTRADICT", "--program"),
        ((*CPU, "--op", "ROPE", "--good", "b6900"), "OPTIONS_CONTRADICT", "--good"),
        ((*CPU, "--emulated", "--op", "ROPE"), "OPTIONS_CONTRADICT", "--emulated"),
        ((*GPU, "--emulated", "--bench", "pp512", "--model", "MODEL"), "OPTIONS_CONTRADICT", "requires --op"),
        ((*GPU, "--emulated", "--", "true"), "OPTIONS_CONTRADICT", "requires --op"),
        ((*CPU, "--good", "b6900", "--onto", "HEAD", "--", "true"), "OPTIONS_CONTRADICT", "--onto"),
        ((*CPU, "--program", "install", "--", "true"), "USAGE_VALUE", "not a program"),
        # This machine has no GPU; contradictions are reported before that.
        ((*GPU, "--bench", "pp512"), "OPTIONS_CONTRADICT", "requires --model"),
        ((*GPU, "--bench", "pp512", "--model", "none.gguf"), "MODEL_MISSING", "not found"),
        ((*GPU, "--bench", "fast", "--model", "MODEL"), "USAGE_VALUE", "'fast' is not a test"),
        ((*GPU, "--op", "ROPE", "--model", "MODEL"), "OPTIONS_CONTRADICT", "--model"),
        ((*GPU, "--", "no-such-command"), "BISECT_COMMAND", "cannot be run"),
        ((*GPU, "--op", "ROPE", "--no-patches"), "OPTIONS_CONTRADICT", "--no-patches requires --good"),
        (("--op", "ROPE", "--emulated", "--backend", "hip"), "OPTIONS_CONTRADICT", "--emulated"),
        (("--case", "x", "--", "true"), "OPTIONS_CONTRADICT", "--case"),
        ((*CPU, "--", "no-such-command"), "BISECT_COMMAND", "cannot be run"),
        ((*CPU, "--", "/no/such/command"), "BISECT_COMMAND", "cannot be run"),
        ((*CPU, "--", "/etc/passwd"), "BISECT_COMMAND", "cannot be run"),
        ((*CPU, "--", "/etc"), "BISECT_COMMAND", "cannot be run"),
    ],
)
def test_refused(words: tuple[str, ...], code: str, match: str, tmp_path: Path, capsys) -> None:
    model = tmp_path / "model.gguf"
    SmallModel(head_size=64).write(model)
    given = [str(model) if word == "MODEL" else word for word in words]
    at = given.index("--") if "--" in given else len(given)
    given[at:at] = ["--cache-dir", str(tmp_path / "cache"), "--json"]
    assert main(["bisect", *given]) == ExitCode.USAGE
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert match in error["message"]
    assert not (tmp_path / "cache" / "upstream.git").exists()
