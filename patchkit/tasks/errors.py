"""What can be wrong with a pool of workers."""

from __future__ import annotations
