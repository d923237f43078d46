"""Starting a wheel's programs, with a backend that loads and with one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.toolchain.package import PackageContents, init_text


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package as in a wheel: its backend needs a second library, its program prints its arguments."""
    contents = PackageContents(
        name="llama-cpp-gfx1151",
        version="6900",
        summary="",
        programs=("llama-bench",),
        licence=tmp_path / "LICENSE",
        information={"build": "6900", "for": "gfx1151 (hip)", "needs": "the HIP runtime of ROCm 6"},
    )
    binaries = tmp_path / contents.module / "bin"
    binaries.mkdir(parents=True)
    (binaries.parent / "__init__.py").write_text(init_text(contents, "libggml-hip.so"))
    program = binaries / "llama-bench"
    program.write_text('#!/bin/sh\necho "ran with $*"\n')
    program.chmod(0o755)
    (tmp_path / "runtime.c").write_text("int runtime(void) { return 0; }\n")
    (tmp_path / "backend.c").write_text("int runtime(void); int backend(void) { return runtime(); }\n")
    for name, source, more in (
        ("libruntime.so.6", "runtime.c", ["-Wl,-soname,libruntime.so.6"]),
        ("libggml-hip.so", "backend.c", ["-l:libruntime.so.6", "-Wl,-rpath,$ORIGIN"]),
    ):
        argv = ["cc", "-shared", "-fPIC", "-o", str(binaries / name), str(tmp_path / source)]
        subprocess.run([*argv, f"-L{binaries}", *more], check=True)
    return binaries


def start(package: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    code = "import llama_cpp_gfx1151; llama_cpp_gfx1151.llama_bench()"
    return subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=package.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_gets_its_arguments(package: Path) -> None:
    assert start(package, "-p", "16").stdout == "ran with -p 16\n"


def test_without_the_runtime_it_fails_and_does_not_run_on_the_cpu(package: Path) -> None:
    (package / "libruntime.so.6").unlink()
    done = start(package, "-p", "16")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: cannot load libggml-hip.so: libruntime.so.6: cannot open" in done.stderr
    assert "this wheel is for gfx1151 (hip) and requires the HIP runtime of ROCm 6" in done.stderr
    assert start(package, "--help").stdout == "ran with --help\n"
