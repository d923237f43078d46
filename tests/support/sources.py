"""Source text as the tests write it."""

from __future__ import annotations

from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes


def read(text: str | bytes, path: str = "t.cu") -> ScopeMap:
    """The structure of a file with that text."""
    return parse_scopes(SourceText(path, text if isinstance(text, bytes) else text.encode()))
