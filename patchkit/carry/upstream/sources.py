"""The one list of sources of a pinned tree: the command line, whoever gets a tree and the documents read it.

Each is a model of the lock with that ``kind`` (series/lock.py), and a way to get the tree in pin.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SourceName = Literal["git", "sdist"]
AUTO: Literal["auto"] = "auto"
"""The word for the first source that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One kind of source.

    ``name`` is the word of ``--source`` and the ``kind`` of the lock. ``about`` is what it is, in one line,
    ``told`` what a message calls the next one of that kind. ``is_remote``: ``--upstream-url`` stands for it.
    """

    name: SourceName
    about: str
    told: str
    is_remote: bool = False


SOURCES: tuple[SourceKind, ...] = (
    SourceKind(
        name="git",
        about="a git remote: upstream's, a mirror or a local clone",
        told="the next remote",
        is_remote=True,
    ),
    SourceKind(name="sdist", about="a source package that carries the tree", told="the sdist"),
)
"""Every kind, in the order in which they are tried: git is upstream itself, and smaller."""


def source_names() -> tuple[SourceName, ...]:
    """Their names."""
    return tuple(kind.name for kind in SOURCES)


def source_words() -> tuple[str, ...]:
    """What ``--source`` takes."""
    return (AUTO, *source_names())


def find_source(name: str) -> SourceKind:
    """The kind of that name, which is one of :func:`source_names`."""
    return next(kind for kind in SOURCES if kind.name == name)


def asks_remotes(word: str) -> bool:
    """Whether that word of ``--source`` lets a remote be asked."""
    return word == AUTO or find_source(word).is_remote
