"""What the bytes of a git object say: its id, and when a commit was committed."""

from __future__ import annotations

import datetime as dt
import hashlib
import re


def object_id(kind: str, data: bytes) -> str:
    """Git's name for an object; nothing rests on SHA-1 being hard to forge but what rests on git."""
    head = f"{kind} {len(data)}\0".encode()
    return hashlib.sha1(head + data, usedforsecurity=False).hexdigest()


_COMMITTER = re.compile(
    rb"^committer .*> (?P<seconds>[0-9]{1,11}) (?P<sign>[+-])(?P<h>[0-9]{2})(?P<m>[0-9]{2})$", re.MULTILINE
)
_ZONE = 14 * 60  # minutes: what git fast-import takes for a zone


def commit_date(raw: bytes) -> str | None:
    """When a commit object was committed, RFC 3339 with its zone; None when it does not say.

    A zone or a year that no date can have becomes the nearest zone, or the beginning of 1970.
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
