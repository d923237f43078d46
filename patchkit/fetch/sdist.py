"""Downloading a source distribution from the package index, by name, version and sha256.

Vocabulary: the *index* is what pypi_simple asks when nobody names another; a *part* is a download
that is not complete, kept so that the next try can go on from there.

Nothing is opened before its sha256 is that of the lock, and nothing of the package is ever run.
"""

from __future__ import annotations

import hashlib
import warnings
from contextlib import AbstractContextManager
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

from patchkit.config.lock import SdistSource
from patchkit.errors import Location, SourceError
from patchkit.report import Advance, Reporter
from patchkit.vcs.disk import disk_errors

_TRIES = 3
_TIMEOUT_S = (10.0, 30.0)  # to connect, and between two pieces
_PIECE = 64 * 1024  # bytes; a cut loses less than one
_LARGEST = 512 * 1024**2  # bytes; the corpus has up to 38 MB


class SdistNetwork(SourceError):
    """The index or its files could not be reached, or the download was cut."""

    code = "SDIST_NETWORK"


class IndexUnusable(SourceError):
    """What answered is no package index that pypi_simple understands."""

    code = "SDIST_INDEX_UNUSABLE"


class SdistDigestMismatch(SourceError):
    """The file is not the one the lock names."""

    code = "SDIST_DIGEST_MISMATCH"


def fetch_sdist(
    source: SdistSource, *, downloads: Path, reporter: Reporter, index_url: str | None = None
) -> Path:
    """The verified archive in the folder ``downloads``, downloaded if it is not there.

    Raises:
        SDIST_MISSING, IndexUnusable, SdistNetwork, SDIST_TOO_LARGE: it could not be had.
        SdistDigestMismatch: it is another file; it was removed.
        CacheError: the disk refused.
    """
    archive = downloads / f"{source.sha256}.tar.gz"
    part = downloads / f"{source.sha256}.part"
    with disk_errors(downloads, "downloading"):
        downloads.mkdir(parents=True, exist_ok=True)
        if archive.is_file() and _sha256(archive) == source.sha256:
            return archive
    with PyPISimple(endpoint=index_url or PYPI_SIMPLE_ENDPOINT) as client:
        package = _find(client, source)
        if package.is_yanked:
            reporter.info(f"{package.filename} was withdrawn by its authors; its sha256 decides")
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
            # A newer minor version of the index's protocol has more fields; none that is used here.
            warnings.simplefilter("ignore", UnexpectedRepoVersionWarning)
            page = client.get_project_page(source.package, timeout=_TIMEOUT_S)
    except NoSuchProjectError as error:
        raise SourceError(
            f"{wanted} was not found",
            code="SDIST_MISSING",
            why=f"the package index has no package {source.package}",
            hint=_HINT,
        ) from error
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError) as error:
        raise IndexUnusable("the package index gave an answer of another kind", why=str(error)) from error
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
        code="SDIST_MISSING",
        why=f"the index lists {versions} other versions",
        hint=_HINT,
    )


def _download(client: PyPISimple, package: DistributionPackage, part: Path, advance: Advance) -> str:
    """Complete the part, going on where a cut left it; the sha256 of the whole."""
    with disk_errors(part, "downloading"):
        begun = part.stat().st_size if part.exists() else 0
    for left in reversed(range(_TRIES)):
        try:
            _continue(client, package, part, advance)
        except requests.RequestException as error:
            if left:
                continue
            raise _network(package.filename, error) from error
        digest = _sha256(part)
        wrong = digest != package.digests.get("sha256", digest)
        if not wrong:
            return digest
        with disk_errors(part, "downloading"):
            part.unlink()
        if not begun or not left:
            return digest
        begun = 0  # what lay there from before was something else: once more, from the start
    raise AssertionError("every round returns or raises")


def _continue(client: PyPISimple, package: DistributionPackage, part: Path, advance: Advance) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.s.get(package.url, stream=True, headers=headers, timeout=_TIMEOUT_S) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            _empty(part)
            raise requests.ConnectionError("the part was longer than the file")
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
                        code="SDIST_TOO_LARGE",
                        where=Location(path=str(part)),
                    )
                _write(stream, piece, part)
                advance(have, total)


def _opened(part: Path, mode: str) -> AbstractContextManager[BinaryIO]:
    with disk_errors(part, "downloading"):
        # Unbuffered: a full disk shows at the write that meets it, and a kill loses nothing.
        return part.open(mode, buffering=0)  # type: ignore[return-value]


def _write(stream: BinaryIO, piece: bytes, part: Path) -> None:
    left = memoryview(piece)
    with disk_errors(part, "downloading"):
        while left:  # the last write before a full disk takes a part of what it is given
            left = left[stream.write(left) :]


def _empty(part: Path) -> None:
    with disk_errors(part, "downloading"):
        part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_HINT = "patchkit apply --source git takes the tree from the git remote instead"


def _network(what: str, error: Exception) -> SdistNetwork:
    return SdistNetwork(
        f"{what} could not be downloaded",
        why=str(error),
        hint="run the command again: it goes on where it was cut",
    )


def _mismatch(source: SdistSource, filename: str, found: str) -> SdistDigestMismatch:
    return SdistDigestMismatch(
        f"{filename} has sha256 {found}, the lock says {source.sha256}",
        why="the file was changed, or the index serves another one; it was not opened",
        hint=_HINT,
    )
