"""Results that others made: a folder, or an HTTP server that speaks the protocol of Bazel's remote cache.

``<place>/ac/<key>`` names the files of an entry, ``<place>/cas/<sha256>`` has the bytes of one, packed. A key
says what its files are made from: sources, flags, compiler. An entry that does not hash to what it says, or
is another one's, is not used, and is made here as if it were not there. The place is only read.
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
"""The environment variable that names the place."""

_FORMAT = 1
_PATIENCE_S = (10.0, 60.0)  # for the connection, and between two pieces of an answer
_MOST_RECORD = 4 << 20  # bytes of what names the files of an entry
_MOST_BLOB = 1 << 30  # bytes of one file, packed or not; the largest of build 11549 has 40 MB
_MOST_FILES = 4096
_PIECE = 1 << 20
_KEY = re.compile(r"[0-9a-f]{64}")
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _File(BaseModel):
    """``blob`` is the sha256 of the packed bytes, ``sha256`` and ``size`` are of the file."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    sha256: _Digest
    size: Annotated[int, Field(ge=0, le=_MOST_BLOB)]
    executable: bool
    blob: _Digest


class _Record(BaseModel):
    """One entry. ``links`` are links to files of the entry; ``digest`` is of all the rest."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    key: _Digest
    files: Annotated[list[_File], Field(max_length=_MOST_FILES)]
    links: Annotated[dict[str, str], Field(max_length=_MOST_FILES)]
    digest: str

    def own_digest(self) -> str:
        """What ``digest`` has to be."""
        text = json.dumps(self.model_dump(exclude={"digest"}), sort_keys=True)
        return sha256(text)


class _Unusable(Exception):
    """Why an entry is not used. Internal: told as a warning."""


class _NoAnswer(Exception):
    """Why the server is not asked again. Internal: told as a warning."""


@dataclass(slots=True, kw_only=True)
class SharedStore:
    """The entries of a place; ``taken`` counts those that were used. Threads may share it."""

    place: str
    reporter: Reporter
    fetched: int = 0
    _is_dead: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the files of an entry into a folder; False, and nothing in it, when it is not to be had.

        Raises CacheError when the disk refuses.
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
            self.reporter.warn(f"{self.place}: entry {key[:16]} is not used, and is made here: {error}")
            return False
        except _NoAnswer as error:
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
            raise _Unusable(f"its record does not read: {error.errors()[0]['msg']}") from error
        if record.format != _FORMAT or record.key != key or record.digest != record.own_digest():
            raise _Unusable("its record is of another entry, or damaged")
        return record

    def _write(self, one: _File, path: Path, written: list[Path]) -> None:
        packed = self._get("cas", one.blob, _MOST_BLOB)
        if packed is None:
            raise _Unusable(f"its file {one.name} is not there")
        if sha256(packed) != one.blob:
            raise _Unusable(f"its file {one.name} is damaged")
        data = _unpacked(packed, one)
        if len(data) != one.size or sha256(data) != one.sha256:
            raise _Unusable(f"its file {one.name} is another one")
        with disk_errors(path, "taking a result from the shared store"):
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.write_bytes(data)
            if one.executable:
                path.chmod(0o755)

    def _link(self, path: Path, target: str, written: list[Path]) -> None:
        if "/" in target or target in ("", ".", ".."):
            raise _Unusable(f"its link {path.name} leads out of it")
        with disk_errors(path, "taking a result from the shared store"):
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.symlink_to(target)

    def _get(self, kind: str, name: str, most: int) -> bytes | None:
        """The bytes of one file of the place; None where there is none."""
        if _is_url(self.place):
            data = _download(f"{self.place.rstrip('/')}/{kind}/{name}", most)
        else:
            data = _read(Path(self.place) / kind / name, most)
        if data is not None and len(data) > most:
            raise _Unusable(f"{kind}/{name[:16]} has more than {most} bytes")
        return data

    def _give_up(self, error: _NoAnswer) -> None:
        with self._lock:
            told, self._is_dead = self._is_dead, True
        if not told:
            self.reporter.warn(f"{self.place} does not answer, going on without it: {error}")


def _is_url(place: str) -> bool:
    return "://" in place


def _read(path: Path, most: int) -> bytes | None:
    """Up to one byte more than ``most`` of a file; None where there is none."""
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
        raise _NoAnswer(str(error)) from error
    return data


def shared_store(environ: Mapping[str, str], reporter: Reporter) -> SharedStore | None:
    """The store that ``PATCHKIT_STORE`` names; None without one.

    Raises STORE_PLACE_BAD: it is neither a folder that is there nor an http(s) address.
    """
    place = environ.get(VARIABLE, "").strip()
    if not place:
        return None
    if place not in _opened:  # one count and one warning for all that open it
        _check(place)
        where = place if _is_url(place) else str(Path(place).resolve())
        _opened[place] = SharedStore(place=where, reporter=reporter)
    return _opened[place]


_opened: dict[str, SharedStore] = {}


def _check(place: str) -> None:
    if not _is_url(place):
        if not Path(place).is_dir():
            raise _bad(place, "there is no such folder")
        return
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise _bad(place, "an address begins with http:// or https://")


def _bad(place: str, why: str) -> UsageError:
    return UsageError(
        f"{VARIABLE} is no place of a store: {place[:200]!r}",
        code="STORE_PLACE_BAD",
        why=why,
        hint="a folder that 'patchkit store pack' wrote, or the address of one; unset it to go without",
    )


def pack_entry(key: str, folder: Path, names: Iterator[Path], place: Path) -> int:
    """Write an entry into a place: the files ``names`` of ``folder``. Returns the bytes that were new.

    Raises CacheError when the disk refuses.
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
        raise _Unusable(f"its file {name[:80]!r} leads out of it")
    return folder / name


def _unpacked(packed: bytes, one: _File) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    try:
        data = unpacker.decompress(packed, one.size + 1)
    except zlib.error as error:
        raise _Unusable(f"its file {one.name} does not unpack") from error
    if not unpacker.eof or unpacker.unused_data:
        raise _Unusable(f"its file {one.name} is not as long as it says")
    return data


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
