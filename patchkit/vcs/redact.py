"""Keeping passwords and tokens in the URLs of remotes out of what people read and paste."""

from __future__ import annotations

import re

# A token may stand in the place of the name, too; only ssh has names that are no secret.
_SECRET = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*)://(?P<who>[^/\s]*)@")


def redacted(text: str) -> str:
    """The text with ``***`` for what is secret in every URL of it."""
    return _SECRET.sub(_hide, text)


def _hide(found: re.Match[str]) -> str:
    name, colon, _ = found["who"].partition(":")
    is_ssh = found["scheme"].lower() in ("ssh", "git+ssh")
    shown = f"{name}{':***' if colon else ''}" if is_ssh else "***"
    return f"{found['scheme']}://{shown}@"
