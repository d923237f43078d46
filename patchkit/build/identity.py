"""What a toolchain is made of, as one digest: two of equal identity compile alike.

The version alone does not say it: headers come from the distribution or from a pinned commit, and our
stand-in for rocWMMA changes while it is worked on. So the headers a unit may include are hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from patchkit.build.toolchain import Toolchain

# Below <root>/include; what vendors/hip.h and the rocWMMA kernel of build 6900 include.
_HEADERS = ("hip", "hipblas", "hipblas-common", "rocblas")


def toolchain_identity(toolchain: Toolchain) -> str:
    """sha256 over the compiler, its size, the vendor headers, rocWMMA and the device libraries."""
    digest = hashlib.sha256()
    size = toolchain.clang.resolve().stat().st_size
    digest.update(f"{toolchain.kind} {toolchain.clang_version} {size} {toolchain.hip_version}\n".encode())
    for folder in _HEADERS:
        for line in _contents(toolchain.root / "include" / folder):
            digest.update(line.encode())
    if toolchain.rocwmma is not None:
        digest.update(f"{toolchain.rocwmma.kind} {toolchain.rocwmma.version}\n".encode())
        for line in _contents(toolchain.rocwmma.include / "rocwmma"):
            digest.update(line.encode())
    for path in sorted(toolchain.device_libs.glob("*.bc")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def _contents(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
