"""Cleaning up after a patchkit that was killed while it held the cache.

Vocabulary: *remains* are files git makes for the length of one command: locks, and objects not yet
in their place. Only a holder of the cache's lock writes refs and packs, so remains found by the next
holder belong to nobody.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from patchkit.vcs.disk import disk_errors

# Not worktrees/*/index.lock: git run by hand in a checkout may hold one at this moment.
_PATTERNS = (
    "*.lock",
    "refs/**/*.lock",
    "fast_import_crash_*",
    "objects/??/tmp_obj_*",
    "objects/incoming-*",
    "objects/tmp_objdir-*",
    "objects/pack/tmp_*",
    "objects/pack/.tmp-*",
)


def remove_remains(repository: Path) -> tuple[str, ...]:
    """Remove them all; their paths relative to the repository.

    Raises:
        CacheError: the disk refused.
    """
    found = sorted({path for pattern in _PATTERNS for path in repository.glob(pattern)})
    with disk_errors(repository, "cleaning up the cache"):
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return tuple(path.relative_to(repository).as_posix() for path in found)
