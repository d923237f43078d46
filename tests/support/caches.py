"""Copies of patchkit's cache folders, for tests that write to one."""

from __future__ import annotations

import os
import shutil


def link_kept(source: str, target: str) -> str:
    """For ``shutil.copytree``: objects of git and exported trees are never rewritten, so those are linked."""
    if "/objects/" in source or "/trees/" in source:
        try:
            os.link(source, target)
        except OSError:  # another file system
            return shutil.copy2(source, target)
        return target
    return shutil.copy2(source, target)
