"""Unpacks Debian packages that apt has downloaded and verified."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from patchkit.base.errors import Location, SourceError, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors
from patchkit.base.process import ToolFailed, ToolMissing, run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.apt import AvailablePackage
from patchkit.toolchain.sdk.prefix import Package

_PACKAGE_S = 300.0


def unpack(
    folder: Path, wanted: Sequence[AvailablePackage], into: Path, reporter: Reporter
) -> tuple[Package, ...]:
    """Unpack all package files of ``folder`` and delete them; returns the packages, sorted by name.

    Raises:
        SDK_PACKAGE_DAMAGED: a file is not a package or not in ``wanted``, or a wanted one is missing.
        SDK_PACKAGES_UNAVAILABLE: dpkg-deb is not installed.
        CacheError: a disk operation failed.
    """
    expected = {(one.name, one.version) for one in wanted}
    unpacked = []
    with disk_errors(into, "unpacking packages"):
        into.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.glob("*.deb"))
    for file in files:
        package = _describe(file, reporter)
        if (package.name, package.version) not in expected:
            raise _damaged(file, f"it is {package.name} {package.version}, which was not requested")
        _run(["dpkg-deb", "--extract", str(file), str(into)], file, reporter)
        unpacked.append(package)
        with disk_errors(file, "unpacking packages"):
            file.unlink()
    missing = expected - {(one.name, one.version) for one in unpacked}
    if missing:
        raise _damaged(folder, f"not downloaded: {' '.join(sorted(name for name, _ in missing))}")
    return tuple(sorted(unpacked, key=lambda one: one.name))


def _describe(file: Path, reporter: Reporter) -> Package:
    fields = _run(["dpkg-deb", "--field", str(file), "Package", "Version"], file, reporter)
    values = dict(line.partition(": ")[::2] for line in fields.decode("utf-8", "replace").splitlines())
    with disk_errors(file, "reading a package"), file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    return Package(
        name=values.get("Package", ""), version=values.get("Version", ""), sha256=digest, size=size
    )


def _run(argv: list[str], file: Path, reporter: Reporter) -> bytes:
    try:
        return run_tool(argv, timeout_s=_PACKAGE_S, reporter=reporter).stdout
    except ToolMissing as error:
        raise ToolchainError(
            "dpkg-deb is not installed on this machine",
            code="SDK_PACKAGES_UNAVAILABLE",
            why="it is needed to unpack the SDK's packages",
            hint="install the package dpkg, or use a Debian machine or container",
        ) from error
    except ToolFailed as error:
        refused = disk_error_from_tool(error, file, "unpacking packages")
        raise refused if refused is not None else _damaged(file, error.why or "") from error


def _damaged(path: Path, why: str) -> SourceError:
    return SourceError(
        "cannot unpack a package",
        code="SDK_PACKAGE_DAMAGED",
        where=Location(path=str(path)),
        why=why,
        hint="run patchkit sdk install again to download the package again",
    )
