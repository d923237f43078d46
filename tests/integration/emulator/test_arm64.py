"""Emulator, runtime and a program, built for arm64 by the functions that build them there, under qemu.

The C library, the C++ library and LLVM are Debian's for arm64, unpacked into the cache of the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock
from right_kernels import RIGHT_KERNELS

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import (
    EmulatedGpu,
    EmulationOptions,
    build_alone,
    build_emulator,
    level_of,
)
from patchkit.gpu.emulated.runtime import build_stub
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.sdk.apt import make_client
from patchkit.toolchain.sdk.install import machine_entries
from patchkit.toolchain.sdk.packages import unpack

pytestmark = [pytest.mark.extra_tools, pytest.mark.slow]

LEVEL = level_of("aarch64", "")


@dataclass(frozen=True)
class Arm64:
    """What an arm64 machine has: ``root`` its system, ``disassembler`` its LLVM, ``qemu`` the machine."""

    root: Path
    disassembler: Path
    compiler: Compiler
    qemu: str

    def program(self, path: Path, folder: Path) -> Path:
        """A script that runs a program; its LD_LIBRARY_PATH is not qemu's."""
        script = folder / f"{path.name}-on-arm64"
        lines = [
            "#!/bin/sh",
            "libraries=$LD_LIBRARY_PATH",
            "unset LD_LIBRARY_PATH",
            f'exec {self.qemu} -L {self.root} -E LD_LIBRARY_PATH="$libraries" {path} "$@"',
        ]
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)
        return script


def _system(folder: Path, llvm: str) -> Path:
    """Debian's packages for arm64, unpacked."""
    scratch = folder.with_suffix(".apt")
    stanzas = "\n".join(entry.as_stanza() for entry in machine_entries(NullReporter()))
    client = make_client(scratch, stanzas, environ=os.environ, reporter=NullReporter())
    with (scratch / "apt.conf").open("a") as settings:
        settings.write('APT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\n')
    client.update("the packages for arm64")
    headers = [name for name in client.names("libstdc++-") if re.fullmatch(r"libstdc\+\+-\d+-dev", name)]
    newest = max(headers, key=lambda name: int(name.split("-")[1]))
    wanted = client.closure([llvm, "libc6-dev", newest], "the packages for arm64")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    client.download(wanted, scratch / "debs", "the packages for arm64")
    unpack(scratch / "debs", wanted, partial, NullReporter())
    if not (partial / "lib").exists():  # newer packages have everything below usr
        (partial / "lib").symlink_to("usr/lib")
    shutil.rmtree(scratch)
    return partial.rename(folder)


def _cross(toolchain: Toolchain, root: Path, folder: Path) -> Toolchain:
    """The toolchain with a compiler that believes to be on arm64."""
    clang = folder / "clang++"
    flags = f"--target=aarch64-linux-gnu --sysroot={root} -fuse-ld=lld -Wno-unused-command-line-argument"
    clang.write_text(f'#!/bin/sh\nexec {toolchain.clang} {flags} "$@"\n')
    clang.chmod(0o755)
    return replace(toolchain, clang=clang)


@pytest.fixture(scope="session")
def arm64(hip_toolchain, test_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Arm64:
    """Made once and kept; what it compiles is not mixed with what runs on this machine."""
    qemu = shutil.which("qemu-aarch64")
    if qemu is None:
        pytest.fail("there is no qemu-aarch64 on this machine (package qemu-user)")
    llvm = f"libllvm{hip_toolchain.clang_version.split('.')[0]}"
    folder = test_cache / "arm64"
    with FileLock(test_cache / "arm64.lock"):
        folder.mkdir(exist_ok=True)
        root = folder / llvm
        if not root.is_dir():
            _system(root, llvm)
        toolchain = _cross(hip_toolchain, root, folder)
    made = tmp_path_factory.mktemp("arm64")
    library = next(root.glob("usr/lib/aarch64-linux-gnu/libLLVM.so.*"))
    # Of its folder's libraries only this one may be found.
    (made / library.name).symlink_to(library)
    compiler = open_compiler(toolchain, folder, NullReporter())
    return Arm64(root=root, disassembler=made / library.name, compiler=compiler, qemu=qemu)


def test_instructions_leave_the_same(arm64: Arm64, family_cases, tmp_path: Path) -> None:
    program = build_alone(arm64.compiler, LEVEL)
    family_cases.check(arm64.program(program, tmp_path), arm64.disassembler)


def test_kernels_compute_what_the_host_does(arm64: Arm64, compile_program, device, tmp_path: Path) -> None:
    built = replace(compile_program, compiler=arm64.compiler)("emulated_kernels")
    gpu = EmulatedGpu(
        device=device,
        runtime=build_stub(arm64.compiler),
        library=build_emulator(arm64.compiler, LEVEL),
        disassembler=arm64.disassembler,
        level=LEVEL,
    )
    environment = gpu.environment(tmp_path, EmulationOptions(threads=2))
    program = arm64.program(built, tmp_path)
    for name in RIGHT_KERNELS:
        done = subprocess.run([program, name], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["right"]), (name, done.stderr)
