"""The candidate's programs as a wheel and as an archive: made, installed and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from shipped import SEED

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.models import SmallModel, model_file
from patchkit.prove.subject import Subject

pytestmark = [pytest.mark.cpu_build, pytest.mark.slow]

PROGRAMS = ("llama-bench", "llama-cli", "llama-server", "test-backend-ops")


def package(cache: Path, out: Path, *options: str) -> dict[str, object]:
    argv = ["package", *SEED, "--backend", "cpu", "--out", str(out), *options, "--json", "-q"]
    for name in PROGRAMS:
        argv += ["--program", name]
    done = subprocess.run(
        [sys.executable, "-m", "patchkit", *argv, "--cache-dir", str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert [path.name for path in out.iterdir()] == [Path(document["file"]).name]
    return document


@pytest.fixture(scope="module")
def wheel(cpu_subject: Subject, cpu_cache: Path, tmp_path_factory) -> Path:
    return Path(str(package(cpu_cache, tmp_path_factory.mktemp("dist"))["file"]))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "v"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
    return folder / "bin"


def run(program: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *argv], env={"PATH": os.defpath}, capture_output=True, text=True, check=False
    )


def test_the_wheel_names_gpu_and_build_and_says_what_is_in_it(wheel: Path, cpu_subject: Subject) -> None:
    assert wheel.name.startswith(
        f"llama_cpp_gfx1151-6900+cpu.{cpu_subject.candidate_tree[:12]}-py3-none-linux"
    )
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert {f"llama_cpp_gfx1151/bin/{name}" for name in PROGRAMS} <= names
    assert "llama_cpp_gfx1151/bin/libggml-cpu.so" in names
    assert "License-Expression: MIT" in text
    assert any(name.endswith("LICENSE") for name in names)


def test_its_programs_run_from_a_clean_environment(
    environment: Path, cpu_cache: Path, cpu_subject: Subject
) -> None:
    version = f"version: 6900 ({cpu_subject.base[:9]})"
    for name in ("llama-cli", "llama-server"):
        done = run(environment / name, "--version")
        assert version in done.stdout + done.stderr, done
    listed = run(environment / "test-backend-ops", "--list-ops")
    assert "FLASH_ATTN_EXT" in listed.stdout
    model = model_file(SmallModel(head_size=64), cpu_cache, NullReporter())
    bench = run(
        environment / "llama-bench",
        *("-m", str(model), "-p", "16", "-n", "0", "-r", "1", "-t", "1", "-fa", "1", "-o", "jsonl"),
    )
    assert bench.returncode == 0, bench.stderr
    row = json.loads(bench.stdout)
    assert (row["n_prompt"], row["build_number"], row["build_commit"]) == (16, 6900, cpu_subject.base[:9])


def test_it_tells_which_trees_it_is_of(environment: Path, cpu_subject: Subject) -> None:
    program = "import json, llama_cpp_gfx1151 as one; print(json.dumps(one.INFORMATION))"
    done = run(environment / "python", "-c", program)
    information = json.loads(done.stdout)
    assert information["tree"] == cpu_subject.candidate_tree
    assert information["upstream"] == cpu_subject.base
    assert information["for"] == "gfx1151 (cpu)"


def test_an_archive_runs_where_it_is_unpacked_and_is_the_same_bytes_again(
    cpu_subject: Subject, cpu_cache: Path, tmp_path: Path
) -> None:
    made = package(cpu_cache, tmp_path / "first", "--format", "tar")
    again = package(cpu_cache, tmp_path / "second", "--format", "tar")
    assert made["sha256"] == again["sha256"]
    with tarfile.open(str(made["file"])) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    assert Path(str(made["file"])).name == f"{folder.name}.tar.gz"
    assert {"LICENSE", "patchkit.json", *PROGRAMS} <= {path.name for path in folder.iterdir()}
    assert json.loads((folder / "patchkit.json").read_text())["candidate"]
    for name in ("llama-bench", "llama-server"):
        done = run(folder / name, "--help")
        assert done.returncode == 0, done.stderr
