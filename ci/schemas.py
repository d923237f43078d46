"""Checks that the committed JSON schemas match the models."""

from __future__ import annotations

import sys
from pathlib import Path

from patchkit.cli.schema import make_schemas

_ROOT = Path(__file__).resolve().parents[1]


def stale_schemas(root: Path) -> list[str]:
    """The schema files below ``root`` that are missing or differ from their model."""
    return [
        name
        for name, text in make_schemas().items()
        if not (root / name).is_file() or (root / name).read_text("utf-8") != text
    ]


if __name__ == "__main__":
    stale = stale_schemas(_ROOT)
    if stale:
        sys.exit(
            f"not what the models say: {' '.join(stale)}\nwrite them with: python -m patchkit.cli.schema"
        )
