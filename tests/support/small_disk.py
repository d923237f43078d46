"""A disk that is really full: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

_NAMESPACE = ("unshare", "--map-root-user", "--mount", "sh", "-c")


def on_small_disk(mount: Path, kilobytes: int, script: str = 'exec "$@"') -> list[str]:
    """What goes in front of a command, so that it finds a disk of that size at ``mount``.

    ``script`` is what the shell does there, with the command as ``"$@"``. A test is skipped where mount
    namespaces are forbidden. That is tried by itself, so that no end of a command is taken for it.
    """
    if shutil.which("unshare") is None:
        pytest.fail("util-linux (unshare) is part of every Debian; it is missing here")
    if not _are_allowed():
        pytest.skip("mount namespaces are not allowed here")
    mount.mkdir(parents=True, exist_ok=True)
    small = f"mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(mount))} || exit"
    return [*_NAMESPACE, f"{small}; {script}", "sh"]


@functools.cache
def _are_allowed() -> bool:
    tried = [*_NAMESPACE, "mount -t tmpfs none /mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0
