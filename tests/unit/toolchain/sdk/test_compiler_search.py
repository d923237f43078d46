"""Which installed clang is chosen, and why others are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.apt import AvailablePackage
from patchkit.toolchain.sdk.compiler import SdkCompiler, find_compiler, parts_to_unpack


def put_clang(
    folder: Path, name: str, version: str, *, archs: str = "gfx1151", lacks: str = "nothing"
) -> Path:
    """A program that prints what a clang of that version prints."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part").touch()
    path = folder / name
    path.write_text(
        f"""#!/bin/sh
case "$*" in
  --version) echo "clang version {version}" ;;
  *--print-supported-cpus*) echo "{archs}" >&2 ;;
  *{lacks}*) echo "{lacks}" ;;
  *) echo "{folder}/part" ;;
esac
"""
    )
    path.chmod(0o755)
    return path


def find(*folders: Path, minimum: int = 20) -> tuple[SdkCompiler | None, tuple[str, ...]]:
    path = ":".join(str(folder) for folder in folders)
    return find_compiler({"PATH": path}, minimum=minimum, arch="gfx1151", reporter=NullReporter())


def test_the_newest_usable_compiler_is_chosen(tmp_path: Path) -> None:
    for number in ("9", "20", "22"):
        put_clang(tmp_path, f"clang++-{number}", f"{number}.1.0")
    compiler, rejections = find(tmp_path)
    assert compiler == SdkCompiler(path=str(tmp_path / "clang++-22"), version="22.1.0")
    assert rejections == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"version": "19.1.0"}, "it is 19.1.0; 20 or newer is required"),
        ({"archs": "gfx1100"}, "it does not support gfx1151"),
        ({"lacks": "ld.lld"}, "it lacks ld.lld"),
        ({"lacks": "compiler-rt"}, "run-time library"),
        ({"version": "none"}, "it is not clang"),
    ],
)
def test_the_reason_for_rejection_is_reported(tmp_path: Path, options: dict[str, str], expected: str) -> None:
    put_clang(tmp_path, "clang++-23", **{"version": "23.0.0", **options})
    older = put_clang(tmp_path, "clang++-21", "21.1.0")
    compiler, (complaint,) = find(tmp_path)
    assert compiler is not None
    assert compiler.path == str(older)
    assert complaint.startswith(str(tmp_path / "clang++-23"))
    assert expected in complaint


def test_a_folder_that_is_twice_on_path_is_searched_once(tmp_path: Path) -> None:
    put_clang(tmp_path / "usr", "clang++-19", "19.0.0")
    (tmp_path / "bin").symlink_to("usr")
    compiler, rejections = find(tmp_path / "usr", tmp_path / "bin")
    assert compiler is None
    assert len(rejections) == 1


def test_a_compiler_that_cannot_be_run_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "clang++-22").write_bytes(b"\x7fELF")
    (tmp_path / "clang++-22").chmod(0o755)
    assert find(tmp_path)[0] is None
    assert "could not be started" in find(tmp_path)[1][0]


def test_only_llvm_and_missing_libraries_are_unpacked() -> None:
    names = (
        "clang-22",
        "libclang-rt-22-dev",
        "libllvm22",
        "lld-22",
        "libomp-22-dev",
        "libomp5-22",
        "libz3-4",
        "libxml2",
        "libc6",
        "libc6-i386",
    )
    names += ("lib32gcc-s1", "gcc-12", "libstdc++-12-dev", "binutils")
    closure = [AvailablePackage(name=name, version="1", size=1) for name in names]
    kept = {one.name for one in parts_to_unpack(closure, {"libxml2", "clang-22", "libllvm22"})}
    assert kept == {
        "clang-22",
        "libclang-rt-22-dev",
        "libllvm22",
        "lld-22",
        "libomp-22-dev",
        "libomp5-22",
        "libz3-4",
    }
