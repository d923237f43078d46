"""patchkit verify through the command line, on the real pin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from adopted import adopt
from command_line import run_patchkit
from filelock import FileLock
from shipped import ROOT, SEED, recorded

from patchkit.base.errors import ExitCode

TREE = recorded("gfx1151", 6900).tree


def patchkit(*argv: str, cache: Path) -> tuple[int, str, str]:
    """The exit code of a command, its document or text, and what it said."""
    done = run_patchkit(*argv, "--cache-dir", cache)
    return done.returncode, done.stdout, done.stderr


def test_gates_of_a_gpu_are_not_pretended(candidate_cache: Path) -> None:
    argv = ("verify", "--no-gpu", *SEED)
    code, out, err = patchkit(*argv, "--json", "--gate", "anchors", cache=candidate_cache)
    assert code == 0, err
    rows = {gate["gate"]: gate["verdict"] for gate in json.loads(out)["gates"]}
    assert {rows[name] for name in ("backend-ops", "logits", "bench")} == {"not run"}
    code, _, err = patchkit(*argv, "--gate", "logits", cache=candidate_cache)
    assert code == ExitCode.USAGE
    assert "gate 'logits' cannot run here: it needs the GPU" in err


def test_no_gpu_and_a_backend_contradict_each_other(pin_cache: Path) -> None:
    for argv in (
        ("--no-gpu", "--backend", "cpu"),
        ("--no-gpu", "--emulated"),
        ("--emulated", "--backend", "hip"),
    ):
        code, _, err = patchkit("verify", *argv, "--arch", "gfx1151", cache=pin_cache)
        assert code == ExitCode.USAGE
        assert "error[OPTIONS_CONTRADICT]" in err


def test_there_must_be_a_candidate_and_a_compiler(
    pin_cache: Path, candidate_cache: Path, monkeypatch
) -> None:
    code, _, err = patchkit("verify", "--no-gpu", *SEED, cache=pin_cache)
    assert code == ExitCode.GIT
    assert "patchkit apply --arch gfx1151" in err
    monkeypatch.setattr("patchkit.toolchain.hip.rocm_locations", lambda _: [])
    code, _, err = patchkit("verify", "--no-gpu", *SEED, cache=candidate_cache)
    assert code == ExitCode.TOOLCHAIN
    assert "patchkit sdk install" in err


def test_anchors_need_no_compiler_and_leave_evidence(candidate_cache: Path) -> None:
    argv = ("verify", "--no-gpu", *SEED, "--gate", "anchors")
    code, out, err = patchkit(*argv, cache=candidate_cache)
    assert code == 0, err
    assert "passed   anchors      12 edits of 4 patches resolve to 26 places, as in the candidate" in out
    assert "skipped  isolation    not selected with --gate" in out
    assert "skipped  backend-ops  not selected" in out
    assert "does it fit?    4 patches apply; not checked: isolation, compile, resources, launch" in out
    evidence = json.loads((candidate_cache / "evidence" / TREE / "anchors.json").read_text())
    assert len(evidence["evidence"]["edits"]) == 12
    code, out, _ = patchkit(*argv, "--json", cache=candidate_cache)
    document = json.loads(out)
    assert (code, document["ok"], document["tree"]) == (0, True, TREE)
    assert [gate["gate"] for gate in document["gates"]][:2] == ["anchors", "isolation"]


def test_a_candidate_of_another_series_is_stale(candidate_cache: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    template = series / "patches/0001-wmma-tile-params/fattn-wmma-config.cuh.jinja"
    template.write_text(template.read_text() + "// changed\n")
    argv = ("verify", "--no-gpu", *SEED, "--gate", "anchors", "--series-dir", str(series))
    assert patchkit(*argv, cache=candidate_cache)[0] == ExitCode.GIT
    adopt(candidate_cache, series, "candidate/gfx1151/b6900")
    code, out, err = patchkit(*argv, cache=candidate_cache)
    assert code == ExitCode.GATE_FAILED
    assert "FAILED   anchors" in out
    assert "does it fit?    no: anchors failed" in out
    assert "error[ANCHORS_STALE]: ggml/src/ggml-cuda/fattn-wmma-config.cuh" in err
    assert "patchkit apply --arch gfx1151" in err


@pytest.mark.hip
@pytest.mark.slow
def test_the_shipped_candidate_passes_and_a_second_run_compiles_nothing(
    gates_cache: Path, hip_toolchain
) -> None:
    with FileLock(gates_cache.with_name("gates.lock")):
        assert patchkit("apply", *SEED, cache=gates_cache)[0] == 0
        argv = ["verify", "--no-gpu", *SEED]
        for gate in ("anchors", "isolation", "compile", "resources"):
            argv += ["--gate", gate]
        code, out, err = patchkit(*argv, cache=gates_cache)
        assert code == 0, err
        code, again, err = patchkit(*argv, "--json", cache=gates_cache)
        assert code == 0, err
        code, out, err = patchkit(*argv, "--fresh", "--json", cache=gates_cache)
    assert code == 0, err
    assert again.count("reused: nothing that it checks has changed") == 4
    assert "reused" not in out
    assert "466 of 466 preprocessor outputs identical (12 units, 39 configurations)" in out
    assert "HIP host code unchanged for other GPUs in 4 of 4 units" in out
    assert "0 passes compiled now" in out
    assert "0 worse" in out
    assert "occupancy model and compiler agree on all" in out
    assert f"rocWMMA for gfx1151: {hip_toolchain.rocwmma.version}" in out or hip_toolchain.kind == "rocm"
