"""What a changed path of this repository is a part of.

Vocabulary: a *part* is what a path belongs to. The *series* parts decide what candidates are and go through
the gates; *docs* change nothing that runs; everything else is patchkit itself (*code*), which only its own
tests can judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from patchkit.gating.pull import Change
from patchkit.series_dir import is_editors

Part = Literal["profile", "patch", "template", "rules", "lock", "catalogue", "docs", "code"]

SERIES_PARTS: frozenset[Part] = frozenset({"profile", "patch", "template", "rules", "lock"})

_PLAIN_FILES = frozenset({"100644", "100755"})
_TEXTS = (".md", ".rst", ".txt", ".png", ".svg")
_DOCUMENTS = ("LICENSE", "NOTICE", "AUTHORS")


def parts_of(changes: Iterable[Change]) -> dict[str, Part]:
    """The part of every changed path."""
    return {change.path: part_of(change) for change in changes}


def part_of(change: Change) -> Part:
    """The part of one path. A README beside a patch is of the patch: the lock records every file there."""
    path = PurePosixPath(change.path)
    top = path.parts[0]
    if top == "templates":
        return "template"
    if top == "arch_profiles":
        return "profile" if path.suffix == ".toml" else "code"
    if top == "patches":
        return _of_patches(path)
    if change.mode in _PLAIN_FILES and _is_document(path):
        return "docs"
    return "code"


def _of_patches(path: PurePosixPath) -> Part:
    if len(path.parts) > 2:  # noqa: PLR2004 - patches/<folder>/<file>
        return "docs" if is_editors(path) else "patch"
    named: dict[str, Part] = {
        "upstream.lock": "lock",
        "series.toml": "rules",
        "upstreams.toml": "catalogue",
    }
    return named.get(path.name, "code")  # the schemas are made from the code


def _is_document(path: PurePosixPath) -> bool:
    top = path.parts[0]
    if len(path.parts) == 1:
        return path.suffix == ".md" or path.name.startswith(_DOCUMENTS)
    return top == "docs" and path.suffix in _TEXTS
