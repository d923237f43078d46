"""Prints one command of the README, so that CI runs exactly that command.

A command is the ``sh`` block that follows the comment ``<!-- NAME -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_README = Path(__file__).resolve().parents[1] / "README.md"


def readme_block(name: str) -> str:
    """The command called ``name``; raises LookupError when the README has none."""
    found = re.search(
        rf"<!-- {re.escape(name)} -->\n```sh\n(.*?)\n```", _README.read_text("utf-8"), re.DOTALL
    )
    if found is None:
        raise LookupError(f"README.md has no command '{name}'")
    return found.group(1)


if __name__ == "__main__":
    sys.stdout.write(readme_block(sys.argv[1]) + "\n")
