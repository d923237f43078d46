"""rocWMMA for a prefix: headers of the pinned commit, patched to support archs that it does not list."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from patchkit.base.errors import Location, SourceError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.pins import RocWmmaPin

_VERSION_FILE = "rocwmma/internal/rocwmma-version.hpp.in"
_CONFIG_FILE = "rocwmma/internal/config.hpp"


FetchFolder = Callable[[str, str, str, Path, Reporter], tuple[str | None, dict[str, bytes]]]
"""Fetches one folder of a commit: parameters are the remote's URL, commit, folder, working folder, reporter.

Returns git's hash of the folder's tree (None if there is no such folder), and its regular files by relative
path; raises SourceError and CacheError. Implemented in :mod:`patchkit.carry.upstream.exported`.
"""


def obtain_rocwmma(
    pin: RocWmmaPin, url: str, into: Path, scratch: Path, reporter: Reporter, fetch: FetchFolder
) -> str:
    """Write the pinned headers to ``into``; returns the version, with a note on how they were patched.

    Args:
        pin: the commit to fetch, and the hash of its tree.
        url: the remote.
        into: the include folder to create.
        scratch: a folder for the repository, deleted by the caller.
        reporter: receives the progress.
        fetch: fetches the folder.

    Raises:
        SourceError: the remote cannot be reached, or lacks the commit.
        SDK_ROCWMMA_MISMATCH: the fetched tree is not the pinned one.
        CacheError: a disk operation failed.
    """
    tree, files = fetch(url, pin.commit, pin.folder, scratch, reporter)
    if tree != pin.tree:
        raise SourceError(
            f"{pin.folder} of rocWMMA {pin.commit[:12]} has the tree {tree}, but {pin.tree} is pinned",
            code="SDK_ROCWMMA_MISMATCH",
            hint="the pins of this patchkit are inconsistent: reinstall patchkit",
        )
    version = files.pop(_VERSION_FILE, b"")
    for name, number in zip(("MAJOR", "MINOR", "PATCH"), pin.version.split("."), strict=True):
        version = version.replace(b"@rocwmma_VERSION_" + name.encode() + b"@", number.encode())
    files["rocwmma/rocwmma-version.hpp"] = version  # as rocWMMA's CMake does; both folders are searched
    files["rocwmma/internal/rocwmma-version.hpp"] = version
    config = files.get(_CONFIG_FILE, b"")
    files[_CONFIG_FILE] = add_archs(config, pin.same_as)
    for path, data in files.items():
        target = into / path
        with disk_errors(target, "writing rocWMMA's headers"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return f"{pin.version} (git {pin.commit[:12]}, with {_format_aliases(pin.same_as)})"


def add_archs(config: bytes, same_as: Mapping[str, str]) -> bytes:
    """Add a branch for each arch to ``config.hpp``, before the branch of the arch that it is the same as.

    Raises:
        SDK_ROCWMMA_MISMATCH: it does not have exactly one such branch, or has the new arch already.
    """
    for arch, known in sorted(same_as.items()):
        branch = rf"#elif defined\(__{known}__\) && ROCWMMA_DEVICE_COMPILE\r?\n#define (\w+) __{known}__\r?\n"
        found = list(re.finditer(branch.encode(), config))
        if len(found) != 1 or f"__{arch}__".encode() in config:
            raise SourceError(
                f"cannot add {arch} to rocWMMA's list of archs: it has {len(found)} branches for {known}",
                code="SDK_ROCWMMA_MISMATCH",
                where=Location(path=_CONFIG_FILE),
                why=f"exactly one was expected, and none for {arch}",
                hint="the pins of this patchkit are inconsistent: reinstall patchkit",
            )
        (one,) = found
        added = (
            f"#elif defined(__{arch}__) && ROCWMMA_DEVICE_COMPILE // added by patchkit: same as {known}\n"
            f"#define {one[1].decode()} __{arch}__\n"
        )
        config = config[: one.start()] + added.encode() + config[one.start() :]
    return config


def _format_aliases(same_as: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for arch, known in sorted(same_as.items()):
        groups.setdefault(known, []).append(arch)
    return "; ".join(f"{', '.join(archs)} as {known}" for known, archs in sorted(groups.items()))
