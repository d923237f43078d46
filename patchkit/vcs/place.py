"""Whether a folder that the user named is one to write files into.

Vocabulary: a *kept* folder holds what patchkit itself reads; nothing else may be put there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import Location, UsageError


class PlaceUnusable(UsageError):
    """The folder cannot be replaced as a whole, or holds what patchkit reads."""

    code = "PLACE_UNUSABLE"


def usable_place(directory: Path, kept: Sequence[Path] = ()) -> Path:
    """The absolute path of ``directory``, links followed; nothing is written.

    Raises:
        PlaceUnusable: it is the root of a file system, or it is in one of the ``kept`` folders.
    """
    try:
        found = directory.resolve()
    except (OSError, RuntimeError) as error:  # the latter: links in a circle, before Python 3.13
        raise _unusable(directory, f"its path cannot be followed: {error}") from error
    if not found.name:
        raise _unusable(directory, "it is the root of the file system")
    if os.path.ismount(found):
        # A new content takes the folder's place by renaming, which no mount point allows.
        raise _unusable(directory, "another file system is mounted there")
    for folder in kept:
        if found.is_relative_to(folder.resolve()):
            raise _unusable(directory, f"patchkit itself keeps its files in {folder}")
    return found


def _unusable(directory: Path, why: str) -> PlaceUnusable:
    shown = os.fsencode(directory).decode("utf-8", "backslashreplace")
    return PlaceUnusable(
        f"nothing can be put at {shown}",
        where=Location(path=shown),
        why=why,
        hint="name a new folder, for example below your home folder",
    )
