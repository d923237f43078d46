"""What mutations are made of: a copy of the series, and the good candidate, ready for gates.

A mutation of the series changes patches or profiles before planning; a mutation of the candidate changes the
files that gates look at, as if planning had let it through. What is compiled is kept in the test cache, so a
second run compiles nothing.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from gate_subject import subject_for

from patchkit.base.series_folder import SeriesDir
from patchkit.prove.subject import PatchPart, Subject
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.tree import overlay_tree

ROOT = Path(__file__).resolve().parents[2]
# Enough GPUs to see a leak: the target, its nearest relative, one without matrix units, one with wave64.
_ARCHS = ("gfx1030", "gfx1100", "gfx1151", "gfx906")


@pytest.fixture
def series(tmp_path: Path) -> SeriesDir:
    """The shipped series, to be changed at will."""
    root = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
    (root / "templates").mkdir(exist_ok=True)
    return SeriesDir(root=root, origin="named")


@pytest.fixture(scope="session")
def subject_of(gates_cache: Path, hip_toolchain: Toolchain) -> Callable[[SeriesDir], Subject]:
    """The candidate that a series gives, ready for gates."""
    return lambda series: subject_for(series, gates_cache, hip_toolchain, _ARCHS)


@pytest.fixture(scope="session")
def shipped(subject_of: Callable[[SeriesDir], Subject]) -> Subject:
    """The candidate of the series as it is, placed once for all mutations of the candidate."""
    return subject_of(SeriesDir(root=ROOT, origin="checkout"))


@pytest.fixture(scope="session")
def upstream(gates_cache: Path, hip_toolchain: Toolchain) -> Subject:
    """Upstream's tree at build 11549 on both sides."""
    series = SeriesDir(root=ROOT, origin="checkout")
    subject = subject_for(series, gates_cache, hip_toolchain, ("gfx1151",), upstream="b11549")
    return replace(
        subject,
        candidate=subject.baseline,
        candidate_tree=subject.baseline_tree,
        patches=(),
        authors={},
    )


@pytest.fixture
def edited() -> Callable[..., Subject]:
    """A subject with some of the candidate's files changed; new lines are the patch ``author``'s."""

    def make(subject: Subject, changes: Mapping[str, bytes], author: str) -> Subject:
        root = overlay_tree(subject.candidate, changes, "whole", below=".")
        authors = dict(subject.authors)
        for path, data in changes.items():
            file = subject.candidate / path
            authors[path] = _authors(
                file.read_bytes() if file.is_file() else b"", data, subject.authors.get(path, ()), author
            )
        known = set(subject.changed_files)
        extra = tuple(path for path in changes if path not in known)
        parts = tuple(
            _with_files(part, subject, extra) if part.id == author else part for part in subject.patches
        )
        # A gate keeps its evidence by the tree's name, and two workers edit at once (CI, 2026-11-24).
        tree = tree_name(subject.baseline, root)
        return replace(subject, candidate=root, candidate_tree=tree, authors=authors, patches=parts)

    return make


def tree_name(*roots: Path) -> str:
    """For a tree that git never saw: 40 hexadecimal digits, by the names that ``overlay_tree`` gave."""
    return hashlib.sha1("\0".join(root.name for root in roots).encode(), usedforsecurity=False).hexdigest()


def _with_files(part: PatchPart, subject: Subject, paths: tuple[str, ...]) -> PatchPart:
    old = tuple(path for path in paths if (subject.baseline / path).is_file())
    new = tuple(path for path in paths if path not in old)
    return replace(part, touched=(*part.touched, *old), new_files=(*part.new_files, *new))


def _authors(
    before: bytes, after: bytes, known: tuple[str | None, ...], author: str
) -> tuple[str | None, ...]:
    old, new = before.split(b"\n"), after.split(b"\n")
    authors: list[str | None] = [author] * len(new)
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            at = block.a + offset
            authors[block.b + offset] = known[at] if at < len(known) else None
    return tuple(authors)


@pytest.fixture(scope="session")
def environ_without_rocm() -> dict[str, str]:
    """For commands under test: nothing but the path."""
    return {"PATH": os.environ["PATH"]}
