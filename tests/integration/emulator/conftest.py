"""Programs on the executing runtime: on the emulated GPU, or with something that stands in for it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pseudocode.assembly import Assembler
from pseudocode.cases import FAMILIES, generate
from pseudocode.comparison import compare
from pseudocode.emulated import run_cases

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.checks import native_checks
from patchkit.gpu.emulated.device import EmulatedDevice, device_of, device_text
from patchkit.gpu.emulated.emulator import (
    EmulationOptions,
    Found,
    build_alone,
    emulated_gpu,
    find_disassembler,
    this_level,
)
from patchkit.gpu.emulated.findings import SourceLines, distinct
from patchkit.gpu.emulated.runtime import build_stub, cxx_of
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import Toolchain, hip_flags
from patchkit.toolchain.sdk.flags import Pass

_HERE = Path(__file__).parent
_EMULATOR = Path(__file__).parents[3] / "patchkit" / "gpu" / "emulated" / "native" / "emulator"
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
    flags.append(native_checks())
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


def _device(checkout: Path, arch: str) -> EmulatedDevice:
    return replace(device_of(load_profile(checkout / "arch_profiles", arch)), memory_bytes=2**34)


@pytest.fixture(scope="session")
def device(checkout: Path) -> EmulatedDevice:
    """The GPU that programs find where they do not name one."""
    return _device(checkout, "gfx1151")


def _run(
    program: Path, arguments: tuple[str, ...], variables: Mapping[str, str | None]
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in variables.items() if value is not None}
    argv = [str(program), *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def execute(compiler: Compiler, stand_in: Path, device: EmulatedDevice, tmp_path: Path) -> Run:
    """Runs a program on the executing runtime with the stand-in.

    Settings are further variables, None takes one away.
    """
    (tmp_path / "device").write_text(device_text(device), "utf-8")
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


@dataclass(frozen=True)
class FamilyCases:
    """A few cases of every family of instructions, and what they leave on this machine's best level."""

    cases: list[dict[str, Any]]
    left: list[dict[str, Any]]

    def check(self, program: Path, disassembler: Path) -> None:
        """Another build of the emulator leaves the same in each bit; any NaN is as good as any."""
        found = run_cases(self.cases, "gfx1151", program=program, disassembler=disassembler)
        assert [one["name"] for one in found] == [one["name"] for one in self.left]
        differences = [
            difference
            for case, here, there in zip(self.cases, self.left, found, strict=True)
            for difference in _differences(case, here, there)
        ]
        assert not differences, "\n".join(differences[:12])


def _differences(case: dict[str, Any], here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    if "fault" in here:
        return [] if "fault" in there else [f"{case['text']}: no fault"]
    same = [{key: entry[key] for key in ("register", "shift", "type")} for entry in case.get("numbers", [])]
    return compare({**case, "after": here["after"], "numbers": same}, there)


@pytest.fixture(scope="session")
def family_cases(compiler: Compiler) -> FamilyCases:
    """Made once; what the best level leaves is held against the pseudocode elsewhere (tests/property)."""
    disassembler = find_disassembler(compiler.toolchain)
    assembler = Assembler(compiler.toolchain.clang.parent / "llvm-mc", disassembler, "gfx1151")
    cases = [case for name in FAMILIES for case in generate(name, seed=5, count=1, assembler=assembler)]
    program = build_alone(compiler, this_level())
    return FamilyCases(cases, run_cases(cases, "gfx1151", program=program, disassembler=disassembler))


@pytest.fixture
def found(emulate, tmp_path: Path, every_kind: str):
    """The findings of one case: of all the kinds of the module (its fixture ``every_kind``), or of some."""

    def run(program: Path, case: str, *, kinds: str = every_kind, **settings: str) -> list[dict[str, Any]]:
        report = tmp_path / "report"
        variables = {"PATCHKIT_EMULATOR_CHECK": kinds, "PATCHKIT_EMULATOR_REPORT": str(report)}
        ended = emulate(program, case, **variables, **settings)
        assert ended.returncode == 0, ended.stderr
        findings: list[dict[str, Any]] = json.loads(report.read_text("utf-8"))["findings"]
        return findings

    return run


@pytest.fixture
def told(found, tmp_path: Path):
    """The findings of one case with their source lines, as users get them."""

    def run(program: Path, case: str, arch: str, schedule: str = "in-order") -> list[Found]:
        objects = Path(tempfile.mkdtemp(dir=tmp_path))
        settings = {"PATCHKIT_EMULATOR_OBJECTS": str(objects), "PATCHKIT_EMULATOR_SCHEDULE": schedule}
        seen = found(program, case, arch=arch, **settings)
        return distinct([Found.model_validate_json(json.dumps(one)) for one in seen], SourceLines(objects))

    return run
