"""Which paths a file of a git tree may have here: what git itself would check out, and a person can read."""

from __future__ import annotations

import re

MAX_PATH = 1000
"""Bytes of a path. The longest of build 11549 has 111."""
_MAX_NAME = 255  # bytes of one name: what Linux's file systems take

# What git's verify_path and fsck take for .git and .gitmodules: NTFS has short names for both, drops
# blanks and dots at the end of a name, and has streams behind a colon. HFS drops characters that
# nobody sees; those are not printable, and no path has them.
_GITS_OWN = re.compile(r"(\.git|git~\d+)[. ]*(:.*)?", re.IGNORECASE)
_MODULES = re.compile(r"(\.gitmodules|gitmod~\d+|gi7eba~\d+)[. ]*(:.*)?", re.IGNORECASE)


def fault_of_path(path: str) -> str | None:
    """Why no patch may touch a file of this name; None where it may."""
    if not path.isprintable():
        return "a path has printable characters only, in UTF-8"  # the rest may have lone surrogates
    names = path.split("/")
    long = max(len(name.encode("utf-8")) for name in names)
    faults = {
        "a path has no backslash: git takes it for a '/' on Windows": "\\" in path,
        f"a path has at most {MAX_PATH} bytes, a name in it {_MAX_NAME}": (
            long > _MAX_NAME or len(path.encode("utf-8")) > MAX_PATH
        ),
        "a path begins at the root of upstream's tree, and is names joined by single '/'": "" in names,
        "a path goes down only: no '.' and no '..'": bool({".", ".."} & set(names)),
        "'.git' is git's own, in every spelling that a file system takes for it": any(
            map(_GITS_OWN.fullmatch, names)
        ),
        "'.gitmodules' names places that git fetches from, in every spelling of it": any(
            map(_MODULES.fullmatch, names)
        ),
    }
    return next((fault for fault, holds in faults.items() if holds), None)
