"""Read the raw bytes of a git object: its id, and the date of a commit."""

from __future__ import annotations

import datetime as dt
import hashlib
import re


def object_id(kind: str, data: bytes) -> str:
    """The id of a git object. SHA-1 is needed because git uses it; nothing else relies on its security."""
    digest = hashlib.sha1(f"{kind} {len(data)}\0".encode(), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


_COMMITTER = re.compile(
    rb"^committer .*> (?P<seconds>[0-9]{1,11}) (?P<sign>[+-])(?P<h>[0-9]{2})(?P<m>[0-9]{2})$", re.MULTILINE
)
_ZONE = 14 * 60  # minutes: the largest time zone offset that git fast-import accepts


def commit_date(raw: bytes) -> str | None:
    """The committer date of a commit object, RFC 3339 with its zone; None if it has none.

    An impossible zone becomes the nearest possible one, and an impossible year the start of 1970.
    """
    found = _COMMITTER.search(raw.partition(b"\n\n")[0])
    if found is None:
        return None
    minutes = (int(found["h"]) * 60 + int(found["m"])) * (-1 if found["sign"] == b"-" else 1)
    zone = dt.timezone(dt.timedelta(minutes=max(-_ZONE, min(_ZONE, minutes))))
    try:
        return dt.datetime.fromtimestamp(int(found["seconds"]), zone).isoformat()
    except (ValueError, OverflowError):  # beyond the year 9999
        return dt.datetime.fromtimestamp(0, dt.UTC).isoformat()
