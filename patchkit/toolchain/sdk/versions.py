"""Finds the versions of HIP, rocWMMA, clang and device libs, and checks that they work together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import open_regular
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.flags import leading_number

_ANSWER_S = 30.0  # for options that a compiler answers in milliseconds
_MOST_OF_HEADER = 65536  # bytes of hip_version.h, which has some 2000


def hip_version(include: Path) -> str | None:
    """The version in ``hip/hip_version.h``, such as 6.4.43484; None if it is missing."""
    try:
        with open_regular(include / "hip" / "hip_version.h") as stream:
            text = stream.read(_MOST_OF_HEADER).decode("utf-8", "replace")
    except OSError:
        return None
    parts = []
    for name in ("MAJOR", "MINOR", "PATCH"):
        found = re.search(rf"^#define HIP_VERSION_{name}\s+(\d{{1,9}})\b", text, re.MULTILINE)
        if found is None:
            return None
        parts.append(found[1])
    return ".".join(parts)


def rocwmma_version(include: Path) -> str:
    """The version in rocWMMA's version header, such as 1.6.0; ``unknown`` if it is missing."""
    for name in ("rocwmma-version.hpp", "internal/rocwmma-version.hpp"):
        try:
            text = (include / "rocwmma" / name).read_text("utf-8", errors="replace")
        except OSError:
            continue
        parts = [re.search(rf"ROCWMMA_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        if all(parts):
            return ".".join(part[1] for part in parts if part is not None)
    return "unknown"


def clang_version(clang: Path, reporter: Reporter) -> str | None:
    """The version of the compiler, such as 22.1.8; None if it is not clang.

    Raises:
        ToolchainError: the compiler could not be run, or failed.
    """
    done = run_tool([str(clang), "--version"], timeout_s=_ANSWER_S, reporter=reporter)
    found = re.search(rb"clang version (\d+(?:\.\d+)+)", done.stdout)
    return found[1].decode("ascii") if found is not None else None


def known_archs(clang: Path, reporter: Reporter) -> frozenset[str]:
    """The gfx ids that the compiler supports; empty if it was built without the AMDGPU target."""
    done = run_tool(
        [str(clang), "--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus"],
        timeout_s=_ANSWER_S,
        check=False,
        reporter=reporter,
    )
    return frozenset(
        re.findall(r"\bgfx[0-9a-f]{3,4}\b", (done.stdout + done.stderr).decode("utf-8", "replace"))
    )


def bitcode_llvm(device_libs: Path) -> int | None:
    """The LLVM version in the path of the device libs; None if there is none."""
    numbers = re.findall(r"/(?:llvm-|clang/)(\d+)/", f"{device_libs}/")
    return int(numbers[-1]) if numbers else None


def check_bitcode(device_libs: Path, clang: str) -> None:
    """Check that clang (a version) can read the device libs.

    Raises:
        SDK_UNUSABLE: the device libs are of a newer LLVM.
    """
    written_by = bitcode_llvm(device_libs)
    if written_by is not None and written_by > leading_number(clang):
        raise ToolchainError(
            f"clang {clang} cannot read the device libs of LLVM {written_by}",
            code="SDK_UNUSABLE",
            where=Location(path=str(device_libs)),
            why="only the LLVM version that wrote bitcode, and newer ones, can read it",
            hint=f"install clang-{written_by}, lld-{written_by} and llvm-{written_by}, or newer versions",
        )


def check_majors(
    hip: str, parts: Mapping[str, str], accepted: Mapping[str, tuple[int, ...]], where: Path
) -> None:
    """Check that the major versions of all parts are known to work with that of the HIP headers.

    Args:
        hip: version of the HIP headers.
        parts: versions of the parts by name (``device libs``).
        accepted: by HIP's major version, other major versions that work with it; its own always does.
        where: the prefix, for the message.

    Raises:
        SDK_UNUSABLE: a part has another major version.
    """
    major = leading_number(hip)
    allowed = {major, *accepted.get(str(major), ())}
    wrong = {name: version for name, version in parts.items() if leading_number(version) not in allowed}
    if wrong:
        raise ToolchainError(
            f"the HIP headers are {hip}, but " + ", ".join(f"the {n} are {v}" for n, v in wrong.items()),
            code="SDK_UNUSABLE",
            where=Location(path=str(where)),
            why=f"known to work with HIP {major}: {', '.join(str(one) for one in sorted(allowed))}",
            hint="the distribution may be updating these packages: try again later, or use another --suite",
        )
