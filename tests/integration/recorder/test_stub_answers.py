"""The stub runtime takes whatever it is handed: every call, with each of its arguments wrong in turn.

``stub_calls.cpp`` is the table. It needs a C++ compiler and our own few lines of the HIP header; with a HIP
SDK the same table is held against the SDK's header.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.checks import native_checks
from patchkit.gpu.emulated.device import device_of, device_text
from patchkit.gpu.emulated.runtime import (
    _NATIVE,
    _STUB_SOURCES,
    _WARNINGS,
    STUB_NAMES,
    STUB_STANDARD,
    build_stub,
    cxx_of,
)
from patchkit.toolchain.compiler import Compiler

pytestmark = pytest.mark.slow

_HERE = Path(__file__).parent
_TABLE = _HERE / "stub_calls.cpp"


def _cxx() -> str:
    found = shutil.which("g++") or shutil.which("clang++")
    assert found, "the tests need a C++ compiler (apt-get install g++)"
    return found


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub, made with the machine's compiler and our own header."""
    folder = tmp_path_factory.mktemp("stub")
    flags = [STUB_STANDARD, "-O1", "-fPIC", "-shared", *_WARNINGS, "-isystem", str(_HERE / "headers")]
    flags.append(native_checks())
    sources = [str(_NATIVE / name) for name in _STUB_SOURCES]
    library = ["-ldl", f"-Wl,-soname,{STUB_NAMES[0]}", "-o", str(folder / STUB_NAMES[0])]
    subprocess.run([_cxx(), *flags, *sources, *library], check=True)
    return folder


def _answers(cxx: list[str], headers: Path, stub: Path, folder: Path, device: str) -> list[list[str]]:
    """The lines of the table's program: call, what was tried, expected, got."""
    (folder / "device").write_text(device, "utf-8")
    flags = ["-std=c++17", *_WARNINGS, "-D__HIP_PLATFORM_AMD__", "-isystem", str(headers)]
    link = [f"-L{stub}", "-lamdhip64", f"-Wl,-rpath,{stub}", "-o", str(folder / "calls")]
    subprocess.run([*cxx, *flags, str(_TABLE), *link], check=True)
    settings = {
        "PATH": os.environ["PATH"],
        "PATCHKIT_RECORDER_DEVICE": str(folder / "device"),
        "PATCHKIT_RECORDER_LOG": str(folder / "log"),
    }
    done = subprocess.run([str(folder / "calls")], env=settings, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def device(checkout: Path) -> str:
    return device_text(
        replace(device_of(load_profile(checkout / "arch_profiles", "gfx1151")), memory_bytes=2**37)
    )


@pytest.fixture(scope="module")
def answers(stub: Path, device: str, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return _answers([_cxx()], _HERE / "headers", stub, tmp_path_factory.mktemp("calls"), device)


@pytest.mark.thorough
def test_every_wrong_argument_is_answered_as_the_runtime_answers_it(answers):
    assert [line for line in answers if line[2] != line[3]] == []


@pytest.mark.thorough
def test_every_exported_call_has_a_row(answers, stub):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(stub / STUB_NAMES[0])],
        capture_output=True,
        text=True,
        check=True,
    )
    exported = {line.split()[0] for line in listed.stdout.splitlines()}
    calls = {name for name in exported if not name.startswith("_Z")}  # those are C++, among ourselves
    assert "hipMemGetInfo" in calls
    rows = {line[0] for line in answers}
    assert rows <= calls
    # The forms of hipBLAS are made from one description each, with one way to refuse (test_blas_levels.py);
    # what hiprtc refuses is in test_compiled_while_running.py. comgr answers null as hiprtc does, the calls
    # of profilers do nothing, and those with patchkit_ are not HIP's: the driver for Triton calls them.
    others = ("hipblas", "hiprtc", "amd_comgr_", "roctx", "roctracer_", "patchkit_")
    assert {name for name in calls - rows if not name.startswith(others)} == set()


@pytest.mark.hip
def test_the_header_of_the_sdk_says_the_same(answers, device, compiler: Compiler, tmp_path):
    headers = compiler.toolchain.root / "include"
    assert _answers(cxx_of(compiler.toolchain), headers, build_stub(compiler), tmp_path, device) == answers
