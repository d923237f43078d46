"""Which paths a patch may name: only those that git itself would check out, and that are printable."""

from __future__ import annotations

import re

MAX_PATH = 1000
"""In bytes. The longest path of build 11549 has 111."""
_MAX_NAME = 255  # bytes of one path component, Linux's limit

# The names that git's verify_path and fsck treat as .git and .gitmodules. NTFS has short names for both,
# drops spaces and dots at the end of a name, and has streams after a colon. HFS ignores some invisible
# characters; those are not printable, so they are rejected anyway.
_GITS_OWN = re.compile(r"(\.git|git~\d+)[. ]*(:.*)?", re.IGNORECASE)
_MODULES = re.compile(r"(\.gitmodules|gitmod~\d+|gi7eba~\d+)[. ]*(:.*)?", re.IGNORECASE)


def fault_of_path(path: str) -> str | None:
    """Why no patch may touch a file of this name; None if it may."""
    if not path.isprintable():
        return "a path must consist of printable characters, in UTF-8"  # others may be lone surrogates
    names = path.split("/")
    long = max(len(name.encode("utf-8")) for name in names)
    faults = {
        "a path must not contain a backslash: git on Windows reads it as '/'": "\\" in path,
        f"a path has at most {MAX_PATH} bytes, and each name in it at most {_MAX_NAME}": (
            long > _MAX_NAME or len(path.encode("utf-8")) > MAX_PATH
        ),
        "a path starts at the root of upstream's tree and has names joined by single '/'": "" in names,
        "a path must not contain '.' or '..'": bool({".", ".."} & set(names)),
        "'.git' is reserved by git, in every spelling that a file system accepts for it": any(
            map(_GITS_OWN.fullmatch, names)
        ),
        "'.gitmodules' makes git fetch other repositories, so no spelling of it is allowed": any(
            map(_MODULES.fullmatch, names)
        ),
    }
    return next((fault for fault, holds in faults.items() if holds), None)
