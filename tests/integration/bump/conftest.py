"""The small upstream with a history, as fixtures."""

from __future__ import annotations

from river import river, spring

__all__ = ["river", "spring"]
