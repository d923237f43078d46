"""Parameters of kernels: which are legal, what the compiler makes of each, and which is the best."""

from __future__ import annotations
