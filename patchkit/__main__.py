"""``python -m patchkit``."""

from __future__ import annotations

from patchkit.cli.app import run

__all__: list[str] = []

if __name__ == "__main__":
    run()
