"""``python -m patchkit``."""

from __future__ import annotations

from patchkit.cli.app import run

if __name__ == "__main__":
    run()
