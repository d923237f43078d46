"""The evidence of a report as files of a commit: complete, and without paths of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from patchkit.base.errors import GateError, Location, UsageError
from patchkit.base.files import disk_errors

_FILE_BYTES = 32 * 1024 * 1024  # the largest evidence so far, isolation of build 6900, has 0.3 MB
_ALL_BYTES = 128 * 1024 * 1024


def collect_evidence(
    folder: Path, *, passed: tuple[str, ...], cache_root: Path, environ: Mapping[str, str]
) -> dict[str, bytes]:
    """The report and the evidence of passed gates, by path below ``folder``, without paths of this machine.

    Raises:
        EVIDENCE_MISSING: a passed gate has no file.
        UsageError: it is too large for a repository.
        CacheError: the disk is full or not writable.
    """
    names = neutral_names(cache_root, environ)
    files: dict[str, bytes] = {}
    with disk_errors(folder, "reading the evidence"):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name.partition("/")[0].removesuffix(".json") not in {*passed, "report"}:
                continue  # of an earlier run, from a gate that did not run now
            if (
                path.is_symlink()
                or not path.is_file()
                or any(part.startswith(".") for part in name.split("/"))
            ):
                continue
            size = path.stat().st_size
            if size > _FILE_BYTES:
                raise _too_large(path, size)
            files[name] = neutral(path.read_bytes(), names)
    for gate in passed:
        if f"{gate}.json" not in files:
            raise GateError(
                f"gate {gate} has no evidence; nothing was published",
                code="EVIDENCE_MISSING",
                where=Location(path=str(folder / f"{gate}.json")),
                hint="run it again: patchkit verify",
            )
    size = sum(len(data) for data in files.values())
    if size > _ALL_BYTES:
        raise _too_large(folder, size)
    return files


def neutral_names(cache_root: Path, environ: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Paths of this machine, each with its replacement."""
    named = [(cache_root, "$PATCHKIT_CACHE"), (cache_root.resolve(), "$PATCHKIT_CACHE")]
    home = environ.get("HOME", "")
    if home.count("/") > 1 or (home.startswith("/") and len(home) > 1):
        named.append((Path(home), "$HOME"))
    # The longest first: a cache is usually inside the home folder.
    pairs = {os.fsencode(path): name.encode() for path, name in named}
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


def neutral(data: bytes, names: list[tuple[bytes, bytes]]) -> bytes:
    """The content of an evidence file without paths of this machine."""
    for path, name in names:
        data = data.replace(path + b"/", name + b"/").replace(b'"' + path + b'"', b'"' + name + b'"')
    return data


def _too_large(path: Path, size: int) -> UsageError:
    return UsageError(
        f"{path.name} has {size / 1e6:.0f} MB of evidence; nothing was published",
        where=Location(path=str(path)),
        why=f"the limit is {_FILE_BYTES / 1e6:.0f} MB per file and {_ALL_BYTES / 1e6:.0f} MB in total",
        hint="check its content; patchkit verify creates it again",
    )
