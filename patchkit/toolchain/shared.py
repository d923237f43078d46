"""A read-only shared cache: a folder, or an HTTP server with the layout of Bazel's remote cache.

``<place>/ac/<key>`` lists the files of an entry, ``<place>/cas/<sha256>`` has the compressed bytes of a file.
A key is a digest of the inputs: sources, flags, compiler. An entry whose digests do not match is ignored, and
its result is computed locally.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import requests
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchkit.base.digests import sha256
from patchkit.base.errors import UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.reporter import Reporter

VARIABLE = "PATCHKIT_STORE"
"""The environment variable with its folder or address."""

_FORMAT = 1
_PATIENCE_S = (10.0, 60.0)  # timeouts for connecting, and for each read
_MOST_RECORD = 4 << 20  # bytes of an entry's record
_MOST_BLOB = 1 << 30  # bytes of one file, compressed or not; the largest of build 11549 has 40 MB
_MOST_FILES = 4096
_PIECE = 1 << 20
_KEY = re.compile(r"[0-9a-f]{64}")
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _File(BaseModel):
    """A file of an entry. ``blob`` is the sha256 of its compressed bytes; ``size`` is uncompressed."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    sha256: _Digest
    size: Annotated[int, Field(ge=0, le=_MOST_BLOB)]
    executable: bool
    blob: _Digest


class _Record(BaseModel):
    """The record of an entry. ``links`` point to files of the entry; ``digest`` covers all other fields."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    key: _Digest
    files: Annotated[list[_File], Field(max_length=_MOST_FILES)]
    links: Annotated[dict[str, str], Field(max_length=_MOST_FILES)]
    digest: str

    def own_digest(self) -> str:
        """The expected value of ``digest``."""
        text = json.dumps(self.model_dump(exclude={"digest"}), sort_keys=True)
        return sha256(text)


class _Unusable(Exception):
    """An entry is invalid; the message is the reason. Internal: becomes a warning."""


class _Unreachable(Exception):
    """The server cannot be reached; the message is the reason. Internal: becomes a warning."""


@dataclass(slots=True, kw_only=True)
class SharedStore:
    """A shared store; ``fetched`` counts the entries fetched from it. Thread-safe."""

    place: str
    reporter: Reporter
    fetched: int = 0
    _is_dead: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the files of an entry into a folder; False, and no files, if it is not available.

        Raises CacheError.
        """
        if self._is_dead:
            return False
        written: list[Path] = []
        try:
            record = self._record(key)
            if record is None:
                return False
            for one in record.files:
                self._write(one, _below(folder, one.name), written)
            for name, target in record.links.items():
                self._link(_below(folder, name), target, written)
        except _Unusable as error:
            _remove(written)
            self.reporter.warn(
                f"{self.place}: entry {key[:16]} is ignored and will be created locally: {error}"
            )
            return False
        except _Unreachable as error:
            _remove(written)
            self._give_up(error)
            return False
        except BaseException:
            _remove(written)
            raise
        with self._lock:
            self.fetched += 1
        return True

    def _record(self, key: str) -> _Record | None:
        data = self._get("ac", key, _MOST_RECORD)
        if data is None:
            return None
        try:
            record = _Record.model_validate_json(data)
        except ValidationError as error:
            raise _Unusable(f"its record cannot be parsed: {error.errors()[0]['msg']}") from error
        if record.format != _FORMAT or record.key != key or record.digest != record.own_digest():
            raise _Unusable("its record is damaged, or belongs to another entry")
        return record

    def _write(self, one: _File, path: Path, written: list[Path]) -> None:
        packed = self._get("cas", one.blob, _MOST_BLOB)
        if packed is None:
            raise _Unusable(f"its file {one.name} is missing")
        if sha256(packed) != one.blob:
            raise _Unusable(f"its file {one.name} is damaged")
        data = _unpacked(packed, one)
        if len(data) != one.size or sha256(data) != one.sha256:
            raise _Unusable(f"its file {one.name} does not match the record")
        with disk_errors(path, "fetching a result from the shared store"):
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.write_bytes(data)
            if one.executable:
                path.chmod(0o755)

    def _link(self, path: Path, target: str, written: list[Path]) -> None:
        if "/" in target or target in ("", ".", ".."):
            raise _Unusable(f"its link {path.name} points outside the entry")
        with disk_errors(path, "fetching a result from the shared store"):
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.symlink_to(target)

    def _get(self, kind: str, name: str, most: int) -> bytes | None:
        """The bytes of one file of the store; None if it is missing."""
        if _is_url(self.place):
            data = _download(f"{self.place.rstrip('/')}/{kind}/{name}", most)
        else:
            data = _read(Path(self.place) / kind / name, most)
        if data is not None and len(data) > most:
            raise _Unusable(f"{kind}/{name[:16]} exceeds {most} bytes")
        return data

    def _give_up(self, error: _Unreachable) -> None:
        with self._lock:
            was_dead, self._is_dead = self._is_dead, True
        if not was_dead:
            self.reporter.warn(f"cannot reach {self.place}; continuing without it: {error}")


def _is_url(place: str) -> bool:
    return "://" in place


def _read(path: Path, most: int) -> bytes | None:
    """The bytes of a file, up to one more than ``most``; None if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _Unusable(f"{path.name[:16]} cannot be read: {error.strerror}") from error


def _download(url: str, most: int) -> bytes | None:
    data = b""
    try:
        with requests.get(url, timeout=_PATIENCE_S, stream=True) as answer:
            if answer.status_code == requests.codes.not_found:
                return None
            answer.raise_for_status()
            for piece in answer.iter_content(_PIECE):
                data += piece
                if len(data) > most:
                    break
    except requests.RequestException as error:
        raise _Unreachable(str(error)) from error
    return data


def shared_store(environ: Mapping[str, str], reporter: Reporter) -> SharedStore | None:
    """The shared store at ``PATCHKIT_STORE``; None if that is not set.

    Raises STORE_PLACE_BAD if it is neither an existing folder nor an http(s) address.
    """
    place = environ.get(VARIABLE, "").strip()
    if not place:
        return None
    if place not in _opened:  # shared by all users in the process: one counter, one warning
        _check(place)
        where = place if _is_url(place) else str(Path(place).resolve())
        _opened[place] = SharedStore(place=where, reporter=reporter)
    return _opened[place]


_opened: dict[str, SharedStore] = {}


def _check(place: str) -> None:
    if not _is_url(place):
        if not Path(place).is_dir():
            raise _bad(place, "the folder does not exist")
        return
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise _bad(place, "an address must start with http:// or https://")


def _bad(place: str, why: str) -> UsageError:
    return UsageError(
        f"{VARIABLE} is not a shared store: {place[:200]!r}",
        code="STORE_PLACE_BAD",
        why=why,
        hint="set it to a folder written by 'patchkit store pack', or to its http(s) address; or unset it",
    )


def pack_entry(key: str, folder: Path, names: Iterator[Path], place: Path) -> int:
    """Write an entry with the files ``names`` of ``folder`` into a shared store. Returns the bytes added.

    Raises CacheError.
    """
    doing = "packing a store"
    files, links, new = [], {}, 0
    for path in names:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            links[name] = str(path.readlink())
            continue
        with disk_errors(path, doing):
            data = path.read_bytes()
        packed = gzip.compress(data, 6, mtime=0)
        blob = sha256(packed)
        target = place / "cas" / blob
        if not target.exists():
            write_whole(target, packed, doing)
            new += len(packed)
        files.append(
            _File(
                name=name,
                sha256=sha256(data),
                size=len(data),
                executable=os.access(path, os.X_OK),
                blob=blob,
            )
        )
    record = _Record(format=_FORMAT, key=key, files=files, links=links, digest="")
    record = record.model_copy(update={"digest": record.own_digest()})
    write_whole(place / "ac" / key, record.model_dump_json(), doing)
    return new


def _below(folder: Path, name: str) -> Path:
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise _Unusable(f"its file {name[:80]!r} is outside the entry")
    return folder / name


def _unpacked(packed: bytes, one: _File) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    try:
        data = unpacker.decompress(packed, one.size + 1)
    except zlib.error as error:
        raise _Unusable(f"its file {one.name} cannot be decompressed") from error
    if not unpacker.eof or unpacker.unused_data:
        raise _Unusable(f"the size of its file {one.name} does not match the record")
    return data


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
