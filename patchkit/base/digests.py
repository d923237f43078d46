"""sha256 digests, as 64 hex digits, of bytes and of plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def sha256(data: bytes | str) -> str:
    """The digest of bytes, or of text encoded as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def key_of(parts: Mapping[str, object]) -> str:
    """The digest of a table, independent of key order; dates, paths and the like count as their text."""
    return sha256(json.dumps(parts, sort_keys=True, default=str))
