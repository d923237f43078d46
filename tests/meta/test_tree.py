"""What must not be in the tree: paths of one machine, registry hosts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Put together from parts, so that this file does not contain what it forbids.
_FORBIDDEN = {
    "a registry host": "|".join(
        re.escape(".".join(parts))
        for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org"))
    ),
    "a path of one machine": r"(?<![\w./-])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me/\w+)/|/tm" + r"p/w\b",
}


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert ROOT / "pyproject.toml" in paths
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("what", _FORBIDDEN)
def test_the_tree_is_free_of(what: str, tracked: list[Path]) -> None:
    pattern = re.compile(_FORBIDDEN[what].encode())
    hits = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if pattern.search(line)
    ]
    assert not hits
