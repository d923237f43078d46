"""What must not be in the tree: one machine's paths, registry hosts, names that say nothing."""

from __future__ import annotations

import collections
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
_EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "handler", "impl", "misc", "common"}


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert len(paths) > 20
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


def test_the_patterns_find_what_they_are_for() -> None:
    assert re.search(_FORBIDDEN["a registry host"], "https://pypi" + ".org/simple")
    assert re.search(_FORBIDDEN["a path of one machine"], "see /ro" + "ot/x")
    assert not re.search(_FORBIDDEN["a path of one machine"], "ggml/work/x")


def test_no_module_has_a_name_that_says_nothing(tracked: list[Path]) -> None:
    assert not [path for path in tracked if path.suffix == ".py" and path.stem in _EMPTY_NAMES]


def test_test_files_have_names_of_their_own(tracked: list[Path]) -> None:
    names = collections.Counter(path.name for path in tracked if path.name.startswith("test_"))
    assert not [name for name, count in names.items() if count > 1]
