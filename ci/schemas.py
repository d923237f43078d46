"""Checks that the committed JSON schemas are what the models say; ``--write`` writes them anew."""

from __future__ import annotations

import sys
from pathlib import Path

from patchkit.config.schema import profile_schema

__all__ = ["SCHEMAS", "stale_schemas"]

_ROOT = Path(__file__).resolve().parents[1]

SCHEMAS = {_ROOT / "arch_profiles" / "schema.json": profile_schema}


def stale_schemas() -> list[Path]:
    """The files that are missing or differ from their model."""
    return [path for path, make in SCHEMAS.items() if not path.is_file() or path.read_text("utf-8") != make()]


if __name__ == "__main__":
    stale = stale_schemas()
    if "--write" in sys.argv[1:]:
        for path in stale:
            path.write_text(SCHEMAS[path](), encoding="utf-8")
    elif stale:
        names = " ".join(path.relative_to(_ROOT).as_posix() for path in stale)
        sys.exit(f"not what the models say: {names}\nwrite them with: python ci/schemas.py --write")
