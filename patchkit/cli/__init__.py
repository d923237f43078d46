"""The terminal side: options, messages, exit codes. The only package that imports click and rich."""

from __future__ import annotations

__all__: list[str] = []
