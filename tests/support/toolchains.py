"""Toolchains that are only described, and compilers that are shell scripts."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import RocWmma, Toolchain


def toolchain_in(root: Path, rocwmma: RocWmma | None = None) -> Toolchain:
    """Clang 22 and HIP 6.4, all of it in one folder; none of it need be there."""
    return Toolchain(
        kind="sdk",
        root=root,
        clang=root / "clang++",
        clang_version="22.1.8",
        hip_version="6.4.43484",
        device_libs=root,
        rocwmma=rocwmma,
    )


# Asked which command it would run, it names itself, as clang's driver does. The script is what it does then,
# as the front end and as the code generator.
_STEPS = r"""
case "$*" in *-###*)
  printf ' "%s" "-cc1"' "$0" >&2
  for word; do
    case "$word" in -\#\#\#|-o|output) ;; *.cu) unit=$word ;; -c) printf ' "-emit-obj"' >&2 ;;
    *) printf ' "%s"' "$word" >&2 ;; esac
  done
  printf ' "-o" "output" "-x" "hip" "%s"\n' "$unit" >&2
  exit 0 ;;
esac
"""


def script_compiler(root: Path, script: str, cache: Path) -> Compiler:
    """A compiler whose clang is that shell script, in ``root``."""
    chain = toolchain_in(root)
    root.mkdir(parents=True, exist_ok=True)
    chain.clang.write_text(f"#!/bin/sh\n{_STEPS}\n{script}\n", "utf-8")
    chain.clang.chmod(0o755)
    return open_compiler(chain, cache, NullReporter())
