"""The list of kinds of sources for a pinned tree, read by the command line, pin.py and the documentation.

Each kind has a model in the lock with that ``kind`` (series/lock.py), and code in pin.py that gets the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SourceName = Literal["git", "sdist"]
AUTO: Literal["auto"] = "auto"
"""The value of ``--source`` for the first source that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One kind of source.

    ``name`` is the value of ``--source`` and the ``kind`` in the lock. ``about`` describes it in one line,
    ``label`` names the next source of that kind in messages. ``is_remote``: ``--upstream-url`` can replace
    it.
    """

    name: SourceName
    about: str
    label: str
    is_remote: bool = False


SOURCES: tuple[SourceKind, ...] = (
    SourceKind(
        name="git",
        about="a git remote: upstream's, a mirror or a local clone",
        label="the next remote",
        is_remote=True,
    ),
    SourceKind(name="sdist", about="a source package that contains the tree", label="the sdist"),
)
"""Every kind, in the order in which they are tried: git first, because it is upstream itself, and smaller."""


def source_names() -> tuple[SourceName, ...]:
    """The names of all kinds."""
    return tuple(kind.name for kind in SOURCES)


def source_words() -> tuple[str, ...]:
    """The values of ``--source``."""
    return (AUTO, *source_names())


def find_source(name: str) -> SourceKind:
    """The kind of that name, which is one of :func:`source_names`."""
    return next(kind for kind in SOURCES if kind.name == name)


def uses_remotes(word: str) -> bool:
    """Whether that value of ``--source`` allows contacting a remote."""
    return word == AUTO or find_source(word).is_remote
