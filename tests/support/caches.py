"""Copies of patchkit's cache folders, for tests that write to one."""

from __future__ import annotations

import os
import shutil


def link_objects(source: str, target: str) -> str:
    """For ``shutil.copytree``: git never rewrites an object, so those are linked; all else is copied."""
    if "/objects/" in source:
        try:
            os.link(source, target)
        except OSError:  # another file system
            return shutil.copy2(source, target)
        return target
    return shutil.copy2(source, target)
