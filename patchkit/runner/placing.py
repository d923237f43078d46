"""A digest of a file or folder: what is copied to another machine once."""

from __future__ import annotations

import hashlib
from pathlib import Path

from patchkit.vcs.disk import disk_errors


def content_key(path: Path) -> str:
    """20 hex digits over names, modes, links and bytes. Raises CacheError when the disk refuses."""
    digest = hashlib.sha256()
    with disk_errors(path, "reading what is to be copied"):
        for entry in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = entry.relative_to(path.parent).as_posix()
            if entry.is_symlink():
                digest.update(f"link {name} {entry.readlink()}\n".encode())
            elif entry.is_file():
                with entry.open("rb") as stream:
                    content = hashlib.file_digest(stream, "sha256").hexdigest()
                digest.update(f"file {name} {entry.stat().st_mode & 0o111:o} {content}\n".encode())
    return digest.hexdigest()[:20]
