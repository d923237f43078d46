"""``patchkit bench run`` where it cannot measure: an error with the next command, before any work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused
from toolchains import toolchain_in

from patchkit.base.reporter import NullReporter
from patchkit.cli.app import main
from patchkit.gpu.hardware.gpus import has_nvidia_gpu
from patchkit.prove import build
from patchkit.prove.bench.arms import build_arms
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import RocWmma
from patchkit.toolchain.machine import _hip_part


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A candidate of nothing; its baseline offers the attention kernel on rocWMMA."""
    root = tmp_path / "tree"
    (root / "ggml").mkdir(parents=True)
    (root / "ggml" / "CMakeLists.txt").write_text("option(GGML_HIP_ROCWMMA_FATTN  OFF)\n", "utf-8")
    toolchain = toolchain_in(tmp_path, RocWmma(kind="stand-in", include=tmp_path, version="0"))
    return Subject(
        baseline=root,
        baseline_tree="0" * 40,
        candidate=root,
        candidate_tree="1" * 40,
        build=6900,
        archs=("gfx1151",),
        patches=(),
        profiles={},
        profiles_folder=tmp_path,
        authors={},
        toolchain=toolchain,
        cache_root=tmp_path / "cache",
        reporter=NullReporter(),
    )


@pytest.mark.parametrize("here", [(), ("gfx1030",)])
def test_without_the_gpu_the_way_to_one_is_named(capsys, monkeypatch, here: tuple[str, ...]) -> None:
    monkeypatch.setattr(build, "detect_gpus", lambda: here)
    monkeypatch.setattr(build, "has_amd_driver", lambda: False)
    for asked in ([], ["--backend", "hip"]):
        assert main(["bench", "run", "--arch", "gfx1151", "--json", *asked]) == 6
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "DEVICE_MISSING"
        assert "--runner ssh://HOST" in error["hint"]
        assert "--backend cpu" in error["hint"]
        assert (here[0] if here else "no AMD GPU") in error["why"]


@pytest.mark.skipif(has_nvidia_gpu(), reason="there is an NVIDIA GPU")
def test_without_an_nvidia_gpu_nothing_is_built_for_one(tmp_path: Path, capsys) -> None:
    argv = ["bench", "run", "--arch", "gfx1151", "--backend", "cuda", "--json"]
    assert main([*argv, "--cache-dir", str(tmp_path / "cache")]) == 6
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "DEVICE_MISSING"
    assert error["message"] == "this machine has no NVIDIA GPU"
    assert not list(tmp_path.iterdir())


def test_a_folder_of_something_else_is_told_before_anything_is_built(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    argv = ["bench", "run", "--arch", "gfx1151", "--backend", "cpu", "--json", "--out", str(tmp_path)]
    assert main([*argv, "--cache-dir", str(tmp_path.parent / "no-cache")]) != 0
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "BENCH_FOLDER_UNUSABLE"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_speed_is_not_measured_with_the_stand_in(subject: Subject) -> None:
    with refused("ROCWMMA_MISSING", match="none was found for gfx1151") as caught:
        build_arms(subject, "hip")
    assert "rocwmma-dev" in str(caught.value.hint)
    assert not subject.cache_root.exists()


@pytest.mark.hip
def test_the_baseline_without_rocwmma_differs_in_that_option_alone(subject: Subject, hip_toolchain) -> None:
    root = subject.baseline
    archs = ("gfx1151",)
    without, with_it = (
        _hip_part(root, archs, hip_toolchain, "cc", with_rocwmma=wanted) for wanted in (False, True)
    )
    assert without.key != with_it.key
    assert {**without.entries, "GGML_HIP_ROCWMMA_FATTN": True} == dict(with_it.entries)
    assert replace(without, entries=with_it.entries) == with_it
