"""Versions of what is installed."""

from __future__ import annotations

import importlib.metadata


def version_of(distribution: str) -> str:
    """The installed version, or ``not installed`` (patchkit itself may run from a bare checkout)."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
