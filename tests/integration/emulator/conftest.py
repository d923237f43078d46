"""Programs on the executing runtime: on the emulated GPU, or with something that stands in for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.sdk.flags import Pass
from patchkit.build.toolchain import Toolchain, hip_flags
from patchkit.gpu.device import PlayedDevice, device_of, device_text
from patchkit.gpu.emulator import EmulationOptions, emulated_gpu
from patchkit.gpu.runtime import build_stub, cxx_of
from patchkit.series.profile import load_profile

_HERE = Path(__file__).parent
_EMULATOR = Path(__file__).parents[3] / "patchkit" / "gpu" / "native" / "emulator"
_LOADER = ("bundle", "bytes", "code_object", "elf_file", "library", "metadata")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def compiler(hip_toolchain: Toolchain, gates_cache: Path) -> Compiler:
    """The toolchain of the tests."""
    return open_compiler(hip_toolchain, gates_cache, NullReporter())


@pytest.fixture(scope="session")
def stand_in(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of stand_in_emulator.cpp, with the real loader of code objects."""
    path = tmp_path_factory.mktemp("stand-in") / "emulator.so"
    sources = [str(_EMULATOR / f"{name}.cpp") for name in _LOADER]
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-I{_EMULATOR}"]
    argv = [*cxx_of(compiler.toolchain), *flags, str(_HERE / "stand_in_emulator.cpp"), *sources, "-ldl"]
    subprocess.run([*argv, "-o", str(path)], check=True)
    return path


@dataclass(frozen=True)
class ProgramCompiler:
    """Compiles .hip files of this folder."""

    compiler: Compiler
    factory: pytest.TempPathFactory

    def __call__(self, name: str, *flags: str, which: Pass = "both", arch: str = "gfx1151") -> Path:
        """A program, linked to the runtime."""
        folder = self.factory.mktemp(name)
        self._compile(name, folder / "program.o", which, arch, *flags)
        link = [*cxx_of(self.compiler.toolchain), "program.o", f"-L{build_stub(self.compiler)}"]
        subprocess.run([*link, "-lamdhip64", "-pthread", "-o", name], cwd=folder, check=True)
        return folder / name

    def bare(self, name: str, unit: str, *flags: str) -> Path:
        """A program whose device code is that of a unit, wherever the runtime is told to look for it."""
        marker = self.factory.mktemp("marker") / "marker"
        marker.write_text(f"PATCHKIT-UNIT\n{unit}\n", "utf-8")
        embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(marker))
        return self(name, *embed, *flags, which="host")

    def device(self, name: str, output: Path, *flags: str, arch: str = "gfx1151") -> None:
        """Device code alone."""
        self._compile(name, output, "device", arch, *flags)

    def _compile(self, name: str, output: Path, which: Pass, arch: str, *flags: str) -> None:
        common = hip_flags(self.compiler.toolchain, arch, which=which)
        argv = [str(self.compiler.toolchain.clang), *common, "-O1", *flags]
        subprocess.run([*argv, "-c", str(_HERE / f"{name}.hip"), "-o", str(output)], check=True)


@pytest.fixture(scope="session")
def compile_program(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> ProgramCompiler:
    """Compiles programs."""
    return ProgramCompiler(compiler, tmp_path_factory)


def _device(checkout: Path, arch: str) -> PlayedDevice:
    return replace(device_of(load_profile(checkout / "arch_profiles", arch)), memory_bytes=2**34)


def _run(
    program: Path, arguments: tuple[str, ...], variables: Mapping[str, str | None]
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in variables.items() if value is not None}
    argv = [str(program), *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def execute(compiler: Compiler, stand_in: Path, checkout: Path, tmp_path: Path) -> Run:
    """Runs a program on the executing runtime with the stand-in.

    Settings are further variables, None takes one away.
    """
    (tmp_path / "device").write_text(device_text(_device(checkout, "gfx1151")), "utf-8")
    given = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(build_stub(compiler)),
        "PATCHKIT_RECORDER_DEVICE": str(tmp_path / "device"),
        "PATCHKIT_EMULATOR": str(stand_in),
    }
    return lambda program, *arguments, **settings: _run(program, arguments, {**given, **settings})


@pytest.fixture
def emulate(compiler: Compiler, checkout: Path, tmp_path: Path) -> Run:
    """Runs a program on an emulated GPU. Settings as for ``execute``."""

    def run(program: Path, *arguments: str, arch: str = "gfx1151", **settings: str | None):
        gpu = emulated_gpu(_device(checkout, arch), compiler)
        given = {"PATH": os.environ["PATH"], **gpu.environment(tmp_path, EmulationOptions())}
        return _run(program, arguments, {**given, **settings})

    return run
