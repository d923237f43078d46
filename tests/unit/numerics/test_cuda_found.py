"""Finding nvcc, its headers and a GPU; the programs are small scripts of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gates.numerics.cuda import find_cuda, find_gpus

RELEASE = "Cuda compilation tools, release 13.0, V13.0.88"


def program(path: Path, text: str, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


def header(root: Path) -> Path:
    (root / "include").mkdir(parents=True)
    (root / "include" / "cublas_v2.h").write_text("")
    return root


def test_cuda_home_comes_before_path(tmp_path: Path) -> None:
    named = program(header(tmp_path / "home") / "bin" / "nvcc", RELEASE)
    program(header(tmp_path / "other") / "bin" / "nvcc", RELEASE)
    environ = {"CUDA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")}
    found = find_cuda(environ, NullReporter(), roots=[])
    assert (found.nvcc, found.version, found.flags) == (named, "13.0.88", ())


def test_nvcc_may_lie_in_a_wheel_and_its_headers_in_another(tmp_path: Path) -> None:
    program(tmp_path / "nvcc" / "bin" / "nvcc", RELEASE)
    roots = [tmp_path / "nvcc", header(tmp_path / "cublas")]
    found = find_cuda({"PATH": ""}, NullReporter(), roots=roots)
    assert found.nvcc == tmp_path / "nvcc" / "bin" / "nvcc"
    assert found.flags == (f"-I{tmp_path / 'cublas' / 'include'}",)


def test_no_nvcc(tmp_path: Path) -> None:
    with refused("NVCC_MISSING", match="there is no nvcc"):
        find_cuda({"PATH": str(tmp_path)}, NullReporter(), roots=[tmp_path])


@pytest.mark.parametrize(("text", "status"), [("hello", 0), (RELEASE, 1)])
def test_an_nvcc_that_is_none(tmp_path: Path, text: str, status: int) -> None:
    one = program(tmp_path / "nvcc", text, status)
    with refused("NVCC_MISSING"):
        find_cuda({"NVCC": str(one), "PATH": ""}, NullReporter(), roots=[])


def test_no_header_of_cublas(tmp_path: Path) -> None:
    one = program(tmp_path / "bin" / "nvcc", RELEASE)
    with refused("CUDA_HEADERS_MISSING") as caught:
        find_cuda({"NVCC": str(one), "PATH": ""}, NullReporter(), roots=[])
    assert "cublas_v2.h" in caught.value.message


def test_the_gpus_as_nvidia_smi_names_them(tmp_path: Path, monkeypatch, recorded: Path) -> None:
    program(tmp_path / "nvidia-smi", (recorded / "results" / "gpu.csv").read_text().strip())
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (gpu,) = find_gpus(NullReporter())
    assert (gpu.name, gpu.driver, gpu.arch) == ("NVIDIA H200", "580.159.04", "sm_90")


@pytest.mark.parametrize(("text", "status"), [("No devices were found", 6), ("", 0), ("a, b", 0)])
def test_a_driver_without_a_gpu(tmp_path: Path, monkeypatch, text: str, status: int) -> None:
    program(tmp_path / "nvidia-smi", text, status)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with refused("NVIDIA_GPU_MISSING"):
        find_gpus(NullReporter())


def test_no_nvidia_smi(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("NVIDIA_GPU_MISSING") as caught:
        find_gpus(NullReporter())
    assert caught.value.why == "there is no nvidia-smi"
