"""The programs that the README requires: the only list of them.

CI runs the README's commands with only these on PATH, and tests/conftest.py gives every test such a PATH, so
that no test can call a program that a new user may not have. A group of programs has the name that the README
uses, or that of the Debian package.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

Groups = Mapping[str, tuple[str, ...]]

MAIN: Groups = {"git": ("git",), "Python": ("python3",)}

# The shell's small tools are those that POSIX has, too, and mktemp, timeout, seq and their like beside them.
_COREUTILS = """
[ basename cat chmod cksum cp cut date dd df dirname du echo env expr false fold head id join link ln ls
mkdir mkfifo mktemp mv nice nl nohup od paste printf pwd readlink realpath rm rmdir seq sha256sum sleep sort
split stat stty tail tee test timeout touch tr true truncate tty uname uniq unlink wc yes
"""
TESTS: Groups = {
    # By any of its names, and with what it calls itself.
    "C++ compiler": (
        "c++",
        "g++",
        "clang++",
        "cc",
        "gcc",
        "clang",
        "as",
        "ld",
        "ld.lld",
        "ar",
        "nm",
        "ranlib",
    ),
    "POSIX shell": ("sh",),
    "coreutils": tuple(_COREUTILS.split()),
    "sed": ("sed",),
    "awk": ("awk",),
}

# For the tests that are marked extra_tools, by Debian package.
EXTRA: Groups = {
    "bash": ("bash",),
    "openssh-client": ("ssh", "ssh-keygen"),
    "openssh-server": ("sshd",),
    "rsync": ("rsync",),
    "util-linux": ("unshare", "setpriv"),
    "mount": ("mount",),
    "qemu-user": ("qemu-aarch64",),
    "zsh": ("zsh",),
    "fish": ("fish",),
}

# For the tests that are marked hip and cpu_build; without ccache they take longer.
PROOFS: Groups = {"gnupg": ("gpg",), "ccache": ("ccache",)}

GROUPS_OF: Mapping[str, Groups] = {
    "main": MAIN,
    "tests": {**MAIN, **TESTS},
    "extra_tools": {**MAIN, **TESTS, **EXTRA},
}

_ADMINISTRATORS = "/usr/sbin:/sbin"  # where sshd is, in nobody's PATH but root's


class NoSuchProgram(LookupError):
    """A group of which this machine has no program."""


def link_programs(folder: Path, groups: Groups, path: str) -> Path:
    """Make a folder of links to the programs of the groups, of those that ``path`` has, and nothing else.

    Raises:
        NoSuchProgram: ``path`` has nothing of a group.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for group, programs in groups.items():
        found = {name: place for name in programs if (place := _find(name, path))}
        if not found:
            raise NoSuchProgram(f"there is no {group} on this machine ({', '.join(programs[:3])})")
        for name, place in found.items():
            if name == "python3":
                # A virtual environment remembers where its Python was called: not here, the folder goes away.
                # And what PATH has may be the script of a version manager, which needs programs of its own.
                (folder / name).write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n')
                (folder / name).chmod(0o755)
            else:
                (folder / name).symlink_to(place)
    return folder


def missing(groups: Groups, path: str) -> list[str]:
    """The groups of which ``path`` lacks a program."""
    return [name for name, programs in groups.items() if not all(_find(each, path) for each in programs)]


def _find(name: str, path: str) -> str | None:
    found = shutil.which(name, path=f"{path}:{_ADMINISTRATORS}")
    return found and str(Path(found).absolute())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["missing"]:
            print(*missing({**EXTRA, **PROOFS}, os.environ["PATH"]))
        case ["link", name, folder]:
            link_programs(Path(folder), GROUPS_OF[name], os.environ["PATH"])
        case _:
            sys.exit(f"usage: programs.py missing | link {'|'.join(GROUPS_OF)} FOLDER")
