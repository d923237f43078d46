"""Reading a tree out of a .tar.gz that nobody vouches for, without writing any of it to disk.

Vocabulary: a *member* is a file or link of the part of the archive that is asked for; a *bomb* is an
archive that is small and unpacks to far more than any source tree. Names of all entries are checked,
also of those outside that part. Members go to git's object store, never to a folder, so the checks
protect later checkouts of the tree rather than this step.
"""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.errors import Location, SourceError
from patchkit.fetch.archive_errors import (
    ArchiveAbsolutePath,
    ArchiveDamaged,
    ArchiveDuplicate,
    ArchiveFileTooLarge,
    ArchiveGitFolder,
    ArchiveLinkOutside,
    ArchiveParentPath,
    ArchivePathTooLong,
    ArchiveSpecialFile,
    ArchiveTooManyMembers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an archive may grow to. The largest of the corpus: 38 MB, 4026 entries, 173 MB unpacked."""

    total_bytes: int = 2 * 1024**3
    members: int = 50_000
    file_bytes: int = 256 * 1024**2
    ratio: int = 100  # unpacked bytes per packed byte; source text packs to a fifth
    path_bytes: int = 1024
    header_bytes: int = 1024**2  # of one entry: long names, extended attributes


LIMITS = Limits()

_FREE_BYTES = 16 * 1024**2  # a ratio says nothing about less


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file. ``mode`` is git's; ``same_as`` names an earlier member whose bytes these are."""

    path: str
    mode: str
    data: bytes
    same_as: str | None = None


def read_archive(
    archive: Path,
    *,
    subdir: str,
    omit: tuple[str, ...] = (),
    limits: Limits = LIMITS,
    on_bytes: Callable[[int, int], None] = lambda _done, _total: None,
) -> Iterator[Member]:
    """The files of ``subdir``, below the one top folder of a source archive.

    Args:
        archive: a gzip-compressed tar file.
        subdir: the wanted folder, relative to the top folder.
        omit: paths relative to ``subdir`` to leave out, with all below them.
        limits: what is refused as too much.
        on_bytes: called with packed bytes read and in all.

    Raises:
        SourceError: one of the errors of :mod:`patchkit.fetch.archive_errors`, naming the entry.
    """
    reader = _Reader(archive=archive, subdir=subdir, omit=omit, limits=limits)
    size = archive.stat().st_size
    count = 0
    try:
        with archive.open("rb") as packed, gzip.GzipFile(fileobj=packed) as unpacked:
            meter = _Meter(unpacked, archive, min(limits.total_bytes, max(_FREE_BYTES, limits.ratio * size)))
            meter.allow_to(limits.header_bytes)
            with tarfile.open(fileobj=meter, mode="r|", encoding="utf-8") as entries:  # type: ignore[call-overload]
                while (entry := entries.next()) is not None:
                    reader.check(entry)
                    # The content of this entry, and what describes the next one.
                    meter.allow_to(entries.offset + limits.header_bytes)
                    member = reader.take(entry, entries)
                    if member is not None:
                        count += 1
                        yield member
                    on_bytes(packed.tell(), size)
            meter.check_end(entries.offset)
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise ArchiveDamaged(
            f"{archive.name} is damaged or cut short", where=Location(path=str(archive)), why=str(error)
        ) from error
    if not count:
        raise SourceError(
            f"{archive.name} has no files in {subdir}",
            code="ARCHIVE_NO_TREE",
            where=Location(path=str(archive)),
        )


@dataclass(slots=True)
class _Meter:
    """Counts what comes out of the decompressor, and stops it."""

    stream: gzip.GzipFile
    archive: Path
    total: int
    count: int = 0
    allowed: int = 0
    last: bytes = b""

    def allow_to(self, offset: int) -> None:
        self.allowed = min(self.total, offset)

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.count += len(data)
        if self.count > self.allowed:
            raise SourceError(
                f"{self.archive.name} unpacks to more than {self.allowed} bytes, as far as it was read",
                code="ARCHIVE_BOMB",
                where=Location(path=str(self.archive)),
                why="a source tree is not that large, nor packs that well",
            )
        self.last = data or self.last
        return data

    def check_end(self, offset: int) -> None:
        """From where the entries ended there are zeros only; else that was no end, but damage."""
        rest = self.last[offset - (self.count - len(self.last)) :]
        if not rest:
            raise EOFError("it ends in the middle of an entry")
        while rest:
            if rest.strip(b"\0"):
                raise EOFError(f"the entry at byte {offset} of the tar file is damaged")
            self.allow_to(self.count + 65536)
            rest = self.read(65536)


@dataclass(slots=True)
class _Reader:
    """Decides about one entry after the other, remembering those before."""

    archive: Path
    subdir: str
    omit: tuple[str, ...]
    limits: Limits
    entries: int = 0
    top: str | None = None
    files: dict[str, str] = field(default_factory=dict)  # path -> mode
    folders: set[str] = field(default_factory=set)
    spelled: dict[str, str] = field(default_factory=dict)  # folded path -> path

    def check(self, entry: tarfile.TarInfo) -> None:
        """What is refused of any entry, wanted or not."""
        self.entries += 1
        name = entry.name
        if self.entries > self.limits.members:
            raise self._error(ArchiveTooManyMembers, name, f"more than {self.limits.members} entries")
        if len(name.encode("utf-8", "surrogateescape")) > self.limits.path_bytes:
            raise self._error(ArchivePathTooLong, f"{name[:80]}...", f"over {self.limits.path_bytes} bytes")
        if name.startswith("/"):
            raise self._error(ArchiveAbsolutePath, name, "an absolute path")
        if ".." in name.split("/"):
            raise self._error(ArchiveParentPath, name, "a path with '..'")
        if "\0" in name:
            raise self._error(ArchiveDamaged, name, "a path with a zero byte")
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            raise self._error(ArchiveSpecialFile, name, "a device, a pipe or another special file")
        if entry.size > self.limits.file_bytes:
            raise self._error(ArchiveFileTooLarge, name, f"{entry.size} bytes")
        top = _parts(name)[:1]
        self.top = self.top or "".join(top)
        if top and top[0] != self.top:
            raise self._error(ArchiveDamaged, name, f"beside the top folder {self.top}")

    def take(self, entry: tarfile.TarInfo, entries: tarfile.TarFile) -> Member | None:
        """The member for an entry, if it is one of those asked for."""
        path = self._path(entry.name)
        if path is None or entry.isdir():
            return None
        if ".git" in path.lower().split("/"):
            raise self._error(ArchiveGitFolder, entry.name, "git's own folder, which no tree has")
        self._claim(path, entry.name)
        if entry.issym():
            return self._remember(path, "120000", self._link_target(path, entry))
        if entry.islnk():
            source = self._path(entry.linkname)
            if source is None or self.files.get(source, "120000") == "120000":
                raise self._error(ArchiveLinkOutside, entry.name, f"a hard link to {entry.linkname}")
            return self._remember(path, self.files[source], b"", same_as=source)
        stream = entries.extractfile(entry)
        if stream is None:
            raise self._error(ArchiveDamaged, entry.name, "no content")
        # Only the owner's execute bit means anything to git; all others are dropped.
        return self._remember(path, "100755" if entry.mode & 0o100 else "100644", stream.read())

    def _path(self, name: str) -> str | None:
        """Relative to the wanted folder; None outside of it, and for what is left out."""
        path = "/".join(_parts(name)[1:])
        if not path.startswith(f"{self.subdir}/"):
            return None
        path = path.removeprefix(f"{self.subdir}/")
        return None if any(path == left or path.startswith(f"{left}/") for left in self.omit) else path

    def _claim(self, path: str, name: str) -> None:
        """Each path once, in one spelling, and no file where another has a folder."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            part = "/".join(parts[:depth])
            before = self.spelled.setdefault(_folded(part), part)
            is_file = depth == len(parts)
            if before != part or part in self.files or (is_file and part in self.folders):
                raise self._error(ArchiveDuplicate, name, f"it would take the place of {before}")
            if not is_file:
                self.folders.add(part)

    def _link_target(self, path: str, entry: tarfile.TarInfo) -> bytes:
        """A link may climb, but only at first and not above the tree; so it cannot leave by detours."""
        parts = entry.linkname.split("/")
        climbs = len([part for part in parts if part == ".."])
        leading = parts[:climbs] == [".."] * climbs
        if entry.linkname.startswith("/") or not leading or climbs > path.count("/"):
            raise self._error(ArchiveLinkOutside, entry.name, f"a link to {entry.linkname}")
        return entry.linkname.encode("utf-8", "surrogateescape")

    def _remember(self, path: str, mode: str, data: bytes, same_as: str | None = None) -> Member:
        self.files[path] = mode
        return Member(path=path, mode=mode, data=data, same_as=same_as)

    def _error(self, kind: type[SourceError], name: str, what: str) -> SourceError:
        return kind(
            f"{self.archive.name} has the entry {name!r}: {what}",
            where=Location(path=str(self.archive), label=name),
            why="nothing of an archive with such an entry is used",
        )


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _folded(path: str) -> str:
    """The same for paths that some file systems take for one: letter case, composed accents."""
    return unicodedata.normalize("NFC", path).casefold()
