"""A series of patch files, one per commit, the same bytes on every run.

Vocabulary: an *export* is a folder with ``0001-….patch`` files and ``SHA256SUMS`` over them. The sums
are how a later run knows the folder as its own: one changed or added file, and it is left alone.

The files apply with plain ``git am`` (files with CRLF line ends need its ``--keep-cr``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from patchkit.errors import GitError, Location
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.repository import Repository

__all__ = ["ExportForeign", "ExportNothing", "format_patches"]

_SUMS = "SHA256SUMS"

# Everything a user's or a later git's defaults could change is named.
_OPTIONS = (
    "--quiet",
    "--binary",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--full-index",
    "--no-attach",
    "--no-base",
    "--no-color",
    "--no-cover-letter",
    "--no-ext-diff",
    "--no-indent-heuristic",
    "--no-notes",
    "--no-numbered",
    "--no-renames",
    "--no-signature",
    "--no-textconv",
    "--no-thread",
    "--start-number=1",
    "--src-prefix=a/",
    "--stat=72",
    "--subject-prefix=PATCH",
    "--suffix=.patch",
    "--unified=3",
    "--zero-commit",
)


class ExportForeign(GitError):
    """The folder has files that are not an unchanged export of patchkit's."""

    code = "EXPORT_FOREIGN"


class ExportNothing(GitError):
    """There is no commit between base and tip."""

    code = "EXPORT_NOTHING"


def format_patches(repository: Repository, base: str, tip: str, directory: Path) -> tuple[Path, ...]:
    """Write one patch file per commit of ``base..tip`` into ``directory``; their paths in order.

    The files are made beside the folder, which takes their place in one step.

    Raises:
        ExportForeign: the folder has other content; nothing was touched.
        ExportNothing: no commits to write.
        CacheError: the disk refused.
        GitError: git refused.
    """
    directory = directory.resolve()
    partial = directory.with_name(f".{directory.name}.patchkit-partial")
    with disk_errors(directory, "exporting"):
        _check_ours(directory)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        try:
            repository.git.run("format-patch", *_OPTIONS, "-o", os.fspath(partial), f"{base}..{tip}")
            names = sorted(path.name for path in partial.iterdir())
            if not names:
                raise ExportNothing(
                    f"there are no commits between {base[:12]} and {tip[:12]}",
                    where=Location(path=str(directory)),
                    hint="patchkit apply makes the candidate branch first",
                )
            (partial / _SUMS).write_text("".join(f"{_sha256(partial / name)}  {name}\n" for name in names))
            _replace(partial, directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return tuple(directory / name for name in names)


def _check_ours(directory: Path) -> None:
    if not directory.exists():
        return
    present = {path.name for path in directory.iterdir()}
    if not present:
        return
    sums = _read_sums(directory / _SUMS)
    foreign = sorted(present - sums.keys() - {_SUMS})
    changed = sorted(name for name in present & sums.keys() if _sha256(directory / name) != sums[name])
    if not sums or foreign or changed:
        first = (foreign or changed or sorted(present))[0]
        raise ExportForeign(
            f"{directory} has content that is no export of patchkit's",
            where=Location(path=str(directory / first)),
            why=f"{first} was changed after the export"
            if changed and not foreign
            else f"{first} is not ours",
            hint="name a new or empty folder",
        )


def _read_sums(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _replace(partial: Path, directory: Path) -> None:
    """Put ``partial`` in the place of ``directory``, which is absent or an export of ours.

    Two folders cannot change places in one portable step: for an instant there is none, never a mix.
    """
    old = directory.with_name(f".{directory.name}.patchkit-old")
    if old.exists():
        shutil.rmtree(old)
    if directory.exists():
        directory.rename(old)
    partial.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
