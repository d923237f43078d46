"""The instructions of llama.cpp's kernels."""

from __future__ import annotations

import re
from pathlib import Path


def load_names() -> set[str]:
    """Names without encoding; nothing that leaves no mark in registers or memory."""
    lines = Path(__file__).with_name("used.txt").read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def bare(mnemonic: str) -> str:
    """A mnemonic without the encoding that LLVM appends."""
    return re.sub(r"(_e(32|64))?(_dpp)?$", "", mnemonic)
