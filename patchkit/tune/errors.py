"""What can be wrong with tuning."""

from __future__ import annotations
