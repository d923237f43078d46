"""Making Debian's layout look like ROCm's own where CMake and clang look for it.

Vocabulary: the *multiarch* folder is where Debian keeps libraries and CMake package files
(``lib/x86_64-linux-gnu``); ROCm keeps them in ``lib``. A *forwarder* is a package file in the one place
that includes the one in the other, which finds its own prefix from where it lies.
"""

from __future__ import annotations

from pathlib import Path

from patchkit.vcs.disk import disk_errors

_FORWARD = 'include("${{CMAKE_CURRENT_LIST_DIR}}/{path}")\n'


def complete_layout(root: Path) -> None:
    """Add what is expected below ``root``, once packages and stubs are there.

    - ``bin``: the package files of HIP check that it is there, though nothing of it is used.
    - ``lib/lib*.so``: clang links HIP programs with ``-L<root>/lib -lamdhip64``; CMake tells from such a
      link what the compiler is.
    - ``lib/cmake``: older CMake looks for hip-lang only there (measured: 3.25 does, 4.4 does not).

    Raises:
        CacheError: the disk refused.
    """
    with disk_errors(root, "completing the prefix"):
        (root / "bin").mkdir(exist_ok=True)
        lib = root / "lib"
        for multiarch in sorted(lib.glob("*-linux-gnu*")):
            for library in sorted(multiarch.glob("lib*.so")):
                link = lib / library.name
                link.unlink(missing_ok=True)
                link.symlink_to(f"{multiarch.name}/{library.name}")
            for package in sorted((multiarch / "cmake").glob("*/*.cmake")):
                _forward(package, lib / "cmake" / package.parent.name / package.name, multiarch.name)


def _forward(package: Path, forwarder: Path, multiarch: str) -> None:
    if not package.name.endswith(("-config.cmake", "-config-version.cmake", "Config.cmake")):
        return  # included by those
    forwarder.parent.mkdir(parents=True, exist_ok=True)
    path = f"../../{multiarch}/cmake/{package.parent.name}/{package.name}"
    forwarder.write_text(_FORWARD.format(path=path), encoding="ascii")
