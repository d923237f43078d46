"""A source distribution of a package: downloaded by name, version and sha256, then read.

It is not opened unless its sha256 is that of the lock, and nothing in it is ever run.
"""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import requests
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DistributionPackage,
    NoSuchProjectError,
    PyPISimple,
    UnexpectedRepoVersionWarning,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from patchkit.base.errors import Location, SourceError
from patchkit.base.files import disk_errors, file_sha256
from patchkit.base.reporter import Advance, Reporter
from patchkit.carry.series.lock import SdistSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for an archive. The largest of the corpus: 38 MB, 4026 entries, 173 MB unpacked."""

    total_bytes: int = 2 * 1024**3
    members: int = 50_000
    file_bytes: int = 256 * 1024**2
    ratio: int = 100  # unpacked bytes per packed byte; source text packs to about a fifth
    path_bytes: int = 1024
    header_bytes: int = 1024**2  # of one entry: long names, extended attributes


LIMITS = Limits()

_FREE_BYTES = 16 * 1024**2  # the ratio is not checked below this size


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file. ``mode`` is git's; ``same_as`` names an earlier member with the same bytes (a hard link)."""

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
    """The files of ``subdir``, below the single top folder of a source archive.

    Args:
        archive: a gzip-compressed tar file.
        subdir: the wanted folder, relative to the top folder.
        omit: paths relative to ``subdir`` to skip, with everything below them.
        limits: an archive that exceeds them is rejected.
        on_bytes: called with the packed bytes read so far and in total.

    Raises:
        SourceError: one of the errors of :mod:`patchkit.carry.upstream.sdist`, naming the entry.
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
                    # The content of this entry, and the header of the next one.
                    meter.allow_to(entries.offset + limits.header_bytes)
                    member = reader.take(entry, entries)
                    if member is not None:
                        count += 1
                        yield member
                    on_bytes(packed.tell(), size)
            meter.check_end(entries.offset)
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise SourceError(
            f"{archive.name} is damaged or truncated",
            code="ARCHIVE_REFUSED",
            where=Location(path=str(archive)),
            why=str(error),
        ) from error
    if not count:
        raise SourceError(
            f"{archive.name} has no files in {subdir}",
            code="ARCHIVE_REFUSED",
            where=Location(path=str(archive)),
        )


@dataclass(slots=True)
class _Meter:
    """Counts the decompressed bytes, and stops at a limit."""

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
                f"{self.archive.name} unpacks to more than {self.allowed} bytes",
                code="ARCHIVE_REFUSED",
                where=Location(path=str(self.archive)),
                why="a source tree is not that large, and does not compress that well",
            )
        self.last = data or self.last
        return data

    def check_end(self, offset: int) -> None:
        """Check that only zeros follow the last entry; otherwise the archive is damaged."""
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
    """Checks one entry after the other, with the preceding ones in mind."""

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
        """Reject an invalid entry, whether it is wanted or not."""
        self.entries += 1
        name = entry.name
        if self.entries > self.limits.members:
            raise self._error(name, f"more than {self.limits.members} entries", code="ARCHIVE_REFUSED")
        if len(name.encode("utf-8", "surrogateescape")) > self.limits.path_bytes:
            what = f"over {self.limits.path_bytes} bytes"
            raise self._error(f"{name[:80]}...", what, code="ARCHIVE_REFUSED")
        if name.startswith("/"):
            raise self._error(name, "an absolute path", code="ARCHIVE_REFUSED")
        if ".." in name.split("/"):
            raise self._error(name, "a path with '..'", code="ARCHIVE_REFUSED")
        if "\0" in name:
            raise self._error(name, "a path with a NUL byte", code="ARCHIVE_REFUSED")
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            raise self._error(name, "a device, a pipe or another special file", code="ARCHIVE_REFUSED")
        if entry.size > self.limits.file_bytes:
            raise self._error(name, f"{entry.size} bytes", code="ARCHIVE_REFUSED")
        top = _parts(name)[:1]
        self.top = self.top or "".join(top)
        if top and top[0] != self.top:
            raise self._error(name, f"not in the top folder {self.top}", code="ARCHIVE_REFUSED")

    def take(self, entry: tarfile.TarInfo, entries: tarfile.TarFile) -> Member | None:
        """The member for an entry, if it is wanted."""
        path = self._path(entry.name)
        if path is None or entry.isdir():
            return None
        if ".git" in path.lower().split("/"):
            raise self._error(entry.name, "git's own folder, which no tree has", code="ARCHIVE_REFUSED")
        self._claim(path, entry.name)
        if entry.issym():
            return self._remember(path, "120000", self._link_target(path, entry))
        if entry.islnk():
            source = self._path(entry.linkname)
            if source is None or self.files.get(source, "120000") == "120000":
                raise self._error(entry.name, f"a hard link to {entry.linkname}", code="ARCHIVE_REFUSED")
            return self._remember(path, self.files[source], b"", same_as=source)
        stream = entries.extractfile(entry)
        if stream is None:
            raise self._error(entry.name, "no content", code="ARCHIVE_REFUSED")
        # Git only uses the owner's execute bit; all others are dropped.
        return self._remember(path, "100755" if entry.mode & 0o100 else "100644", stream.read())

    def _path(self, name: str) -> str | None:
        """Relative to the wanted folder; None outside of it, and for omitted paths."""
        path = "/".join(_parts(name)[1:])
        if not path.startswith(f"{self.subdir}/"):
            return None
        path = path.removeprefix(f"{self.subdir}/")
        return None if any(path == left or path.startswith(f"{left}/") for left in self.omit) else path

    def _claim(self, path: str, name: str) -> None:
        """Require that each path occurs once, in one spelling, and that no file has the path of a folder."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            part = "/".join(parts[:depth])
            before = self.spelled.setdefault(_folded(part), part)
            is_file = depth == len(parts)
            if before != part or part in self.files or (is_file and part in self.folders):
                raise self._error(name, f"it conflicts with {before}", code="ARCHIVE_REFUSED")
            if not is_file:
                self.folders.add(part)

    def _link_target(self, path: str, entry: tarfile.TarInfo) -> bytes:
        """The target of a link; '..' is allowed only at its start, and not above the tree."""
        parts = entry.linkname.split("/")
        climbs = len([part for part in parts if part == ".."])
        leading = parts[:climbs] == [".."] * climbs
        if entry.linkname.startswith("/") or not leading or climbs > path.count("/"):
            raise self._error(entry.name, f"a link to {entry.linkname}", code="ARCHIVE_REFUSED")
        return entry.linkname.encode("utf-8", "surrogateescape")

    def _remember(self, path: str, mode: str, data: bytes, same_as: str | None = None) -> Member:
        self.files[path] = mode
        return Member(path=path, mode=mode, data=data, same_as=same_as)

    def _error(self, name: str, what: str, *, code: str) -> SourceError:
        return SourceError(
            f"{self.archive.name} has the entry {name!r}: {what}",
            code=code,
            where=Location(path=str(self.archive), label=name),
            why="an archive with such an entry is rejected",
        )


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _folded(path: str) -> str:
    """The same key for paths that some file systems treat as equal: letter case, composed accents."""
    return unicodedata.normalize("NFC", path).casefold()


_TRIES = 3
_TIMEOUT_S = (10.0, 30.0)  # to connect, and between two pieces
_PIECE = 64 * 1024  # bytes; an interruption loses less than one piece
_LARGEST = 512 * 1024**2  # bytes; the corpus has up to 38 MB


def fetch_sdist(
    source: SdistSource, *, downloads: Path, reporter: Reporter, index_url: str | None = None
) -> Path:
    """The verified archive in the folder ``downloads``, downloaded if it is not there.

    Raises:
        SDIST_UNAVAILABLE: it could not be downloaded.
        SDIST_DIGEST_MISMATCH: it is a different file, which was removed.
        CacheError: the disk reported an error.
    """
    archive = downloads / f"{source.sha256}.tar.gz"
    part = downloads / f"{source.sha256}.part"
    with disk_errors(downloads, "downloading"):
        downloads.mkdir(parents=True, exist_ok=True)
        if archive.is_file() and file_sha256(archive) == source.sha256:
            return archive
    with PyPISimple(endpoint=index_url or PYPI_SIMPLE_ENDPOINT) as client:
        package = _find(client, source)
        if package.is_yanked:
            reporter.info(f"{package.filename} was yanked by its authors; it is used if its sha256 is right")
        with reporter.progress(f"downloading {package.filename}", "bytes") as advance:
            digest = _download(client, package, part, advance)
    if digest != source.sha256:
        raise _mismatch(source, package.filename, digest)
    with disk_errors(archive, "downloading"):
        part.replace(archive)
    return archive


def _find(client: PyPISimple, source: SdistSource) -> DistributionPackage:
    wanted = f"the source distribution of {source.package} {source.version}"
    try:
        with warnings.catch_warnings():
            # A newer minor version of the index's protocol only adds fields, which are not used here.
            warnings.simplefilter("ignore", UnexpectedRepoVersionWarning)
            page = client.get_project_page(source.package, timeout=_TIMEOUT_S)
    except NoSuchProjectError as error:
        raise SourceError(
            f"{wanted} was not found",
            code="SDIST_UNAVAILABLE",
            why=f"the package index has no package {source.package}",
            hint=_HINT,
        ) from error
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError) as error:
        raise SourceError(
            "the package index sent an unsupported response", code="SDIST_UNAVAILABLE", why=str(error)
        ) from error
    except requests.RequestException as error:
        raise _network(wanted, error) from error
    for package in page.packages:
        if package.package_type == "sdist" and package.version == source.version:
            known = package.digests.get("sha256", source.sha256)
            if known != source.sha256:
                raise _mismatch(source, package.filename, known)
            return package
    versions = len({package.version for package in page.packages})
    raise SourceError(
        f"{wanted} was not found",
        code="SDIST_UNAVAILABLE",
        why=f"the index lists {versions} other versions",
        hint=_HINT,
    )


def _download(client: PyPISimple, package: DistributionPackage, part: Path, advance: Advance) -> str:
    """Complete a partial download; returns the sha256 of the whole file."""
    with disk_errors(part, "downloading"):
        resumed_from = part.stat().st_size if part.exists() else 0
    for left in reversed(range(_TRIES)):
        try:
            _continue(client, package, part, advance)
        except requests.RequestException as error:
            if left:
                continue
            raise _network(package.filename, error) from error
        digest = file_sha256(part)
        wrong = digest != package.digests.get("sha256", digest)
        if not wrong:
            return digest
        with disk_errors(part, "downloading"):
            part.unlink()
        if not resumed_from or not left:
            return digest
        resumed_from = 0  # the old part was of another file: download again from the start
    raise AssertionError("every round returns or raises")


def _continue(client: PyPISimple, package: DistributionPackage, part: Path, advance: Advance) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.s.get(package.url, stream=True, headers=headers, timeout=_TIMEOUT_S) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            _empty(part)
            raise requests.ConnectionError("the partial download was longer than the file")
        answer.raise_for_status()
        goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code != requests.codes.partial_content or not goes_on:
            have = 0
        rest = answer.headers.get("Content-Length", "")
        total = have + int(rest) if rest.isdecimal() else None
        with _opened(part, "ab" if have else "wb") as stream:
            for piece in answer.iter_content(_PIECE):
                have += len(piece)
                if have > _LARGEST:
                    raise SourceError(
                        f"{package.filename} is larger than {_LARGEST} bytes",
                        code="SDIST_UNAVAILABLE",
                        where=Location(path=str(part)),
                    )
                _write(stream, piece, part)
                advance(have, total)


def _opened(part: Path, mode: str) -> AbstractContextManager[BinaryIO]:
    with disk_errors(part, "downloading"):
        # Unbuffered, so that a full disk is reported by the write itself, and a kill loses nothing.
        return part.open(mode, buffering=0)  # type: ignore[return-value]


def _write(stream: BinaryIO, piece: bytes, part: Path) -> None:
    left = memoryview(piece)
    with disk_errors(part, "downloading"):
        while left:  # on a disk that is nearly full, a write may be incomplete
            left = left[stream.write(left) :]


def _empty(part: Path) -> None:
    with disk_errors(part, "downloading"):
        part.unlink(missing_ok=True)


_HINT = "patchkit apply --source git gets the tree from the git remote instead"


def _network(what: str, error: Exception) -> SourceError:
    return SourceError(
        f"{what} could not be downloaded",
        code="SDIST_UNAVAILABLE",
        why=str(error),
        hint="run the command again; it continues where it was interrupted",
    )


def _mismatch(source: SdistSource, filename: str, found: str) -> SourceError:
    return SourceError(
        f"{filename} has sha256 {found}, but the lock has {source.sha256}",
        code="SDIST_DIGEST_MISMATCH",
        why="the file was changed, or the index serves a different one; it was not opened",
        hint=_HINT,
    )
