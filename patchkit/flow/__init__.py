"""The verbs without a terminal: plan, apply, status, diff, export, doctor."""

from __future__ import annotations

__all__: list[str] = []
