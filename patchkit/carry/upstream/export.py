"""Write commits as patch files: a folder of them, or a single file for ``git am``."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import CacheError, GitError, Location, UsageError
from patchkit.base.files import disk_errors, file_sha256, usable_place
from patchkit.base.locks import locked
from patchkit.carry.upstream.repository import Repository, verify_range

_SUMS = "SHA256SUMS"
_HEADER_START = "# Written by patchkit export"
_HEADER = f"{_HEADER_START}, which replaces these files unless they were changed.\n"
RELEASE = "release.json"
PATCH_ENDINGS = (".patch", ".diff")
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64})  (?P<name>release\.json|Containerfile|[^./\\\0][^/\\\0]*\.(?:patch|diff))"
)
_NAME = re.compile(r"[0-9]{4,}-[^/\0]*\.patch")
_ELSEWHERE = "name a folder on another disk"

# All options whose defaults a user's configuration or a later git could change.
_OPTIONS = (
    "--quiet",
    "--binary",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--full-index",
    "--inter-hunk-context=0",
    "--no-add-header",
    "--no-attach",
    "--no-base",
    "--no-cc",
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
    "--no-to",
    "--start-number=1",
    "--src-prefix=a/",
    "--stat=72",
    "--subject-prefix=PATCH",
    "--suffix=.patch",
    "--unified=3",
    "--zero-commit",
)


def format_patches(
    repository: Repository,
    base: str,
    tip: str,
    directory: Path,
    *,
    kept: Sequence[Path] = (),
    names: Sequence[str | None] = (),
    more: Mapping[str, bytes] | None = None,
    describe: Callable[[Mapping[str, str]], str] | None = None,
) -> tuple[Path, ...]:
    """Write one patch file per commit of ``base..tip`` into ``directory``; returns their paths in order.

    Commits that change no file get none, because ``git am`` stops at an empty file. The files are written to
    a temporary folder, which then replaces ``directory``. ``kept`` are folders that must not be exported
    into; the cache is always one of them. ``names``: names of the files, in order, each with one of
    ``PATCH_ENDINGS``; None for the name that git gives it. ``describe``: gets the sha256 of each file by
    name, in order, and makes the text of ``release.json``. ``more``: other files, by name.

    Raises:
        EXPORT_NAMES: two files would have the same name.
        PLACE_UNUSABLE: an export cannot be there; nothing was touched.
        EXPORT_FOREIGN: the folder has other content; nothing was touched.
        EXPORT_NOTHING: there are no commits to write.
        CacheError: the disk reported an error.
        GitError: git failed.
    """
    directory = usable_place(directory, (repository.path.parent, *kept))
    verify_range(repository, base, tip)
    with disk_errors(directory, "exporting", _ELSEWHERE):
        directory.parent.mkdir(parents=True, exist_ok=True)  # no-op if the folder has foreign content
        with _locked_if_possible(directory.parent):
            _refuse_foreign(directory)
            _clear_remains(directory)
        with _partial_of(directory) as partial:
            git = replace(repository.git, writes_to=partial)
            git.run("format-patch", *_OPTIONS, "-o", os.fspath(partial), f"{base}..{tip}")
            for path in partial.iterdir():
                if path.name != _SUMS and path.stat().st_size == 0:
                    path.unlink()
            written = sorted(path.name for path in partial.iterdir() if path.name != _SUMS)
            if not written:
                raise GitError(
                    f"there are no changes between {base[:12]} and {tip[:12]}",
                    code="EXPORT_NOTHING",
                    where=Location(path=str(directory)),
                    hint="run patchkit apply first, which makes the candidate branch",
                )
            named = _rename(partial, written, names)
            digests = {name: file_sha256(partial / name) for name in named}
            if describe is not None:
                (partial / RELEASE).write_text(describe(digests), encoding="utf-8")
                digests |= {RELEASE: file_sha256(partial / RELEASE)}
            for name, content in (more or {}).items():
                (partial / name).write_bytes(content)
                digests[name] = file_sha256(partial / name)
            sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
            (partial / _SUMS).write_text(_HEADER + sums, encoding="utf-8")
            partial.chmod(0o777 & ~_umask())
            with _locked_if_possible(directory.parent):
                _replace(partial, directory)
    return tuple(directory / name for name in named)


def _rename(folder: Path, written: Sequence[str], names: Sequence[str | None]) -> list[str]:
    """Give files other names, by position; returns all names. Raises EXPORT_NAMES."""
    wanted = [*names, *[None] * (len(written) - len(names))]
    named = [new or old for old, new in zip(written, wanted, strict=True)]
    counts = Counter(name.casefold() for name in (*named, _SUMS, RELEASE))  # as on Windows and macOS
    twice = sorted(name for name in named if counts[name.casefold()] > 1)
    if twice:
        raise UsageError(
            f"several files of the export would be named {twice[0]}",
            code="EXPORT_NAMES",
            where=Location(path=twice[0]),
            hint="change 'file' below [commit] in one of the patch.toml, or export without --original-names",
        )
    for number, name in enumerate(written):  # a new name may be another file's old one
        (folder / name).rename(folder / f".{number}")
    for number, name in enumerate(named):
        (folder / f".{number}").rename(folder / name)
    return named


def format_mailbox(repository: Repository, base: str, tip: str) -> bytes:
    """The same patches in one file for ``git am``; commits that change no file are skipped.

    Raises:
        ObjectDamaged: the cache is damaged.
        CacheError: the disk reported an error.
        GitError: git failed.
    """
    verify_range(repository, base, tip)
    return repository.git.run("format-patch", *_OPTIONS, "--stdout", f"{base}..{tip}")


@contextlib.contextmanager
def _locked_if_possible(folder: Path) -> Iterator[None]:
    """Lock a folder against other exports; on file systems without locks, concurrent ones may fail."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(CacheError):
            stack.enter_context(locked(folder))
        yield


@contextlib.contextmanager
def _partial_of(directory: Path) -> Iterator[Path]:
    """A temporary folder next to ``directory``; locked, so that no other run removes it as left over."""
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.patchkit-partial-", dir=directory.parent))
    with _locked_if_possible(partial):
        try:
            (partial / _SUMS).write_text(_HEADER, encoding="utf-8")
            yield partial
        finally:
            _discard(partial)


def _refuse_foreign(directory: Path) -> None:
    found = _foreign_file(directory)
    if found is not None:
        name, why = found
        raise GitError(
            f"{directory} has content that patchkit did not export",
            code="EXPORT_FOREIGN",
            where=Location(path=str(directory / name)),
            why=why,
            hint="use a new or empty folder",
        )


def _foreign_file(directory: Path) -> tuple[str, str] | None:
    """A file that forbids replacing the folder, and why; None if the folder is absent, empty or ours."""
    try:
        present = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return None
    sums = _read_sums(directory)
    if sums is None:
        return (present[0], f"{present[0]} is not patchkit's") if present else None
    for name in present:
        path = directory / name
        if name != _SUMS and (name not in sums or path.is_symlink() or not path.is_file()):
            return name, f"{name} is not patchkit's"
        if name != _SUMS and file_sha256(path) != sums[name]:
            return name, f"{name} was changed after the export"
    return None


def _read_sums(directory: Path) -> dict[str, str] | None:
    """Digest by name; None if patchkit did not write the file of checksums here."""
    path = directory / _SUMS
    if path.is_symlink() or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    header, _, sums = text.partition("\n")
    if not header.startswith(_HEADER_START):  # earlier versions end the line differently
        return None
    found = [_LINE.fullmatch(line) for line in sums.splitlines()]
    return {line["name"]: line["sha256"] for line in found if line} if all(found) else None


def _clear_remains(directory: Path) -> None:
    """Remove temporary folders that killed exports into this folder left, and nothing else."""
    prefixes = tuple(f".{directory.name}.patchkit-{kind}-" for kind in ("partial", "old"))
    for path in sorted(directory.parent.iterdir()):
        if not path.name.startswith(prefixes) or path.is_symlink() or not path.is_dir():
            continue
        # A folder that cannot be locked or read is in use by another run.
        with contextlib.suppress(CacheError, OSError), locked(path, timeout_s=0):
            if _foreign_file(path) is None or _read_sums(path) == {}:
                _discard(path)


def _discard(folder: Path) -> None:
    """Remove the files of an export, and the folder if it had no others."""
    sums = _read_sums(folder)
    if sums is None:
        return
    for path in list(folder.iterdir()):
        if path.name in sums or (not sums and _NAME.fullmatch(path.name)):
            path.unlink()
    if [path.name for path in folder.iterdir()] == [_SUMS]:
        (folder / _SUMS).unlink()
        folder.rmdir()


def _replace(partial: Path, directory: Path) -> None:
    """Replace ``directory``, which is absent or an export by patchkit, by ``partial``.

    Two folders cannot be swapped atomically in a portable way: for an instant there is none, but never a mix.
    """
    _refuse_foreign(directory)
    old = partial.with_name(partial.name.replace(".patchkit-partial-", ".patchkit-old-"))
    if _read_sums(directory) is None:  # absent or empty: rename replaces an empty folder, too
        partial.rename(directory)
        return
    directory.rename(old)
    partial.rename(directory)
    _discard(old)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
