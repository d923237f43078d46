"""rocWMMA for a prefix: the pinned commit by git, its headers told about arches that it does not name."""

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
"""Fetches one folder of a commit of a git remote: its URL, the commit, the folder, a folder to work in.

Gives git's hash of the folder's tree, None where there is no such folder, and its plain files by path below
it; raises SourceError and CacheError. Git is the patch manager's: :mod:`patchkit.carry.upstream.exported`.
"""


def obtain_rocwmma(
    pin: RocWmmaPin, url: str, into: Path, scratch: Path, reporter: Reporter, fetch: FetchFolder
) -> str:
    """Put the pinned headers into ``into``; the version, with what was done to it.

    Args:
        pin: what to fetch; the commit and the tree are hashes of what comes.
        url: where from.
        into: the include folder to make.
        scratch: a folder for the repository, deleted by the caller.
        reporter: hears the progress.
        fetch: brings the folder.

    Raises:
        SourceError: the remote cannot be reached, or lacks the commit.
        SDK_ROCWMMA_MISMATCH: what came is not the pinned tree.
        CacheError: the disk refused.
    """
    tree, files = fetch(url, pin.commit, pin.folder, scratch, reporter)
    if tree != pin.tree:
        raise SourceError(
            f"{pin.folder} of rocWMMA {pin.commit[:12]} has the tree {tree}, pinned is {pin.tree}",
            code="SDK_ROCWMMA_MISMATCH",
            hint="the pins of patchkit disagree with each other: install patchkit anew",
        )
    version = files.pop(_VERSION_FILE, b"")
    for name, number in zip(("MAJOR", "MINOR", "PATCH"), pin.version.split("."), strict=True):
        version = version.replace(b"@rocwmma_VERSION_" + name.encode() + b"@", number.encode())
    files["rocwmma/rocwmma-version.hpp"] = version  # as its CMake does; found from both folders
    files["rocwmma/internal/rocwmma-version.hpp"] = version
    config = files.get(_CONFIG_FILE, b"")
    files[_CONFIG_FILE] = teach_archs(config, pin.same_as)
    for path, data in files.items():
        target = into / path
        with disk_errors(target, "writing rocWMMA's headers"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return f"{pin.version} (git {pin.commit[:12]}, told that {_same(pin.same_as)})"


def teach_archs(config: bytes, same_as: Mapping[str, str]) -> bytes:
    """``config.hpp`` with a branch for each arch in front of the branch of the one it is the same as.

    Raises:
        SDK_ROCWMMA_MISMATCH: it has no such branch, or several, or names the arch already.
    """
    for arch, known in sorted(same_as.items()):
        branch = rf"#elif defined\(__{known}__\) && ROCWMMA_DEVICE_COMPILE\r?\n#define (\w+) __{known}__\r?\n"
        found = list(re.finditer(branch.encode(), config))
        if len(found) != 1 or f"__{arch}__".encode() in config:
            raise SourceError(
                f"rocWMMA's list of arches is not as it was pinned: {len(found)} branches for {known}",
                code="SDK_ROCWMMA_MISMATCH",
                where=Location(path=_CONFIG_FILE),
                why=f"{arch} is to be added in front of the only one",
                hint="the pins of patchkit disagree with each other: install patchkit anew",
            )
        (one,) = found
        added = (
            f"#elif defined(__{arch}__) && ROCWMMA_DEVICE_COMPILE // added by patchkit: same as {known}\n"
            f"#define {one[1].decode()} __{arch}__\n"
        )
        config = config[: one.start()] + added.encode() + config[one.start() :]
    return config


def _same(same_as: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for arch, known in sorted(same_as.items()):
        groups.setdefault(known, []).append(arch)
    return "; ".join(f"{', '.join(archs)} are as {known}" for known, archs in sorted(groups.items()))
