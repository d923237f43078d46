"""Proof that the stand-in for rocWMMA puts matrix elements where the matrix instruction wants them."""

from __future__ import annotations
