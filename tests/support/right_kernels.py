"""What tests/integration/emulator/emulated_kernels.hip computes and compares with the host, on any build."""

from __future__ import annotations

RIGHT_KERNELS = (
    "places",
    "patterns",
    "lds",
    "lanes",
    "calls",
    "atomics",
    "waiting",
    "division",
    "halves",
    "wmma",
    "printf",
)
